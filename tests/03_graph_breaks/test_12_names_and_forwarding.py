"""What programs written for another compiler showed: names in a class body and in an instance, modules that forward, ..."""

import copy
import sys
import types
import typing

import pytest
import torch
import torch.utils.checkpoint
from observed import run
from torch import nn

import course_lib as cl

PROGRAMS = {}


def program(make):
    def register(function):
        PROGRAMS[function.__name__] = function, make
        return function

    return register


def one(i):
    return (torch.randn(3),)


class Doubling:
    """A descriptor that only sets."""

    def __set__(self, obj, value):
        obj.__dict__["field"] += value * 2


class WithField:
    field = Doubling()

    def __init__(self):
        self.__dict__["field"] = 0


@program(lambda i: (torch.randn(3), WithField()))
def a_descriptor_without_get(x, obj):
    obj.field = 10 + len(x)
    return x + obj.field


class Named:
    def __init__(self, i):
        self.__name__ = f"name{i}"
        self.__dict__["__qualname__"] = "q"

    def __call__(self, x):
        return x + len(self.__name__)


@program(lambda i: (torch.randn(3), Named(i)))
def an_instance_with_a_name(x, obj):
    return obj(x), obj.__name__, obj.__qualname__


class Forwarding(nn.Module):
    def __init__(self):
        super().__init__()
        self._inner = nn.Linear(3, 3)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._inner, name)

    def forward(self, x):
        return self._inner(x) * self.in_features + self.weight.sum()


@program(lambda i: (Forwarding(), torch.randn(3)))
def a_module_that_forwards(module, x):
    return module(x)


class OwnSetattr(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))
        self.register_buffer("b", torch.zeros(3))
        self.told = []

    def __setattr__(self, name, value):
        if "told" in self.__dict__:
            self.told.append(name)
        super().__setattr__(name, value)

    def forward(self, x):
        self.n = 3
        self.b = self.b + x
        self.layer = nn.ReLU()
        return self.layer(x) * self.w + self.n


@program(lambda i: (OwnSetattr(), torch.randn(3)))
def a_module_with_its_own_setattr(module, x):
    return module(x), module.told


@program(lambda i: (OwnSetattr(), torch.randn(3)))
def attributes_of_a_module_deleted(module, x):
    module.extra = x
    del module.extra, module.b
    return x * module.w, hasattr(module, "extra"), hasattr(module, "b"), list(module.state_dict())


@program(lambda i: (torch.randn(3), i + 0.5))
def methods_of_a_float_that_changes(x, number):
    return x * len(number.hex()), number.hex(), number.as_integer_ratio(), number.is_integer()


@program(one)
def powers_and_types_as_dtypes(x):
    return (
        pow(x, 3),
        pow(2, x),
        x.to(int),
        torch.ones(2, dtype=bool),
        torch.zeros(1, dtype=float),
        (x * 5).to(bool).to(float),
    )


@program(one)
def types_with_parameters(x):
    return x + 1, typing.Optional[int], typing.List[int], typing.Union[int, str]  # noqa: UP006, UP007, UP045


@program(one)
def the_version_of_python(x):
    return x + sys.version_info[0] if sys.version_info >= (3, 8) else x


@program(lambda i: (torch.randn(3, requires_grad=True),))
def a_checkpoint(x):
    return torch.utils.checkpoint.checkpoint(
        lambda a, k=1: a.sin() * k, x, k=3, use_reentrant=False, preserve_rng_state=False
    )


@program(
    lambda i: (torch.randn(3), {frozenset([1]): 2 + i, torch.float32: 3, (1, "a"): 4, list: 5})
)
def keys_of_many_kinds(x, d):
    return x * d[frozenset([1])] + d[x.dtype] + d[(1, "a")] + d[list]


class Point:
    def __init__(self, x, n):
        self.x, self.n = x, n


@program(lambda i: (Point(torch.randn(3), [1]),))
def a_copy_of_an_instance(point):
    other = copy.copy(point)
    other.m = 3
    return other.x + other.m, other.x is point.x, other.n is point.n, hasattr(point, "m")


@program(lambda i: (torch.randn(3, 2), torch.randn(2, 4)))
def a_named_result_made(x, y):
    return torch.return_types.max((x + 1, y))


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_and_the_same_as_eager(name):
    function, make = PROGRAMS[name]
    compiled = cl.compile(function, backend="eager", fullgraph=True)
    for turn in range(3):
        assert run(compiled, make, turn) == run(function, make, turn), f"call {turn}"


def test_a_class_made_at_a_break_knows_its_module():
    def f(x):
        made = type("Made", (Point,), {"k": 3})
        return x + made.k, made.__module__, made(1, 2).n

    got = cl.compile(f, backend="eager")(torch.zeros(2))
    assert (got[0].tolist(), *got[1:]) == ([3, 3], __name__, 2)


def test_reentrant_checkpoints_run_as_they_are():
    def f(x):
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True) + 1

    x = torch.randn(3, requires_grad=True)
    assert torch.equal(cl.compile(f, backend="eager")(x), f(x))
    with pytest.raises(cl.Unsupported, match="checkpoint"):
        cl.compile(f, backend="eager", fullgraph=True)(x)


def test_names_of_a_metaclass_are_none_of_an_instance():
    """Names of a class's own type (`__name__`, `mro`) are not names of its instances."""

    def f(x, obj):
        return x + 1, hasattr(obj, "mro"), getattr(obj, "__name__", "none")

    obj = types.SimpleNamespace()
    assert cl.compile(f, backend="eager")(torch.zeros(1), obj)[1:] == (False, "none")
