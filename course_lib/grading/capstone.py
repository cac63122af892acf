"""The learner's own compiler: the stages written in the exercises, in one pipeline.

In:  a folder of exercise notebooks. Out: an `Assembly`: a `Pipeline` with the learner's stages
where they work and ours everywhere else (`assembly`), and pictures that say which is whose, and
why.

    mine = assemble()              # your copies in work/
    fast = mine.compile(model)     # as cl.compile
    mine                           # in a notebook: the table

Three steps. An answer that still is the stub needs no trial: the stage is ours. Each other part is
*tried*, alone, in a process of its own with limits on time and memory, as `course check` runs
answers: it compiles a small model, which must compute what eager computes. What passes is loaded
into this process and put in. A stage that was not asked to do what a graph needs (an operator
without a derivative) leaves that graph to ours, and `uses` counts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from nbformat.v4 import new_code_cell, new_notebook

from course_lib import Unsupported, events

from .answers import Answers, load, untouched
from .assembly import ASKED, Assembly, Verdict
from .differences import worst_of
from .errors import CourseError
from .learners_files import notebook_in
from .marks import how_it_ended
from .notebooks import find_lesson, find_root, lessons, work_folder
from .parts import PARTS, Part
from .progress import started_at
from .runner import CellRun, Limits, run_notebook

LARGEST_DIFFERENCE = 1e-3  # from eager, in a trial
MOST_LETTERS = 140  # of an error, in the table
TRIAL_SECONDS = 90
"""A trial may take so long: the first one of a process compiles C++."""
SEED = 15
"""The number of the lesson: any would do, but each trial must draw the same inputs."""


def assemble(
    folder: str | Path | None = None, given: int | str | None = None, limits: Limits | None = None
) -> Assembly:
    """The compiler that the answers in `folder` (default: your copies in `work/`) make.

    given: the lesson to start at: for every lesson before it, the course's own answer stands in
    where yours does not work yet (default: what `course join` was told). Raises CourseError for a
    folder without any notebook of the course."""
    root = find_root()
    place = answers_folder(root, folder)
    if given is None:
        given = started_at(root)
    start = number_of(given)

    # The learner's parts that work; before the lesson where they joined, the course's in place of
    # the others
    verdicts = judged(place, limits or Limits(cell_seconds=TRIAL_SECONDS))
    for n, verdict in enumerate(verdicts):
        if verdict.owner == "ours" and int(verdict.part.lesson) < start:
            verdicts[n] = given_for(verdict)
    return Assembly(tuple(verdicts), answers_for(verdicts, root, place))


def answers_folder(root: Path, folder: str | Path | None) -> Path:
    """The folder to take answers from. One that was named must hold a notebook of the course."""
    if not folder:
        return work_folder(root)

    place = Path(folder).resolve()
    if not any(notebook_in(lesson, place) for lesson in lessons(root)):
        raise CourseError(
            f"There are no exercise notebooks in {place}. Name the folder that holds 02_bytecode_capture and so on."
        )
    return place


def answers_for(verdicts: list[Verdict], root: Path, folder: Path) -> dict[str, Answers]:
    """Part → the answers that it is made of; a notebook with several parts is loaded once."""
    homes = {"yours": folder, "given": root / "solutions"}
    loaded: dict[tuple[str, str], Answers] = {}
    answers_of_part: dict[str, Answers] = {}

    for verdict in verdicts:
        if verdict.owner == "ours":
            continue
        key = (verdict.part.lesson, verdict.owner)
        if key not in loaded:
            lesson = find_lesson(root, verdict.part.lesson)
            loaded[key] = load(lesson, homes[verdict.owner])
        answers_of_part[verdict.part.name] = loaded[key]
    return answers_of_part


def given_for(verdict: Verdict) -> Verdict:
    """The course's answer stands in; for a stub without a word, for an answer that fails with the
    reason."""
    if verdict.why.startswith("not solved yet"):
        return Verdict(verdict.part, "given")
    return Verdict(verdict.part, "given", f"yours: {verdict.why}")


def number_of(lesson: int | str | None) -> int:
    """A lesson as a number; None is before all of them."""
    if lesson is None:
        return 0
    return int(str(lesson).split("_")[0])


def judged(folder: Path, limits: Limits) -> list[Verdict]:
    """Each part's verdict. Only what is not a stub any more is run."""
    root = find_root()
    waiting: list[Part] = []
    verdicts: dict[str, Verdict] = {}

    for part in PARTS:
        stubs = untouched(find_lesson(root, part.lesson), folder) & set(part.answers)
        if stubs:
            names = ", ".join(sorted(stubs))
            why = f"not solved yet: NotImplementedError in {names}"
            verdicts[part.name] = Verdict(part, "ours", why)
        else:
            waiting.append(part)

    for part, why in tried(waiting, root, folder, limits):
        verdicts[part.name] = Verdict(part, "ours", why) if why else Verdict(part, "yours")
    return [verdicts[part.name] for part in PARTS]


