"""A minimum cut as pipes: each tensor as wide as its bytes, from what cannot be computed again to backward.

In:  a small graph in plain words: sizes, what each is made of, which may be computed again, which backward reads, which are kept.
Out: a `Picture`. All pipes lie in a row, from left to right in the order of the graph; what is kept is cut.
In PyTorch: `torch/_functorch/partitioners.py`, `solve_min_cut`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from course_lib.viz.kit.asked import NAMES, SIZE, named, takes
from course_lib.viz.kit.style import SMALL, Picture, human_bytes
from course_lib.viz.kit.svg import Svg
from course_lib.viz.kit.tables import columns

PIPE, GAP, LANE, THICKEST, END = 74.0, 26.0, 15.0, 46.0, 110.0


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
    """`sizes`: tensor → bytes, in the order they are made. `again`: what backward may compute again; the source feeds all else.
    `read`: what backward reads. `kept`: the pipes that are cut."""
    names = list(sizes)
    if not names:
        raise ValueError("pipes needs at least one tensor")
    for name in (
        *made_of,
        *(part for parts in made_of.values() for part in parts),
        *again,
        *read,
        *kept,
    ):
        if name not in sizes:
            raise LookupError(f"pipes knows no tensor '{name}'; there are {', '.join(names)}")
    sources = [name for name in names if name not in again]
    edges = [(part, name) for name in names for part in made_of.get(name, ())] + [
        (name, "") for name in names if name in read
    ]
    place = {name: n for n, name in enumerate([*names, ""])}  # "" is the sink
    far = [(a, b) for a, b in edges if place[b] - place[a] > 1]
    top = 30 + LANE * len(sources)
    middle = top + 22 + THICKEST / 2
    x = lambda n: END + GAP + n * (PIPE + GAP)
    svg = Svg(x(len(names)) + END + 4, middle + THICKEST / 2 + 34 + LANE * (len(far) + 1))
    ends = ((2.0, "cannot be", "computed again"), (x(len(names)), "backward", "reads"))
    for left, first, second in ends:
        svg.box(left, middle - 26, END - 4, 52, "runtime")
        svg.text(left + END / 2 - 2, middle - 3, first, SMALL, anchor="middle")
        svg.text(left + END / 2 - 2, middle + 13, second, SMALL, anchor="middle")
    most = max(sizes.values()) or 1
    for n, name in enumerate(names):
        draw_pipe(svg, x(n), middle, name, sizes[name], math.sqrt(sizes[name] / most), name in kept)
    for lane, name in enumerate(reversed(sources)):
        if place[name] == 0:
            svg.arrow([(END - 2, middle), (x(0) - 2, middle)], opacity=0.6)
            continue
        y, start = 18 + LANE * lane, 30 + 16 * lane
        svg.arrow(
            [
                (start, middle - 26),
                (start, y),
                (x(place[name]) - 14, y),
                (x(place[name]) - 14, middle - 8),
                (x(place[name]) - 2, middle - 4),
            ],
            opacity=0.6,
        )
    for a, b in edges:
        if (a, b) not in far:
            svg.arrow([(x(place[a]) + PIPE + 2, middle), (x(place[b]) - 2, middle)], opacity=0.6)
    for lane, (a, b) in enumerate(far):
        y, start, end = (
            middle + THICKEST / 2 + 30 + LANE * lane,
            x(place[a]) + PIPE + 8 + 5 * lane,
            x(place[b]) - 9 - 4 * lane,
        )
        svg.arrow(
            [
                (x(place[a]) + PIPE + 1, middle + 4),
                (start, middle + 8),
                (start, y),
                (end, y),
                (end, middle + 8),
                (x(place[b]) - 2, middle + 4),
            ],
            opacity=0.6,
        )
    total = sum(sizes[name] for name in kept)
    rows = [
        (
            name,
            human_bytes(sizes[name]),
            ", ".join(made_of.get(name, ())) or "–",
            "yes" * (name in again) or "no",
            "cut" * (name in kept),
        )
        for name in names
    ]
    alt = f"Pipes from what cannot be computed again to backward; cut: {', '.join(kept) or 'none'}, {human_bytes(total)} in all."
    caption = "Each tensor is a pipe as wide as its bytes (drawn as their square root). "
    caption += f"The cut, {human_bytes(total)} wide, lets nothing through."
    return Picture(
        f'<div class="cl-scroll">{svg.render(alt)}</div>',
        caption,
        alt,
        columns(rows, ("tensor", "bytes", "made of", "again?", "kept")),
    )


def draw_pipe(
    svg: Svg, x: float, middle: float, name: str, size: float, share: float, is_cut: bool
) -> None:
    """One pipe; a cut one has a dashed line across."""
    thick = max(5.0 if size else 2.0, THICKEST * share)
    svg.box(
        x,
        middle - thick / 2,
        PIPE,
        thick,
        "autograd" if is_cut else "runtime",
        radius=min(8, thick / 2),
        strength=0.4 if is_cut else 0.2,
    )
    svg.text(x + PIPE / 2, middle - THICKEST / 2 - 8, name, bold=True, anchor="middle")
    svg.text(
        x + PIPE / 2,
        middle + THICKEST / 2 + 16,
        "free" if not size else human_bytes(size),
        SMALL,
        anchor="middle",
        dim=True,
    )
    if is_cut:
        svg.path(
            f"M{x + PIPE / 2:.0f} {middle - THICKEST / 2 - 4:.0f} V{middle + THICKEST / 2 + 4:.0f}",
            stage="autograd",
            line=2.5,
            dashed=True,
            opacity=1,
        )
