"""An error in a checks cell names the answer's line and the check's input, or what came back that the check cannot use."""

from __future__ import annotations

import linecache

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.grading.explained import HEAD, add_note
from course_lib.grading.runner import run_notebook

ANSWERS = """import torch
from course_lib.grading import check, check_equal
def boxes(sizes):
    smallest = min(sizes)
    return smallest
def pair(x):
    return 3
def rows(x):
    return []
class Odd:
    def __repr__(self):
        raise KeyError("no words")
def odd():
    return Odd()
def calls(f):
    return f()
"""


def words_of(function) -> str:
    """What this Python says where there is nothing to take the least or the greatest of."""
    try:
        return str(function(size for size in []))
    except ValueError as error:
        return str(error)


TABLE = {
    "the answer raises in a loop over inputs": (
        "for what, given in (('one', [1]), ('none', [])):\n    check_equal(boxes(given), 1, what)",
        words_of(min),
        ["it ran: check_equal(boxes(given), 1, what)", "with what = 'none'", "with given = [] (list)",
         "the error came from line 4 of `boxes`: smallest = min(sizes)"],
    ),
    "an int in place of a pair": (
        "a, b = pair(7)\ncheck_equal(a, 1, 'x')",
        "cannot unpack non-iterable int object",
        ["it ran: a, b = pair(7)", "pair(7) gave 3 (int)"],
    ),
    "pairs in a loop": (
        "for a, b in [pair(1)]:\n    check_equal(a, b, 'x')",
        "cannot unpack non-iterable int object",
        ["it ran: for a, b in [pair(1)]:", "[pair(1)] gave [3] (list)"],
    ),
    "nothing to take the least of": (
        "check_equal(min(rows(3)), 1, 'x')",
        words_of(min),
        ["it ran: check_equal(min(rows(3)), 1, 'x')", "rows(3) gave [] (list)"],
    ),
    "nothing at a place": (
        "check_equal(rows(3)[0], 1, 'x')",
        "list index out of range",
        ["rows(3) gave [] (list)"],
    ),
    "an attribute that an int has not": (
        "check_equal(pair(3).shape, 1, 'x')",
        "no attribute 'shape'",
        ["pair(3) gave 3 (int)"],
    ),
    "a sum of what cannot be added": (
        "check(pair(1) + rows(2) == 3, 'x')",
        "unsupported operand",
        ["pair(1) gave 3 (int)", "rows(2) gave [] (list)"],
    ),
    "torch's own comparison": (
        "torch.testing.assert_close(torch.ones(2) * pair(2), torch.ones(2))",
        "Tensor-likes are not close",
        ["torch.ones(2) * pair(2) gave tensor([3., 3.])", "torch.ones(2) gave tensor([1., 1.])"],
    ),
    "a bare assert": ("check(True, '')\nassert pair(3) == 4", "", ["it ran: assert pair(3) == 4", "pair(3) gave 3 (int)"]),
    "a helper of the checks": (
        "def helper(f, given):\n    out = f(given)\n    return max(len(row) for row in out)\n"
        "check_equal(helper(rows, 2), 1, 'x')",
        words_of(max),
        ["it began with: check_equal(helper(rows, 2), 1, 'x')", "it ran: return max((len(row) for row in out))",
         "with out = [] (list)"],
    ),
    "an answer without words": (
        "check_equal(odd() + 1, 1, 'x')",
        "unsupported operand",
        ["odd() gave a Odd (its repr raised KeyError)"],
    ),
    "the answer calls back": (
        "check(calls(lambda: 1 / 0), 'x')",
        "division by zero",
        ["it began with: check(calls(lambda: 1 / 0), 'x')"],
    ),
}  # fmt: skip


def run(source: str, names: dict, file: str) -> Exception | None:
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    try:
        exec(compile(source, file, "exec"), names)
    except Exception as error:
        add_note(error, error.__traceback__.tb_next)
        return error
    return None


@pytest.fixture
def names():
    found: dict = {}
    run(ANSWERS, found, "<answers>")
    return found


@pytest.mark.parametrize("case", TABLE)
def test_the_note_says_what_the_check_did(case, names):
    source, said, wanted = TABLE[case]
    error = run(source, names, "<checks>")
    assert said in str(error)
    [note] = error.__notes__
    lines = [line.strip() for line in note.splitlines()]
    assert lines[0] == HEAD and set(wanted) <= set(lines), note


@pytest.mark.parametrize(
    "source",
    ["1 / 0", "check(False, 'it says so itself')", "def f():\n    raise NotImplementedError\ncheck(f(), '')"],
)  # fmt: skip
def test_what_needs_no_note_gets_none(source, names):
    assert not hasattr(run(source, names, "<checks>"), "__notes__")


def test_a_cell_of_a_notebook_shows_the_note_and_an_ordinary_error_is_as_it_was(tmp_path):
    sources = [ANSWERS, TABLE["an int in place of a pair"][0], "1 / 0"]
    nb = new_notebook(cells=[new_code_cell(source) for source in sources])
    nbformat.validate(nb)
    first, checks, other = run_notebook(nb, tmp_path)
    assert first.ok
    assert checks.traceback.splitlines()[-1].strip() == "pair(7) gave 3 (int)"
    assert other.ename == "ZeroDivisionError" and HEAD not in other.traceback
    assert "1 / 0" in other.traceback or "1/0" in other.traceback
