"""Marks without a kernel: the notebook runs in a fork of a prepared process, in IPython's own shell.

In:  a learner's notebook and the reference. Out: the same `Mark`s as `marks.mark` gives, in a twentieth of the time.

Everything is as in `marks.mark` but the process: the same cells of the grader stand between the notebook's, and the same shell
runs them. What this cannot show is what limits and the sandbox do.
"""

from __future__ import annotations

import functools
import gc
import inspect
import multiprocessing
import os
import re
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from course_lib.grading import explained
from course_lib.grading import marks as marking
from course_lib.grading.marks import Mark
from course_lib.grading.notebooks import Notebook
from course_lib.grading.runner import CellRun, Limits

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["light_prepared"])


def light_marks(learners: Notebook, reference: Notebook) -> list[Mark]:
    """Mark in a fork, so that nothing of one notebook is left for the next.

    The fork is one of a server, which has only imported what notebooks import (`light_prepared`). A fork of this process
    would not do: once autograd's engine has run in a process, it does not run in a fork of it (a CUDA build of torch aborts).
    """
    ours, theirs = SERVER.Pipe(duplex=False)
    child = SERVER.Process(target=in_the_fork, args=(theirs, learners, reference, Path.cwd()))
    child.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        found = None
    child.join()
    if found is None:
        raise AssertionError(
            f"The process in which the notebook ran ended before it gave marks (exit code {child.exitcode}; "
            "below 0 it is a signal): an answer crashed it."
        )
    if isinstance(found, str):
        raise AssertionError(found)
    return list(found)


@functools.cache
def prepare() -> None:
    """Import before the fork what every notebook imports."""
    import numpy  # noqa: F401
    import torch
    from IPython.core.interactiveshell import InteractiveShell  # noqa: F401

    import course_lib
    import course_lib.grading.keeper
    import course_lib.grading.switches
    from course_lib.grading import check  # noqa: F401

    course_lib.Pipeline

    torch.set_num_threads(1)  # threads do not survive a fork
    torch.testing.assert_close(torch.ones(1), torch.ones(1))  # which imports torch.distributed
    # a traceback asks for the module of every file; what was found is remembered
    inspect.getmodule(compile("", "<no file>", "exec"))
    gc.collect()
    gc.freeze()


def in_the_fork(answer: Connection, learners: Notebook, reference: Notebook, folder: Path) -> None:
    """Send the marks, or the text of what was raised."""
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.stdout, sys.stderr = os.fdopen(silence, "w"), os.fdopen(os.dup(silence), "w")
    os.chdir(folder)
    try:
        marking.run_notebook = run_here  # type: ignore[assignment]
        report = marking.mark(learners, reference, "light", Limits(), folder)
        answer.send(list(report.marks))
    except BaseException:
        answer.send(traceback.format_exc())
    answer.close()
    os._exit(0)  # what an answer left running does not keep the process


def run_here(nb: Notebook, folder: Path, limits: Limits, *more: Any) -> list[CellRun]:
    """What `runner.run_notebook` does, in this process."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    shell = InteractiveShell.instance(config=config)
    told: list[str] = []

    def keep(etype: Any, evalue: Any, lines: Any) -> None:
        told[:] = ["\n".join(lines)]

    shell._showtraceback = keep
    explained.listen()  # a kernel does this when the first cell imports the checks
    runs: list[CellRun] = []
    for index, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        told.clear()
        result = shell.run_cell(cell.source, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            runs.append(CellRun(index, "ok"))
            continue
        text = re.sub(r"\x1b\[[0-9;]*m", "", told[0] if told else "")
        runs.append(CellRun(index, "error", type(error).__name__, str(error), text))
    return runs
