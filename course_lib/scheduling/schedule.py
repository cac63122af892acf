"""From loop nodes to kernels, in an order that respects who needs what.

In:  a `LoopGraph`, and `can_fuse`, the answer to "should these two be one kernel?"
     (`scheduling.fusion`, or a learner's own).
Out: a `Schedule`: `FusedKernel`s and `ExternKernel`s in order, with every decision and its reason.

1. Nodes that nobody needs are removed (`live_nodes`).
2. Each node becomes a group. Pairs of groups are fused, the pair that saves most first
   (`scheduling.merging`). `can_fuse` says what is worth it. That a pair is legal, and that no
   kernel runs before one that it needs, is checked.
3. Cheap loops that could not be fused are computed inside the loops that read them
   (`scheduling.inlining`), and it all starts once more.

In PyTorch: `torch/_inductor/scheduler.py`: `Scheduler.fuse_nodes`, `will_fusion_create_cycle`,
`topological_sort_schedule`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from course_lib.lowering.ir import ExternKernel, LoopGraph, Node
from course_lib.scheduling.dependencies import Body, read_names, record_all
from course_lib.scheduling.fitting import fit
from course_lib.scheduling.fusion import can_fuse, human_bytes
from course_lib.scheduling.groups import Group
from course_lib.scheduling.inlining import next_inlinings, with_inlined
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.merging import CanFuse, Decision, Fusion

TURNS = 4  # How often it starts once more. In a long program each turn finds a few more loops


@dataclass
class Schedule:
    """Kernels in the order in which they run."""

    kernels: list[Kernel]
    # The group that each kernel was made of
    groups: list[Group] = field(repr=False)
    # What there was before: one group for each live node
    alone: list[Group] = field(repr=False)
    # Each pair once: those that were fused, then those that stayed apart
    decisions: list[Decision]
    # Loops that were computed again inside those that read them, with the reason
    inlined: list[str]
    # Nodes that nobody needed, or that computed what was there already
    removed: list[str]

    @property
    def fused(self) -> list[FusedKernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, FusedKernel)]

    @property
    def printed(self) -> list[Kernel]:
        """The kernels that have a source of ours, in the order of `CompiledGraph.kernels`."""
        calls = {k for k in self.kernels if isinstance(k, ExternKernel) and k.is_library}
        return [kernel for kernel in self.kernels if kernel not in calls]

    @property
    def bytes_before(self) -> int:
        """Traffic if each loop node ran alone."""
        calls = [kernel for kernel in self.kernels if isinstance(kernel, ExternKernel)]
        saved = sum(call.bytes_saved for call in calls)
        return saved + sum(group.traffic for group in self.alone)

    @property
    def bytes_after(self) -> int:
        return sum((group.traffic for group in self.groups), 0)

    def __str__(self) -> str:
        lines = []
        for kernel, group in zip(self.kernels, self.groups, strict=True):
            lines.append(f"{human_bytes(group.traffic):>10}  {kernel}")

        bytes_before = human_bytes(self.bytes_before)
        lines.append(f"{human_bytes(self.bytes_after):>10}  in all, instead of {bytes_before}")
        return "\n".join(lines)


def schedule(graph: LoopGraph, can_fuse: CanFuse = can_fuse) -> Schedule:
    """Group the nodes of `graph` into kernels."""
    nodes = graph.nodes
    alone: list[Group] = []
    inlined: list[str] = []
    removed: list[str] = []

    # Each turn starts from single nodes; the next one, if any, has some of them inlined.
    bodies: dict[Node, Body] = {}
    for turns_left in range(TURNS, -1, -1):
        bodies = record_all(nodes, graph.buffers, bodies)
        nodes, gone = live_nodes(nodes, bodies, graph.returned)
        fusion = Fusion(nodes, bodies, graph, can_fuse)

        # What the program was before anything was inlined
        if turns_left == TURNS:
            repeated = [f"{node} (same as {other})" for node, other in graph.duplicates]
            alone, removed = fusion.alone, gone + repeated

        if not turns_left:
            fusion.run()
            break
        pairs = next_inlinings(fusion)
        if not pairs:
            break

        inlined += dict.fromkeys(map(str, pairs))
        nodes = with_inlined(nodes, pairs)

    names: Counter[str] = Counter()
    groups = fusion.order.in_order()
    apart = []
    for a, b in fusion.pairs():
        apart.append(Decision(str(a), str(b), fusion.ask(a, b)))
    kernels = [fusion.kernel(group, names) for group in groups]

    # It holds groups that were never made.
    fit.cache_clear()
    decisions = [*graph.streams, *fusion.done, *apart]
    return Schedule(kernels, groups, alone, decisions, inlined, removed)


def live_nodes(
    nodes: Sequence[Node], bodies: Mapping[Node, Body], outputs: set[str]
) -> tuple[list[Node], list[str]]:
    """The nodes that an output or a side effect needs, and the names of the others."""
    needed = set(outputs)
    live: list[Node] = []
    removed: list[str] = []
    for node in reversed(nodes):
        acts = isinstance(node, ExternKernel) and node.acts
        if acts or needed & {b.name for b in node.buffers}:
            live.append(node)
            needed |= read_names(node, bodies)
        else:
            removed.append(f"{node} (nobody needs it)")
    return live[::-1], removed[::-1]
