"""Matrix products as kernels of our own: right with what is fused around them, and taken only where measuring says so.

Without a GPU they run in Triton's interpreter. How long something takes is injected: nothing here depends on a clock."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from back_half import lowered

import course_lib as cl
from course_lib import config, events, runtime, scheduling
from course_lib.codegen.tilings import PRODUCT_TILES, ProductTiling
from course_lib.codegen.triton import triton_source
from course_lib.lowering.ir import Buffer, ExternKernel
from course_lib.runtime import autotune, gemm
from course_lib.scheduling import products
from course_lib.viz.recording import Recording

pytest.importorskip("triton")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CODEGEN = "auto" if torch.cuda.is_available() else "triton"


def numbers(*shape, dtype=torch.float32):
    return (torch.randn(shape, device=DEVICE) / 4).to(dtype)


def in_loops(function, *inputs):
    """The graph of a function with all its products in loops."""
    graph = lowered(lambda *given: (function(*given),), *inputs)
    loops = {
        node: products.as_loops(node) for node in graph.nodes if isinstance(node, ExternKernel)
    }
    assert loops
    return replace(graph, nodes=[part for node in graph.nodes for part in loops.get(node, [node])])


def compiled(function, *inputs):
    graph = in_loops(function, *inputs)
    schedule = scheduling.schedule(graph)
    return runtime.build(graph, schedule, scheduling.plan(schedule, graph), CODEGEN)


def agree(got, function, *inputs):
    """Not further from the exact result than eager, but for a few roundings of the result's dtype."""
    exact = function(*(x.double() for x in inputs))
    eager = (function(*inputs) - exact).abs().max()
    assert (got - exact).abs().max() <= 2 * eager + 4 * torch.finfo(
        got.dtype
    ).eps * exact.abs().max()


