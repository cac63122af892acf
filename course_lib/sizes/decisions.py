"""What was decided about sizes while a graph was compiled for all of them: of which kind, and who
asked.

In:  the questions of `surely`, `hint` and plain comparisons, as they are asked.
Out: `Decision`s, each once and in order, for the report, the logs and lessons.
In PyTorch: `TORCH_LOGS="+dynamic"` prints the guards among them.
"""

import inspect
import os
import sys
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

FOR_ALL, BY_HINT, GUARDED = "for all sizes", "by the hint", "guarded"
KINDS = {
    FOR_ALL: "known for all sizes, or not done",
    BY_HINT: "by the numbers of this call, and right for any",
    GUARDED: "right for this call, so it is a guard",
}
"""Kind of a decision → what it means."""
# The folders of this room and of the library
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


@dataclass(frozen=True)
class Decision:
    """One question about sizes and its answer.

    question: a relation, or a size, as text. asker: the function of the compiler that asked; why:
    the first sentence of its docstring, "" if it has none."""

    kind: str
    question: str
    answer: str
    asker: str
    why: str

    def __str__(self) -> str:
        cause = self.asker
        if self.why:
            cause += f": {self.why}"
        return f"{self.kind}: {self.question} is {self.answer}    # {cause}"


@dataclass
class Decisions:
    """The questions so far. What is kept is cheap; texts are made when somebody reads them."""

    # (kind, relation or None, one side, other side, who asked) → the answer
    found: dict[Any, Any] = field(default_factory=dict)

    def note(self, kind: str, relation: Any, sides: tuple[Any, ...], answer: Any) -> None:
        """Keep a question, which whoever called into this room has asked."""
        # formulas: to compare two `Size`s would be one more question
        formulas = tuple(getattr(side, "expr", side) for side in sides)
        # A size beside itself: nothing was decided
        if relation is not None and formulas[0] == formulas[1]:
            return
        self.found.setdefault((kind, relation, formulas, asking_code()), answer)

    def told(self, text_of: Any, signs: dict[Any, str]) -> list[Decision]:
        """All of them. text_of: writes a formula; signs: relation → `<=`."""
        told = []
        for (kind, relation, sides, code), answer in self.found.items():
            sign = ""
            if relation is not None:
                sign = f" {signs[relation]} "
            question = sign.join(map(text_of, sides))
            told.append(Decision(kind, question, str(answer), name_of(code), first_sentence(code)))
        # Two questions may read alike: code of one name and text in two places
        return list(dict.fromkeys(told))


def asking_code() -> CodeType:
    """The code of the innermost function that is not in this room, and has a name."""
    # 0 is this function, 1 is `note`, 2 whoever noted
    frame = sys._getframe(2)
    while frame.f_code.co_filename.startswith(HERE) or frame.f_code.co_name.startswith("<"):
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_code


def name_of(code: CodeType) -> str:
    """`scheduling/split.py, chunks`"""
    path = os.path.relpath(code.co_filename, ROOT)
    if path.startswith(".."):
        file = os.path.basename(path)
    else:
        file = path.replace(os.sep, "/")
    return f"{file}, {code.co_qualname}"


HAS_DOCSTRING: int | None = getattr(inspect, "CO_HAS_DOCSTRING", None)
"""The flag of a function with a docstring; None up to Python 3.13, which has no such flag."""


def first_sentence(code: CodeType) -> str:
    """The first sentence of the docstring of a function whose code this is; "" if it has none."""
    # Python keeps a docstring as the first constant of the code.
    text = code.co_consts[0] if code.co_consts else None
    # up to Python 3.13 the first constant of a function without docstring is None
    has_docstring = HAS_DOCSTRING is None or code.co_flags & HAS_DOCSTRING
    if not has_docstring or not isinstance(text, str):
        return ""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence, end, _ = paragraph.partition(". ")
    return sentence + end.strip()
