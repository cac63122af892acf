"""Keeps the learner's names and switches away from the course's cells, while a notebook runs.

In:  the names of a notebook that runs (a dict), and before each cell what ended and what comes.
Out: the names and torch's switches as the course left them while one of its cells runs; as the
learner left them while one of the learner's runs.

A learner may write `sum = 0`, `check = ...`, `x = 3`, `%reset -f`, `torch.set_default_dtype(...)`
in any cell. That must take no points of answers that are right. So each cell of the course (given
code, checks) finds

- what the course's own cells bound, where the cell needs that name, or where the name was a
  function, a class or a module;
- Python's builtins, but for a function or class of that name that the learner wrote and no cell of
  the course needs;
- the learner's own answers, where a variable took the name of one of them;
- every switch as the last cell of the course left it.

Afterwards the learner's values come back. What a cell of the course binds itself stays.
The switches themselves are in `switches.py`. Both files are also sent as text into the kernel that
runs a submission, so they import nothing of the course; there they share one namespace.
PyTorch has no counterpart. nbgrader and otter-grader run checks among the learner's names.
"""

from __future__ import annotations

import builtins
import inspect
import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .switches import Switches

# IPython's own names: the history of what was typed and shown; and the grader's
_HISTORY = re.compile(r"_+|_i*\d*|_\d+|_[dio]h|_exit_code|In|Out|_grader_\w+")
_NOTHING = object()  # in place of a value: the name is not bound


@dataclass(frozen=True)
class Ended:
    """The cell that just ran.

    `binds`: what its text binds; `defines`: of these, by def, class or import."""

    # "given", "checks", "answer" or "own"
    role: str
    # In the learner's notebook, from 1
    number: int = 0
    binds: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Habits:
    """What the learner's cells do with names, seen from their text.

    defines: by def, class or import. assigns: in another way. reads_as_data: a function of theirs
    reads it otherwise than by calling it or handing it on.
    answers: names that the course asks the learner for."""

    defines: frozenset[str] = frozenset()
    assigns: frozenset[str] = frozenset()
    reads_as_data: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()


