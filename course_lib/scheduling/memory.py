"""Which buffer lives where, and how long.

In:  a `Schedule`: kernels in order, each with the buffers it reads and stores.
Out: a `MemoryPlan`: for each stored buffer the storage it lives in, and after each kernel the
     storages that are free again.

Fresh memory is dear (the system clears each page when it is first touched), memory in cache is
cheap. So a kernel may write its result over an operand that nobody needs any more, element by
element (`in place`), and what was freed is used again.
In PyTorch: `torch/_inductor/codegen/wrapper.py` (`MemoryPlanningState`, `AllocateLine`,
`ReuseLine`), `memory.py`.
"""

import operator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch._prims_common import compute_required_storage_length

from course_lib.failing import may_fail
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Pointwise, View
from course_lib.scheduling.groups import Group, Member
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.schedule import Schedule
from course_lib.sizes import expanded, hint, is_symbolic, same, surely

How = Literal["new", "reuse", "in place"]


class Allocation(NamedTuple):
    """Where a buffer lives.

    `how`: 'new' memory, 'reuse' of what was freed, or 'in place' of an operand of its kernel."""

    buffer: Buffer
    storage: str
    how: How
    # The position of the kernel that writes it
    kernel: int

    def __str__(self) -> str:
        if self.how == "new":
            return f"{self.buffer.name} in {self.storage}"
        return f"{self.buffer.name} {self.how} of {self.storage}"


@dataclass
class MemoryPlan:
    """`place` names the storage of each stored buffer; `free_after[n]` are the storages that kernel
    n is the last to need."""

    place: dict[str, str] = field(default_factory=dict)
    free_after: list[tuple[str, ...]] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)


def plan(schedule: Schedule, graph: LoopGraph) -> MemoryPlan:
    """Decide where each stored buffer lives.

    A kernel is printed by itself, without the plan. So it is told here which of its operands it
    writes over (`in_place`); nothing else of the schedule is changed."""
    planner = Planner(schedule, graph)
    for n, kernel in enumerate(schedule.kernels):
        overwritten = planner.place_results_of(n, kernel)
        if isinstance(kernel, FusedKernel):
            kernel.in_place.update(overwritten)

    # When is each storage needed for the last time? It may hold several buffers, one after another.
    last: dict[str, int] = {}
    for allocation in planner.result.allocations:
        use = planner.last_use[allocation.buffer.name]
        last[allocation.storage] = max(last.get(allocation.storage, 0), use)

    free_after: list[list[str]] = [[] for _ in schedule.kernels]
    for storage, n in last.items():
        # What is returned is never free.
        if n < len(free_after):
            free_after[n].append(storage)

    planner.result.free_after = [tuple(free) for free in free_after]
    return planner.result


class Planner:
    """The state of one `plan` call."""

    def __init__(self, schedule: Schedule, graph: LoopGraph) -> None:
        kernels = schedule.kernels
        self.buffers, self.groups = graph.buffers, schedule.groups

        # The last kernel that reads or writes each buffer. What is returned outlives all of them.
        self.last_use: dict[str, int] = {}
        for n, kernel in enumerate(kernels):
            for name in (*kernel.reads, *(buffer.name for buffer in kernel.buffers)):
                self.last_use[name] = n
        self.last_use |= dict.fromkeys(graph.returned, len(kernels))

        # What is computed only to be put into an input → that input
        self.input_for = inputs_to_update(graph)

        # The last kernel that may refuse its data. Until it has run, inputs stay as they are: eager
        # may have to start anew.
        failing = [n for n, kernel in enumerate(kernels) if self.may_fail(n, kernel)]
        self.last_check = max(failing, default=-1)

        # Memory that is free, by what it serves; the latest comes last
        self.free: dict[Room, list[Allocation]] = {}
        # For each buffer the number of its allocation
        self.number: dict[str, int] = {}
        self.result = MemoryPlan()

    def may_fail(self, n: int, kernel: Kernel) -> bool:
        """Does kernel `n` look at data that eager may refuse: an index, a matrix to be inverted?"""
        if isinstance(kernel, ExternKernel):
            return any(map(may_fail, kernel.origins))
        return any("indirect" in member.body.operations for member in self.groups[n].members)

    def place_results_of(self, n: int, kernel: Kernel) -> dict[str, str]:
        """Find a place for each buffer that kernel `n` stores.

        Gives result → the operand that it is written over.

        Then the memory of what is not needed any more is free for the next kernels."""
        # Operands that this kernel is the last to read. Inputs are none of them: their memory is
        # the caller's.
        placed_here = kernel.reads & self.result.place.keys()
        dying = sorted(name for name in placed_here if self.last_use[name] == n)

        overwritten: dict[str, str] = {}
        for buffer in kernel.buffers:
            old = None
            if isinstance(kernel, FusedKernel):  # a library call reads its operands in any order
                old = self.operand_to_overwrite(n, buffer, dying)

            if old is not None:
                overwritten[buffer.name] = old
                dying = [name for name in dying if name != old]  # its memory lives on
                self.place(buffer, self.result.place.get(old, old), "in place", n)
            else:
                self.place_elsewhere(buffer, n, kernel)

        unread = [buffer.name for buffer in kernel.buffers if self.last_use[buffer.name] == n]
        dead = {self.number[name] for name in (*dying, *unread)}
        for number in sorted(dead):
            allocation = self.result.allocations[number]
            self.free.setdefault(room_for(allocation.buffer), []).append(allocation)
        return overwritten

    def place_elsewhere(self, buffer: Buffer, n: int, kernel: Kernel) -> None:
        """Memory that was freed before, or else new memory."""
        free = self.memory_for(buffer, kernel)
        if free is None:
            self.place(buffer, buffer.name, "new", n)
        else:
            self.place(buffer, free.storage, "reuse", n)

    def place(self, buffer: Buffer, storage: str, how: How, n: int) -> None:
        """Note where a buffer lives."""
        self.result.place[buffer.name] = storage
        self.number[buffer.name] = len(self.result.allocations)
        self.result.allocations.append(Allocation(buffer, storage, how, n))

    def memory_for(self, buffer: Buffer, kernel: Kernel) -> Allocation | None:
        """Take memory that was freed and fits, the latest: it may still be in the cache."""
        # An operator without an `out` form allocates by itself.
        if isinstance(kernel, ExternKernel) and kernel.out_variant is None:
            return None

        free = self.free.get(room_for(buffer))
        if not free:
            return None
        return free.pop()

    def operand_to_overwrite(self, n: int, new: Buffer, dying: list[str]) -> str | None:
        """The input that `new` is for, or an operand that dies here; if only the very element that
        is then written is read."""
        candidates = list(dying)
        input_buffer = self.input_for.get(new.name)
        if (
            input_buffer is not None
            and self.may_be_written(n, input_buffer)
            and input_buffer.lies_like(new)
        ):
            candidates.insert(0, input_buffer.name)

        for old in candidates:
            fits = alike(self.buffers[old], new)
            if fits and only_read_where_written(self.groups[n], old, new.name):
                return old
        return None

    def may_be_written(self, n: int, input_buffer: Buffer) -> bool:
        """May kernel `n` write to this input?

        Not before the last check of data, nor if another reads it later."""
        return n > self.last_check and self.last_use.get(input_buffer.name, n) <= n


