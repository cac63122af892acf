"""What checks and commands say, in the chosen language: sentences that hold values.

In:  an English sentence, or a message that a check has put together. Out: the same in the language,
     with the same values.

`checks.po` has these sentences by their English. A command gives the sentence and its values:
`phrase("{n} of {all} points", n=3, all=14)`. A check gives a finished text
(`f"the graphs of {name}"`): the catalog has "the graphs of {A}", and the sentence is found by its
words. What the catalog does not have stays English.
PyTorch has no counterpart. GNU gettext has `gettext(...)`, which needs the sentence apart from its
values.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from course_lib.languages.chosen import CATALOGS, chosen
from course_lib.languages.labels import translate

FILE = "checks.po"
VALUE = re.compile(r"\{([A-Za-z_]+)\}")
"""Where a sentence holds a value: `{lesson}`."""
OF_CHECK = re.compile(r"\{([A-Z])\}")
"""The same in a sentence of a check, whose values have no names: `{A}`, `{B}`."""
_WORD = re.compile(r"[A-Za-z]{2}")


def phrase(sentence: str, **values: object) -> str:
    """A sentence of a command in the chosen language, with its values.

    Raises KeyError for a value that the sentence holds and that is not given."""
    language = chosen()
    if language is not None:
        sentence = sentences(language).get(sentence, sentence)
    return VALUE.sub(lambda hole: str(values[hole[1]]), sentence)


def translate_message(text: str) -> str:
    """A message of a check in the chosen language; the text itself where no catalog has it.

    A value of several words that a catalog has is translated, too."""
    language = chosen()
    if language is None:
        return text
    known = sentences(language)
    if text in known:
        return known[text]
    label = translate(text, language)
    if label != text:
        return label

    for pattern in _patterns(language):
        found = pattern.english.fullmatch(text)
        if found is not None:
            return OF_CHECK.sub(lambda hole: _value(found[hole[1]]), pattern.text)
    return text


def _value(text: str) -> str:
    """A single word is a name in the program more often than not, and stays."""
    if " " in text:
        return translate_message(text)
    return text


@functools.cache
def sentences(language: str) -> dict[str, str]:
    """English → translated, for what checks and commands say."""
    from course_lib.languages.catalog import read_where_babel_is

    file = CATALOGS / language / FILE
    entries = read_where_babel_is(file) if file.is_file() else []
    return {entry.english: entry.text for entry in entries if entry.is_translated}


# ---- finished texts ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pattern:
    """A sentence with values: what its English looks like, and its translation."""

    english: re.Pattern[str]
    text: str


@functools.cache
def _patterns(language: str) -> tuple[_Pattern, ...]:
    """The sentences with values. The one with the most words of its own comes first: of two that
    fit a message, it says more."""
    with_values = [
        (english, text)
        for english, text in sentences(language).items()
        if OF_CHECK.search(english) and has_words(english)
    ]
    with_values.sort(key=lambda pair: -len(OF_CHECK.sub("", pair[0])))
    return tuple(
        _Pattern(re.compile(_as_pattern(english), re.DOTALL), text) for english, text in with_values
    )


def has_words(sentence: str) -> bool:
    """Whether a sentence has words of its own: one of values alone would fit every message."""
    return _WORD.search(VALUE.sub("", sentence)) is not None


def _as_pattern(english: str) -> str:
    """A regular expression: 'a guard on {A}' → a group `A` behind these words.

    A value that stands twice must be the same both times."""
    seen: set[str] = set()

    def group(name: str) -> str:
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>.+?)"

    pieces = OF_CHECK.split(english)
    return "".join(
        group(piece) if number % 2 else re.escape(piece) for number, piece in enumerate(pieces)
    )
