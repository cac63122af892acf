"""Which buffer lives where, and how long.

In:  a `Schedule`: kernels in order, each with the buffers it reads and stores.
Out: a `MemoryPlan`: for each stored buffer the storage it lives in, and after each kernel the storages that are free again.

Fresh memory is dear (the system clears each page when it is first touched), memory in cache is cheap. So a kernel may write
its result over an operand that nobody needs any more, element by element (`in place`), and what was freed is used again.
In PyTorch: `torch/_inductor/codegen/wrapper.py` (`MemoryPlanningState`, `AllocateLine`, `ReuseLine`), `memory.py`.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from torch._prims_common import compute_required_storage_length

from course_lib.failing import may_fail
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Pointwise, View
from course_lib.scheduling.groups import Group
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.schedule import Schedule


class Allocation(NamedTuple):
    """Where a buffer lives. `how`: 'new' memory, 'reuse' of what was freed, or 'in place' of an operand of its kernel."""

    buffer: Buffer
    storage: str
    how: str
    kernel: int  # The position of the kernel that writes it

    def __str__(self) -> str:
        return f"{self.buffer.name} {'in ' + self.storage if self.how == 'new' else self.how + ' of ' + self.storage}"


@dataclass
class MemoryPlan:
    """`place` names the storage of each stored buffer; `free_after[n]` are the storages that kernel n is the last to need."""

    place: dict[str, str] = field(default_factory=dict)
    free_after: list[tuple[str, ...]] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)


def plan(schedule: Schedule, graph: LoopGraph) -> MemoryPlan:
    """Decide where each stored buffer lives. Fills in `in_place` of the kernels."""
    planner = Planner(schedule, graph)
    for n, kernel in enumerate(schedule.kernels):
        planner.place_results_of(n, kernel)
    last: dict[str, int] = {}
    for a in planner.result.allocations:
        last[a.storage] = max(last.get(a.storage, 0), planner.last_use[a.buffer.name])
    planner.result.free_after = [
        tuple(s for s in last if last[s] == n) for n in range(len(schedule.kernels))
    ]
    return planner.result


class Planner:
    """The state of one `plan` call."""

    def __init__(self, schedule: Schedule, graph: LoopGraph) -> None:
        kernels = schedule.kernels
        self.buffers, self.groups = graph.buffers, schedule.groups
        self.last_use = {
            name: n
            for n, k in enumerate(kernels)
            for name in (*k.reads, *(b.name for b in k.buffers))
        }
        self.last_use |= dict.fromkeys(graph.returned, len(kernels))
        names = [output.buffer.name if isinstance(output, View) else "" for output in graph.outputs]
        self.given = {
            names[n]: old for n, old in graph.updates.items() if names.count(names[n]) == 1
        }
        """For what is computed only to be put into an input, that input."""
        self.last_check = max([n for n, k in enumerate(kernels) if self.may_fail(n, k)], default=-1)
        """The last kernel that may refuse its data. Until it has run, inputs stay as they are: eager may have to start anew."""
        self.free: list[Allocation] = []
        self.result = MemoryPlan()

    def may_fail(self, n: int, kernel: Kernel) -> bool:
        """Does kernel `n` look at data that eager may refuse: an index, a matrix to be inverted?"""
        if isinstance(kernel, ExternKernel):
            return any(map(may_fail, kernel.origins))
        return any("indirect" in member.body.operations for member in self.groups[n].members)

    def place_results_of(self, n: int, kernel: Kernel) -> None:
        """A place for each buffer that kernel `n` stores; what it was the last to read becomes free."""
        # inputs are others'
        dying = sorted(
            name for name in kernel.reads & self.result.place.keys() if self.last_use[name] == n
        )
        # by itself: an operator without `out`
        allocates = isinstance(kernel, ExternKernel) and kernel.out_variant is None
        for buffer in kernel.buffers:
            if isinstance(kernel, FusedKernel) and (
                old := self.operand_to_overwrite(n, buffer, dying)
            ):
                dying = [name for name in dying if name != old]
                kernel.in_place[buffer.name] = old
                storage, how = self.result.place.get(old, old), "in place"
            elif not allocates and (
                like := [free for free in self.free if alike(free.buffer, buffer)]
            ):
                self.free.remove(like[-1])
                storage, how = like[-1].storage, "reuse"
            else:
                storage, how = buffer.name, "new"
            self.result.place[buffer.name] = storage
            self.result.allocations.append(Allocation(buffer, storage, how, n))
        unread = [buffer.name for buffer in kernel.buffers if self.last_use[buffer.name] == n]
        self.free += [a for a in self.result.allocations if a.buffer.name in (*dying, *unread)]

    def operand_to_overwrite(self, n: int, new: Buffer, dying: list[str]) -> str | None:
        """The input that `new` is for, or an operand that dies here; if only the very element that is then written is read."""
        given = self.given.get(new.name)
        late = n > self.last_check and self.last_use.get(given.name, n) <= n if given else False
        if given and late and replace(given, name=new.name) == new:
            dying = [given.name, *dying]
        fits = lambda old: (
            alike(self.buffers[old], new) and only_read_where_written(self.groups[n], old, new.name)
        )
        return next(filter(fits, dying), None)


def alike(old: Buffer, new: Buffer) -> bool:
    """True if the memory of one serves the other."""
    return (old.dtype, old.device, extent(old)) == (new.dtype, new.device, extent(new))


def extent(buffer: Buffer) -> int:
    """Elements from the first to the last of the buffer."""
    return compute_required_storage_length(buffer.shape, buffer.stride, 0)


def only_read_where_written(group: Group, old: str, new: str) -> bool:
    """True if the group reads `old` only at the element of `new` that it writes in the same iteration."""
    store = next(
        member.body.write.index for member in group.members if member.body.write.buffer == new
    )
    readers = [
        (m, access.index) for m in group.members for access in m.body.reads if access.buffer == old
    ]
    moves = lambda member: any(
        member.body.write.index.moves_with(loop.symbol) for loop in group.columns
    )
    # for a row, whose results are stored later
    once = all(isinstance(m.node, Pointwise) and not moves(m) for m, _ in readers)
    steps = all(
        store.coefficient(loop.symbol) != 0 for loop in (group.rows if once else group.loops)
    )
    return steps and all(index == store for _, index in readers)
