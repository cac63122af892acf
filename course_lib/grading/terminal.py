"""A terminal that cannot show every sign, or is narrow: what `course` prints arrives all the same.

In:  the streams of this process. Out: the same streams; a sign that one of them cannot encode is
written in other letters (`✓` as `+`, `é` as `e`, a sign without any such letters as `\\u4e2d`),
where Python would raise `UnicodeEncodeError`. On a terminal a line that is too long goes on below,
between two words, as far in as it began; files and pipes get it as it is.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import argparse
import codecs
import re
import shutil
import sys
import textwrap
import unicodedata
from typing import Any

HANDLER = "course"
"""The name by which streams find `in_other_letters`, as they find Python's "backslashreplace"."""

WIDE = r"\u3000-\u9fff\uff00-\uffef"
"""Chinese characters and their signs, for a class of a regular expression."""
PIECES = re.compile(rf"（?(?:[{WIDE}]|[^\s{WIDE}]+)[，。、；：）”]*\s*")
"""What stays on one line: a Chinese character, or a word, each with the signs around it."""

# the signs that the commands themselves print, in plain letters
PLAIN = {
    "✓": "+",
    "✗": "x",
    "×": "x",
    "·": ".",
    "░": ".",
    "█": "#",
    "…": "...",
    "→": "->",
    "←": "<-",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "–": "-",
    "—": "-",
    "−": "-",
    "’": "'",
    "‘": "'",
    "“": '"',
    "”": '"',
    "ß": "ss",
    "ø": "o",
    "Ø": "O",
}


def plain(sign: str) -> str:
    """One sign in ASCII: from the table, else without its accents, else its number."""
    if sign in PLAIN:
        return PLAIN[sign]

    without_accents = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return without_accents or sign.encode("ascii", "backslashreplace").decode()


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes: a Chinese character takes two.

    Unicode calls such signs W (wide) or F (full width)."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def filled(text: str, width: int) -> str:
    """`text` with spaces behind it up to `width` columns."""
    return text + " " * (width - columns_of(text))


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text that is to take `width` columns at most.

    Chinese has no spaces between words: a line may end behind each of its characters, but none
    begins with a comma or a full stop."""
    # No wide sign in it: there are spaces between its words.
    if columns_of(text) == len(text):
        return textwrap.wrap(text, width)

    lines = [""]
    for piece in PIECES.findall(text):
        if lines[-1] and columns_of(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


class Help(argparse.HelpFormatter):
    """The text of `--help`, whose lines fit the terminal in Chinese, too."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = wrapped(text, width - len(indent))
        return "\n".join(indent + line for line in lines)


def in_other_letters(error: UnicodeError) -> tuple[str, int]:
    """What `codecs` asks for where a stream cannot encode a part of a text."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(map(plain, signs)), error.end


def show_every_sign() -> None:
    """Make both output streams of this process able to take every text."""
    codecs.register_error(HANDLER, in_other_letters)
    for stream in (sys.stdout, sys.stderr):
        _take_all(stream)


def _take_all(stream: Any) -> None:
    # None where there is no terminal (pythonw); a notebook's stream takes all and has no
    # `reconfigure`
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=HANDLER)


# ---- long lines


def fold_long_lines() -> None:
    """On a terminal, write lines that are longer than it is wide as several."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Folding) and stream.isatty():
            setattr(sys, name, Folding(stream))


class Folding:
    """A text stream that folds the lines written to it. All else is asked of the stream below."""

    def __init__(self, below: Any) -> None:
        # `_begun`: the part of the last line that was written without its end yet
        self._below, self._begun = below, ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        width = shutil.get_terminal_size().columns
        for line in whole:
            self._below.write(folded(line, width) + "\n")
        return len(text)

    def flush(self) -> None:
        """What is written so far, also of a line that goes on."""
        self._below.write(self._begun)
        self._begun = ""
        self._below.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)


# how a line begins that goes on further in: `What:     `, `✓ `, `- `, `12  2026-11-28 `
_BEGIN = re.compile(r"\s*(?:[A-Z]\w+:\s{2,}|[✓✗+x-] )?")


def folded(line: str, width: int) -> str:
    """The line, or several where it has more than `width` signs.

    A word that is longer, say a path, stays whole."""
    if len(line) <= width:
        return line
    begin = _BEGIN.match(line)
    # Lines that go on keep half of the width at least, however far in the first one begins.
    indent = min(len(begin[0]) if begin else 0, width // 2)
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * indent,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
