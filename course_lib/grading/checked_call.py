"""The call whose result a check looked at, with what was given: for the message of a check that
failed.

In:  the frame that called `check(...)` and its relatives. Out: lines, such as

    traffic(steps, small, outputs)
    with steps = [Step(writes='t', reads=('x', 'x')), ...]

The call stands in the check's own statement, or in the statement that made a name which the check
uses (`got = median_time(...)`). Nothing is run again: the call is found in the source of the cell,
and the names' values are those of its frame.
PyTorch has no counterpart. pytest rewrites `assert` statements for the same purpose.
"""

from __future__ import annotations

import ast
import linecache
from types import FrameType, FunctionType, ModuleType
from typing import Any

from course_lib.languages import phrase

from .cell_source import cut, is_cell, names_in, short, statement_at

MOST_VALUES = 4
"""So many of a call's inputs are told."""
Scope = ast.Module | ast.FunctionDef
"""Where a statement stands: directly in the cell, or in a function of it."""


def checked_call(frame: FrameType | None, line: int = 0) -> list[str]:
    """The call and its inputs, a line each; empty where the check stands in no cell, or asks for no
    call.

    `line`: of the check, where it is not the line that the frame runs now.
    """
    cell = cell_around(frame)
    if cell is None:
        return []

    tree = ast.parse("".join(linecache.getlines(cell.f_code.co_filename)))
    values = {**cell.f_globals, **cell.f_locals}
    statement = statement_at(tree, line or cell.f_lineno)
    call = call_behind(statement, scope_of(tree, statement), values)
    if call is None:
        return []

    input_lines = [
        phrase("with {name} = {value}", name=name, value=short(value))
        for name, value in inputs_of(call, values)
    ]
    return [cut(ast.unparse(call)), *input_lines]


def cell_around(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that runs a cell's code: it has called the check."""
    while frame is not None and not is_cell(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def scope_of(tree: ast.Module, statement: ast.stmt) -> Scope:
    """The function of the cell that the statement stands in, else the cell itself."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.lineno < statement.lineno <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=tree)


def call_behind(statement: ast.stmt, scope: Scope, values: dict[str, Any]) -> ast.Call | None:
    """The call of a cell's function that the statement makes, else the last one above it that has
    to do with its names."""
    places = [statement, *statements_above(statement, scope)]
    names_used = {name.id for name in names_in(statement)}

    for place in places:
        # Of a whole loop or function, the lines are looked at one by one.
        if isinstance(getattr(place, "body", None), list):
            continue
        is_about_it = place is statement or names_used & plain_names(place, values)
        calls = [as_asked(node) for node in ast.walk(place) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            if is_about_it and is_from_a_cell(call.func, values):
                return call

    return None


def as_asked(call: ast.Call) -> ast.Call:
    """The call that stands for another one: `check_keeps(f, x)` calls `f(x)`."""
    is_by_check = isinstance(call.func, ast.Name) and call.func.id == "check_keeps"
    if not is_by_check or not call.args:
        return call
    plain_call = ast.Call(call.args[0], call.args[1:], [])
    return ast.copy_location(plain_call, call)


def statements_above(statement: ast.stmt, scope: Scope) -> list[ast.stmt]:
    """The statements of a scope that stand above another one, the nearest first."""
    above = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.stmt) and node.lineno < statement.lineno
    ]
    return sorted(above, key=lambda node: -node.lineno)


def plain_names(node: ast.AST, values: dict[str, Any]) -> set[str]:
    """The names in it that stand for a value: no function, class or module."""
    return {name.id for name in names_in(node) if is_plain(values.get(name.id))}


def is_plain(value: Any) -> bool:
    """Is it data, and nothing that is called?"""
    return not callable(value) and not isinstance(value, ModuleType)


def is_from_a_cell(called: ast.expr, values: dict[str, Any]) -> bool:
    """Whether `f` or `object.f` names a function that a cell defines."""
    if isinstance(called, ast.Name):
        return is_function_of_a_cell(values.get(called.id))

    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        # The class is looked at, not the object: an object may run code of the answer.
        kind = type(values.get(called.value.id))
        return any(is_function_of_a_cell(vars(base).get(called.attr)) for base in kind.__mro__)
    return False


def is_function_of_a_cell(thing: Any) -> bool:
    return isinstance(thing, FunctionType) and is_cell(thing.__code__.co_filename)


def inputs_of(call: ast.Call, values: dict[str, Any]) -> list[tuple[str, Any]]:
    """The names that the call's arguments use, and their values; one that has no words of its own
    is left out."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    names_used = [name.id for argument in arguments for name in names_in(argument)]

    inputs: list[tuple[str, Any]] = []
    for name in dict.fromkeys(names_used):
        value = values.get(name)
        if name in values and is_plain(value) and has_words(value):
            inputs.append((name, value))
    return inputs[:MOST_VALUES]


def has_words(value: Any) -> bool:
    """Whether it prints as more than `<Machine object>`."""
    return type(value).__repr__ is not object.__repr__
