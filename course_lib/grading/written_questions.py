"""Questions that are answered in sentences and marked by hand: notebooks for nbgrader's form
grader.

In:  `docs/written-questions.md`, and the solution notebooks. Out: copies of those with the lesson's
questions at their end. `python -m course_lib.grading.written_questions FOLDER [NN ...]` writes
`FOLDER/NN_name/NN_name.ipynb`.

The notebooks of the course stay as they are. PyTorch has no counterpart.
"""

from __future__ import annotations

import argparse
import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat.v4 import new_markdown_cell

from .notebooks import Notebook, read, to_text

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "written-questions.md"
HEADING = re.compile(
    r"^## (?P<name>(?P<lesson>\d+)\.W\d) (?P<title>.+) \(lesson \d\d, (?P<points>\d+) points\)$",
    re.M,
)


@dataclass(frozen=True)
class Question:
    """name: '4.W1'. text: what is asked. rubric: a table, whose first column has the points of each
    line."""

    name: str
    lesson: int
    title: str
    points: int
    text: str
    rubric: str

    @property
    def lines(self) -> list[int]:
        """The points of each line of the rubric."""
        return [int(points) for points in re.findall(r"^\| (\d+) \|", self.rubric, re.M)]


def questions_in(document: str) -> list[Question]:
    """The questions of the document, in its order."""
    found = []
    headings = list(HEADING.finditer(document))
    for number, heading in enumerate(headings):
        following = headings[number + 1 :]
        end = following[0].start() if following else len(document)
        text, table, rubric = document[heading.end() : end].partition("| points |")
        found.append(
            Question(
                name=heading["name"],
                lesson=int(heading["lesson"]),
                title=heading["title"],
                points=int(heading["points"]),
                text=re.sub(r"^> ?", "", text.strip(), flags=re.M),
                rubric=(table + rubric).strip(),
            )
        )
    return found


def with_questions(nb: Notebook, questions: Sequence[Question]) -> Notebook:
    """A copy of `nb` with two cells for each question: what is asked, and where it is answered."""
    made = copy.deepcopy(nb)
    for question in questions:
        ident = question.name.replace(".", "-").lower()
        asked = new_markdown_cell(
            f"## {question.name} {question.title} ({question.points} points)\n\n{question.text}",
            id=f"asked-{ident}",
            metadata=_metadata(f"asked-{ident}", locked=True),
        )
        # Its whole source is the solution: nbgrader replaces it before a student gets the notebook.
        answer = new_markdown_cell(
            question.rubric,
            id=f"written-{ident}",
            metadata=_metadata(f"written-{ident}", points=question.points),
        )
        made.cells += [asked, answer]
    return made


def _metadata(name: str, points: int | None = None, locked: bool = False) -> dict[str, Any]:
    """What nbgrader reads in a cell: one with points is answered by the student and marked by
    hand."""
    graded = points is not None
    about = {
        "schema_version": 3,
        "cell_type": "markdown",
        "grade_id": name,
        "grade": graded,
        "solution": graded,
        "locked": locked,
        "task": False,
    }
    return {"nbgrader": about | ({"points": points} if graded else {})}


def write(folder: Path, lessons: Sequence[int] = (), root: Path = ROOT) -> list[Path]:
    """Write the notebooks with questions (of these lessons; else all that have some).

    The paths come back."""
    questions = questions_in(DOCUMENT.read_text(encoding="utf-8"))
    paths = []
    for source in sorted(root.glob("solutions/*/*.ipynb")):
        lesson = int(source.stem[:2])
        own = [question for question in questions if question.lesson == lesson]
        if own and (not lessons or lesson in lessons):
            path = folder / source.stem / source.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(to_text(with_questions(read(source), own)), encoding="utf-8")
            paths.append(path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to write, nbgrader's `source`")
    parser.add_argument("lessons", nargs="*", type=int, help="numbers (default: all)")
    args = parser.parse_args()
    paths = write(args.folder, args.lessons)
    print(f"{len(paths)} notebooks in {args.folder}")


if __name__ == "__main__":
    main()
