"""What the first call costs: a fresh process with empty caches, from a built model to its first result.

In:  who compiles ("course_lib" or "torch.compile"). Out: `FirstCall`, measured by the child process itself (`child.py`).

Each child gets empty cache folders of its own (`CACHES`) and never sees the other compiler. `import torch` and building the
model are not counted; importing course_lib is, apart, since torch.compile's own imports happen inside its first call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from course_lib.bench.measure import human_time
from course_lib.bench.report import columns

CACHES = ("COURSE_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
TIMEOUT = 600


@dataclass
class FirstCall:
    """Seconds. `compile_and_call`: from `compile(model)` to the first result; `imports`: loading the compiler before that."""

    imports: float = 0.0
    compile_and_call: float = 0.0
    second_call: float = 0.0
    max_abs_diff: float = 0.0
    problem: str = ""

    @property
    def total(self) -> float:
        return self.imports + self.compile_and_call


def measure(who: str, args: argparse.Namespace) -> FirstCall:
    """One fresh process."""
    options = {name: getattr(args, name) for name in ("batch", "seq", "hidden", "mode", "dynamic", "fullgraph", "device")}
    options["dtype"] = str(args.dtype).removeprefix("torch.")
    package = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="course_bench-") as empty:
        environment = {**os.environ, **{name: str(Path(empty, name.lower())) for name in CACHES}}
        environment["PYTHONPATH"] = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), who, json.dumps(options)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return FirstCall(problem=f"no result after {TIMEOUT} s")
    if done.returncode:
        return FirstCall(problem=(done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200])
    return FirstCall(**json.loads(done.stdout.splitlines()[-1]))


def table(runs: Mapping[str, Sequence[FirstCall]]) -> str:
    """Medians of the runs, and how many times as long torch.compile takes."""
    rows: list[tuple[str, ...]] = [("", "import", "first call", "together", "second call", "max abs diff")]
    good = {name: [one for one in several if not one.problem] for name, several in runs.items()}
    for name, several in runs.items():
        if not good[name]:
            rows.append((name, "–", "–", "–", "–", several[-1].problem))
            continue
        cells = [human_time(median(getattr(one, part) for one in good[name])) for part in COLUMNS]
        cells[0] = cells[0] if name == "course_lib" else "–"
        rows.append((name, *cells, f"{max(one.max_abs_diff for one in good[name]):.1e}"))
    lines = [columns(rows)]
    if good["course_lib"] and good.get("torch.compile"):
        first, together = (ratio(good, part) for part in ("compile_and_call", "total"))
        lines.append(f"\ntorch.compile takes {first:.1f} times as long (with imports: {together:.1f} times).")
    return "\n".join(lines)


COLUMNS = ("imports", "compile_and_call", "total", "second_call")


def ratio(good: Mapping[str, Sequence[FirstCall]], part: str) -> float:
    ours, theirs = (median(getattr(one, part) for one in good[name]) for name in ("course_lib", "torch.compile"))
    return theirs / ours
