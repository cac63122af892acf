"""The trace report: one HTML file about everything that was compiled in a run.

In:  a `Recording`, and what is known about the run (`Run`).
Out: a page without network. First what a person asks first: which line broke a graph, which guard failed and which line made it,
     what was compiled again and why, where compile time went, which kernel came from which line. Then every compile as a tree
     (`tree_section.py`); of a large run, packed (`packed`): a tenth of the bytes, and the first part is seen at once.
In PyTorch: `tlparse`.
"""

from __future__ import annotations

import base64
import gzip
import os
import platform
import re
import shlex
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from course_lib import events, frames
from course_lib.capture.sources import Unsupported
from course_lib.viz.kit.style import escape, human_bytes, human_seconds, page, place, plural
from course_lib.viz.kit.tables import breakable, html_table
from course_lib.viz.kit.user_lines import is_own, same_break
from course_lib.viz.kit.user_lines import way as way_of
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.pictures.guards.guard_tables import (
    STACK,
    about,
    cause_of,
    inner_of,
    readable,
    told,
)
from course_lib.viz.recording import Recording, plain
from course_lib.viz.report.calls_section import calls_html
from course_lib.viz.report.compile_time import compile_time
from course_lib.viz.report.compile_tree import (
    FOREIGN,
    Compile,
    Function,
    by,
    compiles_of,
    functions_of,
    walk,
)
from course_lib.viz.report.tree_section import Budget, anchor, split, tree

SHEETS = ("break", "bytecode", "code", "guards", "loops", "report")
CONTENTS = {
    "first": "look first", "breaks": "graph breaks", "guards": "failed guards", "time": "compile time", "kernels": "kernels",
    "eager": "in eager", "calls": "calls", "compiles": "every compile",
}  # fmt: skip
FINDINGS = 8
"""So many findings stand at the top; the tables below have all."""
MANY_SIZES = 4
"""A graph with symbolic sizes that was built for so many sets of them is worth a word."""
MOST_ROWS, MOST_LINES, LONG_TEST = 24, 6, 160
"""So many rows of a table are shown at once, the others unfold; so many lines of the program for a kernel, and so many characters
of a test."""


@dataclass
class Run:
    """What is known about the run beside its events."""

    command: str = ""
    started: float = field(default_factory=time.time)
    seconds: float = 0.0
    error: str = ""
    """How the program ended, if not well."""
    finished: bool = True
    others: tuple[str, ...] = ()
    """Reports of its other processes: names of files beside this one."""


@dataclass
class Finding:
    """A thing to look at. `weight` puts the dearest first."""

    mark: str
    title: str
    body: str
    target: str
    weight: float = 0.0


def report(recording: Recording, run: Run | None = None, drawings: bool = True) -> str:
    """The page. Without `drawings` it is quick to make: the tree then has code and tables only."""
    run, compiles = run or Run(), compiles_of(recording)
    functions = functions_of(compiles)
    title = f"Compile report{f' of {run.command}' if run.command else ''}"
    parts = [head(run, compiles)]
    if compiles:
        parts += [
            section("first", "What to look at first", lambda: findings_html(compiles, run)),
            section("breaks", "Lines that ended a graph", lambda: breaks_html(compiles)),
            section(
                "guards",
                "Guards that failed, and what was compiled again",
                lambda: recompiles_html(compiles),
            ),
            section("time", "Where compile time went", lambda: time_html(recording, functions)),
            section("kernels", "Which kernel came from which line", lambda: kernels_html(compiles)),
            section("eager", "What runs in eager after all", lambda: eager_html(compiles)),
            section(
                "calls", "What calls cost", lambda: calls_html(recording, compiles) or NO_CALLS
            ),
            packed(
                section(
                    "compiles",
                    "Every compile",
                    lambda: tree(recording, functions, Budget(drawings)),
                )
            ),
        ]
    return page(f'<main class="cl-fig cl-report">{"".join(parts)}</main>', title, SHEETS)


