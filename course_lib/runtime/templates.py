"""Which matrix products become loops (`Product`), into which what is around them may be fused:
measured in their surroundings.

In:  a `LoopGraph`, whose matrix products are calls of the library; how a graph is scheduled.
Out: the same graph; some calls are loops now, which the Triton printer writes with `tl.dot`.

A kernel of ours may be slower than the library's and still win, with what it does to operands and
result. And a faster one may lose: in attention, what comes after the first product would have been
fused with the softmax anyway. So the two ways are not measured kernel by kernel, but for the whole
*region* of the program that is cut into kernels in another way. The library's call is always one of
the two, so no choice makes its region slower than it was. Two things a region does not show: how
much memory the program holds with a choice, which is read off its memory plan, and what regions do
to each other through the caches. So at the end the program with all that was chosen is measured
beside the one without, and the faster one is kept.
In PyTorch: `torch/_inductor/select_algorithm.py`, `AlgorithmSelectorCache`; there a choice is
measured with its epilogue alone (`benchmark_epilogue_fusion`).
"""

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.codegen.triton import triton_source
from course_lib.failing import may_fail
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Node
from course_lib.runtime import autotune
from course_lib.runtime.autotune import fastest
from course_lib.runtime.compiled import CompiledGraph, build
from course_lib.scheduling.dependencies import record_all
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.memory import peak_bytes, plan
from course_lib.scheduling.products import as_loops, is_product
from course_lib.scheduling.schedule import Schedule, live_nodes

Scheduling = Callable[[LoopGraph], Schedule]
Loops = Mapping[Node, list[Node]]

WHOLE = "the whole program"
"""What was measured, in the event of the last choice."""


def choose_templates(graph: LoopGraph, codegen: str, schedule: Scheduling) -> LoopGraph:
    """Put loops in the place of the products for which that is faster.

    The products are decided in turn. Each is measured in the program that the decisions before it
    made."""
    loops = loops_of_products(graph, codegen)
    if not loops:
        return graph

    def program(part: LoopGraph) -> CompiledGraph:
        # Each result gets memory of its own: where results live is not measured here.
        return build(part, schedule(part), plan=None, codegen=codegen, autotune=True)

    default = schedule(graph)
    ours = schedule(with_loops(graph, loops))
    default_peak = peak(default, graph)
    regions = regions_of(default, ours, loops)
    # What the calls write that do more than compute: they may not run once more, for measuring.
    acting = names_of(node for node in graph.nodes if acts(node))

    chosen: dict[Node, list[Node]] = {}
    for call, parts in loops.items():
        region = next(each for each in regions if names_of(parts) <= each)
        ends = ends_of(region, [*default.kernels, *ours.kernels], graph.returned)
        # Nothing to measure: nobody reads what the region computes, or it may not run once more
        if not ends.stores or region & acting:
            continue

        with_call = with_loops(graph, chosen)
        with_parts = with_loops(graph, {**chosen, call: parts})
        pieces = {"library": piece(with_call, ends), "template": piece(with_parts, ends)}
        peaks = functools.partial(peaks_of, default_peak, with_parts, schedule)
        if fastest(call, *rivals(pieces, program, schedule), peaks) == "template":
            chosen[call] = parts

    ours_as_chosen = with_loops(graph, chosen)
    # One region is measured already. A program that acts is not run for measuring.
    is_measured = not chosen or len(regions) == 1
    if is_measured or acting or any(map(may_refuse, graph.nodes)):
        return ours_as_chosen

    # What is faster piece by piece may be slower as a whole.
    wholes = {"library": graph, "template": ours_as_chosen}
    compared = rivals(wholes, program, schedule)
    fastest_whole = fastest(WHOLE, *compared, clock=autotune.seconds_warm)
    return wholes[fastest_whole]


def loops_of_products(graph: LoopGraph, codegen: str) -> dict[Node, list[Node]]:
    """The products that may become loops, each with these loops."""
    loops: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if isinstance(node, ExternKernel) and is_product(node, codegen):
            loops[node] = as_loops(node)
    return loops


def rivals(
    parts: Mapping[str, LoopGraph],
    program: Callable[[LoopGraph], CompiledGraph],
    schedule: Scheduling,
) -> tuple[str, list[Buffer], dict[str, Callable[[], CompiledGraph]]]:
    """What `fastest` wants to know of programs with the same inputs: their source, their inputs,
    how each is built."""
    sources = [source_of(part, schedule) for part in parts.values()]
    source = "\n".join(sources)

    first = next(iter(parts.values()))
    inputs = [buffer for buffer in first.inputs if buffer]
    tried: dict[str, Callable[[], CompiledGraph]] = {}
    for name, part in parts.items():
        tried[name] = functools.partial(program, part)
    return source, inputs, tried


