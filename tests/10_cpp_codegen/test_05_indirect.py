"""Elements found through an index tensor: wrapped, checked, never read outside."""

from __future__ import annotations

import pytest
import torch
from back_half import compile_function
from hand_kernels import Hand
from run_kernels import check, program

CODEGENS = ["cpp"] if torch.cuda.is_available() else ["cpp", "triton"]
"""(With a GPU, Triton does not interpret.)"""


def embedding(n_index, rows, columns, wrap=True):
    k = Hand([n_index, columns], name="embedding")
    index, weight = k.read("index", [n_index], torch.int64), k.read("weight", [rows, columns])

    def inner(ops, i):
        at = ops.indirect(index.load(ops, i[:1]), rows, wrap)
        return weight.load(ops, [at, i[1]])

    k.point("embedding", inner, store=True)
    return k.build()


@pytest.mark.parametrize("codegen", CODEGENS)
def test_negative_indices_count_from_the_end(codegen):
    tensors = {"index": torch.tensor([0, 4, -1, -5, 2]), "weight": torch.randn(5, 3)}
    check(*embedding(5, 5, 3), tensors, codegen)


@pytest.mark.parametrize("codegen", CODEGENS)
@pytest.mark.parametrize("wrong", [5, -6, 2**40, -(2**62)])
def test_an_index_out_of_range_raises_as_in_eager(codegen, wrong):
    compiled = program(*embedding(4, 5, 3), codegen)
    with pytest.raises(IndexError, match="index out of range in embedding"):
        compiled(torch.tensor([0, 1, wrong, 2]), torch.randn(5, 3))
    good = torch.tensor([0, 1, 4, 2])  # the next call knows nothing of it
    weight = torch.randn(5, 3)
    assert torch.equal(compiled(good, weight)[0], weight[good])


@pytest.mark.parametrize("codegen", CODEGENS)
def test_where_eager_does_not_wrap_a_negative_index_raises(codegen):
    compiled = program(*embedding(4, 5, 3, wrap=False), codegen)
    with pytest.raises(IndexError, match="index out of range in embedding"):
        compiled(torch.tensor([0, 1, -1, 2]), torch.randn(5, 3))


@pytest.mark.parametrize("codegen", CODEGENS)
@pytest.mark.parametrize(
    "look_up",
    [
        lambda x, i: x[:, i],
        lambda x, i: x.expand(4, 5)[:, i + 4],
        lambda x, i: (x.expand(4, 5) + 1)[:, i + 4],
        lambda x, i: torch.full((5,), 2.0)[i + 4],
        lambda x, i: torch.nn.functional.embedding(i, x[:1]),
        lambda x, i: x.gather(1, i),
        lambda x, i: torch.cat([x[:, i], x], 1),
    ],
    ids=[
        "size one",
        "expanded",
        "computed again",
        "full",
        "embedding",
        "gather",
        "in a part of cat",
    ],
)
def test_an_index_that_moves_no_load_is_checked(codegen, look_up):
    x, good = (
        torch.randn(4, 1),
        torch.tensor([[0, 0]] * 4 if "gather" in look_up.__code__.co_names else [0, 0]),
    )
    compiled = compile_function(lambda x, i: [look_up(x, i) * 2], x, good, codegen=codegen)
    assert torch.equal(compiled(x, good)[0], look_up(x, good) * 2)
    with pytest.raises(IndexError, match="index out of range"):
        compiled(x, good + 3)


