"""Frames: where the compiler meets the running program.

In:  a thread that runs Python.
Out: each new frame as a `Frame`, before it runs, and its bytecode as `Instruction`s.

`_framehook.c` is the hook, `hook.py` its Python side, `trampoline.py` the way without it, `instructions.py` the bytecode of three Python
versions as one.
In PyTorch: `torch/csrc/dynamo/eval_frame.c`, `torch/_dynamo/eval_frame.py`, `torch/_dynamo/bytecode_transformation.py`.
"""

from course_lib.frames.hook import SKIP, Answer, Frame, Watcher, available, observe, parameter_names, unobserved
from course_lib.frames.instructions import ExceptionEntry, Instruction, Row, disassembly, exception_table, instructions

__all__ = [
    "SKIP", "Answer", "ExceptionEntry", "Frame", "Instruction", "Row", "Watcher", "available", "disassembly", "exception_table",
    "instructions", "observe", "parameter_names", "unobserved",
]  # fmt: skip
