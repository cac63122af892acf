"""The learner's own compiler: the stages written in the exercises, in one pipeline.

In:  a folder of exercise notebooks. Out: an `Assembly`: a `Pipeline` with the learner's stages where they work and ours
everywhere else, and pictures that say which is whose, and why.

    mine = assemble()              # your copies in work/
    fast = mine.compile(model)     # as cl.compile
    mine                           # in a notebook: the table

Three steps. An answer that still is the stub needs no trial: the stage is ours. Each other part is *tried*, alone, in a process
of its own with limits on time and memory, as `course check` runs answers: it compiles a small model, which must compute what
eager computes. What passes is loaded into this process and put in. A stage that was not asked to do what a graph needs (an
operator without a derivative) leaves that graph to ours, and `uses` counts it.
"""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from nbformat.v4 import new_code_cell, new_notebook

import course_lib.compiler
from course_lib import Pipeline, Unsupported, backends, events
from course_lib.compiler import Compiler, compiled_function, compiled_module
from course_lib.frames import resume
from course_lib.guards import Check
from course_lib.pipeline import COMPILING
from course_lib.viz.kit.style import Picture
from course_lib.viz.kit.tables import table
from course_lib.viz.pictures.pipeline.owners import keepsake, owners

from .answers import Answers, load, untouched
from .copies import notebook_in
from .marks import how_it_ended
from .notebooks import CourseError, find_lesson, find_root, lessons, work_folder
from .parts import PARTS, NotAsked, Part, without_reductions
from .progress import progress, started_at
from .runner import Limits, run_notebook

Owner = Literal["yours", "given", "ours"]
ASKED = ("interpreter", "decompositions")
"""Stages that are a class and a table: nothing is called that could be counted, or replaced where it fails."""


@dataclass(frozen=True)
class Verdict:
    """Whose a part is. `why` says what keeps the learner's out."""

    part: Part
    owner: Owner
    why: str = ""


