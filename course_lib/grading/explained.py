"""An error in a checks cell, told in full: which line of the answer raised it, and which input the
check gave it.

In:  an exception that ended a cell with checks (`check(...)`, `check_close(...)`, ...) and is no
     failed check itself.
Out: a note on the exception, which notebooks print below the traceback and `course check` gives as
     the reason.

An answer may raise ("min() arg is an empty sequence"), or give what the check cannot take apart
("cannot unpack non-iterable int object"). In the first case the note names the answer's line; in
the second it says what each part of the check's line gave. The parts are computed once more for
that, in the variables of the cell. `listen` asks IPython for every error of a cell.
In PyTorch: `torch._dynamo.exc.augment_exc_message` adds the user's lines to an error; here
`BaseException.add_note` does.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from course_lib.languages import phrase

from .cell_source import cut, is_cell, names_in, short, statement_at
from .checked_call import checked_call

HEAD = "What the check did:"
ERROR_IN = "the error came from the line: "  # of a check that ran the answer itself (`check_runs`)
CAME_FROM = "the error came from line"  # of an answer that raised
MOST_NAMES = 5  # whose values are told
_CHECKS = {"check", "check_close", "check_equal", "check_keeps", "check_runs", "assert_close"}
_SAY_IT_THEMSELVES = ("CheckFailed", "NotImplementedError")


@dataclass(frozen=True)
class Step:
    """One line of a cell that an error went through.

    positions: of the instruction, as `co_positions` gives them (line, end line, column, end
    column)."""

    frame: FrameType
    line: int
    positions: tuple[int | None, int | None, int | None, int | None]

    @property
    def file(self) -> str:
        return self.frame.f_code.co_filename

    @property
    def function(self) -> str:
        return self.frame.f_code.co_name

    @property
    def text(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    @property
    def values(self) -> dict[str, Any]:
        return {**self.frame.f_globals, **self.frame.f_locals}


def listen() -> None:
    """Add a note to every error that a checks cell ends with, in a notebook.

    Elsewhere nothing happens."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or shell.custom_exceptions:  # someone else listens already
        return

    def told(shell: Any, kind: Any, error: Any, trace: Any, tb_offset: Any = None) -> None:
        """IPython calls this where a cell raises, and shows nothing itself."""
        try:
            add_note(error, trace)
        finally:
            shell.showtraceback((kind, error, trace), running_compiled_code=True)

    shell.set_custom_exc((Exception,), told)


def add_note(error: Exception, trace: TracebackType | None) -> None:
    """Say on the error what the check did, if a check did something."""
    if type(error).__name__ in _SAY_IT_THEMSELVES:
        return
    try:
        note = explained(trace)
    except Exception:
        # An answer's own `__repr__` raised, or a cell is no Python: the error as it is says enough.
        return

    if note:
        error.add_note(note)


def explained(trace: TracebackType | None) -> str:
    """The lines of the note; empty where the error is not one of a checks cell."""
    steps = [step for step in steps_of(trace) if is_cell(step.file)]
    if not steps:
        return ""
    tree = ast.parse("".join(linecache.getlines(steps[0].file)))
    if not has_checks(tree, steps[0].values):
        return ""

    # A checks cell has helpers of its own: the innermost of its lines is the one that called the
    # answer.
    of_checks = [step for step in steps if step.file == steps[0].file]
    first, last = of_checks[0], of_checks[-1]
    # (If the answer calls back, its lines stand between: what counts is behind the last one.)
    place_of_last = max(n for n, step in enumerate(steps) if step == last)
    inside_answer = steps[place_of_last + 1 :]

    statement = statement_at(tree, last.line)
    lines = [phrase(HEAD)]
    if last is not first:
        began = one_line(statement_at(tree, first.line), first)
        lines.append(f"  {phrase('it began with:')} {began}")
    lines.append(f"  {phrase('it ran:')} {one_line(statement, last)}")
    for name, value in inputs(tree, statement, last):
        lines.append("  " + phrase("with {name} = {value}", name=name, value=short(value)))

    if inside_answer:
        lines.append(f"  {came_from(inside_answer[-1])}")
    else:
        for part, value in parts(tree, statement, last):
            lines.append("  " + phrase("{part} gave {value}", part=part, value=short(value)))
        lines += [f"  {line}" for line in call_above(last, lines)]
    return "\n".join(lines)


def came_from(step: Step) -> str:
    """The line of the answer that raised the error."""
    head = phrase(CAME_FROM)
    if step.function == "<module>":
        return phrase("{head} {n}: {line}", head=head, n=step.line, line=step.text)
    return phrase(
        "{head} {n} of `{function}`: {line}",
        head=head,
        n=step.line,
        function=step.function,
        line=step.text,
    )


