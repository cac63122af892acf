"""`course coverage`: run `tools.coverage` over the operators asked for, and write the table.

In:  command-line arguments, and what earlier parts left (`docs/operator-coverage.json`).
Out: the JSON with machine, versions and date, the table `docs/operator-coverage.md`, and exit
     status 1 if anything is wrong.

The parts of a run (`--shard 2/8`, `--only norm`) replace their operators' rows in the JSON and
leave the others.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from course_lib.bench import machine
from course_lib.tools.coverage import DTYPES, KINDS, Job, Row, as_json, database, run_all, totals

ABOUT = """Compile torch's own operators one by one, compare each result with eager, and write down
how each was compiled: docs/operator-coverage.md. All of them take hours; --only norm takes
minutes, and leaves the other rows of the table as they are."""

FIRST_OF = 3
"""How many operators a reason is shown with."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    args = parser().parse_args(argv)
    names = chosen(args)
    if not names:
        print(
            f"course coverage: no operator of the database matches '{args.only}'", file=sys.stderr
        )
        return 2

    # The folder is made now: that it cannot be made should not come out after an hour's work.
    path = Path(args.output) / "operator-coverage.json"
    path.parent.mkdir(parents=True, exist_ok=True)

    # To build a kernel takes most of the time, so it is asked for by dtype
    dtypes = tuple(args.dtypes)
    build = DTYPES if args.build == ["all"] else tuple(args.build)
    jobs = [Job(name, dtypes, args.samples, build, args.hostile, args.seed) for name in names]
    rows = run_all(jobs, args.jobs, args.seconds, lambda line: print(line, flush=True))

    # The page tells of torch's own samples. Hostile inputs are a search for faults.
    if not args.hostile:
        report = merged(path, rows, {"samples": args.samples, "seed": args.seed})
        path.write_text(one_row_a_line(report))
        path.with_suffix(".md").write_text(page(report))

    counts = totals(rows)
    print(", ".join(f"{counts[kind]} {kind}" for kind in KINDS))
    return int(counts["wrong"] > 0)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="course coverage", description=ABOUT, formatter_class=argparse.RawTextHelpFormatter
    )
    top.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="operators whose name has this (a regular expression) in it",
    )
    top.add_argument(
        "--shard",
        type=shard,
        default=(1, 1),
        metavar="I/N",
        help="every N-th operator, from the I-th on",
    )
    top.add_argument(
        "--dtypes",
        nargs="+",
        default=DTYPES,
        choices=DTYPES,
        metavar="DTYPE",
        help=" ".join(DTYPES),
    )
    top.add_argument(
        "--samples",
        type=int,
        default=4,
        help="calls of each operator and dtype; 0: all (default: %(default)s)",
    )
    top.add_argument(
        "--build", nargs="*", default=["float32"], choices=[*DTYPES, "all"], metavar="DTYPE",
        help="build kernels in C++ for these (default: float32); for others NumPy runs the loops",
    )  # fmt: skip
    top.add_argument(
        "--hostile", action="store_true", help="nan, inf, denormals, odd strides; writes no table"
    )
    top.add_argument("--seed", type=int, default=0)
    top.add_argument(
        "--jobs", type=int, default=2, help="operators at a time (default: %(default)s)"
    )
    top.add_argument(
        "--seconds",
        type=float,
        default=300,
        help="time limit of one operator (default: %(default)s)",
    )
    top.add_argument(
        "--output",
        default="docs",
        metavar="FOLDER",
        help="where the table goes (default: %(default)s)",
    )
    return top