class Keeper:
    """Stands between the cells of one notebook: `step(ended, comes, needs)` before each cell and
    after the last."""

    def __init__(self, names: dict[str, Any], habits: Habits, switches: Switches) -> None:
        self.names = names
        self.habits = habits
        self.switches = switches
        self.builtins = dict(vars(builtins))

        # Name → what the course bound to it; the function or class of an answer; the number of the
        # learner's cell that bound it last
        self.course = self.snapshot()
        self.answers: dict[str, Any] = {}
        self.mine: dict[str, int] = {}
        # Names that came by `import *`: no text of a cell has them
        self.unnamed: set[str] = set()

        # The names before the cell that runs. Of those that the course needs for it: the learner's
        # value, and what stands there until the cell ends
        self.seen = self.snapshot()
        self.lent: dict[str, tuple[Any, Any]] = {}
        # Names that stand as the course bound them, now
        self.watched: set[str] = set()

    def step(self, ended: Ended | None, comes: str, needs: Iterable[str] = ()) -> None:
        """One cell ended, and one of the role `comes` is next ("" after the last); it and what it
        calls read `needs`."""
        if ended:
            self.note(ended)
        self.bring_back_what_vanished()
        if comes in ("given", "checks"):
            self.switches.put()
            self.lend(frozenset(needs))
        self.seen = self.snapshot()

    def take(self, step: dict[str, Any]) -> None:
        """`step` with plain values, as the text of a cell can hold them."""
        ended = step["ended"]
        self.step(ended and Ended(*ended), step["comes"], step["needs"])
        self.watched = {n for n, v in self.course.items() if self.names.get(n, _NOTHING) is v}

    def after_checks(self) -> None:
        """Switches as the course left them, so that the grader's own look at the checks is not
        under the learner's."""
        self.switches.put_but_for_random()

    def snapshot(self) -> dict[str, Any]:
        """All names but IPython's own."""
        return {name: v for name, v in self.names.items() if not _HISTORY.fullmatch(name)}

    def shadows(self) -> dict[str, int]:
        """Names of Python or of the course that a learner's cell bound last, with the number of
        that cell."""
        known = self.builtins.keys() | self.course.keys()
        return {name: number for name, number in self.mine.items() if name in known}

    # -- after a cell

    def note(self, ended: Ended) -> None:
        """Find out what a cell changed: the course's cells bind for the course, the others for the
        learner."""
        changed = set()
        for name, value in self.snapshot().items():
            if value is not self.seen.get(name, _NOTHING):
                changed.add(name)

        # A cell may bind the same object anew. One that failed on the way did not come to all.
        rebound_names = {name for name in ended.binds if name in self.names}

        if ended.role in ("given", "checks"):
            # Of the learner's names only what both imported is the course's, too: it is the same
            # thing.
            both = {name for name in ended.defines if _is_imported(self.names.get(name))}
            of_course = rebound_names - (self.mine.keys() - both)
            self.note_course(changed | of_course, ended)
        else:
            self.note_learner(changed | rebound_names, ended)

    def note_course(self, changed: set[str], ended: Ended) -> None:
        """What a cell of the course bound is the course's; what was lent to it goes back."""
        for name in changed:
            # What checks leave may be the learner's: functions of an answer may set globals.
            if name in ended.binds or ended.role == "given":
                self.course[name] = self.names[name]
                self.mine.pop(name, None)
                self.lent.pop(name, None)

        # What the cell itself bound anew to a name that was lent to it stays.
        for name, (before, stood) in self.lent.items():
            if self.names.get(name, _NOTHING) is stood:
                self.set(name, before)

        self.lent.clear()
        self.switches.take(ended.role == "given")

    def note_learner(self, changed: set[str], ended: Ended) -> None:
        """What another cell bound is the learner's. Functions of an answer are kept apart."""
        for name in changed:
            value = self.names[name]
            self.mine[name] = ended.number
            if name in ended.binds:
                self.unnamed.discard(name)
            else:
                self.unnamed.add(name)

            # The course may have had a value for a name that it asks for: the answer takes its
            # place.
            if name in self.habits.answers:
                self.course.pop(name, None)
            if ended.role == "answer" and (inspect.isroutine(value) or inspect.isclass(value)):
                self.answers[name] = value
            elif name in ended.defines:
                self.answers.pop(name, None)

    def bring_back_what_vanished(self) -> None:
        """After `%reset -f` or `del`: what was there before stands there again."""
        for name, value in self.seen.items():
            if name not in self.names and name not in self.lent:
                self.names[name] = value

    # -- before a cell of the course

    def lend(self, needs: frozenset[str]) -> None:
        """Put what the next cell should find under each name, and remember what stood there."""
        for name in self.snapshot().keys() | (self.course.keys() & needs):
            value = self.names.get(name, _NOTHING)
            better = self.better(name, value, needs)
            if better is not value:
                self.lent[name] = (value, better)
                self.set(name, better)

    def better(self, name: str, value: Any, needs: frozenset[str]) -> Any:
        """What a cell of the course should find under this name: `value` as it is, another value,
        or nothing at all."""
        if name in self.course:
            return self.of_course(name, value, name in needs)
        if name in self.answers and (not callable(value) or name in self.unnamed):
            return self.answers[name]

        # Without a name of the notebook's, the cell finds the builtin.
        is_shadow = name in self.builtins and value is not self.builtins[name]
        if is_shadow and self.hides(name, value, name in needs):
            return _NOTHING
        return value

    def of_course(self, name: str, value: Any, needed: bool) -> Any:
        """The same for a name that the course bound: `value` is what stands there now."""
        of_course = self.course[name]
        if value is of_course or needed:
            return of_course
        # Data that no cell of the course needs: the learner's cells may have gone on with the name.
        if not _is_code(of_course):
            return value

        # If the learner defined or imported a function of this name, the learner's cells mean that
        # one. A plain value that was assigned to the name later does not count.
        if name in self.habits.defines and _is_code(value):
            return value
        return of_course

    def hides(self, name: str, value: Any, needed: bool) -> bool:
        """Whether to put the builtin back: this value has its name, but the code that runs next
        means the builtin."""
        habits = self.habits
        if needed:
            return True
        # A function of the learner's own has this name, and answers that are called now mean it.
        if name in habits.defines or (name in habits.assigns and callable(value)):
            return False

        # So it is with a variable of this name that the learner sets and reads: `sum = 0`, and in
        # an answer `sum + x`. One that is only set was a slip, and answers that call `sum(xs)`
        # mean the builtin.
        is_variable = name in habits.assigns and name in habits.reads_as_data
        return not is_variable

    def set(self, name: str, value: Any) -> None:
        """Bind a name, or unbind it."""
        if value is _NOTHING:
            self.names.pop(name, None)
        else:
            self.names[name] = value


def _is_code(value: Any) -> bool:
    """Is it something that cells use by its name, and do not compute: a function, class or
    module?"""
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def _is_imported(value: Any) -> bool:
    """A module, or a function or class of one: not what a cell of the notebook made."""
    if inspect.ismodule(value):
        return True
    return _is_code(value) and getattr(value, "__module__", "__main__") != "__main__"


def no_exit(shell: Any) -> None:
    """`exit()` and `quit()` end the cell in which they stand, not the process that the other cells
    need."""

    def ask_exit(self: Any) -> None:
        raise SystemExit("exit() ends this cell only")

    shell.ask_exit = types.MethodType(ask_exit, shell)