def call_above(step: Step, told: list[str]) -> list[str]:
    """The call that gave the value, where it stands further up than the line that could not use
    it."""
    call = checked_call(step.frame, step.line)
    if not call or any(call[0] in line for line in told):
        return []
    return [f"{phrase('it had asked:')} {call[0]}", *call[1:]]


def steps_of(trace: TracebackType | None) -> Iterator[Step]:
    """The lines that an error went through, the outermost first."""
    while trace is not None:
        code = trace.tb_frame.f_code
        # `tb_lasti` counts bytes, and `co_positions` has an entry for each two.
        positions = list(code.co_positions())[trace.tb_lasti // 2]
        yield Step(trace.tb_frame, trace.tb_lineno, positions)
        trace = trace.tb_next


# ---- the check's own line ------------------------------------------------------------------------


def one_line(statement: ast.stmt, step: Step) -> str:
    """The statement without line breaks; of a loop or a function the line alone."""
    if isinstance(getattr(statement, "body", None), list):
        return step.text
    return cut(" ".join(ast.unparse(statement).split()))


def has_checks(tree: ast.Module, values: dict[str, Any]) -> bool:
    """Does a cell check an answer, by itself or by a helper that an earlier cell defines
    (`investigate(1, exhibit_1())`)?"""
    called = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree)}
    if called & _CHECKS:
        return True

    codes = [getattr(values.get(name), "__code__", None) for name in called]
    return any(code is not None and _CHECKS.intersection(code.co_names) for code in codes)


def inputs(tree: ast.Module, statement: ast.stmt, step: Step) -> list[tuple[str, Any]]:
    """What the loops around the statement stand at, and the plain values that it uses."""
    loops = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.For) and node.lineno < statement.lineno <= (node.end_lineno or 0)
    ]
    names = [name.id for loop in loops for name in names_in(loop.target)]
    names += [name.id for name in names_in(statement) if isinstance(name.ctx, ast.Load)]
    values = step.values
    names_and_values = []

    for name in dict.fromkeys(names):
        value = values.get(name)
        if name in values and not callable(value) and not isinstance(value, type(sys)):
            names_and_values.append((name, value))

    return names_and_values[:MOST_NAMES]


# ---- what its parts gave -------------------------------------------------------------------------


def parts(tree: ast.Module, statement: ast.stmt, step: Step) -> list[tuple[str, Any]]:
    """The parts of the expression that failed, with what each of them gives."""
    texts_and_values: list[tuple[str, Any]] = []
    for part in parts_of(failed(tree, step) or statement, statement):
        # The part is evaluated once more. `(y := x)` would bind a name, and `await` cannot run
        # here.
        if any(isinstance(each, ast.NamedExpr | ast.Await) for each in ast.walk(part)):
            continue
        # The values of names are told already; the others say nothing.
        if isinstance(part, ast.Constant | ast.Name | ast.GeneratorExp | ast.Lambda):
            continue
        try:
            code = compile(ast.Expression(part), "<part of a check>", "eval")
            texts_and_values.append((cut(ast.unparse(part)), eval(code, step.values)))
        except Exception:
            continue

    return texts_and_values


def failed(tree: ast.Module, step: Step) -> ast.AST | None:
    """The expression or target that the failing instruction belongs to."""
    line, end_line, column, end_column = step.positions
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.Assert):
            at = (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
            if at == (line, end_line, column, end_column):
                return node
    return None


def parts_of(node: ast.AST, statement: ast.stmt) -> list[ast.expr]:
    """The parts of an expression whose values explain its error: of `f(a, b)` the arguments, of
    `a + b` both sides."""
    # `a, b = value` failed at its left side: `value` does not come apart into so many names. So the
    # right side is what explains it.
    if isinstance(node, ast.Tuple | ast.List | ast.Name) and isinstance(node.ctx, ast.Store):
        node = statement

    match node:
        case ast.Assert(test=test):
            return parts_of(test, statement) or [test]
        case ast.For(iter=part):
            return [part]
        case ast.Call(args=args, keywords=keywords):
            plain = [without_star(arg) for arg in args]
            return [*plain, *(keyword.value for keyword in keywords)]
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.Subscript(value=part) | ast.Attribute(value=part):
            return [part]
        case ast.Assign(value=part) | ast.AugAssign(value=part) | ast.Expr(value=part):
            return [part]
        case ast.AnnAssign(value=ast.expr() as part):
            return [part]
    return []


def without_star(arg: ast.expr) -> ast.expr:
    """`*args` → `args`"""
    return arg.value if isinstance(arg, ast.Starred) else arg