FUSED = {
    "linear, gelu, residual": (
        lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r, [(3, 5, 64), (70, 64), (70,), (3, 5, 70)],
        "addmm·gelu·add over [15, 70], columns [64]",
    ),
    "both transposed": (lambda a, b: (a.t() @ b.t()).relu(), [(128, 17), (9, 128)], "mm·relu over [17, 9], columns [128]"),
    "k is no multiple": (lambda a, b: a @ b, [(65, 45), (45, 33)], "mm over [65, 33], columns [45]"),
    "scaled before": (lambda a, b: (a * 2) @ b, [(20, 45), (45, 33)], "mm over [20, 33], columns [45]"),
    "both before": (lambda a, b, s: (a * s) @ (b - 1), [(20, 64), (64, 33), (64,)], "mm over [20, 33], columns [64]"),
    "the same in all rows": (lambda v, b: (v + 1).expand(20, 64) @ b, [(64,), (64, 33)], "mm over [20, 33], columns [64]"),
    "a number": (lambda b: torch.full_like(b, 2).t() @ b, [(64, 33)], "mm over [33, 33], columns [64]"),
    "padded before": (lambda a, b: F.pad(a, (3, 2)) @ b, [(20, 40), (45, 33)], "mm over [20, 33], columns [45]"),
    "attention scores": (
        lambda q, k, m: (q @ k.transpose(-1, -2)) * 0.125 + m, [(2, 3, 40, 64), (2, 3, 50, 64), (2, 1, 40, 50)],
        "bmm·mul·add over [2, 3, 40, 50], columns [64]",
    ),
    "heads laid out anew": (
        lambda p, v: (p @ v).transpose(1, 2).contiguous() * 2, [(2, 3, 20, 30), (2, 3, 30, 16)],
        "bmm·copy·mul over [2, 3, 20, 16], columns [30]",
    ),
    "baddbmm": (torch.baddbmm, [(4, 1, 33), (4, 20, 64), (4, 64, 33)], "baddbmm over [4, 20, 33], columns [64]"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FUSED)
def test_one_kernel_does_it_all(name, dtype):
    function, shapes, kernel = FUSED[name]
    inputs = [numbers(*shape, dtype=dtype) for shape in shapes]
    program = compiled(function, *inputs)
    assert [str(k) for k in program.schedule.kernels] == [kernel]
    assert program.kernels[0].source.count("tl.dot(") == 1
    agree(program(*inputs)[0], function, *inputs)


@pytest.mark.parametrize("tile", range(len(PRODUCT_TILES)))
def test_every_tile_gives_the_same(tile, monkeypatch):
    a, b = numbers(150, 256, dtype=torch.float16), numbers(256, 270, dtype=torch.float16)
    monkeypatch.setattr(ProductTiling, "tiles", [PRODUCT_TILES[tile]])
    agree(compiled(torch.mm, a, b)(a, b)[0], torch.mm, a, b)


def test_halves_are_multiplied_as_they_are_and_summed_in_float32():
    x, w = numbers(20, 64, dtype=torch.bfloat16), numbers(64, 33, dtype=torch.bfloat16)
    (kernel,) = compiled(torch.mm, x, w).kernels
    assert "a = tl.load(arg0_1 + 64*i0 + j, rows)\n" in kernel.source
    assert "mm = tl.zeros([ROWS, COLUMNS], tl.float32)" in kernel.source
    (cast,) = compiled(lambda a, b: a.bfloat16() @ b, x.float(), w).kernels
    assert "a = tl.load(arg0_1 + 64*i0 + j, rows).to(tl.bfloat16)\n" in cast.source
    (wider,) = compiled(lambda a, b: a.float() @ b, x, w.float()).kernels
    assert "a = tl.load(arg0_1 + 64*i0 + j, rows).to(tl.float32)\n" in wider.source


def test_no_mask_along_k_where_every_tile_is_full():
    kernel = lambda k: compiled(torch.mm, numbers(20, k), numbers(k, 33)).kernels[0]
    assert "inside" in kernel(100).source and len(kernel(100).tiling.tiles) == len(PRODUCT_TILES)
    assert "inside" not in kernel(192).source and all(
        tile["DEPTH"] == 64 for tile, _ in kernel(192).tiling.tiles
    )


@pytest.fixture
def tf32():
    """Torch allows TF32 in this test."""
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def product_source():
    return compiled(torch.mm, numbers(20, 64), numbers(64, 33)).kernels[0].source


def test_float32_is_multiplied_exactly():
    assert 'tl.dot(a, b, mm, input_precision="ieee")' in product_source()


def test_tf32_where_torch_allows_it(tf32):
    assert 'tl.dot(a, b, mm, input_precision="tf32")' in product_source()


def test_what_was_compiled_for_tf32_is_not_used_without(tf32):
    compiler = cl.compile(lambda a, b: a @ b)
    a, b = torch.randn(20, 64), torch.randn(64, 33)
    recording = Recording()
    with events.listener(recording.events.append):
        for allowed in (True, True, False, True):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            compiler(a, b)
    assert len(recording.of(events.GraphCaptured)) == 2


def test_positions_beyond_two_to_the_31():
    def source(m, k):
        a, b = (
            torch.empty(shape, dtype=torch.float16, device="meta") for shape in ((m, k), (k, 64))
        )
        graph = in_loops(torch.mm, a, b)
        return triton_source(scheduling.schedule(graph).fused[0], graph.buffers).source

    assert "tile = tl.program_id(0).to(tl.int64)" in source(70_000, 40_000)
    assert "tl.arange(0, DEPTH).to(tl.int64)" in source(70_000, 40_000)
    # 10^11 products, but each position is a small number
    assert "int64" not in source(50_000, 40_000)


def test_what_may_not_join_a_product():
    distance = lambda a, b: (a @ b.t()) * (a[:, None] - b[None]).abs().sum(-1)
    graph = in_loops(distance, numbers(20, 64), numbers(33, 64))
    answers = {str(decision.answer) for decision in scheduling.schedule(graph).decisions}
    assert any(
        a.startswith("keep apart: a matrix product takes in loops over its result") for a in answers
    )
    compiled_distance = compiled(distance, numbers(20, 64), numbers(33, 64))
    assert sorted(source.source.count("tl.dot(") for source in compiled_distance.kernels)[-1] == 1


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mv, [(20, 64), (64,)]),
        (lambda a, b: a[:1] @ b, [(20, 64), (64, 33)]),
        (lambda c, a, b: torch.addmm(c, a, b, beta=0.5), [(33,), (20, 64), (64, 33)]),
        (lambda a, b: a.double() @ b.double(), [(20, 64), (64, 33)]),
    ],
    ids=["vector", "one row", "scaled parts", "float64"],
)
def test_what_stays_a_call(function, shapes):
    graph = lowered(lambda *given: (function(*given),), *[numbers(*shape) for shape in shapes])
    assert not any(products.is_product(node, "triton") for node in graph.nodes)


def test_a_cpu_product_stays_a_call_of_the_library():
    a, b = torch.randn(20, 64), torch.randn(64, 33)
    (node,) = lowered(lambda *given: (torch.mm(*given),), a, b).nodes
    assert products.is_product(node, "triton") and not products.is_product(node, "auto")


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """`measured(library, template)`: from now on each product of a program takes so many seconds. Gives the events that follow."""
    monkeypatch.setattr(config, "cache_dir", lambda: tmp_path)
    calls = []

    def inject(library, template):
        def seconds(run, tensors):
            calls.append(run)
            if not isinstance(run, runtime.CompiledGraph):
                return 1.0
            kernels = run.schedule.kernels
            by_library = sum(isinstance(kernel, ExternKernel) for kernel in kernels)
            return library * by_library + template * run.source.count("tl.dot(")

        monkeypatch.setattr(autotune, "seconds", seconds)
        calls.clear()
        return calls

    return inject


