"""Programs of packages that nobody here wrote: right, as few graphs as torch.compile, and how fast?

    python tests/tools/wild                         installs, tries every program that has no row yet, writes the table
    python tests/tools/wild gpytorch_exact timm_resnet --again
    python tests/tools/wild --package kornia --show
    python tests/tools/wild --table                 writes the table from the rows that are there

In:  the programs in `programs/`: random weights, tiny configurations. Packages are installed into `--folder`, not here.
Out: a line of JSON a program in `--folder`, and docs/measurements/wild.md. It is run by hand, not in CI.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from environment import Environment
from table import PROGRAMS, Program, load
from writing import page

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "measurements" / "wild.md"
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="programs; none: all")
    parser.add_argument(
        "--package", action="append", default=[], help="only this package's programs"
    )
    parser.add_argument("--folder", type=Path, default=Path("/tmp/wild/sweep"))
    parser.add_argument("--again", action="store_true", help="also those that have a row")
    parser.add_argument("--torch", action="store_true", help="time torch.compile, too")
    parser.add_argument("--capture", action="store_true", help="capture alone, no kernels")
    parser.add_argument("--limit", type=int, default=240, help="seconds for one program")
    parser.add_argument("--show", action="store_true", help="print rows whole")
    parser.add_argument("--table", action="store_true", help="only write the table")
    options = parser.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    rows = read(options.folder / "rows.jsonl")
    if not options.table:
        wanted = [one for one in chosen(options) if options.again or one.name not in rows]
        for row in rows_of(wanted, options):
            rows[row["name"]] = row
            with open(options.folder / "rows.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row, indent=1) if options.show else line(row), flush=True)

    if options.table or not (options.names or options.package):
        PAGE.write_text(page(rows, load()))


def chosen(options: argparse.Namespace) -> list[Program]:
    """The programs that the command names."""
    programs = list(load().values())
    unknown = set(options.names) - set(PROGRAMS)
    if unknown:
        raise SystemExit(f"no program is called {', '.join(sorted(unknown))}")
    if options.names:
        programs = [one for one in programs if one.name in options.names]
    if options.package:
        programs = [one for one in programs if one.packages[0] in options.package]
    return programs


def rows_of(programs: list[Program], options: argparse.Namespace) -> Iterator[Row]:
    """Install what the programs need, and try them one after the other."""
    environment = Environment(options.folder / "env")
    environment.make()
    ready = []
    for program in programs:
        if complaint := environment.install(program.packages):
            about = {"name": program.name, "package": program.packages[0]}
            yield about | {"program": f"not installed: {complaint}"}
        else:
            ready.append(program.name)
    if not ready:
        return

    flags = [f"--{flag}" for flag in ("torch", "capture") if getattr(options, flag)]
    command = [str(environment.python), str(HERE / "trial.py"), *ready, *flags]
    quiet = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [*command, "--limit", str(options.limit)], stdout=subprocess.PIPE, text=True, env=quiet
    ) as running:
        for text in running.stdout or ():
            yield json.loads(text)


def line(row: Row) -> str:
    """A row in short."""
    counts = [row.get(key, {}).get("graphs", "?") for key in ("ours", "torch")]
    problem = next((row[key] for key in ("program", "died", "wrong", "limit") if row.get(key)), "")
    return f"{row['name']:36} graphs {counts[0]}/{counts[1]}  {problem or 'right'}"


def read(path: Path) -> dict[str, Row]:
    """The newest row of each program."""
    if not path.exists():
        return {}
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    return {row["name"]: row for row in rows}


if __name__ == "__main__":
    main()
