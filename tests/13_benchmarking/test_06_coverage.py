"""`course coverage` tells the kinds of calls apart, and notices what is wrong."""

from __future__ import annotations

import json
import os
import time

import pytest
import torch

from course_lib.lowering import LOWERINGS
from course_lib.tools import coverage, differences
from course_lib.tools.coverage import Job, run_all, run_job
from course_lib.tools.coverage_table import main, merged, page

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operator", "kind"),
    [("neg", "lowered"), ("sort", "extern"), ("nonzero", "not captured"), ("linalg.cond", "mixed")],
)
def test_how_a_call_is_compiled(operator, kind):
    (row,) = run_job(Job(operator, ("float32",), samples=1))
    assert {k for k, n in row.counts.items() if n} == {kind}
    assert bool(row.extern) == (kind in ("extern", "mixed"))
    assert bool(row.notes) == (kind == "not captured")


@pytest.mark.parametrize("build", [(), ("float32",)])
def test_a_wrong_value_is_seen(monkeypatch, build):
    monkeypatch.setitem(LOWERINGS, aten.neg.default, LOWERINGS[aten.abs.default])
    (row,) = run_job(Job("neg", ("float32",), samples=2, build=build))
    assert row.counts["wrong"] and "instead of" in row.notes[0]


def test_so_is_a_wrong_layout_and_a_failure():
    x = torch.randn(3, 4)
    assert "stride" in differences.difference(x, x.t().contiguous().t(), random=True)
    assert "dtype" in differences.difference(x.double(), x, random=True)
    assert "instead of" in differences.difference([x], [x, x], random=True)
    assert not differences.difference(x, torch.randn(3, 4), random=True)
    nan = torch.tensor([1.0, float("nan")])
    assert not differences.difference(nan, nan.clone(), random=False) and differences.difference(
        nan, torch.ones(2), random=False
    )


def test_as_far_from_the_exact_value_as_eager_is_right():
    exact = torch.tensor([1.0], dtype=torch.float64)
    low, high, far = (torch.tensor([v], dtype=torch.bfloat16) for v in (0.94, 1.06, 2.0))
    assert not differences.difference(low, high, False, exact) and differences.difference(
        far, high, False, exact
    )


@pytest.mark.parametrize(
    ("what", "told"),
    [(lambda: os._exit(3), "exit status 3"), (lambda: time.sleep(60), "took more than 1 s")],
)
def test_a_crash_costs_one_operator_only(monkeypatch, what, told):
    plain = coverage.samples

    def odd(info, dtype, job):
        return what() if info.name == "neg" else plain(info, dtype, job)

    monkeypatch.setattr(coverage, "samples", odd)
    said = []
    rows = run_all(
        [Job("neg", ("float32",)), Job("T", ("float32",), 1)],
        workers=2,
        seconds=1 if "took" in told else 60,
        tell=said.append,
    )
    (bad,) = [row for row in rows if row.operator == "neg"]
    assert bad.counts["wrong"] == 1 and told in bad.notes[0] and any(told in line for line in said)


def test_hostile_samples_keep_shape_and_dtype():
    for x in (torch.randn(()), torch.randn(0), torch.randn(3, 4)):
        for twist in (
            coverage.with_hard_values,
            coverage.flipped,
            coverage.transposed,
            coverage.widened,
        ):
            assert (twist(x).shape, twist(x).dtype) == (x.shape, x.dtype)
    assert coverage.transposed(x).stride() == (1, 3) and coverage.widened(x).stride()[0] == 0
    assert torch.equal(coverage.transposed(x), x) and torch.equal(coverage.flipped(x), x)


def test_parts_of_a_run_add_up(tmp_path, capsys):
    for part in ("1/2", "2/2"):
        assert (
            main(
                [
                    "--only",
                    "^(neg|sign)$",
                    "--shard",
                    part,
                    "--dtypes",
                    "int64",
                    "--samples",
                    "1",
                    "--output",
                    str(tmp_path),
                ]
            )
            == 0
        )
    report = merged(tmp_path / "operator-coverage.json", [], {"samples": 1, "seed": 0})
    assert [row["operator"] for row in report["rows"]] == ["neg", "sign"]
    assert "| sign | 1 | 1 |" in page(report) and "1 lowered" in capsys.readouterr().out
    assert main(["--only", "no such operator", "--output", str(tmp_path)]) == 2


def test_the_table_in_docs_says_what_was_recorded(root):
    report = json.loads((root / "docs/operator-coverage.json").read_text(encoding="utf-8"))
    assert (root / "docs/operator-coverage.md").read_text(encoding="utf-8") == page(report)
