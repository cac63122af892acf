"""The frame hook, and bytecode as one instruction set.

`hook.py`: see each Python frame before it runs, and run something else in its place (`_framehook.c` does it).
`trampoline.py`: the same for single functions, without the hook.
`instructions.py`: the bytecode of CPython 3.11, 3.12 and 3.13 as one list of `Instruction`s.
"""

from course_lib.frames.hook import (
    SKIP,
    Answer,
    Frame,
    Guard,
    Head,
    Watcher,
    call,
    enter,
    hook_kind,
    installed,
    n_params,
    number,
    parameters,
    watching,
)
from course_lib.frames.instructions import (
    CANONICAL,
    JUMPS,
    ExceptionEntry,
    Instruction,
    Row,
    disassembly,
    exception_table,
    instructions,
    line_of,
)
from course_lib.frames.trampoline import flatten, observe, swap, trampoline, unswap

__all__ = [
    "CANONICAL", "JUMPS", "SKIP", "Answer", "ExceptionEntry", "Frame", "Guard", "Head", "Instruction", "Row",
    "Watcher", "call", "disassembly", "enter", "exception_table", "flatten", "hook_kind", "installed",
    "instructions", "line_of", "n_params", "number", "observe", "parameters", "swap", "trampoline", "unswap", "watching",
]  # fmt: skip
