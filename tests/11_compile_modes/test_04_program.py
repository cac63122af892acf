"""The program around the kernels: what it allocates, calls, frees and returns."""

from __future__ import annotations

import linecache
import math
import traceback
from types import SimpleNamespace

import pytest
import torch
from hand_kernels import Hand, contiguous, gelu_chain
from run_kernels import program

from course_lib import runtime
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, View
from course_lib.runtime.compiler import build_library
from course_lib.scheduling import MemoryPlan

aten = torch.ops.aten


def buffer(name, *shape, dtype=torch.float32, stride=None):
    return Buffer(name, dtype, shape, stride or contiguous(shape))


def build(inputs, kernels, outputs, constants=None, plan=None):
    graph = LoopGraph(
        inputs, [n for k in kernels for n in getattr(k, "nodes", (k,))], outputs, constants or {}
    )
    return runtime.build(graph, SimpleNamespace(kernels=kernels), plan)


def double(name, source, shape, **more):
    """A kernel: name = source + source."""
    k = Hand(shape, name=f"double_{name}")
    x = k.read(source, shape, **more)
    k.point(name, lambda ops, i: ops.add(x.load(ops, i), x.load(ops, i)), store=True)
    return k.build()[0]


def lines(compiled):
    return [line.split("#")[0].rstrip() for line in compiled.wrapper_source.splitlines()]


def test_it_reads_like_a_program_somebody_wrote():
    compiled = program(*gelu_chain(3, 4))
    assert lines(compiled) == [
        "def call(x, scale, bias):",
        "    out = empty_strided((3, 4), (4, 1), dtype=float32)",
        "    gelu_chain(x, scale, bias, out)",
        "    return (out,)",
    ]


def test_inputs_views_and_python_values_come_back():
    x = buffer("x", 3, 4)
    compiled = build(
        [x, None], [], [x.view(), View(x, (4, 3), (1, 4)), View(x, (2,), (4,), 5), None, 7, True]
    )
    t = torch.randn(3, 4)
    same, turned, part, nothing, seven, yes = compiled(t, 3)
    assert same.data_ptr() == t.data_ptr()
    assert torch.equal(same, t) and torch.equal(turned, t.t()) and torch.equal(part, t[1:, 1])
    assert (nothing, seven, yes) == (None, 7, True)


def test_an_input_that_is_itself_a_part_of_something():
    base = torch.randn(10, 4)
    t = base[2:5]
    x = buffer("x", 3, 4)
    compiled = build(
        [x], [double("y", "x", (3, 4))], [buffer("y", 3, 4).view(), View(x, (2,), (4,), 5)]
    )
    y, part = compiled(t)
    assert torch.equal(y, t + t)
    assert torch.equal(part, t[1:, 1])


def test_an_operator_writes_into_memory_that_was_planned():
    x, w, out = buffer("x", 2, 3), buffer("w", 3, 5), buffer("out", 2, 5)
    mm = ExternKernel(aten.mm.default, (x.view(), w.view()), {}, (out,), aten.mm.out)
    compiled = build([x, w], [mm], [out.view()])
    assert lines(compiled)[2] == "    torch.mm(x, w, out=out)"
    a, b = torch.randn(2, 3), torch.randn(3, 5)
    torch.testing.assert_close(compiled(a, b)[0], a @ b)


def test_operators_that_allocate_for_themselves():
    x, values, where = buffer("x", 6), buffer("values", 6), buffer("where", 6, dtype=torch.int64)
    sort = ExternKernel(aten.sort.default, (x.view(), -1, True), {}, (values, where))
    compiled = build([x], [sort], [values.view(), where.view()])
    t = torch.randn(6)
    for got, want in zip(compiled(t), t.sort(descending=True)):
        assert torch.equal(got, want)


def test_an_operator_that_returns_a_list():
    x, a, b = buffer("x", 6), buffer("a", 3), buffer("b", 3)
    chunk = ExternKernel(aten.split.Tensor, (x.view(), 3), {}, (a, b))
    t = torch.arange(6.0)
    got = build([x], [chunk], [a.view(), b.view()])(t)
    assert [g.tolist() for g in got] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        -2,
        True,
        None,
        math.inf,
        "none",
        torch.float16,
        torch.device("cpu"),
        torch.contiguous_format,
        [1, 2],
        (3,),
    ],
)
def test_arguments_of_every_kind(value):
    seen = []

    def operator(x, extra, *, keyword):
        seen.append((extra, keyword))
        return x + 1

    x, out = buffer("x", 2), buffer("out", 2)
    kernel = ExternKernel(operator, (x.view(), value), {"keyword": value}, (out,))
    assert build([x], [kernel], [out.view()])(torch.zeros(2))[0].tolist() == [1, 1]
    assert seen == [(value, value)]


