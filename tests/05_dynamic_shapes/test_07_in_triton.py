"""Kernels in Triton take symbolic sizes as arguments, as those in C++ do. Here they run in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import course_lib as cl
from course_lib import events
from course_lib.codegen.triton_plan import LARGEST
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph
from course_lib.runtime import cudagraphs
from course_lib.runtime.cudagraphs import RecorderForSizes
from course_lib.sizes import Place, SizeSymbol
from course_lib.viz.pictures.codegen.inspect_kernel import inspect_kernel
from course_lib.viz.pictures.codegen.tiles import tile_map

pytest.importorskip("triton")
ON = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(5, 7), (7, 5), (33, 33), (2, 300)]


def causal(x):
    place = torch.arange(x.shape[0], device=x.device)
    return torch.where(place[:, None] >= place, x @ x.t(), -1e9).softmax(-1)


PROGRAMS = {
    "pointwise": lambda x: torch.sigmoid(x) * 2 + 1,
    "a product of sizes behind a division": lambda x: x[:, None].expand(-1, 3, -1).exp() + 1,
    "three loops": lambda x: (x[:4, None, :] * x[None, 2:]).transpose(0, 2).contiguous() * 2,
    "transposed": lambda x: x.t() + x.t().contiguous(),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax over rows": lambda x: torch.softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "sums": lambda x: (x.sum(0), x.sum(1), x.sum(), x.mean(), x.prod(0)),
    "variance": lambda x: (x.var(1), x.std(0)),
    "places": lambda x: (x.argmax(-1), x.argmax(0), x.argmax()),
    "extremes": lambda x: (x.max(1), x.min(0), x.amax()),
    "causal": causal,
    "sliced": lambda x: (x[1:] + x[:-1], x[:, 1:-1].exp(), x[: x.shape[0] // 2] + 1),
    "joined": lambda x: (torch.cat([x, x * 2], 1), torch.stack([x, x])),
    "flipped": lambda x: x.flip(0) + x.roll(1, 0),
    "padded": lambda x: F.pad(x, (1, 2, 3, 0), value=2.0),
    "counted": lambda x: x * x.shape[0] + x.numel() / (x.shape[1] + 1),
    "looked up": lambda x: (x.gather(1, (x > 0).long()), x[:, [1, 0]]),
    "halves": lambda x: torch.softmax(x.half(), -1),
    "truth": lambda x: ((x > 0).any(1), (x > -9).all(0)),
    "loss": lambda x: F.cross_entropy(
        x, torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
    ),
}


def compare(program, shapes, train=False, **options):
    """Run on each shape, held against eager; gives what was recorded."""
    compiled = cl.compile(program, dynamic=True, options={"codegen": "triton"}, **options)
    with cl.record() as trace:
        for seed, shape in enumerate(shapes):
            torch.manual_seed(seed)
            data = torch.randn(shape, device=ON)
            ours, theirs = (data.clone().requires_grad_(train) for _ in range(2))
            got, want = compiled(ours), program(theirs)
            torch.testing.assert_close(got, want, rtol=2e-3, atol=1e-4, equal_nan=True)
            for made in (got, want):
                wanted = [t for t in tree_leaves(made) if t.requires_grad]
                if wanted:
                    sum((t.float() ** 2).sum() for t in wanted).backward()
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=2e-3, atol=2e-3)
    return trace


def kernels_of(trace):
    return [
        kernel
        for made in trace.of(events.KernelsBuilt)
        for kernel in made.compiled.kernels
        if kernel.language == "triton"
    ]


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_serves_all_sizes(name):
    trace = compare(PROGRAMS[name], SHAPES, train=True)
    why = [event.why for event in trace.of(events.SizesAreNumbers)]
    assert not why, "compiled for numbers"
    # One graph; a second where torch itself asks about a size (`x[1:]` of two rows broadcasts)
    assert len(trace.of(events.GraphCaptured)) <= 2
    assert kernels_of(trace)


def test_what_a_kernel_looks_like():
    trace = compare(lambda x: x.t().contiguous() * 2 + 1, [(5, 7), (4, 9)])
    (kernel,) = kernels_of(trace)
    (made,) = trace.of(events.KernelsBuilt)
    assert '@triton.jit(do_not_specialize=["s0", "s1"])' in kernel.source
    assert "s0: tl.int32, s1: tl.int32, BLOCK: tl.constexpr" in kernel.source
    assert "mask = row < s0*s1" in kernel.source
    assert "i1 = row % s1" in kernel.source or "i1 = row % s0" in kernel.source
    assert kernel.types[-2:] == ("i32", "i32")
    assert ", s0, s1)" in made.compiled.wrapper_source


def test_a_product_of_sizes_stands_in_brackets_behind_a_division():
    trace = compare(
        lambda x: (x[:, None, :] * x[None]).transpose(0, 2).contiguous(), [(3, 5), (4, 2)]
    )
    sources = "".join(kernel.source for kernel in kernels_of(trace))
    assert "// (s0*s0)" in sources or "// (s0*s1)" in sources, sources


def test_a_long_sum_is_cut_in_chunks_of_one_length():
    """Where a number of columns would be cut evenly, a symbolic one has a last chunk that is filled up."""
    program = {
        "all": lambda x: x.sum(),
        "down": lambda x: x.sum(0),
        "best": lambda x: (x.amax(), x.amin()),
        "truth": lambda x: ((x > 3).any(), (x > -9).all()),
        "spread": lambda x: x.std(),
        "mean": lambda x: x.mean(0),
        "whole numbers": lambda x: (x * 10).int().sum(),
    }
    for name, function in program.items():
        trace = compare(function, [(1024, 40), (1031, 7), (3, 2), (2048, 41)])
        assert not trace.of(events.SizesAreNumbers), name
        assert len(trace.of(events.GraphCaptured)) == 1, name
        assert len(kernels_of(trace)) >= 2, name
    assert any("masked" in line or "inside" in line for line in kernels_of(trace)[0].source.split())


def test_numbers_that_do_not_fit_32_bits_are_another_graph():
    trace = compare(lambda x: x + 1, [(5, 7)])
    guards = [str(guard) for made in trace.of(events.GuardsMade) for guard in made.check.guards]
    assert any(f"x.shape[0]*x.shape[1] < {LARGEST}" in guard for guard in guards), guards


@pytest.mark.parametrize("name", ["softmax", "sums", "causal", "counted", "joined"])
def test_kernels_compile_for_a_gpu(name):
    trace = compare(PROGRAMS[name], SHAPES[:1], train=True)
    for kernel in kernels_of(trace):
        texts = inspect_kernel(kernel, "sm_90")
        assert ".param .u32" in texts["ptx"], "sizes are 32-bit arguments"


def test_pictures_have_the_numbers_of_the_recorded_call():
    trace = compare(lambda x: torch.softmax(x, -1), [(5, 7), (4, 9)])
    (kernel,) = kernels_of(trace)
    assert "5" in tile_map(kernel).text or "row 4" in tile_map(kernel).text


# --- CUDA graphs: a recording has fixed sizes


def graph_of_two_sizes():
    """x of [s0, s1], and s1 once more as a number."""
    s0, s1 = (SizeSymbol(name, integer=True, positive=True) for name in ("s0", "s1"))
    x = Buffer("x", torch.float32, (4, 3), (3, 1), torch.device("cuda", 0))
    result = Buffer("buf0", torch.float32, (4, 3), (3, 1), torch.device("cuda", 0))
    kernel = ExternKernel(torch.ops.aten.zeros.default, ([4],), {}, (result,))
    places = {s0: Place(0, 0), s1: Place(1, None)}
    return LoopGraph([x, None], [kernel], [result.view()], numbers={1: "s1"}, places=places)


def test_each_set_of_sizes_has_recordings_of_its_own(monkeypatch):
    made = []

    class Recorder:
        def __init__(self, program, written):
            made.append(program)
            self.program = program

        def __call__(self, *tensors):
            assert all(isinstance(x, torch.Tensor) for x in tensors)
            return self.program(*tensors)

    monkeypatch.setattr(cudagraphs, "Recorder", Recorder)
    monkeypatch.setattr(cudagraphs, "MOST_SETS_OF_SIZES", 2)
    program = cudagraphs.with_cuda_graphs(lambda x, s1: (x + s1,), graph_of_two_sizes())
    assert isinstance(program, RecorderForSizes)

    with cl.record() as trace:
        for rows, s1 in [(4, 3), (5, 3), (4, 3), (6, 3), (4, 7), (5, 3)]:
            x = torch.randn(rows, s1)
            torch.testing.assert_close(program(x, s1), (x + s1,))
    assert len(made) == 2, "what is more runs kernel by kernel"
    (told,) = trace.of(events.FellBack)
    assert "2 other sets of sizes" in told.why
