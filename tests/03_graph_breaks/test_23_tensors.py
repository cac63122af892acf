"""What hangs on a tensor, random numbers, and what lives no longer than it should: compared with eager.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: F821

import collections
import gc
import io
import operator
import subprocess
import sys
import threading
import types
import weakref

import numpy
import pytest
import torch
from scenarios import Ours, check, collect, play, tried
from torch.autograd import forward_ad
from torch.func import grad_and_value, hessian, jacfwd, jvp, vjp, vmap

import course_lib as cl

SCENARIOS, scenario = collect()
r = torch.randn


# ---- random numbers and assertions -----------------------------------------------------------------------------------


@scenario
def numbers_drawn_before_an_assertion_that_fails(c):
    def f(x):
        y = torch.rand(3) + x
        assert y.sum() > 100, "small"
        return y

    f = c(f)
    return (
        tried(lambda: f(torch.ones(3))),
        torch.rand(2),
        tried(lambda: f(torch.ones(3) * 99)),
        torch.rand(2),
    )


@scenario
def a_failing_assertion_that_is_caught(c):
    def f(x):
        y = torch.nn.functional.dropout(x) + torch.randn(3)
        try:
            assert (y > 50).all()
        except AssertionError:
            y = y * 2
        return y, torch.rand(2)

    f = c(f)
    return f(torch.ones(3)), f(torch.ones(3) * 999), torch.rand(1)


# ---- defaults --------------------------------------------------------------------------------------------------------


@scenario
def defaults_are_rebound(c):
    def g(x, k=2, *, m=3):
        return x * k + m

    f, x = c(lambda x: g(x)), torch.ones(2)
    out = [f(x)]
    for g.__defaults__, g.__kwdefaults__ in (
        ((5,), {"m": 3}),
        ((5,), {"m": 7}),
        ((x, 5), {"m": 7}),
        ((5, 2), {"m": 7}),
    ):
        out.append(f(x))
    g.__defaults__ = None
    return out, tried(lambda: f(x))


@scenario
def more_defaults_come_before_the_one_there_was(c):
    def key(v, sign=1):
        return v * sign

    def f(x):
        return x * sorted([1, 2, 3], key=key)[0]

    f, out = c(f), []
    for key.__defaults__ in ((1,), (1, -1), (9, 1)):
        out.append(f(torch.ones(2)))
    return out


# ---- functions without a frame of their own ----------------------------------------------------------------------------


@scenario
def a_function_of_torch(c):
    return [
        c(f)(r(3, 3), r(3, 3))
        for f in (torch.add, torch.matmul, operator.sub, torch.nn.functional.mse_loss)
    ]


@scenario
def a_partial_of_a_function_of_torch(c):
    import functools

    return c(functools.partial(torch.add, alpha=2))(r(3), r(3)), c(r(3).add)(r(3))


@pytest.mark.parametrize(
    "function",
    [torch.sin, torch.nn.functional.gelu, abs, r(3).mul],
    ids=["C", "Python", "builtin", "method"],
)
def test_a_function_of_torch_is_captured(function):
    c, x = Ours(), r(3)
    torch.testing.assert_close(c(function, fullgraph=True)(x), function(x))
    assert len(c.graphs) == 1


# ---- objects go when the program drops them --------------------------------------------------------------------------


@scenario
def what_del_does(c):
    log = []

    class Loud:
        def __del__(self):
            log.append("gone")

    def f(x):
        loud = Loud()
        log.append("here")
        return x + 1 if loud else x

    f = c(f)
    out = [f(torch.ones(2)), f(torch.ones(2))]
    gc.collect()
    return out, sorted(log)


class Stream:
    """As a notebook's: what is printed goes into the buffer of the cell that printed it."""

    def __init__(self):
        self.buffers, self.lock, self.cell = (
            collections.defaultdict(io.StringIO),
            threading.RLock(),
            {"number": 1},
        )

    def write(self, text):
        with self.lock:
            self.buffers[frozenset(self.cell.items())].write(text)
        return len(text)


class Named(types.SimpleNamespace):
    pass


def test_an_object_of_a_class_written_in_c_outlives_the_frame_that_made_it():
    """Some of these classes look as if they were written in Python (`io.StringIO` since 3.12), and have no `object.__new__`."""

    def f(x, stream):
        y = x * 2
        print("halfway", file=stream)
        return y + 1, Named(name=y)

    x, stream = r(3), Stream()
    got, named = cl.compile(f)(x, stream)
    torch.testing.assert_close((got, named.name), (x * 2 + 1, x * 2))
    assert type(named) is Named and [buffer.getvalue() for buffer in stream.buffers.values()] == [
        "halfway\n"
    ]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_no_tensor_of_the_first_call_is_kept(backend):
    f = cl.compile(lambda x: x * 2 + 1, backend=backend)
    x = r(3)
    seen = weakref.ref(x)
    f(x)
    del x
    gc.collect()
    assert seen() is None


# ---- transforms and tangents -------------------------------------------------------------------------------------------


def cube(x):
    return (x**3).sum(-1)


