"""Make `docs/behaviours.md` from the answers that are stored for each version of torch.

    python tests/tools/behaviours/page.py            write the page
    python tests/tools/behaviours/page.py --check    exit status 1 if the page is another

In:  `answers/torch-*.json` (see run.py), the programs, and what is said about them in `notes.py`.
Out: the page. Nothing is run; torch is loaded, because the programs name it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from notes import BECAUSE, WHY
from run import ANSWERS, ROOT, SAME, load_programs

PAGE = ROOT / "docs" / "behaviours.md"
USUAL = "2.13"
"""The version of torch that the long table shows: the one that the course installs."""
WIDTH = 150
"""Longer answers are cut in the page; the files have them whole."""


@dataclass(frozen=True)
class Cell:
    """One program's answer by one compiler with one torch: graphs, and the values of its calls."""

    graphs: list[int] | None
    values: list[str]
    eager: list[str]

    @property
    def wrong(self) -> bool:
        """Other values than eager, where eager has any."""
        return compared(self.values) != compared(self.eager) and not nothing_to_compare(self.eager)

    def __str__(self) -> str:
        told = [] if self.graphs is None else ["graphs " + " ".join(map(str, self.graphs))]
        if self.values != self.eager:
            told.append(other_values(self.values, self.eager))
        return "; ".join(told) or "as eager"


def compared(values: list[str]) -> list[str]:
    """Without what says whether `fullgraph=True` takes it: that is no value."""
    return [value for value in values if not value.startswith("full graph:")]


def nothing_to_compare(values: list[str]) -> bool:
    return values == ["nothing to compare"]


def other_values(values: list[str], eager: list[str]) -> str:
    """The values that are not eager's; all of them where the two lists cannot be compared one by one."""
    if len(values) != len(eager):
        return cut(", ".join(values))
    places = [n for n, value in enumerate(values) if value != eager[n]]
    return values_at(places, values)


def values_at(places: list[int], values: list[str]) -> str:
    """Some of a program's values, each with its number."""
    if len(values) == 1:
        return cut(values[0])
    # A part with a name of its own ("relu: [...]") needs no number
    told = [values[n] if ": " in values[n] else f"value {n + 1}: {values[n]}" for n in places]
    return cut(", ".join(told))


def cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def in_a_table(text: str) -> str:
    return (
        text.replace("|", "\\|")
        .replace("\n", " ")
        .replace("*", "\\*")
        .replace("_", "\\_")
        .replace("<", "&lt;")
    )


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Version:
    """What one file of answers holds."""

    name: str
    torch: str
    python: str
    answers: dict[str, Any]

    def cell(self, program: str, engine: str) -> Cell | None:
        """The answer of one program, or None where it was not played."""
        entry = self.answers.get(program, {})
        if engine not in entry:
            return None
        values = entry[engine]["values"]
        return Cell(
            entry[engine]["graphs"], entry["eager"] if values == SAME else values, entry["eager"]
        )

    def eager(self, program: str) -> list[str] | None:
        return self.answers.get(program, {}).get("eager")


