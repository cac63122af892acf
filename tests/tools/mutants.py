"""Wrong answers on purpose: do an exercise's checks tell right from wrong, and say why?

    LESSON = Mutants("01_eager_overhead")                       # solutions/01_eager_overhead/01_eager_overhead.ipynb
    LESSON.verdict("median_time")                               # the reference answer
    LESSON.verdict("median_time", LESSON.stub("median_time"))   # the exercise as the learner gets it
    LESSON.verdict("median_time", LESSON.edited("median_time", "sorted(times)", "list(times)"))   # one edit away
    LESSON.verdict("median_time", LESSON.written("median_time", "    return 0.0"))                 # another body

In:  a solution notebook and, for one exercise, the source of its answer cell.
Out: a `Verdict`: passed or not; if not, whether the answer itself, the visible or the hidden checks stopped it, in what words.

Only the needed cells run, in this process: every code cell above the checks that is no checks cell itself (so that other
exercises keep their reference answers), then the visible and the hidden half of the exercise's own checks. An endless loop
ends after `seconds`.
`own_reasons(verdicts)` holds that several wrong answers fail, each with another `What`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from course_lib import config
from course_lib.frames import installed
from course_lib.grading import CheckFailed
from course_lib.grading.generate import exercise_from
from course_lib.grading.notebooks import (
    BEGIN_HIDDEN,
    BEGIN_SOLUTION,
    END_HIDDEN,
    END_SOLUTION,
    Lesson,
    grading_metadata,
    is_checks,
    is_solution,
    read,
)

ROOT = Path(__file__).parents[2]
Answer = Callable[[str], str]
"""Gives the source of an answer cell for the name of an exercise."""

NEEDS_THE_HOOK = [
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="the exercises need the frame hook"),
]
NEEDS_A_COMPILER = [
    *NEEDS_THE_HOOK,
    pytest.mark.skipif(config.find_cxx() is None, reason="the exercises need a C++ compiler"),
]
"""Marks of a module of such tests."""

Part = Literal["", "setup", "answer", "visible checks", "hidden checks"]


@dataclass(frozen=True)
class Verdict:
    """How one answer fared. `part` is what stopped it; `what` the check's own headline, where a check did."""

    passed: bool
    part: Part = ""
    error: str = ""
    what: str = ""
    message: str = ""

    def __str__(self) -> str:
        return (
            "passed"
            if self.passed
            else f"stopped by the {self.part}: {self.error}: {self.message.strip()}"
        )