def peak(scheduled: Schedule, graph: LoopGraph) -> int:
    """The most bytes that the program holds at one time, as its memory plan says."""
    return peak_bytes(plan(scheduled, graph))


def peaks_of(default_peak: int, ours: LoopGraph, schedule: Scheduling) -> dict[str, int]:
    """The peaks of the program without any template, and of the one with this template."""
    return {"library": default_peak, "template": peak(schedule(ours), ours)}


def with_loops(graph: LoopGraph, loops: Loops) -> LoopGraph:
    """The program with loops in the place of some calls."""
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += loops.get(node, [node])
    return replace(graph, nodes=nodes)


# --- the part of a program in which two schedules differ


def regions_of(default: Schedule, ours: Schedule, loops: Loops) -> list[set[str]]:
    """The smallest sets of buffers such that each kernel of either schedule, and each product,
    writes to one set only."""
    together = [names_of(parts) for parts in loops.values()]
    for this_schedule, other_schedule in ((default, ours), (ours, default)):
        # All that the other schedule writes, and the products' own buffers
        known = names_of(other_schedule.kernels).union(*together)
        for kernel in this_schedule.kernels:
            names = names_of([kernel])
            # A buffer that the other schedule never writes is computed again in that schedule, in
            # each kernel that reads it. So these kernels belong together with the one that writes
            # it here.
            if not names <= known:
                readers = [reader for reader in this_schedule.kernels if reader.reads & names]
                names |= names_of(readers)
            together.append(names)
    return joined(together)


def names_of(parts: Iterable[Kernel | Node]) -> set[str]:
    """The buffers that kernels or nodes write, those in registers too."""
    names: set[str] = set()
    for part in parts:
        nodes: Sequence[Any] = [part]
        if isinstance(part, FusedKernel):
            nodes = part.nodes
        for node in nodes:
            names |= {buffer.name for buffer in node.buffers}
    return names


def joined(sets: Iterable[set[str]]) -> list[set[str]]:
    """The sets, with all that overlap joined into one."""
    joined_sets: list[set[str]] = []
    for names in sets:
        overlapping = [each for each in joined_sets if not each.isdisjoint(names)]
        apart = [each for each in joined_sets if each.isdisjoint(names)]
        joined_sets = [*apart, names.union(*overlapping)]
    return joined_sets


def acts(node: Node) -> bool:
    """True for a call that does more than compute: it draws random numbers, say."""
    return isinstance(node, ExternKernel) and node.acts


def may_refuse(node: Node) -> bool:
    """True for what may refuse its data: numbers that were made up for measuring are no index and
    no matrix with an inverse."""
    return any(map(may_fail, node.origins))


@dataclass(frozen=True)
class Ends:
    """What a part of a program reads, and what it must store: names of buffers."""

    reads: set[str]
    stores: set[str]


def ends_of(region: set[str], kernels: Iterable[Kernel], returned: Collection[str]) -> Ends:
    """What the kernels that write to `region` read from outside, and which of its buffers others
    need."""
    reads: set[str] = set()
    needed = set(returned)
    for kernel in kernels:
        if names_of([kernel]) & region:
            reads |= kernel.reads
        else:
            needed |= kernel.reads
    return Ends(reads - region, region & needed)


def piece(graph: LoopGraph, ends: Ends) -> LoopGraph:
    """The part of a program that computes the buffers `ends.stores` from the buffers
    `ends.reads`."""
    inputs = [graph.buffers[name] for name in sorted(ends.reads)]
    outputs = [graph.buffers[name].view() for name in sorted(ends.stores)]

    # The inputs are given, so the nodes that write them do not belong to the part
    nodes = []
    for node in graph.nodes:
        is_input = bool(names_of([node]) & ends.reads)
        if not is_input and not acts(node):
            nodes.append(node)

    accesses = record_all(nodes, graph.buffers, {})
    live, _ = live_nodes(nodes, accesses, set(ends.stores))
    return LoopGraph([*inputs], live, outputs)


def source_of(part: LoopGraph, schedule: Scheduling) -> str:
    """What a part's time depends on: its kernels, and the library's calls with their arguments."""
    texts = []
    for kernel in schedule(part).kernels:
        if isinstance(kernel, FusedKernel):
            texts.append(triton_source(kernel, part.buffers).source)
        else:
            call = (str(kernel.op), kernel.args, kernel.kwargs)
            texts.append(repr(call))
    return "\n".join(texts)