def test_constants_are_at_hand():
    x, c = torch.randn(3), torch.randn(3)
    k = Hand([3])
    a, b = k.read("x", [3]), k.read("c", [3])
    k.point("out", lambda ops, i: ops.add(a.load(ops, i), b.load(ops, i)), store=True)
    kernel, buffers = k.build()
    compiled = build([buffers["x"]], [kernel], [buffer("out", 3).view()], {"c": c})
    assert torch.equal(compiled(x)[0], x + c)


def test_memory_is_dropped_and_used_again_as_planned():
    kernels = [double("a", "x", (4, 4)), double("b", "a", (4, 4)), double("c", "b", (4, 4))]
    plan = MemoryPlan(place={"a": "a", "b": "b", "c": "a"}, free_after=[(), (), ("b",)])
    compiled = build([buffer("x", 4, 4)], kernels, [buffer("c", 4, 4).view()], plan=plan)
    text = compiled.wrapper_source
    assert text.count("empty_strided") == 2
    assert "    c = a  " in text and "del a" not in text
    assert "    del b\n" in text
    x = torch.randn(4, 4)
    assert torch.equal(compiled(x)[0], 8 * x)


def test_memory_of_another_shape_and_dtype():
    k = Hand([6], name="to_int")
    a = k.read("a", [6])
    k.point(
        "c", lambda ops, i: ops.to_dtype(a.load(ops, i), torch.int32), store=True, dtype=torch.int32
    )
    plan = MemoryPlan(place={"a": "a", "c": "a"}, free_after=[(), ()])
    kernel = k.build(in_place={"c": "a"})[0]
    compiled = build(
        [buffer("x", 6)],
        [double("a", "x", (6,)), kernel],
        [buffer("c", 6, dtype=torch.int32).view()],
        plan=plan,
    )
    assert compiled.wrapper_source.count("empty_strided") == 1
    assert compiled(torch.arange(6.0))[0].tolist() == [0, 2, 4, 6, 8, 10]


def test_nothing_is_run_for_no_elements():
    compiled = build([buffer("x", 0, 4)], [double("y", "x", (0, 4))], [buffer("y", 0, 4).view()])
    assert compiled(torch.empty(0, 4))[0].shape == (0, 4)
    assert "double_y(" not in compiled.wrapper_source


def test_a_sum_over_nothing_is_zero():
    k = Hand([3], [0])
    x = k.read("x", [3, 0])
    k.reduce("out", "sum", lambda ops, i, j: x.load(ops, [*i, *j]), store=True)
    assert program(*k.build())(torch.empty(3, 0))[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "name",
    ["torch", "aten", "empty_strided", "def", "x.weight", "1", "float32", "problem", "double_y"],
)
def test_any_name_of_an_input(name):
    compiled = build([buffer(name, 3)], [double("y", name, (3,))], [buffer("y", 3).view()])
    assert compiled(torch.ones(3))[0].tolist() == [2, 2, 2]


def test_two_kernels_of_one_name():
    one, two = double("a", "x", (3,)), double("b", "a", (3,))
    one.name = two.name = "fused"
    compiled = build([buffer("x", 3)], [one, two], [buffer("b", 3).view()])
    assert [k.name for k in compiled.kernels] == ["fused", "fused1"]
    assert compiled(torch.ones(3))[0].tolist() == [4, 4, 4]


def test_a_traceback_shows_the_generated_line():
    def fail(x):
        raise RuntimeError("out of luck")

    x, out = buffer("x", 2), buffer("out", 2)
    compiled = build([x], [ExternKernel(fail, (x.view(),), {}, (out,))], [out.view()])
    with pytest.raises(RuntimeError) as problem:
        compiled(torch.zeros(2))
    frames = traceback.extract_tb(problem.value.__traceback__)
    assert any(
        f.filename.startswith("<course_lib program") and "fail(x)" in (f.line or "") for f in frames
    )
    assert linecache.getlines(
        next(f.filename for f in frames if f.filename.startswith("<course_lib"))
    )


def test_what_it_says_about_itself():
    compiled = program(*gelu_chain(3, 4))
    (kernel,) = compiled.kernels
    assert (kernel.name, kernel.language) == ("gelu_chain", "cpp")
    assert "void gelu_chain(" in kernel.source and kernel.source in compiled.source
    assert "scaled·gelu·out over [3, 4]" in str(compiled)


def test_results_need_no_grad():
    compiled = program(*gelu_chain(3, 4))
    x = torch.randn(3, 4, requires_grad=True)
    with torch.no_grad():
        assert not compiled(x, torch.ones(4), torch.ones(4))[0].requires_grad


def test_kernels_of_a_graph_are_one_library(monkeypatch):
    texts = []
    monkeypatch.setattr(
        runtime.compiled, "build_library", lambda text: texts.append(text) or build_library(text)
    )
    kernels = [double("a", "x", (3,)), double("b", "a", (3,))]
    compiled = build([buffer("x", 3)], kernels, [buffer("b", 3).view()])
    assert len(texts) == 1 and [
        f"void {kernel.name}(" in texts[0] for kernel in compiled.kernels
    ] == [True, True]
