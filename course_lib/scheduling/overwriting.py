"""Which operand a kernel may write its result over.

In:  a kernel, and the operands that it is the last to need.
Out: result → the operand whose memory it takes (`Overwriting.operands_to_overwrite`).

A result that is only computed to be put into an input (`x.add_(1)`) is best written into that input
at once. Any other may go over a buffer that dies. Both are right only where each element is read
in the very iteration that writes it (`only_read_where_written`).
In PyTorch: `torch/_inductor/scheduler.py`, `SchedulerNode.decide_inplace_update`;
`torch/_inductor/ir.py`, `MutationLayoutSHOULDREMOVE`.
"""

import operator
from collections.abc import Mapping, Sequence

from course_lib.failing import may_fail
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Pointwise, View
from course_lib.scheduling.groups import Group, Member
from course_lib.scheduling.kernel import Kernel
from course_lib.scheduling.schedule import Schedule
from course_lib.sizes import same, surely


class Overwriting:
    """What must be known of a whole program to say which operands its kernels may write over.

    `last_use`: for each buffer the position of the last kernel that needs it."""

    def __init__(self, schedule: Schedule, graph: LoopGraph, last_use: Mapping[str, int]) -> None:
        self.buffers, self.groups = graph.buffers, schedule.groups
        self.last_use = last_use

        # What is computed only to be put into an input → that input
        self.input_for = inputs_to_update(graph)

        # The last kernel that may refuse its data. Until it has run, inputs stay as they are: eager
        # may have to start anew.
        failing = [n for n, kernel in enumerate(schedule.kernels) if self.looks_at_data(n, kernel)]
        self.last_check = max(failing, default=-1)

    def looks_at_data(self, n: int, kernel: Kernel) -> bool:
        """Does kernel `n` look at data that eager may refuse: an index, a matrix to be inverted?"""
        if isinstance(kernel, ExternKernel):
            return any(map(may_fail, kernel.origins))
        return any("indirect" in member.body.operations for member in self.groups[n].members)

    def operands_to_overwrite(self, n: int, kernel: Kernel, dying: Sequence[str]) -> dict[str, str]:
        """Result of kernel `n` → the operand that it is written over.

        `dying`: operands that nobody needs after this kernel. Inputs are none of them: their memory
        is the caller's."""
        # A library call reads its operands in any order.
        if isinstance(kernel, ExternKernel):
            return {}

        overwritten: dict[str, str] = {}
        for new in kernel.buffers:
            candidates = [*self.input_to_write(n, new), *sorted(dying)]
            for old in candidates:
                # Each operand has room for one result.
                if old not in overwritten.values() and self.may_overwrite(n, old, new):
                    overwritten[new.name] = old
                    break
        return overwritten

    def input_to_write(self, n: int, new: Buffer) -> list[str]:
        """The input that `new` is for, if kernel `n` may write to it; else none.

        Not before the last check of data, nor if another kernel reads it later."""
        old = self.input_for.get(new.name)
        if old is None:
            return []

        is_read_later = self.last_use.get(old.name, n) > n
        if n <= self.last_check or is_read_later or not old.lies_like(new):
            return []
        return [old.name]

    def may_overwrite(self, n: int, old: str, new: Buffer) -> bool:
        """True if the memory of `old` serves `new`, and is read only where `new` is written."""
        if not alike(self.buffers[old], new):
            return False
        return only_read_where_written(self.groups[n], old, new.name)


def inputs_to_update(graph: LoopGraph) -> dict[str, Buffer]:
    """For what is computed only to be put into an input: that input."""
    names = []
    for output in graph.outputs:
        is_tensor = isinstance(output, View)
        names.append(output.buffer.name if is_tensor else "")

    # An output that is also returned, or put into a second input, is needed beside the input.
    input_for = {}
    for n, input_buffer in graph.updates.items():
        if input_buffer is not None and names.count(names[n]) == 1:
            input_for[names[n]] = input_buffer
    return input_for


def alike(old: Buffer, new: Buffer) -> bool:
    """True if the memory of one serves the other."""
    is_alike = (old.dtype, old.device) == (new.dtype, new.device)
    return is_alike and same(old.extent, new.extent)


def only_read_where_written(group: Group, old: str, new: str) -> bool:
    """True if each element of `old` is read only in the iteration that writes the same element of
    `new`.

    Two spellings of one index count as two: then the answer is no, which is always right."""
    writes = [member.body.write for member in group.members]
    store = next(write.index for write in writes if write.buffer == new)

    readers = []
    for member in group.members:
        for access in member.body.reads:
            if access.buffer == old:
                readers.append(member)
                if access.index != store:
                    return False

    # Of a loop that does not move the store, each iteration comes back to the same element: the
    # second one would read what the first has written. Any other leads to an element of its own.
    loops = group.loops
    # What runs once a row reads `old` before the columns are walked, and results of a row are
    # stored after that. So the columns may come back. (This also holds if nobody here reads it.)
    if all(runs_once_a_row(member, group) for member in readers):
        loops = group.rows
    steps = [store.coefficient(loop.symbol) for loop in loops]
    return all(surely(operator.ne, step, 0) for step in steps)


def runs_once_a_row(member: Member, group: Group) -> bool:
    """True for a loop over rows only."""
    index = member.body.write.index
    moves = [index.moves_with(loop.symbol) for loop in group.columns]
    return isinstance(member.node, Pointwise) and not any(moves)
