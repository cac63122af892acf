"""One catalog: what is translated, of which English text, and whether that text has changed since.

In:  a `.po` file of GNU gettext, or the English texts of today. Out: `Entry`s, or the file.

Each text has a name (`msgctxt`): the id of its cell. Its English (`msgid`) is the one that was
translated. So a cell that was edited since is told by comparing, and is marked `fuzzy` as gettext
does it: its old English stands beside it (`#| msgid`) until somebody translates it anew and takes
the mark away. Poedit, Weblate and other editors of `.po` files know these marks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ALIKE = 0.5
"""From here on an edited text counts as the same text: the share of words that both versions
have."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')

_OLD_ENGLISH_AND_NAME = re.compile(r'^#\| msgid (".*(?:\n#\| .*)*)\nmsgctxt (".*")$', flags=re.M)
"""The comment with the old English, on one line or on several, and the name right below it: Babel
and the programs of gettext write the two in this order."""

_NEVER_WRAPPED = 1_000_000
"""A width beyond every text. (At width 0 Babel leaves the texts whole, but wraps comments, and with
them the old English, at 76.)"""


@dataclass(frozen=True)
class Source:
    """An English text of today: the name of its place, and the text."""

    name: str
    english: str


@dataclass(frozen=True)
class Entry:
    """A text and its translation.

    stale: the English has changed since; `before` is what was translated. text: '' where nobody has
    translated it yet."""

    name: str
    english: str
    text: str = ""
    stale: bool = False
    before: str = ""

    @property
    def is_translated(self) -> bool:
        return bool(self.text) and not self.stale


def read(path: Path) -> list[Entry]:
    """The entries of a `.po` file, in order.

    Raises ImportError without Babel, which JupyterLab brings."""
    from babel.messages.pofile import read_po

    with path.open("rb") as file:
        messages = read_po(file, ignore_obsolete=True)
    earlier_english = _earlier_english(path.read_text(encoding="utf-8"))
    return [
        Entry(
            message.context or "",
            str(message.id),
            str(message.string or ""),
            message.fuzzy,
            earlier_english.get(message.context or "", "") if message.fuzzy else "",
        )
        for message in messages
        if message.id
    ]


def read_where_babel_is(path: Path) -> list[Entry]:
    """The entries; none without Babel. Then all stays English, and `course doctor` still says what
    is to be installed."""
    try:
        return read(path)
    except ImportError:
        return []


def _earlier_english(po: str) -> dict[str, str]:
    """Name → the English that was translated, where it has changed since.

    (Babel writes these lines and does not read them.)"""
    from babel.messages.pofile import denormalize, unescape

    # A text of several lines is several strings. Babel writes them side by side, and its
    # `denormalize` wants one a line. (A program that wraps comments breaks them at a space.)
    # A name is always one string.
    return {
        unescape(name): denormalize("\n".join(_STRING.findall(comment.replace("\n#| ", " "))))
        for comment, name in _OLD_ENGLISH_AND_NAME.findall(po)
    }


def to_po(entries: Iterable[Entry], language: str, about: str) -> bytes:
    """The text of a `.po` file: the same entries give the same bytes."""
    import io

    from babel.messages.catalog import Catalog
    from babel.messages.pofile import write_po

    catalog = Catalog(locale=language)
    for entry in entries:
        catalog.add(
            entry.english,
            entry.text,
            flags=["fuzzy"] if entry.stale else [],
            previous_id=[entry.before] if entry.before else [],
            context=entry.name or None,
        )
    body = io.BytesIO()
    write_po(body, catalog, width=_NEVER_WRAPPED, omit_header=True, include_previous=True)
    head = (
        f'# {about}\nmsgid ""\nmsgstr ""\n"Language: {language}\\n"\n'
        '"Content-Type: text/plain; charset=utf-8\\n"\n"Content-Transfer-Encoding: 8bit\\n"\n\n'
    )
    return head.encode() + body.getvalue().strip() + b"\n"


# ---- what changed --------------------------------------------------------------------------------


def brought_up_to_date(entries: Sequence[Entry], sources: Sequence[Source]) -> list[Entry]:
    """An entry for each English text of today, with what is translated of it.

    A text that only moved keeps its translation. One that was edited keeps it too, and is stale
    from now on."""
    unclaimed = list(entries)
    entry_of_source: dict[Source, Entry] = {}
    for source in sources:
        equal_entry = _with_this_english(unclaimed, source)
        if equal_entry is not None:
            unclaimed.remove(equal_entry)
            entry_of_source[source] = _as_of_today(equal_entry, source)

    # Only what no text of today has claimed can be the earlier form of an edited one.
    for source in sources:
        if source not in entry_of_source:
            edited = _earlier_form(unclaimed, source)
            if edited is None:
                entry_of_source[source] = Entry(source.name, source.english)
                continue
            unclaimed.remove(edited)
            entry_of_source[source] = _stale(edited, source)
    return [entry_of_source[source] for source in sources]


def _with_this_english(entries: list[Entry], source: Source) -> Entry | None:
    """The entry whose English, or translated English, is this text; the one of the same name
    first."""
    alike = [entry for entry in entries if source.english in (entry.english, entry.before)]
    return next((entry for entry in alike if entry.name == source.name), next(iter(alike), None))


def _as_of_today(entry: Entry, source: Source) -> Entry:
    """The entry under the name that its text has today; no longer stale if the text is again what
    was translated."""
    if entry.before == source.english:  # the edit was taken back
        return Entry(source.name, source.english, entry.text)
    return replace(entry, name=source.name)


def _earlier_form(entries: list[Entry], source: Source) -> Entry | None:
    """The translated entry that reads most like this text, if any is alike enough."""
    best, best_ratio = None, ALIKE
    for entry in entries:
        if not entry.text:
            continue
        words = entry.english.split(), source.english.split()
        alike = difflib.SequenceMatcher(None, *words, autojunk=False).ratio()
        if alike > best_ratio:
            best, best_ratio = entry, alike
    return best


def _stale(entry: Entry, source: Source) -> Entry:
    """The entry with today's English. After several edits `before` is still what was translated."""
    before = entry.before or entry.english
    return Entry(source.name, source.english, entry.text, stale=True, before=before)
