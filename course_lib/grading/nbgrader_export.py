"""nbgrader's `export` with cells that are quoted: its own writes a name with a comma as two
columns.

In:  nbgrader's gradebook. Out: `grades.csv` with nbgrader's columns, written as all tables of the
course are (`tables.py`). `nbgrader_config.py` names this class. The PyTorch counterpart: none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.api import MissingEntry
from nbgrader.plugins import ExportPlugin

from .tables import write_table

COLUMNS = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email",
    "raw_score", "late_submission_penalty", "score", "max_score",
)  # fmt: skip


class QuotedCsv(ExportPlugin):
    """A row for each student and assignment; who handed in nothing has 0 points."""

    def export(self, gradebook: Any) -> None:
        """What nbgrader calls; `to`, `assignment` and `student` are its options."""
        path = Path(self.to or "grades.csv")
        assignments = [a for a in gradebook.assignments if _wanted(self.assignment, a.name)]
        students = [s for s in gradebook.students if _wanted(self.student, s.id)]
        rows = [_row(gradebook, each, who) for each in assignments for who in students]
        write_table(path, COLUMNS, rows)
        self.log.info("Exporting grades to %s", path)


def _wanted(chosen: list[str], name: str) -> bool:
    """Without a choice everything is exported."""
    return not chosen or name in chosen


def _row(gradebook: Any, assignment: Any, student: Any) -> dict[str, Any]:
    """The cells of one student's assignment; what is not known is empty."""
    row = {
        "assignment": assignment.name,
        "duedate": str(assignment.duedate or ""),
        "student_id": student.id,
        "last_name": student.last_name or "",
        "first_name": student.first_name or "",
        "email": student.email or "",
        "max_score": assignment.max_score,
    }
    try:
        handed_in = gradebook.find_submission(assignment.name, student.id)
    except MissingEntry:
        nothing = {"timestamp": "", "raw_score": 0.0, "late_submission_penalty": 0.0, "score": 0.0}
        return {**row, **nothing}

    penalty = handed_in.late_submission_penalty or 0.0
    return {
        **row,
        "timestamp": str(handed_in.timestamp or ""),
        "raw_score": handed_in.score,
        "late_submission_penalty": penalty,
        "score": max(0.0, handed_in.score - penalty),
    }
