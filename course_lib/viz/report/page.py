"""The trace report: one HTML file about everything that was compiled in a run.

In:  a `Recording`, and what is known about the run (`Run`).
Out: a page without network. First what a person asks first (`findings.py`): which line broke a
     graph, which guard failed and which line made it, what was compiled again and why. Then tables
     (`tables.py`): where compile time went, which kernel came from which line. Then every compile
     as a tree (`tree_section.py`); of a large run, packed (`packed`): a tenth of the bytes, and the
     first part is seen at once.
In PyTorch: `tlparse`.
"""

from __future__ import annotations

import base64
import gzip
import os
import platform
import shlex
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_lib import events
from course_lib.capture.sources import Unsupported
from course_lib.viz.kit.style import escape, human_seconds, page, plural
from course_lib.viz.recording import Recording
from course_lib.viz.report.calls_section import calls_html
from course_lib.viz.report.compile_tree import compiles_of, functions_of
from course_lib.viz.report.compiles import Compile
from course_lib.viz.report.findings import findings_html
from course_lib.viz.report.tables import (
    breaks_html,
    eager_html,
    kernels_html,
    recompiles_html,
    time_html,
)
from course_lib.viz.report.tree_section import Budget, tree

SHEETS = ("break", "bytecode", "code", "guards", "loops", "report")
# The page's table of contents. `sections` makes a section for each of these keys.
CONTENTS = {
    "first": "look first", "breaks": "graph breaks", "guards": "failed guards", "time": "compile time", "kernels": "kernels",
    "eager": "in eager", "calls": "calls", "compiles": "every compile",
}  # fmt: skip
NO_CALLS = "<p>Only compiles were recorded. Within <code>with cl.record(folder):</code> calls are, too.</p>"
PACKED_FROM = 1_000_000
"""Characters. A shorter tree stands on the page as it is; a longer one is packed, and a script on
the page unpacks it."""
UNPACK = Path(__file__).with_name("unpack.js")


@dataclass
class Run:
    """What is known about the run beside its events."""

    command: str = ""
    started: float = field(default_factory=time.time)
    seconds: float = 0.0
    error: str = ""
    """How the program ended, if not well."""
    finished: bool = True
    """False in a report that is written while the program runs."""
    others: tuple[str, ...] = ()
    """Reports of its other processes: names of files beside this one."""


def report(recording: Recording, run: Run | None = None, drawings: bool = True) -> str:
    """The page. Without `drawings` it is quick to make: the tree then has code and tables only."""
    run = run or Run()
    compiles = compiles_of(recording)
    parts = [head(run, compiles)]
    if compiles:
        parts += sections(recording, compiles, drawings)

    title = "Compile report"
    if run.command:
        title = f"Compile report of {run.command}"
    return page(f'<main class="cl-fig cl-report">{"".join(parts)}</main>', title, SHEETS)


def sections(recording: Recording, compiles: list[Compile], drawings: bool) -> list[str]:
    """The parts of the page, in the order in which a person asks."""
    functions = functions_of(compiles)

    # A section is made when the page is written: one that fails leaves the others as they are
    def calls() -> str:
        return calls_html(recording, compiles) or NO_CALLS

    def every_compile() -> str:
        return tree(recording, functions, Budget(drawings))

    return [
        section("first", "What to look at first", lambda: findings_html(compiles)),
        section("breaks", "Lines that ended a graph", lambda: breaks_html(compiles)),
        section(
            "guards",
            "Guards that failed, and what was compiled again",
            lambda: recompiles_html(compiles),
        ),
        section("time", "Where compile time went", lambda: time_html(recording, functions)),
        section("kernels", "Which kernel came from which line", lambda: kernels_html(compiles)),
        section("eager", "What runs in eager after all", lambda: eager_html(compiles)),
        section("calls", "What calls cost", calls),
        packed(section("compiles", "Every compile", every_compile)),
    ]


def section(name: str, title: str, make: Callable[[], str]) -> str:
    """A part of the page.

    What cannot be shown is told; a report never ends the program that it is about."""
    try:
        body = make()
    except Exception as error:
        why = f"{escape(type(error).__name__)}: {escape(error)}"
        body = f"<p>This part could not be shown: {why}</p>"
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>'


