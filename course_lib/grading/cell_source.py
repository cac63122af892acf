"""The source of a cell, and how its values are written in a message: for notes on errors and for
checks.

In:  the file name of a frame, a syntax tree, a value. Out: statements, names, one line of text.
PyTorch has no counterpart.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
from typing import Any

MOST_LETTERS = 160
"""A longer value is cut."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def is_cell(file: str) -> bool:
    """A cell's source is known and lies in no file."""
    is_file = file.startswith("<frozen") or os.path.exists(file)
    return not is_file and bool(linecache.getlines(file))


def statement_at(tree: ast.Module, line: int) -> ast.stmt:
    """The smallest statement that holds this line."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return min(around, key=lambda node: (node.end_lineno or node.lineno) - node.lineno)


def names_in(node: ast.AST) -> list[ast.Name]:
    """Every name that is read or set in it."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def short(value: Any) -> str:
    """The value in one line, with its type where that does not show."""
    try:
        text = cut(without_addresses(" ".join(repr(value).split())))
    except Exception as error:
        return f"a {type(value).__name__} (its repr raised {type(error).__name__})"
    # 'Step(writes=…)' and 'tensor([…])' say their type, and so do the quotes of a text.
    shows_its_type = isinstance(value, str) or text.lower().startswith(type(value).__name__.lower())
    if shows_its_type:
        return text
    return f"{text} ({type(value).__name__})"


def without_addresses(text: str) -> str:
    """`<function f at 0x7f3a>` without the place in memory: it is another one each time, and says
    nothing."""
    return _ADDRESS.sub("", text)


def cut(text: str) -> str:
    """The text, or its beginning if it is too long for a message."""
    if len(text) <= MOST_LETTERS:
        return text
    return f"{text[:MOST_LETTERS]} …"
