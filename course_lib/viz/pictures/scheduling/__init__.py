"""Scheduling: what was fused, in which order kernels run, and how much memory they hold.

fused_loops.py                       what fusion did: `fusion_items.py` says what is shown,
                                     `fusion_drawing.py` draws it
order.py                             who must run before whom
memory_timeline.py                   memory while a graph runs
mask_blocks.py, running_softmax.py   attention: blocks of a mask, and the running maximum
"""