@dataclass
class Assembly:
    """A compiler of several hands. `uses` counts, for each part of the learner's, how often it served, and why it did not."""

    verdicts: tuple[Verdict, ...]
    # part → the notebook that it comes from
    answers: dict[str, Answers] = field(default_factory=dict, repr=False)
    strict: bool = False  # An answer that fails raises, in place of leaving the graph to ours
    uses: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def mine(self) -> list[Part]:
        """The parts that are not ours."""
        return [verdict.part for verdict in self.verdicts if verdict.owner != "ours"]

    @property
    def pipeline(self) -> Pipeline:
        """For `cl.compile(f, pipeline=...)`. (Guard checks and resume functions are no fields of it: see `compile`.)"""
        stages = self.stages()
        return Pipeline().replace(
            **{name: made for name, made in stages.items() if name not in ("check", "resume")}
        )

    def stages(self) -> dict[str, Any]:
        """Every stage, with the parts put in one after the other."""
        stages = vars(Pipeline()) | {"check": Check, "resume": resume.make_resume}
        for part in self.mine:
            if part.stage == "build":
                stages["fuse"] = without_reductions(dict(stages))
            made = part.make(self.answers[part.name].names, dict(stages))
            stages[part.stage] = (
                made if part.stage in ASKED else self.watched(part, made, stages[part.stage])
            )
        return stages

    def watched(self, part: Part, mine: Any, ours: Any) -> Any:
        """`mine`, or `ours` where that fails; counted."""

        def stage(*args: Any) -> Any:
            counts = self.uses.setdefault(part.name, Counter())
            try:
                result = mine(*args)
            except Exception as problem:
                if self.strict:
                    raise
                counts[in_a_line(problem)] += 1
                return ours(*args)
            counts["yours"] += 1
            return result

        return stage

    def compile(
        self,
        model: Any,
        *,
        backend: str = "inductor",
        fullgraph: bool = False,
        dynamic: bool | None = None,
    ) -> Any:
        """As `cl.compile`, by this compiler."""
        compiler = OwnCompiler(
            self, backends.find(backend, None, None, self.pipeline), fullgraph, dynamic
        )
        return (
            compiled_module(model, compiler)
            if isinstance(model, torch.nn.Module)
            else compiled_function(model, compiler)
        )

    def only(self, *names: str) -> Assembly:
        """The same with these parts alone, and ours for all the others."""
        unknown = [name for name in names if name not in [part.name for part in self.mine]]
        if unknown:
            raise LookupError(
                f"'{unknown[0]}' is not among your parts: {', '.join(part.name for part in self.mine) or 'none'}"
            )
        left = [
            v if v.part.name in names else Verdict(v.part, "ours", "left out")
            for v in self.verdicts
        ]
        return Assembly(tuple(left), self.answers, self.strict)

    def exchange(self, name: str, **answers: Any) -> Assembly:
        """The same with other functions in one part: `mine.exchange("my_plan", my_plan=another)`."""
        part = self.only(name)
        old = part.answers[name]
        new = Answers(old.lesson, {**old.names, **answers})
        return Assembly(self.verdicts, {**self.answers, name: new}, self.strict)

    def suspects(self, model: Any, *inputs: Any) -> dict[str, float]:
        """Part → the largest difference from eager, if `model` is compiled with this part alone. A bug in one stage shows in one
        line; "all" is the whole assembly."""
        return {name: worst(model, only.compile(model), inputs) for name, only in self.one_by_one()}

    def one_by_one(self) -> Iterator[tuple[str, Assembly]]:
        for part in self.mine:
            yield part.name, self.only(part.name)
        yield "all", self

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Room, part, exercise, owner, and what is to be said about it."""
        said: list[tuple[str, str, str, str, str]] = []
        for verdict in self.verdicts:
            part, counts = verdict.part, self.uses.get(verdict.part.name, Counter())
            left = [f"ours: {why}" for why in counts if why != "yours"]
            in_use = "yours" in counts or (
                part.stage in ASKED and verdict.owner != "ours" and self.uses
            )
            note = verdict.why or "; ".join(["served"] * bool(in_use) + left)
            said.append(
                (part.room, f"{part.name} ({part.what})", part.exercise, verdict.owner, note)
            )
        return said

    @property
    def picture(self) -> Picture:
        """Which stage is whose."""
        count = len(self.mine)
        caption = (
            f"{count} of {len(PARTS)} parts are yours or given."
            if count
            else "So far every part is ours."
        )
        return table(self.rows, ["room", "part", "exercise", "whose", "here"], caption)

    @property
    def map(self) -> Picture:
        """The same on the map of the pipeline."""
        return owners(
            (verdict.part.room, verdict.part.name, verdict.owner) for verdict in self.verdicts
        )

    def save(
        self, path: str | Path, name: str = "", facts: Mapping[str, object] | None = None
    ) -> Path:
        """Write a page to keep: the map, `facts` (what you found out about your compiler), and the points of every lesson."""
        standing = progress(find_root())
        points = [
            (s.name, "given" if s.state == "given" else f"{s.points:g} of {s.out_of:g}")
            for s in standing.lessons
        ]
        said = f"{len(self.mine)} of {len(PARTS)} parts written in the exercises of course_lib; the others are the course's."
        path = Path(path)
        title = f"The compiler of {name}" if name else "My compiler"
        path.write_text(keepsake(title, said, self.map, facts or {}, points), encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_(include, exclude)


class OwnCompiler(Compiler):
    """A compiler whose guard checks and resume functions are an assembly's."""

    def __init__(
        self, assembly: Assembly, backend: Any, fullgraph: bool, dynamic: bool | None
    ) -> None:
        self.own = assembly.stages()
        super().__init__(backend, assembly.pipeline, fullgraph, dynamic)

    def convert(self, frame: Any) -> Any:
        """Only while this compiler compiles, and one compiles at a time."""
        check = exchanged(course_lib.compiler, "Check", self.own["check"])
        with COMPILING, check, exchanged(resume, "make_resume", self.own["resume"]):
            return super().convert(frame)


def in_a_line(problem: Exception) -> str:
    """Why an answer did not serve, short."""
    if isinstance(problem, NotAsked):
        return str(problem)
    said = f"{problem.args[0]}" if isinstance(problem, KeyError) else str(problem)
    return f"{type(problem).__name__}: {said}".strip().splitlines()[0][:90]