TRANSFORMS = {
    "jvp": lambda x, v: jvp(torch.sin, (x,), (v,)),
    "jvp of jvp": lambda x, v: jvp(lambda y: jvp(torch.sin, (y,), (v,))[1], (x,), (v,)),
    "jvp under vmap": lambda x, v: vmap(lambda a, b: jvp(torch.sin, (a,), (b,)))(x, v),
    "jacfwd": lambda x, v: jacfwd(lambda a, b: a * b, argnums=(0, 1))(x[0], v[0]),
    "hessian": lambda x, v: hessian(cube)(x[0]),
    "vjp, asked twice": lambda x, v: [vjp(torch.tanh, x)[1](v), vjp(torch.tanh, x)[1](2 * v)],
    "grad with more results": lambda x, v: grad_and_value(
        lambda a: (cube(a).sum(), a + 1), has_aux=True
    )(x),
    "tangents by hand": lambda x, v: by_hand(x, v),
}


def by_hand(x, v):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(forward_ad.make_dual(x, v).sin())


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_is_one_graph(name, backend):
    if name == "jacfwd" and torch.__version__ < "2.13":
        pytest.skip(
            "jacfwd of torch 2.11 and 2.12 asks a tensor for a number, which ends the graph"
        )
    f, x, v = TRANSFORMS[name], r(2, 3), r(2, 3)
    torch.testing.assert_close(cl.compile(f, fullgraph=True, backend=backend)(x, v), f(x, v))
    assert forward_ad._current_level == -1


def test_tangents_do_not_get_lost_in_code_that_knows_of_none():
    f = cl.compile(lambda x: x.sin() * x)
    x, v = r(3), r(3)
    f(x)
    with forward_ad.dual_level():
        found = forward_ad.unpack_dual(f(forward_ad.make_dual(x, v))).tangent
    torch.testing.assert_close(found, jvp(lambda x: x.sin() * x, (x,), (v,))[1])


@scenario
def a_level_that_an_exception_leaves(c):
    def f(x, v):
        with forward_ad.dual_level():
            y = forward_ad.make_dual(x, v).sin()
            c.graph_break()
            raise ValueError(f"{forward_ad._current_level} {y.shape}")

    f = c(f)
    return tried(lambda: f(r(3), r(3))), forward_ad._current_level, tried(lambda: f(r(3), r(3)))


@scenario
def a_break_inside_a_transform(c):
    log = []

    def g(x):
        log.append(1)
        c.graph_break()
        return x.sin() * 2

    f = c(lambda x, v: jvp(g, (x + 1,), (v,)))
    out = [f(r(3), r(3)) for _ in range(3)]
    gc.collect()  # what capture left behind closes no level
    return out, log, f(r(3), r(3))


# ---- operations of the user's own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("place", ["forward", "backward", "both"])
def test_what_an_operation_reads_outside_may_change(place, backend):
    scale = 2.0

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * (scale if place != "backward" else 2)

        @staticmethod
        def backward(ctx, g):
            return g * (scale if place != "forward" else 2)

    def f(x):
        return Times.apply(x) + 1

    c = cl.compile(f, backend=backend, fullgraph=True)
    for scale in (2.0, 5.0, 7.0):  # noqa: B007
        found = []
        for g in (f, c):
            x = torch.ones(3, requires_grad=True)
            y = g(x)
            y.sum().backward()
            found.append((y, x.grad))
        torch.testing.assert_close(*found)


@scenario
def an_operation_with_side_effects(c):
    log = []

    class Logged(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            log.append("forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    f = c(lambda x: Logged.apply(x + 1) * 3)
    return f(r(3)), f(r(3)), log


@scenario
def numbers_of_numpy(c):
    f = c(lambda x: x * float(numpy.random.rand()) + numpy.random.randint(9))
    numpy.random.seed(3)
    return f(r(3)), f(r(3)), float(numpy.random.rand())


# ---- errors of capture itself ----------------------------------------------------------------------------------------


def test_a_slip_in_a_learners_interpreter_is_not_the_users():
    class Mine(cl.Pipeline().interpreter):
        def UNARY_NEGATIVE(self, i):
            self.push(opperator.neg(self.pop()))

    class Raising(cl.Pipeline().interpreter):
        def UNARY_NEGATIVE(self, i):
            raise NameError("no such sign")

    for interpreter, reason in (
        (Mine, "capture itself fails at UNARY_NEGATIVE"),
        (Raising, "raises NameError: no such sign"),
    ):
        with cl.record() as trace:
            f = cl.compile(
                lambda x: -x + 1,
                backend="eager",
                pipeline=cl.Pipeline().replace(interpreter=interpreter),
            )
            assert f(torch.ones(2)).tolist() == [0, 0]
        assert trace.graph_breaks[0].reason.startswith(reason)


def test_the_first_capture_may_come_while_torch_imports_itself():
    """A hook of the user's for imports is a frame like any other: it is captured when torch first imports TorchDynamo."""
    program = """
import sys, torch, course_lib as cl
class Finder:
    def find_spec(self, name, path=None, target=None):
        self.last = name + "."
sys.meta_path.insert(0, Finder())
def f(x):
    return torch.nn.functional.layer_norm(x, (4,)) + 1
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False):
    cl.compile(f, backend="eager")(torch.ones(2, 4))
four = torch.ones(4)
print(cl.compile(lambda x: x * 2, backend="eager", fullgraph=True)(four[None]).sum().item())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "8.0", done.stderr


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_agrees_with_eager(name):
    check(SCENARIOS[name])
    play(SCENARIOS[name], Ours())
