"""Run a notebook in a process of its own, within limits, and say how each cell ended.

In:  a notebook, the folder it runs in, `Limits`. Out: one `CellRun` for each code cell.

A learner's cell may loop for ever, fill the memory, fork, or crash its process. None of that may
cost the marks of the other exercises: a cell that goes too far is stopped, and the rest is run
again in a fresh kernel without it. This protects from accidents. Submissions of strangers run in a
`Sandbox` besides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from .kernel import CellRun as CellRun
from .kernel import Kernel
from .kernel import Limits as Limits
from .notebooks import Notebook
from .sandbox import Sandbox

_MOST_KERNELS = 4
"""For one notebook, with the first one. One that kills more of them would go on doing so, and each
death may take a cell's whole time."""


def run_notebook(
    nb: Notebook,
    folder: Path,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    tell: Callable[[int], None] | None = None,
) -> list[CellRun]:
    """Run every code cell in order, going on after an error, as a learner would who runs them one
    by one.

    `tell` gets the number of each cell before it runs."""
    limits = limits or Limits()
    cells = [
        (index, cell.source) for index, cell in enumerate(nb.cells) if cell.cell_type == "code"
    ]
    deadline = time.monotonic() + limits.total_seconds
    run_of_cell: dict[int, CellRun] = {}
    for _ in range(_MOST_KERNELS):
        with Kernel(folder, limits, sandbox) as kernel:
            if not _run_until_death(kernel, cells, run_of_cell, deadline, tell):
                break
    return [run_of_cell.get(index, CellRun(index, "not reached")) for index, _ in cells]


def _run_until_death(
    kernel: Kernel,
    cells: list[tuple[int, str]],
    done: dict[int, CellRun],
    deadline: float,
    tell: Callable[[int], None] | None,
) -> bool:
    """Run `cells`, adding to `done`; True if the kernel died on the way, so that the rest needs a
    fresh one. False if all were run, or the time of the whole notebook is over.

    A cell that was run by an earlier kernel is run again for what it defines, unless it was its
    death.
    """
    for index, source in cells:
        if index in done and done[index].outcome not in ("ok", "error"):
            continue
        if time.monotonic() > deadline:
            return False
        if tell:
            tell(index)
        run = kernel.run(index, source, deadline)
        done.setdefault(index, run)
        if not kernel.alive:
            done[index] = run
            return True
    return False
