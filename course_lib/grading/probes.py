"""Was anything tampered with? Cells that the grader puts around each checks cell of a submission.

In:  a notebook that is about to be marked. Out: the same with probes; afterwards, for each checks cell, a complaint or "".

A learner's answer shares a process with the checks. It could replace `check_close` by a function that never fails, or
`course_lib`'s own stage by eager. A probe does what must fail and looks whether it does, compares the names that the checks use
with where they come from, and takes a fingerprint of the library's code. It answers by raising: an answer nobody sees
otherwise. (Who rewrites IPython itself could forge this too: marks that decide something deserve a look.)
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from nbformat.v4 import new_code_cell

from .notebooks import Notebook, is_checks
from .runner import CellRun

PROBE = """
def {name}():
    import hashlib, json, sys, types
    import torch
    from course_lib.grading import checks

    def code_of(thing):
        thing = vars(thing).get("__wrapped__", thing) if isinstance(thing, types.FunctionType) else thing
        if isinstance(thing, (staticmethod, classmethod)):
            thing = thing.__func__
        thing = thing.fget if isinstance(thing, property) else thing
        if not isinstance(thing, types.FunctionType):
            return b""
        code = thing.__code__
        inner = [c.co_code for c in code.co_consts if isinstance(c, types.CodeType)]
        return b"|".join([code.co_name.encode(), code.co_code, repr(code.co_names).encode(), *inner])

    def fingerprint(module):
        parts = []
        for key, value in sorted(vars(module).items(), key=lambda item: item[0]):
            inside = vars(value).values() if isinstance(value, type) and value.__module__ == module.__name__ else ()
            parts += [key.encode() + code_of(v) for v in (value, *inside) if code_of(v)]
        return hashlib.sha256(b"#".join(parts)).hexdigest()[:12]

    silent = []
    for f, wrong in ((checks.check, (False, "")), (checks.check_equal, (1, 2, "")),
                     (checks.check_close, (torch.zeros(2), torch.ones(2)))):
        try:
            f(*wrong)
            silent.append(f"{{f.__name__}} does not fail any more")
        except checks.CheckFailed:
            pass
    if torch.allclose(torch.zeros(2), torch.ones(2)) or torch.equal(torch.zeros(2), torch.ones(2)):
        silent.append("torch finds different tensors equal")
    mine = get_ipython().user_ns
    for key in ("check", "check_equal", "check_close", "CheckFailed"):
        if key in mine and mine[key] is not getattr(checks, key):
            silent.append(f"{{key}} was replaced")
    for key, module in (("torch", "torch"), ("cl", "course_lib"), ("np", "numpy")):
        if key in mine and isinstance(mine[key], types.ModuleType) and mine[key] is not sys.modules[module]:
            silent.append(f"{{key}} was replaced")
    prints = {{n: fingerprint(m) for n, m in list(sys.modules.items()) if n.startswith("course_lib") and m is not None}}
    raise RuntimeError("{nonce}" + json.dumps([silent, prints]))
{name}()
"""


@dataclass(frozen=True)
class Probes:
    """The notebook with its probes in place: the first before all else, one on each side of every checks cell."""

    nb: Notebook
    places: list[int]  # Where each cell of the notebook went
    nonce: str

    def without(self, runs: dict[int, CellRun]) -> dict[int, CellRun]:
        """How the notebook's own cells ended, by their own numbers."""
        return {index: runs[place] for index, place in enumerate(self.places) if place in runs}

    def complaint(self, index: int, runs: dict[int, CellRun]) -> str:
        """Why the verdict about the checks cell `index` cannot be trusted, or ""."""
        clean = self._answer(runs[0])
        for run in (runs[self.places[index] - 1], runs[self.places[index] + 1]):
            if run.outcome not in ("ok", "error"):
                continue  # the kernel was stopped or died: the checks cell's own mark says so
            answer = self._answer(run)
            if answer is None or clean is None:
                return "The grader's own test cell was kept from answering."
            silent, prints = answer
            changed = sorted(
                name for name, print_ in prints.items() if clean[1].get(name, print_) != print_
            )
            if silent:
                return f"The checks were tampered with: {silent[0]}."
            if changed:
                return f"The answer changes the code of {changed[0]} itself: write a stage of your own and give it to the pipeline."
        return ""

    def _answer(self, run: CellRun) -> tuple[list[str], dict[str, str]] | None:
        if run.ename != "RuntimeError" or not run.evalue.startswith(self.nonce):
            return None
        silent, prints = json.loads(run.evalue[len(self.nonce) :])
        return silent, prints


def with_probes(nb: Notebook) -> Probes:
    """A probe before anything of the learner's has run, and one before and after each checks cell."""
    nonce = secrets.token_hex(8)
    source = PROBE.format(name=f"_probe_{nonce}", nonce=nonce)
    cells, places = [new_code_cell(f"import course_lib\n{source}")], []
    for cell in nb.cells:
        around = [new_code_cell(source)] if is_checks(cell) else []
        places.append(len(cells) + len(around))
        cells += [*around, cell, *around]
    nb.cells = cells
    return Probes(nb, places, nonce)