NO_CALLS = "<p>Only compiles were recorded. Within <code>with cl.record(folder):</code> calls are, too.</p>"
PACKED_FROM = 1_000_000
"""A tree of fewer characters stands on the page as it is, which then runs no script."""
UNPACK = """
addEventListener("load", () => setTimeout(async () => {
  const box = document.getElementById("unpacked");
  try {
    const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    box.innerHTML = await new Response(stream).text();
  } catch (error) {
    box.textContent = "Every compile: this browser could not unpack it (" + error + ").";
    return;
  }
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !box.contains(target)) return;
    for (let above = target; above !== box; above = above.parentElement) if (above.tagName === "DETAILS") above.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
}));
"""


def packed(part: str) -> str:
    """A part of the page; a large one compressed, and put in its place as soon as the rest is on the screen.

    The same words come again and again there (a kernel for each layer, a guard for each parameter): the browser's own gzip says
    each once."""
    if len(part) < PACKED_FROM:
        return part
    data = base64.b64encode(gzip.compress(part.encode(), 9, mtime=0)).decode()
    return (
        '<div id="unpacked"><p>Every compile is being unpacked …</p></div>'
        "<noscript><p>Every compile is packed in this page: a browser shows it that may run the page's script.</p></noscript>"
        f'<script type="text/plain" id="packed">{data}</script><script>{UNPACK}</script>'
    )


def write_report(
    recording: Recording, path: Path, run: Run | None = None, drawings: bool = True
) -> Path:
    """Write the page to a file; who reads it meanwhile sees the last one whole. Gives the path back."""
    text = report(recording, run, drawings)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
    return path


def how_it_ended(error: BaseException) -> str:
    """A traceback's last frames. What capture cannot do is no fault of its own code: then the program's frames only."""
    told = traceback.TracebackException.from_exception(error)
    if isinstance(error, Unsupported):
        apart = (str(Path(events.__file__).parent), str(Path(torch.__file__).parent))
        told.__cause__ = told.__context__ = None
        own = [frame for frame in told.stack if not frame.filename.startswith((*apart, "<"))]
        told.stack = traceback.StackSummary.from_list(own)
    told.stack = traceback.StackSummary.from_list(told.stack[-4:])
    return "".join(told.format()).rstrip()


def command_line() -> str:
    """How this program was started, as a person would type it."""
    words = list(getattr(sys, "orig_argv", sys.argv))
    if "course_lib.viz.report.script" in words:
        words = [
            words[0],
            *(
                word
                for word in words[words.index("course_lib.viz.report.script") + 1 :]
                if word != "--torch-compile"
            ),
        ]
    return shlex.join([os.path.basename(words[0]), *words[1:]]) if words else ""


def section(name: str, title: str, make: Callable[[], str]) -> str:
    """A part of the page. What cannot be shown is told; a report never ends the program that it is about."""
    try:
        body = make()
    except Exception as error:
        body = (
            f"<p>This part could not be shown: {escape(type(error).__name__)}: {escape(error)}</p>"
        )
    return f'<section id="{name}"><h2>{escape(title)}</h2>{body}</section>'


# ---- the head -------------------------------------------------------------------------------------------------------


