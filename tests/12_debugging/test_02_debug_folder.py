"""`options={"trace.enabled": True}`: each stage of every program as files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import course_lib as cl
from course_lib.pipeline import Pipeline


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COURSE_DEBUG_DIR", str(tmp_path / "here"))
    return tmp_path / "here"


def norm(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).softmax(-1) @ x.mT


def test_each_program_has_a_folder_with_its_stages(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    x = torch.randn(8, 16, requires_grad=True)
    cl.compile(norm, options={"trace.enabled": True})(x).sum().backward()
    (run,) = folder.iterdir()
    assert f"each stage is written to {run}" in capsys.readouterr().err
    assert sorted(p.name for p in run.iterdir()) == ["model_0", "model_1"]
    stages = [
        "aten.py",
        "captured.py",
        "kernels_after_fusion.txt",
        "loops_before_fusion.txt",
        "memory.txt",
        "output_code.txt",
    ]
    for program in run.iterdir():
        assert sorted(p.name for p in program.iterdir()) == stages
    forward, backward = run / "model_0", run / "model_1"
    assert "softmax" in (forward / "captured.py").read_text()
    assert (forward / "aten.py").read_text().startswith("# forward graph\ndef forward(")
    assert (backward / "aten.py").read_text().startswith("# backward graph\n")
    assert "sum over j of" in (forward / "loops_before_fusion.txt").read_text()
    assert "fuse, saves" in (forward / "kernels_after_fusion.txt").read_text()
    assert "def call(" in (forward / "output_code.txt").read_text()
    assert (forward / "memory.txt").read_text().splitlines()[-1].startswith("peak ")


def test_a_diagram_is_drawn_when_asked_for(folder: Path):
    cl.compile(norm, options={"trace.graph_diagram": True})(torch.randn(8, 16))
    (drawing,) = folder.rglob("graph_diagram.svg")
    assert drawing.read_text().startswith("<svg")


def test_each_set_of_sizes_has_a_folder(folder: Path, monkeypatch):
    monkeypatch.setattr(Pipeline, "needs_numbers", lambda *args: "the test asks for it")
    f = cl.compile(norm, dynamic=True, options={"trace.enabled": True})
    for n in (8, 9):
        f(torch.randn(n, 16))
    assert len(list(folder.rglob("aten.py"))) == 2


def test_other_compiles_are_not_written(folder: Path):
    x = torch.randn(8, 16)
    traced = cl.compile(norm, options={"trace.enabled": True})
    traced(x)
    cl.compile(lambda x: x + 1)(x)
    assert len(list(folder.rglob("aten.py"))) == 1


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_DEBUG_DIR", str(tmp_path / "file" / "below"))
    x = torch.randn(8, 16)
    with pytest.warns(UserWarning, match="cannot write below .*; set COURSE_DEBUG_DIR"):
        y = cl.compile(norm, options={"trace.enabled": True})(x)
    torch.testing.assert_close(y, norm(x))