def feed_forward(x, w, b, r):
    return F.gelu(F.linear(x * 2, w, b)) + r


def feed_forward_inputs():
    shapes = [(4, 5, 64), (70, 64), (70,), (4, 5, 70)]
    return [numbers(*shape, dtype=torch.float16).requires_grad_() for shape in shapes]


def run(function, inputs, **how):
    """Results, gradients, what was told and the programs that were made."""
    recording = Recording()
    with events.listener(recording.events.append):
        out = cl.compile(function, **how or {"options": {"codegen": CODEGEN, "autotune": True}})(
            *inputs
        )
        grads = torch.autograd.grad(out.float().sum(), inputs)
    choices = [e for e in recording.of(events.Autotuned) if isinstance(e.kernel, ExternKernel)]
    return (out, *grads), choices, [event.compiled for event in recording.of(events.KernelsBuilt)]


@pytest.mark.skipif(
    torch.cuda.is_available(),
    reason="with a GPU, Triton compiles, and no kernel of its is for CPU tensors",
)
def test_a_template_is_measured_for_a_product_that_another_library_of_the_cpu_computes_faster(
    measured, monkeypatch
):
    """oneDNN's call is no product any more: chosen first, as on a noisy machine now and then, it hid the product."""
    monkeypatch.setattr(gemm, "measure", lambda tensors: {"torch": 2.0, "oneDNN": 1.0})
    measured(library=2.0, template=1.0)
    cl.reset()
    a, b = numbers(700, 64), numbers(64, 200)
    with torch.no_grad(), cl.record() as trace:
        cl.compile(
            lambda a, b: torch.mm(a, b).relu(), options={"codegen": "triton", "autotune": True}
        )(a, b)
    (compiled,) = (event.compiled for event in trace.of(events.KernelsBuilt))
    assert "tl.dot" in compiled.kernels[0].source


@pytest.mark.parametrize("template", [1.0, 3.0], ids=["template", "library"])
def test_what_was_faster_is_taken_and_told(template, measured):
    inputs = feed_forward_inputs()
    measured(library=2.0, template=template)
    got, choices, programs = run(feed_forward, inputs)
    assert [str(e.kernel.op) for e in choices] == [
        "aten.addmm.default",
        "aten.mm.default",
        "aten.mm.default",
    ]
    assert {e.choice for e in choices} == {"template" if template < 2 else "library"}
    assert all(e.seconds["template"] - e.seconds["library"] == template - 2.0 for e in choices)
    dots = [program.source.count("tl.dot(") for program in programs]
    assert dots == ([1, 2] if template < 2 else [0, 0])
    want = feed_forward(*inputs)
    torch.testing.assert_close(
        got, (want, *torch.autograd.grad(want.float().sum(), inputs)), rtol=1e-2, atol=1e-2
    )


def test_the_rival_is_the_same_piece_of_the_program(measured):
    """With the loop before the call, and the one after it."""
    calls = measured(library=2.0, template=1.0)
    run(feed_forward, feed_forward_inputs())
    library, template = [
        program for program in calls if isinstance(program, runtime.CompiledGraph)
    ][:2]
    assert [str(kernel) for kernel in library.schedule.kernels] == [
        "mul over [1280]", "aten.addmm.default (extern)", "gelu·add over [1400]",
    ]  # fmt: skip
    assert [str(kernel) for kernel in template.schedule.kernels] == [
        "addmm·gelu·add over [20, 70], columns [64]"
    ]


def test_the_rival_of_a_product_before_a_softmax_has_its_scaling_in_the_softmax(measured):
    """Measured with the scaling alone the template would win: the library's product with a kernel of its own after it is slow."""

    def weights(q, k):
        return (q @ k.mT / 8).softmax(-1)

    calls = measured(library=1.0, template=2.0)
    q, k = numbers(2, 20, 64, dtype=torch.float16), numbers(2, 30, 64, dtype=torch.float16)
    with torch.no_grad():
        cl.compile(weights, options={"codegen": CODEGEN, "autotune": True})(q, k)

    library, template = [program for program in calls if isinstance(program, runtime.CompiledGraph)]
    assert [str(kernel) for kernel in library.schedule.kernels] == [
        "aten.bmm.default (extern)", "div·to·amax·sub·exp·sum over [40], columns [30]",
    ]  # fmt: skip
    assert [str(kernel) for kernel in template.schedule.kernels] == [
        "bmm·div over [2, 20, 30], columns [64]", "to·amax·sub·exp·sum·div over [40], columns [30]",
    ]  # fmt: skip