def head(run: Run, compiles: list[Compile]) -> str:
    """What ran, and the run in one sentence."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, {'GPU' if torch.cuda.is_available() else 'CPU'}"
    lines = [f"<h1>{escape(run.command or 'Compile report')}</h1>"]
    took = f" · {human_seconds(run.seconds)} in all" if run.seconds else ""
    lines.append(f'<p class="cl-dim">{escape(when)} · {escape(versions)}{took}</p>')
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
        links = " · ".join(f'<a href="#{name}">{said}</a>' for name, said in CONTENTS.items())
        lines.append(f"<nav>{links}</nav>")
    return f"<header>{''.join(lines)}</header>"


def summary(compiles: list[Compile], run: Run) -> str:
    """The run in a sentence."""
    if not compiles:
        said = "Nothing was compiled: no function that cl.compile had wrapped was called."
        return (
            said
            + " Where the program calls torch.compile, `course report --torch-compile` lets that mean cl.compile."
        )
    done = [compile for compile in compiles if compile.result is not None or compile.builds]
    kernels = sum(len(program.kernels) for compile in compiles for program in compile.programs)
    breaks = sum(len(compile.problems) for compile in compiles)
    again = sum(compile.is_recompile for compile in compiles)
    took = sum(compile.took for compile in compiles)
    said = f"{plural(len(done), 'graph')} captured, {plural(breaks, 'graph break')}, {plural(again, 'recompile')}, "
    said += f"{plural(kernels, 'kernel')}; {human_seconds(took)} of compiling"
    return said + (
        f" ({100 * took / run.seconds:.0f} % of the run)." if run.seconds > took else "."
    )


# ---- what to look at first ------------------------------------------------------------------------------------------


def findings(compiles: list[Compile]) -> list[Finding]:
    """What costs most and can be changed, the dearest first."""
    found = [
        *broken(compiles),
        *recompiled(compiles),
        *made_anew(compiles),
        *left_to_eager(compiles),
    ]
    return sorted(found, key=lambda finding: -finding.weight)


def broken(compiles: list[Compile]) -> Iterator[Finding]:
    """Lines that end a graph."""
    for many in by(breaks_of(compiles), lambda pair: same_break(pair[1])).values():
        compile, problem = first_own(many)
        times = f" ({len(many)} times)" if len(many) > 1 else ""
        raised = any(compile.raised for compile, _ in many)
        title = f"{where(problem.location)} {'is an error' if raised else 'ends a graph'}{times}: {problem.reason}"
        body = caret(problem.location)
        body += "".join(
            f'<p class="cl-dim">{said}</p>'
            for said in (in_the_end(compile, problem), escape(reached(problem)))
            if said
        )
        body += f"<p>{RAISED}</p>" if raised else ""
        body += what_to_do(problem.hint)
        weight = 200 if raised else 100 + len(many) if len(many) > 1 else 60
        # what called it broke first
        weight = weight if is_own(problem.location) or not compile.behind else 15
        yield Finding("✂", title, body, f"c{compile.number}", weight if problem.location else 10)


def recompiled(compiles: list[Compile]) -> Iterator[Finding]:
    """Functions whose guards fail again and again: the guard that fails most often, and the others. They weigh what share of
    all compiling they took."""
    took = sum(c.took for c in compiles)
    for name, many in by((c for c in compiles if c.failures), lambda c: c.title).items():
        made, limit = sum(c.is_recompile for c in many), any(c.in_eager for c in many)
        kinds = by(
            ((one, c.number, c) for c in many for one in c.failures),
            lambda pair: what_failed(pair[0]),
        )
        times = {kind: len({number for _, number, _ in pairs}) for kind, pairs in kinds.items()}
        order = sorted(kinds, key=lambda kind: (-times[kind], -kinds[kind][-1][1]))
        failed, _, last = kinds[order[0]][-1]
        again = f"was compiled {'twice' if made == 1 else f'{made + 1} times'}"
        title = f"{name} {again if made else 'was looked at again, and had nothing to compile'}"
        title += ", and now calls that fit no entry run in eager" if limit else ""
        title += (
            ", and now a call that fits no entry is an error"
            if any(c.at_limit for c in many)
            else ""
        )
        often = "The last guard that failed"
        if order[1:]:
            often = f"The guard that failed at {times[order[0]]} of the {len(many)} calls that fitted no entry"
        body = f"<p>{often}: <code>{escape(told(failed))}</code>{because(failed.guard, last)}</p>"
        if order[1:]:
            also = [
                f"<code>{escape(kind)}</code>{because(kinds[kind][-1][0].guard, kinds[kind][-1][2])}"
                for kind in order[1:5]
            ]
            also += [f"and {len(order) - 5} more"] if len(order) > 5 else []
            body += (
                f"<p>Others that failed:</p><ul>{''.join(f'<li>{one}</li>' for one in also)}</ul>"
            )
        body += "".join(
            f"<p>{escape(why)}.</p>" for why in dict.fromkeys(c.by_itself for c in many) if why
        )
        body += what_to_do(advice(failed, ", from line " in name))
        weight = 20 + 100 * sum(c.took for c in many) / took if took else 10 * made
        limit = limit or any(c.at_limit for c in many)
        yield Finding(
            "◆", title, body, f"c{many[-1].number}", max(weight, 105) if limit else weight
        )


def made_anew(compiles: list[Compile]) -> Iterator[Finding]:
    """Functions that each call of `compile` begins with anew, and graphs that are planned for many sizes."""
    first = (
        c for c in compiles if c.code is not None and not c.failures and " from " not in c.name
    )
    for same in by(first, lambda c: (frames.number(c.code), c.given)).values():
        if len(same) > 1:
            title = f"{same[0].title} was compiled {len(same)} times as something new"
            body = "<p>What is compiled belongs to what one call of <code>compile()</code> gave: each of these had its own.</p>"
            body += what_to_do(
                "call compile() once, outside of the loop or function, and keep what it gives"
            )
            yield Finding("◆", title, body, f"c{same[-1].number}", 10 * len(same))
    for compile in compiles:
        if len(compile.builds) >= MANY_SIZES:
            took = human_seconds(sum(sum(build.seconds.values()) for build in compile.builds))
            title = f"{compile.title} was planned anew for {len(compile.builds)} sets of sizes or numbers"
            body = f"<p>One graph serves them all, but it is traced and scheduled for each set that it meets: {took} here.</p>"
            body += what_to_do("pass a number that changes as a tensor; pad lengths to a few")
            yield Finding("◆", title, body, f"c{compile.number}", 10 * len(compile.builds))


def left_to_eager(compiles: list[Compile]) -> Iterator[Finding]:
    """What is not compiled after all."""
    for compile in compiles:
        whys = dict.fromkeys(compile.fallbacks, "runs operation by operation")
        whys |= (
            {compile.in_eager: "runs in eager"} if compile.in_eager and not compile.failures else {}
        )
        for why, what in whys.items():
            yield Finding(
                "↩", f"{compile.title} {what}", f"<p>{escape(why)}</p>", f"c{compile.number}", 40
            )


def findings_html(compiles: list[Compile], run: Run) -> str:
    found = findings(compiles)
    theirs = f"<p>{THEIRS}</p>" if any(compile.name == FOREIGN for compile in compiles) else ""
    if not found:
        what = (
            "Nothing fell back to eager"
            if theirs
            else "No graph broke, nothing was compiled twice, and nothing fell back to eager"
        )
        return f"<p>{what}.</p>{theirs}"
    cards = [
        f'<div class="cl-card"><h3>{f.mark} <a href="#{f.target}">{escape(f.title)}</a></h3>{f.body}</div>'
        for f in found[:FINDINGS]
    ]
    left = len(found) - FINDINGS
    more = (
        f"<p>{left} more {'is' if left == 1 else 'are'} in the tables below.</p>"
        if left > 0
        else ""
    )
    return "".join(cards) + more + theirs


THEIRS = (
    "What torch.compile itself captured, where it broke and what it guards, is not in this report: "
    '<code>TORCH_LOGS="graph_breaks,recompiles"</code> tells.'
)


def what_failed(failure: Any) -> str:
    """The part that differed, without the values: 'x.shape[0]', 'type(k)'."""
    return told(failure).partition(": expected ")[0]


def advice(failure: Any, resumed: bool = False) -> str:
    """What to do about a guard that fails again and again; `resumed`: in what runs behind a graph break."""
    guard, said = failure.guard, ""
    what = what_failed(failure)
    part = re.sub(r"\(\d+\)|\[\d+\]", "", what.rpartition(".")[2])
    if resumed:
        said = "this runs behind a graph break, with what was at hand there: mend the break first, and look again"
    elif guard.kind == "state":
        said = "calls under another setting are compiled apart, once for each; that is all it costs"
    elif part in OTHER_PARTS:
        said = OTHER_PARTS[part]
    elif guard.kind == "value" and sets(about(guard), cause_of(guard)):
        said = "the function changes it itself, so that no call finds what the last one did: count outside of it, or in a tensor"
    elif guard.kind in ("tensor", "value") and about(guard).startswith("self."):
        said = "modules that differ in this share the code, and each kind is compiled once; up to the recompile limit that is fine"
    elif guard.kind == "sizes" and "shape" not in what:
        said = "pass the number as a tensor, or keep it from changing"
    elif guard.kind in ("tensor", "sizes"):
        said = "if the size changes from call to call, cl.mark_dynamic(tensor, dim) before the first call, or dynamic=True"
    elif guard.kind == "value":
        is_number = any(
            test.right in (int, float, complex) for test in guard.tests if test.op == "is"
        )
        said = (
            "pass the number as a tensor, or keep it from changing"
            if is_number
            else "keep it from changing from call to call"
        )
    elif guard.kind in ("length", "keys"):
        said = "what grows or shrinks from call to call is filled outside the compiled function, or is a tensor of one size"
    elif guard.kind in ("identity", "type", "class"):
        said = "the object is not the same at each call: make it once, outside"
    return said


def sets(what: str, cause: Any) -> bool:
    """Does the line that made a guard also write to what is tested? `self.calls += 1` does."""
    return bool(
        cause
        and cause.text
        and re.search(rf"(?<![\w.]){re.escape(what)}\s*([-+*/%]|//|\*\*)?=(?!=)", cause.text)
    )


def first_own(many: list[tuple[Compile, Any]]) -> tuple[Compile, Any]:
    """Of the times that one break was met, the first at a line of the program itself; else the first."""
    return next(
        ((compile, problem) for compile, problem in many if is_own(problem.location)), many[0]
    )


def in_the_end(compile: Compile, problem: Any) -> str:
    """The line of the program that called a library in which a graph ended; HTML."""
    at = compile.called_at
    return (
        f"called, in the end, by {where(at)}: <code>{escape(at.text)}</code>"
        if at and not is_own(problem.location)
        else ""
    )


def what_to_do(said: str) -> str:
    return f"<p><b>What to do:</b> {escape(said)}.</p>" if said else ""


OTHER_PARTS = {
    "requires_grad": "it needs a gradient at some calls and none at others, and is compiled for both; twice is all it costs",
    "dtype": "make it of one dtype before the call",
    "ndim": "tensors with another number of dimensions are compiled apart, once for each; that is all it costs",
    "stride": "it is laid out in memory differently from call to call: .contiguous() before the call",
    "stride()": "it is laid out in memory differently from call to call: .contiguous() before the call",
    "is_cpu": "it is on another device at some calls: move it before the call",
    "is_cuda": "it is on another device at some calls: move it before the call",
}
"""Part of a tensor that is not its size → what to do if it differs."""


def because(guard: Any, compile: Compile | None = None) -> str:
    """The line that made a guard necessary. For one of a library, the program's line that called it, if `compile` knows."""
    cause, at = cause_of(guard), compile and compile.called_at
    if cause and at and not is_own(cause):
        return (
            f", tested because of {where(at)}: <code>{escape(at.text)}</code> (in {where(cause)})"
        )
    if STACK.match(about(guard)):
        return ", a value on the stack where the function goes on"
    inside = f" (in {where(guard.inner)})" if inner_of(guard) else ""
    return (
        f", tested because of {where(cause)}: <code>{escape(cause.text)}</code>{inside}"
        if cause
        else ""
    )