def shard(text: str) -> tuple[int, int]:
    """`2/8` → (2, 8): the second of eight parts."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"say which part of how many, like 2/8, not '{text}'")
    return int(match[1]), int(match[2])


def chosen(args: argparse.Namespace) -> list[str]:
    """The operators that `--only` and `--shard` leave. A shard has every n-th one: so operators of
    one family, neighbours in the alphabet, are spread over all shards."""
    part, parts = args.shard
    return [name for name in sorted(database()) if re.search(args.only, name)][part - 1 :: parts]


def merged(path: Path, rows: Sequence[Row], how: dict[str, Any]) -> dict[str, Any]:
    """What stands in the JSON already, with these rows in place of older ones for the same operator
    and dtype."""
    # A later row takes the place of an earlier one under the same key
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    table = {(row["operator"], row["dtype"]): row for row in [*old, *as_json(rows)]}
    about_machine = machine.describe()
    return {
        "date": about_machine["date"],
        "versions": about_machine["versions"],
        **how,
        "rows": [table[key] for key in sorted(table)],
    }


def one_row_a_line(report: dict[str, Any]) -> str:
    """The JSON, laid out so that a changed row is a changed line."""
    rows = ",\n".join(json.dumps(row) for row in report["rows"])
    head = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1)
    # The head without its last line and brace: the rows follow inside it.
    return f'{head[:-2]},\n "rows": [\n{rows}\n]}}\n'


# -- the page --------------------------------------------------------------------------------------


def page(report: dict[str, Any]) -> str:
    """The table as Markdown."""
    rows = report["rows"]
    versions = report["versions"]
    built = sum(row["built"] for row in rows)
    lines = [
        f"# Operator coverage: {len({row['operator'] for row in rows})} operators",
        "",
        "How course_lib compiles torch's own operator database (`torch.testing._internal.common_methods_invocations`) on the",
        "CPU, inputs without gradients. Of each operator and dtype a few sample calls are compared with eager: values, dtypes,",
        f"shapes, strides, and the inputs afterwards. For {built} of {len(rows)} pairs of an operator and a dtype kernels were",
        "built in C++ and called; for the others NumPy ran the loops.",
        "",
        f"Written by `course coverage --samples {report['samples']}` on {report['date'][:10]}: torch {versions['torch']}, "
        f"Python {versions['python']}.",
        "",
        "- **lowered**: all kernels are ours. **extern**: torch's own operators do the work. **mixed**: both.",
        "- **not captured**: a graph break, or the graph runs operation by operation; right, but not compiled.",
        "- **wrong**: differs from eager, or failed to compile. Of random numbers only dtype, shape and strides are compared.",
        "",
        *markdown(
            ["dtype", "operators", "calls", *KINDS],
            (dtype_row(rows, dtype) for dtype in (*DTYPES, "all")),
        ),
        "",
        "## Operators that are library calls",
        "",
        *markdown(["ATen operator", "in", "why"], extern_rows(rows)),
        "",
        "## Not captured, and wrong",
        "",
        *markdown(["why", "in"], note_rows(rows)),
        "",
        "## Every operator",
        "",
        "All dtypes together.",
        "",
        *markdown(["operator", "calls", *KINDS, "library calls"], operator_rows(rows)),
    ]
    return "\n".join(lines) + "\n"


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    # A bar inside a cell would end it
    lines = [head, ["---"] * len(head), *rows]
    return [
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    ]


def counted(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """The calls of each kind in these rows of the JSON."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row["counts"])
    return counts


def dtype_row(rows: Sequence[dict[str, Any]], dtype: str) -> list[object]:
    """A line of the first table; "all" for the dtypes together."""
    rows_of_dtype = [row for row in rows if dtype in (row["dtype"], "all")]
    counts = counted(rows_of_dtype)
    return [
        dtype,
        len({row["operator"] for row in rows_of_dtype}),
        counts.total(),
        *(counts[kind] for kind in KINDS),
    ]


def some(names: Iterable[str]) -> str:
    """The first few, and how many more."""
    every = sorted(set(names))
    more = ""
    if len(every) > FIRST_OF:
        more = f" and {len(every) - FIRST_OF} more"
    return ", ".join(every[:FIRST_OF]) + more


def extern_rows(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each ATen operator that torch runs: which operators of the database need it, and
    why it is torch's."""
    where: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        for op, why in row["extern"].items():
            # The operator's name stands in the first column
            if why.startswith(f"{op} has no loop form"):
                why = "no loop form here"
            where[op, why].add(row["operator"])
    return [[f"`{op}`", some(names), why] for (op, why), names in most_first(where)]


def note_rows(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each note, and the operators that have it."""
    where: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        for note in row["notes"]:
            where[note].add(row["operator"])
    if not where:
        return [["nothing", ""]]
    return [[note, some(names)] for note, names in most_first(where)]


def most_first(where: dict[Any, set[str]]) -> list[tuple[Any, set[str]]]:
    """The entries with the most operators first; among as many, in the order of their keys."""
    by_key = sorted(where.items(), key=lambda entry: entry[0])
    return sorted(by_key, key=lambda entry: len(entry[1]), reverse=True)


def operator_rows(rows: Sequence[dict[str, Any]]) -> list[list[object]]:
    """A row for each operator: how many samples, how many of each kind, and which library calls
    they make."""
    # There was one row for each dtype.
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[row["operator"]].append(row)

    result: list[list[object]] = []
    for name, rows_of_operator in sorted(by_name.items()):
        counts = counted(rows_of_operator)
        calls = []
        for row in rows_of_operator:
            for op in row["extern"]:
                calls.append(f"`{op.removeprefix('aten.').removesuffix('.default')}`")

        kinds = [counts[kind] or "" for kind in KINDS]
        result.append([name, counts.total(), *kinds, ", ".join(dict.fromkeys(calls))])
    return result
