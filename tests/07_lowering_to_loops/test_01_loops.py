"""An ATen graph becomes a list of loops: what is a node, what is not, and where it came from."""

from __future__ import annotations

import torch
from aten_graphs import agree, aten, formulas, lowered
from torch import nn

from course_lib.lowering import ExternKernel, Pointwise, Reduction, lower
from course_lib.viz.evaluator import starting_memory
from course_lib.viz.pictures.lowering.loop_formulas import indices, loops, trace_element


def test_each_pointwise_operator_is_one_loop_over_its_result():
    graph = lowered(lambda x: (x + 1).relu(), torch.randn(4, 8))
    assert [str(node) for node in graph.nodes] == ["add over [4, 8]", "relu over [4, 8]"]


def test_a_view_is_no_loop_but_other_strides_over_the_same_buffer():
    graph = lowered(lambda x: x[:, 1:].t() * 2, torch.randn(4, 8))
    assert len(graph.nodes) == 1
    assert formulas(graph)[0] == "buf0[i, j] = x[i + 8*j + 1] * 2"


def test_a_broadcast_is_a_stride_of_zero():
    graph = lowered(lambda x, b: x + b, torch.randn(4, 8), torch.randn(8))
    assert formulas(graph)[0] == "buf0[i, j] = x[i, j] + b[j]"


def test_constants_and_positions_need_no_memory():
    graph = lowered(lambda x: x + torch.full((8,), 2.0) * torch.arange(8), torch.randn(4, 8))
    assert formulas(graph) == ["buf0[i] = 2 * float32(i)", "buf1[i, j] = x[i, j] + buf0[j]"]


def test_a_tensor_in_the_graph_is_a_constant_and_a_number_in_it_is_just_a_number():
    weight, half = torch.randn(8), torch.tensor(0.5)
    graph = agree(lambda x: x * weight * half, torch.randn(4, 8))
    assert len(graph.constants) == 1
    assert "* 0.5" in formulas(graph)[-1]


def test_a_reduction_keeps_some_dimensions_and_combines_over_the_others():
    graph = lowered(lambda x: x.sum(1), torch.randn(4, 8, 2))
    (node,) = graph.nodes
    assert isinstance(node, Reduction) and (node.ranges, node.reduced) == ((4, 2), (8,))
    assert formulas(graph)[0] == "buf0[i, j] = sum over k of x[i, k, j]"


def test_layer_norm_is_two_reductions_and_what_surrounds_them():
    graph = agree(nn.LayerNorm(16), torch.randn(4, 8, 16))
    assert [
        node.label for node in graph.nodes
    ] == "mean mean var var add rsqrt sub mul mul add".split()
    assert [isinstance(node, Reduction) for node in graph.nodes].count(True) == 2


def test_every_node_says_which_fx_node_it_came_from():
    gm = aten(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()), torch.randn(4, 8))
    for node in lower(gm).nodes:
        assert node.origins and all(origin in list(gm.graph.nodes) for origin in node.origins)


def test_what_is_computed_twice_is_computed_once():
    graph = agree(lambda x: x.exp() + x.exp() * 2, torch.randn(4))
    assert [node.label for node in graph.nodes] == ["exp", "mul", "add"]
    assert graph.duplicates == [("exp_1", "exp")]


def test_but_two_outputs_are_two_tensors():
    graph = agree(lambda x: (x.exp(), x.exp()), torch.randn(4))
    assert graph.outputs[0].buffer != graph.outputs[1].buffer


def test_an_output_may_be_a_view_of_an_input():
    x = torch.randn(4, 8)
    graph = agree(lambda x: x.t(), x)
    assert graph.nodes == [] and graph.outputs[0].buffer.name == graph.inputs[0].name


def test_inputs_that_begin_within_their_storage_are_read_from_where_they_begin():
    base = torch.randn(100)
    agree(lambda x: x[1:] * 2, base[10:20])
    agree(lambda x: (x.t() + 1)[2:], base[4:28].view(4, 6)[:, 1:4])
    agree(lambda x: x + 1, base[:4].expand(3, 4))


def test_the_picture_in_words_is_the_whole_program():
    graph = lowered(lambda x, w: (x @ w).relu(), torch.randn(4, 8), torch.randn(8, 2))
    assert loops(graph).text.splitlines() == [
        "library call:",
        "    buf0 = aten.mm.default(x, w)",
        "i < 4, j < 2:",
        "    buf1[i, j] = maximum(buf0[i, j], 0)",
    ]


def test_one_element_can_be_followed_through_a_loop():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    graph = lowered(lambda x: x.t() * 2 + 1, x)
    memory = starting_memory(graph, [x])
    assert [str(step) for step in trace_element(graph.nodes[0], (0, 1), memory)] == [
        "load(x[2]) = 3",
        "constant(2, torch.float32) = 2",
        "mul(3, 2) = 6",
    ]
    assert list(indices((2, 2))) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_tiny_block():
    class TinyBlock(nn.Module):
        def __init__(self, hidden: int) -> None:
            super().__init__()
            self.ln, self.up, self.down = (
                nn.LayerNorm(hidden),
                nn.Linear(hidden, 4 * hidden),
                nn.Linear(4 * hidden, hidden),
            )

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.ln(x))) * 1.41421356 + 0.01)

    graph = agree(TinyBlock(16), torch.randn(2, 3, 16))
    kinds = [type(node) for node in graph.nodes]
    assert (kinds.count(Reduction), kinds.count(ExternKernel), kinds.count(Pointwise)) == (2, 2, 12)