def where(location: Any) -> str:
    return f"{place(location.filename, location.line)}" if location else "an unknown line"


def caret(location: Any) -> str:
    """The line with its caret, and the two lines around it."""
    return (
        f'<div class="cl-code"><pre>{escape(location.caret)}</pre></div>'
        if location and location.caret
        else ""
    )


def reached(problem: Any) -> str:
    """The calls that led to the line of a break, outermost first, and those that it led to."""
    said = lambda call: f"{call.function.split(' from ')[0]} ({where(call)})"
    above, below = (" → ".join(map(said, calls)) for calls in way_of(problem))
    return "; ".join(
        ([f"reached from {above}"] if above else []) + ([f"it goes on to {below}"] if below else [])
    )


def link(compile: Compile) -> str:
    return f'<a href="#c{compile.number}">{breakable(compile.title)}</a>'


# ---- tables ---------------------------------------------------------------------------------------------------------


RAISED = "With <code>fullgraph=True</code> this is an error: the function did not run."


def breaks_of(compiles: list[Compile]) -> list[tuple[Compile, Any]]:
    return [(compile, problem) for compile in compiles for problem in compile.problems]


def breaks_html(compiles: list[Compile]) -> str:
    rows = []
    for many in by(breaks_of(compiles), lambda pair: same_break(pair[1])).values():
        problem = first_own(many)[1]
        title = escape(str(problem.location)) if problem.location else ""
        at = f'<span title="{title}">{escape(where(problem.location))}</span>{caret(problem.location)}'
        at += f'<span class="cl-dim">{escape(reached(problem))}</span>'
        at += (
            f'<br><span class="cl-dim">{said}</span>'
            if (said := in_the_end(first_own(many)[0], problem))
            else ""
        )
        why = escape(problem.reason) + (
            f'<br><span class="cl-dim">{escape(problem.hint)}</span>' if problem.hint else ""
        )
        why += f"<br>{RAISED}" if any(compile.raised for compile, _ in many) else ""
        links = ", ".join(
            link(compile)
            for compile in {compile.title: compile for compile, _ in many[::-1]}.values()
        )
        rows.append((at, why, links, str(len(many))))
    if not rows:
        return "<p>None.</p>"
    return html_table(rows, ("line", "why, and what to do", "while compiling", "times"), [3])