def test_what_draws_random_numbers_is_not_run_for_measuring(measured):
    """A dropout between two products, by torch's own generator: its mask is eager's, though both products were measured."""

    def layers(x, w, v):
        return F.dropout((x @ w).relu(), 0.5, True) @ v

    calls = measured(library=2.0, template=1.0)
    options = {"codegen": CODEGEN, "autotune": True, "fallback_random": True}
    half = torch.float16  # a GPU's tensor cores do not take products of float32
    inputs = [numbers(*shape, dtype=half) for shape in ((20, 64), (64, 33), (33, 70))]
    with torch.no_grad():
        cl.compile(layers, options=options)(*inputs)
    programs = [program for program in calls if isinstance(program, runtime.CompiledGraph)]
    assert len(programs) == 4
    for program in programs:
        assert "bernoulli" not in program.source and "dropout" not in program.source


def two_regions(x, w, y, v):
    """Two products that share no kernel, however the program is cut."""
    return (x @ w).relu(), (y @ v).cos()


@pytest.mark.parametrize("whole_is_faster", [True, False])
def test_at_the_end_the_whole_program_is_measured_beside_the_default(
    whole_is_faster, measured, monkeypatch
):
    """Each template wins in its region, but together they may be slower than the library's calls."""
    measured(library=2.0, template=1.0)
    asked = []

    def seconds_warm(run, tensors):
        dots = run.source.count("tl.dot(")
        asked.append(dots)
        return 1.0 if bool(dots) == whole_is_faster else 2.0

    monkeypatch.setattr(autotune, "seconds_warm", seconds_warm)
    half = torch.float16
    inputs = [numbers(*shape, dtype=half) for shape in ((20, 64), (64, 33), (33, 70), (70, 21))]
    with torch.no_grad(), cl.record() as trace:
        cl.compile(two_regions, options={"codegen": CODEGEN, "autotune": True})(*inputs)

    assert asked == [0, 2], "the default and the program with both templates, once each"
    (built,) = (event.compiled for event in trace.of(events.KernelsBuilt))
    assert built.source.count("tl.dot(") == (2 if whole_is_faster else 0)
    last = trace.of(events.Autotuned)[-1]
    assert last.kernel == "the whole program"
    assert last.choice == ("template" if whole_is_faster else "library")


def test_what_needs_much_more_memory_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", lambda: tmp_path)
    buffers = [Buffer("x", torch.float32, (4,), (1,))]
    times = {"library": 2.0, "template": 1.0}

    def take(name):
        return lambda: name

    def clock(run, tensors):
        return times[run]

    found = {}
    for bytes_of_template in (100, 110, 111):
        with cl.record() as trace:
            found[bytes_of_template] = autotune.fastest(
                "a product",
                f"source {bytes_of_template}",
                buffers,
                {name: take(name) for name in times},
                functools.partial(dict, library=100, template=bytes_of_template),
                clock,
            )
        (event,) = trace.of(events.Autotuned)
        assert event.seconds == times
        assert event.peak_bytes["template"] == bytes_of_template
    assert found == {100: "template", 110: "template", 111: "library"}


def test_the_choice_is_remembered(measured):
    calls = measured(library=2.0, template=1.0)
    run(feed_forward, feed_forward_inputs())
    assert calls
    calls.clear()
    _, choices, _ = run(feed_forward, feed_forward_inputs())
    assert not calls and {e.choice for e in choices} == {"template"}


def test_without_autotuning_nothing_is_measured(measured):
    calls = measured(library=2.0, template=1.0)
    _, choices, programs = run(feed_forward, feed_forward_inputs(), options={"codegen": CODEGEN})
    assert not calls and not choices
    assert not any("tl.dot(" in program.source for program in programs)


def test_two_layers_are_two_kernels(measured):
    def layers(x, w, v):
        return (x @ w).relu() @ v

    measured(library=2.0, template=1.0)
    inputs = [
        numbers(*shape, dtype=torch.float16).requires_grad_()
        for shape in ((20, 64), (64, 33), (33, 70))
    ]
    got, _, programs = run(layers, inputs)
    assert [str(kernel) for kernel in programs[0].schedule.kernels] == [
        "mm·relu over [20, 33], columns [64]", "mm over [20, 70], columns [33]",
    ]  # fmt: skip
    want = layers(*inputs)
    torch.testing.assert_close(
        got, (want, *torch.autograd.grad(want.float().sum(), inputs)), rtol=1e-2, atol=1e-2
    )


@pytest.mark.gpu
def test_on_a_gpu_it_is_measured():
    inputs = feed_forward_inputs()
    got, choices, _ = run(feed_forward, inputs, mode="max-autotune-no-cudagraphs")
    assert len(choices) == 3 and all(0 < s < 1 for e in choices for s in e.seconds.values())
    want = feed_forward(*inputs)
    torch.testing.assert_close(
        got, (want, *torch.autograd.grad(want.float().sum(), inputs)), rtol=1e-2, atol=1e-2
    )
