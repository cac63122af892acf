"""The 48 kernels of the discovery, our own, and random ones: the simulator beside a recorded GPU.

    python tests/tools/simulated/table.py            # writes docs/measurements/simulator.md
    python tests/tools/simulated/table.py --print    # shows it

Each row is one of four kinds: the same; refused with the compiler's sentence; differs by rounding only; differs, and said why.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(ROOT))

import course_lib  # noqa: E402, F401  (before Triton: it switches the simulator on)
from course_lib import simulator, versions  # noqa: E402

TRITON = versions.minor(importlib.metadata.version("triton"))

SAME = "same"
REFUSED = "refused with the compiler's sentence"
ROUNDING = "differs by rounding only"
WHY = "differs and said why"

ERROR = re.compile(
    r"\b(CompilationError|UnsupportedLanguageConstruct|CompileTimeAssertionFailure|RuntimeError|ValueError<-OSError)\b"
)
NUMBER = re.compile(r"-?(?:0x[0-9a-f.]+p[+-]\d+|\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)")

COUNTS_OF_ROUNDING = {28, 31}
"""Kernels that print how often a result was not rounded correctly."""

REASONS = {
    "18": "the kernel's own bits are the same; beside them stand torch's, which makes 448 of 465 here and NaN there",
    "37": "a race: which lane, or which program, is left is chance; the simulator names both races",
    "40": "programs have no order on a GPU; here they run by number, or shuffled with a seed",
    "47": "`tl.cat(can_reorder=True)` promises no order; the GPU's is that of its layout",
    "50 empty_loop_var": "poison: the simulator says so instead of a number",
    "50 var_after_loop": "poison: the simulator says so instead of a number",
    "56 device_print": "Python's `print` does not see what a GPU prints; there each of 128 threads prints its line, here each lane once",
    "56 inline_asm": "PTX needs a GPU; the simulator says so",
    "56 static_print_2_programs": "the compiler prints it, and is asked once: a kept verdict prints nothing, as a kept kernel on a GPU",
    "57 launch returns": "a launch on a GPU returns the compiled kernel; here there is none",
    "57 returns": "Triton 3.6's compiler fails at a kernel that returns a value; 3.7's takes it, and so does the simulator",
    "58 autotune": "no time is taken here, so the first configuration wins: 16 divides 48, and 64 does not",
}
"""Why an answer differs. A reason that is not needed is an error, too."""

NEWER = {
    "04": "3.9 refuses to compare an unsigned block with a negative constant",
    "06": "3.9 has the same sentence as the cause of its error",
    "09": "3.9 adds up and multiplies small integers in 32 bits",
    "10": "3.9 has the same sentence as the cause of its error",
    "51 chained": "3.9 takes `0 < x < 3`",
    "55": "3.9 has no block pointers",
}
"""Where Triton itself changed after 3.6, with which the answers were recorded."""

NOT_ALWAYS = {"18", "57 returns", "56 static_print_2_programs"}
"""Reasons that one Triton needs and another does not, or one run and not the next."""

RANDOM_REASONS = dict.fromkeys(
    ("random 354", "random 1522"),
    "a fault of Triton 3.6: `tl.argmax` or `tl.argmin` of a block that was reshaped finds another place",
)


SMALL_INTEGERS = ("int8", "int16", "uint8")
NEWER_PROGRAMS = dict.fromkeys(
    [f"cumprod of {kind}{word}" for kind in SMALL_INTEGERS for word in ("", " backwards")],
    "since 3.9 `tl.cumprod` multiplies small integers in 32 bits",
)
"""Our own programs whose answer changed with Triton 3.9; their answers were recorded with 3.6."""


NEW_KERNELS = """## New kernels

`python tests/tools/simulated/fresh.py` takes seeds that nothing was tuned with. It counts complaints about kernels that have no
fault, and planted faults that are not named. On 2026-11-29, seeds from 200,000, the first 100 of each run compiled as well:

| Triton | torch | without a fault | complained about | planted faults | found |
|---|---|---|---|---|---|
| 3.6.0 | 2.11.0 | 3,000 | 0 | 500 | 500 |
| 3.7.1 | 2.13.0 | 3,000 | 0 | 500 | 500 |
| 3.9.0 | 2.15.0 | 3,000 | 0 | 500 | 500 |

