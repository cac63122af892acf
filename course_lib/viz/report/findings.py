"""What to look at first in a report: what costs most and can be changed.

In:  the `Compile`s of a run (`compiles.py`). Out: `Finding`s, the dearest first, each with what to
     do about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from course_lib import frames
from course_lib.capture.guard_tests import TypeIs
from course_lib.viz.kit.style import escape, human_seconds
from course_lib.viz.kit.user_lines import is_own, same_break
from course_lib.viz.pictures.guards.guard_tables import about, cause_of, told
from course_lib.viz.report.compile_tree import by
from course_lib.viz.report.compiles import FOREIGN, Compile
from course_lib.viz.report.lines import (
    RAISED,
    Break,
    because,
    breaks_of,
    caret,
    first_own,
    in_the_end,
    reached,
    where,
)

MOST_FINDINGS = 8
"""So many findings stand at the top; the tables below have all."""
MANY_SIZES = 4
"""A graph with symbolic sizes that was built for so many sets of them is worth a word."""
OTHER_GUARDS = 4
"""So many other guards that failed are listed."""
NOT_REPORTED = (
    "What torch.compile itself captured, where it broke and what it guards, is not in this report: "
    '<code>TORCH_LOGS="graph_breaks,recompiles"</code> tells.'
)
"""For a run in which torch captured some graphs, and we compiled them
(`torch.compile(f, backend="course")`)."""

# Weights of findings: the greater, the further up in the report. Those of functions that were
# compiled again lie between: 20, and one more for each percent of all compile time that they took.
ERROR = 200
"""A graph break that raised: the program did not run."""
CALLS_IN_EAGER = 105
"""The recompile limit was reached: calls run in eager, or raise."""
BROKE_OFTEN, BROKE_ONCE = 100, 60
"""A line that ended a graph several times (and one more for each time), and a line that did
once."""
LEFT_TO_EAGER = 40
"""A graph or a function that runs in eager after all."""
BEHIND_ANOTHER, UNKNOWN_LINE = 15, 10
"""A break within a library behind one in the program, and a break at an unknown line: nothing can
be done there, or nobody knows where."""


@dataclass
class Finding:
    """A thing to look at."""

    # A sign in front of the title
    mark: str
    title: str
    # HTML
    body: str
    # The `id` of the place in the page that tells more: "c3" is compile 3
    target: str
    # The finding with the greatest weight comes first
    weight: float = 0.0


def findings(compiles: list[Compile]) -> list[Finding]:
    """What costs most and can be changed, the dearest first."""
    all_findings = [
        *broken(compiles),
        *recompiled(compiles),
        *made_anew(compiles),
        *left_to_eager(compiles),
    ]
    return sorted(all_findings, key=lambda finding: -finding.weight)


def findings_html(compiles: list[Compile]) -> str:
    """The first findings as cards, and how many there are beside them."""
    all_findings = findings(compiles)
    # Of a graph that torch captured nobody here knows whether it broke, or was captured twice: then
    # less is said, and where that can be seen.
    some_by_torch = any(compile.name == FOREIGN for compile in compiles)
    not_reported = f"<p>{NOT_REPORTED}</p>" if some_by_torch else ""
    if not all_findings:
        nothing = "No graph broke, nothing was compiled twice, and nothing fell back to eager"
        if some_by_torch:
            nothing = "Nothing fell back to eager"
        return f"<p>{nothing}.</p>{not_reported}"

    cards = ""
    for finding in all_findings[:MOST_FINDINGS]:
        link = f'<a href="#{finding.target}">{escape(finding.title)}</a>'
        cards += f'<div class="cl-card"><h3>{finding.mark} {link}</h3>{finding.body}</div>'

    left = len(all_findings) - MOST_FINDINGS
    if left > 0:
        cards += f"<p>{left} more {'is' if left == 1 else 'are'} in the tables below.</p>"
    return cards + not_reported


def what_to_do(said: str) -> str:
    """A paragraph with an advice; '' if there is none."""
    if said:
        return f"<p><b>What to do:</b> {escape(said)}.</p>"
    return ""


# ---- lines that end a graph ----------------------------------------------------------------------


def broken(compiles: list[Compile]) -> Iterator[Finding]:
    """Lines that end a graph."""
    for same_breaks in by(breaks_of(compiles), lambda one: same_break(one.problem)).values():
        first = first_own(same_breaks)
        problem = first.problem
        raised = any(occurrence.compile.raised for occurrence in same_breaks)

        does = "is an error" if raised else "ends a graph"
        times = ""
        if len(same_breaks) > 1:
            times = f" ({len(same_breaks)} times)"
        title = f"{where(problem.location)} {does}{times}: {problem.reason}"

        body = caret(problem.location)
        for sentence in (in_the_end(first), escape(reached(problem))):
            if sentence:
                body += f'<p class="cl-dim">{sentence}</p>'
        if raised:
            body += f"<p>{RAISED}</p>"
        body += what_to_do(problem.hint)

        yield Finding(
            "✂", title, body, f"c{first.compile.number}", weight_of(first, same_breaks, raised)
        )


def weight_of(first: Break, met: list[Break], raised: bool) -> float:
    """An error weighs most, then what breaks often.

    A break of a library weighs little if what called it broke first."""
    if not first.problem.location:
        return UNKNOWN_LINE
    if first.compile.behind and not is_own(first.problem.location):
        return BEHIND_ANOTHER
    if raised:
        return ERROR
    return BROKE_OFTEN + len(met) if len(met) > 1 else BROKE_ONCE


# ---- functions that are compiled again and again -------------------------------------------------


@dataclass(frozen=True)
class Failed:
    """A guard that failed when a function was called, and the compile that came of it."""

    failure: Any
    compile: Compile


def recompiled(compiles: list[Compile]) -> Iterator[Finding]:
    """Functions whose guards fail again and again: the guard that fails most often, and the others.

    They weigh what share of all compiling they took."""
    # Compiles in vain weigh most where they took most of the time
    total_seconds = sum(compile.total_seconds for compile in compiles)
    with_failures = (compile for compile in compiles if compile.failures)
    for name, compiles_of_name in by(with_failures, lambda compile: compile.title).items():
        kinds = failures_by_kind(compiles_of_name)
        last = kinds[0][-1]  # of the kind that failed most often

        body = failed_most_html(kinds, len(compiles_of_name)) + others_html(kinds[1:])
        for why in dict.fromkeys(compile.why_by_itself for compile in compiles_of_name):
            if why:
                body += f"<p>{escape(why)}.</p>"
        is_resumed = ", from line " in name
        body += what_to_do(advice(last.failure, is_resumed))

        # (If nothing was timed, the number of recompiles has to do.)
        recompiles = sum(compile.is_recompile for compile in compiles_of_name)
        weight: float = 10 * recompiles
        if total_seconds:
            weight = (
                20
                + 100 * sum(compile.total_seconds for compile in compiles_of_name) / total_seconds
            )
        if any(compile.in_eager or compile.at_limit for compile in compiles_of_name):
            weight = max(weight, CALLS_IN_EAGER)
        yield Finding(
            "◆",
            recompiled_title(name, compiles_of_name),
            body,
            f"c{compiles_of_name[-1].number}",
            weight,
        )


def failures_by_kind(compiles: list[Compile]) -> list[list[Failed]]:
    """Failures of guards that say the same, those that failed at most calls first; then those that
    failed last."""
    failures = [Failed(failure, compile) for compile in compiles for failure in compile.failures]
    kinds = by(failures, lambda one: what_failed(one.failure)).values()

    def order(kind: list[Failed]) -> tuple[int, int]:
        return -calls_of(kind), -kind[-1].compile.number

    return sorted(kinds, key=order)


def calls_of(kind: list[Failed]) -> int:
    """At how many calls these failed. (At one call a guard may fail in several entries.)"""
    return len({failed.compile.number for failed in kind})


def recompiled_title(name: str, same: list[Compile]) -> str:
    """'f was compiled 3 times, and now calls that fit no entry run in eager'."""
    recompiles = sum(compile.is_recompile for compile in same)
    if not recompiles:
        verb_phrase = "was looked at again, and had nothing to compile"
    elif recompiles == 1:
        verb_phrase = "was compiled twice"
    else:
        verb_phrase = f"was compiled {recompiles + 1} times"

    title = f"{name} {verb_phrase}"
    if any(compile.in_eager for compile in same):
        title += ", and now calls that fit no entry run in eager"
    if any(compile.at_limit for compile in same):
        title += ", and now a call that fits no entry is an error"
    return title


def failed_most_html(kinds: list[list[Failed]], calls: int) -> str:
    """The guard that failed at most calls, and the line that made it."""
    last = kinds[0][-1]
    often = "The last guard that failed"
    if len(kinds) > 1:
        times = calls_of(kinds[0])
        often = f"The guard that failed at {times} of the {calls} calls that fitted no entry"

    line = because(last.failure.guard, last.compile)
    return f"<p>{often}: <code>{escape(told(last.failure))}</code>{line}</p>"


def others_html(kinds: list[list[Failed]]) -> str:
    """The other guards that failed, as a list."""
    if not kinds:
        return ""

    items = ""
    for kind in kinds[:OTHER_GUARDS]:
        last = kind[-1]
        line = because(last.failure.guard, last.compile)
        items += f"<li><code>{escape(what_failed(last.failure))}</code>{line}</li>"
    if len(kinds) > OTHER_GUARDS:
        items += f"<li>and {len(kinds) - OTHER_GUARDS} more</li>"
    return f"<p>Others that failed:</p><ul>{items}</ul>"


def what_failed(failure: Any) -> str:
    """The part that differed, without the values: 'x.shape[0]', 'type(k)'."""
    return told(failure).partition(": expected ")[0]


# ---- compiled as something new, or not at all ----------------------------------------------------


def made_anew(compiles: list[Compile]) -> Iterator[Finding]:
    """Functions that each call of `compile` begins with anew, and graphs that are planned for many
    sizes."""
    first = []
    for compile in compiles:
        is_resumed = " from " in compile.name
        if compile.code is not None and not compile.failures and not is_resumed:
            first.append(compile)

    for compiles_of_code in by(first, lambda one: (frames.number(one.code), one.given)).values():
        if len(compiles_of_code) > 1:
            yield compiled_as_new(compiles_of_code)

    for compile in compiles:
        if len(compile.builds) >= MANY_SIZES:
            yield planned_for_many_sizes(compile)


def compiled_as_new(same: list[Compile]) -> Finding:
    """The same code was given to `compile` several times. It weighs ten for each time."""
    title = f"{same[0].title} was compiled {len(same)} times as something new"
    body = "<p>What is compiled belongs to what one call of <code>compile()</code> gave: each of these had its own.</p>"
    body += what_to_do(
        "call compile() once, outside of the loop or function, and keep what it gives"
    )
    return Finding("◆", title, body, f"c{same[-1].number}", 10 * len(same))


def planned_for_many_sizes(compile: Compile) -> Finding:
    """A graph with symbolic sizes, for which the back half ran for each set of sizes. It weighs ten
    for each."""
    builds = compile.builds
    time_text = human_seconds(sum(sum(build.seconds.values()) for build in builds))
    title = f"{compile.title} was planned anew for {len(builds)} sets of sizes or numbers"
    body = f"<p>One graph serves them all, but it is traced and scheduled for each set that it meets: {time_text} here.</p>"
    body += what_to_do("pass a number that changes as a tensor; pad lengths to a few")
    return Finding("◆", title, body, f"c{compile.number}", 10 * len(builds))


def left_to_eager(compiles: list[Compile]) -> Iterator[Finding]:
    """What is not compiled after all."""
    for compile in compiles:
        whys = dict.fromkeys(compile.fallbacks, "runs operation by operation")
        # Where a guard failed, `recompiled` tells that calls run in eager.
        if compile.in_eager and not compile.failures:
            whys[compile.in_eager] = "runs in eager"

        for why, what in whys.items():
            title = f"{compile.title} {what}"
            target = f"c{compile.number}"
            yield Finding("↩", title, f"<p>{escape(why)}</p>", target, LEFT_TO_EAGER)


# ---- what to do about a guard that fails ---------------------------------------------------------

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

BEHIND_A_BREAK = "this runs behind a graph break, with what was at hand there: mend the break first, and look again"
ANOTHER_SETTING = (
    "calls under another setting are compiled apart, once for each; that is all it costs"
)
CHANGES_IT_ITSELF = "the function changes it itself, so that no call finds what the last one did: count outside of it, or in a tensor"
MODULES_DIFFER = "modules that differ in this share the code, and each kind is compiled once; up to the recompile limit that is fine"
NUMBER_AS_TENSOR = "pass the number as a tensor, or keep it from changing"
MARK_DYNAMIC = "if the size changes from call to call, cl.mark_dynamic(tensor, dim) before the first call, or dynamic=True"
KEEP_IT = "keep it from changing from call to call"
FILL_OUTSIDE = "what grows or shrinks from call to call is filled outside the compiled function, or is a tensor of one size"
MAKE_IT_ONCE = "the object is not the same at each call: make it once, outside"


def advice(failure: Any, resumed: bool = False) -> str:
    """What to do about a guard that fails again and again; `resumed`: in what runs behind a graph
    break."""
    # Whoever removes the break has no such guard any more
    if resumed:
        return BEHIND_A_BREAK

    guard = failure.guard
    if guard.kind == "state":
        return ANOTHER_SETTING

    # 'x.stride(0)' → 'stride'
    what = what_failed(failure)
    part = re.sub(r"\(\d+\)|\[\d+\]", "", what.rpartition(".")[2])
    if part in OTHER_PARTS:
        return OTHER_PARTS[part]
    if guard.kind == "value" and sets(about(guard), cause_of(guard)):
        return CHANGES_IT_ITSELF
    if guard.kind in ("tensor", "value") and about(guard).startswith("self."):
        return MODULES_DIFFER
    if guard.kind == "sizes" and "shape" not in what:
        return NUMBER_AS_TENSOR
    if guard.kind == "value":
        if tests_a_number(guard):
            return NUMBER_AS_TENSOR
        return KEEP_IT
    return BY_KIND.get(guard.kind, "")


BY_KIND = {
    "tensor": MARK_DYNAMIC,
    "sizes": MARK_DYNAMIC,
    "length": FILL_OUTSIDE,
    "keys": FILL_OUTSIDE,
    "identity": MAKE_IT_ONCE,
    "type": MAKE_IT_ONCE,
    "class": MAKE_IT_ONCE,
}
"""Kind of a guard → what to do, where nothing more is known."""


def tests_a_number(guard: Any) -> bool:
    """Is the type that the guard asks for a number's?"""
    numbers = (int, float, complex)
    return any(isinstance(test, TypeIs) and test.right in numbers for test in guard.tests)


def sets(what: str, cause: Any) -> bool:
    """Does the line that made a guard also write to what is tested? `self.calls += 1` does."""
    if not cause or not cause.text:
        return False
    assignment = rf"(?<![\w.]){re.escape(what)}\s*([-+*/%]|//|\*\*)?=(?!=)"
    return re.search(assignment, cause.text) is not None
