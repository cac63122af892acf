"""docs/measurements/statements.md: each statement about torch names a place in torch's source. The place must be there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/measurements/statements.md"
INSTALLED = ".".join(version("torch").split(".")[:2])
COLUMNS = {"2.13": 2, "2.15": 3}
"""Which column of a row tells about which torch."""

_CELLS = re.compile(r"(?<!\\)\|")
_PLACE = re.compile(r"`([\w./]+\.\w+)`: (`+) ?(.*?) ?\2$")


@dataclass(frozen=True)
class Row:
    statement: str
    file: str
    text: str
    verdicts: tuple[str, ...]


def rows() -> list[Row]:
    """The rows that name a file below `torch/`; the others were run, or are about Triton."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in _CELLS.split(line)[1:-1]]
        place = _PLACE.fullmatch(cells[1]) if len(cells) == 4 else None
        if place is not None:
            text = place[3].replace("\\|", "|")
            found.append(Row(cells[0], place[1], text, tuple(cells)))
    return found


def complaint(row: Row, torch_folder: Path, column: int) -> str | None:
    """One sentence where the source and the row's verdict differ."""
    file = torch_folder / row.file
    is_there = file.is_file() and row.text in file.read_text(encoding="utf-8", errors="replace")
    if is_there == (row.verdicts[column] != "not there"):
        return None
    verb = "is" if is_there else "is not"
    return f"{row.statement}: {row.text!r} {verb} in torch/{row.file}"


def test_the_page_has_a_place_for_most_of_its_statements():
    assert len(rows()) > 150


def test_a_row_whose_text_is_gone_is_told(tmp_path):
    (tmp_path / "config.py").write_text("limit = 8\n", encoding="utf-8")
    row = Row("the limit is 8", "config.py", "limit = 8", ("", "", "so", "not there"))
    assert complaint(row, tmp_path, 2) is None
    assert complaint(row, tmp_path, 3) == "the limit is 8: 'limit = 8' is in torch/config.py"
    (tmp_path / "config.py").write_text("limit = 16\n", encoding="utf-8")
    assert complaint(row, tmp_path, 2) == "the limit is 8: 'limit = 8' is not in torch/config.py"


@pytest.mark.skipif(INSTALLED not in COLUMNS, reason="the page tells about torch 2.13 and 2.15")
def test_each_place_is_in_the_installed_torch():
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    complaints = [complaint(row, folder, COLUMNS[INSTALLED]) for row in rows()]
    assert [told for told in complaints if told] == []
