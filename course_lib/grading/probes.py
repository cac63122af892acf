"""What the grader puts around the cells of a notebook that is marked: the keeper, and probes, which
find out whether anything was tampered with.

In:  a notebook that is about to be marked. Out: the same with cells of the grader between its
cells; afterwards, for each checks cell, a complaint or "", and which names of the learner's hide
names of Python or of the course.

Before each cell `keeper` takes a step: the course's cells find the course's names and switches.
That is no tampering. But a learner's answer shares a process with the checks. It could replace
`check_close` by a function that never fails, or `course_lib`'s own stage by eager. So a probe makes
calls that must fail, and tests that they do; it tests that the names which the keeper put back were
not replaced while the checks ran; and it takes a fingerprint of the library's code. It answers by
raising an error, which no code of the learner's can see. (A learner who rewrites IPython itself
could forge that, too. So where marks decide something, a teacher should look at the notebooks.)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbformat.v4 import new_code_cell

from course_lib.languages import phrase

from .assembling import COURSE, marking, role_of
from .names import Bound, bound, closure, meanings, needed, read_as_data
from .notebooks import Notebook, is_checks
from .runner import CellRun

# The files whose text is sent into the kernel, which runs both in one namespace: what stands
# between the cells.
KEEPER = [Path(__file__).with_name(name) for name in ("switches.py", "keeper.py")]

# The first cell: nothing of the learner's has run. All happens in a function whose name nobody can
# guess (`nonce`), so that no name is left behind, and the keeper is put into a module of that name.
SETUP = """
def {nonce}():
    import sys, types
    import numpy, torch, course_lib
    # what is loaded late puts functions into modules whose fingerprint is taken
    course_lib.Pipeline
    from course_lib.grading import CheckFailed, check, check_close, check_equal, check_keeps, check_runs
    module = sys.modules["{nonce}"] = types.ModuleType("{nonce}")
    for source in {sources!r}:
        exec(compile(source, "<keeper>", "exec"), vars(module))
    module.no_exit(get_ipython())
    habits = module.Habits(*map(frozenset, {habits!r}))
    module.keeper = module.Keeper(get_ipython().user_ns, habits, module.Switches())
{nonce}()
del {nonce}
"""

# `import` finds the module whatever the notebook's names say: it needs none of them.
STEP = """
import {nonce}
{nonce}.keeper.take({step!r})
"""

# A probe: `PROBE` runs with names of its own, by Python's own `exec`.
LOOK = """
import builtins as {nonce}
{nonce} = {nonce}.exec({nonce}.compile({source!r}, "<probe>", "exec"), {{"nonce": "{nonce}"}})
"""

# After checks: switches as the course left them, so that the probe itself can work.
CHECKED = """
import {nonce}
{nonce}.keeper.after_checks()
"""


# The fields of `Look`, as JSON behind the nonce in the text of an error
PROBE = """
import hashlib, json, sys, types
import torch
from IPython import get_ipython
import course_lib
from course_lib.grading import check, checks
course_lib.Pipeline  # names that come when first asked for are there before the first look

def code_of(thing):
    thing = vars(thing).get("__wrapped__", thing) if isinstance(thing, types.FunctionType) else thing
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    thing = thing.fget if isinstance(thing, property) else thing
    if not isinstance(thing, types.FunctionType):
        return b""
    code = thing.__code__
    inner = [c.co_code for c in code.co_consts if isinstance(c, types.CodeType)]
    return b"|".join([code.co_name.encode(), code.co_code, *map(str.encode, code.co_names), *inner])

def fingerprint(module):
    parts = []
    for key, value in sorted(vars(module).items(), key=lambda item: item[0]):
        inside = vars(value).values() if isinstance(value, type) and value.__module__ == module.__name__ else ()
        for part in map(code_of, (value, *inside)):
            if part:
                parts.append(key.encode() + part)
    return hashlib.sha256(b"#".join(parts)).hexdigest()[:12]

