"""The call that goes on with interpreted code in the real world.

In:  an interpreter that stopped before an instruction, and the texts of what is on its stack.
Out: the source of a call of `resume`, with the values of the variables that are still needed.

A graph break needs it for the rest of the frame (`breaks.py`), and a generator that is alive for
the rest of its own code.
In PyTorch: `create_call_resume_at` in `torch/_dynamo/symbolic_convert.py`, and
`torch/_dynamo/resume_execution.py`.
"""

from __future__ import annotations

from types import CellType, GeneratorType
from typing import TYPE_CHECKING, Any

from course_lib.capture.world import NULL, Handled
from course_lib.frames.resume import Slot, live, resume, resume_at
from course_lib.written import as_tuple

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine
    from course_lib.capture.rebuild import Rebuilder


def stack_of(head: Rebuilder, it: Machine) -> list[Any]:
    """What is on the stack of `it`, as text.

    NULL and exceptions that are being handled stay what they are."""
    stack = []
    for value in it.stack:
        is_marker = value is NULL or type(value) is Handled
        if not is_marker:
            value = head.rebuild(value)
        stack.append(value)
    return stack


def resumption(
    head: Rebuilder, it: Machine, offset: int, stack: list[Any], function: str, plain: bool
) -> str:
    """The call that goes on with what `it` interprets at `offset`, with this on the stack.

    `function`: the text of the function object whose code it is. `plain`: without compiling."""
    needed = needed_at(it, offset)
    values = {name: head.rebuild(value) for name, value in variables_of(it, needed).items()}
    unbound = needed.intersection(it.code.co_varnames).difference(values)

    slots = tuple(map(kind_of_slot, stack))
    at = resume_at(it.code, offset, slots, unbound)
    # A cell that nobody reads any more is a new one, a variable None.
    closure = as_tuple([values.get(name, "CellType()") for name in at.names])
    local_variables = [values.get(name, "None") for name in it.code.co_varnames]

    arguments = [
        head.name_for(at, f"at_{offset}"),
        str(plain),
        function,
        closure,
        as_tuple(texts_of(head, stack)),
        *local_variables,
    ]
    return f"{head.name_for(resume, 'resume')}({', '.join(arguments)})"


def needed_at(it: Machine, offset: int) -> frozenset[str]:
    """The variables that the code may still read from `offset` on."""
    needed = live(it.code).get(offset, frozenset())
    # `super()` looks at the first argument.
    if "__class__" in it.code.co_freevars:
        needed = needed | {it.code.co_varnames[0]}
    return needed


def variables_of(it: Machine, needed: frozenset[str]) -> dict[str, Any]:
    """The variables to hand on: cells first, then those that are needed; and generators, which must
    not end early."""
    cells = {}
    for name, value in it.locals.items():
        if type(value) is CellType:
            cells[name] = it.world.open_cell(value)

    held = {}
    for name, value in it.locals.items():
        if name in needed or type(value) is GeneratorType:
            held[name] = value
    return cells | held


def kind_of_slot(value: Any) -> Slot:
    """How `resume_at` is to put back what stands here."""
    if type(value) is Handled:
        return Slot.HANDLED
    if value is NULL:
        return Slot.NULL
    return Slot.VALUE


def texts_of(head: Rebuilder, stack: list[Any]) -> list[str]:
    """The values of a stack as texts, without NULL."""
    texts = []
    for slot in stack:
        if type(slot) is Handled:
            texts.append(head.rebuild(slot.error))
        elif slot is not NULL:
            texts.append(slot)
    return texts