def recompiles_html(compiles: list[Compile]) -> str:
    """A row for each time that no entry fitted: the guards that failed, for entry after entry, and what came of it. Entries
    that say the same, and expect another value each, share a line."""
    rows = []
    for compile in compiles:
        found, made = [], []
        for alike in by(compile.failures, same_but_expected).values():
            cause = cause_of(alike[-1].guard)
            line = line_of_guard(cause, compile)
            entries = (
                f'<br><span class="cl-dim">{len(alike)} entries</span>' if len(alike) > 1 else ""
            )
            found.append(f"<li>{escape(told_at_once(alike))}{entries}</li>")
            made.append(f"<li>{test_html(alike[-1])}<br>{line}</li>")
        for failure, line in later_of(compile):
            found.append(
                f"<li>{escape(told(failure))}<br><span class='cl-dim'>at a later call</span></li>"
            )
            made.append(f"<li>{test_html(failure)}<br>{line}</li>")
        if found:
            cells = f"<ol>{''.join(found)}</ol>", f"<ol>{''.join(made)}</ol>"
            took = f", {human_seconds(compile.took)}" if compile.took else ""
            rows.append((link(compile), *cells, escape(compile.outcome) + took))
    if not rows:
        return "<p>None: every call after the first fitted the code that was there.</p>"
    header = ("function", "what was found", "the guard, and the line that made it", "so")
    return html_table(rows[:MOST_ROWS], header) + folded(rows[MOST_ROWS:], header, [])


