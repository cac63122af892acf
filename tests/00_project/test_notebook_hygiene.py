"""What `pytest --nbval` lets through: stripped outputs, stale runs, marks that waive too much (no kernel, milliseconds)."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import nbformat
import pytest
from handed_out import exercise_of
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib import config
from course_lib.grading.notebooks import Lesson, code_digest, graded_cells, outputs_digest
from course_lib.grading.store import WIDGET

ROOT = Path(__file__).parents[2]
STORED = sorted(ROOT.glob("notebooks/*.ipynb")) + sorted(ROOT.glob("solutions/*/*.ipynb"))
MAX_CODE_LINES = 14
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:tmp|root|home|work|Users|mnt|opt)/[\w.-]+")
NAMED_FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
TORCH = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
PLACES = [ROOT, ROOT / "course_lib", TORCH.parent, TORCH, TORCH / "_inductor"]
INTERACTIVE = re.compile(r"\binteract(?:ive|_manual)?\(|widgets\.Output\(")


def tags(cell) -> set[str]:
    return set(cell.metadata.get("tags", []))


def complaints(nb) -> list[str]:
    """What is wrong with a stored notebook, a sentence each."""
    code = [cell for cell in nb.cells if cell.cell_type == "code" and cell.source.strip()]
    live = [cell for cell in code if "nbval-skip" not in tags(cell)]
    said = [f"{_head(cell)}: {what}" for cell in code for what in _about_cell(cell)]
    counts = [cell.execution_count for cell in live if cell.execution_count]
    if counts != list(range(1, len(counts) + 1)):
        said.append(f"not run top to bottom in a fresh kernel: {counts}. Run `make notebooks`")
    named = [
        name
        for cell in nb.cells
        if cell.cell_type == "markdown"
        for name in NAMED_FILE.findall(cell.source)
    ]
    said += [
        f"no file {name}, here or in torch"
        for name in named
        if not any((place / name).exists() for place in PLACES)
    ]
    if not graded_cells(nb):
        said += [
            f"{_head(cell)}: does not fit beside a side bar ({MAX_CODE_LINES} lines at most): make two cells"
            for cell in code
            if len(cell.source.splitlines()) > MAX_CODE_LINES and not _is_folded(cell)
        ]
    waived = [cell for cell in live if "nbval-ignore-output" in tags(cell)]
    if len(waived) > max(2, len(live) // 8):
        said.append(f"{len(waived)} of {len(live)} cells waive the comparison of their outputs")
    stored = nb.metadata.get("course", {})
    if not graded_cells(nb) and stored.get("code") != code_digest(nb):
        said.append(
            "its code is not the code that ran when its outputs were stored. Run `make notebooks`"
        )
    elif not graded_cells(nb) and stored.get("outputs") != outputs_digest(nb):
        said.append("an output is not what the run gave that stored it. Run `make notebooks`")
    if nb.metadata.get("kernelspec", {}).get("name") != "course":
        said.append("the kernel is not the course's (`course`)")
    return said


def _about_cell(cell) -> list[str]:
    skipped = "nbval-skip" in tags(cell)
    raised = any(output.output_type == "error" for output in cell.outputs)
    lines = [
        line
        for line in cell.source.splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    graded = "nbgrader" in cell.metadata
    everything = cell.source + "".join(str(output) for output in cell.outputs)
    wrong = {
        "stored without having run: nbval would compare nothing": not skipped
        and not cell.execution_count,
        "an error is stored and the cell is not tagged raises-exception": raised
        and "raises-exception" not in tags(cell),
        "tagged raises-exception and stored without one": not raised
        and not skipped
        and "raises-exception" in tags(cell),
        "nbval-skip needs skip-execution beside it": skipped and "skip-execution" not in tags(cell),
        "a final ';' does not hide the output from nbval: write _ =": cell.source.rstrip().endswith(
            ";"
        ),
        "its source answers the question: fold it (jupyter.source_hidden)": "viz.Predict("
        in cell.source
        and not _is_folded(cell),
        "marks are metadata tags, not comments": "NBVAL_" in cell.source,
        "interact() and Output widgets hang when nobody watches": bool(
            INTERACTIVE.search(cell.source)
        ),
        f"{len(lines)} lines of code: a cell is one thought ({MAX_CODE_LINES} at most)": not graded
        and len(lines) > MAX_CODE_LINES,
        "a live widget is stored, which Lab shows as an error once the kernel is gone. Run `make notebooks`": any(
            WIDGET in output.get("data", {}) for output in cell.outputs
        ),
        f"a path of one machine: {_first(MACHINE_PATH, everything)}": bool(
            MACHINE_PATH.search(everything)
        ),
    }
    return [what for what, is_wrong in wrong.items() if is_wrong]


def _is_folded(cell) -> bool:
    return bool(cell.metadata.get("jupyter", {}).get("source_hidden"))


def _head(cell) -> str:
    return repr(cell.source.strip().splitlines()[0][:60])


def _first(pattern: re.Pattern, text: str) -> str:
    found = pattern.search(text)
    return found.group() if found else ""


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_a_stored_notebook_is_whole(path):
    nb = nbformat.read(path, 4)
    nbformat.validate(nb)
    assert complaints(nb) == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("exercises/*/*.ipynb")), ids=lambda path: path.name
)
def test_an_exercise_holds_no_outputs_and_no_machine_path(path):
    nb = exercise_of(Lesson(ROOT, path.stem))
    nbformat.validate(nb)
    assert not any(cell.get("outputs") for cell in nb.cells)
    assert not any(MACHINE_PATH.search(cell.source) for cell in nb.cells)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_a_setting_has_the_value_that_the_prose_gives_it(path):
    prose = "\n".join(
        cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"
    )
    for name, value in re.findall(r"`cl\.config\.(\w+)` \((\d+)\)", prose):
        assert getattr(config, name) == int(value), f"{name} is {getattr(config, name)}"


# ---- the test is tested: each hole, opened on purpose -----------------------------------------------------------------


def notebook(*cells):
    nb = new_notebook(cells=list(cells))
    nb.metadata.kernelspec = {
        "name": "course",
        "display_name": "Course (torch.compile)",
        "language": "python",
    }
    nb.metadata.course = {"code": code_digest(nb), "outputs": outputs_digest(nb)}
    return nb


def cell(source="1 + 1", count=1, outputs=(), *, tags=()):
    return new_code_cell(
        source, execution_count=count, outputs=list(outputs), metadata={"tags": list(tags)}
    )


ERROR = new_output("error", ename="ValueError", evalue="", traceback=[])
LIVE = new_output(
    "execute_result",
    {WIDGET: {"model_id": "5f0e"}, "text/html": "<p>its still form</p>"},
    execution_count=1,
)
PRINTED_PATH = new_output("stream", name="stdout", text='File "/Users/ada/course/model.py"')


def test_a_good_notebook_has_nothing_wrong():
    good = notebook(cell(), cell("raise ValueError", 2, [ERROR], tags=["raises-exception"]))
    assert complaints(good) == []


@pytest.mark.parametrize(
    "bad, told",
    [
        (cell(count=None), "stored without having run"),
        (cell(count=3), "not run top to bottom"),
        (cell("raise ValueError", 1, [ERROR]), "not tagged raises-exception"),
        (cell("print()", tags=["raises-exception"]), "stored without one"),
        (cell(count=None, tags=["nbval-skip"]), "needs skip-execution"),
        (cell("f();"), "does not hide the output"),
        (cell("# NBVAL_IGNORE_OUTPUT\nf()"), "metadata tags, not comments"),
        (cell('viz.Predict("?", ["a", "b"], 1, "…")'), "its source answers the question"),
        (cell("interact(f, x=3)"), "hang when nobody watches"),
        (cell("x = 1\n" * 15), "15 lines of code"),
        (cell("open('/mnt/model.pt')"), "a path of one machine: /mnt/model.pt"),
        (cell("guess", 1, [LIVE]), "a live widget is stored"),
        (cell("f()", 1, [PRINTED_PATH]), "a path of one machine: /Users/ada"),
    ],
)
def test_each_hole_is_seen(bad, told):
    assert any(told in complaint for complaint in complaints(notebook(bad)))


def test_code_that_changed_since_it_ran_is_seen_though_it_may_print_the_same():
    nb = notebook(cell("close = abs(ours - theirs) < 1e-5\nprint(close)"))
    nb.cells[0].source = nb.cells[0].source.replace("1e-5", "1e5")
    assert ["not the code that ran" in complaint for complaint in complaints(nb)] == [True]


def test_an_output_that_no_run_gave_is_seen_though_times_are_not_compared():
    nb = notebook(cell(outputs=[new_output("stream", name="stdout", text="17 ms")]))
    assert complaints(nb) == []
    nb.cells[0].outputs[0].text = "71 ms"
    assert ["not what the run gave" in complaint for complaint in complaints(nb)] == [True]


def test_waiving_the_comparison_of_many_cells_is_seen():
    many = notebook(*(cell(count=i, tags=["nbval-ignore-output"]) for i in range(1, 5)))
    assert any("4 of 4 cells waive" in complaint for complaint in complaints(many))


def test_a_file_that_is_gone_is_seen():
    said = new_markdown_cell("`lowering/rules.py`, `torch/_inductor/ir.py` and `codegen/gone.py`")
    assert complaints(notebook(said)) == ["no file codegen/gone.py, here or in torch"]


def test_another_kernel_is_seen():
    nb = notebook(cell())
    nb.metadata.kernelspec["name"] = "python3"
    assert complaints(nb) == ["the kernel is not the course's (`course`)"]
