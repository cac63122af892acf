"""Marks are the same everywhere: no code is dropped, no name or switch of the learner's reaches the checks, reasons name the cause.

Notebooks run in a fork of a prepared process (`light_executor`): the same cells as in a kernel, in the same shell. A sample runs in
real kernels and in a sandbox.
"""

from __future__ import annotations

import copy
import json
import sys

import learner_notebooks as learners
import pytest
from learner_changes import EXERCISES, FIRST, GIVEN, answers, at_name, code, course, name_of
from light_executor import light_marks

from course_lib.grading import sandbox
from course_lib.grading.answers import run_cell
from course_lib.grading.assembling import assembled
from course_lib.grading.classroom import without_answers
from course_lib.grading.magics import around
from course_lib.grading.notebooks import read
from course_lib.grading.reader import notebook_from

FULL = sum(points for points, *_ in EXERCISES.values())


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    return course(tmp_path_factory.mktemp("course"))


def solved(lesson) -> dict:
    """The exercise with right answers, as JSON."""
    nb = json.loads(json.dumps(learners.exercise_of(lesson)))
    for cell in answers(nb):
        _, head, right, *_ = EXERCISES[name_of(cell)]
        cell["source"] = f"{head}\n{' ' * (8 if head.startswith('class') else 4)}{right}"
    return nb


def notebook(nb: dict):
    return notebook_from(json.dumps(nb).encode(), "a.ipynb")


def marks_of(lesson, nb: dict) -> dict[str, tuple[float, str]]:
    marks = light_marks(notebook(nb), read(lesson.solution))
    return {mark.grade_id.removeprefix("test_"): (mark.points, mark.reason) for mark in marks}


def points_of(lesson, nb: dict) -> float:
    return sum(points for points, _ in marks_of(lesson, nb).values())


def own(nb: dict, before: str, source: str) -> None:
    """A cell of the learner's own before the cell of this name."""
    nb["cells"].insert(at_name(nb, before), code(source))


# ---- check and grade agree ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(5000, 5012, 4))
def test_what_check_gives_grade_gives(lesson, tmp_path, first):
    reference = without_answers(lesson)
    for seed in range(first, first + 4):
        one = learners.sample(lesson, seed)
        assert learners.complaint(lesson, one, reference, tmp_path, how="fork") == "", one.done


@pytest.mark.slow
@pytest.mark.skipif(bool(sandbox.why_no_sandbox()), reason=sandbox.why_no_sandbox())
@pytest.mark.parametrize("seed", [3, 11, 29])
def test_what_check_gives_in_a_kernel_grade_gives_in_its_sandbox(lesson, tmp_path, seed):
    one = learners.sample(lesson, seed)
    reference = without_answers(lesson)
    assert learners.complaint(lesson, one, reference, tmp_path, how="kernels") == "", one.done


# ---- names and switches ---------------------------------------------------------------------------------------------