def later_of(compile: Compile) -> list[tuple[Any, str]]:
    """What failed at the calls that were only counted, and not at the first, with the line that made the guard."""
    at_first = {failure.guard for failure in compile.failures}
    found = [failure for failure, _ in compile.later if failure.guard not in at_first]
    return [(one, line_of_guard(cause_of(one.guard), compile)) for one in found]


def line_of_guard(cause: Any, compile: Compile) -> str:
    """The line that made a guard, for a table; for one of a library, the program's line that called it too."""
    if not cause:
        return arguments_of(compile)
    line = f"{escape(where(cause))} <code>{escape(cause.text)}</code>"
    at = compile.called_at
    return (
        line
        if is_own(cause) or not at
        else f"{escape(where(at))} <code>{escape(at.text)}</code><br>in {line}"
    )


EXPECTED = re.compile(r"(.*: expected )(.*)(, got .*)", re.S)


def same_but_expected(failure: Any) -> tuple[str, ...]:
    """What a failure says beside the value that its entry was made for."""
    match, cause = EXPECTED.fullmatch(told(failure)), cause_of(failure.guard)
    return (match[1], match[3], str(cause)) if match else (told(failure), "", str(cause))


def told_at_once(alike: list[Any]) -> str:
    """'n: expected 2, 3 … 9, got 10' for failures that differ in what they expect."""
    matches = [EXPECTED.fullmatch(told(failure)) for failure in alike]
    if not matches[0]:
        return told(alike[0])
    values = list(dict.fromkeys(match[2] for match in matches if match))
    some = f"{', '.join(values[:2])} … {values[-1]}" if len(values) > 4 else ", ".join(values)
    return f"{matches[0][1]}{some}{matches[0][3]}"


def arguments_of(compile: Compile) -> str:
    """What no line of the program asked for: what a call passes is tested whenever it is a tensor or a number."""
    filename, line = split(compile.where)
    if ", from line " in compile.title:
        return f"what was at hand where <code>{escape(compile.title)}</code> begins"
    return (
        f"what <code>{escape(compile.name)}</code> is called with, {escape(place(filename, line))}"
    )


