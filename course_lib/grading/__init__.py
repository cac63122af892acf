"""The course's own tools: exercises made from solutions, the gate they pass, and marks for a learner.

In:  `solutions/*/*.ipynb` and a learner's notebook. Out: `exercises/*/*.ipynb`, complaints, marks.
Counterpart: `nbgrader`, whose metadata and steps are used (`generate_assignment`, `autograde`).

A solutions notebook imports its checks from here: `from course_lib.grading import check, check_close, check_equal, check_runs`.
The rest is imported where it is used, so that a notebook's first cell does not load nbgrader.
"""

from .checks import CheckFailed, check, check_close, check_equal, check_runs

__all__ = ["CheckFailed", "check", "check_close", "check_equal", "check_runs"]
