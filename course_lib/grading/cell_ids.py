"""The ids of an exercise's cells: names, not places.

In:  a notebook with nbgrader's metadata. Out: the same with an id for each cell that stays when
     cells are put in or moved.

A learner's copy is merged with a newer exercise cell by cell (`merging`), and cells are paired by
these ids. An id that counts cells would pair an answer with the prose that stands in its place
today. So a cell is called

    counting_mode              by its grade id: cells of answers and of checks
    given-FakeMachine          by what it defines first, or by its first line: other code
    exercise-1-1-an-honest-timer   by its heading, or by its first words: prose

A name is given once. It stays when the heading changes later: the name is for pairing, not for
reading. Exercises that were handed out before had ids that count (`cell-07`); `renamed` gives their
cells today's names.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

LONGEST = 48  # letters of a name made here; nbformat allows 64
BY_PLACE = Path(__file__).with_name("ids_by_place.json")

_ALLOWED = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COUNTED = re.compile(r"cell-(\d+)")
# What editors give to a new cell: eight hexadecimal digits, or a UUID. What `reader` gives to a
# cell without: `given-id-3`.
_DRAWN = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?|given-id-\d+(-\d+)?"
)


def give_names(cells: list[Any]) -> None:
    """Set the id of every cell. A name that is there already stays."""
    used_ids = {name for cell in cells if (name := _grade_id(cell))}
    used_names: set[str] = set()
    for cell in cells:
        name = _grade_id(cell) or ""
        # The grade id is free for the first cell that has it, though it is in `used_ids`, which
        # keeps it from all others.
        if not name or name in used_names:
            name = _own_name(cell, used_ids) or first_free(described(cell), used_ids)
        cell["id"] = name
        used_ids.add(name)
        used_names.add(name)


def keep_ids(cells: list[Any]) -> None:
    """For the cells of a lesson: an id stays, also one that counts.

    A cell that an editor put in, or that repeats an id, gets a name."""
    used_ids: set[str] = set()
    unnamed = []
    for cell in cells:
        cell_id = cell.get("id")
        is_counting_id = isinstance(cell_id, str) and _COUNTED.fullmatch(cell_id) is not None
        if (is_counting_id or is_name(cell_id)) and cell_id not in used_ids:
            used_ids.add(cell_id)
        else:
            unnamed.append(cell)

    for cell in unnamed:
        cell["id"] = first_free(described(cell).removeprefix("given-"), used_ids)
        used_ids.add(cell["id"])


def is_name(cell_id: Any) -> bool:
    """Whether somebody chose this id: it does not count cells, and no editor drew it."""
    return (
        isinstance(cell_id, str)
        and _ALLOWED.fullmatch(cell_id) is not None
        and _COUNTED.fullmatch(cell_id) is None
        and _DRAWN.fullmatch(cell_id) is None
    )


def renamed(cells: list[Any]) -> dict[str, str]:
    """Old id → name, for the cells of a notebook made from an exercise with ids that count; nothing
    for another notebook."""
    names = _names_by_place(cells)
    name_of_id: dict[str, str] = {}
    for cell in cells:
        match = _COUNTED.fullmatch(str(cell.get("id", "")))
        if match and int(match[1]) < len(names):
            name_of_id[cell["id"]] = names[int(match[1])]
    return name_of_id


def with_names(nb: Any) -> Any:
    """The same notebook, its counting ids replaced by today's names; the notebook itself where
    there are none."""
    import copy

    new = renamed(nb.cells)
    if not new:
        return nb
    nb = copy.deepcopy(nb)
    for cell in nb.cells:
        cell["id"] = new.get(cell.get("id"), cell.get("id"))
    return nb


def _names_by_place(cells: list[Any]) -> list[str]:
    """The names of the lesson whose answers and checks are in these cells, in the order of the old
    exercise."""
    # The lesson with which they share most names
    names_in_cells = {name for cell in cells if (name := _grade_id(cell))}
    best = max(
        _handed_out().values(),
        key=lambda names: len(names_in_cells.intersection(names)),
        default=[],
    )
    if names_in_cells.intersection(best):
        return best
    return []


@functools.cache
def _handed_out() -> dict[str, list[str]]:
    """Lesson → the names of its cells, in the order that the counting ids had when they were handed
    out."""
    return dict(json.loads(BY_PLACE.read_text(encoding="utf-8")))


def _own_name(cell: Any, taken: set[str]) -> str | None:
    """The id that the cell has, if that is a name and no other cell's."""
    name = cell.get("id")
    if is_name(name) and name not in taken:
        return name
    return None


def first_free(name: str, taken: set[str]) -> str:
    """`name`, or `name-2` where that is taken, and so on."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def described(cell: Any) -> str:
    """A name from what the cell says."""
    if cell["cell_type"] != "code":
        heading = re.search(r"^#{1,6} +(.+)$", cell["source"], flags=re.MULTILINE)
        return _slug(heading[1] if heading else _first_words(cell["source"])) or "text"
    defined = re.search(r"^(?:def|class) +(\w+)", cell["source"], flags=re.MULTILINE)
    if defined and defined[1].isascii():
        return f"given-{defined[1]}"[:LONGEST]
    return f"given-{_slug(_first_words(cell['source']))}".rstrip("-")


def _first_words(source: str) -> str:
    """The first five words of the first line that says something."""
    line = next((line for line in source.splitlines() if re.search(r"\w", line)), "")
    return " ".join(line.split()[:5])


def _slug(words: str) -> str:
    """Words as a name: 'Two [lists](a/b.md)!' is 'two-lists'."""
    without_links = re.sub(r"\([^)]*/[^)]*\)", "", words)  # the address of a link holds a stroke
    slug = re.sub(r"[^a-z0-9_]+", "-", without_links.lower()).strip("-")
    # A name that is cut may end in a dash again.
    return slug[:LONGEST].strip("-")


def _grade_id(cell: Any) -> str | None:
    """The cell's grade id, where that can be an id."""
    nbgrader_metadata = cell["metadata"].get("nbgrader")
    name = nbgrader_metadata.get("grade_id") if isinstance(nbgrader_metadata, dict) else None
    if isinstance(name, str) and _ALLOWED.fullmatch(name):
        return name
    return None
