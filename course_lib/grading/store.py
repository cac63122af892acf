"""Run notebooks top to bottom in a fresh kernel and store their outputs: `make notebooks`.

In:  paths of notebooks. Out: the same files, executed. `make test` then compares every run with
what is stored here.
An output that belongs to one machine or one moment is no part of a lesson: mark its cell, or do not
print it.
A lesson keeps a digest of the code that ran and one of its outputs (`metadata.course`): the tests
see a cell that was edited since, even where its output would be the same, and an output that no run
gave, even where it is not compared (times, pictures).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from .kernel import this_python
from .nbval_versions import STORED_ON, elsewhere, without_a_learners_answers
from .notebooks import Notebook, code_digest, graded_cells, outputs_digest, read, tidy, to_text


def store(path: Path, timeout: float = 300) -> None:
    """Execute the notebook at `path` and write it back; a cell that raises without being tagged so
    stops it."""
    nb = execute(read(path), path.parent, timeout)
    # No digest in a solution: nbgrader would copy it into the exercise that it hands out.
    if not graded_cells(nb):
        nb.metadata["course"] = {"code": code_digest(nb), "outputs": outputs_digest(nb)}
    path.write_text(to_text(nb), encoding="utf-8", newline="\n")


def execute(nb: Notebook, folder: Path, timeout: float = 300) -> Notebook:
    """`nb` with the outputs of a fresh run in `folder`."""
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    # "python3" is a name that may belong to another Python: `this_python` lets it mean this one
    manager = AsyncKernelManager(kernel_spec_manager=this_python(), kernel_name="python3")
    # Times differ from run to run, and so does the number of pieces in which a cell's text comes:
    # neither may change the stored file.
    client = NotebookClient(
        nb,
        km=manager,
        timeout=timeout,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(cleanup_kc=True)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                _without_live_part(_without_machine_paths(output)) for output in cell.outputs
            ]
    return tidy(nb)


WIDGET = "application/vnd.jupyter.widget-view+json"
"""The form of an output that needs a kernel: it names a model in that process."""
_LIVE_PLACE = re.compile(r'<figure id="cl-live-[0-9a-f]+" ')
"""A picture with the number by which a live one would find it: another number in each run."""


def _without_live_part(output: Any) -> Any:
    """A stored widget is its still form: Lab prefers the live one, whose model ended with the
    kernel, and shows an error."""
    data = output.get("data", {})
    # an output that has no other form keeps this one
    if len(data) > 1:
        data.pop(WIDGET, None)
    if "text/html" in data:
        data["text/html"] = _LIVE_PLACE.sub("<figure ", data["text/html"])
    return output


_MACHINE_PATHS = (
    # what stands before an installed package
    (re.compile(r"[^\s'\"<>:,(]*/(?=(?:site|dist)-packages/)"), ""),
    # what stands before a folder of the course
    (re.compile(r"(?<![\w.])/[^\s'\"<>:,()]*/(?=(?:course_lib|notebooks|solutions)/)"), ""),
    # the file that IPython makes up for a cell, with a process id in it
    (re.compile(r"/\S*ipykernel_\d+/\d+\.py"), "CELL"),
)
"""What tells of one machine → what is stored in its place."""


def _without_machine_paths(value: Any) -> Any:
    """`/Users/ada/course/course_lib/x.py` → `course_lib/x.py`, in every text of an output
    (tests/nbval_sanitize.cfg)."""
    if isinstance(value, str):
        for pattern, instead in _MACHINE_PATHS:
            value = pattern.sub(instead, value)
        return value
    if isinstance(value, list):
        return [_without_machine_paths(item) for item in value]
    if isinstance(value, dict):
        return type(value)({key: _without_machine_paths(item) for key, item in value.items()})
    return value


def main(paths: list[str]) -> int:
    from nbclient.exceptions import CellExecutionError

    if elsewhere():
        wanted = f"Python {STORED_ON['bytecode']} and torch {STORED_ON['torch']}"
        print(
            f"Stored outputs are made on {wanted}, because what they show differs by version. Use those."
        )
        return 1
    without_a_learners_answers()
    for path in paths:
        print(f"running {path}", flush=True)
        try:
            store(Path(path))
        except CellExecutionError as error:
            print(f"{path} is left as it was: a cell raised an error.\n{error}")
            return 1
    tell_translators(paths)
    return 0


def tell_translators(paths: list[str]) -> None:
    """The catalogs of other languages learn which cells have changed; these are shown in English
    from then on."""
    from .notebooks import find_root
    from .translation import keep_in_step

    root = find_root()
    if any(Path(path).resolve().is_relative_to(root / "notebooks") for path in paths):
        for change in keep_in_step(root):
            print(change)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
