"""The joint graph cut in two, and memory over time: what the pictures say is what the compiler decided."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

import course_lib as cl
from course_lib import viz
from course_lib.bench.models import TinyBlock, Transformer
from course_lib.viz.pictures.autograd.joint_drawing import Drawing
from course_lib.viz.pictures.autograd.joint_graph import without_recomputing
from course_lib.viz.pictures.autograd.joint_sides import Sides


@pytest.fixture(scope="module")
def trained():
    cl.reset()
    with cl.record() as trace:
        cl.compile(TinyBlock(16, 2), backend="inductor")(torch.randn(4, 16)).sum().backward()
    return trace


@pytest.fixture(scope="module")
def partition(trained):
    from course_lib import events

    return trained.of(events.Partitioned)[0].partition


@pytest.mark.parametrize("detail", ["operators", "operations", "modules"])
def test_every_node_of_both_halves_and_every_kept_tensor_is_in_one_box(partition, detail):
    sides = Sides(partition, None, detail)
    for side, half in (("left", partition.forward), ("right", partition.backward)):
        shown = [
            node.name
            for box in sides.column(side)
            for node in box.nodes
            if node.op == "call_function"
        ]
        assert sorted(shown) == sorted(
            node.name for node in half.graph.nodes if node.op == "call_function"
        )
    kept = [node.name for band in sides.bands for one in band.kept for node in one.nodes]
    assert sorted(kept) == sorted(node.name for node in partition.saved)


def test_what_is_computed_again_is_dashed_and_stands_in_backward(trained, partition):
    again = {node.name for node in partition.recomputed}
    assert again
    sides = Sides(partition, None, "operators")
    marked = [box for box in sides.column("right") if box.kind == "again"]
    assert {node.name for box in marked for node in box.nodes} == again
    assert trained.joint(detail="operators").body.count("stroke-dasharray") >= len(again)


def test_where_nothing_is_computed_again_the_picture_says_so():
    x, y = (torch.randn(4, requires_grad=True) for _ in range(2))
    with cl.record() as trace:
        cl.compile(lambda x, y: x * y)(x, y).sum().backward()
    picture = trace.joint()
    assert (
        picture.caption.endswith("is kept; nothing is done again.")
        and "dashed" not in picture.caption
    )
    assert "of which none are forward work done again" in picture.alt and picture.text.endswith(
        "; nothing is done again"
    )


def test_forward_runs_down_and_backward_comes_up(partition):
    sides = Sides(partition, None, "operators")
    Drawing(sides)
    for side, sign in (("left", 1), ("right", -1)):
        places = [sign * box.y for box in sides.column(side)]
        assert places == sorted(places), side


def test_an_input_that_is_read_late_does_not_bring_its_operation_forward():
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    with cl.record() as trace:
        compiled = cl.compile(lambda x, y: torch.nn.functional.cross_entropy(net(x), y))
        compiled(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])).backward()
    assert [line.split()[0] for line in trace.joint().text.splitlines()[2:6]] == [
        "linear",
        "gelu",
        "linear",
        "cross_entropy",
    ]


def test_boxes_of_one_column_and_kept_tensors_do_not_overlap(partition):
    sides = Sides(partition, None, "operations")
    Drawing(sides)
    kept = [one for band in sides.bands for one in band.kept]
    for items in (sides.column("left"), sides.column("right")[::-1], kept):
        assert all(a.y + a.height <= b.y for a, b in pairwise(items))


def test_gradients_have_the_names_of_what_they_are_for(trained):
    text = trained.joint(detail="operators").body
    for name in ("self.ln.weight", "self.fc1.bias", "self.fc2.weight"):
        assert f"gradient of {name}</text>" in text or f"gradient of {name}" in text


def test_recomputing_keeps_less(partition):
    from course_lib.autograd.partition import node_bytes

    kept = sum(node_bytes(node) for node in partition.saved if node.op != "placeholder")
    assert 0 < kept < without_recomputing(partition)


def test_a_large_graph_becomes_one_box_a_module(partition):
    cl.reset()
    with cl.record() as trace:
        cl.compile(Transformer(4, 16, 2), backend="aot_eager")(
            torch.randn(1, 4, 16)
        ).sum().backward()
    text = trace.joint().text
    assert [line.split()[0] for line in text.splitlines() if line.startswith("self.")] == [
        f"self.layers[{n}]" for n in range(4)
    ]


def test_an_unknown_detail_is_refused_with_those_there_are(partition):
    with pytest.raises(ValueError, match="operators, operations, modules"):
        viz.joint_graph(partition, detail="nodes")


def test_without_gradients_the_joint_graph_is_missed_in_a_sentence(trace):
    with pytest.raises(LookupError, match="differentiated"):
        trace.joint()


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_the_tallest_stack_of_bands_is_the_peak(trained):
    use = trained.memory(0)
    for spans, peak in ((use.spans, use.peak_bytes), (use.spans_alone, use.unplanned_peak)):
        steps = range(1 + max(span.last for span in spans))
        assert (
            max(sum(s.bytes for s in spans if s.first <= step <= s.last) for step in steps) == peak
        )
    assert f"peak {viz.style.human_bytes(use.peak_bytes)}" in use.picture.alt


def test_no_band_leaves_the_drawing(trained):
    picture = trained.memory(1).picture
    height = float(re.search(r'height="(\d+)"', picture.body)[1])
    for path in re.findall(r'<path d="(M[^"]*Z)" fill="#', picture.body):
        ys = [float(y) for y in re.findall(r"[ML][-\d.]+ ([-\d.]+)", path)]
        assert all(0 <= y <= height for y in ys)


def test_a_band_names_all_buffers_that_lie_in_it(trained):
    use = trained.memory(0)
    names = [name for span in use.spans for name in span.names]
    assert sorted(names) == sorted(a.buffer.name for a in use.plan.allocations)


def test_an_operator_of_any_library_is_called_by_its_own_name():
    from course_lib.viz.pictures.graphs.fx_graphs import bare

    names = ("aten.add.Tensor", "prims.iota", "mkldnn._linear_pointwise.default", "relu")
    assert [bare(name) for name in names] == ["add", "iota", "_linear_pointwise", "relu"]
    cl.reset()
    with cl.record() as trace:
        cl.compile(lambda x: torch.nn.functional.cross_entropy(x, torch.arange(4)))(
            torch.randn(4, 4, requires_grad=True)
        ).backward()
    assert ">prims" not in trace.joint(0, "operations").html
