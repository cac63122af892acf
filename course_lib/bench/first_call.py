"""What the first call costs: a fresh process, from a built model to its first result, by what is on
disk already.

In:  who compiles ("course_lib" or "torch.compile") and what (`models.FIRST_CALLS`). Out:
     `FirstCall`, measured by the child process itself (`child.py`).

Three situations: nothing on disk; something else was compiled before, so that headers and
measurements of the machine are there; the same was compiled before. Each compiler has cache folders
of its own and never sees the other. `import torch` and building the model are not counted;
importing course_lib is, since torch.compile's own imports happen inside its first call.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.bench.measure import human_time
from course_lib.bench.report import columns

CACHES = ("COURSE_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables of the environment that say where built code lies on disk."""
TIMEOUT = 600  # Seconds that one process may take
SITUATIONS = ("nothing on disk", "others before", "the same before")
"""What is on disk, in the order of measuring: the second one leaves what the third one finds."""
SMALL = "x * 2 + y"
"""What is compiled before, where something is."""


@dataclass
class FirstCall:
    """Seconds.

    `compile_and_call`: from `compile(model)` to the first result; `imports`: loading the compiler
    before that."""

    imports: float = 0.0
    compile_and_call: float = 0.0
    second_call: float = 0.0
    max_abs_diff: float = 0.0
    problem: str = ""

    @property
    def total(self) -> float:
        return self.imports + self.compile_and_call


def measure(who: str, workload: str, args: argparse.Namespace, caches: Path) -> FirstCall:
    """One fresh process, with all caches in this folder."""
    options = {name: getattr(args, name) for name in ("mode", "dynamic", "fullgraph", "device")}
    options |= {"workload": workload, "dtype": str(args.dtype).removeprefix("torch.")}
    package = Path(__file__).resolve().parents[2]
    environment = {**os.environ, **{name: str(caches / name.lower()) for name in CACHES}}
    # Python keeps the bytecode of what it imports. With this variable it would compile our sources
    # anew in each process, and torch's not.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    # -P: child.py's own folder is no place for imports; its `library.py` and others would be found
    # in place of modules of that name
    command = [
        sys.executable,
        "-P",
        str(Path(__file__).with_name("child.py")),
        who,
        json.dumps(options),
    ]
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return FirstCall(problem=f"no result after {TIMEOUT} s")
    if process.returncode:
        error_lines = process.stderr.strip().splitlines() or [f"exit status {process.returncode}"]
        return FirstCall(problem=error_lines[-1][:200])
    # A compiler may have printed something before
    return FirstCall(**json.loads(process.stdout.splitlines()[-1]))


def situations(
    workloads: Sequence[str], names: Sequence[str], args: argparse.Namespace
) -> Iterator[tuple[str, str, str, FirstCall]]:
    """(workload, situation, who, what it cost), as they are measured."""
    with tempfile.TemporaryDirectory(prefix="course_bench-") as folder:
        # Caches that others have filled: each compiler has compiled something small before.
        used_caches = {who: Path(folder, who) for who in names}
        for who in names:
            measure(who, SMALL, args, used_caches[who])
        for number, workload in enumerate(workloads):
            for situation in SITUATIONS:
                for who in names:
                    # No space in the name: torch's include paths would end there.
                    own_folder = Path(folder, f"{who}-{number}")
                    caches = own_folder if situation == SITUATIONS[0] else used_caches[who]
                    yield workload, situation, who, measure(who, workload, args, caches)


Runs = Mapping[tuple[str, str], Mapping[str, FirstCall]]
"""(workload, situation) → who → what it cost."""


def table(runs: Runs) -> str:
    """A row for each workload and situation: imports and first call together, and how many times as
    long torch.compile takes."""
    head = ("", "caches", "course_lib", "of it imports", "torch.compile", "ratio")
    rows: list[tuple[str, ...]] = [head]
    problems = []
    for (workload, situation), by_name in runs.items():
        ours = by_name["course_lib"]
        imports = "–" if ours.problem else human_time(ours.imports)
        theirs = total_text(by_name.get("torch.compile"))
        times = (total_text(ours), imports, theirs, ratio_text(ratio(by_name)))
        rows.append((workload, situation, *times))
        for who, first_call in by_name.items():
            if first_call.problem:
                problems.append(f"{workload}, {situation}: {who}: {first_call.problem}")

    return "\n".join([columns(rows), "", *means(runs), *problems])


def total_text(one: FirstCall | None) -> str:
    if one is None or one.problem:
        return "–"
    return human_time(one.total)


def means(runs: Runs) -> list[str]:
    """A line for each situation: how many times as long torch.compile takes, over all workloads."""
    ratios: dict[str, list[float]] = {}
    for (_, situation), by_name in runs.items():
        value = ratio(by_name)
        if value is not None:
            ratios.setdefault(situation, []).append(value)

    lines = []
    for situation in dict.fromkeys(situation for _, situation in runs):
        ratios_here = ratios.get(situation)
        if ratios_here:
            mean = math.exp(sum(map(math.log, ratios_here)) / len(ratios_here))
            lines.append(
                f"{situation}: torch.compile takes {mean:.1f} times as long (geometric mean of {len(ratios_here)})"
            )
    return lines


def ratio(by_name: Mapping[str, FirstCall]) -> float | None:
    """Theirs over ours; None where one is missing."""
    ours, theirs = by_name.get("course_lib"), by_name.get("torch.compile")
    if ours is None or theirs is None or ours.problem or theirs.problem:
        return None
    return theirs.total / ours.total


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return f"{ratio:.1f}x"
