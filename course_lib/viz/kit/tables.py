"""Tables: as text in aligned columns, as HTML, and as a `Picture`.

In:  plain numbers and texts. Out: text, HTML, or a `Picture`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from course_lib.viz.kit.arguments import TEXT, Kind, each, shown, takes
from course_lib.viz.kit.style import Picture, escape


def columns(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: str = "") -> str:
    """Rows as text in aligned columns."""
    all_rows = [header, *rows] if header else list(rows)
    cells = [[str(cell) for cell in row] for row in all_rows]
    if not cells:
        return ""

    # Rows may differ in length: a column is as wide as the widest cell that it has.
    widths = [0] * max(len(row) for row in cells)
    for row in cells:
        for column, cell in enumerate(row):
            widths[column] = max(widths[column], len(cell))

    lines = []
    for row in cells:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append(indent + "  ".join(padded).rstrip())

    if header:
        # The line below the header
        lines.insert(1, indent + "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def html_table(
    rows: Iterable[Sequence[str]], header: Sequence[str], numbers: Iterable[int] = ()
) -> str:
    """A table of cells that are HTML already; the columns in `numbers` are set flush right."""
    flush_right = set(numbers)

    def attribute(column: int) -> str:
        if column in flush_right:
            return ' class="cl-n"'
        return ""

    head = ""
    for column, name in enumerate(header):
        head += f'<th scope="col"{attribute(column)}>{breakable(name)}</th>'

    body = []
    for row in rows:
        cells = ""
        for column, cell in enumerate(row):
            cells += f"<td{attribute(column)}>{unbroken(cell)}</td>"
        body.append(f"<tr>{cells}</tr>")

    lines = "\n".join(body)
    return f'<table class="cl-t"><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table>'


# ---- where a cell may go on in the next line -----------------------------------------------------

NUMBER_AND_UNIT = re.compile(
    r"(?<![\w.,])(-?[\d.,]+) (ns|µs|ms|s|B|[KMG]i?B|×|%|[KMGT]?FLOP(?:/s|/B)?)(?![\w/])"
)
CODE = re.compile(r"(<code\b[^>]*>)(.*?)</code>", re.S)
TAG_OR_NAME = re.compile(r"(<[^>]*>|&#?\w+;)|([\w.]{12,})")
"""In code: a tag or a character reference (`&lt;`), or a name of 12 letters or more; a shorter one
always stays whole."""
SOFT = re.compile(r"(?<=[^\W_])_(?=[^\W_])|[.·](?=\w)")
"""Behind these a name may go on in the next line; `__dict__` stays whole."""
VERY_LONG = 30
"""Letters: a name from this length on may also go on before a capital."""
SOFT_IN_LONG_NAMES = re.compile(rf"{SOFT.pattern}|[a-z](?=[A-Z])")
"""As `SOFT`, and before a capital."""


def unbroken(cell: str) -> str:
    """A cell (HTML) whose numbers stay with their units.

    A long name in code may go on in the next line behind an underscore between words or behind a
    dot, but not in the middle of a word."""
    cell = NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", cell)
    return CODE.sub(_code_with_breaks, cell)


def _code_with_breaks(code: re.Match[str]) -> str:
    return code[1] + TAG_OR_NAME.sub(_name_with_breaks, code[2]) + "</code>"


def _name_with_breaks(match: re.Match[str]) -> str:
    """A tag or a character reference stays as it is."""
    return match[1] or SOFT.sub(r"\g<0><wbr>", match[2])


def breakable(name: str) -> str:
    """A name in a column of words, for HTML.

    A long one (`call_function`) may go on in the next line; a very long one also before a capital
    (`ModelForGeneration…`)."""
    return re.sub(r"[\w.·]{8,}", _word_with_breaks, escape(name))


def _word_with_breaks(word: re.Match[str]) -> str:
    """A word with `<wbr>`, where a browser may break it."""
    places = SOFT if len(word[0]) < VERY_LONG else SOFT_IN_LONG_NAMES
    return places.sub(r"\g<0><wbr>", word[0])


# ---- a table as a picture ------------------------------------------------------------------------


def is_row(row: object) -> bool:
    return isinstance(row, (list, tuple))


ROW = Kind("a row", is_row)


@takes(
    rows=each(ROW, "rows, each a list of cells"), header=each(TEXT, "a list of texts"), caption=TEXT
)
def table(
    rows: Iterable[Sequence[object]], header: Sequence[str], caption: str = "", alt: str = ""
) -> Picture:
    """Plain data as a table. Columns of numbers are set flush right.

    Raises ValueError if a row has more or fewer cells than the header.
    """
    data = [tuple(row) for row in rows]
    for row in data:
        if len(row) != len(header):
            raise ValueError(
                f"table: a row has {len(row)} cells, the header {len(header)}: {shown(row)}"
            )

    numeric = [column for column in range(len(header)) if data and is_numeric(data, column)]
    cells = [[show(cell) for cell in row] for row in data]
    html_cells = [[escape(cell) for cell in row] for row in cells]

    body = html_table(html_cells, header, numeric)
    default_alt = f"A table of {', '.join(header)}. {caption}".strip()
    return Picture(
        f'<div class="cl-scroll">{body}</div>', caption, alt or default_alt, columns(cells, header)
    )


def is_numeric(rows: Sequence[Sequence[object]], column: int) -> bool:
    """Does every row have a number in this column?"""
    return all(isinstance(row[column], (int, float)) for row in rows)


def show(cell: object) -> str:
    """A number with as many digits as a reader needs."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return str(cell)
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.3g}"
