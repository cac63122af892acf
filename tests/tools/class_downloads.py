"""Downloads of a class as Canvas and Moodle give them, made from the course's own solutions.

    python tests/tools/class_downloads.py FOLDER [--students 10] [--lessons 1 2 3]

Out: `FOLDER/canvas.zip` (flat files; late ones, second attempts, a zip, a file without its notebook) and `FOLDER/moodle/` (a folder
for each student, leftovers of a Mac, two students of one name, a copy that a browser made, an empty file). Each third
student left an answer out. `expected.json` says what each must have: points, or the words of a reason.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from course_lib.grading.notebooks import (  # noqa: E402
    Lesson,
    Notebook,
    find_lesson,
    graded_cells,
    grading_metadata,
    is_solution,
    read,
    to_text,
)

NAMES = (
    "Zoë Müller", "José Ñúñez", "Ann Example", "Łukasz Żak", "王 小明", "Bo Ö", "Anna-Lena Weiß", "Éloïse Dœ",
    "Ольга Иванова", "D'Arcy O'Neil",
)  # fmt: skip


def answered(lesson: Lesson, without: int = 0) -> Notebook:
    """The exercise with the solution's answers, but for the last `without`."""
    nb = read(lesson.exercise)
    answers = {
        grading_metadata(cell)["grade_id"]: cell.source
        for cell in read(lesson.solution).cells
        if is_solution(cell)
    }
    places = [cell for cell in nb.cells if is_solution(cell)]
    for cell in places[: len(places) - without]:
        text = answers[grading_metadata(cell)["grade_id"]]
        cell.source = re.sub(r"(?m)^ *### (BEGIN|END) SOLUTION\n?", "", text)
    return nb


def points(lesson: Lesson) -> float:
    return sum(cell.points for cell in graded_cells(read(lesson.solution)))


def last_points(lesson: Lesson) -> float:
    """What the exercise of the last answer is worth, if it is the last cell of checks."""
    return graded_cells(read(lesson.solution))[-1].points


def name_of(number: int) -> str:
    name = NAMES[number % len(NAMES)]
    return name if number < len(NAMES) else f"{name} {number // len(NAMES) + 1}"


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def canvas(lessons: list[Lesson], students: int, path: Path) -> dict[str, dict[str, float]]:
    """Flat files `lastfirst_LATE_user_attachment_name-1.ipynb` in a zip."""
    files: dict[str, bytes] = {}
    expected: dict[str, dict[str, float]] = {}
    for number in range(students):
        who = "".join(filter(str.isalnum, "".join(reversed(name_of(number).lower().split()))))
        late = "_LATE" if number % 4 == 1 else ""
        for lesson in lessons:
            blank, full = read(lesson.exercise), answered(lesson, without=number % 3 == 2)
            start = f"{who}{late}_{7000 + number}"
            if number % 5 == 0:  # handed in twice: the blank one first
                files[f"{start}_{100 + number}_{lesson.name}.ipynb"] = to_text(blank).encode()
                files[f"{start}_{900 + number}_{lesson.name}-1.ipynb"] = to_text(full).encode()
            elif number % 5 == 1:
                data = zipped(
                    {f"work/{lesson.name}.ipynb": to_text(full).encode(), "__MACOSX/._x": b""}
                )
                files[f"{start}_{900 + number}_{lesson.name}.zip"] = data
            else:
                files[f"{start}_{900 + number}_{lesson.name}.ipynb"] = to_text(full).encode()
            lost = last_points(lesson) if number % 3 == 2 else 0
            expected.setdefault(who, {})[lesson.name] = points(lesson) - lost
    files["forgotten_7999_999_report.pdf"] = b"%PDF-1.4"
    path.write_bytes(zipped(files))
    return expected


def moodle(lessons: list[Lesson], students: int, folder: Path) -> dict[str, dict[str, float]]:
    """A folder `Name Surname_12345_assignsubmission_file_` for each student and lesson."""
    expected: dict[str, dict[str, float]] = {}
    for number in range(students):
        for place, lesson in enumerate(lessons):
            name = name_of(number)
            full = to_text(answered(lesson, without=number % 3 == 2)).encode()
            there = (
                folder
                / lesson.name
                / f"{name}_{5000 + 100 * place + number}_assignsubmission_file_"
            )
            there.mkdir(parents=True)
            copy_of = f"{lesson.name} (1).ipynb" if number % 4 == 0 else f"{lesson.name}.ipynb"
            data = b"\xef\xbb\xbf" + full if number % 4 == 1 else full
            (there / copy_of).write_bytes(data)
            (there / ".DS_Store").write_bytes(b"\0")
            lost = last_points(lesson) if number % 3 == 2 else 0
            expected.setdefault(name, {})[lesson.name] = points(lesson) - lost
    empty = folder / lessons[0].name / "Empty File_5998_assignsubmission_file_"
    empty.mkdir()
    (empty / f"{lessons[0].name}.ipynb").write_bytes(b"")
    expected["Empty File"] = {lessons[0].name: 0}
    (folder / "__MACOSX").mkdir()
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=10)
    parser.add_argument("--lessons", nargs="+", default=["1", "2", "3"])
    args = parser.parse_args()
    lessons = [find_lesson(ROOT, wanted) for wanted in args.lessons]
    args.folder.mkdir(parents=True)
    expected = {
        "canvas": canvas(lessons, args.students, args.folder / "canvas.zip"),
        "moodle": moodle(lessons, args.students, args.folder / "moodle"),
    }
    (args.folder / "expected.json").write_text(json.dumps(expected, indent=1))
    print(f"{args.folder}: canvas.zip, moodle/, expected.json")


if __name__ == "__main__":
    main()
