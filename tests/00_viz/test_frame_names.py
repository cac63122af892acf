"""The name of a frame in a graph stands where no arrow passes."""

from __future__ import annotations

import re

import torch

import course_lib as cl
from course_lib.viz.pictures.graphs.frame_names import names_last, points_of_arrows


def drawn(arrow_x: float, width: float = 200.0) -> str:
    """A frame from 0 to `width` with a name at its left, and an arrow straight down at `arrow_x`."""
    name = '<text text-anchor="middle" x="40.00" y="-80" font-size="11.50">from mul_</text>'
    frame = f'<g class="cluster"><path d="M0,-100C0,-100 {width},-100 {width},0"/>{name}</g>'
    curve = f"M{arrow_x},-120C{arrow_x},-90 {arrow_x},-60 {arrow_x},-30"
    return f'<svg><g>{frame}<g class="edge"><path d="{curve}"/></g></g></svg>'


def place_of_name(svg: str) -> float:
    return float(re.search(r'<text style="paint-order[^>]* x="([\d.]+)"', svg)[1])


def test_a_name_that_no_arrow_crosses_stays():
    assert place_of_name(names_last(drawn(arrow_x=150))) == 40


def test_a_name_moves_to_the_right_of_an_arrow():
    place = place_of_name(names_last(drawn(arrow_x=30)))
    assert 60 < place < 100, "free of the arrow, and no further than needed"


def test_a_name_without_a_free_place_stays():
    assert place_of_name(names_last(drawn(arrow_x=50, width=90))) == 40


def test_no_arrow_crosses_the_frames_name_in_a_real_graph():
    """An operation that was written through a view: an arrow leads past the frame's upper left corner."""

    def centred(x, running):
        running.mul_(0.9).add_(x.mean(0), alpha=0.1)
        y = x - running
        y[0].mul_(2)
        return y, y[1:], x.t()

    with cl.record() as trace:
        cl.compile(centred, backend="aot_eager")(torch.ones(4, 3), torch.zeros(3))
    svg = trace.aten()._repr_mimebundle_()["text/html"]
    (name,) = re.findall(r"<text style=\"paint-order.*?</text>", svg)
    assert name.endswith("from mul_</text>")
    x, y = (float(re.search(rf' {key}="([-\d.]+)"', name)[1]) for key in "xy")
    under = [px for px, py in points_of_arrows(svg) if y - 11 < py < y and abs(px - x) < 25]
    assert not under
