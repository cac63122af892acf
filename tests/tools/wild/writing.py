"""The page about the sweep: `page(rows, programs)` is the text of docs/measurements/wild.md."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from table import Program

Row = dict[str, Any]

INTRODUCTION = """# Programs in the wild

Programs of packages that nobody here wrote, with random weights and tiny configurations: forward, backward and a step of an
optimizer, at one size, another one, and the first again. What each step gives, its gradients, parameters and buffers are compared with
eager's. Made by `python tests/tools/wild` ({date}, torch {torch}, one thread of a CPU).

*Graphs* are those of the first call: ours, and torch.compile's. *Breaks* likewise; torch.compile gives a frame up that breaks in a
loop, and counts it once. *First* is the CPU time of the first step, *steady* that of a later one (median of 15) beside eager's.
Rows without times were tried with capture alone (`--capture`): the graphs ran as in eager. **The machine was busy with other work
while this ran: take times as rough.** A row is as its program was last tried; some were tried before `functools.lru_cache` and
`autograd.Function` were followed as they are now (performer, x_transformers_alibi, gpytorch_exact, torchdiffeq).
"""


def page(rows: dict[str, Row], programs: dict[str, Program]) -> str:
    """The whole page."""
    import torch

    known = [rows[name] for name in programs if name in rows]
    tried = [row for row in known if "program" not in row]
    date = time.strftime("%Y-%m-%d")
    sections = [
        INTRODUCTION.format(date=date, torch=torch.__version__),
        summary(tried),
        "## All programs\n",
        table(tried),
    ]
    if more := extra_breaks(tried):
        sections += [
            "## Where ours breaks and torch.compile does not, or breaks more often\n",
            more,
        ]
    if wrong := [row for row in tried if problem_of(row)]:
        sections += [
            "## What went wrong\n",
            *(f"- `{row['name']}`: {problem_of(row)}" for row in wrong),
        ]
    if broken := [row for row in known if "program" in row]:
        sections += ["\n## What does not run in eager here\n"]
        sections += [f"- `{row['name']}`: {cell(row['program'])}" for row in broken]
    return "\n".join(sections) + "\n"


def problem_of(row: Row) -> str:
    """What went wrong with ours, in a few words; "" if nothing did."""
    if "limit" in row:
        return f"not done after {row['limit']} s"
    return cell(row.get("died") or row.get("wrong") or "")


def is_right(row: Row) -> bool:
    return not problem_of(row)


def graphs(row: Row, whose: str) -> int | None:
    return row.get(whose, {}).get("graphs")


def breaks(row: Row, whose: str) -> int | None:
    return row.get(whose, {}).get("breaks")


def has_more_breaks(row: Row) -> bool:
    ours, torchs = breaks(row, "ours"), breaks(row, "torch")
    return ours is not None and torchs is not None and ours > torchs


def summary(rows: list[Row]) -> str:
    """The counts."""
    counted = [
        row for row in rows if graphs(row, "ours") is not None and graphs(row, "torch") is not None
    ]
    timed = [row for row in rows if row.get("ours_ms") and is_right(row)]
    raced = [row for row in timed if row.get("torch_ms")]
    lines = [
        "| | programs |",
        "|---|---|",
        f"| tried | {len(rows)}, of {len({row['package'] for row in rows})} packages |",
        f"| right | {sum(map(is_right, rows))} of {len(rows)} |",
        f"| as many graphs as torch.compile, or fewer | "
        f"{sum(graphs(row, 'ours') <= graphs(row, 'torch') for row in counted)} of {len(counted)} |",
        f"| no more breaks than torch.compile | "
        f"{sum(not has_more_breaks(row) for row in counted)} of {len(counted)} |",
        f"| one graph | {sum(graphs(row, 'ours') == 1 for row in counted)} |",
        f"| at least eager's speed | {sum(row['ours_ms'] <= 1.05 * row['eager_ms'] for row in timed)} of {len(timed)} |",
    ]
    if raced:
        fast = sum(row["ours_ms"] <= 1.05 * row["torch_ms"] for row in raced)
        lines.append(f"| at least torch.compile's speed | {fast} of {len(raced)} |")
    return "\n".join(lines) + "\n"


def table(rows: list[Row]) -> str:
    """A line a program."""
    lines = [
        "| package | program | right | graphs, ours/torch | breaks, ours/torch | first, s: ours | torch "
        "| steady, ms: eager | ours | torch | eager/ours |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda one: (one["package"].lower(), one["name"])):
        eager, ours = row.get("eager_ms"), row.get("ours_ms")
        cells = [
            f"{row['package']} {row.get('version', '')}",
            row["name"],
            "yes" if is_right(row) else "**no**",
            both(graphs(row, "ours"), graphs(row, "torch")),
            both(breaks(row, "ours"), breaks(row, "torch")),
            number(row.get("first_ours_s"), 1),
            number(row.get("first_torch_s"), 1),
            number(eager, 2),
            number(ours, 2),
            number(row.get("torch_ms"), 2),
            number(eager / ours if eager and ours else None, 2),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def extra_breaks(rows: list[Row]) -> str:
    """Why ours breaks, program by program."""
    lines = []
    for row in rows:
        if has_more_breaks(row):
            reasons = Counter(row["ours"]["reasons"]).most_common(6)
            told = "; ".join(f"{cell(text)} ({times}×)" for text, times in reasons)
            lines.append(f"- `{row['name']}`: {told}")
    return "\n".join(lines)


def both(ours: Any, torchs: Any) -> str:
    return f"{'?' if ours is None else ours}/{'?' if torchs is None else torchs}"


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def cell(text: Any) -> str:
    """A text on one line, without what would end a cell."""
    return " ".join(str(text).split()).replace("|", "/")[:260]
