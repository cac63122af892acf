#!/bin/sh
# One would guess that a function computes with the numbers in its `__code__.co_consts`, so that `code.replace(co_consts=...)` with another
# number gives a function that uses it, as it does up to CPython 3.13.
# CPython 3.14 writes ints from 0 to 255 into the instruction (LOAD_SMALL_INT) and leaves the number in `co_consts` all the same when it is
# the first: there it is seen, and changing it changes nothing. A larger number is read from `co_consts`, as before.
#
# Seen 2026-11-29 with CPython 3.14.10; 3.15.2 does the same, 3.11.7 does not. It needs `python3.14`. For our users: whoever edits bytecode
# (lesson 02) edits instructions; `course_lib` writes its code with the assembler of its own `frames/`.
set -eu
python=${PYTHON:-python3.14}

"$python" - <<'PYTHON'
import dis
import sys


def small(x):
    return x + 5


def large(x):
    return x + 500


def changed(function, before, after):
    """What the function gives for 1 when this constant of its code was exchanged."""
    constants = tuple(after if each == before else each for each in function.__code__.co_consts)
    function.__code__ = function.__code__.replace(co_consts=constants)
    return function(1)


print("CPython", sys.version.split()[0])
loads = [next(i.opname for i in dis.get_instructions(f) if i.argval in (5, 500)) for f in (small, large)]
held = 5 in small.__code__.co_consts
print("5 in co_consts:", held, "| loaded by", *loads)
got = changed(small, 5, 6), changed(large, 500, 600)
print("x + 5 with 5 exchanged for 6:      ", got[0])
print("x + 500 with 500 exchanged for 600:", got[1])

seen = held and got == (6, 601)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
