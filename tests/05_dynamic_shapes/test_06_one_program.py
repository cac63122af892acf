"""A graph with symbolic sizes is compiled once, for all sizes that its guards allow."""

from __future__ import annotations

import operator
from collections import Counter

import pytest
import random_sizes
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import course_lib as cl
from course_lib import events, sizes
from course_lib.bench.models import TinyBlock
from course_lib.lowering.ir import Buffer
from course_lib.pipeline import Pipeline
from course_lib.viz.evaluator import evaluate
from course_lib.viz.recording.logs import sizes_are_symbols
from course_lib.viz.report.page import report

# From the smallest to what goes in threads and in blocks; primes, equal by chance, and a transposed one
SHAPES = [(5, 7), (7, 5), (3, 3), (6, 6), (33, 64), (64, 33), (129, 130), (31, 5003), (5003, 31)]


def causal(x):
    place = torch.arange(x.shape[0])
    return torch.where(place[:, None] >= place, x @ x.t(), -1e9).softmax(-1)


def written(x):
    y = x * 1
    y[0] = 5
    y[:, -1] = 3
    return y


PROGRAMS = {
    "pointwise": lambda x: torch.sigmoid(x) * 2 + 1,
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax over rows": lambda x: torch.softmax(x, 0),
    "sums": lambda x: (x.sum(0), x.sum(1), x.sum(), x.mean(), x.prod(0)),
    "variance": lambda x: (x.var(1), x.std(0)),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "norm": lambda x: F.normalize(x, dim=-1),
    "joined": lambda x: (torch.cat([x, x * 2], 1), torch.cat([x, x + 1], 0), torch.stack([x, x])),
    "transposed": lambda x: x.t() + x.t().contiguous(),
    "outer": lambda x: x[:, :, None] * x[:, None, :2],
    "products": lambda x: (x @ x.t(), torch.einsum("ij,ik->jk", x, x)),
    "attention": lambda x: torch.softmax(x[None] @ x[None].mT / 8, -1) @ x[None],
    "causal": causal,
    "viewed": lambda x: (x + 1).view(-1) * 2,
    "sliced": lambda x: (x[1:] + x[:-1], x[:, 1:-1].exp(), x[: x.shape[0] // 2] + 1),
    "last": lambda x: (x[-1] * 2, x[:, -1] + 1),
    "views as results": lambda x: (x[1:], x.t(), x[:, -1], x.unfold(1, 2, 1)),
    "flipped": lambda x: x.flip(0) + x.flip(1) + x.roll(1, 0),
    "padded": lambda x: F.pad(x, (1, 2, 3, 0), value=2.0),
    "counted": lambda x: x + torch.arange(x.shape[1]) * x.shape[0] + x.numel(),
    "places": lambda x: (x.argmax(-1), x.argmax(0), x.argmax()),
    "extremes": lambda x: (x.max(1), x.min(0), x.amax()),
    "library": lambda x: (x.cumsum(0) * 2, x.sort(-1).values + 1),
    "expanded": lambda x: x.unsqueeze(1).expand(-1, 3, -1) + 1,
    "made": lambda x: (torch.full((x.shape[0],), 3.0) + x.sum(1), torch.zeros(x.shape[1])),
    "written": written,
    "looked up": lambda x: (x.gather(1, (x > 0).long()), x[:, [1, 0]], x[torch.tensor([0, 1])]),
    "parts": lambda x: [part.sum(1) for part in x.chunk(2, 1)],
    "repeated": lambda x: (x.repeat(2, 3), x.repeat_interleave(2, 1)),
    "enlarged": lambda x: (
        F.interpolate(x[None, None], scale_factor=2.0),
        F.interpolate(x[None, None].double(), scale_factor=1.5, mode="bilinear"),
        F.interpolate(x[None], size=x.shape[0] + 1),
    ),
    "padded by reflection": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "triangles": lambda x: (torch.tril(x), torch.triu(x, 1), x.diagonal() * 2),
    "root of a size": lambda x: x / x.shape[1] ** 0.5,
    "bfloat16": lambda x: torch.softmax(x.bfloat16(), -1),
    "truth": lambda x: ((x > 0).any(1), (x > -9).all(0)),
    "loss": lambda x: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
}  # fmt: skip


def compiled_and_run(program, shapes, **options):
    """Run on each shape, held against eager; gives what was recorded."""
    compiled = cl.compile(program, dynamic=True, fullgraph=True, **options)
    with torch.no_grad(), cl.record() as trace:
        for seed, shape in enumerate(shapes):
            torch.manual_seed(seed)
            x = torch.randn(shape)
            got, want = compiled(x.clone()), program(x.clone())
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
            strides = [[t.stride() for t in tree_leaves(made)] for made in (got, want)]
            assert strides[0] == strides[1]
    return trace


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_serves_all_sizes(name):
    trace = compiled_and_run(PROGRAMS[name], SHAPES)
    why = [event.why for event in trace.of(events.SizesAreNumbers)]
    assert not why, "compiled for numbers"
    # One graph; a second where capture itself asks about a size (`chunk`)
    assert len(trace.of(events.GraphCaptured)) <= 2
    assert len(trace.of(events.KernelsBuilt)) <= 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_serves_all_sizes_of_training(name):
    program = PROGRAMS[name]
    compiled = cl.compile(program, dynamic=True, fullgraph=True)
    with cl.record() as trace:
        for seed, shape in enumerate(SHAPES[:7]):
            torch.manual_seed(seed)
            x = torch.randn(shape)
            ours, theirs = (x.clone().requires_grad_() for _ in range(2))
            compare_gradients(
                compiled(ours), program(theirs), ours, theirs, first_only=seed % 3 == 2
            )
    why = [event.why for event in trace.of(events.SizesAreNumbers)]
    assert not why, "compiled for numbers"
    assert len(trace.of(events.Partitioned)) <= 2


def compare_gradients(got, want, ours, theirs, first_only):
    """Run backward of both, from all results or from the first alone, and compare."""
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
    for made in (got, want):
        wanted = [t for t in tree_leaves(made) if t.requires_grad]
        if first_only:
            wanted = wanted[:1]
        if wanted:
            sum((t.float() ** 2).sum() for t in wanted).backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-3, atol=2e-3, equal_nan=True)
    if theirs.grad is not None:
        assert ours.grad.stride() == theirs.grad.stride()


def test_a_block_of_a_model_is_trained_by_one_program():
    model = TinyBlock(64, 4)
    compiled = cl.compile(model, dynamic=True)
    with cl.record() as trace:
        for n in (5, 7, 2, 9, 300):
            x = torch.randn(4, n, 64)
            compiled(x).pow(2).sum().backward()
            found = [parameter.grad.clone() for parameter in model.parameters()]
            model.zero_grad()
            model(x).pow(2).sum().backward()
            torch.testing.assert_close(
                found, [parameter.grad for parameter in model.parameters()], rtol=1e-3, atol=1e-3
            )
            model.zero_grad()
    forward, backward = (made.compiled for made in trace.of(events.KernelsBuilt))
    assert "s1 = x.shape[1]" in forward.wrapper_source
    assert ", s0, s1):" in backward.wrapper_source, "sizes are saved as ints"


def test_gradients_of_gradients_run_the_captured_graph_with_this_calls_sizes():
    compiled = cl.compile(lambda x: (x.sin() * x.shape[0]).sum(1), dynamic=True)
    for n in (3, 5, 4):
        x = torch.randn(n, 6, requires_grad=True)
        (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(second, -n * x.sin())


@pytest.mark.parametrize("name", ["softmax", "sums", "sliced", "joined"])
def test_another_layout_is_another_graph(name):
    program = PROGRAMS[name]
    compiled = cl.compile(program, dynamic=True)
    with torch.no_grad():
        for shape in SHAPES[:4]:
            for x in (torch.randn(shape), torch.randn(shape).t()):
                torch.testing.assert_close(compiled(x), program(x))


def test_a_block_of_a_model_is_compiled_once():
    model = TinyBlock(64, 4).eval()
    trace = compiled_and_run(model, [(4, n, 64) for n in (5, 7, 2, 9, 300, 64)])
    (made,) = trace.of(events.KernelsBuilt)
    assert "s1 = x.shape[1]" in made.compiled.wrapper_source
    assert "empty_strided((s0, s1, 64), (64*s1, 64, 1)" in made.compiled.wrapper_source
    assert "i < s0*s1" in made.compiled.source


def test_threads_are_started_where_there_is_enough_to_do():
    trace = compiled_and_run(lambda x: x.exp() + 1, [(3, 4), (300, 400)])
    (made,) = trace.of(events.KernelsBuilt)
    assert "parallel for simd if(parallel: s0*s1 >= 16384)" in made.compiled.source


def test_what_must_be_right_becomes_a_guard():
    # a row of 16 bytes each that waits on the stack from one pass to the next
    trace = compiled_and_run(PROGRAMS["softmax"], [(3, 40), (2, 40_000), (4, 50)])
    guards = [str(guard) for made in trace.of(events.GuardsMade) for guard in made.check.guards]
    assert any(g.startswith("x.shape[1] <= 32768 ") for g in guards), guards
    assert len(trace.of(events.KernelsBuilt)) == 2, "one with the row, and one that computes anew"


def test_what_needs_numbers_is_compiled_for_each_set_of_sizes():
    """Where products are measured, they are measured for one size."""
    shapes = [(5, 7), (6, 8), (5, 7)]
    trace = compiled_and_run(lambda x: x + 1, shapes, mode="max-autotune-no-cudagraphs")
    assert "measured for one set of sizes" in trace.of(events.SizesAreNumbers)[0].why
    assert len(trace.of(events.KernelsBuilt)) == 2


def test_a_size_that_can_have_one_value_only_leaves_the_others_open():
    """`x[1:]` of two rows has one: torch asks whether it broadcasts, and no other number of rows has this answer."""

    def program(x):
        return x[1:] + x[:-1]

    trace = compiled_and_run(program, [(2, 7), (2, 5), (2, 300), (2, 9)])
    assert not trace.of(events.SizesAreNumbers)
    assert len(trace.of(events.GraphCaptured)) == 1
    (known,) = [event.sizes for event in trace.of(events.SizesAreSymbols)]
    assert len(known.places) == 1


def test_random_numbers_by_a_formula_are_those_of_each_size():
    """The second draw goes on where the first ended: where that is, is a formula of sizes."""

    def draws(x):
        return x * torch.rand_like(x) - torch.rand_like(x)

    options = {"fallback_random": False}
    compiled = cl.compile(draws, dynamic=True, options=options)
    with cl.record() as trace:
        for shape in [(5, 7), (3, 3), (300, 40), (7, 5)]:
            x = torch.randn(shape, requires_grad=True)
            found = []
            for program in (compiled, cl.compile(draws, dynamic=False, options=options)):
                torch.manual_seed(1)
                result = program(x)
                found.append((result, *torch.autograd.grad(result.sum(), x)))
            torch.testing.assert_close(*found)
    assert not trace.of(events.SizesAreNumbers)


AOT = ["pointwise", "softmax", "joined", "sliced", "made", "products", "counted", "parts"]


@pytest.mark.parametrize("name", AOT)
def test_aot_eager_traces_once(name):
    """No kernels, and yet one traced graph: its sizes are computed in each call."""
    program = PROGRAMS[name]
    compiled = cl.compile(program, dynamic=True, backend="aot_eager")
    with cl.record() as trace:
        for seed, shape in enumerate(SHAPES[:6]):
            torch.manual_seed(seed)
            x = torch.randn(shape)
            ours, theirs = (x.clone().requires_grad_() for _ in range(2))
            compare_gradients(
                compiled(ours), program(theirs), ours, theirs, first_only=seed % 3 == 2
            )
    assert not [event.why for event in trace.of(events.SizesAreNumbers)]
    assert len(trace.of(events.AtenTraced)) <= 6


@pytest.mark.parametrize("name", ["softmax", "sums", "sliced", "causal", "joined", "padded"])
def test_the_evaluator_takes_the_numbers_of_a_call(name):
    program = PROGRAMS[name]
    trace = compiled_and_run(program, [(5, 7)])
    (lowered,) = trace.of(events.Lowered)
    for shape in SHAPES[:5]:
        x = torch.randn(shape)
        got = evaluate(lowered.graph, x)
        torch.testing.assert_close(got, tree_leaves(program(x)), rtol=1e-4, atol=1e-5)


def test_a_learners_stage_gets_numbers():
    seen = []

    def plan(schedule, graph):
        seen.extend(size for buffer in graph.buffers.values() for size in buffer.shape)
        return Pipeline().plan(schedule, graph)

    compiled_and_run(lambda x: x + 1, [(3, 4), (5, 6)], pipeline=Pipeline().replace(plan=plan))
    assert set(map(type, seen)) == {int}


def test_a_size_is_never_a_number_in_silence():
    size = some_sizes()[0]
    for lose in (int, float, operator.index, range, element_at, zeros_of, power_of):
        with pytest.raises((sizes.NeedsNumbers, TypeError)):
            lose(size)


def element_at(size):
    return [1, 2, 3][size]


def zeros_of(size):
    return [0] * size


def power_of(size):
    return 2**size


def some_sizes():
    """Two sizes of a graph, 8 and 12 in its call."""
    kept = []

    def backend(gm, inputs):
        values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
        known = sizes.Sizes(values)
        kept.append([known.of(size) for size in values[0].shape])
        return gm

    cl.compile(lambda x: x + 1, dynamic=True, backend=backend)(torch.randn(8, 12))
    return kept[0]


def test_sizes_compute_like_ints():
    n, m = some_sizes()
    assert str(n * 4 + m - 1) == "4*s0 + s1 - 1" and sizes.hint(n * 4 + m - 1) == 43
    assert (n * 64) // 64 == n and (n * 64) % 64 == 0 and n - n == 0
    assert sizes.hint(n // 3) == 2 and sizes.hint(m % 5) == 2 and sizes.hint(7 - n) == -1


def test_three_ways_to_look_at_a_size():
    n, m = some_sizes()
    # known for all sizes
    assert sizes.surely(operator.ge, n, 2) and not n.sizes.asked
    # not known: nothing is assumed
    assert not sizes.surely(operator.lt, n, m) and not sizes.same(n, m) and not n.sizes.asked
    # a hint
    assert sizes.hint(n) < sizes.hint(m) and not n.sizes.asked
    # an answer that is a guard from now on
    assert n < m and n.sizes.asked == ["s0 < s1 is True"]
    assert sizes.surely(operator.lt, n, m)


def test_the_variance_of_training_computes_with_a_float_of_sizes():
    compiled = cl.compile(lambda x: x.var(1).sum(), dynamic=True)
    with cl.record() as trace:
        for shape in [(3, 5), (4, 7)]:
            x = torch.randn(shape, requires_grad=True)
            (got,) = torch.autograd.grad(compiled(x), x)
            (want,) = torch.autograd.grad(x.var(1).sum(), x)
            torch.testing.assert_close(got, want)
    assert not trace.of(events.SizesAreNumbers)
    backward = trace.of(events.KernelsBuilt)[1].compiled
    assert "(double)" in backward.source and "s1" in backward.source


def test_the_log_says_what_became_of_sizes():
    trace = compiled_and_run(PROGRAMS["softmax"], [(3, 5), (4, 7)])
    (known,) = [event.sizes for event in trace.of(events.SizesAreSymbols)]
    assert known.asked == ["4*s1 <= 131072 is True"]
    first, *decisions = sizes_are_symbols(trace.of(events.SizesAreSymbols)[0]).splitlines()
    assert first == "one program for all sizes: s0 (3 in this call), s1 (5 in this call)"

    # Each decision: its kind, the question with its answer, who asked, and what that one does
    kinds = [line.partition(": ")[0] for line in decisions]
    assert set(kinds) == {"for all sizes", "by the hint", "guarded"}
    (guarded,) = [line for line in decisions if line.startswith("guarded")]
    assert guarded.startswith("guarded: 4*s1 <= 131072 is True    # codegen/loops.py, ")
    assert any(
        "lowering/ir.py, Buffer.extent: Elements from the first" in line for line in decisions
    )


@pytest.mark.parametrize("seed", [2, 5])
def test_random_graphs_with_random_sizes(seed):
    """(`python tests/tools/random_sizes.py` runs as many as you have time for.)"""
    assert random_sizes.check(seed, Counter()) == []


def test_a_fault_with_formulas_stops_no_program(monkeypatch):
    def lies_like(self, other):
        if sizes.current() is not None:
            raise TypeError("cannot determine truth value of Relational")
        return (self.dtype, self.shape, self.stride) == (other.dtype, other.shape, other.stride)

    monkeypatch.setattr(Buffer, "lies_like", lies_like)
    trace = compiled_and_run(lambda x: x.mean(1), [(3, 5), (4, 7)])
    assert "cannot determine truth value" in trace.of(events.SizesAreNumbers)[0].why


def test_pictures_and_the_report_show_symbols():
    trace = compiled_and_run(PROGRAMS["softmax"], [(3, 5), (4, 7)])
    assert "s0" in str(trace.loops())
    page = report(trace)
    assert "j + i*s1" in page
    assert "One program for all sizes. In the recorded call s0 = 3, s1 = 5." in page
    assert "4*s1 &lt;= 131072 is True" in page
