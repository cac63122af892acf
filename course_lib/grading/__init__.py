"""The course's own tools: exercises made from solutions, the gate they pass, and marks for a
learner.

In:  `solutions/*/*.ipynb` and a learner's notebook. Out: `exercises/*/*.ipynb`, complaints, marks.
Counterpart: `nbgrader`, whose metadata and steps are used (`generate_assignment`, `autograde`).

Read in this order:

    generate.py, exercise_files.py, cell_ids.py, gate.py
                               exercises are made from solutions, and pass the gate
    checks.py                  what an exercise asserts; the sentences behind it: `checked_call.py`,
                               `cell_source.py`, `explained.py`, `line_of_answer.py`
    assembling.py, pairing.py  the notebook that is marked: the course's cells with the answers
    runner.py, kernel.py, warm.py, sandbox.py, usage.py
                               it runs: in a kernel of its own, within limits
    keeper.py, switches.py, probes.py
                               what the learner changes is kept away from the course's cells
    marks.py, reasons.py       `course check`: points, and why there are none
    classroom.py               `course grade`: a whole class
    cli.py, commands/          the command line; `mistakes.py` and `errors.py`: what it says of bad
                               input, `terminal.py` and `tables.py`: how it prints

Notebooks and files: `notebooks.py`, `reader.py`, `writing.py`, `names.py`, `whose.py`, `magics.py`,
`other_files.py`, `corners/`.
The learner's copy: `copies.py`, `learners_files.py`, `course_folder.py`, `merging.py`,
`taking_over.py`, `handed_out.py`, `history.py`, `lab_saves.py`, `kernelspec.py`.
The learner's course: `progress.py`, `pages.py`, `tries.py`.
The learner's compiler: `parts.py`, `answers.py`, `assembly.py`, `capstone.py`, `differences.py`.
The teacher's class: `collect.py`, `unpack.py`, `gradebook.py`, `corrections.py`, `anonymous.py`,
`dashboard.py`, `example.py`, `written_questions.py`, `written_answers.py`.
nbgrader and nbval: `nbgrader_config.py`, `nbgrader_export.py`, `repair.py`, `quiet.py`,
`nbval_versions.py`.
The course itself: `store.py`, `slides.py`, `edition.py`, `translation.py`, `words_of_checks.py`.

A solutions notebook imports its checks from here: `from course_lib.grading import check,
check_close, check_equal, check_runs`. The rest is imported where it is used, so that a notebook's
first cell does not load nbgrader.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checks import (
        CheckFailed,
        check,
        check_close,
        check_equal,
        check_graphs,
        check_keeps,
        check_runs,
        watch_guards,
    )

__all__ = [
    "CheckFailed", "check", "check_close", "check_equal", "check_graphs", "check_keeps", "check_runs",
    "watch_guards",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # checks need torch, which takes seconds to load; most of the `course` commands make none
    if name not in __all__:
        raise AttributeError(f"module 'course_lib.grading' has no attribute '{name}'")
    checks = importlib.import_module("course_lib.grading.checks")
    globals().update({one: getattr(checks, one) for one in __all__})
    return globals()[name]