def tried(
    parts: list[Part], root: Path, folder: Path, limits: Limits
) -> Iterator[tuple[Part, str]]:
    """Each part with why it does not work, or "". All are tried in one kernel, a cell each."""
    if not parts:
        return

    cells = [new_code_cell("import course_lib.grading.capstone as capstone")]
    cells += [new_code_cell(f"capstone.trial({part.name!r}, {str(folder)!r})") for part in parts]
    runs = run_notebook(new_notebook(cells=cells), root, limits)
    # (The first cell only imports.)
    for part, run in zip(parts, runs[1:], strict=True):
        yield part, why_not(run, limits)


def why_not(run: CellRun, limits: Limits) -> str:
    """Why the trial that ended so was not passed; "" where it was."""
    if run.ok:
        return ""
    error_text = " ".join(how_it_ended(run, limits).split())[:MOST_LETTERS]
    if run.ename == "NotImplementedError":
        return f"not solved yet: {error_text}"
    return f"it does not work yet: {error_text}"


def trial(name: str, folder: str) -> None:
    """Compile a small model with one part of the learner's, and compare with eager.

    Raises where that fails."""
    part = next(part for part in PARTS if part.name == name)
    answers = load(find_lesson(find_root(), part.lesson), Path(folder))
    for answer in part.answers:
        if answer in answers.failed:
            raise RuntimeError(f"the cell of the answer raises {answers.failed[answer]}")

    assembly = Assembly((Verdict(part, "yours"),), {part.name: answers}, strict=True)
    recorded_events: list[events.Event] = []
    with events.listener(recorded_events.append):
        compile_and_compare(part, assembly)

    # What fell back to eager was computed right, and not by the answer.
    for event in recorded_events:
        if isinstance(event, events.FellBack):
            raise why_it_fell_back(event.why)
    # The stages in ASKED are asked all the time: they keep no count of uses
    if part.stage not in ASKED and not assembly.uses.get(name):
        raise RuntimeError("the compiler never came to use it")


def compile_and_compare(part: Part, one: Assembly) -> None:
    """Compile what the part is tried on, without gradients and where it has to do with them also
    with them."""
    torch.manual_seed(SEED)
    function, calls = part.try_on()
    fullgraph = part.stage != "resume"  # a resume function comes after a break
    try:
        # (A set: a part that has nothing to do with gradients is tried once.)
        for training in {False, part.training}:
            compiled = one.compile(function, fullgraph=fullgraph)
            different = worst_of(function, compiled, calls, training)
            # Written so that NaN does not pass
            if not different < LARGEST_DIFFERENCE:
                raise ValueError(f"what it compiles differs from eager by {different:.2g}")
    except Unsupported as problem:
        raise problem.__cause__ or problem from None


def why_it_fell_back(why: str) -> Exception:
    """A stub that was called ends in eager, too: then the exercise is not written yet."""
    if "Exercise:" in why:
        return NotImplementedError(why)
    return RuntimeError(f"the compiler fell back to eager: {why}")
