"""The course's own tools: exercises made from solutions, the gate they pass, and marks for a
learner.

In:  `solutions/*/*.ipynb` and a learner's notebook. Out: `exercises/*/*.ipynb`, complaints, marks.
Counterpart: `nbgrader`, whose metadata and steps are used (`generate_assignment`, `autograde`).

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