def test_html(failure: Any) -> str:
    """The part of a guard that did not hold; a long one (fifty keys) cut in its middle, with the whole in a tooltip."""
    test = failed_test(failure)
    short = (
        test if len(test) <= LONG_TEST else f"{test[: LONG_TEST // 2]} … {test[-LONG_TEST // 2 :]}"
    )
    return f"<code{f' title={quoted(test)}' if short != test else ''}>{escape(short)}</code>"


def quoted(text: str) -> str:
    return f'"{escape(text)}"'


def failed_test(failure: Any) -> str:
    """The part of a guard that did not hold."""
    path, part = about(failure.guard), told(failure).partition(":")[0]
    tests = failure.guard.tests
    failed = [
        test for test in tests if test.op != "holds" and part.startswith(test.left.format(path))
    ]
    exact = [test for test in failed if test.left != "{}"] or failed or list(tests)
    return readable(" and ".join(test.text(path) for test in exact))


def folded(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], numbers: list[int]) -> str:
    """More rows, to be unfolded."""
    return (
        f"<details><summary>{len(rows)} more</summary>{html_table(rows, header, numbers)}</details>"
        if rows
        else ""
    )


def time_html(recording: Recording, functions: list[Function]) -> str:
    rows = []
    for _, function in walk(functions):
        stages: Counter[str] = Counter()
        for one in function.compiles:
            stages.update(one.seconds)
        dearest = "".join(
            f"{stage}: {human_seconds(took)}" for stage, took in stages.most_common(1)
        )
        own = sum(compile.took for compile in function.compiles)
        rows.append(
            (
                own,
                (
                    link(function.compiles[0]),
                    str(len(function.compiles)),
                    human_seconds(own),
                    escape(dearest),
                ),
            )
        )
    rows.sort(key=lambda row: -row[0])
    table = html_table(
        [row for _, row in rows[:20]],
        ("function", "times asked", "seconds", "of that, most in one stage"),
        [1, 2],
    )
    return compile_time(recording).embedded + table


def kernels_html(compiles: list[Compile]) -> str:
    rows = []
    for compile in compiles:
        for program in compile.programs:
            for one in kernels_of(program):
                name = f"<code>{escape(one.name)}</code>"
                if not one.is_library:
                    name = f'<a href="#{anchor(compile, program, one.kernel)}">{name}</a>'
                lines = [
                    f"{escape(where(at))} <code>{escape(at.text)}</code>"
                    for at in one.lines[:MOST_LINES]
                ]
                lines += (
                    [f"and {len(one.lines) - MOST_LINES} more"]
                    if len(one.lines) > MOST_LINES
                    else []
                )
                about_it = "library" if one.is_library else escape(one.space)
                row = (
                    name,
                    about_it,
                    "<br>".join(lines) or "–",
                    f"{link(compile)}, {program.part}",
                    human_bytes(one.bytes),
                )
                rows.append(row)
    if not rows:
        return "<p>No kernel was made.</p>"
    header = ("kernel", "loops", "lines of the program", "in", "moves")
    return html_table(rows[:MOST_ROWS], header, [4]) + folded(rows[MOST_ROWS:], header, [4])


def eager_html(compiles: list[Compile]) -> str:
    rows = [
        (
            link(c),
            escape(plain(why).removeprefix(f"{c.name} ({c.where}) "))
            + (f", and {c.alike:,} calls more" if c.alike and why == c.in_eager else ""),
        )
        for c in compiles
        for why in (*([c.in_eager] if c.in_eager else ()), *dict.fromkeys(c.fallbacks))
    ]
    stuck = [
        c
        for c in compiles
        if c.result is None and c.problems and "guards" not in c.own_seconds and not c.raised
    ]
    rows += [(link(c), escape(c.problems[-1].reason)) for c in stuck]
    alone = {
        (c.title, build.no_cuda_graph): c
        for c in compiles
        for build in c.builds
        if build.no_cuda_graph
    }
    rows += [
        (
            link(c),
            f"compiled; its kernels are started one by one, without a CUDA graph: {escape(why)}",
        )
        for (_, why), c in alone.items()
    ]
    return html_table(rows, ("what", "why")) if rows else "<p>Nothing.</p>"
