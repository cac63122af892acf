"""Which line of the learner's answer gave the value that a check refused.

In:  the message of a failed check, and the cells of the answer. Out: a line for that message,
     `Line: ...`, or nothing.

A wrong value raises no error, so there is no traceback to read. The source tells: the functions of
the answer that the check calls (all of them, where it calls none by name), and their `return`
statements. A function without `return` gives `None`: then the line says that, for it is the
commonest of all surprises.
PyTorch has no counterpart.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course_lib.languages import phrase, translate_message

from .assembling import marking
from .names import tree_of
from .notebooks import Cell
from .terminal import filled

MOST_FUNCTIONS = 3
"""So many functions of an answer are told."""
HEAD_WIDTH = 10
"""Columns for "Line:": as many as other lines of a check's message have for their heads."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Written:
    """A function of the answer.

    `name`: `median_time`, or a method with its class. `cell`: its number, 0 if unknown."""

    name: str
    node: Function
    source: str
    cell: int

    @property
    def returns(self) -> list[ast.Return]:
        """Its own `return`s with a value, not those of functions inside it."""
        return [
            node for node in own_nodes(self.node) if isinstance(node, ast.Return) and node.value
        ]

    @property
    def prints(self) -> bool:
        """Does it call `print`, which a beginner may take for `return`?"""
        names = [getattr(node, "id", "") for node in own_nodes(self.node)]
        return "print" in names

    def line(self, node: ast.AST) -> str:
        """The source line in which a node begins."""
        number = getattr(node, "lineno", 1)
        return self.source.splitlines()[number - 1].strip()

    def __str__(self) -> str:
        if self.cell:
            return phrase("`{name}` (cell {n})", name=self.name, n=self.cell)
        return f"`{self.name}`"


def line_of_the_answer(said: str, cells: Sequence[Cell]) -> str:
    """`Line: 9 of `median_time` (cell 7): return statistics.median(samples)`."""
    functions = [function for cell in cells for function in functions_of(cell)]
    got = "|".join(map(re.escape, in_both("Got")))
    is_none = "NoneType" in said or re.search(rf"(?m)^(?:{got}): +None$", said) is not None

    sentences = [
        sentence(function, is_none) for function in asked_for(functions, said)[:MOST_FUNCTIONS]
    ]
    head = f"{phrase('Line')}:"
    return "".join(f"\n{filled(head, HEAD_WIDTH)}{line}" for line in sentences)


def in_both(words: str) -> tuple[str, str]:
    """English words, and the same in the chosen language: the checks may have run in either."""
    return words, translate_message(words)


def calls() -> tuple[str, ...]:
    """How the lines of a message begin that hold the check's call."""
    of_notes = [*in_both("it had asked:"), *in_both("it ran:")]
    return (*(f"{word}:" for word in in_both("Call")), *(f"  {words}" for words in of_notes))


def asked_for(functions: list[Written], message: str) -> list[Written]:
    """The functions that the check's call names; else those that its first words name; else all."""
    lines = message.splitlines()
    for heads in (calls(), tuple(f"{word}:" for word in in_both("What"))):
        text = " ".join(line for line in lines if line.startswith(heads))
        if named_functions := [function for function in functions if is_named(function, text)]:
            return named_functions
    return functions


def functions_of(cell: Cell) -> Iterator[Written]:
    """The functions of an answer's cell that the exercise asks for; all of them, where its stub is
    not known."""
    cell_marking = marking(cell)
    wanted = {name for name, node in named_functions(tree_of(cell_marking.get("stub", "")))}
    for name, node in named_functions(tree_of(cell.source)):
        if name in wanted or not wanted:
            yield Written(name, node, cell.source, cell_marking.get("number", 0))


def named_functions(tree: ast.Module | None) -> Iterator[tuple[str, Function]]:
    """Functions and methods at the top of a cell, with their names; a method that only sets
    attributes is left out."""
    for node in tree.body if tree else []:
        if isinstance(node, Function):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function) and inner.name != "__init__":
                    yield f"{node.name}.{inner.name}", inner


def is_named(one: Written, text: str) -> bool:
    """Whether the function's name, or that of its class, stands in the text."""
    return any(re.search(rf"\b{re.escape(name)}\b", text) for name in one.name.split("."))


def sentence(one: Written, is_none: bool) -> str:
    """Where a function returns: its `return`s, or all of it if it has none.

    `is_none`: whether the check got None, so that a missing `return` is the cause."""
    returns = one.returns
    if len(returns) == 1:
        node = returns[0]
        return phrase("{n} of {function}: {line}", n=node.lineno, function=one, line=one.line(node))
    if returns:
        numbers = ", ".join(str(node.lineno) for node in returns)
        return phrase("{n} of {function}, where it returns", n=numbers, function=one)
    if not is_none:
        first, last = one.node.lineno, one.node.end_lineno
        return phrase("{first} to {last} of {function}", first=first, last=last, function=one)

    if one.prints:
        return phrase(
            "{function} has no `return` with a value, so that it gives None: "
            "`print` shows a value and gives none",
            function=one,
        )
    return phrase("{function} has no `return` with a value, so that it gives None", function=one)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop(0)
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            left = [*ast.iter_child_nodes(node), *left]
