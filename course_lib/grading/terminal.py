"""A terminal that cannot show every sign: what `course` prints arrives all the same.

In:  the streams of this process. Out: the same streams; a sign that one of them cannot encode is written in other letters
(`✓` as `+`, `é` as `e`, a sign without any such letters as `\\u4e2d`), where Python would raise `UnicodeEncodeError`.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import codecs
import sys
import unicodedata
from typing import Any

HANDLER = "course"

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
    # None where there is no terminal (pythonw); a notebook's stream takes all and has no `reconfigure`
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=HANDLER)
