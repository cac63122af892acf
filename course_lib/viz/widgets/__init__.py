"""Pictures that answer: choose, move a tile, guess before running, step through a capture.

live.py         a widget where there is a kernel, and a picture where there is none
predict.py      a question to answer before running
choose.py       which loops run as one kernel, which sizes lengths are padded to
move_tile.py    a tile that moves over its tensor
stepper.py      a capture, instruction by instruction
"""
