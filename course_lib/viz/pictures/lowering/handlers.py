"""One loop body under several handlers at once: what each makes of every operation.

In:  a body, an index, and handlers by name. Out: a `Picture`: a row for each operation, a column
     for each handler.

`Together` is itself a handler. Its values are tuples with one value of each of its members, so the
body runs once, and all of them stay in step.
In PyTorch: `torch/_inductor/ops_handler.py` (`WrapperHandler`, and every other class there).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy

from course_lib.viz.kit.arguments import ANYTHING, FUNCTION, named, takes
from course_lib.viz.kit.style import Picture, escape, plural
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.lowering.loop_formulas import shown


@dataclass(frozen=True)
class Step:
    """An operation: its name, its arguments as the reader sees them, and what each handler
    answered."""

    op: str
    args: tuple[str, ...]
    answers: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.op}({', '.join(self.args)})"


@dataclass
class Answers:
    """The values of one operation, one for each handler, and the number of the step that made
    them."""

    number: int
    values: tuple[Any, ...]


@dataclass
class Together:
    """Runs every operation under each of its `handlers`, and keeps the `steps`."""

    handlers: Sequence[Any]
    steps: list[Step] = field(default_factory=list)

    def __getattr__(self, op: str) -> Callable[..., Answers]:
        if op.startswith("__"):  # Python asks for such names itself, and they are no operations
            raise AttributeError(op)
        if op in ("masked", "indirect"):
            raise NotImplementedError(
                f"a body with {op} is not shown: one handler would have to wait for another"
            )

        def run(*args: Any) -> Answers:
            answers = []
            for number, handler in enumerate(self.handlers):
                own = [value_for(number, arg) for arg in args]
                answers.append(getattr(handler, op)(*own))

            self.steps.append(Step(op, tuple(map(in_words, args)), tuple(answers)))
            return Answers(len(self.steps), tuple(answers))

        return run


def value_for(number: int, arg: Any) -> Any:
    """An argument as the handler of this number sees it."""
    if isinstance(arg, Answers):
        return arg.values[number]
    return arg


def in_words(arg: Any) -> str:
    """An argument as the reader sees it: `#3` for what step 3 gave."""
    if isinstance(arg, Answers):
        return f"#{arg.number}"
    return str(arg).removeprefix("torch.")


@takes(body=FUNCTION, handlers=named(ANYTHING, "name → handler"))
def side_by_side(
    body: Callable[..., Any], index: Sequence[sympy.Expr], handlers: Mapping[str, Any], *rindex: Any
) -> Picture:
    """Run `body(ops, index)` under all `handlers` (name → handler) in step.

    rindex: the second index that the body of a reduction takes."""
    together = Together(list(handlers.values()))
    body(together, index, *rindex)
    header = ("", "operation", *handlers)
    rows = [
        (f"#{n}", str(step), *map(shown, step.answers)) for n, step in enumerate(together.steps, 1)
    ]
    cells = [[f"<code>{escape(cell)}</code>" for cell in row] for row in rows]
    caption = (
        "One body, run once. Each column is another handler's idea of what the operations mean."
    )
    alt = f"A body of {plural(len(rows), 'operation')} under {plural(len(handlers), 'handler')}: {', '.join(handlers)}; "
    alt += f"at the end they have {'; '.join(rows[-1][2:]) if rows else 'nothing'}."
    return Picture(
        body=f'<div class="cl-scroll">{html_table(cells, header)}</div>',
        caption=caption,
        alt=alt,
        text=columns(rows, header),
    )
