"""Tables of marks as CSV files that a spreadsheet opens, saves, and gives back.

In:  rows as dicts, or a CSV file. Out: a CSV file that Excel and LibreOffice show with its accents,
     or rows as dicts.

A spreadsheet changes a file that it saves: it puts a byte order mark before it or takes it away,
writes `;` or a tab in place of a comma, writes `2,5` for 2.5, and a teacher adds columns or moves
them. `read_table` takes all of that.
A text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return would be computed as a
formula. `write_table` puts a `'` before it, and `read_table` takes it away again.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .notebooks import CourseError

# of `grades.csv`
COLUMNS = ("student", "lesson", "exercise", "grade_id", "points", "out_of", "reason")

# The last four signs are the same ones in the wide form of Chinese and Japanese keyboards. A text
# that has a `'` there already gets one more, so that reading takes away just what writing put.
_FORMULA = re.compile(r"'*[=+\-@\t\r＝＋－＠]")
_SEPARATORS = (",", ";", "\t", "|")
# control characters, which a spreadsheet cannot hold (tab and line feed it can)
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


# ---- writing -------------------------------------------------------------------------------------


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the rows; the file is whole or is as it was before."""
    if not path.parent.is_dir():
        raise CourseError(f"{path} cannot be written: name a file in a folder that exists.")
    lines = [[_cell(row[column]) for column in columns] for row in rows]
    new = path.with_name(f"{path.name}.new")

    try:
        # utf-8-sig: without its mark Excel takes the file for an old Windows code page.
        # backslashreplace: half a letter, from a strange file name, is written as its number.
        with new.open("w", newline="", encoding="utf-8-sig", errors="backslashreplace") as file:
            csv.writer(file).writerows([columns, *lines])
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CourseError(
            f"{path} cannot be written ({error.strerror}). Close it in the spreadsheet, then run the command again."
        ) from None


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return guarded(value)
    return value


def guarded(text: str) -> str:
    """The text, so that no spreadsheet computes it."""
    text = _CONTROLS.sub(_number_of, text)
    if _FORMULA.match(text):
        return f"'{text}"
    return text


def _number_of(sign: re.Match[str]) -> str:
    return f"\\x{ord(sign[0]):02x}"


def unguarded(text: str) -> str:
    """The text that `guarded` was given."""
    if text.startswith("'") and _FORMULA.match(text):
        return text[1:]
    return text


# ---- reading -------------------------------------------------------------------------------------


def read_table(path: Path, columns: Sequence[str], about: str) -> list[dict[str, str]]:
    """The rows of a CSV file by the names of these columns; `about` is what such a file is called
    in a message."""
    text = text_of(_bytes_of(path, about))
    lines = list(_lines(text, columns))
    head = [_name_of_column(name) for name in lines[0]] if lines else []

    missing = [column for column in columns if column not in head]
    if missing:
        raise CourseError(
            f"{path} is no {about}: its columns should be {', '.join(columns)}. "
            f"There is no column {', '.join(missing)}."
        )

    places = {column: head.index(column) for column in columns}
    filled = [line for line in lines[1:] if any(cell.strip() for cell in line)]
    return [_row(line, places) for line in filled]


def _bytes_of(path: Path, about: str) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CourseError(
            f"There is no file {path}. It should be a {about}: mark a class first, or give its path."
        ) from None
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror}).") from None


def text_of(data: bytes) -> str:
    """The text in whichever encoding a spreadsheet saved it."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # Excel's "Unicode text"
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Excel's "CSV" without a word about UTF-8: the code page of a Western Windows
        return data.decode("cp1252", errors="replace")


def _lines(text: str, columns: Sequence[str]) -> list[list[str]]:
    """The file's cells, by the separator under which most of the columns are found."""
    first, _, rest = text.partition("\n")
    if first.strip().strip('"').lower().startswith("sep="):  # a line that Excel understands
        text = rest

    best: list[list[str]] = []
    most_found = -1
    for separator in _SEPARATORS:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
        lines = lines[_first_filled(lines) :]
        if lines:
            names = {_name_of_column(name) for name in lines[0]}
        else:
            names = set()
        if len(names & set(columns)) > most_found:
            best, most_found = lines, len(names & set(columns))
    return best


def _first_filled(lines: list[list[str]]) -> int:
    """Where the head is: a spreadsheet keeps empty rows that somebody put above it."""
    for number, line in enumerate(lines):
        if any(cell.strip() for cell in line):
            return number
    return 0


def _name_of_column(text: str) -> str:
    """`Grade ID` → `grade_id`; U+FEFF is a byte order mark that a program wrote twice."""
    return text.strip().strip("\ufeff").lower().replace(" ", "_")


def _row(line: list[str], places: Mapping[str, int]) -> dict[str, str]:
    """One row; cells that a spreadsheet left out at its end are empty."""
    return {
        column: unguarded(line[place]) if place < len(line) else ""
        for column, place in places.items()
    }


def number_in(text: str, what: str) -> float:
    """`2.5`, `2,5`, ` 2 `: a number as a spreadsheet of any country writes it.

    `what` names the cell for the message."""
    # U+00A0: a space at which no line ends; some countries write it between thousands
    plain = text.strip().replace("\u00a0", "").replace(",", ".")
    try:
        value = float(plain)
    except ValueError:
        raise CourseError(f"{what} is {text!r}. It should be a number.") from None
    # "not <", so that NaN is refused, too
    if not abs(value) < float("inf"):
        raise CourseError(f"{what} is {text!r}. It should be an ordinary number.")
    return value
