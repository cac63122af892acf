"""tests/coverage.toml: what the course must teach, and where it does. Each complaint is one sentence."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "tests/coverage.toml").read_text(encoding="utf-8"))
LESSONS = {f"{number:02}" for number in range(17)}
TEXTS = {"1", "2", "3", "4", "5"}
SHORTEST, MOST_CELLS = 20, 2
AFTER = ("## Exercises", "## Recap")  # where questions stand


def plain(text: str) -> str:
    """The words of a cell: it does not matter where a line ends."""
    return re.sub(r"\s+", " ", text)


def sources_of(notebook: Path) -> list[str]:
    return [
        plain("".join(cell["source"]))
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    ]


def cells_of(number: str) -> tuple[list[str], list[str]]:
    """The cells of lesson `number` and its exercise; and of these the ones where a question may stand."""
    told, asked = [], []
    for path in ROOT.glob(f"notebooks/{number}_*.ipynb"):
        sources = sources_of(path)
        start = next(
            (i for i, source in enumerate(sources) if any(heading in source for heading in AFTER)),
            len(sources),
        )
        told, asked = sources, sources[start:]
    for path in ROOT.glob(f"exercises/{number}_*/*.ipynb"):
        told, asked = told + sources_of(path), asked + sources_of(path)
    return told, asked


def written() -> set[str]:
    return {path.name[:2] for path in ROOT.glob("notebooks/[0-9][0-9]_*.ipynb")}


def texts_of(point: dict[str, Any]) -> set[str]:
    return set(re.findall(r"(?:^|; )([1-5]) ", point["source"]))


def complaints(table: dict[str, Any], cells: dict[str, tuple[list[str], list[str]]]) -> list[str]:
    """What is wrong with `table`, if `cells` are those of the lessons that are written."""
    said, served = [], dict[tuple[str, str], str]()
    waiting = set(table["in_progress"])
    for point in table["point"]:
        name, where = point["name"], point.get("in", {})
        if not where:
            said.append(f"'{name}' belongs to no lesson: write in.NN")
        for number, quote in where.items():
            said += [
                f"lesson {number}: {what}" for what in _about(point, number, quote, cells, waiting)
            ]
            if quote and (other := served.setdefault((number, plain(quote)), name)) != name:
                said.append(
                    f"lesson {number}: '{name}' and '{other}' have one quote: each point needs its own"
                )
    for number in sorted(waiting):
        quotes = [point["in"][number] for point in table["point"] if number in point.get("in", {})]
        if number in cells and all(quotes):
            said.append(f"lesson {number} has all its quotes: take it out of in_progress")
    return said


def _about(
    point: dict[str, Any],
    number: str,
    quote: str,
    cells: dict[str, tuple[list[str], list[str]]],
    waiting: set[str],
) -> list[str]:
    name = point["name"]
    if number not in LESSONS:
        return [f"there is no such lesson ('{name}')"]
    if not quote:
        return (
            [f"'{name}' has no quote: teach it, and name the words"]
            if number in cells and number not in waiting
            else []
        )
    if number not in cells:
        return [f"'{name}' has a quote, but the notebook is not there"]
    words = plain(quote)
    told, asked = cells[number]
    found = sum(words in cell for cell in told)
    if len(words) < SHORTEST:
        return [f"the quote for '{name}' is too short to mean something: '{words}'"]
    if not found:
        return [f"'{name}' is not covered: no cell says '{words}'"]
    if found > MOST_CELLS:
        return [
            f"the quote for '{name}' stands in {found} cells: choose one that says where: '{words}'"
        ]
    if point.get("question") and not any(words in cell for cell in asked):
        return [
            f"'{name}' is a question and must stand in an exercise, or under Exercises or Recap: '{words}'"
        ]
    return []


def test_every_point_of_a_written_lesson_is_covered():
    assert complaints(TABLE, {number: cells_of(number) for number in sorted(written())}) == []


def test_every_point_says_what_it_is_and_where_from():
    names = [point["name"] for point in TABLE["point"]]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"two points of one name: {twice}"
    for point in TABLE["point"]:
        known = texts_of(point) or point["source"].startswith("course plan")
        assert known, (
            f"'{point['name']}': a source begins with the number of a text, 1 to 5: {point['source']!r}"
        )
        unknown = set(point) - {"name", "source", "question", "in"}
        assert not unknown, f"'{point['name']}' has a key that nobody reads: {unknown}"


def test_every_lesson_and_every_text_has_points():
    lessons = {number for point in TABLE["point"] for number in point["in"]}
    assert lessons == LESSONS, f"lessons without a point: {sorted(LESSONS - lessons)}"
    texts = {text for point in TABLE["point"] for text in texts_of(point)}
    assert texts == TEXTS, f"texts without a point: {sorted(TEXTS - texts)}"


# ---- what is new in torch.compiler and torch._inductor.config ----------------------------------------------------------

NEW = TABLE["new"]
PREFIX = "torch.compiler."


@pytest.mark.parametrize("entry", NEW, ids=lambda entry: entry["name"])
def test_a_new_name_has_a_lesson_that_says_it_or_a_reason_for_none(entry):
    if "lesson" not in entry:
        assert len(entry["reason"]) > SHORTEST
        return
    last = entry["name"].removeprefix(PREFIX).split(".")[-1]
    told, _ = cells_of(entry["lesson"])
    assert any(last in cell for cell in told), f"lesson {entry['lesson']} never says {last}"


def test_the_table_of_new_names_knows_what_the_installed_torch_has():
    """On a newer torch than 2.13 each name is there from its version on, and not before."""
    import torch._inductor.config as inductor
    import torch.compiler

    version = tuple(map(int, torch.__version__.split(".")[:2]))
    for entry in NEW:
        place, path = inductor, entry["name"].split(".")
        if entry["name"].startswith(PREFIX):
            place, path = torch.compiler, path[2:]
        for part in path:
            place = getattr(place, part, None)
        since = tuple(map(int, entry["since"].split(".")))
        exists = place is not None or is_setting(entry["name"], inductor)
        assert exists or version < since, f"{entry['name']} is not in torch {torch.__version__}"
        assert not exists or version >= since, (
            f"{entry['name']} is in torch {torch.__version__} already"
        )


def is_setting(name: str, inductor: Any) -> bool:
    """A setting may be None, and one that is private is no setting."""
    return name in inductor._config or hasattr(inductor, name)


def test_no_public_name_of_torch_compiler_is_forgotten():
    import torch.compiler

    noted = {
        entry["name"].removeprefix(PREFIX) for entry in NEW if entry["name"].startswith(PREFIX)
    }
    new = set(torch.compiler.__all__) - OF_2_13
    assert new <= noted, f"tests/coverage.toml does not know {sorted(new - noted)}"


OF_2_13 = {
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe", "list_backends", "load_cache_artifacts", "load_compiled_function", "nested_compile_region",
    "reset", "save_cache_artifacts", "set_default_backend", "set_enable_guard_collectives", "set_stance",
    "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe", "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
}  # fmt: skip


# ---- the test is tested: each gap, opened on purpose -------------------------------------------------------------------

QUOTE = "a break costs every fusion across it"
LESSON_03 = [
    "A cell says: a break costs\nevery fusion across it.",
    "## Recap\n1. Why does a break cost speed, and no more?",
]


def said_of(
    *points: dict[str, Any], in_progress: tuple[str, ...] = (), cells: list[str] = LESSON_03
) -> str:
    written_cells = {
        "03": (
            [plain(cell) for cell in cells],
            [plain(cell) for cell in cells if "## Recap" in cell],
        )
    }
    return " | ".join(
        complaints({"in_progress": list(in_progress), "point": list(points)}, written_cells)
    )


def point(quote: str = QUOTE, number: str = "03", **more: Any) -> dict[str, Any]:
    return {"name": "what a break costs", "source": "4 breaks", "in": {number: quote}} | more


def test_a_covered_point_and_a_later_lesson_have_nothing_wrong():
    assert (
        said_of(point(), point("", "09"), point("", "03", name="later"), in_progress=("03",)) == ""
    )


@pytest.mark.parametrize(
    "bad, told",
    [
        (point(""), "lesson 03: 'what a break costs' has no quote"),
        (
            point("a break costs every kernel"),
            "is not covered: no cell says 'a break costs every kernel'",
        ),
        (point("fusion"), "too short"),
        (point(question=True), "is a question and must stand in"),
        (point(number="17"), "there is no such lesson"),
        (point(number="09"), "the notebook is not there"),
        ({"name": "lost", "source": "1", "in": {}}, "'lost' belongs to no lesson"),
    ],
)
def test_each_gap_is_seen(bad, told):
    assert told in said_of(bad)


def test_a_quote_that_stands_everywhere_or_serves_twice_is_seen():
    assert "stands in 3 cells" in said_of(point(), cells=[QUOTE] * 3)
    assert "each point needs its own" in said_of(point(), point(name="another"))


def test_a_lesson_that_is_done_does_not_stay_in_progress():
    assert "take it out of in_progress" in said_of(point(), in_progress=("03",))