class Mutants:
    """The exercises of one lesson, and any answer to them."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self.lesson = Lesson(root, name)
        self.solution = read(self.lesson.solution)

    @property
    def exercises(self) -> list[str]:
        """The names (`grade_id`) of the answer cells, in order."""
        return [
            grading_metadata(cell)["grade_id"] for cell in self.solution.cells if is_solution(cell)
        ]

    def reference(self, exercise: str) -> str:
        """The answer cell as the solution has it."""
        return str(self.solution.cells[self._answer(exercise)].source)

    def stub(self, exercise: str) -> str:
        """The answer cell as the learner gets it."""
        return str(self._exercise.cells[self._answer(exercise)].source)

    def edit(self, *changes: str) -> Answer:
        """For any exercise: the reference with `old, new, …` exchanged."""
        return lambda exercise: self.edited(exercise, *changes)

    def body(self, *bodies: str) -> Answer:
        """For any exercise: the answer cell with other bodies."""
        return lambda exercise: self.written(exercise, *bodies)

    def edited(self, exercise: str, *changes: str) -> str:
        """The reference with `old, new, old, new, …` exchanged; each `old` must be there."""
        source = self.reference(exercise)
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            if old not in source:
                raise LookupError(f"{exercise}: the reference answer does not say {old!r}")
            source = source.replace(old, new)
        return source

    def written(self, exercise: str, *bodies: str) -> str:
        """The reference with what stands between each BEGIN and END SOLUTION replaced by a body of your own."""
        kept: list[str] = []
        waiting, inside = list(bodies), False
        for line in self.reference(exercise).splitlines():
            if BEGIN_SOLUTION in line:
                inside = True
                kept.append(waiting.pop(0).strip("\n"))
            elif END_SOLUTION in line:
                inside = False
            elif not inside:
                kept.append(line)
        if waiting:
            raise LookupError(
                f"{exercise}: {len(bodies)} bodies for {len(bodies) - len(waiting)} places"
            )
        return "\n".join(kept)

    def verdict(self, exercise: str, answer: str | None = None, seconds: float = 60) -> Verdict:
        """Run the exercise with `answer` as its answer cell (by default the reference)."""
        here, checks = self._answer(exercise), self._checks(exercise)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        cells = list(enumerate(self.solution.cells))[:checks]
        steps: list[tuple[Part, str]] = [
            (
                "answer" if i == here else "setup",
                answer if i == here and answer is not None else cell.source,
            )
            for i, cell in cells
            if cell.cell_type == "code" and not is_checks(cell)
        ]
        visible, hidden = halves(self.solution.cells[checks].source)
        for part, source in [*steps, ("visible checks", visible), ("hidden checks", hidden)]:
            try:
                with time_limit(seconds), contextlib.redirect_stdout(io.StringIO()):
                    run_cell(source, namespace, f"<{self.lesson.name} {exercise} {part}>")
            except Exception as error:
                what = error.what if isinstance(error, CheckFailed) else ""
                return Verdict(False, part, type(error).__name__, what, str(error))
        return Verdict(True)

    def verdicts(self, exercise: str, answers: Mapping[str, str]) -> dict[str, Verdict]:
        """Name of an answer → its verdict."""
        return {name: self.verdict(exercise, answer) for name, answer in answers.items()}

    @functools.cached_property
    def _exercise(self) -> Any:
        return exercise_from(self.solution)

    def _answer(self, exercise: str) -> int:
        return self._find(
            lambda cell: is_solution(cell) and grading_metadata(cell)["grade_id"] == exercise,
            exercise,
        )

    def _checks(self, exercise: str) -> int:
        return self._find(is_checks, exercise, self._answer(exercise))

    def _find(self, wanted: Any, exercise: str, start: int = 0) -> int:
        for index, cell in enumerate(self.solution.cells):
            if index >= start and wanted(cell):
                return index
        raise LookupError(
            f"no cell for {exercise!r}; the exercises are {', '.join(self.exercises)}"
        )


def halves(source: str) -> tuple[str, str]:
    """The visible and the hidden part of a checks cell; lines keep their numbers."""
    visible, hidden, inside = [], [], False
    for line in source.splitlines():
        inside = inside or BEGIN_HIDDEN in line
        (hidden if inside else visible).append(line)
        (visible if inside else hidden).append("")
        inside = inside and END_HIDDEN not in line
    return "\n".join(visible), "\n".join(hidden)


def run_cell(source: str, namespace: dict[str, Any], name: str) -> None:
    """Execute a cell as a notebook would; its lines can be found again (tracebacks, `inspect.getsource`)."""
    name = f"{name[:-1]} #{len(namespace)}-{abs(hash(source)) % 100_000}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), namespace)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block after `seconds` (main thread of a POSIX system; elsewhere there is no limit)."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"it ran longer than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def own_reasons(verdicts: Mapping[str, Verdict]) -> None:
    """Every one of these wrong answers is caught by a check, and no two by the same words."""
    said: dict[str, str] = {}
    for name, verdict in verdicts.items():
        assert not verdict.passed, f"the wrong answer {name!r} passes"
        assert verdict.part in ("visible checks", "hidden checks") and verdict.what, (
            f"{name!r} is {verdict}"
        )
        assert verdict.what not in said, (
            f"{name!r} and {said[verdict.what]!r} fail for the same reason: {verdict.what}"
        )
        said[verdict.what] = name


def exercise_tests(
    lesson: Mutants,
    alternatives: Mapping[str, Answer],
    wrong: Mapping[str, Mapping[str, Answer]],
) -> tuple[Callable[..., None], ...]:
    """The tests that every lesson has, for it to bind to names that begin with `test_`: its exercises are all here; the reference
    and another right answer pass; a stub fails with its own sentence; three wrong answers fail, each for its own reason."""

    def every_exercise_is_tested() -> None:
        assert list(alternatives) == list(wrong) == lesson.exercises
        assert {name: len(answers) for name, answers in wrong.items() if len(answers) < 3} == {}

    @pytest.mark.parametrize("exercise", lesson.exercises)
    def right_answers_pass(exercise: str) -> None:
        for answer in (None, alternatives[exercise](exercise)):
            verdict = lesson.verdict(exercise, answer)
            assert verdict.passed, verdict

    @pytest.mark.parametrize("exercise", lesson.exercises)
    def a_stub_fails(exercise: str) -> None:
        verdict = lesson.verdict(exercise, lesson.stub(exercise))
        assert (
            not verdict.passed
            and verdict.error == "NotImplementedError"
            and verdict.message.startswith("Exercise:")
        )

    @pytest.mark.parametrize("exercise", lesson.exercises)
    def wrong_answers_fail(exercise: str) -> None:
        own_reasons(
            lesson.verdicts(
                exercise, {name: answer(exercise) for name, answer in wrong[exercise].items()}
            )
        )

    return every_exercise_is_tested, right_answers_pass, a_stub_fails, wrong_answers_fail
