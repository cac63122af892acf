"""Capture of straight-line Python: what becomes a graph, and what is computed on the way."""

import datetime
import functools
import operator
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import course_lib as cl
from course_lib import events, frames
from course_lib.capture import machine
from course_lib.capture.graph import GraphBuilder


class Graphs:
    """A backend that keeps each graph and runs it as it is."""

    def __init__(self):
        self.all = []

    def __call__(self, gm, example_inputs):
        self.all.append(gm)
        return gm.forward

    @property
    def operations(self):
        return [n.name for gm in self.all for n in gm.graph.nodes if n.op.startswith("call_")]


def captured(function, *args, graphs=1, **kwargs):
    """Compile with capture alone, compare with eager on the given and on fresh inputs, and give the graphs."""
    backend = Graphs()
    compiled = cl.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        assert_close(compiled(*args, **kwargs), function(*args, **kwargs))
        args = tuple(
            torch.randn_like(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a
            for a in args
        )
    assert len(backend.all) == graphs
    return backend


def test_a_function_of_three_operations_is_a_graph_of_three_nodes():
    def f(x, y):
        return torch.sin(x) + torch.cos(y)

    assert captured(f, torch.randn(4), torch.randn(4)).operations == ["sin", "cos", "add"]


def test_a_called_function_is_followed_into_the_same_graph():
    def inner(x, scale=2.0, *, shift=1.0):
        return x * scale + shift

    def f(x):
        return inner(x) - inner(x, 3.0, shift=0.5)

    assert captured(f, torch.randn(4)).operations == ["mul", "add", "mul_1", "add_1", "sub"]


def test_loops_over_constants_are_unrolled():
    def f(x):
        for i in range(3):
            x = x + i
        return x

    assert captured(f, torch.randn(4)).operations == ["add", "add_1", "add_2"]


def test_parameters_of_a_module_are_inputs_of_the_graph():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    graph = captured(model, torch.randn(3, 4)).all[0].graph
    names = [n.name for n in graph.nodes if n.op == "placeholder"]
    assert names[1:] == ["self_0_weight", "self_0_bias", "self_2_weight", "self_2_bias"]


def test_what_capture_asks_of_a_parameter_is_no_operation(monkeypatch):
    """Its guards need the shape, dtype, device, ... of each: questions of the compiler's, not of the program's."""
    run: list[str] = []
    run_fake = GraphBuilder.run_fake

    def counting(self, function, args, kwargs):
        run.append(getattr(function, "__name__", ""))
        return run_fake(self, function, args, kwargs)

    monkeypatch.setattr(GraphBuilder, "run_fake", counting)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    cl.compile(model, backend="eager", fullgraph=True)(torch.randn(3, 4))
    assert run == ["linear", "linear"]


def test_every_node_knows_its_shape_and_the_users_line():
    def f(x):
        return (x @ x.T).relu()

    for node in captured(f, torch.randn(4, 3)).all[0].graph.nodes:
        assert "val" in node.meta
        if node.op.startswith("call_"):
            assert node.meta["location"].text == "return (x @ x.T).relu()"
            assert tuple(node.meta["val"].shape) in [(3, 4), (4, 4)]


ARITHMETIC = "add sub mul truediv floordiv mod pow lt le eq ne gt ge".split()


@pytest.mark.parametrize("name", ARITHMETIC)
def test_operators_on_constants_and_tensors_agree_with_python(name):
    function = getattr(operator, name)

    def f(x):
        return function(x, 2.0), function(3.0, x), function(7, 2)

    captured(f, torch.rand(5) + 1)


def containers_and_unpacking(x):
    a, (b, *c) = x, (1, 2, 3)
    table = {"one": a + b, "more": [v * 2 for v in c]}
    table["sum"] = sum(table["more"])
    first, *_, last = [a, a + 1, a + 2]
    return table["one"] * table["sum"] + first - last, {**table, "x": (x,)}["x"][0]


def closures_and_lambdas(x):
    k = 3
    scale = lambda v, s=2: v * s * k

    def shift(v):
        return scale(v) + k

    return shift(x)


def star_arguments(x):
    def g(a, /, b, *rest, c=1, **more):
        return a + b + sum(rest) * c + more.get("d", 0)

    args, kwargs = (2, 3, 4), {"c": 5, "d": x}
    return g(x, *args, **kwargs)


class Holder:
    def __init__(self, function, cls):
        self.function, self.cls = function, cls


def arguments_named_as_the_interpreter_names_its_own(x):
    held = Holder(function=torch.sin, cls=2)
    call = functools.partial(lambda it, self, bound: it + self * bound, bound=held.cls)
    return call(it=held.function(x), self=3)


class Count(int):
    pass


def patterns_of_builtin_classes(x):
    for value in (Count(3), 2.5, "text", [1, 2]):
        match value:
            case int(real=1):
                x = x - 1
            case Count(n) | float(n):
                x = x + n
            case str():
                x = x * 2
            case list(items):
                x = x * len(items)
    return x


def chained_comparisons_and_walrus(x):
    if 0 < (n := x.dim()) < 3 and x.shape[0] > 1:
        return x * n
    return x


def formatting(x):
    text = f"{x.shape[0]:>3}|{x.dtype!s}|{'a' * 2}"
    return x * len(text)


def conditional_expressions(x, flag=True, other=None):
    return (x + 1 if flag else x - 1) * (2 if other is None else 3)


def slices_and_indexing(x):
    return x[1:] + x[:-1], x[..., None], x[0], x[-1:], x[::2]


def nested_tuples_of_tensors(x):
    values, indices = x.max(0), x.sort(0)
    return values.values, values[1], indices[0]


def enumerate_zip_reversed(x):
    total = x
    for i, (a, b) in enumerate(zip([1, 2], [3, 4], strict=True), start=1):
        total = total + i * a * b
    for v in reversed((1, 2)):
        total = total * v
    return total


def rows_of_a_tensor(x):
    return sum(row * i for i, row in [(i, r) for i, r in enumerate(x)])


def isinstance_and_getattr(x):
    if isinstance(x, torch.Tensor) and hasattr(x, "shape") and not isinstance(x, (int, str)):
        return getattr(torch, "sin")(x)  # noqa: B009
    return x


def while_over_constants(x):
    n = 3
    while n:
        x = x * n
        n -= 1
    return x


def in_place_on_an_intermediate(x):
    y = x + 1
    z = y
    y += 1
    y.mul_(2)
    y[0] = 5.0
    return y, z, y is z


def try_without_exception(x):
    try:
        y = x.exp()
    except ValueError:
        y = x
    finally:
        y = x.cos()
    return y


def recursion(x):
    def power(v, n):
        return v if n == 0 else power(v, n - 1) * v

    return power(x, 4)


def loop_with_break_and_else(x):
    for i in range(10):
        if i == 2:
            break
        if i % 2:
            continue
        x = x + i
    else:
        x = x * 100
    return x


PROGRAMS = [
    containers_and_unpacking, closures_and_lambdas, star_arguments, chained_comparisons_and_walrus, formatting,
    arguments_named_as_the_interpreter_names_its_own, patterns_of_builtin_classes,
    conditional_expressions,
    slices_and_indexing, nested_tuples_of_tensors, enumerate_zip_reversed, isinstance_and_getattr,
    while_over_constants, in_place_on_an_intermediate, try_without_exception, loop_with_break_and_else, recursion,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_program_is_one_graph_and_agrees_with_eager(program):
    captured(program, torch.randn(4, 3))


def test_a_method_and_its_attributes_are_read_from_the_object():
    class Scale:
        factor = 3

        def __init__(self):
            self.k = 2.0

        @property
        def twice(self):
            return self.k * 2

        def apply(self, x):
            return x * self.k * self.factor + self.twice

    captured(Scale().apply, torch.randn(4))


def test_super_and_inherited_forward_are_followed():
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            return self.lin(x)

    class Derived(Base):
        def forward(self, x):
            return super().forward(x).relu()

    captured(Derived(), torch.randn(2, 4))


def test_module_containers_are_looped_over():
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.table = nn.ModuleDict({"act": nn.GELU()})

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = self.table["act"](layer(x)) * (i + len(self.layers))
            return self.layers[-1](x)

    captured(Stack(), torch.randn(2, 4))


def test_the_same_object_returned_twice_is_one_object():
    def f(x):
        y = [x + 1]
        return y, y, x

    x = torch.randn(3)
    a, b, same = cl.compile(f, backend="eager", fullgraph=True)(x)
    assert a is b and same is x


@pytest.mark.parametrize(
    "stops, reason",
    [
        (lambda x: x if x.sum() > 0 else -x, "a branch depends on the data in a tensor"),
        (lambda x: x * x.data_ptr(), "takes the tensor's data into Python"),
        (lambda x: [x, print("hello")][0], "print has an effect outside the graph"),
        (lambda x: x.view(7, 7), "fails on tensors of these shapes"),
    ],
)
def test_what_has_no_form_in_a_graph_is_refused_with_its_place(stops, reason):
    with pytest.raises(cl.Unsupported, match=reason) as caught:
        cl.compile(stops, backend="eager", fullgraph=True)(torch.randn(4))
    assert "test_10_capture.py" in str(caught.value) and "^" in str(caught.value)


@pytest.mark.skipif(
    not frames.installed(), reason="without the hook the callees' frames are not seen"
)
def test_at_a_graph_break_the_head_does_the_one_thing_and_the_rest_is_captured():
    def inner(x):
        return x.sin() * 2

    def f(x, log):
        log.append("seen")
        y = inner(x)
        return y if y.sum() > 0 else -y

    backend, log = Graphs(), []
    compiled = cl.compile(f, backend=backend)
    for x in (torch.ones(4), -torch.ones(4), torch.ones(4)):
        assert_close(compiled(x, log), f(x, []))
    assert log == ["seen"] * 3
    assert backend.operations[:4] == ["sin", "mul", "sum_1", "gt"]


def test_errors_are_those_of_eager():
    def f(x):
        return x @ torch.ones(7, 7)

    with pytest.raises(
        RuntimeError, match=r"mat1 and mat2|size mismatch|shapes cannot be multiplied"
    ):
        cl.compile(f)(torch.ones(3, 3))


def test_rng_is_consumed_as_in_eager():
    def f(x):
        torch.rand(3)
        return x + torch.rand(4) + F.dropout(x, 0.5)

    x = torch.randn(4)
    torch.manual_seed(0)
    expected = f(x), torch.rand(1)
    torch.manual_seed(0)
    assert_close((cl.compile(f, backend="eager", fullgraph=True)(x), torch.rand(1)), expected)


def test_what_a_notebook_s_kernel_runs_below_a_print_is_no_frame_of_the_user_s():
    tz = pytest.importorskip("dateutil.tz")
    with cl.capturing(), cl.record() as trace:
        datetime.datetime.now(tz.tzutc())
    assert not trace.of(events.FrameSeen)


def test_the_files_in_which_only_capture_itself_can_fail_are_there():
    """A file that was renamed would be taken for one that runs the program: its failures for the program's."""
    assert [path for path in machine.OWN_FILES if not os.path.exists(path)] == []