@pytest.mark.parametrize("codegen", CODEGENS)
@pytest.mark.parametrize("layout", [(1, 1), (8, 2)], ids=["dense", "far apart"])
@pytest.mark.parametrize(
    "look_up",
    [
        lambda x: x[(x > 0).long().squeeze(-1)],
        lambda x: x[torch.count_nonzero(x, -1).remainder(4)],
        lambda x: x.gather(0, (x > 0).long()),
        lambda x: torch.nn.functional.embedding((x > 0).int().squeeze(-1), x),
        lambda x: torch.zeros(2, 1).index_put(((x > 0).long().squeeze(-1),), x, accumulate=True),
        lambda x: torch.zeros(2, 1).scatter_reduce(0, (x > 0).long(), x, "amax"),
        lambda x: (x + 1).clone().index_fill_(0, (x[:1] > -9).long().view(1), 3.0),
    ],
    ids=["[]", "counted", "gather", "embedding", "index_put", "scatter_reduce", "index_fill_"],
)
def test_an_index_that_is_a_comparison_is_one_not_a_mask(codegen, layout, look_up):
    """GCC 12 read at -1 where the index was `x > 0`: it took the mask of the vector comparison for the number."""
    x = torch.empty_strided((6, 1), layout).copy_(
        torch.tensor([3.0, -1.0, 2.0, -2.0, 5.0, 4.0])[:, None]
    )
    compiled = compile_function(lambda x: [look_up(x)], x, codegen=codegen)
    assert torch.equal(compiled(x)[0], look_up(x))


def test_an_index_into_nothing_raises():
    compiled = program(*embedding(4, 0, 3))
    with pytest.raises(IndexError):
        compiled(torch.zeros(4, dtype=torch.int64), torch.randn(0, 3))


def test_no_index_into_nothing_is_nothing():
    compiled = program(*embedding(0, 0, 3))
    assert compiled(torch.zeros(0, dtype=torch.int64), torch.randn(0, 3))[0].shape == (0, 3)


@pytest.mark.parametrize("codegen", CODEGENS)
def test_masked_loads_read_only_where_they_may(codegen):
    """cat([x, y]): each half reads its own operand, and the address for the other half would be outside."""
    k = Hand([8])
    x, y = k.read("x", [3]), k.read("y", [5])

    def inner(ops, i):
        first = ops.lt(ops.index_expr(i[0], torch.int64), ops.constant(3, torch.int64))
        a = ops.masked(first, lambda: x.load(ops, i), 0.0)
        b = ops.masked(ops.logical_not(first), lambda: y.load(ops, [i[0] - 3]), 0.0)
        return ops.where(first, a, b)

    k.point("cat", inner, store=True)
    check(*k.build(), {"x": torch.randn(3), "y": torch.randn(5)}, codegen)


@pytest.mark.parametrize("codegen", CODEGENS)
def test_an_index_under_a_mask_is_checked_only_there(codegen):
    k = Hand([6])
    index, x = k.read("index", [6], torch.int64), k.read("x", [4])

    def inner(ops, i):
        valid = ops.ge(index.load(ops, i), ops.constant(0, torch.int64))
        return ops.masked(valid, lambda: x.load(ops, [ops.indirect(index.load(ops, i), 4)]), -1.0)

    k.point("out", inner, store=True)
    at, values = torch.tensor([0, -100, 3, -7, 1, 2]), torch.randn(4)
    got = program(*k.build(), codegen)(at, values)[0]
    assert torch.equal(got, torch.where(at >= 0, values[at.clamp(min=0)], -1.0))


@pytest.mark.parametrize("divide", [torch.floor_divide, torch.remainder, torch.fmod])
def test_integer_division_by_zero_raises_as_in_eager(divide):
    x, y = torch.tensor([7, 200], dtype=torch.uint8), torch.tensor([2, 3], dtype=torch.uint8)
    compiled = compile_function(lambda x, y: (divide(x, y),), x, y)
    assert torch.equal(compiled(x, y)[0], divide(x, y))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, torch.tensor([2, 0], dtype=torch.uint8))
    by_a_number = compile_function(lambda x: (divide(x, 256),), x)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):  # 256 is 0 as uint8
        by_a_number(x)


def test_a_place_before_the_start_rounds_down():
    """A stencil over computed values looks at places like (2*i - 7) // 6, and C++ would round them towards zero."""

    def stencil(x, step):
        y = torch.nn.functional.pad(torch.relu(x * 1.5 + 0.2), (1, 1, 1, 1))
        return sum(y[..., i : i + 6 : step, j : j + 6 : step] for i in range(3) for j in range(3))

    x = torch.randn(2, 6, 6)
    for function in (
        lambda x: stencil(x, 1),
        lambda x: stencil(x, 2),
        lambda x: stencil(x.flip(-1), 1),
    ):
        (result,) = compile_function(lambda x: (function(x),), x)(x)
        torch.testing.assert_close(result, function(x))
