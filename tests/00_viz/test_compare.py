"""Measured things side by side, tiles, and a large graph by module."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise

import pytest
import torch

import course_lib as cl
from course_lib import events, viz
from course_lib.bench.models import Transformer
from course_lib.codegen.triton import ProductTiling, Tiling, TritonSource
from course_lib.viz.pictures.codegen.product_tiles import program_of
from course_lib.viz.pictures.codegen.tiles import tile_map
from course_lib.viz.pictures.graphs.module_graphs import modules_of


def source(rows, columns, persistent=False, chunks=0):
    return TritonSource(
        "fused", "triton", "", (), tiling=Tiling(rows, columns, persistent, chunks=chunks)
    )


def test_tiles_say_which_elements_each_program_has_and_what_is_masked():
    picture = tile_map(source(1000, 0), {"BLOCK": 300})
    assert (
        "4 programs with BLOCK=300" in picture.caption and "16.7 % of all lanes" in picture.caption
    )
    assert "program 3  elements 900 to 999  200 lanes masked" in picture.text
    solid = [
        float(w)
        for w in re.findall(r'width="([\d.]+)" height="46"[^>]*fill-opacity="0.35"', picture.body)
    ]
    assert solid == [128, 128, 128, 42.7]


def test_tiles_of_an_empty_tensor_are_refused_with_its_kernels_name():
    with pytest.raises(ValueError, match="fused writes an empty tensor"):
        tile_map(source(0, 0), {"BLOCK": 300})


def test_tiles_of_rows_are_walked_in_steps_and_the_last_is_masked_both_ways():
    picture = tile_map(source(10, 100), {"ROWS": 4, "COLUMNS": 64})
    assert "3 programs" in picture.caption and "in 2 steps" in picture.caption
    assert f"{100 * (1 - 1000 / (3 * 4 * 128)):.1f} % of all lanes" in picture.caption
    assert "columns 64 to 99" in picture.body and "rows 8 to 9" in picture.body


def test_a_program_that_walks_down_its_chunk_of_rows_is_drawn_walking():
    picture = tile_map(source(10, 100, True, chunks=3), {"ROWS": 4, "COLUMNS": 128})
    assert (
        "3 programs" in picture.caption and "walks down its 10 rows in 3 steps" in picture.caption
    )
    assert picture.text.splitlines()[1].split("  ")[1] == "rows 10 to 19"
    masked = 3 * 4 * 128 - 10 * 100
    assert (
        f"{masked:,} lanes masked" in picture.text
        and f"{100 * masked / (3 * 4 * 128):.1f} % of all lanes" in picture.caption
    )
    assert "rows +8 to 9" in picture.body and "its sums" in picture.body


def test_a_real_kernel_that_walks_covers_each_row_once():
    pytest.importorskip("triton")
    cl.reset()
    with cl.record() as trace:
        norm = cl.compile(torch.nn.LayerNorm(256), options={"codegen": "triton"})
        norm(torch.randn(3000, 256, requires_grad=True)).sum().backward()
    walking = next(
        k for e in trace.of(events.KernelsBuilt) for k in e.compiled.kernels if k.tiling.chunks
    )
    last = tile_map(walking, {"ROWS": 8, "COLUMNS": 256}).text.splitlines()[-2]
    assert "to 2,999" in last and walking.tiling.rows * walking.tiling.chunks == 3000


def test_the_tiles_of_a_real_kernel_are_those_of_its_launch():
    pytest.importorskip("triton")
    cl.reset()
    with torch.no_grad(), cl.record() as trace:
        cl.compile(lambda x: torch.softmax(x, -1), options={"codegen": "triton"})(
            torch.randn(10, 7)
        )
    assert "rows 0 to 9" in trace.tiles().text and "ROWS=" in trace.tiles().caption
    with pytest.raises(LookupError, match="out of range"):
        trace.tiles(kernel=5)


def test_tiles_of_a_product_lie_in_both_directions_and_say_what_a_program_walks_along():
    tiling = ProductTiling(1000, 500, batch=3, depth=200)
    tiles = {"ROWS": 64, "COLUMNS": 128, "DEPTH": 64, "num_stages": 4}
    picture = tile_map(TritonSource("fused_mm", "triton", "", (), tiling=tiling), tiles)
    assert (
        f"{3 * 16 * 4} programs with ROWS=64, COLUMNS=128, DEPTH=64 for 3 products"
        in picture.caption
    )
    assert "walks along k in 4 steps" in picture.caption and "num_stages" not in picture.caption
    assert f"{100 * (1 - 1000 * 500 / (1024 * 512)):.1f} % of all lanes" in picture.caption
    assert "program 1   rows 64 to 127   columns 0 to 127    0 lanes masked" in picture.text
    assert (
        f"program 63  rows 960 to 999  columns 384 to 499  {64 * 128 - 40 * 116:,} lanes masked"
        in picture.text
    )
    filled = re.findall(r'width="([\d.]+)" height="([\d.]+)"[^>]*fill-opacity="0.35"', picture.body)
    right, left, result = filled[:4], filled[4:8], filled[8:]
    assert right == [("96", "18")] * 3 + [("96", "2.2")] and result == [("96", "46")]
    assert left == [("36", "46")] * 3 + [(f"{36 * 8 / 64:g}", "46")]


def test_the_programs_drawn_have_the_tiles_that_a_printed_product_gives_them(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    from course_lib.runtime import autotune, triton_runner

    # neither finds what was measured nor leaves what is faked
    monkeypatch.setattr(cl.config, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(
        autotune, "seconds", lambda run, tensors: 1e-6 if "tl.dot" in run.source else 1.0
    )
    cl.reset()
    a, b = torch.randn(700, 64), torch.randn(64, 200)
    with torch.no_grad(), cl.record() as trace:
        cl.compile(
            lambda a, b: torch.mm(a, b).relu(), options={"codegen": "triton", "autotune": True}
        )(a, b)
    kernel = trace.of(events.KernelsBuilt)[-1].compiled.kernels[0]
    numbered = re.sub(
        r"(tl\.store\([^,]*), \w+, mask\)",
        r"\1, tl.zeros([ROWS, COLUMNS], tl.float32) + tile, mask)",
        kernel.source,
    )
    assert numbered != kernel.source
    result = torch.full((700, 200), -1.0)
    given = {"a": a, "b": b}
    run = triton_runner.load_triton(
        dataclasses.replace(kernel, source=numbered), torch.device("cpu")
    )
    run(*(given.get(name, result) for name in kernel.buffers))
    down, across = torch.arange(700)[:, None] // 64, torch.arange(200)[None, :] // 64
    drawn = [[program_of(i, j, 11, 4) for j in range(4)] for i in range(11)]
    assert torch.equal(result, torch.tensor(drawn)[down, across].float())
    assert f"program {drawn[-1][-1]}  rows 640 to 699  columns 192 to 199" in trace.tiles().text


def test_where_no_triton_kernel_was_made_it_is_told(trace):
    with pytest.raises(LookupError, match="codegen"):
        trace.tiles()


def test_speed_up_bars_are_as_long_as_their_values_and_eager_is_a_line():
    picture = viz.speedup_bars({"softmax": {"course_lib": 2.0, "torch.compile": 1.0}})
    wide = [float(w) for w in re.findall(r'<rect[^>]* width="([\d.]+)"', picture.body)]
    assert wide[0] == pytest.approx(2 * wide[1], abs=0.2)  # widths are rounded to a tenth of a px
    assert "stroke-dasharray" in picture.body
    assert picture.text.splitlines()[0].split() == ["softmax", "course_lib", "2×"]
    with pytest.raises(ValueError, match="at least one"):
        viz.speedup_bars({})


def test_speed_up_bars_with_long_names_fit_a_narrow_window():
    picture = viz.speedup_bars(
        {"six-layer transformer": {"torch.compile max-autotune-no-cudagraphs": 5.17, "ours": 1.0}}
    )
    assert float(re.search(r'<svg[^>]* width="([\d.]+)"', picture.body)[1]) <= 540


def test_the_landscape_frames_the_fastest():
    picture = viz.landscape({(1, 64): 3e-3, (2, 64): 1e-3, (2, 128): 2e-3})
    assert "ROWS=2, COLUMNS=64" in picture.alt and "3.0 times as long" in picture.alt
    assert picture.body.count('stroke-width="3.5"') == 1


def test_launches_of_a_call_are_its_operators_in_order():
    ran = viz.launches(lambda: torch.ones(4).sin().add(1))
    names = [launch.name for launch in ran if not launch.on_device]
    assert names == ["the call", "ones", "sin", "add"]
    assert (
        all(a.end <= b.start for a, b in pairwise(ran[1:]))
        and ran[0].seconds >= ran[-1].end - ran[0].start
    )
    picture = viz.launch_timeline(
        {"eager": ran, "compiled": [viz.Launch("call", 0, 1e-6), viz.Launch("k", 2e-7, 1e-7, True)]}
    )
    assert ">device</text>" in picture.body and "eager: 3 launches" in picture.alt
    once = [
        viz.Launch("call", 0, 1e-6),
        viz.Launch("start", 0, 1e-6),
        *(viz.Launch("k", n * 1e-6, 1e-6, True) for n in (1, 2)),
    ]
    assert "CUDA graph: 1 launch in" in viz.launch_timeline({"CUDA graph": once}).alt


def test_a_tile_may_have_another_size_and_keeps_the_others():
    tiling = Tiling(37, 50)
    source = TritonSource("fused", "triton", "", (), tiling=tiling)
    usual = tiling.meta(interpreted=False)
    assert f"ROWS=8, COLUMNS={usual['COLUMNS']}" in tile_map(source, {"ROWS": 8}).caption
    with pytest.raises(ValueError, match="no size NOPE; they have ROWS, COLUMNS"):
        tile_map(source, {"NOPE": 8})


def test_an_operation_belongs_to_the_module_whose_code_it_is():
    class Scale(torch.nn.Module):
        def forward(self, x):
            return halved(x) * 2

    def halved(x):
        return x / 2

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Scale())
    with torch.no_grad(), cl.record() as trace:
        cl.compile(lambda x: model(x) + 1)(torch.randn(2, 4))
    homes = modules_of(node for node in trace.graphs[0].graph.nodes if node.op.startswith("call_"))
    assert {node.name: home for node, home in homes.items()} == {
        "linear": "model[0]", "truediv": "model[1]", "mul": "model[1]", "add": "the function itself",
    }  # fmt: skip


def test_layers_of_a_long_list_share_boxes_and_so_does_a_large_aten_graph():
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.GELU()) for _ in range(40))
    )
    with torch.no_grad(), cl.record() as trace:
        cl.compile(model)(torch.randn(2, 4))
    for picture in (trace.graph(by_module=True), trace.aten()):
        assert (
            picture.text.splitlines()[2].startswith("self[0] … [2]")
            and len(picture.text.splitlines()) == 2 + 14
        )


def test_an_input_that_is_returned_as_it_is_belongs_to_no_module():
    with cl.record() as trace:
        cl.compile(lambda x, y: (x, x + 1, y), backend="eager")(torch.ones(2), torch.ones(2))
    assert "the function itself  1" in trace.graph(by_module=True).text


def test_a_large_graph_is_drawn_by_module_and_every_operation_has_one():
    cl.reset()
    with torch.no_grad(), cl.record() as trace:
        cl.compile(Transformer(8, 8, 2), backend="eager")(torch.randn(1, 4, 8))
    picture = trace.graph(by_module=True)
    operations = [node for node in trace.graphs[0].graph.nodes if node.op.startswith("call_")]
    homes = modules_of(operations)
    assert set(homes) == set(operations) and set(homes.values()) == {
        "self",
        *(f"self.layers[{n}]" for n in range(8)),
    }
    # residuals
    assert {node.name.rstrip("_0123456789") for node, home in homes.items() if home == "self"} == {
        "add",
        "gelu",
    }
    assert all(f">self.layers[{n}]</text>" in picture.body for n in range(8))
