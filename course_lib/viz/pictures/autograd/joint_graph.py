"""A joint graph cut in two: forward on the left, backward on the right, and between them what is
kept.

In:  a `Partition` (`trace.joint()` finds it), whose two graphs' nodes know the captured operation
     that they came from.
Out: a `Picture`. Forward runs down the left side, backward comes up the right side, so an operation
     stands beside its gradient. A cylinder on the line of the minimum cut is a tensor that is kept
     in between; a dashed box is forward work that is done again in backward instead. A large graph
     shows one box for each captured operation, or for each module.
In PyTorch: `torch/_functorch/partitioners.py` (`draw_joint_graph`; `AOT_PARTITIONER_DEBUG=1` tells
the cut in words).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import fx

from course_lib.autograd.partition import node_bytes
from course_lib.viz.kit.arguments import shown, takes, with_attributes
from course_lib.viz.kit.style import Picture, human_bytes, plural
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.autograd.joint_drawing import Drawing
from course_lib.viz.pictures.autograd.joint_sides import DETAILS, Box, Kept, Sides, kept_name
from course_lib.viz.pictures.graphs.fx_graphs import is_operation

MOST_BOXES = {"operators": 30, "operations": 24, "modules": math.inf}
"""A detail → with more boxes than this on one side, the next coarser detail is chosen."""


@takes(
    partition=with_attributes(
        "a Partition (trace.of(events.Partitioned)[0].partition)", "forward", "backward", "saved"
    )
)
def joint_graph(
    partition: Any, signature: Any = None, title: str = "", detail: str | None = None
) -> Picture:
    """The two halves of a joint graph and what is kept between them.

    signature: the joint graph's `Signature`; with it, gradients have names.
    detail: one of `DETAILS`; None chooses by size. Raises ValueError for a `detail` that there is
    not."""
    if detail not in (None, *DETAILS):
        raise ValueError(f"detail must be one of {', '.join(DETAILS)}, got {shown(detail)}")

    sides = sides_of(partition, signature, detail)
    kept_tensors = [kept_tensor for band in sides.bands for kept_tensor in band.kept]
    heading = how_much_is_kept(kept_tensors)
    # What recomputing has saved: the same cut without it
    recomputed_names = [node.name for node in partition.recomputed]
    compared = "nothing is done again"
    if recomputed_names:
        compared = f"with nothing done again, {human_bytes(without_recomputing(partition))}"

    # `compared` and `heading` are parts of a sentence; where one begins it, it gets a capital.
    caption = "Forward runs down the left side, backward comes up the right. A cylinder on the line of the cut is kept; "
    caption += (
        f"dashed is done again. W{compared[1:]} would be kept."
        if recomputed_names
        else f"{compared}."
    )

    names = some([kept_name(node) for kept_tensor in kept_tensors for node in kept_tensor.nodes])
    of_title = f" of {title}" if title else ""
    alt = f"Joint graph{of_title}: {operators(partition.forward)} in forward, "
    alt += f"{operators(partition.backward)} in backward, of which {len(recomputed_names) or 'none'} are forward work done again. "
    alt += f"K{heading[1:]}: {names}."

    text = f"{as_table(sides)}\n{heading}; {compared}"
    if recomputed_names:
        text += f"\ndone again: {some(recomputed_names)}"
    return Picture(Drawing(sides).draw(heading).framed(alt), caption, alt, text)


def as_table(sides: Sides) -> str:
    """A line for each band: what stands left, in the middle and right."""
    rows = []
    for band in sides.bands:
        between = ", ".join(kept_tensor.title for kept_tensor in band.kept) or "–"
        rows.append((band.title, told(band.left), between, told(band.right[::-1])))
    return columns(rows, ("from", "forward", "kept", "backward"))


def sides_of(partition: Any, signature: Any, detail: str | None) -> Sides:
    """Both sides in the detail that is asked for; else in the finest in which they are not too
    long."""
    for level in [detail] if detail else DETAILS:
        sides = Sides(partition, signature, level)
        longest = max(len(sides.column("left")), len(sides.column("right")))
        if longest <= MOST_BOXES[level]:
            break
    return sides


def how_much_is_kept(kept: Iterable[Kept]) -> str:
    """'kept for backward: 1.2 MB, and 40 KB of inputs that are there anyway'."""
    bytes_kept: Any = 0  # a number, or an expression in symbolic sizes
    inputs: Any = 0
    for kept_tensor in kept:
        if kept_tensor.is_input:
            inputs += kept_tensor.bytes
        else:
            bytes_kept += kept_tensor.bytes

    phrase = f"kept for backward: {human_bytes(bytes_kept)}"
    if inputs:
        phrase += f", and {human_bytes(inputs)} of inputs that are there anyway"
    return phrase


def some(names: list[str], most: int = 24) -> str:
    """The first of them, and how many more."""
    if not names:
        return "nothing"
    more = ""
    if len(names) > most:
        more = f", and {len(names) - most} more"
    return ", ".join(names[:most]) + more


def told(boxes: Iterable[Box]) -> str:
    """A side of a band in words; what is done again in brackets."""
    words = []
    for box in boxes:
        if box.kind not in ("input", "tangent"):
            words.append(f"({box.title})" if box.kind == "again" else box.title)
    return ", ".join(words) or "–"


def operators(gm: Any) -> str:
    return plural(sum(map(is_operation, gm.graph.nodes)), "operator")


def without_recomputing(partition: Any) -> float:
    """Bytes that forward would have to keep if backward computed nothing again: what backward's own
    operators read of forward."""
    recomputed_names = {node.name for node in partition.recomputed}
    forward = {node.name: node for node in (*partition.forward.graph.nodes, *partition.recomputed)}

    read: set[str] = set()
    for node in partition.backward.graph.nodes:
        if is_operation(node) and node.name not in recomputed_names:
            sources = [source.name for source in node.all_input_nodes if source.name in forward]
            read.update(memory_of(forward[name]).name for name in sources)

    nodes_to_keep = [node for name, node in forward.items() if name in read and is_operation(node)]
    return sum(map(node_bytes, nodes_to_keep))


def memory_of(node: fx.Node) -> fx.Node:
    """The node whose memory this one is a view of, or the node itself."""
    while getattr(node.target, "is_view", False):
        node = node.all_input_nodes[0]
    return node