def packed(part: str) -> str:
    """A part of the page; a large one compressed, and put in its place as soon as the rest is on
    the screen.

    The same words come again and again there (a kernel for each layer, a guard for each parameter):
    the browser's own gzip says each once."""
    if len(part) < PACKED_FROM:
        return part

    # (Without the time, the same run gives the same page.)
    data = base64.b64encode(gzip.compress(part.encode(), 9, mtime=0)).decode()
    script = UNPACK.read_text(encoding="utf-8")
    return (
        '<div id="unpacked"><p>Every compile is being unpacked …</p></div>'
        "<noscript><p>Every compile is packed in this page: a browser shows it that may run the page's script.</p></noscript>"
        f'<script type="text/plain" id="packed">{data}</script><script>\n{script}</script>'
    )


def write_report(
    recording: Recording, path: Path, run: Run | None = None, drawings: bool = True
) -> Path:
    """Write the page to a file; who reads it meanwhile sees the last one whole.

    Gives the path back."""
    text = report(recording, run, drawings)
    path.parent.mkdir(parents=True, exist_ok=True)

    unfinished = path.with_suffix(".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path


# ---- the head ------------------------------------------------------------------------------------


def head(run: Run, compiles: list[Compile]) -> str:
    """What ran, and the run in one sentence."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    device = "GPU" if torch.cuda.is_available() else "CPU"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, {device}"
    time_text = ""
    if run.seconds:
        time_text = f" · {human_seconds(run.seconds)} in all"

    lines = [f"<h1>{escape(run.command or 'Compile report')}</h1>"]
    lines.append(f'<p class="cl-dim">{escape(when)} · {escape(versions)}{time_text}</p>')
    lines.append(f"<p><b>{escape(summary(compiles, run))}</b></p>")
    if run.error:
        lines.append(f'<div class="cl-torn cl-m">{escape(run.error)}</div>')
    if not run.finished:
        lines.append(
            "<p>The program was still running when this was written, or was ended from outside.</p>"
        )
    if run.others:
        links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in run.others)
        lines.append(f"<p>Its other processes: {links}</p>")
    if compiles:
        links = " · ".join(
            f'<a href="#{name}">{link_text}</a>' for name, link_text in CONTENTS.items()
        )
        lines.append(f"<nav>{links}</nav>")
    return f"<header>{''.join(lines)}</header>"


def summary(compiles: list[Compile], run: Run) -> str:
    """The run in a sentence."""
    if not compiles:
        return (
            "Nothing was compiled: no function that cl.compile had wrapped was called. Where the program calls "
            "torch.compile, `course report --torch-compile` lets that mean cl.compile."
        )

    # A compile that ended before it had a graph counts for its break only
    captured_compiles = [
        compile for compile in compiles if compile.result is not None or compile.builds
    ]
    programs = [program for compile in compiles for program in compile.programs]
    counts = (
        plural(len(captured_compiles), "graph") + " captured",
        plural(sum(len(compile.problems) for compile in compiles), "graph break"),
        plural(sum(compile.is_recompile for compile in compiles), "recompile"),
        plural(sum(len(program.kernels) for program in programs), "kernel"),
    )
    compile_seconds = sum(compile.total_seconds for compile in compiles)
    sentence = f"{', '.join(counts)}; {human_seconds(compile_seconds)} of compiling"
    if run.seconds > compile_seconds:
        sentence += f" ({100 * compile_seconds / run.seconds:.0f} % of the run)"
    return f"{sentence}."


def how_it_ended(error: BaseException) -> str:
    """A traceback's last frames.

    What capture cannot do is no fault of its own code: then the program's frames only."""
    summary = traceback.TracebackException.from_exception(error)
    if isinstance(error, Unsupported):
        ours = str(Path(events.__file__).parent)
        torchs = str(Path(torch.__file__).parent)
        # ("<": code that was generated, such as a head)
        own_frames = [
            frame for frame in summary.stack if not frame.filename.startswith((ours, torchs, "<"))
        ]
        summary.stack = traceback.StackSummary.from_list(own_frames)
        summary.__cause__ = summary.__context__ = None

    summary.stack = traceback.StackSummary.from_list(summary.stack[-LAST_FRAMES:])
    return "".join(summary.format()).rstrip()


LAST_FRAMES = 4
"""So many frames of a traceback stand in a report."""
SCRIPT = "course_lib.viz.report.script"
"""The module that `course report` runs a program with."""


def command_line() -> str:
    """How this program was started, as a person would type it."""
    words = list(getattr(sys, "orig_argv", sys.argv))
    if not words:
        return ""

    # `python -m course_lib.viz.report.script program.py 3` is told as `python program.py 3`.
    if SCRIPT in words:
        program = words[words.index(SCRIPT) + 1 :]
        words = [words[0], *(word for word in program if word != "--torch-compile")]
    return shlex.join([os.path.basename(words[0]), *words[1:]])
