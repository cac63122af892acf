"""The frame hook, and bytecode as one instruction set.

`hook.py`: see each Python frame before it runs, and run something else in its place (`_framehook.c`
does it). `instructions.py`: the bytecode of CPython 3.11 to 3.15 as one list of `Instruction`s.
`op_parts.py`: the table behind it: what each of CPython's instructions becomes. An instruction of a
new Python goes here. `resume.py`: code that goes on in the middle of a function; `assembling.py`
writes the bytes of its instructions and tables.
`tracebacks.py`: the lines of the user's program in place of ours. `newer.py`: objects that older
Pythons lack.
"""

from course_lib.frames.hook import (
    AS_IT_IS,
    SKIP,
    Answer,
    Frame,
    Watcher,
    call,
    call_hidden,
    call_revealed,
    installed,
    number,
    parameters,
    run_apart,
    watching,
    wrapper,
)
from course_lib.frames.instructions import JUMPS, Instruction, exception_table, instructions