The results of the 3,000 kernels are the same bits with 3.6 and 3.7. With 3.9 two differ, and both are right: since 3.9
`tl.minimum` and `tl.maximum` of two bfloat16 blocks give bfloat16, and before they gave float32. So the product that comes next is
rounded in 3.9 (random 202205 and 202626). The compilers' own `ttir` says the same: `arith.mulf` of bfloat16 in 3.9, of float32 in 3.7.

The next 3,000 seeds, from 300,000 on, ran on one H200 (2026-11-29, torch 2.11, Triton 3.6.0, Python 3.12; `record_on_gpu.py
--first 300000 --random 3000`, then `fresh.py --recorded`, here with Triton 3.7.1): 2,845 give the same bits, 153 differ by the
rounding that is allowed, and two differ: `tl.argmin` and `tl.argmax` of a block that was reshaped (random 301103 and 301945), the
fault of Triton 3.6 above. None failed on the GPU."""
"""Written by hand: the runs take some minutes with each Triton."""


@dataclass(frozen=True)
class Row:
    """One answer beside the recorded one."""

    name: str
    simulated: str
    recorded: str
    kind: str
    why: str = ""


def normal(text: str) -> str:
    """Without addresses of Python objects and without folders."""
    text = re.sub(r" at 0x[0-9a-f]{6,}", "", text)
    return re.sub(r"/[^\s'\"]*/(?=\w+\.py)", "", text)


def close(simulated: str, recorded: str) -> bool:
    """Are the texts the same but for numbers that differ by rounding? By a thousandth, and not all of them."""
    if NUMBER.sub("#", simulated) != NUMBER.sub("#", recorded):
        return False
    for a, b in zip(NUMBER.findall(simulated), NUMBER.findall(recorded)):
        if a == b:
            continue
        x, y = (float.fromhex(t) if "0x" in t else float(t) for t in (a, b))
        if not abs(x - y) <= 3e-3 * max(abs(x), abs(y)):
            return False
    return True


def kind_of(number: int, part: str, simulated: str, recorded: str) -> tuple[str, str]:
    simulated, recorded = normal(simulated), normal(recorded)
    if simulated == recorded:
        return (REFUSED if ERROR.search(recorded) else SAME), ""
    if number in COUNTS_OF_ROUNDING:
        return ROUNDING, ""
    for key in (f"{number} {part}", str(number)):
        if key in REASONS:
            return WHY, REASONS[key]
    returned = ("launch returns NoneType", "launch returns CompiledKernel")
    if simulated.replace(*returned) == recorded:
        return WHY, REASONS["57 launch returns"]
    if close(simulated, recorded):
        return ROUNDING, ""
    newer = NEWER.get(f"{number:02d} {part}".strip()) or NEWER.get(f"{number:02d}")
    if newer and TRITON > (3, 6):
        return WHY, newer
    return "DIFFERENT", ""


def discovery() -> list[Row]:
    """The rows of the 48 kernels; a kernel with several answers has one for each."""
    import probes

    recorded = json.loads((HERE / "recorded_probes.json").read_text())["answers"]
    rows = []
    for number in sorted(probes.PROBES):
        with simulator.using(collect=True), contextlib.redirect_stderr(io.StringIO()):
            answer = str(probes.run(number))
        mine, theirs = answer.split(" | "), recorded[f"{number:02d}"].split(" | ")
        if len(mine) != len(theirs):
            mine, theirs = [answer], [recorded[f"{number:02d}"]]
        for a, b in zip(mine, theirs):
            part = a.split(":")[0].strip() if len(mine) > 1 else ""
            kind, why = kind_of(number, part, a, b)
            rows.append(Row(f"{number:02d} {part}".strip(), a, b, kind, why))
    return rows


def programs(
    own: bool, first: int = 0, last: int = 3200, refusals: bool = False
) -> tuple[dict[str, str], list[Row]]:
    """(machine and versions, rows) of our own programs or of the random ones. `refusals`: the compiler is asked, too."""
    from own_programs import PROGRAMS
    from random_small_kernels import random_program
    from record_on_gpu import load
    from small_kernels import compare, run

    about, recorded = load(HERE / f"recorded_{'own' if own else 'random'}.npz")
    reasons = RANDOM_REASONS | (NEWER_PROGRAMS if TRITON >= (3, 9) else {})
    rows = []
    for program in PROGRAMS if own else map(random_program, range(first, last)):
        raw = recorded[program.name]
        with simulator.using(refusals=refusals):
            comparison = compare(program, run(program, "cpu"), raw)
        kind = {"same": SAME, "rounding": ROUNDING}.get(comparison.kind, "DIFFERENT")
        why = f"{comparison.ulps:.3g} ulp" if kind == ROUNDING else ""
        if kind == "DIFFERENT" and program.name in reasons:
            kind, why = WHY, reasons[program.name]
        rows.append(Row(program.name, str(comparison), "", kind, why))
    return about, rows


def counted(rows: list[Row]) -> str:
    counts = Counter(row.kind for row in rows)
    return ", ".join(
        f"{counts[kind]} {kind}"
        for kind in (SAME, REFUSED, ROUNDING, WHY, "DIFFERENT")
        if counts[kind]
    )


def short(text: str, most: int = 90) -> str:
    text = normal(text).replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= most else text[: most - 1] + "…"


def page() -> str:
    """The whole page."""
    import numpy
    import torch
    import triton

    found = discovery()
    about, own = programs(own=True, refusals=True)
    _, random = programs(own=False, refusals=True)
    lines = [
        "# The simulator beside a GPU",
        "",
        "Written by `python tests/tools/simulated/table.py`; do not edit by hand.",
        "",
        f"Simulated: Triton {triton.__version__}, torch {torch.__version__}, NumPy {numpy.__version__}. "
        f"Recorded: {about['gpu']}, Triton {about['triton']}, torch {about['torch']}, Python {about['python']}, {about['date']}; "
        "the 48 kernels of the discovery also on an H100 (2026-11-27, `recorded_discovery.json`), with the same answers but for races.",
        "",
        "| kernels | answers | by kind |",
        "|---|---|---|",
        f"| the 48 of the discovery | {len(found)} | {counted(found)} |",
        f"| our own, one question each | {len(own)} | {counted(own)} |",
        f"| random | {len(random)} | {counted(random)} |",
        "",
        "## The 48 kernels of the discovery",
        "",
        "| kernel | simulated | recorded | kind |",
        "|---|---|---|---|",
    ]
    for row in found:
        kind = f"{row.kind}: {row.why}" if row.why else row.kind
        recorded = (
            "the same"
            if normal(row.simulated) == normal(row.recorded)
            else f"`{short(row.recorded)}`"
        )
        lines.append(f"| {row.name} | `{short(row.simulated)}` | {recorded} | {kind} |")

    lines += [
        "",
        "What a launch costs beside the plain interpreter: [design/simulator.md](../design/simulator.md#what-it-costs).",
        "",
        "## What differs by rounding",
        "",
        "In units of the last place (ulp) of the number itself. Where positive and negative numbers cancel (`dot`), or near a zero of the "
        "function (`lgamma`, `j0`, `y1`, `fast_sinf`), the number is small and its ulp with it. Our own kernels, the largest of each:",
        "",
        "| kernel | largest difference |",
        "|---|---|",
        *(f"| {row.name} | {row.why} |" for row in own if row.kind == ROUNDING),
        "",
        f"Of the random kernels: {max((float(r.why.split()[0]) for r in random if r.kind == ROUNDING), default=0):.3g} ulp at most.",
        "",
        "## What differs, and why",
        "",
        *(f"- {row.name}: {row.why}." for row in [*own, *random] if row.kind == WHY),
        "",
        NEW_KERNELS,
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--print", action="store_true")
    warnings.simplefilter("ignore")
    text = page()
    if parser.parse_args().print:
        print(text)
    else:
        (ROOT / "docs/measurements/simulator.md").write_text(text)


if __name__ == "__main__":
    main()
