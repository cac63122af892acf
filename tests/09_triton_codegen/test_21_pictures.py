"""The pictures of lesson 09: what a warp's load fetches, who has which element; and TorchInductor's Triton without a GPU."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch

from course_lib.codegen.triton import Tiling
from course_lib.viz.pictures.codegen.tiles import tile_map
from course_lib.viz.pictures.codegen.warps import coalescing, sectors, tile_layout
from course_lib.viz.widgets.move_tile import move_tile


def test_neighbouring_lanes_share_sectors():
    assert sectors(1) == [0, 1, 2, 3]
    assert len(sectors(2)) == 8
    assert len(sectors(8)) == len(sectors(4096)) == 32
    assert len(sectors(1, size=2)) == 2
    assert sectors(0) == [0]


def test_what_was_not_asked_for_is_told():
    picture = coalescing([1, 8])
    assert picture.text.splitlines() == [
        "stride 1, 4 sectors, 128 bytes fetched, 100.0% wanted",
        "stride 8, 32 sectors, 1024 bytes fetched, 12.5% wanted",
    ]
    assert "… 26 more" in picture.body


def test_a_layout_gives_every_element_to_one_thread():
    picture = tile_layout(1024, per_thread=4, warps=4)
    assert picture.text.splitlines()[1].startswith(
        "warp 1: lane 0: 128 to 131, 640 to 643; lane 1: 132 to 135, 644 to 647"
    )
    assert picture.text.endswith("lane 31: 508 to 511, 1020 to 1023")
    with pytest.raises(ValueError, match="share 512, so no tile of 1000"):
        tile_layout(1000, per_thread=4, warps=4)


def test_masked_lanes_of_a_tile_are_counted_in_both_directions():
    softmax = SimpleNamespace(name="softmax", tiling=Tiling(5, 6, persistent=True))
    lines = tile_map(softmax, {"ROWS": 2, "COLUMNS": 8}).text.splitlines()
    assert [re.sub(" +", " ", line) for line in lines[:3]] == [
        "program 0 rows 0 to 1 4 lanes masked",
        "program 1 rows 2 to 3 4 lanes masked",
        "program 2 row 4 10 lanes masked",
    ]


def test_a_tile_moves_over_every_element_once():
    tiles = move_tile((5, 6), (2, 8))
    assert repr(tiles).splitlines()[2] == "program 2  i = 4 to 5  j = 0 to 7  10 lanes masked"
    assert (
        [tiles.frame(n).count("stroke-dasharray") for n in range(3)]
        == [tiles.masked(n) for n in range(3)]
        == [4, 4, 10]
    )
    lanes = [
        place
        for n in range(3)
        for place in re.findall(r'font-weight="600"[^>]*>(\d+)<', tiles.frame(n))
    ]
    assert sorted(map(int, lanes)) == list(range(30))


def test_a_program_walks_along_its_rows():
    pytest.importorskip("anywidget")
    tiles = move_tile((4, 20), (2, 8))
    assert tiles.said(4) == "program 1, step 2 of 3: i = 2 to 3, j = 8 to 15; 0 lanes masked"
    assert len(tiles.widget.frames) == len(tiles.widget.said) == 6
    assert move_tile((10,), (4,)).said(2) == "program 2: i = 8 to 11; 2 lanes masked"


def test_what_is_too_large_to_be_drawn_is_told():
    with pytest.raises(ValueError, match="take a smaller example"):
        move_tile((1000, 1000), (2, 8))
    with pytest.raises(ValueError, match="shape and tile are both"):
        move_tile((10,), (2, 8))


@pytest.mark.slow
def test_torchinductor_writes_triton_where_there_is_no_gpu():
    pytest.importorskip("triton")
    from course_lib.viz.pictures.codegen.inductor_triton import inductor_triton

    x = torch.randn(1000, 1000)
    found = inductor_triton(lambda x: (x * 2).sum(), x)
    # looped, then persistent
    assert [name.split("_")[1] for name in found if name != "call"] == ["red", "per"]
    first = next(iter(found.values()))
    assert first.startswith("@triton.jit\ndef triton_red_fused") and "xnumel = 123" in first
    assert "return (buf2, )" in found["call"]
    # and goes on compiling for the CPU
    torch.testing.assert_close(torch.compile(lambda x: x + 1)(x), x + 1)
    with pytest.raises(LookupError, match="all of it is library calls"):
        inductor_triton(lambda x: x @ x, x)
