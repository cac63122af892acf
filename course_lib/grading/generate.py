"""Make the exercises from the solutions.

In:  `solutions/NN_name/NN_name.ipynb`, with nbgrader's metadata in its cells.
Out: `exercises/NN_name/NN_name.ipynb`: the same, with every solution replaced by a stub and hidden
     tests removed.

The work is nbgrader's: its own steps run in its own order, without its database. What is added is
that the same solution always gives the same bytes, so that a stale exercise can be told by
comparing files.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from .notebooks import Cell, CourseError, Lesson, Notebook, read, release_digest, tidy, to_text

CONFIG = Path(__file__).with_name("nbgrader_config.py")
# The stubs of nbgrader_config.py: how that of code begins, and that of text
CODE_STUB, TEXT_STUB = "raise NotImplementedError('Exercise:", "*Your answer here.*"


def exercise_from(solution: Notebook) -> Notebook:
    """The exercise that a learner gets for `solution`, which is left as it is."""
    from nbgrader.converters import GenerateAssignment

    config = _config()
    nb = tidy(copy.deepcopy(solution))
    resources = {"metadata": {}, "unique_key": "notebook"}
    for step in GenerateAssignment.preprocessors.default():
        # It writes into nbgrader's database, and there is none.
        if step.__name__ != "SaveCells":
            nb, resources = step(config=config).preprocess(nb, resources)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nb = tidy(nb)
    nb.metadata["course"] = {"exercise": release_digest(nb)}
    return nb


def is_stub(cell: Cell) -> bool:
    """Whether nothing is written yet in this cell for an answer, or not all of it."""
    source = cell.source.strip()
    return not source or source == TEXT_STUB or CODE_STUB in source


def exercise_text(lesson: Lesson) -> str:
    """The text of the exercise file that `lesson`'s solution gives today."""
    solution = read(lesson.solution)
    try:
        return to_text(exercise_from(solution))
    except Exception as error:
        raise CourseError(f"{lesson}: nbgrader refuses the solution notebook: {error}") from error


def _config() -> Any:
    """Our settings of nbgrader, as it reads them itself."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader(CONFIG.name, path=str(CONFIG.parent)).load_config()
