"""Parts taken out and put together: masks, indices as values, indices from memory."""

from __future__ import annotations

import pytest
import torch
from aten_graphs import agree, formulas, lowered
from torch.nn import functional as F

import course_lib as cl
from course_lib.lowering import ExternKernel
from course_lib.viz.evaluator import evaluate


def no_extern(graph) -> None:
    assert not any(isinstance(node, ExternKernel) for node in graph.nodes)


def test_cat_asks_each_element_where_it_comes_from():
    a, b, c = torch.randn(2, 3), torch.randn(2, 1), torch.randn(2, 4)
    no_extern(agree(lambda a, b, c: torch.cat([a, b * 2, c], 1), a, b, c))
    no_extern(agree(lambda a, b, c: torch.cat([a.t(), b.t(), c.t()]).exp(), a, b, c))
    no_extern(agree(lambda a: torch.cat([a, a.to(torch.float64)]), a))
    no_extern(
        agree(
            lambda a: (torch.cat([a]), torch.cat([a, torch.zeros(0)]), torch.stack([a, a + 1], 1)),
            a,
        )
    )
    assert formulas(lowered(lambda a, b: torch.cat([a, b]), torch.randn(2), torch.randn(3)))[0] == (
        "buf0[i] = where(i < 2, where(i < 2, a[i], 0), where(i >= 2, b[i - 2], 0))"
    )


def test_padding():
    x = torch.randn(2, 3, 4)
    no_extern(
        agree(
            lambda x: (
                F.pad(x, (1, 2)),
                F.pad(x, (0, 1, 2, 0), value=7.0),
                F.pad(x, (-1, 1)),
                F.pad(x, (-1, -1)),
            ),
            x,
        )
    )


def test_triangles():
    x = torch.randn(2, 4, 5)
    no_extern(agree(lambda x: (x.triu(), x.tril(-1), x.tril(2), torch.ones(4, 4).tril()), x))


def test_a_causal_mask_is_never_in_memory():
    def masked(scores):
        keep = torch.ones(6, 6, dtype=torch.bool).tril()
        return scores.masked_fill(~keep, float("-inf")).softmax(-1)

    agree(masked, torch.randn(2, 6, 6))


def test_lookups():
    table, rows = torch.randn(10, 4), torch.tensor([[1, 9], [0, 3]])
    no_extern(agree(lambda t, i: F.embedding(i, t) * 2, table, rows))
    no_extern(agree(lambda t, i: t.index_select(0, i[0]), table, rows))
    no_extern(
        agree(
            lambda t, i: t.index_select(1, i[1] % 4) if False else t.index_select(0, i[1]),
            table,
            rows,
        )
    )
    no_extern(agree(lambda t, i: torch.gather(t, 0, i), table, rows))
    no_extern(agree(lambda t, i: torch.gather(t.t(), 1, i.to(torch.int64)), table, rows))
    assert formulas(lowered(lambda t, i: F.embedding(i, t), table, rows))[0] == (
        "buf0[i, j, k] = t[i[i, j], k]"
    )


def test_indexing_with_tensors():
    x, i, j = torch.randn(4, 5, 6), torch.tensor([3, -1]), torch.tensor([[0], [2]])
    agree(lambda x, i: (x[i], x[:, i], x[..., i], x[:, :, i] + 1), x, i)
    agree(lambda x, i, j: (x[i, j], x[i, :, j], x[:, i, j], x[j, i, i]), x, i, j)
    agree(lambda x: x[:, [0, 2]], x)
    agree(lambda x: x[x[:, 0, 0].argsort()], x)


def test_an_index_out_of_range_raises_as_in_eager():
    graph = lowered(lambda t, i: F.embedding(i, t), torch.randn(3, 2), torch.tensor([0]))
    with pytest.raises(IndexError, match="out of range: 7 in a dimension of size 3"):
        evaluate(graph, torch.randn(3, 2), torch.tensor([7]))


@pytest.mark.parametrize(
    "look_up",
    [F.embedding, lambda i, t: t.index_select(0, i), lambda i, t: torch.gather(t, 0, i[:, None])],
    ids=["embedding", "index_select", "gather"],
)
def test_a_negative_index_raises_where_eager_raises(look_up):
    table, rows = torch.randn(3, 2), torch.tensor([1, -1])
    with pytest.raises((IndexError, RuntimeError)):
        look_up(rows, table)
    with pytest.raises(IndexError, match="out of range: -1 in a dimension of size 3"):
        evaluate(lowered(look_up, rows, table), rows, table)


def test_writing_into_a_slice_is_choosing_between_two():
    def put(x, part):
        y = x.clone()
        y[1:3] = part
        y[0] = 1.0
        y[:, -1] += 2
        return y

    no_extern(agree(put, torch.randn(4, 5), torch.randn(2, 5)))


def test_flip_and_roll_and_repeat():
    x = torch.randn(3, 4)
    agree(lambda x: (x.flip(0), x.flip([0, 1]) * 2, x.roll(1, 1), x.repeat(2, 3), x.tile(2)), x)


def test_positions():
    agree(lambda x: x + torch.arange(4), torch.randn(3, 4))
    agree(lambda x: x + torch.arange(1, 9, 2), torch.randn(4))
    agree(lambda x: x + torch.arange(0, 1, 0.25), torch.randn(4))
    agree(lambda x: x + torch.arange(5, 1, -1, dtype=torch.float16), torch.randn(4))
    agree(lambda x: x * torch.eye(3) + torch.linspace(0, 1, 3), torch.randn(3, 3))
    agree(
        lambda x: (torch.arange(12).view(3, 4).t(), torch.zeros_like(x), torch.full_like(x, 3)),
        torch.randn(3),
    )


def test_what_is_padded_around_and_then_used():
    def f(x):
        padded = torch.nn.functional.pad(x, (1, 1), mode="circular")
        return padded, padded.float().softmax(-1)

    agree(f, torch.randn(6, 8).to(torch.bfloat16))


def test_one_element_of_parts_put_together_is_looked_up_where_it_is_read():
    """Its index is a number, for the other part one below 0; where the part is a view of what is inlined, that met a `%`."""

    def f(x):
        twice = x.repeat_interleave(2, 0)
        return (twice ^ torch.hstack([twice, twice]).unbind(-1)[0]) + 3

    x = torch.arange(17, dtype=torch.uint8)
    assert torch.equal(cl.compile(f, fullgraph=True)(x), f(x))
