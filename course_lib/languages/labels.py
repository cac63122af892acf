"""Short texts in the chosen language: what stands in pictures, questions and messages of checks.

In:  an English text, or a piece of HTML or SVG. Out: the same with what `labels.po` has of it.

A label is found by its English text. Numbers in it may differ: `{1}`, `{2}` stand for them in the
catalog, so that "16 nodes become 5 kernels" is one label with "3 nodes become 1 kernel" only where
the words are the same. What the catalog does not have stays English: a missing label never stops a
picture.
"""

from __future__ import annotations

import functools
import html
import re

from course_lib.languages.chosen import CATALOGS, chosen

NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w.]*\w)")
"""A number that stands by itself: no part of a name such as `x1` or `16M`."""
_HOLE = re.compile(r"\{(\d+)\}")
"""Where a label of the catalog holds a number: `{1}`."""
_LETTER = re.compile(r"[a-f]\) ")
"""What stands before an option of a question."""

_PIECE = re.compile(
    r"<(?P<tag>style|script|pre)\b.*?</(?P=tag)>"  # is no label, or shows code
    r'|\b(?P<attribute>aria-label|title|alt)="(?P<value>[^"]+)"'
    r"|(?<=>)(?P<run>[^<>]*(?:<code>[^<]*</code>[^<>]*)*)(?=<)",
    re.S,
)
"""A piece of HTML: one that stays as it is, an attribute that is read aloud, or a text between two
tags, in which pieces of code may stand."""
_CODE = re.compile(r"<code>([^<]*)</code>")
_MARKED = re.compile(r"`([^`]+)`")


def translate(text: str, language: str | None = None) -> str:
    """`text` in `language` (else the chosen one); `text` itself for English, and where the catalog
    does not have it."""
    language = language or chosen()
    if language is None or not text.strip():
        return text
    return _translated(text, labels(language))


@functools.cache
def labels(language: str) -> dict[str, str]:
    """English → translated, for the labels of a language. Numbers are holes: {1}, {2}."""
    from course_lib.languages.catalog import read_where_babel_is

    entries = read_where_babel_is(CATALOGS / language / "labels.po")
    return {entry.english: entry.text for entry in entries if entry.is_translated}


def _translated(text: str, known: dict[str, str]) -> str:
    """The text by the catalog `known`: as it is, without an option's letter (`b) `), or with holes
    for its numbers; the text itself where none of these is there."""
    if text in known:
        return known[text]
    letter = _LETTER.match(text)
    if letter and text[letter.end() :] in known:
        return letter[0] + known[text[letter.end() :]]

    numbers = NUMBER.findall(text)
    translation = known.get(with_holes(text)) if numbers else None
    if translation is None:
        return text
    return _HOLE.sub(lambda hole: numbers[int(hole[1]) - 1], translation)


def with_holes(text: str) -> str:
    """'16 nodes become 5 kernels' → '{1} nodes become {2} kernels'"""
    # a text has no more numbers than letters
    count = iter(range(1, len(text) + 1))
    return NUMBER.sub(lambda _: f"{{{next(count)}}}", text)


# ---- in HTML and SVG -----------------------------------------------------------------------------


def translate_html(markup: str, language: str | None = None) -> str:
    """`markup` with its labels in `language` (else the chosen one): texts between tags, and the
    attributes that are read aloud.

    Style sheets, scripts and preformatted text (code, and the plain form of a picture) stay as they
    are."""
    language = language or chosen()
    if language is None:
        return markup
    known = labels(language)

    def piece(match: re.Match[str]) -> str:
        if match["attribute"]:
            return f'{match["attribute"]}="{_plain_translated(match["value"], known)}"'
        if match["run"]:
            return _run_translated(match["run"], known)
        return match[0]

    return _PIECE.sub(piece, markup)


def _plain_translated(escaped: str, known: dict[str, str]) -> str:
    """The value of an attribute: text without tags, in which `&amp;` stands for `&`."""
    text = html.unescape(escaped)
    translation = _translated(text, known)
    if translation == text:
        return escaped
    return html.escape(translation, quote=True)


def _run_translated(run: str, known: dict[str, str]) -> str:
    """A text between tags; code in it stands between backticks in the catalog.

    Blanks around it stay. Pictures put no-break spaces, the catalog has ordinary ones."""
    text = html.unescape(_CODE.sub(r"`\1`", run)).replace("\N{NO-BREAK SPACE}", " ")
    core = text.strip()
    translation = _translated(core, known)
    if translation == core:
        return run
    return text.replace(core, _MARKED.sub(r"<code>\1</code>", html.escape(translation, quote=True)))
