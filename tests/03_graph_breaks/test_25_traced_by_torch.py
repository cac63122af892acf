"""A compiled function among other things of Python and torch: tracers, coroutines, subclasses of tensors, deep recursion."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import course_lib as cl

X = torch.tensor([[-1.0, 2.0], [3.0, 0.5]])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x).relu() + 1


def function(x):
    return (x * 2).sin() + x


def used_then_traced(compile):
    model = compile(Model())
    return model(X), torch.jit.trace(model, X)(X + 1), model(X)


def inside(compile):
    return nn.Sequential(compile(Model()), nn.ReLU())


TRACERS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "jit.trace of a module": lambda c: torch.jit.trace(c(Model()), X)(X + 1),
    "jit.trace of one that ran": used_then_traced,
    "jit.trace of a function": lambda c: torch.jit.trace(c(function), X)(X + 1),
    "jit.trace around one": lambda c: torch.jit.trace(inside(c), X)(X + 1),
    "jit.trace_module": lambda c: torch.jit.trace_module(c(Model()), {"forward": X})(X),
    "fx of a module": lambda c: torch.fx.symbolic_trace(c(Model()))(X + 1),
    "fx of a function": lambda c: torch.fx.symbolic_trace(c(function))(X + 1),
    "fx around one": lambda c: torch.fx.symbolic_trace(inside(c))(X + 1),
    "make_fx": lambda c: make_fx(c(function))(X)(X + 1),
    "make_fx of sizes": lambda c: make_fx(c(function), tracing_mode="symbolic")(X)(X + 1),
    "export": lambda c: torch.export.export(c(Model()), (X,)).module()(X + 1),
    "vmap": lambda c: torch.func.vmap(c(function))(X),
    "jacrev": lambda c: torch.func.jacrev(c(function))(X),
    "jvp": lambda c: torch.func.jvp(c(function), (X,), (X,)),
    "functionalize": lambda c: torch.func.functionalize(c(function))(X),
}


@pytest.mark.parametrize("name", TRACERS)
@pytest.mark.filterwarnings("ignore")
def test_another_tracer_sees_what_it_sees_in_eager(name):
    tracer = TRACERS[name]
    torch.testing.assert_close(tracer(cl.compile), tracer(lambda model: model))


async def waits(x, by=1):
    doubled = x * 2
    await asyncio.sleep(0)
    return doubled + by


def gives_two(x):
    sent = yield x * 2
    with contextlib.suppress(KeyError):
        yield x + (sent or 0)
    return 5


async def waits_and_gives(x):
    try:
        sent = yield x * 2
    except KeyError:
        sent = 10
    yield x + (sent or 0)


class Owner:
    async def method(self, x):
        return x + 1


KINDS = [
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
    asyncio.iscoroutinefunction,
]


@pytest.mark.parametrize("original", [waits, gives_two, waits_and_gives, function, Owner().method])
def test_a_compiled_function_is_of_the_same_kind(original):
    assert [kind(cl.compile(original)) for kind in KINDS] == [kind(original) for kind in KINDS]


def test_what_is_sent_and_thrown_arrives():
    async def talk(make):
        first, second = make(X), make(X)
        await first.__anext__()
        await second.__anext__()
        return await first.asend(3), await second.athrow(KeyError())

    for compile in (lambda f: f, cl.compile):
        generator = compile(gives_two)(X)
        assert next(generator).equal(X * 2)
        assert generator.send(7).equal(X + 7)
        with pytest.raises(StopIteration) as end:
            generator.throw(KeyError())
        assert end.value.value == 5

        assert asyncio.run(compile(waits)(X, by=3)).equal(X * 2 + 3)
        sent, thrown = asyncio.run(talk(compile(waits_and_gives)))
        assert sent.equal(X + 3)
        assert thrown.equal(X + 10)


class Counting(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Counting.calls += 1
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        return result.as_subclass(Counting) if isinstance(result, torch.Tensor) else result


class Disabling(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Disabling.calls += 1
        with torch._C.DisableTorchFunction():
            return function(*args, **(kwargs or {}))


class Supering(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Supering.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})


def switched_off_inside(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = x + 1
    return y * 2


@pytest.mark.parametrize("cls", [Counting, Disabling, Supering])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x + 1).sum(),
        switched_off_inside,
        lambda x: torch.cat([x, x])[1:].mul(2),
        lambda x: torch.stack([x.relu(), torch.ones(3)]),
    ],
)
def test_a_tensor_subclass_is_asked_as_often_as_in_eager(cls, program):
    seen = []
    for run in (program, cl.compile(program)):
        x = torch.ones(3).as_subclass(cls)
        cls.calls = 0
        result = run(x)
        seen.append((type(result), cls.calls))
    assert seen[0] == seen[1]


def counted_down(x, n):
    return x if n == 0 else counted_down(x, n - 1) + 1


def ping(x, n):
    return x if n == 0 else pong(x * 1.0, n - 1)


def pong(x, n):
    return x if n == 0 else ping(x + 1, n - 1)


class Nested(nn.Module):
    def forward(self, x, n):
        return x if n == 0 else self(x + 1, n - 1)


@pytest.mark.parametrize(
    ("recursive", "depth"),
    [(counted_down, 50), (counted_down, 400), (counted_down, 700), (ping, 700), (Nested(), 150)],
)
def test_a_recursion_goes_as_deep_as_in_eager(recursive, depth):
    compiled = cl.compile(recursive)
    for n in (depth, depth - 10):
        assert compiled(torch.zeros(1), n).equal(recursive(torch.zeros(1), n))


def test_an_endless_recursion_can_be_caught():
    def endless(x):
        return endless(x) + 1

    def caught(x):
        try:
            return endless(x)
        except RecursionError:
            return x * 2

    assert cl.compile(caught)(X).equal(X * 2)