def versions() -> list[Version]:
    import json

    found = []
    for path in sorted(ANSWERS.glob("torch-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        name = path.stem.removeprefix("torch-")
        found.append(Version(name, record["torch"], record["python"], record["answers"]))
    return found


# ---- the parts of the page ------------------------------------------------------------------------------------------


HEAD = """# What `torch.compile` really does

{count} small programs, by lesson, with what they gave in eager, under `torch.compile` and under `cl.compile`. A guess from memory is
often wrong here, and the answer may change with the version. The page is made from data: do not edit it.

| to | type |
|---|---|
| see a program | `tests/tools/behaviours/*.py`: the function of that name |
| run one on the installed torch | `python tests/tools/behaviours/run.py NAME` |
| run all and keep the answers of this torch | `python tests/tools/behaviours/run.py` |
| make this page anew | `python tests/tools/behaviours/page.py` |

How to read an answer: *graphs 1 2 2* is the number of graphs compiled in all, after the first, second and third call. Behind it
stand the values that are not eager's. Values are compared by text with five digits, so rounding does not count, unless the
program asks for bits. Each program ran in a process of its own, on a CPU, with one thread. *Decided in* names the file of torch
where the reason can be read. *Not run*: on that machine TorchInductor could not build C++ with this torch, or the program is newer
than the run. The Python is not the same in each run: where it decides and not torch, the last column says so.

| torch | Python | programs |
|---|---|---|
{versions}
"""


def head(programs: dict[str, Any], known: list[Version]) -> str:
    rows = [row(v.torch, v.python, str(len(v.answers))) for v in known]
    return HEAD.format(count=len(programs), versions="\n".join(rows))


def link(name: str, program: Any) -> str:
    return f"{in_a_table_but_code(program.says)} (`{name}`)"


def in_a_table_but_code(text: str) -> str:
    """Escape outside of backquotes; within them only the bar ends a cell."""
    parts = text.split("`")
    parts[::2] = [in_a_table(part) for part in parts[::2]]
    parts[1::2] = [part.replace("|", "\\|") for part in parts[1::2]]
    return "`".join(parts)


def differences(programs: dict[str, Any], known: list[Version]) -> str:
    """Programs to which `torch.compile` gives other values than eager, or other answers in two versions of torch."""
    lines = [
        "## Where `torch.compile` differs from eager, or between versions of torch",
        "",
        "One row a program: eager's values where some version of `torch.compile` has others, then what each version gives."
        " Where nothing stands under *eager*, only the graphs differ, or eager has nothing to compare.",
        "",
        row("lesson", "program", "eager", *(v.name for v in known), "decided in", "why"),
        row(*["---"] * (len(known) + 5)),
    ]
    for name, program in programs.items():
        cells = [v.cell(name, "torch") for v in known]
        if not differs(cells):
            continue
        texts = ["not run" if cell is None else in_a_table(str(cell)) for cell in cells]
        lines.append(
            row(
                program.lesson,
                link(name, program),
                in_a_table(right_values(cells)),
                *repeated(texts),
                source(program),
                WHY.get(name, ""),
            )
        )
    return "\n".join(lines)


def differs(cells: list[Cell | None]) -> bool:
    """Two versions answer otherwise, or one is not eager's."""
    played = [cell for cell in cells if cell is not None]
    return len({str(cell) for cell in played}) > 1 or any(cell.wrong for cell in played)


def right_values(cells: list[Cell | None]) -> str:
    """Eager's values that stand against another value in one of the cells; "" if there are none."""
    wrong = [cell for cell in cells if cell is not None and cell.wrong]
    if not wrong:
        return ""
    eager = wrong[0].eager
    if any(len(cell.values) != len(eager) for cell in wrong):
        return cut(", ".join(eager))
    places = [n for n, right in enumerate(eager) if any(cell.values[n] != right for cell in wrong)]
    return values_at(places, eager)


def repeated(texts: list[str]) -> list[str]:
    """What is the same as one column to the left is told by a sign."""
    return [text if n == 0 or text != texts[n - 1] else "←" for n, text in enumerate(texts)]


def source(program: Any) -> str:
    return f"`{program.where}`" if program.where else ""


@dataclass(frozen=True)
class Wrong:
    """A program with another value than eager's, and the versions of torch in which it has this very one."""

    name: str
    program: Any
    eager: str
    got: str
    versions: str


def wrong_answers_of_the_course(programs: dict[str, Any], known: list[Version]) -> Iterator[Wrong]:
    """Where `course_lib` has another value than eager."""
    for name, program in programs.items():
        cells = {v.name: v.cell(name, "course") for v in known}
        wrong = {v: cell for v, cell in cells.items() if cell is not None and cell.wrong}
        for values, group in groupby(wrong.items(), key=lambda item: item[1].values):
            found = list(group)
            cell = found[0][1]
            yield Wrong(
                name,
                program,
                eager=in_a_table(other_values(cell.eager, values)),
                got=in_a_table(other_values(values, cell.eager)),
                versions=", ".join(version for version, _ in found),
            )


def course_beside_eager(programs: dict[str, Any], known: list[Version]) -> str:
    """Programs to which `course_lib` gives other values than eager, with the reason."""
    lines = [
        "## Where `course_lib` gives another value than eager",
        "",
        "Each is a fault, or has a reason.",
        "",
        row("lesson", "program", "eager", "`course_lib`", "with torch", "reason"),
        row(*["---"] * 6),
    ]
    for wrong in wrong_answers_of_the_course(programs, known):
        lines.append(
            row(
                wrong.program.lesson,
                link(wrong.name, wrong.program),
                wrong.eager,
                wrong.got,
                wrong.versions,
                BECAUSE.get(wrong.name, ""),
            )
        )
    return "\n".join(lines)


def without_a_reason(programs: dict[str, Any], known: list[Version]) -> list[str]:
    """Programs to which `course_lib` gives another value than eager while notes.py says nothing of it."""
    cells = {name: [v.cell(name, "course") for v in known] for name in programs}
    wrong = [
        name
        for name, found in cells.items()
        if any(cell is not None and cell.wrong for cell in found)
    ]
    return [name for name in wrong if name not in BECAUSE]


def better_than_torch(programs: dict[str, Any], known: list[Version]) -> str:
    """Where `torch.compile` differs from eager and `course_lib` does not."""
    usual = next(v for v in known if v.name == USUAL)
    names = []
    for name in programs:
        theirs, ours = usual.cell(name, "torch"), usual.cell(name, "course")
        if theirs is not None and ours is not None and theirs.wrong and not ours.wrong:
            names.append(f"`{name}`")
    said = f"With torch {USUAL}, `torch.compile` differs from eager in these programs and `cl.compile` does not"
    return f"## Where `course_lib` is eager's and torch is not\n\n{said} ({len(names)}): {', '.join(names)}."


def by_lesson(programs: dict[str, Any], known: list[Version]) -> str:
    """All programs with the answers of the usual torch."""
    usual = next(v for v in known if v.name == USUAL)
    lines = [f"## All programs, with torch {USUAL}"]
    for lesson in sorted({program.lesson for program in programs.values()}):
        lines += [
            "",
            f"### Lesson {lesson}",
            "",
            row("program", "`torch.compile`", "`cl.compile`"),
            row(*["---"] * 3),
        ]
        for name, program in programs.items():
            if program.lesson == lesson:
                cells = [usual.cell(name, engine) for engine in ("torch", "course")]
                texts = ["" if cell is None else in_a_table(str(cell)) for cell in cells]
                lines.append(row(link(name, program), *repeated(texts)))
    return "\n".join(lines)


def page() -> str:
    programs, known = load_programs(), versions()
    parts = [part(programs, known) for part in PARTS]
    return "\n\n".join(part.strip() for part in parts) + "\n"


PARTS = (head, differences, course_beside_eager, better_than_torch, by_lesson)


def main(arguments: list[str]) -> int:
    made = page()
    missing = without_a_reason(load_programs(), versions())
    if missing:
        print("course_lib differs from eager, and notes.py has no reason: " + ", ".join(missing))
    if arguments == ["--check"]:
        if not missing and PAGE.read_text(encoding="utf-8") == made:
            return 0
        print(
            "docs/behaviours.md does not fit the data. Make it anew: python tests/tools/behaviours/page.py"
        )
        return 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
