"""The error that a command tells in one sentence.

In:  a sentence that says what is wrong, where, and what to do. Out: an exception that `cli.main`
prints without a traceback.
PyTorch has no counterpart: its errors go to a programmer, these go to a learner or a teacher.
"""

from __future__ import annotations


class CourseError(Exception):
    """Something about the course's files is not as it should be; the text says what to do."""

    def _render_traceback_(self) -> list[str]:
        """In a notebook the sentence is shown, and no lines of ours: IPython asks for it."""
        return [f"course: {self}"]


class NotReadable(CourseError):
    """A file that is no notebook, or not all of one.

    `kind` is one word for programs ("empty", "cut", "conflict", ...). `why` is the sentence without
    the file's name.
    """

    def __init__(self, name: str, kind: str, why: str) -> None:
        super().__init__(name, kind, why)  # all of them, so that a copy can be made by `pickle`
        self.name, self.kind, self.why = name, kind, why

    def __str__(self) -> str:
        if self.kind == "missing":
            return f"{self.name} does not exist."
        return f"{self.name} is not a readable notebook: {self.why}"
