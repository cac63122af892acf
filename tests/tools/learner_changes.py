"""A small course, and what learners, editors and services do to its notebooks: one function for each change.

In:  a notebook as JSON and a source of random draws. Out: the notebook changed, so that no right answer is another one.

`CHANGES`: kind → name → change. `ENCODINGS`: name → how the file's text becomes bytes. `learner_notebooks` draws from both.
"""

from __future__ import annotations

import collections
import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.grading.notebooks import Lesson, tidy, to_text

# ---- the course -----------------------------------------------------------------------------------------------------

FIRST = """import math
import time
import torch
from course_lib.grading import check, check_close, check_equal"""
GIVEN = """def in_all(numbers):
    return sum(list(numbers))

x, scale = torch.arange(6.0), 3"""

# name: (points, head of the function, a right body, a wrong body, checks, hidden checks)
EXERCISES = {
    "double": (
        2, "def double(numbers):", "return [2 * n for n in list(numbers)]", "return numbers",
        "check_equal(double([1, 2]), [2, 4], 'double')", "check_equal(double(range(3)), [0, 2, 4], 'more')"),
    "total": (
        3, "def total(rows):", "return in_all(sum(row) for row in rows)", "return 0",
        "check_equal(total([[1], [2, 3]]), 6, 'total')\ncheck_equal(in_all([scale, 1]), 4, 'given')",
        "check_equal(total([range(n) for n in range(4)]), 4, 'more')"),
    "halved": (
        4, "class Halved:\n    def of(self, value):", "start = time.perf_counter()\n        return value / 2",
        "return value",
        "check_close(Halved().of(x), torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), 'halved')",
        "check_close(Halved().of(torch.ones(2, 2)), torch.full((2, 2), 0.5), 'more')"),
}  # fmt: skip


def about(grade_id: str, **more: Any) -> dict[str, Any]:
    """nbgrader's metadata of a cell."""
    plain = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    return {"nbgrader": plain | {"grade_id": grade_id} | more}


def course(folder: Path) -> Lesson:
    """A course of one lesson, written into `folder`."""
    cells = [new_markdown_cell("# A small lesson → größer"), new_code_cell(FIRST)]
    for name, (points, head, right, _, shown, hidden) in EXERCISES.items():
        if name == "total":
            cells.append(new_code_cell(GIVEN))
        indent = " " * (8 if head.startswith("class") else 4)
        body = f"{indent}### BEGIN SOLUTION\n{indent}{right}\n{indent}### END SOLUTION"
        secret = f"### BEGIN HIDDEN TESTS\n{hidden}\n### END HIDDEN TESTS"
        cells += [
            new_markdown_cell(f"## Exercise: {name}"),
            new_code_cell(f"{head}\n{body}", metadata=about(name, solution=True)),
            new_markdown_cell(f"The checks of {name}."),
            new_code_cell(
                f"{shown}\n{secret}",
                metadata=about(f"test_{name}", grade=True, locked=True, points=points),
            ),
        ]
    lesson = Lesson(folder, "01_small")
    lesson.solution.parent.mkdir(parents=True)
    lesson.solution.write_text(to_text(tidy(new_notebook(cells=cells))), encoding="utf-8")
    return lesson


# ---- changes --------------------------------------------------------------------------------------------------------

Change = Callable[[dict[str, Any], random.Random], None]
CHANGES: dict[str, dict[str, Change]] = collections.defaultdict(dict)


def change(kind: str) -> Callable[[Change], Change]:
    def add(function: Change) -> Change:
        CHANGES[kind][function.__name__] = function
        return function

    return add


def name_of(cell: dict[str, Any]) -> str:
    found = cell.get("metadata", {}).get("nbgrader", {})
    return str(found.get("grade_id", ""))


def at_name(nb: dict[str, Any], name: str) -> int:
    """Where the cell of this grade id is."""
    return next(n for n, cell in enumerate(nb["cells"]) if name_of(cell) == name)


def answers(nb: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in nb["cells"] if name_of(cell) in EXERCISES]


def code(source: str) -> dict[str, Any]:
    return json.loads(json.dumps(new_code_cell(source)))


def add_own(nb: dict[str, Any], draw: random.Random, source: str, first: int = 0) -> None:
    """A cell of the learner's own anywhere (from `first` on)."""
    nb["cells"].insert(draw.randint(first, len(nb["cells"])), code(source))


@change("format")
def another_minor(nb, draw):
    nb["nbformat_minor"] = draw.choice([0, 1, 2, 4, 5, 9])


@change("format")
def format_3(nb, draw):
    # format 3 has no ids; cells keep their metadata
    cells = []
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            old = {"cell_type": "code", "input": cell["source"], "language": "python"}
            cells.append(old | {"metadata": cell["metadata"], "outputs": [], "collapsed": False})
        else:
            cells.append({key: v for key, v in cell.items() if key != "id"})
    nb.pop("cells")
    nb |= {"nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": cells, "metadata": {}}]}


