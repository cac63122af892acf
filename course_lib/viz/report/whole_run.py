"""A whole run recorded, and its report written when it ends.

    COURSE_TRACE=dir python script.py
    course report script.py
    with cl.record("dir"): ...

In:  a folder. Out: `dir/report.html`, and `dir/report-PID.html` for each other process that
     compiled something.

A program may crash, fork, or be ended from outside. So a first version is written soon after the
first compile and again from time to time (without drawings, and never for more than a tenth of the
run's time); the whole one when Python ends.
In PyTorch: `TORCH_TRACE=dir`, then `tlparse dir`.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import sys
import time
from pathlib import Path
from typing import Any

from course_lib import events
from course_lib.viz.recording import Recording
from course_lib.viz.report.page import Run, command_line, how_it_ended, write_report

SHARE = 10
"""Between two reports of an unfinished run passes at least so many times the time that writing the
last one took."""
FIRST_PROCESS = "COURSE_TRACE_PROCESS"
"""The environment variable that tells child processes which process the run began with."""


class Session:
    """Records from now on, and writes reports into `folder`."""

    def __init__(self, folder: str | os.PathLike[str], command: str = "") -> None:
        self.folder = Path(folder).absolute()  # the program may go to another one
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run = Run(command, finished=False)
        # By `time.perf_counter`: when the run began, and when a report may be written again
        self.began = time.perf_counter()
        self.next_write = 0.0
        self.recording = Recording()
        # Open for as long as events are heard
        self.listening = contextlib.ExitStack()
        self.first_process = os.environ.setdefault(FIRST_PROCESS, str(os.getpid()))

    @property
    def path(self) -> Path:
        """Where the report of this process goes."""
        is_first_process = os.getpid() == int(self.first_process)
        return self.folder / ("report.html" if is_first_process else f"report-{os.getpid()}.html")

    def note(self, event: events.Event) -> None:
        """A listener. What is interpreted step by step is no part of a report."""
        if isinstance(event, events.InstructionRun):
            return
        self.recording.note(event)
        ended = isinstance(event, events.StageTimed) and event.stage in ("guards", "build")
        if ended and time.perf_counter() >= self.next_write:
            self.write(drawings=False)

    def write(self, drawings: bool = True) -> Path:
        """Write what there is so far."""
        start = time.perf_counter()
        self.run.seconds = start - self.began
        if self.path.name == "report.html":
            # The first process also lists the reports of the others in this run. (Older ones in the
            # folder are of another run.)
            others = self.folder.glob("report-*.html")
            recent = [p.name for p in others if p.stat().st_mtime >= self.run.started]
            self.run.others = tuple(sorted(recent))
        path = write_report(self.recording, self.path, self.run, drawings)
        self.next_write = time.perf_counter() + SHARE * (time.perf_counter() - start)
        return path

    def finish(self) -> None:
        """The run has ended: write the whole report.

        A child process that compiled nothing writes none."""
        if self.run.finished:
            return
        self.run.finished = True
        if self.path.name == "report.html" or self.recording.events:
            path = self.write()
            compiled = "" if self.recording.events else " (nothing was compiled)"
            print(f"course_lib: the compile report is {path}{compiled}", file=sys.stderr)

    def restart(self) -> None:
        """In a forked child: begin an empty recording.

        The parent tells what happened before the fork."""
        self.recording = Recording()
        self.run = Run(self.run.command, finished=False)
        self.began = time.perf_counter()
        self.next_write = 0.0
        # A process of `multiprocessing` ends without `atexit`, but runs its finalizers.
        multiprocessing.util.Finalize(None, self.finish, exitpriority=0)

    def watch_errors(self) -> None:
        """Tell in the report how the program ended."""
        hook = sys.excepthook

        def told(kind: Any, error: Any, trace: Any) -> None:
            if not issubclass(kind, KeyboardInterrupt):
                self.run.error = how_it_ended(error)
            hook(kind, error, trace)

        sys.excepthook = told


def start(folder: str) -> Session:
    """Record until the program ends.

    Called when `course_lib` is imported and `COURSE_TRACE` is set."""
    session = Session(folder, command_line())
    session.listening.enter_context(events.listener(session.note))
    session.watch_errors()
    atexit.register(session.finish)
    # The second runs later: `multiprocessing` has forgotten all finalizers by then, and `restart`
    # must register its own once more.
    os.register_at_fork(after_in_child=session.restart)
    multiprocessing.util.register_after_fork(session, Session.restart)
    return session


SESSION: Session | None = None
"""What records the whole run, if `COURSE_TRACE` asks for it."""
if wanted := os.environ.get("COURSE_TRACE"):
    try:
        SESSION = start(wanted)
    except OSError as error:  # no reason to stop a program
        print(
            f"course_lib: no report, for COURSE_TRACE={wanted} is no folder to write into ({error.strerror})",
            file=sys.stderr,
        )
