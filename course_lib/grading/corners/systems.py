"""How learning platforms name what was handed in: each name has the student in it, and often the
attempt.

In:  the name of a file or folder of a download. Out: `Signed`, or None where no platform names
     things so.

| platform | a name |
|---|---|
| Canvas | `exampleann_LATE_123_456_01_eager_overhead-1.ipynb` (student, attachment; `-1`: the second attempt) |
| Moodle | `Ann Example_12345_assignsubmission_file_/01_eager_overhead.ipynb`, or the same as one file name |
| Blackboard | `Lesson 1_ann_attempt_2026-11-01-12-00-00_01_eager_overhead.ipynb` |
| Brightspace | `12345-67890 - Ann Example - Nov 1, 2026 1200 PM/01_eager_overhead.ipynb` |

The PyTorch counterpart: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Signed:
    """What a platform's name says; "" for what it does not say.

    `number` tells two students of one name apart; a larger `attempt` is a newer one. `rest`: the
    name that the student's file had."""

    platform: str
    student: str
    number: str
    rest: str
    attempt: tuple[int, ...] = ()
    late: bool = False


@dataclass(frozen=True)
class Platform:
    """How one platform names files: groups `who`, and where there are some `id`, `nr`, `when`,
    `late`, `rest`; `note` in place of `rest` for what was typed into a form."""

    name: str
    pattern: str


RULES = (
    Platform(
        "Moodle",
        # A folder's name ends behind the `_`, a file's goes on.
        r"(?P<who>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext|\w+?)_?(?P<rest>(?<=_).*)?",
    ),
    Platform(
        "Blackboard",
        r".+_(?P<who>[^_]+)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_(?P<rest>.+)|(?P<note>\.\w+))?",
    ),
    Platform(
        "Canvas",
        r"(?P<who>[^_]+)(?:_(?P<late>LATE))?_(?P<id>\d{1,20})_(?P<nr>\d{1,20})_(?P<rest>.+)",
    ),
    # The student's name is a folder's here. Its `rest` is only the date.
    Platform("Brightspace", r"\d+-\d+ - (?P<who>.+?) - (?P<rest>.*\d{4}.*)"),
)


def signed(name: str) -> Signed | None:
    """Who handed this in, by the first platform whose pattern the name has."""
    for platform in RULES:
        if match := re.fullmatch(platform.pattern, name, re.DOTALL):
            return _signed(platform.name, match.groupdict(default=""))
    return None


def _signed(platform: str, groups: dict[str, str]) -> Signed:
    """From the groups of a platform's pattern. Only Canvas and Blackboard tell attempts apart."""
    rest = groups.get("rest", "") or groups.get("note", "")
    attempt: tuple[int, ...] = ()
    if platform == "Canvas":
        # Canvas writes -1, -2, ... behind the name of the second file, the third, ...
        number_of_try = re.search(r"-(\d{1,4})(?=\.\w+$)", rest)
        attempt = (int(number_of_try[1]) if number_of_try else 0, int(groups["nr"]))
        rest = re.sub(r"-\d{1,4}(?=\.\w+$)", "", rest)

    if platform == "Blackboard":
        attempt = tuple(map(int, groups["when"].split("-")))

    return Signed(
        platform,
        groups["who"].strip(),
        groups.get("id", ""),
        rest,
        attempt,
        bool(groups.get("late")),
    )