silent = []
for f, wrong in ((checks.check, (False, "")), (checks.check_equal, (1, 2, "")),
                 (checks.check_close, (torch.zeros(2), torch.ones(2)))):
    try:
        f(*wrong)
        silent.append(f"{f.__name__} does not fail any more")
    except checks.CheckFailed:
        pass
if torch.allclose(torch.zeros(2), torch.ones(2)) or torch.equal(torch.zeros(2), torch.ones(2)):
    silent.append("torch finds different tensors equal")
mine = get_ipython().user_ns
keeper = sys.modules[nonce].keeper
genuine = {key: getattr(checks, key) for key in ("check", "check_equal", "check_close", "check_keeps", "check_runs", "CheckFailed")}
genuine |= {key: sys.modules[name] for key, name in (("torch", "torch"), ("cl", "course_lib"), ("np", "numpy"))
            if name in sys.modules}
standing = sorted(key for key in genuine if mine.get(key) is genuine[key])
silent += [f"{key} was replaced" for key in sorted(keeper.watched) if key in genuine and key not in standing]
prints = {n: fingerprint(m) for n, m in list(sys.modules.items()) if n.startswith("course_lib") and m is not None}

# IPython shows where an error was raised, which takes longer than all of the above: here nobody reads it
class Answer(RuntimeError):
    def _render_traceback_(self):
        return []

Answer.__name__ = "RuntimeError"
raise Answer(nonce + json.dumps([silent, prints, keeper.shadows(), standing]))
"""


class Look(NamedTuple):
    """What a probe saw."""

    # Sentences about checks that were tampered with; none if all is as it should be
    silent: list[str]
    # Module of the course → the fingerprint of its code
    prints: dict[str, str]
    # Names of Python or of the course that a cell of the learner's has bound → the cell's number
    shadows: dict[str, int]
    # Names of checks and of torch that stand for what they should
    standing: list[str]


@dataclass(frozen=True)
class Probes:
    """The notebook with the grader's cells in place. The first of them comes before all else."""

    nb: Notebook
    places: list[int]  # Where each cell of the notebook went
    looks: dict[int, tuple[int, int]]  # a checks cell → where the probes before and after it are
    nonce: str

    def without(self, runs: dict[int, CellRun]) -> dict[int, CellRun]:
        """How the notebook's own cells ended, by their own numbers."""
        run_of_cell: dict[int, CellRun] = {}
        for index, place in enumerate(self.places):
            if place in runs:
                run_of_cell[index] = replace(runs[place], index=index)
        return run_of_cell

    def complaint(self, index: int, runs: dict[int, CellRun]) -> str:
        """Why the verdict about the checks cell `index` cannot be trusted, or "".

        What an earlier probe saw holds on."""
        clean = self._answer(runs[1])  # the first probe, behind the set-up
        for checks in sorted(self.looks):
            if checks > index:
                break
            if complaint := self._complaint(checks, runs, clean, checks == index):
                return complaint
        return ""

    def _complaint(
        self, index: int, runs: dict[int, CellRun], clean: Look | None, kept_silent: bool
    ) -> str:
        """What the two probes around the checks cell `index` have to say, or "".

        clean: what the first probe saw, before the learner's cells. kept_silent: is it a complaint
        if a probe did not answer?"""
        stood: set[str] = set()
        for run in (runs[place] for place in self.looks[index]):
            if run.outcome not in ("ok", "error"):
                continue  # the kernel was stopped or died: the checks cell's own mark says so
            answer = self._answer(run)
            if answer is None or clean is None:
                if kept_silent:
                    return phrase("The grader's own test cell was kept from answering.")
                continue

            # What stood before the checks and does not now was replaced while they ran.
            replaced = sorted(stood - set(answer.standing))
            silent = answer.silent or [f"{name} was replaced" for name in replaced]
            stood = set(answer.standing)
            if silent:
                return phrase("The checks were tampered with: {fault}.", fault=silent[0])

            changed = []
            for name, fingerprint in sorted(answer.prints.items()):
                if clean.prints.get(name, fingerprint) != fingerprint:
                    changed.append(name)
            if changed:
                return phrase(
                    "The answer changes the code of {module} itself: "
                    "write a stage of your own and give it to the pipeline.",
                    module=changed[0],
                )

        return ""

    def shadows(self, index: int, runs: dict[int, CellRun]) -> dict[str, int]:
        """Names of Python or of the course that a cell of the learner's bound before these checks →
        the cell's number."""
        answer = self._answer(runs[self.looks[index][0]])
        if answer:
            return {str(name): int(number) for name, number in answer.shadows.items()}
        return {}

    def _answer(self, run: CellRun) -> Look | None:
        """What a probe saw; None if its cell ended otherwise than by the probe's own error."""
        if run.ename != "RuntimeError" or not run.evalue.startswith(self.nonce):
            return None
        return Look(*json.loads(run.evalue[len(self.nonce) :]))


