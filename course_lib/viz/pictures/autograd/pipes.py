"""A minimum cut as pipes: each tensor as wide as its bytes, from what cannot be computed again to
backward.

In:  a small graph in plain words: sizes, what each is made of, which may be computed again, which
     backward reads, which are kept.
Out: a `Picture`. All pipes lie in a row, from left to right in the order of the graph; what is kept
is cut.
In PyTorch: `torch/_functorch/partitioners.py`, `solve_min_cut`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from course_lib.viz.kit.arguments import NAMES, SIZE, named, takes
from course_lib.viz.kit.style import SMALL, Picture, human_bytes
from course_lib.viz.kit.svg import Svg
from course_lib.viz.kit.tables import columns

PIPE, GAP = 74.0, 26.0
"""px: the length of a pipe, and from one to the next."""
THICKEST = 46.0
"""px: the pipe of the largest tensor."""
LANE = 15.0
"""px: from one arrow that runs above or below the pipes to the next."""
END, HALF_END = 110.0, 26
"""px: how wide the box at either end is, and half of its height."""
ARROWS_TOP = 18
"""px: where the highest arrow runs above the pipes."""
FREE = "free"
"""In place of the size of a tensor of no bytes."""


@dataclass(frozen=True)
class Edge:
    """A pipe leads into another one, or into backward (`to` is "")."""

    start: str
    to: str


@dataclass(frozen=True)
class Network:
    """The graph: its tensors in the order in which they are made, and how they are joined."""

    sizes: Mapping[str, float]
    sources: list[str]  # what cannot be computed again
    edges: list[Edge]
    kept: Collection[str]

    @property
    def names(self) -> list[str]:
        return list(self.sizes)

    def column(self, name: str) -> int:
        """Which place in the row; backward ("") is behind all pipes."""
        if name:
            return self.names.index(name)
        return len(self.sizes)

    def is_far(self, edge: Edge) -> bool:
        """Does it pass by other pipes?"""
        return self.column(edge.to) - self.column(edge.start) > 1


@takes(
    sizes=named(SIZE, "tensor → bytes"),
    made_of=named(NAMES, "tensor → those it is made of"),
    again=NAMES,
    read=NAMES,
    kept=NAMES,
)
def pipes(
    sizes: Mapping[str, float],
    made_of: Mapping[str, Sequence[str]],
    again: Collection[str],
    read: Collection[str],
    kept: Collection[str],
) -> Picture:
    """A row of pipes from what cannot be computed again to backward.

    sizes: tensor → bytes, in the order they are made. made_of: tensor → those it is made of.
    again: what backward may compute again; into all others flows what cannot be.
    read: what backward reads. kept: the pipes that are cut.
    Raises ValueError without a tensor, LookupError for a name that has no size.
    """
    if not sizes:
        raise ValueError("pipes needs at least one tensor")
    parts = [part for several in made_of.values() for part in several]
    check_names((*made_of, *parts, *again, *read, *kept), sizes)

    sources = [name for name in sizes if name not in again]
    edges = [Edge(part, name) for name in sizes for part in made_of.get(name, ())]
    edges += [Edge(name, "") for name in sizes if name in read]
    svg = drawing(Network(sizes, sources, edges, kept))

    rows = []
    for name, size in sizes.items():
        parts_of_it = ", ".join(made_of.get(name, ())) or "–"
        is_again = "yes" if name in again else "no"
        is_cut = "cut" if name in kept else ""
        rows.append((name, human_bytes(size), parts_of_it, is_again, is_cut))
    text = columns(rows, ("tensor", "bytes", "made of", "again?", "kept"))

    total = human_bytes(sum(sizes[name] for name in kept))
    cut = ", ".join(kept) or "none"
    alt = f"Pipes from what cannot be computed again to backward; cut: {cut}, {total} in all."
    caption = "Each tensor is a pipe as wide as its bytes (drawn as their square root). "
    caption += f"The cut, {total} wide, lets nothing through."
    return Picture(f'<div class="cl-scroll">{svg.render(alt)}</div>', caption, alt, text)


def check_names(names: Iterable[str], sizes: Mapping[str, float]) -> None:
    """Raise LookupError for a name that has no size."""
    for name in names:
        if name not in sizes:
            known = ", ".join(sizes)
            raise LookupError(f"pipes knows no tensor '{name}'; there are {known}")


# ---- the drawing ---------------------------------------------------------------------------------


def left_of(column: int) -> float:
    """px: where a pipe begins."""
    return END + GAP + column * (PIPE + GAP)


def drawing(network: Network) -> Svg:
    """Arrows from the source run above the pipes, long ones between pipes below them."""
    # Below the arrows from the source stand the names of pipes, then the pipes; below these their
    # sizes, then the long arrows.
    top = 30 + LANE * len(network.sources)
    middle = top + 22 + THICKEST / 2
    far = [edge for edge in network.edges if network.is_far(edge)]
    backward = left_of(len(network.sizes))

    svg = Svg(backward + END + 4, middle + THICKEST / 2 + 34 + LANE * (len(far) + 1))
    draw_end(svg, 2.0, middle, "cannot be", "computed again")
    draw_end(svg, backward, middle, "backward", "reads")

    largest = max(network.sizes.values()) or 1  # 1 if all are of no bytes: they are divided by it
    for column, (name, size) in enumerate(network.sizes.items()):
        share = math.sqrt(size / largest)
        draw_pipe(svg, left_of(column), middle, name, size, share, name in network.kept)

    # The source that lies furthest to the right has the highest arrow, so that none cross.
    for lane, name in enumerate(reversed(network.sources)):
        draw_feed(svg, left_of(network.column(name)), middle, lane, network.column(name) == 0)

    for edge in network.edges:
        if not network.is_far(edge):
            start = left_of(network.column(edge.start)) + PIPE + 2
            svg.arrow(
                [(start, middle), (left_of(network.column(edge.to)) - 2, middle)], opacity=0.6
            )
    for lane, edge in enumerate(far):
        start = left_of(network.column(edge.start)) + PIPE
        draw_detour(svg, start, left_of(network.column(edge.to)), middle, lane)
    return svg


def draw_end(svg: Svg, left: float, middle: float, first: str, second: str) -> None:
    """The box at either end of the row, with two lines of text."""
    svg.box(left, middle - HALF_END, END - 4, 2 * HALF_END, "runtime")
    svg.text(left + END / 2 - 2, middle - 3, first, SMALL, anchor="middle")
    svg.text(left + END / 2 - 2, middle + 13, second, SMALL, anchor="middle")


def draw_feed(svg: Svg, pipe: float, middle: float, lane: int, is_first: bool) -> None:
    """The arrow from the source to a pipe: straight to the first, above the others."""
    if is_first:
        svg.arrow([(END - 2, middle), (pipe - 2, middle)], opacity=0.6)
        return

    # Up from the box of the source, along a lane, and down before the pipe. A higher arrow leaves
    # further to the left, so that it crosses none.
    start = 30 + 16 * lane
    y = ARROWS_TOP + LANE * lane
    way = [(start, middle - HALF_END), (start, y), (pipe - 14, y)]
    way += [(pipe - 14, middle - 8), (pipe - 2, middle - 4)]
    svg.arrow(way, opacity=0.6)


def draw_detour(svg: Svg, pipe_end: float, to: float, middle: float, lane: int) -> None:
    """The arrow to a pipe further on, which passes below the pipes between."""
    # Each lane goes down and comes up a little further in, so that no two arrows share a line.
    start = pipe_end + 8 + 5 * lane
    end = to - 9 - 4 * lane
    y = middle + THICKEST / 2 + 30 + LANE * lane

    way = [(pipe_end + 1, middle + 4), (start, middle + 8), (start, y)]
    way += [(end, y), (end, middle + 8), (to - 2, middle + 4)]
    svg.arrow(way, opacity=0.6)


def draw_pipe(
    svg: Svg, x: float, middle: float, name: str, size: float, share: float, is_cut: bool
) -> None:
    """One pipe; a cut one has a dashed line across.

    share: its thickness, as a share of the thickest pipe's."""
    stage, strength = ("autograd", 0.4) if is_cut else ("runtime", 0.2)
    # A tensor of a few bytes is still thicker than one of none.
    thick = max(5.0 if size else 2.0, THICKEST * share)
    radius = min(8, thick / 2)
    svg.box(x, middle - thick / 2, PIPE, thick, stage, radius=radius, strength=strength)

    centre = x + PIPE / 2
    above, below = middle - THICKEST / 2, middle + THICKEST / 2
    svg.text(centre, above - 8, name, bold=True, anchor="middle")
    size_label = human_bytes(size) if size else FREE
    svg.text(centre, below + 16, size_label, SMALL, anchor="middle", dim=True)

    if is_cut:
        across = f"M{centre:.0f} {above - 4:.0f} V{below + 4:.0f}"
        svg.path(across, stage="autograd", line=2.5, dashed=True, opacity=1)
