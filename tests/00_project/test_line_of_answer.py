"""A failed check names the line of the answer that gave the value, and the call that it made, with its inputs."""

from __future__ import annotations

import linecache

import pytest
from nbformat.v4 import new_code_cell

from course_lib.grading.checks import CheckFailed
from course_lib.grading.line_of_answer import line_of_the_answer

# kind → (the answer's cell, what the check said, the lines that follow)
LINES = {
    "one return": (
        "def f(x):\n    y = x + 1\n    return y",
        "What: f\nCall:     f(3)\nGot: 4",
        "Line:     3 of `f`: return y",
    ),
    "two returns": (
        "def f(x):\n    if x:\n        return 1\n    return 2",
        "Call:     f(3)",
        "Line:     3, 4 of `f`, where it returns",
    ),
    "no return, and None came": (
        "def f(x):\n    y = x",
        "Call:     f(3)\nGot:      None",
        "Line:     `f` has no `return` with a value, so that it gives None",
    ),
    "a print in its place": (
        "def f(x):\n    print(x)",
        "Call:     f(3)\nGot:      NoneType",
        "Line:     `f` has no `return` with a value, so that it gives None: `print` shows a value and gives none",
    ),
    "no return, and none is asked for": (
        "def f(x):\n    x.append(1)",
        "Call:     f(3)\nGot:      [1]",
        "Line:     1 to 2 of `f`",
    ),
    "the function that is called, of two": (
        "def f(x):\n    return 1\ndef g(x):\n    return 2",
        "Call:     g(3)",
        "Line:     4 of `g`: return 2",
    ),
    "the function that the first words name": (
        "def f(x):\n    return 1\ndef g(x):\n    return 2",
        "What:     the result of f",
        "Line:     2 of `f`: return 1",
    ),
    "a method": (
        "class A:\n    def __init__(self):\n        self.x = 1\n    def go(self):\n        return 2",
        "Call:     A().go()",
        "Line:     5 of `A.go`: return 2",
    ),
    "the return of an inner function is not its own": (
        "def f(x):\n    def inner():\n        return 1\n    return inner",
        "Call:     f(3)",
        "Line:     4 of `f`: return inner",
    ),
    "no function at all": ("x = 3", "Got: 4", ""),
    "no Python": ("def f(:", "Got: 4", ""),
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
def test_the_line_that_gave_the_value(kind):
    source, said, wanted = LINES[kind]
    assert line_of_the_answer(said, [new_code_cell(source)]).strip() == wanted


ANSWERS = """from course_lib.grading import check, check_equal
class Plain:
    def work(self):
        return 3
def total(numbers, start=0):
    return sum(numbers) + start
"""

# kind → (the checks, the lines of the call)
CALLS = {
    "in the check's own line": (
        "given = [1, 2]\ncheck_equal(total(given), 4, 'x')",
        ["total(given)", "with given = [1, 2] (list)"],
    ),
    "in the line above": (
        "given = [1, 2]\ngot = total(given, start=5)\ncheck_equal(got, 4, 'x')",
        ["total(given, start=5)", "with given = [1, 2] (list)"],
    ),
    "the nearest of several": (
        "got = total([1])\ngot = total([2])\ncheck_equal(got, 4, 'x')",
        ["total([2])"],
    ),
    "in a loop": (
        "for given in ([4], [1]):\n    check_equal(total(given), 4, 'x')",
        ["total(given)", "with given = [1] (list)"],
    ),
    "a call that changed what is looked at": (
        "given = []\nunused = total(given)\ncheck_equal(given, [1], 'x')",
        ["total(given)", "with given = [] (list)"],
    ),
    "in a helper of the checks": (
        "def helper(given):\n    check_equal(total(given), 4, 'x')\nhelper([7])",
        ["total(given)", "with given = [7] (list)"],
    ),
    "a method": ("plain = Plain()\ncheck_equal(plain.work(), 4, 'x')", ["plain.work()"]),
    "an input without words": (
        "plain, given = Plain(), [1]\ncheck_equal(total(given, plain.work()), 5, 'x')",
        ["total(given, plain.work())", "with given = [1] (list)"],
    ),
    "none": ("check_equal(3, 4, 'x')", []),
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_call_that_was_made(kind):
    source, wanted = CALLS[kind]
    names: dict = {}
    for file, text in (("<answers of a learner>", ANSWERS), ("<checks of the course>", source)):
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(ANSWERS, "<answers of a learner>", "exec"), names)

    with pytest.raises(CheckFailed) as raised:
        exec(compile(source, "<checks of the course>", "exec"), names)
    lines = str(raised.value).splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("Call:")), len(lines))
    end = next((n for n, line in enumerate(lines) if line.startswith("Expected:")), 0)
    assert [line.removeprefix("Call:").strip() for line in lines[start:end]] == wanted


@pytest.mark.parametrize(
    "file", ["/tmp/ipykernel_2417/385142.py", "<ipython-input-3-2f9e81ab77f0>"]
)
def test_a_cell_is_not_called_by_the_name_of_its_file(file):
    said = str(CheckFailed("x", f"a break at {file}:12 in f"))
    assert "a break at a cell, line 12 in f" in said
