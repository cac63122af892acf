"""A compiler of several hands: the learner's stages where they work, ours everywhere else.

In:  a `Verdict` on each part, and the answers that the learner's parts are made of.
Out: an `Assembly`, which compiles as `cl.compile` does.

Each stage of the learner's is watched: where it fails on a graph, ours does that graph, and `uses`
says so. Two stages are a class and a table (`ASKED`); the compiler asks them all the time, so that
no call of theirs can be counted or replaced.
PyTorch has no counterpart. `torch.compile(backend=...)` exchanges the back half alone.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

import course_lib.compiler
from course_lib import Pipeline, backends
from course_lib.apart import COMPILING
from course_lib.compiler import Compiler, compiled_function, compiled_module
from course_lib.frames import resume
from course_lib.guards import Check
from course_lib.viz.kit.style import Picture
from course_lib.viz.kit.tables import table
from course_lib.viz.pictures.pipeline.owners import keepsake, owners

from .answers import Answers
from .differences import worst
from .notebooks import find_root
from .parts import PARTS, NotAsked, Part, without_reductions
from .progress import progress

Owner = Literal["yours", "given", "ours"]
"""The learner's answer; the course's answer in its place; the compiler's own stage."""
ASKED = ("interpreter", "decompositions")
"""Stages that are a class and a table: nothing is called that could be counted, or replaced where
it fails."""


@dataclass(frozen=True)
class Verdict:
    """Whose a part is. `why` says what keeps the learner's out."""

    part: Part
    owner: Owner
    why: str = ""


@dataclass
class Assembly:
    """A compiler of several hands.

    `uses` counts, for each part of the learner's, how often it served, and why it did not."""

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
        """For `cl.compile(f, pipeline=...)`.

        (Guard checks and resume functions are no fields of it: see `compile`.)"""
        stages = self.stages()
        return Pipeline().replace(
            **{name: stage for name, stage in stages.items() if name not in ("check", "resume")}
        )

    def stages(self) -> dict[str, Any]:
        """Every stage, with the parts put in one after the other."""
        stages = vars(Pipeline()) | {"check": Check, "resume": resume.make_resume}
        for part in self.mine:
            # The `kernel_source` of the exercise writes no reductions: each stays a kernel alone.
            if part.stage == "build":
                stages["fuse"] = without_reductions(dict(stages))
            learners_stage = part.make(self.answers[part.name].names, dict(stages))
            stages[part.stage] = (
                learners_stage
                if part.stage in ASKED
                else self.watched(part, learners_stage, stages[part.stage])
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
        """`cl.compile`, with this compiler."""
        compiler = OwnCompiler(
            self, backends.find(backend, None, None, self.pipeline), fullgraph, dynamic
        )
        if isinstance(model, torch.nn.Module):
            return compiled_module(model, compiler)
        return compiled_function(model, compiler)

    def only(self, *names: str) -> Assembly:
        """This assembly with only the parts `names` of yours; all others are ours."""
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
        """This assembly with other functions in one part:
        `mine.exchange("my_plan", my_plan=another)`."""
        part = self.only(name)
        old = part.answers[name]
        new = Answers(old.lesson, {**old.names, **answers})
        return Assembly(self.verdicts, {**self.answers, name: new}, self.strict)

    def suspects(self, model: Any, *inputs: Any) -> dict[str, float]:
        """Part → the largest difference from eager, if `model` is compiled with this part alone.

        A bug in one stage shows in one line; "all" is the whole assembly."""
        return {name: worst(model, only.compile(model), inputs) for name, only in self.one_by_one()}

    def one_by_one(self) -> Iterator[tuple[str, Assembly]]:
        """Each part with the assembly that has this part alone; at last, "all"."""
        for part in self.mine:
            yield part.name, self.only(part.name)
        yield "all", self

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Room, part, exercise, owner, and what is to be said about it."""
        table_rows: list[tuple[str, str, str, str, str]] = []
        for verdict in self.verdicts:
            part = verdict.part
            counts = self.uses.get(part.name, Counter())
            # A stage that cannot be counted has served if anything was compiled.
            in_use = "yours" in counts or (
                part.stage in ASKED and verdict.owner != "ours" and self.uses
            )
            notes = ["served"] if in_use else []
            notes += [f"ours: {why}" for why in counts if why != "yours"]
            note = verdict.why or "; ".join(notes)
            table_rows.append(
                (part.room, f"{part.name} ({part.what})", part.exercise, verdict.owner, note)
            )

        return table_rows

    @property
    def picture(self) -> Picture:
        """Which stage is whose."""
        count = len(self.mine)
        caption = "So far every part is ours."
        if count:
            caption = f"{count} of {len(PARTS)} parts are yours or given."
        return table(self.rows, ["room", "part", "exercise", "whose", "here"], caption)

    @property
    def map(self) -> Picture:
        """Whose each part is, on the map of the pipeline."""
        return owners(
            (verdict.part.room, verdict.part.name, verdict.owner) for verdict in self.verdicts
        )

    def save(
        self, path: str | Path, name: str = "", facts: Mapping[str, object] | None = None
    ) -> Path:
        """Write a page to keep: the map, `facts` (what you found out about your compiler), and the
        points of every lesson."""
        standing = progress(find_root())
        points = [
            (s.name, "given" if s.state == "given" else f"{s.points:g} of {s.out_of:g}")
            for s in standing.lessons
        ]
        summary = f"{len(self.mine)} of {len(PARTS)} parts written in the exercises of course_lib; the others are the course's."
        path = Path(path)
        title = f"The compiler of {name}" if name else "My compiler"
        path.write_text(keepsake(title, summary, self.map, facts or {}, points), encoding="utf-8")

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
    if isinstance(problem, KeyError):
        message = f"{problem.args[0]}"
    else:
        message = str(problem)
    return f"{type(problem).__name__}: {message}".strip().splitlines()[0][:MOST_LETTERS]


MOST_LETTERS = 90
"""So much of an error stands in the table."""


@contextlib.contextmanager
def exchanged(module: Any, name: str, value: Any) -> Iterator[None]:
    """Within, `name` of a module is `value`."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
