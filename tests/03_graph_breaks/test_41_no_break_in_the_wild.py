"""Programs of packages that nobody here wrote: one graph where `torch.compile` has one, and the right values."""

import collections
import functools

import numpy as np
import pytest
import torch
from torch import nn

import course_lib as cl


class ListOfTwo(list):
    """Says of itself that it holds 1 and 2, whatever it holds."""

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([1, 2])


class LongTuple(tuple):
    def __len__(self):
        return 7


class LongDeque(collections.deque):
    def __len__(self):
        return 7


class LongDict(collections.OrderedDict):
    def __len__(self):
        return 9


@pytest.mark.parametrize(
    "container",
    [ListOfTwo([5]), LongTuple([5, 6]), LongDeque([1, 2]), LongDict(a=1)],
    ids=["list", "tuple", "deque", "dict"],
)
def test_a_container_with_a_length_of_its_own_is_guarded_by_what_it_holds(container):
    def f(x):
        return x + len(container)

    x = torch.randn(3)
    compiled = cl.compile(f, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), f(x))
    assert cl.explain(f)(x).breaks == []


def test_what_the_container_iterates_over_is_followed():
    items = ListOfTwo([5])

    def f(x):
        return x + sum(items)

    x = torch.randn(3)
    assert torch.equal(cl.compile(f, fullgraph=True)(x), x + 3)


def test_a_forward_that_is_a_wrapped_partial_is_followed():
    module = nn.Linear(4, 4)
    module.forward = functools.update_wrapper(functools.partial(module.forward), module.forward)

    def f(x):
        return module(x) * 2

    x = torch.randn(2, 4)
    compiled = cl.compile(f, fullgraph=True)
    torch.testing.assert_close(compiled(x), f(x))

    # It reads the weight of each call.
    module.weight = nn.Parameter(torch.randn(4, 4))
    torch.testing.assert_close(compiled(x), f(x))


def test_attributes_of_a_partial_are_read_and_written():
    partial = functools.partial(torch.add, alpha=2)
    partial.note, partial.t = 3, torch.ones(4)

    def f(x):
        partial.note = partial.note + 1
        return partial(x, partial.t) * partial.note, partial.func is torch.add, len(partial.args)

    x = torch.randn(2, 4)
    expected = f(x)
    partial.note = 3
    result = cl.compile(f, fullgraph=True)(x)
    assert torch.equal(result[0], expected[0])
    assert result[1:] == expected[1:]
    assert vars(partial).keys() == {"note", "t"}
    assert partial.note == 4


@pytest.mark.parametrize("cls", [np.float32, np.float64, np.int64, np.int8, np.float16])
def test_a_number_of_numpy_that_is_made_inside_is_that_number(cls):
    def f(x):
        return x * cls(3), cls(2) * 2, x + np.bool_(True)

    x = torch.randn(3)
    expected, result = f(x), cl.compile(f, fullgraph=True)(x)
    assert torch.equal(result[0], expected[0])
    assert result[0].dtype == expected[0].dtype
    assert type(result[1]) is type(expected[1])
    assert result[1] == expected[1]
    assert torch.equal(result[2], expected[2])


@pytest.mark.parametrize("grad", [False, True])
def test_attention_of_torch_in_eval_is_one_graph(grad):
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    def f(x):
        with torch.set_grad_enabled(grad):
            return attention(x, x, x)

    x = torch.randn(2, 4, 8)
    expected, result = f(x), cl.compile(f, fullgraph=True)(x)
    for ours, eager in zip(result, expected, strict=True):
        torch.testing.assert_close(ours, eager)


def test_a_mode_around_the_call_is_counted_as_eager_counts_it():
    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    def f(x):
        return x * torch._C._len_torch_dispatch_stack()

    def with_mode(x):
        with Mode():
            return f(x)

    x = torch.randn(3)
    compiled = cl.compile(f)
    with Mode():
        assert torch.equal(compiled(x), x)
    assert torch.equal(compiled(x), x * 0)
    assert torch.equal(cl.compile(with_mode)(x), x)