@change("format")
def ids(nb, draw):
    new = draw.choice([None, "same", "a b", 7, ["x"], "drop", "counted"])
    for number, cell in enumerate(nb["cells"]):
        cell["id"] = f"cell-{number:02d}" if new == "counted" else new
        if new == "drop":
            del cell["id"]


@change("format")
def outputs(nb, draw):
    bad = [
        {"output_type": "stream", "text": "no name"}, {"output_type": "sixel"}, "text", None,
        {"output_type": "stream", "name": "stdout", "text": "x" * 50_000},
        {"output_type": "execute_result", "data": {"text/plain": ["1"]}, "metadata": {}},
    ]  # fmt: skip
    for cell in nb["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = draw.choices(bad, k=draw.randint(0, 3))
            cell["execution_count"] = draw.choice([None, 3, "*", -1])


@change("format")
def lines(nb, draw):
    keep = draw.random() < 0.7
    for cell in nb["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=keep)


@change("format")
def windows_lines(nb, draw):
    for cell in nb["cells"]:
        if isinstance(cell["source"], str):
            cell["source"] = cell["source"].replace("\n", "\r\n")


@change("metadata")
def of_the_notebook(nb, draw):
    nb["metadata"] = draw.choice(
        [{}, None, {"kernelspec": {"name": "ir", "display_name": "R"}}, {"language_info": 3}]
    )


@change("metadata")
def of_plain_cells(nb, draw):
    for cell in nb["cells"]:
        if not name_of(cell):
            cell["metadata"] = draw.choice([{}, None, {"collapsed": 1, "tags": "x"}])


@change("metadata")
def of_an_answer(nb, draw):
    """Colab and others drop what they do not know. The id is there, or what the cell defines says which it is."""
    cell = draw.choice(answers(nb))
    cell["metadata"] = {}
    if draw.random() < 0.5:
        cell["id"] = "drawn000"


@change("metadata")
def of_all_cells(nb, draw):
    for cell in nb["cells"]:
        cell["metadata"] = {}


@change("cells")
def prose_moved(nb, draw):
    prose = [cell for cell in nb["cells"] if cell["cell_type"] == "markdown"]
    nb["cells"].remove(moved := draw.choice(prose))
    nb["cells"].insert(draw.randint(0, len(nb["cells"])), moved)


@change("cells")
def own_code(nb, draw):
    add_own(
        nb,
        draw,
        draw.choice(
            ["1 / 0", "y = 3\ny", "def helper(): return 1", "print('a' * 9)", "syntax error"]
        ),
    )


@change("cells")
def a_cell_doubled(nb, draw):
    at = draw.randrange(len(nb["cells"]))
    twin = copy.deepcopy(nb["cells"][at]) | {"id": f"twin-{at}"}
    nb["cells"].insert(at + 1, twin)


@change("cells")
def a_stub_kept_below(nb, draw):
    cell = draw.choice(answers(nb))
    head = EXERCISES[name_of(cell)][1]
    indent = " " * (8 if head.startswith("class") else 4)
    stub = "raise NotImplementedError('Exercise: write this part, then run the cell again.')"
    twin = copy.deepcopy(cell) | {"id": "kept-stub", "source": f"{head}\n{indent}{stub}"}
    nb["cells"].insert(nb["cells"].index(cell) + draw.randint(0, 1), twin)


@change("cells")
def an_answer_split(nb, draw):
    cell = draw.choice(answers(nb))
    half = copy.deepcopy(cell) | {"id": "half", "source": "import functools\n\nLIMIT = 3"}
    nb["cells"].insert(nb["cells"].index(cell) + draw.randint(0, 1), half)


@change("cells")
def an_answer_split_inside(nb, draw):
    cell = draw.choice(answers(nb))
    head, body = cell["source"].rsplit("\n", 1)
    half = copy.deepcopy(cell) | {"id": "half-inside", "source": body}
    cell["source"] = head
    nb["cells"].insert(nb["cells"].index(cell) + 1, half)


@change("cells")
def lines_added_to_a_given_cell(nb, draw):
    cell = next(cell for cell in nb["cells"] if cell["source"] == FIRST)
    cell["source"] += "\nfrom functools import reduce"
    for answer in answers(nb):
        answer["source"] = answer["source"].replace("):\n", "):\n    reduce\n", 1)
        if answer["source"].startswith("class"):
            answer["source"] = answer["source"].replace("    reduce\n", "        reduce\n")


@change("cells")
def a_course_cell_deleted(nb, draw):
    ours = [
        c for c in nb["cells"] if name_of(c).startswith("test_") or c["source"] in (FIRST, GIVEN)
    ]
    nb["cells"].remove(draw.choice(ours))


@change("cells")
def checks_edited(nb, draw):
    cell = draw.choice([cell for cell in nb["cells"] if name_of(cell).startswith("test_")])
    cell["source"] = draw.choice(["pass", "1 / 0", "", "def check_equal(*a): pass"])


@change("cells")
def an_answer_in_another_type(nb, draw):
    cell = draw.choice(answers(nb))
    cell["cell_type"] = draw.choice(["markdown", "raw", "Code"])
    cell.pop("outputs", None)


@change("cells")
def an_answer_written_in_a_new_cell(nb, draw):
    cell = draw.choice(answers(nb))
    nb["cells"][nb["cells"].index(cell)] = code(cell["source"])


VALUES = ["0", "[1, 2, 3]", "None", "'text'", "torch.zeros(2) if 'torch' in globals() else 1.5"]
TAKEN = (
    "list sum range len type print max min str int tuple check check_equal check_close x scale in_all math time torch "
    "double total Halved isinstance zip open id set dict getattr exit get_ipython"
).split()


@change("names")
def a_variable(nb, draw):
    add_own(nb, draw, f"{draw.choice(TAKEN)} = {draw.choice(VALUES)}")


@change("names")
def a_loop(nb, draw):
    add_own(nb, draw, f"for {draw.choice(TAKEN)} in [1, 2]:\n    pass")


@change("names")
def a_function_nobody_calls(nb, draw):
    """A function of the learner's under a name that is Python's or a check's."""
    name = draw.choice("check check_equal check_close input vars hash compile format".split())
    add_own(nb, draw, f"def {name}(*args, **more):\n    return args")


@change("names")
def a_star(nb, draw):
    add_own(nb, draw, f"from {draw.choice(['torch', 'numpy', 'math', 'os', 'torch.nn'])} import *")


@change("names")
def all_gone(nb, draw):
    add_own(nb, draw, draw.choice(["%reset -f", "%reset -sf", "del double", "globals().clear()"]))


SWITCHES = """torch.set_default_device("meta")
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
torch.set_autocast_enabled("cpu", True)
torch.device("meta").__enter__()
torch.autocast("cpu").__enter__()
torch.no_grad().__enter__()
torch.autograd.set_detect_anomaly(True)
torch.set_float32_matmul_precision("medium")
torch.manual_seed(7)
torch.set_printoptions(precision=1)
import warnings; warnings.simplefilter("error")
import sys; sys.setrecursionlimit(120)
import numpy; numpy.seterr(all="raise")
import gc; gc.disable()
import os; os.environ.clear()
import os, tempfile; os.chdir(tempfile.mkdtemp())
import sys; sys.path.clear()
import builtins; builtins.sum = None""".splitlines()


@change("switches")
def a_switch(nb, draw):
    add_own(nb, draw, f"import torch\n{draw.choice(SWITCHES)}")


EXITS = ["exit()", "quit()", "exit", "import sys; sys.exit(1)", "raise SystemExit", "exit(0)"]


@change("exit")
def an_exit(nb, draw):
    add_own(nb, draw, draw.choice(EXITS))


@change("exit")
def an_exit_below_an_answer(nb, draw):
    draw.choice(answers(nb))["source"] += f"\n\n{draw.choice(['exit()', 'raise SystemExit(3)'])}"


@change("magics")
def a_magic_above_an_answer(nb, draw):
    cell = draw.choice(answers(nb))
    cell["source"] = f"{draw.choice(['%%time', '%%capture out'])}\n{cell['source']}"


@change("magics")
def a_magic(nb, draw):
    words = [
        "%matplotlib inline",
        "!true",
        "%timeit -n1 -r1 1",
        "%time 1",
        "x?",
        "%%html\n<b>",
        "%no_such_magic",
    ]
    add_own(nb, draw, draw.choice(words))


# ---- encodings ------------------------------------------------------------------------------------------------------

ENCODINGS: dict[str, Callable[[str], bytes]] = {}


def encoding(function: Callable[[str], bytes]) -> Callable[[str], bytes]:
    ENCODINGS[function.__name__] = function
    return function


@encoding
def utf_8(text):
    return text.encode()


@encoding
def with_a_mark(text):
    return text.encode("utf-8-sig")


@encoding
def utf_16(text):
    return text.encode("utf-16")


@encoding
def utf_16_without_mark(text):
    return text.encode("utf-16-be")


@encoding
def windows_file(text):
    return text.replace("\n", "\r\n").encode()


@encoding
def windows_page(text):
    return text.replace("→", "-").encode("cp1252")


@encoding
def a_tail(text):
    return text.encode() + b'"]\n}\n]}\n'


@encoding
def zeros_behind(text):
    return text.encode() + b"\0" * 64


@encoding
def cut_short(text):
    return text[: len(text) * 2 // 3].encode()


@encoding
def conflict(text):
    first, rest = text.split("\n", 1)
    return f"{first}\n<<<<<<< HEAD\n=======\n>>>>>>> b\n{rest}".encode()


BROKEN = ("cut_short", "conflict")