@contextlib.contextmanager
def exchanged(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


# ---- who passes -----------------------------------------------------------------------------------------------------


def assemble(
    folder: str | Path | None = None, given: int | str | None = None, limits: Limits | None = None
) -> Assembly:
    """The compiler that the answers in `folder` (default: your copies in `work/`) make.

    given: the lesson to start at: for every lesson before it, the course's own answer stands in where yours does not work yet
    (default: what `course join` was told). Raises CourseError for a folder without any notebook of the course."""
    root = find_root()
    chosen, folder = folder, Path(folder).resolve() if folder else work_folder(root)
    if chosen and not any(notebook_in(lesson, folder) for lesson in lessons(root)):
        raise CourseError(
            f"There are no exercise notebooks in {folder}. Name the folder that holds 02_bytecode_capture and so on."
        )
    start = number_of(given if given is not None else started_at(root))
    verdicts = judged(folder, limits or Limits(cell_seconds=90))
    verdicts = [
        given_for(v) if v.owner == "ours" and int(v.part.lesson) < start else v for v in verdicts
    ]
    homes = {"yours": folder, "given": root / "solutions"}
    wanted = {v.part.name: (v.part.lesson, v.owner) for v in verdicts if v.owner != "ours"}
    loaded = {
        (lesson, owner): load(find_lesson(root, lesson), homes[owner])
        for lesson, owner in sorted(set(wanted.values()))
    }
    answers = {name: loaded[key] for name, key in wanted.items()}
    return Assembly(tuple(verdicts), answers)


def given_for(verdict: Verdict) -> Verdict:
    """The course's answer stands in; for a stub without a word, for an answer that fails with the reason."""
    return Verdict(
        verdict.part,
        "given",
        "" if verdict.why.startswith("not solved yet") else f"yours: {verdict.why}",
    )


def number_of(lesson: int | str | None) -> int:
    """A lesson as a number; None is before all of them."""
    return int(str(lesson).split("_")[0]) if lesson is not None else 0


def judged(folder: Path, limits: Limits) -> list[Verdict]:
    """Each part's verdict. Only what is not a stub any more is run."""
    root, waiting, found = find_root(), [], {}
    for part in PARTS:
        stubs = untouched(find_lesson(root, part.lesson), folder) & set(part.answers)
        if stubs:
            found[part.name] = Verdict(
                part, "ours", f"not solved yet: NotImplementedError in {', '.join(sorted(stubs))}"
            )
        else:
            waiting.append(part)
    cells = [new_code_cell("import course_lib.grading.capstone as capstone")]
    cells += [new_code_cell(f"capstone.trial({part.name!r}, {str(folder)!r})") for part in waiting]
    runs = run_notebook(new_notebook(cells=cells), root, limits)[1:] if waiting else []
    for part, run in zip(waiting, runs, strict=True):
        if run.ok:
            found[part.name] = Verdict(part, "yours")
        else:
            said = " ".join(how_it_ended(run, limits).split())
            word = (
                "not solved yet" if run.ename == "NotImplementedError" else "it does not work yet"
            )
            found[part.name] = Verdict(part, "ours", f"{word}: {said[:140]}")
    return [found[part.name] for part in PARTS]


def trial(name: str, folder: str) -> None:
    """Compile a small model with one part of the learner's, and compare with eager. Raises where that fails."""
    part = next(part for part in PARTS if part.name == name)
    answers = load(find_lesson(find_root(), part.lesson), Path(folder))
    if failed := next(
        (answers.failed[answer] for answer in part.answers if answer in answers.failed), None
    ):
        raise RuntimeError(f"the cell of the answer raises {failed}")
    one = Assembly((Verdict(part, "yours"),), {part.name: answers}, strict=True)
    torch.manual_seed(15)
    function, calls = part.try_on()
    told: list[events.Event] = []
    try:
        with events.listener(told.append):
            for training in {False, part.training}:
                different = worst_of(
                    function,
                    one.compile(function, fullgraph=part.stage != "resume"),
                    calls,
                    training,
                )
                if not different < 1e-3:
                    raise ValueError(f"what it compiles differs from eager by {different:.2g}")
    except Unsupported as problem:
        raise problem.__cause__ or problem from None
    if fell := next((event.why for event in told if isinstance(event, events.FellBack)), None):
        raise (
            NotImplementedError(fell)
            if "Exercise:" in fell
            else RuntimeError(f"the compiler fell back to eager: {fell}")
        )
    if part.stage not in ASKED and not one.uses.get(name):
        raise RuntimeError("the compiler never came to use it")


def worst(model: Any, compiled: Any, inputs: tuple[Any, ...]) -> float:
    """The largest difference between two models on the same inputs: results, and where there are parameters, gradients."""
    return worst_of(
        model, compiled, [inputs], isinstance(model, torch.nn.Module) and model.training
    )


def worst_of(model: Any, compiled: Any, calls: list[tuple[Any, ...]], training: bool) -> float:
    different = 0.0
    for inputs in calls:
        with torch.set_grad_enabled(training):
            expected, got = (f(*copy.deepcopy(inputs)) for f in (model, compiled))
        pairs = [(expected, got)]
        if training:
            wanted = [p for p in model.parameters() if p.requires_grad]
            tangent = torch.randn_like(expected)
            pairs += zip(
                *(torch.autograd.grad(out, wanted, tangent) for out in (expected, got)), strict=True
            )
        different = max(different, *(apart(one, other) for one, other in pairs))
    return different


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors; infinite where shapes, dtypes or the places of NaN differ."""
    if (
        one.shape != other.shape
        or one.dtype != other.dtype
        or not torch.equal(one.isnan(), other.isnan())
    ):
        return float("inf")
    return (one - other).abs().nan_to_num(0, float("inf")).max().item() if one.numel() else 0.0
