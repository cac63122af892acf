"""Make the exercises from the solutions.

In:  `solutions/NN_name/NN_name.ipynb`, with nbgrader's metadata in its cells.
Out: `exercises/NN_name/NN_name.ipynb`: the same, with every solution replaced by a stub and hidden tests removed.

The work is nbgrader's: its own steps run in its own order, without its database. What is added is that the same
solution always gives the same bytes, so that a stale exercise can be told by comparing files.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from .notebooks import CourseError, Lesson, Notebook, read, tidy, to_text

CONFIG = Path(__file__).with_name("nbgrader_config.py")


def exercise_from(solution: Notebook) -> Notebook:
    """The exercise that a learner gets for `solution`, which is left as it is."""
    from nbgrader.converters import GenerateAssignment

    config = _config()
    nb, resources = tidy(copy.deepcopy(solution)), {"metadata": {}, "unique_key": "notebook"}
    for step in GenerateAssignment.preprocessors.default():
        # writes the marks' book, which this repository has none of
        if step.__name__ != "SaveCells":
            nb, resources = step(config=config).preprocess(nb, resources)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return tidy(nb)


def exercise_text(lesson: Lesson) -> str:
    """The text of the exercise file that `lesson`'s solution gives today."""
    solution = read(lesson.solution)
    try:
        return to_text(exercise_from(solution))
    except Exception as error:
        raise CourseError(f"{lesson}: nbgrader refuses the solution notebook: {error}") from error


def generate(lesson: Lesson) -> bool:
    """Write `lesson`'s exercise; True if that changed the file."""
    text = exercise_text(lesson)
    if lesson.exercise.is_file() and lesson.exercise.read_text(encoding="utf-8") == text:
        return False
    lesson.exercise.parent.mkdir(parents=True, exist_ok=True)
    lesson.exercise.write_text(text, encoding="utf-8", newline="\n")
    return True


def _config() -> Any:
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader(CONFIG.name, path=str(CONFIG.parent)).load_config()