def peak_bytes(plan: MemoryPlan) -> int:
    """The most bytes that the stored buffers take at one time, for the sizes of this call.

    Inputs do not count."""
    size_of: dict[str, int] = {}
    made_by: dict[int, int] = {}
    for allocation in plan.allocations:
        if allocation.how == "new":
            size_of[allocation.storage] = (
                hint(extent(allocation.buffer)) * allocation.buffer.dtype.itemsize
            )
            made_by[allocation.kernel] = (
                made_by.get(allocation.kernel, 0) + size_of[allocation.storage]
            )

    held = peak = 0
    for kernel, freed in enumerate(plan.free_after):
        held += made_by.get(kernel, 0)
        peak = max(peak, held)
        # A storage that is an input's is not in the table
        held -= sum(size_of.get(storage, 0) for storage in freed)
    return peak


def inputs_to_update(graph: LoopGraph) -> dict[str, Buffer]:
    """For what is computed only to be put into an input: that input."""
    names = []
    for output in graph.outputs:
        is_tensor = isinstance(output, View)
        names.append(output.buffer.name if is_tensor else "")

    input_for = {}
    for n, input_buffer in graph.updates.items():
        if input_buffer is not None and names.count(names[n]) == 1:
            input_for[names[n]] = input_buffer
    return input_for


class Room(NamedTuple):
    """What memory has to offer to a buffer: `elements` (a number, or a formula of sizes) from the
    first to the last."""

    dtype: torch.dtype
    device: torch.device
    elements: Any


def room_for(buffer: Buffer) -> Room:
    elements = extent(buffer)
    if is_symbolic(elements):
        # Rooms are keys of a dict, which compares them. To compare two `Size`s may leave a guard;
        # two formulas are equal or not.
        elements = elements.expr
    return Room(buffer.dtype, buffer.device, elements)


def extent(buffer: Buffer) -> Any:
    """Elements from the first to the last of the buffer: a number, or a formula of sizes."""
    if not any(map(is_symbolic, (*buffer.shape, *buffer.stride))):
        return compute_required_storage_length(buffer.shape, buffer.stride, 0)
    if any(same(n, 0) for n in buffer.shape):
        return 0
    steps = zip(buffer.shape, buffer.stride, strict=True)
    return expanded(1 + sum((n - 1) * step for n, step in steps))


def alike(old: Buffer, new: Buffer) -> bool:
    """True if the memory of one serves the other."""
    is_alike = (old.dtype, old.device) == (new.dtype, new.device)
    return is_alike and same(extent(old), extent(new))


def only_read_where_written(group: Group, old: str, new: str) -> bool:
    """True if the group reads `old` only at the element of `new` that it writes in the same
    iteration."""
    writes = [member.body.write for member in group.members]
    store = next(write.index for write in writes if write.buffer == new)

    readers = []
    for member in group.members:
        for access in member.body.reads:
            if access.buffer == old:
                readers.append(member)
                if access.index != store:
                    return False

    # What is read once a row may be overwritten once a row. Results of a row are stored later than
    # its columns are read.
    loops = group.loops
    if all(runs_once_a_row(member, group) for member in readers):
        loops = group.rows
    steps = [store.coefficient(loop.symbol) for loop in loops]
    return all(surely(operator.ne, step, 0) for step in steps)


def runs_once_a_row(member: Member, group: Group) -> bool:
    """True for a loop over rows only."""
    index = member.body.write.index
    moves = [index.moves_with(loop.symbol) for loop in group.columns]
    return isinstance(member.node, Pointwise) and not any(moves)
