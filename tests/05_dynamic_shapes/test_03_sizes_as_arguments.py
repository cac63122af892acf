"""Where a graph is compiled for each set of sizes, its kernels take these as arguments: the next sizes find them built."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import course_lib as cl
from course_lib import build_cache, events, runtime
from course_lib.pipeline import Pipeline

SIZES = [
    (5, 7),
    (33, 64),
    (64, 33),
    (128, 300),
    (300, 129),
    (1, 40),
    (40, 1),
    (2, 2),
    (700, 513),
    (64, 64),
]

PROGRAMS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "softmax": lambda x: torch.softmax(x * 2, -1),
    "sums": lambda x: (x.sum(0), x.mean()),
    "variance": lambda x: (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt(),
    "flipped": lambda x: x.flip(0) + x,
    "transposed": lambda x: (x.t() * 2).contiguous() + 1,
    "places": lambda x: (x.argmax(0), x.argmax(1), x.argmax()),
    "halves": lambda x: torch.sigmoid(x.half() * 1.5) + x.half(),
    "gathered": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1, device=x.device)] + x.shape[1],
    "joined": lambda x: torch.cat([x, x * 2], 1)[:, 1:],
    "padded": lambda x: F.pad(x, (1, 2)).roll(3, 0) * x.shape[0],
    "integers": lambda x: (x * 100).long() // x.shape[0] + (x * 3).long() % 9,
}


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """Nothing that was built before is found."""
    # found in the old one, and kept in memory
    runtime.compiler.optional_flags(runtime.compiler.find_compiler())
    monkeypatch.setattr(cl.config, "cache_dir", lambda: tmp_path)


@pytest.fixture
def by_numbers(monkeypatch):
    """A graph is compiled for each set of sizes by itself, as where one program for all cannot be."""
    monkeypatch.setattr(Pipeline, "needs_numbers", lambda *args: "the test asks for it")


def device_of(codegen):
    """Triton's kernels run on a GPU, if there is one."""
    return "cuda" if codegen == "triton" and torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("codegen, train", [("cpp", False), ("cpp", True), ("triton", True)])
def test_every_size_gives_what_eager_gives(name, codegen, train):
    f = PROGRAMS[name]
    compiled = cl.compile(f, dynamic=True, options={"codegen": codegen})
    for size in SIZES if codegen == "cpp" else SIZES[:3]:
        data = torch.randn(size, device=device_of(codegen))
        ours, theirs = (data.clone().requires_grad_(train) for _ in range(2))
        got, want = compiled(ours), f(theirs)
        torch.testing.assert_close(got, want, rtol=2e-3, atol=1e-4, equal_nan=True)
        results = [[x for x in tree_leaves(made) if x.requires_grad] for made in (got, want)]
        if train and results[1]:
            for tensors in results:
                sum(x.float().pow(2).sum() for x in tensors).backward()
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-3, atol=1e-3, equal_nan=True)


def built(compiled, *sizes, device="cpu"):
    """For each size whether its library was found (True) or built (False)."""
    with cl.record() as trace:
        for size in sizes:
            compiled(torch.randn(size, device=device))
    return [made.compiled for made in trace.of(events.KernelsBuilt)]


def test_the_second_size_builds_nothing(fresh_cache, by_numbers):
    norm = cl.compile(lambda x: F.layer_norm(x, x.shape[-1:]) * 2, dynamic=True)
    first, second, third = built(norm, (40, 100), (50, 101), (33, 77))
    assert [p.cached for p in (first, second, third)] == [False, True, True]
    assert first.source.split("def call")[0] == third.source.split("def call")[0], (
        "the same kernels"
    )
    (kernel,) = third.kernels
    assert kernel.sizes == (33, 77) and "j < n1" in kernel.source and "/ (float)n1" in kernel.source


def test_kernels_in_triton_take_them_too(by_numbers):
    norm = cl.compile(
        lambda x: F.layer_norm(x, x.shape[-1:]) * 2, dynamic=True, options={"codegen": "triton"}
    )
    (first,), (second,), (even,) = (
        p.kernels for p in built(norm, (40, 100), (50, 101), (48, 96), device=device_of("triton"))
    )
    assert first.source == second.source and (first.sizes, second.sizes) == ((40, 100), (50, 101))
    assert "columns = j < n1" in first.source and "/ n1.to(tl.float32)" in first.source
    assert "n1 = tl.multiple_of(tl.load(sizes + 1).to(tl.int32), 16)" in even.source, (
        "rows that begin at multiples of 16"
    )


def test_sizes_that_are_numbers_stay_in_the_text(fresh_cache, by_numbers):
    layer = torch.nn.Linear(48, 96).requires_grad_(False)
    act = cl.compile(lambda x: torch.relu(layer(x)) + torch.arange(96), dynamic=None)
    programs = built(act, (10, 48), (11, 48), (12, 48))
    assert len(programs) == 3 and [p.cached for p in programs] == [False, False, True]
    assert not programs[0].kernels[0].sizes, "the first graph is static"
    assert programs[2].kernels[0].sizes == (12,) and "96" in programs[2].kernels[0].source


def test_a_static_graph_has_no_arguments():
    (program,) = built(cl.compile(lambda x: x.sum(-1) * 3), (40, 100))
    assert (
        program.kernels[0].sizes == ()
        and "i < 40" in program.source
        and "j < 100" in program.source
    )


def test_products_are_measured_for_the_next_power_of_two(fresh_cache, by_numbers, monkeypatch):
    asked = []
    monkeypatch.setattr(
        runtime.gemm,
        "measure",
        lambda tensors: asked.append([tuple(t.shape) for t in tensors]) or {"torch": 1.0},
    )
    product = torch.nn.Linear(48, 96, bias=False)
    compiled = cl.compile(product, dynamic=True)
    for n in (17, 20, 31, 33):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x := torch.randn(n, 48)), product(x))
    assert asked == [[(32, 48), (48, 96)], [(64, 48), (48, 96)]]


def test_the_cache_says_what_was_found(fresh_cache, by_numbers):
    with cl.record() as trace:
        compiled = cl.compile(lambda x: x * 2 + 1, dynamic=True)
        for n in (20, 30):
            compiled(torch.randn(3, n))
    found = [
        entry.cached for entry in trace.of(build_cache.CacheEntry) if entry.path.suffix == ".so"
    ]
    assert found == [False, True]
