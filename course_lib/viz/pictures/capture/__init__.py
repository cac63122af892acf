"""Capture: what the symbolic interpreter ran, and where it had to stop.

bytecode_table.py, stack_words.py    what was run, and the stack in words
break_card.py, cut_frame.py          one graph break, and the frame cut in pieces
resume_code.py                       the bytecode of a resume function
trampoline.py                        calls seen without a frame hook
"""
