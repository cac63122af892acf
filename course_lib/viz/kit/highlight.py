"""Source code, highlighted: Python, C++ or Triton, readable in both themes.

In:  source text. Out: a `Picture` whose plain form is the source itself.

Pygments splits the text into tokens; their colours (css/code.css) are the visual language's, each
mixed with the theme's text colour. Without pygments the code is shown without colours.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Collection
from typing import Any

from course_lib.viz.kit.arguments import TEXT, takes
from course_lib.viz.kit.style import Picture, escape, plural

LEXERS = {"triton": "python", "py": "python", "c++": "cpp"}
"""Our name of a language → pygments' name, where they differ."""
TITLES = {
    "python": "Python",
    "py": "Python",
    "cpp": "C++",
    "c++": "C++",
    "triton": "Triton",
    "ptx": "PTX",
    "llvm": "LLVM IR",
}


@takes(source=TEXT, language=TEXT)
def code(
    source: str,
    language: str = "python",
    title: str = "",
    highlight_lines: Collection[int] = (),
    link: str = "",
    caption: str = "",
) -> Picture:
    """`source` with line numbers.

    `highlight_lines` (from 1) are marked; `title` stands above it and leads to `link`."""
    source = textwrap.dedent(source).rstrip("\n")
    body = ""
    if title:
        head = escape(title)
        if link:
            head = f'<a href="{escape(link)}">{head}</a>'
        body = f'<div class="cl-code-title">{head}</div>'
    body += f'<div class="cl-code" tabindex="0">{block(source, language, highlight_lines)}</div>'

    alt = f"{TITLES.get(language.lower(), language)} source"
    if title:
        alt += f" of {title}"
    lines = source.count("\n") + 1
    alt += f", {plural(lines, 'line')}"
    if highlight_lines:
        alt += f", {plural(len(highlight_lines), 'line')} marked"
    return Picture(body, caption, f"{alt}.", source, sheets=("code",))


def block(source: str, language: str, highlight_lines: Collection[int] = (), first: int = 1) -> str:
    """The `<pre>` alone: one element a line, with its number (counted from `first`)."""
    rows = []
    for i, line in enumerate(highlighted(source, language), first):
        mark = " cl-hl" if i in highlight_lines else ""
        rows.append(f'<span class="cl-l{mark}"><span class="cl-no">{i}</span>{line}</span>')
    return f"<pre>{''.join(rows)}</pre>"


def highlighted(source: str, language: str) -> list[str]:
    """Each line as HTML with a `<span>` for each token that has a colour."""
    lexer = lexer_of(language)
    if lexer is None:
        return [escape(line) for line in source.split("\n")]

    parts = []
    for token, text in lexer.get_tokens(source):
        kind = token_class(str(token))
        # A token that runs over several lines (a docstring) is closed and opened again at each
        # line's end.
        pieces = [coloured(piece, kind) for piece in text.split("\n")]
        parts.append("\n".join(pieces))
    return "".join(parts).split("\n")


def coloured(text: str, kind: str) -> str:
    """A piece of code in the colour of its kind, if it has one."""
    text = escape(text)
    if kind and text:
        return f'<span class="cl-{kind}">{text}</span>'
    return text


@functools.cache
def lexer_of(language: str) -> Any:
    """Pygments' lexer; None if it is not installed, or knows no such language."""
    try:
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound
    except ImportError:
        return None
    try:
        return get_lexer_by_name(
            # No line may be dropped or added at the ends: lines are numbered.
            LEXERS.get(language.lower(), language),
            stripnl=False,
            ensurenl=False,
        )
    except ClassNotFound:
        return None


@functools.cache
def token_class(token: str) -> str:
    """Our letter for a pygments token, '' for plain text."""
    for pattern, letter in LETTERS:
        if re.match(pattern, token):
            return letter
    return ""


LETTERS = (
    (r"Token\.Comment\.(Preproc|PreprocFile)", "b"),
    (r"Token\.Comment|Token\.Literal\.String\.Doc", "c"),
    (r"Token\.Keyword\.Type|Token\.Name\.(Builtin|Class|Decorator|Exception)", "b"),
    (r"Token\.Keyword|Token\.Operator\.Word", "k"),
    (r"Token\.Name\.Function", "f"),
    (r"Token\.Literal\.String", "s"),
    (r"Token\.Literal\.Number", "d"),
)
"""Pygments' tokens → the letter of their colour (`.cl-k` in css/code.css). The first that matches
counts: `Token.Comment.Preproc` is one of `Token.Comment`, and stands before it."""
