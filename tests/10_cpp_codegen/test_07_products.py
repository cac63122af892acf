"""Matrix products: the fastest library is found by measuring, remembered, told, and gives the same."""

from __future__ import annotations

import pytest
import torch
from back_half import lowered

import course_lib as cl
from course_lib import config, events, runtime, scheduling
from course_lib.runtime import gemm

needs_onednn = pytest.mark.skipif(not gemm.onednn(), reason="this torch has no oneDNN")


@pytest.fixture
def onednn_wins(monkeypatch):
    """As if oneDNN had been twice as fast."""
    monkeypatch.setattr(gemm, "seconds_of", lambda op, layouts: {"torch": 2.0, "oneDNN": 1.0})


def compiled_with_choice(function, *inputs):
    """The program, and what was chosen for each product."""
    seen = []
    with events.listener(
        lambda event: seen.append(event) if isinstance(event, events.Autotuned) else None
    ):
        loops = runtime.choose_products(lowered(lambda *given: (function(*given),), *inputs))
    schedule = scheduling.schedule(loops)
    return runtime.build(loops, schedule, scheduling.plan(schedule, loops)), [
        event.choice for event in seen
    ]


def linear_gelu(x, w, b):
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b)) * 2


PRODUCTS = {
    "linear with bias": (linear_gelu, [(8, 20, 33), (65, 33), (65,)]),
    "x @ w": (torch.mm, [(40, 33), (33, 7)]),
    "gradient of x": (lambda g, w: g @ w, [(40, 65), (65, 33)]),
    "gradient of w": (lambda g, x: g.t() @ x, [(40, 65), (40, 33)]),
    "both transposed": (lambda a, b: a.t() @ b.t(), [(40, 65), (33, 40)]),
    "columns of a larger matrix": (lambda a, b: a[:, 3:20] @ b[2:19], [(40, 65), (33, 9)]),
    "one row": (lambda a, b: a[None] @ b, [(40,), (40, 9)]),
}


@needs_onednn
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_chosen_library_gives_the_same(name, onednn_wins):
    function, shapes = PRODUCTS[name]
    inputs = [torch.randn(shape) for shape in shapes]
    compiled, chosen = compiled_with_choice(function, *inputs)
    assert chosen == ["oneDNN"]
    assert "torch.ops.mkldnn._linear_pointwise.default(" in compiled.wrapper_source
    torch.testing.assert_close(compiled(*inputs)[0], function(*inputs), rtol=1e-5, atol=1e-5)


@needs_onednn
def test_results_are_laid_out_and_chained(onednn_wins):
    """Two layers: the second reads what the first wrote, through a loop between them."""
    inputs = [torch.randn(shape) for shape in ((16, 33), (65, 33), (65,), (20, 65), (20,))]
    function = lambda x, w, b, w2, b2: torch.nn.functional.linear(linear_gelu(x, w, b), w2, b2)
    compiled, chosen = compiled_with_choice(function, *inputs)
    assert chosen == ["oneDNN"] * 2
    # sums of 65 numbers of about 30
    torch.testing.assert_close(compiled(*inputs)[0], function(*inputs), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "function, shapes, dtype",
    [
        (lambda b, x, w: torch.addmm(b, x, w), [(40, 9), (40, 33), (33, 9)], torch.float32),
        (lambda b, x, w: torch.addmm(b, x, w, beta=2), [(9,), (40, 33), (33, 9)], torch.float32),
        (torch.mm, [(40, 33), (33, 9)], torch.float64),
        (torch.mm, [(40, 0), (0, 9)], torch.float32),
        (torch.mm, [(0, 4), (4, 9)], torch.float32),
    ],
    ids=["a bias for each element", "a factor", "float64", "nothing to add up", "no rows"],
)
def test_others_are_left_to_torch(function, shapes, dtype, onednn_wins):
    inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
    compiled, chosen = compiled_with_choice(function, *inputs)
    assert chosen == []
    torch.testing.assert_close(compiled(*inputs)[0], function(*inputs))


def test_a_small_gain_may_be_noise(monkeypatch):
    monkeypatch.setattr(gemm, "seconds_of", lambda op, layouts: {"torch": 1.05, "oneDNN": 1.0})
    assert compiled_with_choice(torch.mm, torch.randn(8, 8), torch.randn(8, 8))[1] == ["torch"]


def test_measured_once_then_remembered(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "cache_dir", lambda: tmp_path)
    times = []
    measure = gemm.measure
    monkeypatch.setattr(gemm, "measure", lambda tensors: times.append(1) or measure(tensors))
    x, w = torch.randn(24, 40), torch.randn(40, 16)
    before = torch.get_rng_state()
    for _ in range(2):
        compiled_with_choice(torch.mm, x, w)
    assert len(times) == 1
    assert torch.equal(torch.get_rng_state(), before), (
        "measuring took random numbers that belong to the program"
    )
    compiled_with_choice(torch.mm, x, torch.randn(16, 40).t())  # another layout is another question
    assert len(times) == 2


def test_a_wrong_candidate_is_no_candidate(monkeypatch):
    monkeypatch.setattr(gemm, "onednn", lambda: lambda x, w, *rest: x @ w.t() + 1)
    assert gemm.measure([torch.randn(8, 8), torch.randn(8, 8)]).keys() == {"torch"}


def test_measuring_can_be_turned_off(monkeypatch):
    monkeypatch.setattr(config, "measure_products", False)
    assert compiled_with_choice(torch.mm, torch.randn(8, 8), torch.randn(8, 8))[1] == []


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_compile_chooses_and_fuses_in_every_mode(mode):
    """Whole programs, forward and backward: products are chosen, and what is between them becomes kernels."""
    seen = []
    x, w, b = (
        torch.randn(16, 24),
        torch.randn(32, 24, requires_grad=True),
        torch.randn(32, requires_grad=True),
    )
    with events.listener(seen.append), mode():
        cl.compile(lambda x, w, b: torch.softmax(linear_gelu(x, w, b), -1))(x, w, b)
    chosen = [event for event in seen if isinstance(event, events.Autotuned)]
    built = [event.compiled for event in seen if isinstance(event, events.KernelsBuilt)]
    assert len(chosen) >= (2 if mode is torch.enable_grad else 1)
    assert built and all(compiled.kernels for compiled in built)
    assert not any("_softmax" in compiled.wrapper_source for compiled in built)


@pytest.mark.parametrize("width, step", [(4, 1), (4, 2), (5, 3), (1, 1), (3, 3)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_product_of_windows_that_overlap(width, step, dynamic):
    """oneDNN refuses a matrix whose elements share places; torch's own product takes it."""
    f = lambda x: (x @ x.T, torch.addmm(x[0, 0], x, x.T))
    compiled = cl.compile(f, dynamic=dynamic)
    for length in (20, 33):
        x = torch.randn(length).unfold(0, width, step)
        torch.testing.assert_close(compiled(x), f(x))
