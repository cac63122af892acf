"""`course demo`: every stage is told, in order, within the width of a terminal."""

from __future__ import annotations

import pytest

from course_lib.tools import demo


def test_the_demo_shows_each_stage_and_checks_the_result(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert demo.main() == 0
    out = capsys.readouterr().out
    headings = [
        line.split(" ", 1)[1].strip(" ─") for line in out.splitlines() if line.endswith("──")
    ]
    assert headings == [title for title, _ in demo.stages()]
    # bytecode with the symbolic stack
    assert "BINARY_OP @" in out and "[matmul: float32[64, 256]]" in out
    # guards, with the line that caused them
    assert "x.shape == (64, 128)" in out and "bench/models.py:" in out
    assert "torch.ops.aten.mm.default(x, weight)" in out and "gelu over [64, 256]" in out
    assert "keep apart: a library call" in out  # a fusion decision with its reason
    assert 'extern "C" void' in out and "def call(x, weight, bias):" in out
    assert "On fresh inputs: largest difference from eager" in out and out.rstrip().endswith(
        "fine."
    )


@pytest.mark.parametrize("columns", [80, 300])
def test_the_demo_fits_a_terminal_and_has_no_colour_codes_in_a_file(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    demo.main()
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= min(columns, 120)
    assert "\033" not in out


def test_a_wrong_result_is_told(capsys, monkeypatch):
    monkeypatch.setattr(
        demo.course_lib, "compile", lambda function: lambda *args: function(*args) + 1
    )
    assert demo.main() == 1
    assert "WRONG" in capsys.readouterr().out
