"""Small scenarios that are played three times: plain, compiled by `course_lib`, and (to count graphs) by torch.

A scenario is a function of `c`. It makes its own functions and modules, compiles some with `c(...)`, calls them, changes
things in between, and returns everything that a caller could notice."""

import collections
import itertools
import types
import warnings

import torch
from torch import nn
from torch.testing import assert_close

import course_lib as cl


class Plain:
    """`c` when nothing is compiled."""

    def __init__(self):
        self.graphs = []

    def __call__(self, function=None, **options):
        return function if function is not None else lambda f: f

    @staticmethod
    def graph_break():
        pass

    @staticmethod
    def disable(function, recursive=True):
        return function


class Ours(Plain):
    """`c` of course_lib: `graphs` are the graphs it compiled."""

    graph_break = staticmethod(cl.graph_break)
    disable = staticmethod(cl.disable)

    def __init__(self, backend="eager"):
        super().__init__()
        self.chosen = backend

    def backend(self, graph, inputs):
        self.graphs.append(graph)
        return (
            graph
            if self.chosen == "eager"
            else cl.backends.find(self.chosen, None, None, cl.Pipeline())(graph, inputs)
        )

    def __call__(self, function=None, **options):
        return cl.compile(function, **{"backend": self.backend, **options})


class Torchs(Plain):
    """`c` of torch itself."""

    @staticmethod
    def graph_break():
        torch._dynamo.graph_break()

    @staticmethod
    def disable(function, recursive=True):
        return torch.compiler.disable(function, recursive=recursive)

    def backend(self, graph, inputs):
        self.graphs.append(graph)
        return graph.forward

    def __call__(self, function=None, **options):
        return torch.compile(function, **{"backend": self.backend, **options})


Plain.graph_break = staticmethod(cl.graph_break)


def play(scenario, c):
    """What a caller notices, with the same random numbers every time."""
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scenario(c)


def tried(function, *args, **kwargs):
    """The result, or the exception's type and message."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return "raised", type(error).__name__, str(error)


def check(scenario, backend="eager"):
    """Play the scenario plain and compiled, and compare. Gives the graphs."""
    eager = play(scenario, Plain())
    ours = play(scenario, c := Ours(backend))
    same(ours, eager, 1e-4 if backend == "inductor" else 1e-6)
    assert sharing(ours) == sharing(eager)
    return c.graphs


def same(ours, eager, tolerance, path="result"):
    """Values, types, dtypes, strides."""
    assert name_of(type(ours)) == name_of(type(eager)), f"{path}: {ours!r} is not {eager!r}"
    if isinstance(eager, torch.Tensor):
        assert_close(
            ours,
            eager,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda m: f"{path}: {m}",
        )
        assert ours.stride() == eager.stride() or eager.numel() <= 1, path
        assert (ours.requires_grad, ours.is_leaf) == (eager.requires_grad, eager.is_leaf), path
    elif isinstance(eager, (list, tuple, collections.deque)):
        assert len(ours) == len(eager), f"{path}: {ours!r} is not {eager!r}"
        for i, pair in enumerate(zip(ours, eager, strict=True)):
            same(*pair, tolerance, f"{path}[{i}]")
    elif isinstance(eager, dict):
        assert list(map(str, ours)) == list(map(str, eager)), path
        for (key, one), two in zip(ours.items(), eager.values(), strict=True):
            same(one, two, tolerance, f"{path}[{key!r}]")
    elif isinstance(eager, nn.Module):
        same(ours.state_dict(), eager.state_dict(), tolerance, path)
    elif isinstance(eager, type):
        assert name_of(ours) == name_of(eager), f"{path}: {ours} is not {eager}"
    elif hasattr(eager, "__dict__") and not isinstance(eager, types.FunctionType):
        same(vars(ours), vars(eager), tolerance, path)
    else:
        assert ours == eager, f"{path}: {ours!r} is not {eager!r}"


def name_of(cls):
    """A class by name: a scenario makes its own anew each time it is played."""
    return cls.__module__, cls.__qualname__


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict, collections.deque)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def sharing(value):
    """Which pairs of tensors are one object, and which share memory."""
    found = [t for t in tensors(value) if t.layout is torch.strided]
    return [
        (
            a is b,
            bool(a.numel() and b.numel())
            and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr(),
        )
        for a, b in itertools.combinations(found, 2)
    ]


def collect():
    """A dict of scenarios and its decorator."""
    found = {}

    def scenario(function):
        assert function.__name__ not in found, function.__name__
        found[function.__name__] = function
        return function

    return found, scenario


# --- what many scenarios use


def calls(f, times=3, shape=(3, 4)):
    return [f(torch.randn(*shape)) for _ in range(times)]


def trained(f, parameters, x):
    """The result and all gradients of one backward."""
    x = x.requires_grad_()
    y = f(x)
    y.sum().backward()
    return y, x.grad, [p.grad for p in parameters]


class Holder(nn.Module):
    def __init__(self, **values):
        super().__init__()
        for name, value in values.items():
            setattr(self, name, value)


def before_and_after(c, f, *changes):
    """What `f` gives, and again after each change."""
    f = c(f)
    results = [tried(f, torch.ones(3))]
    for change in changes:
        change()
        results.append(tried(f, torch.ones(3)))
    return results


class setting:
    """`with setting(owner, name=value)`: changed, then put back."""

    def __init__(self, owner, **values):
        self.owner, self.values = owner, values

    def __enter__(self):
        own = self.owner if isinstance(self.owner, dict) else vars(self.owner)
        self.before = {name: own.get(name, setting) for name in self.values}
        self.put(self.values)

    def put(self, values):
        for name, value in values.items():
            if isinstance(self.owner, dict):
                self.owner.pop(name) if value is setting else self.owner.__setitem__(name, value)
            elif value is setting:
                delattr(self.owner, name)
            else:
                setattr(self.owner, name, value)

    def __exit__(self, *_):
        self.put(self.before)


def around(f, owner, *args, **values):
    """Before, while and after something is set."""
    args = args or (torch.ones(3),)
    out = [tried(f, *args)]
    with setting(owner, **values):
        out.append(tried(f, *args))
    return [*out, tried(f, *args)]


class Point:
    """A class with one of each: a value, a method, special methods, a property, a static and a class method."""

    unit = 10

    def __init__(self, k):
        self.k = k

    def value(self):
        return self.k

    def __add__(self, other):
        return other + self.k

    def __len__(self):
        return 2

    @property
    def double(self):
        return self.k * 2

    @staticmethod
    def fixed():
        return 5

    @classmethod
    def shared(cls):
        return cls.unit
