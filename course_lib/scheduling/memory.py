"""Which buffer lives where, and how long.

In:  a `Schedule`: kernels in order, each with the buffers it reads and stores.
Out: a `MemoryPlan`: for each stored buffer the storage that it lives in, and after each kernel the
     storages that are given back.

Fresh memory is dear (the system clears each page when it is first touched), memory in cache is
cheap. So what a buffer leaves behind goes into a `Pool`, and the next buffer that fits takes it
from there. Better still, a kernel writes its result over an operand that nobody needs any more,
element by element (in place; `scheduling.overwriting` says where that is right).
In PyTorch: `torch/_inductor/codegen/wrapper.py` (`MemoryPlanningState`, `AllocateLine`,
`ReuseLine`), `torch/_inductor/memory.py`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.overwriting import Overwriting
from course_lib.scheduling.schedule import Schedule
from course_lib.sizes import hint, is_symbolic

How = Literal["new", "reuse", "in place"]


class Allocation(NamedTuple):
    """Where a buffer lives.

    `how`: 'new' memory, 'reuse' of what was freed, or 'in place' of an operand of its kernel.
    `storage` is a piece of memory. It bears the name of the first buffer in it, which may be an
    input."""

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
    """Decide where each stored buffer lives, kernel by kernel.

    A kernel is printed by itself, without the plan. So it is told here which of its operands it
    writes over (`in_place`); nothing else of the schedule is changed."""
    kernels = schedule.kernels
    last_use = last_uses(kernels, graph.returned)
    overwriting = Overwriting(schedule, graph, last_use)

    allocations: list[Allocation] = []
    # The buffers that are still needed, and the memory that none of them lives in
    alive: dict[str, Allocation] = {}
    pool = Pool()
    for n, kernel in enumerate(kernels):
        dying = [name for name in alive if last_use[name] == n]
        overwritten = overwriting.operands_to_overwrite(n, kernel, dying)
        if isinstance(kernel, FusedKernel):
            kernel.in_place.update(overwritten)

        for buffer in kernel.buffers:
            if buffer.name in overwritten:
                allocation = in_place_of(overwritten[buffer.name], buffer, alive, n)
            else:
                allocation = elsewhere(buffer, kernel, pool, n)
            allocations.append(allocation)
            alive[buffer.name] = allocation

        # Now the kernel runs. What nobody needs after it leaves its memory to the next ones.
        # (Its own results may be among that; what it has overwritten is not.)
        for name in [name for name in alive if last_use[name] == n]:
            pool.put(alive.pop(name), n)

    place = {allocation.buffer.name: allocation.storage for allocation in allocations}
    free_after: list[list[str]] = [[] for _ in kernels]
    for storage in dict.fromkeys(place.values()):
        # What is in the pool at the end was taken by nobody: it can be given back when it comes.
        if storage in pool.filled_after:
            free_after[pool.filled_after[storage]].append(storage)
    return MemoryPlan(place, [tuple(free) for free in free_after], allocations)


def last_uses(kernels: Sequence[Kernel], returned: Collection[str]) -> dict[str, int]:
    """For each buffer the position of the last kernel that reads or writes it. What is returned
    outlives all kernels."""
    last_use: dict[str, int] = {}
    for n, kernel in enumerate(kernels):
        for name in (*kernel.reads, *(buffer.name for buffer in kernel.buffers)):
            last_use[name] = n
    return last_use | dict.fromkeys(returned, len(kernels))


def in_place_of(old: str, new: Buffer, alive: dict[str, Allocation], n: int) -> Allocation:
    """`new` takes over the memory of the operand `old`, which is not needed any more."""
    storage = old
    # An input is in no allocation: its memory came with it, and bears its name. (Any other operand
    # is alive: `Overwriting` chooses each one only once, of those that are.)
    if old in alive:
        storage = alive.pop(old).storage
    return Allocation(new, storage, "in place", n)


def elsewhere(buffer: Buffer, kernel: Kernel, pool: "Pool", n: int) -> Allocation:
    """Memory that was freed before, or else new memory."""
    # An operator without an `out` form allocates by itself.
    allocates = isinstance(kernel, ExternKernel) and kernel.out_variant is None
    storage = None if allocates else pool.take(buffer)
    if storage is None:
        return Allocation(buffer, buffer.name, "new", n)
    return Allocation(buffer, storage, "reuse", n)


class Room(NamedTuple):
    """What memory has to offer to a buffer: `elements` (a number, or a formula of sizes) from the
    first to the last."""

    dtype: torch.dtype
    device: torch.device
    elements: Any


class Pool:
    """Memory in which no buffer lives."""

    def __init__(self) -> None:
        # Storages by what they serve; the one that was freed last comes last
        self.storages: dict[Room, list[str]] = {}
        # For each storage here the kernel after which it came
        self.filled_after: dict[str, int] = {}

    def put(self, dead: Allocation, kernel: int) -> None:
        self.storages.setdefault(room_for(dead.buffer), []).append(dead.storage)
        self.filled_after[dead.storage] = kernel

    def take(self, buffer: Buffer) -> str | None:
        """Of the storages that fit the latest: it may still be in the cache. None if none fits."""
        fitting = self.storages.get(room_for(buffer))
        if not fitting:
            return None

        storage = fitting.pop()
        del self.filled_after[storage]
        return storage


def room_for(buffer: Buffer) -> Room:
    elements = buffer.extent
    if is_symbolic(elements):
        # Rooms are keys of a dict, which compares them. To compare two `Size`s may leave a guard;
        # two formulas are equal or not.
        elements = elements.expr
    return Room(buffer.dtype, buffer.device, elements)


def peak_bytes(plan: MemoryPlan) -> int:
    """The most bytes that the stored buffers take at one time, for the sizes of this call.

    Inputs do not count."""
    size_of: dict[str, int] = {}
    made_by: dict[int, int] = {}
    for new in plan.allocations:
        if new.how == "new":
            nbytes = hint(new.buffer.extent) * new.buffer.dtype.itemsize
            size_of[new.storage] = nbytes
            made_by[new.kernel] = made_by.get(new.kernel, 0) + nbytes

    held = peak = 0
    for kernel, freed in enumerate(plan.free_after):
        held += made_by.get(kernel, 0)
        peak = max(peak, held)
        # A storage that is an input's is not in the table
        held -= sum(size_of.get(storage, 0) for storage in freed)
    return peak