HARMLESS = {
    "list": "list = [1, 2, 3]",
    "several builtins": "sum = 0; range = type = len = None",
    "a loop": "for isinstance in range(3): pass",
    "a function called as a check": "def check_equal(*a): return None",
    "check": "check = double([1])",
    "the course's x": "x = 3",
    "the course's helper": "in_all = 7",
    "the course's scale and time": "scale = time = 2.5",
    "an answer's own name": "double = double([1, 2])",
    "a module": "torch = math = None",
    "everything": "%reset -f",
    "one name": "del double, x",
    "star of torch": "from torch import *",
    "star of numpy": "from numpy import *",
    "star of os": "from os import *",
    "get_ipython": "get_ipython = display = 3",
    "the default device": "torch.set_default_device('meta')",
    "the default dtype": "torch.set_default_dtype(torch.float64)",
    "no gradients": "torch.set_grad_enabled(False)",
    "deterministic": "torch.use_deterministic_algorithms(True)",
    "autocast": "torch.autocast('cpu').__enter__()",
    "a device that stays": "torch.device('meta').__enter__()",
    "warnings are errors": "import warnings; warnings.simplefilter('error')",
    "recursion": "import sys; sys.setrecursionlimit(150)",
    "another folder": "import os, tempfile; os.chdir(tempfile.mkdtemp())",
    "no environment": "import os; os.environ.clear()",
    "a builtin itself": "import builtins; builtins.sum = None",
    "exit()": "exit()",
    "quit": "quit",
    "sys.exit": "import sys; sys.exit(3)",
    "SystemExit": "raise SystemExit",
    "an error": "1 / 0",
    "no Python": "def (",
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_cell_of_the_learners_takes_nothing_of_right_answers(lesson, name):
    nb = solved(lesson)
    own(nb, "test_double", HARMLESS[name])
    assert marks_of(lesson, nb) == {each: (EXERCISES[each][0], "") for each in EXERCISES}


# what stands above the course's first cell → what takes the name below it
IMPORTED_TWICE = {
    "a module": ("import torch", "for torch in [1, 2]:\n    pass"),
    "a module, by a value": ("import torch", "torch = 3"),
    "two modules": ("import torch, time, math", "torch = time = math = None"),
    "a check": ("from course_lib.grading import check_equal", "check_equal = 3"),
    "all checks": ("from course_lib.grading import *", "check = check_close = check_equal = 0"),
    "a module under another name": ("import time as torch", "torch = 3"),
    "with a switch": ("import torch\ntorch.set_autocast_enabled('cpu', True)", "torch = 2"),
}


@pytest.mark.parametrize("name", IMPORTED_TWICE)
def test_what_learner_and_course_both_import_stays_the_courses(lesson, name):
    above, below = IMPORTED_TWICE[name]
    nb = solved(lesson)
    first = next(n for n, cell in enumerate(nb["cells"]) if cell["cell_type"] == "code")
    nb["cells"].insert(first, code(above))
    nb["cells"].insert(first + 2, code(below))
    assert points_of(lesson, nb) == FULL


def test_the_learners_values_are_back_after_a_cell_of_the_course(lesson):
    nb = solved(lesson)
    own(nb, "test_double", "x = list = 'mine'\ntorch.set_default_dtype(torch.float64)")
    own(
        nb,
        "total",
        "assert (x, list) == ('mine', 'mine') and torch.get_default_dtype() is torch.float64\nSEEN = 1",
    )
    i = at_name(nb, "total")
    nb["cells"][i]["source"] = "SEEN\n" + nb["cells"][i]["source"]
    # the course's x comes in a given cell later: that one counts from there on
    given = next(n for n, cell in enumerate(nb["cells"]) if cell["source"] == GIVEN)
    nb["cells"].insert(given, nb["cells"].pop(i - 1))
    assert points_of(lesson, nb) == FULL


def test_a_helper_with_a_builtins_name_is_the_learners(lesson):
    nb = solved(lesson)
    own(nb, "double", "def hash(numbers):\n    return [2 * n for n in numbers]")
    nb["cells"][at_name(nb, "double")]["source"] = "def double(numbers):\n    return hash(numbers)"
    assert points_of(lesson, nb) == FULL


def test_a_constant_with_a_builtins_name_is_the_learners(lesson):
    nb = solved(lesson)
    own(nb, "double", "max = 2")
    nb["cells"][at_name(nb, "double")]["source"] = (
        "def double(numbers):\n    return [max * n for n in numbers]"
    )
    assert points_of(lesson, nb) == FULL


def test_a_real_attempt_to_replace_the_checks_is_seen(lesson):
    for body in (
        "global check_equal\n    check_equal = print",
        "import course_lib.grading.checks as c\n    c.check_equal = print",
        "global check_equal\n    check_equal = print\n    import sys\n"
        "    keepers = [m.keeper for m in sys.modules.values() if hasattr(m, 'keeper')]\n"
        "    keepers[-1].watched.clear()",
        "torch.allclose = torch.equal = lambda *a: True",
    ):
        nb = solved(lesson)
        nb["cells"][at_name(nb, "double")]["source"] = f"def double(numbers):\n    {body}"
        marks = marks_of(lesson, nb)
        assert marks["double"][0] == 0, body
        assert "tampered" in marks["double"][1] or "changes the code" in marks["double"][1], body


# ---- no code is dropped ---------------------------------------------------------------------------------------------


def import_in_the_first_cell(nb):
    i = next(n for n, cell in enumerate(nb["cells"]) if cell["source"] == FIRST)
    nb["cells"][i]["source"] += "\nfrom functools import reduce"
    uses(nb, "reduce")


def import_before_the_first_line(nb):
    i = next(n for n, cell in enumerate(nb["cells"]) if cell["source"] == FIRST)
    nb["cells"][i]["source"] = "import itertools\n" + FIRST
    uses(nb, "itertools.count")


def magic_in_the_first_cell(nb):
    i = next(n for n, cell in enumerate(nb["cells"]) if cell["source"] == FIRST)
    nb["cells"][i]["source"] = f"%no_such_magic\n{FIRST}\nOWN = 3"
    uses(nb, "OWN")


def helper_in_the_checks(nb):
    nb["cells"][at_name(nb, "test_double")]["source"] = (
        "def helper():\n    return 2\ncheck_equal(1, 2, '')"
    )
    uses(nb, "helper")


def constant_in_a_given_cell(nb):
    i = next(n for n, cell in enumerate(nb["cells"]) if cell["source"] == GIVEN)
    nb["cells"][i]["source"] = GIVEN + "\n\nHALF = 0.5"
    uses(nb, "HALF", "halved")


def uses(nb, what, name="double"):
    """The answer reads this first."""
    cell = nb["cells"][at_name(nb, name)]
    *head, body = cell["source"].split("\n")
    indent = body[: len(body) - len(body.lstrip())]
    cell["source"] = "\n".join([*head, f"{indent}{what}", body])


def split_between(nb):
    cell = nb["cells"][at_name(nb, "double")]
    half = copy.deepcopy(cell) | {"id": "half"}
    cell["source"], half["source"] = "TWO = 2", cell["source"].replace("2 *", "TWO *")
    nb["cells"].insert(at_name(nb, "double") + 1, half)


def split_inside(nb):
    i = at_name(nb, "double")
    half = copy.deepcopy(nb["cells"][i]) | {"id": "half"}
    nb["cells"][i]["source"], half["source"] = nb["cells"][i]["source"].rsplit("\n", 1)
    nb["cells"].insert(i + 1, half)


def stub_below(nb):
    i = at_name(nb, "double")
    source = "def double(numbers):\n    raise NotImplementedError('Exercise: write this part')"
    nb["cells"].insert(i + 1, copy.deepcopy(nb["cells"][i]) | {"id": "stub", "source": source})


def better_copy_below(nb):
    i = at_name(nb, "double")
    nb["cells"].insert(i + 1, copy.deepcopy(nb["cells"][i]) | {"id": "better"})
    nb["cells"][i]["source"] = "def double(numbers):\n    return 0"


def metadata_lost(nb):
    nb["cells"][at_name(nb, "double")]["metadata"] = {}


def metadata_and_ids_lost(nb):
    for cell in nb["cells"]:
        cell["metadata"] = {}
        del cell["id"]


def written_in_a_new_cell(nb):
    i = at_name(nb, "double")
    nb["cells"][i] = code(nb["cells"][i]["source"])


def made_prose(nb):
    nb["cells"][at_name(nb, "double")]["cell_type"] = "markdown"


def given_cell_deleted(nb):
    nb["cells"] = [cell for cell in nb["cells"] if cell["source"] not in (FIRST, GIVEN)]


def below_a_magic(nb):
    cell = nb["cells"][at_name(nb, "double")]
    cell["source"] = "%%time\n" + cell["source"]


def exit_below(nb):
    nb["cells"][at_name(nb, "double")]["source"] += "\nexit()"


KEPT = [
    import_in_the_first_cell, import_before_the_first_line, magic_in_the_first_cell, helper_in_the_checks,
    constant_in_a_given_cell, split_between, split_inside, stub_below, better_copy_below, metadata_lost,
    metadata_and_ids_lost, written_in_a_new_cell, made_prose, given_cell_deleted, below_a_magic, exit_below,
]  # fmt: skip


@pytest.mark.parametrize("change", KEPT, ids=lambda change: change.__name__)
def test_no_code_is_dropped(lesson, change):
    nb = solved(lesson)
    change(nb)
    assert marks_of(lesson, nb) == {each: (EXERCISES[each][0], "") for each in EXERCISES}


def after_one_more_cell(cells):
    new = copy.deepcopy(cells[1])
    new.id, new.source = "new-given", "NEW = 1"
    cells.insert(3, new)


def after_a_cell_less(cells):
    cells[:] = [cell for cell in cells if cell["source"] != GIVEN]


def after_prose_left(cells):
    cells[:] = [cell for cell in cells if "The checks of" not in cell["source"]]


def after_checks_moved_behind_prose(cells):
    prose = next(cell for cell in cells if cell["source"] == "The checks of double.")
    cells.remove(prose)
    cells.insert(len(cells), prose)


@pytest.mark.parametrize(
    "release",
    [after_one_more_cell, after_a_cell_less, after_prose_left, after_checks_moved_behind_prose],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("name", ["double", "total", "halved"])
def test_a_helper_stays_before_the_checks_in_another_release(lesson, release, name):
    nb = solved(lesson)
    own(nb, f"test_{name}", "def helper(): return 1")
    reference = read(lesson.solution)
    release(reference.cells)
    made = assembled(notebook(nb), reference)
    sources = [cell.source for cell in made.cells]
    checks = next(n for n, c in enumerate(made.cells) if name_of(c) == f"test_{name}")
    assert sources.index("def helper(): return 1") < checks


# ---- one exact sentence ---------------------------------------------------------------------------------------------


def deleted(nb):
    del nb["cells"][at_name(nb, "double")]


def emptied(nb):
    nb["cells"][at_name(nb, "double")]["source"] = ""


def renamed(nb):
    cell = nb["cells"][at_name(nb, "double")]
    cell["source"] = cell["source"].replace("double", "doubled")


def helper_below(nb):
    uses(nb, "helper()")
    nb["cells"].append(code("def helper(): return 1"))


def helper_failed(nb):
    uses(nb, "helper()")
    own(nb, "double", "1 / 0\ndef helper(): return 1")


def raise_below(nb):
    cell = nb["cells"][at_name(nb, "double")]
    cell["source"] = (
        "def double(numbers):\n    made = [2 * n for n in numbers]\n    raise NotImplementedError\n    return made")  # fmt: skip


def not_written(nb):
    cell = nb["cells"][at_name(nb, "double")]
    cell["source"] = cell["source"].split("\n")[0] + (
        "\n    raise NotImplementedError('Exercise: write this part, then run the cell again.')")  # fmt: skip


def not_written_but_documented(nb):
    not_written(nb)
    cell = nb["cells"][at_name(nb, "double")]
    cell["source"] = cell["source"].replace(":\n", ":\n    '''Mine.'''\n", 1)


def variable_in_the_way(nb):
    own(nb, "double", "abs = 3")
    nb["cells"][at_name(nb, "double")]["source"] = (
        "def double(numbers):\n    abs[0]\n    return abs(2)"
    )


def function_in_the_way(nb):
    own(nb, "double", "def sum(a, b):\n    return a + b")
    nb["cells"][at_name(nb, "double")]["source"] = "def double(numbers):\n    return sum(numbers)"


def does_not_compile(nb):
    nb["cells"][at_name(nb, "double")]["source"] = "def double(numbers)\n    return 2"


REASONS = {
    deleted: "The cell of the answer `double` is not there",
    emptied: "The cell of the answer `double` is empty.",
    renamed: "does not define `double`, which the checks call. It defines `doubled`",
    helper_below: "`helper` is defined further down, in cell 16",
    helper_failed: "`helper` is missing, for cell 4 did not finish: ZeroDivisionError",
    raise_below: "`raise NotImplementedError` still stands below the answer, in line 3 of its cell",
    not_written: "Not written yet.",
    not_written_but_documented: "Not written yet.",
    variable_in_the_way: "`abs` is your variable from cell 4 (`abs = 3`)",
    function_in_the_way: "`sum` is your function from cell 4 (`def sum(a, b):`)",
    does_not_compile: "The cell above it did not finish: SyntaxError",
}


@pytest.mark.parametrize("change", REASONS, ids=lambda change: change.__name__)
def test_the_reason_names_the_cause(lesson, change):
    nb = solved(lesson)
    change(nb)
    marks = marks_of(lesson, nb)
    assert marks["double"][0] == 0 and REASONS[change] in marks["double"][1]
    assert [points for points, _ in marks.values()] == [0, 3, 4]


# ---- without IPython ------------------------------------------------------------------------------------------------

MAGICS = {
    "%%time\nx = 1": 1,
    "%%capture out\nx = 1": 1,
    "\n%%time\n%%capture\nx = 1": 1,
    "%time x = 1": 1,
    "!ls\nx = 1": 1,
    "files = !ls\nx = 1 + len(files)": 1,
    "%matplotlib inline\nx = 1": 1,
    "x = 1\nx?": 1,
    "%%bash\nexit 3": None,
    "display(3); x = 1": 1,
    "%timeit 1\nx = 1": 1,
}


@pytest.mark.parametrize("source", MAGICS)
def test_assemble_runs_cells_with_magics(source):
    names = {}
    names |= around(names)
    get = names["get_ipython"]
    get().user_ns = names
    run_cell(source, names, "<cell>")
    assert names.get("x") == MAGICS[source]


@pytest.mark.parametrize("source", ["exit()", "quit()", "exit(3)", "raise SystemExit"])
def test_exit_ends_a_cell_and_nothing_else(source):
    with pytest.raises(SystemExit):
        run_cell(source, around({}), "<cell>")
    assert not sys.stdin.closed
