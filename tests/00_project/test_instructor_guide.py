"""docs/instructor-guide.md: its plans add up, and say what the notebooks say."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/instructor-guide.md").read_text(encoding="utf-8")
PLANS = {"90 minutes": 90, "Half a day": 240, "Day 1": 450, "Day 2": 450}


def section(title: str) -> str:
    """The text under the heading that begins with `title`, to the next heading."""
    return re.split(rf"(?m)^##+ {title}.*$", GUIDE)[1].split("\n#")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return lines[2:]


def markdown(number: str) -> str:
    """All prose of lesson `number`, empty if it is not written."""
    return "\n".join(
        "".join(cell["source"])
        for path in ROOT.glob(f"notebooks/{number}_*.ipynb")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    )


def minutes_said(number: str) -> tuple[int, int | None] | None:
    """What the notebook's own box says: its minutes, and its exercises'."""
    said = re.search(r"^\| \*{0,2}Minutes\*{0,2} \|(.*)\|$", markdown(number), re.MULTILINE)
    if not said:
        return None
    lesson = int(re.search(r"\d+", said[1])[0])
    exercises = re.search(r"(\d+)(?= more)", said[1])
    return lesson, int(exercises[0]) if exercises else None


def exercise_minutes(number: str) -> dict[str, int]:
    """'3.1' → 10, from the lesson's table of exercises: the column called minutes."""
    table = re.search(
        r"(?ms)^\|[^\n]*\| minutes \|[^\n]*\n\|[-| ]+\n(?:\|[^\n]*\n?)+", markdown(number)
    )
    if not table:
        return {}
    head, _, *lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table[0].strip().splitlines()
    ]
    return {line[0]: int(re.search(r"\d+", line[head.index("minutes")])[0]) for line in lines}


LESSONS = {line[0][:2]: line for line in rows(section("The lessons in minutes"))}
WRITTEN = [number for number in LESSONS if markdown(number)]


def test_every_lesson_is_in_the_table_and_has_a_section():
    assert list(LESSONS) == [f"{n:02}" for n in range(17)]
    assert re.findall(r"(?m)^### (\d\d) · ", GUIDE) == list(LESSONS)


@pytest.mark.parametrize("number", WRITTEN)
def test_a_lessons_minutes_are_what_its_notebook_says(number):
    lesson, exercises = minutes_said(number)
    assert int(LESSONS[number][1]) == lesson
    if LESSONS[number][2] != "–":  # not said in the guide yet
        assert int(LESSONS[number][2]) == exercises


@pytest.mark.parametrize("number", WRITTEN)
def test_the_minutes_of_a_lessons_exercises_add_up_to_what_its_box_says(number):
    each, (_, together) = exercise_minutes(number), minutes_said(number)
    if together is not None:
        assert sum(each.values()) == together


def test_the_sum_of_all_lessons_is_right():
    assert f"The whole course is {sum(int(line[1]) for line in LESSONS.values())} minutes" in GUIDE


@pytest.mark.parametrize("number", WRITTEN)
def test_the_readme_says_the_same_minutes(number):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lesson, exercises = LESSONS[number][1:3]
    said = lesson if exercises == "–" else f"{lesson} + {exercises}"
    assert re.search(rf"(?m)^\| \*\*{number} [^*]+\*\* \| {re.escape(said)} \|", readme)


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_adds_up_and_each_part_takes_its_share_of_the_lesson(plan):
    lines = rows(section(plan))
    assert sum(int(minutes) for minutes, *_ in lines) == PLANS[plan]
    for minutes, number, part, _ in lines:
        if part == "all" or "/" in part:
            share = Fraction(1 if part == "all" else part)
            assert int(minutes) == share * int(LESSONS[number][1]), (number, part)
        elif number:  # an exercise
            assert part.startswith(f"{int(number)}.")
            assert int(minutes) == exercise_minutes(number)[part], part


@pytest.mark.parametrize("number", WRITTEN)
def test_what_is_to_be_shown_is_a_heading_of_the_notebook(number):
    about = re.split(rf"(?m)^### {number} · .*$", GUIDE)[1].split("\n#")[0]
    shown = re.search(r"\*\*Show:\*\* (.*)", about)[1]
    headings = re.findall(r"(?m)^#+ (.*)$", markdown(number))
    assert [
        name for name in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", shown) if name not in headings
    ] == []


def test_every_lesson_says_what_to_show_what_is_misunderstood_and_where_to_catch_up():
    for number in LESSONS:
        about = re.split(rf"(?m)^### {number} · .*$", GUIDE)[1].split("\n#")[0]
        assert about.count("\n- ") >= 2, number
        for part in ("**Show:**", "**Usual misunderstandings**", "**If they are behind:**"):
            assert part in about, (number, part)
