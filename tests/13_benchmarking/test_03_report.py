"""Tables, JSON and pictures: `course_lib.bench.report`."""

from __future__ import annotations

import builtins
import json

import pytest

from course_lib.bench import report
from course_lib.bench.compare import Outcome, Program
from course_lib.bench.measure import Samples


@pytest.fixture
def outcomes():
    return [
        Outcome("eager", samples=Samples((2e-3, 2.2e-3, 1.8e-3)), first_call=3e-3),
        Outcome(
            "course_lib",
            0.4,
            1e-6,
            Samples((1e-3, 1.1e-3, 0.9e-3), calls=4),
            Program(1, 0, 3, 2, 0),
        ),
        Outcome("torch.compile", problem="InvalidCxxCompiler: No working C++ compiler found"),
    ]


def test_the_table_has_medians_ratios_and_the_first_call(outcomes):
    head, eager, ours, theirs = report.table(outcomes).splitlines()
    assert "vs eager" in head and "vs torch.compile" in head
    assert eager.split()[:3] == ["eager", "2.00", "ms"] and "1.00×" in eager
    assert ours.split()[:3] == ["course_lib", "1.00", "ms"] and "2.00×" in ours
    assert "400 ms" in ours and ours.endswith("1.0e-06")
    assert theirs.endswith("not timed: see below")
    assert all(len(line) <= 120 for line in (head, eager, ours, theirs))


def test_the_reason_of_a_failure_stands_under_the_table(outcomes):
    assert "torch.compile: InvalidCxxCompiler: No working C++ compiler found" in report.programs(
        outcomes
    )


def test_the_row_is_that_of_the_text(outcomes):
    head, _, ours, theirs = report.markdown_rows(
        outcomes, "CPU / float32", "default", (32, 128, 768)
    ).splitlines()
    assert head == "| Environment | mode | shape | eager | compile | speedup | notes |"
    assert ours == (
        "| CPU / float32 | default | 32 × 128 × 768 | 2.00 ms | 1.00 ms | 2.00× | course_lib: 1 graph, no graph breaks, "
        "no recompiles, 3 kernels, 2 library calls; first call 400 ms |"
    )
    assert "| – | – | torch.compile: InvalidCxxCompiler" in theirs


def test_json_has_the_raw_samples(outcomes):
    ours = json.loads(json.dumps(report.as_json(outcomes[1], outcomes)))
    assert ours["samples"] == [1e-3, 1.1e-3, 0.9e-3] and ours["calls_per_sample"] == 4
    assert (
        ours["times_faster_than_eager"] == pytest.approx(2)
        and ours["times_faster_than_torch_compile"] is None
    )
    assert ours["program"]["kernels"] == 3
    theirs = report.as_json(outcomes[2], outcomes)
    assert theirs["samples"] == [] and theirs["problem"].startswith("InvalidCxxCompiler")


def test_the_picture_is_an_svg_with_text_that_can_be_read_and_does_not_change(outcomes, tmp_path):
    pytest.importorskip("matplotlib")
    report.plot(str(tmp_path / "new folder" / "a.svg"), "TinyBlock", outcomes)
    report.plot(str(tmp_path / "b.svg"), "TinyBlock", outcomes)
    first = (tmp_path / "new folder" / "a.svg").read_text()
    assert first.startswith("<?xml") and "course_lib" in first and "TinyBlock" in first
    assert first == (tmp_path / "b.svg").read_text()


def test_without_matplotlib_a_picture_is_refused_in_a_sentence(monkeypatch):
    real = builtins.__import__

    def no_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    with pytest.raises(report.MissingPackage, match="pip install matplotlib"):
        report.need_matplotlib()