def with_probes(nb: Notebook) -> Probes:
    """A step of the keeper before each code cell, and a probe before and after each checks cell."""
    nonce = f"_grader_{secrets.token_hex(8)}"
    look = LOOK.format(nonce=nonce, source=PROBE)
    plan = Plan(nb)
    sources = [path.read_text(encoding="utf-8") for path in KEEPER]
    setup = SETUP.format(nonce=nonce, sources=sources, habits=plan.habits)
    cells = [new_code_cell(setup), new_code_cell(look)]
    places = []
    looks = {}

    for index, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            places.append(len(cells))
            cells.append(cell)
            continue
        step = STEP.format(nonce=nonce, step=plan.step(index))
        if not is_checks(cell):
            cells.append(new_code_cell(step))
            places.append(len(cells))
            cells.append(cell)
            continue
        before, after = (
            new_code_cell(step + look),
            new_code_cell(CHECKED.format(nonce=nonce) + look),
        )
        looks[index] = (len(cells), len(cells) + 2)
        places.append(len(cells) + 1)
        cells += [before, cell, after]

    around = nbformat.from_dict({**nb, "cells": cells})

    return Probes(around, places, looks, nonce)


class Plan:
    """What the keeper is told of each cell, all from the text of the notebook."""

    def __init__(self, nb: Notebook) -> None:
        # The code cells by their numbers, and what the course's names are made of
        self.code = {n: cell for n, cell in enumerate(nb.cells) if cell.cell_type == "code"}
        self.order = list(self.code)
        self.meaning = meanings([c.source for c in self.code.values() if role_of(c) in COURSE])
        learners = [cell for cell in self.code.values() if role_of(cell) not in COURSE]
        names = [bound(cell.source) for cell in learners]
        stubs = [bound(marking(cell).get("stub", "")) for cell in learners]

        # In the order of the keeper's `Habits`
        defines = union(bound_names.defined for bound_names in names)
        assigns = union(bound_names.assigned for bound_names in names)
        reads_as_data = union(read_as_data(cell.source) for cell in learners)
        answers = union(stub.defined | stub.assigned for stub in stubs)
        self.habits = [*map(sorted, (defines, assigns, reads_as_data, answers))]

    def step(self, index: int) -> dict[str, Any]:
        """The arguments of the step before cell `index`."""
        place = self.order.index(index)
        cell = self.code[index]
        comes = role_of(cell)
        needs = []
        if comes in COURSE:
            needs = sorted(closure(needed(cell.source), self.meaning))
        ended = None
        if place:
            ended = self.ended(self.code[self.order[place - 1]])
        return {"ended": ended, "comes": comes, "needs": needs}

    def ended(self, cell: Any) -> list[Any]:
        """The fields of the keeper's `Ended`."""
        names: Bound = bound(cell.source)
        number = marking(cell).get("number", 0)
        return [role_of(cell), number, sorted(names.names), sorted(names.defined)]


def union(sets: Iterable[Iterable[str]]) -> set[str]:
    return {name for names in sets for name in names}
