"""Guards as a table: what was assumed, and which of the user's lines made it necessary.

In:  `Guard`s (`capture.guard_tests`), and perhaps a `Failure` (`guards.check`). Out: a `Picture`.
`guard_trees.py` draws the same guards as a tree.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from course_lib.capture import SameAs
from course_lib.viz.kit.arguments import GUARDS, TEXT, takes
from course_lib.viz.kit.highlight import highlighted
from course_lib.viz.kit.style import Picture, escape, place, plural
from course_lib.viz.kit.tables import breakable, html_table
from course_lib.viz.pictures.graphs.fx_graphs import readable_path

HEADER = ("kind", "about", "must hold", "because of")
CAPTION = "What is tested before compiled code may be used again; on the right, your line that made the test necessary."
TEXT_WIDTH = 110
"""Columns of the plain text."""


@takes(guards=GUARDS, title=TEXT)
def guard_table(
    guards: Iterable[Any],
    failure: Any = None,
    title: str = "",
    frames: Mapping[Any, str] = MappingProxyType({}),
) -> Picture:
    """Each guard as the Python expression that is tested on every call.

    failure: a `Failure` or a `GuardFailed`, which is marked.
    frames: guard → the frame it belongs to, where there are several.
    """
    guards = list(guards)
    # Without a failure no row is marked
    failed = getattr(failure, "guard", None)
    why = told(failure)

    rows = []
    text = []
    for guard in guards:
        broken = failed is not None and guard == failed
        cause = described_cause(guard, frames)
        rows.append(html_row(guard, cause, why if broken else None))
        text += text_lines(guard, cause, broken)

    if failed is not None:
        text.append(f"did not hold: {why}")

    table = html_table(rows, HEADER)
    return Picture(
        body=f'<div class="cl-scroll">{table}</div>',
        caption=CAPTION,
        alt=counted(guards, title, why if failed is not None else None),
        text="\n".join(text),
        sheets=("code", "guards", "break"),
    )


def counted(guards: list[Any], title: str, why: str | None) -> str:
    """The alternative text of a table: how many guards of each kind, and why one did not hold."""
    kinds = Counter(guard.kind for guard in guards)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    of_title = f" of {title}" if title else ""
    alt = f"{plural(len(guards), 'guard')}{of_title}: {by_kind}."
    if why is not None:
        alt += f" One did not hold: {why}."
    return alt


# ---- one row -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """Why there is a guard, as the reader knows the place."""

    where: str  # 'model.py:12', or 'entry of forward'
    source: str | None  # the text of that line; None if the frame is entered with what is tested
    inner: Any = None  # the `Location` in a library that looked at it

    @property
    def looked(self) -> str:
        """'in functional.py:12', or ''."""
        if self.inner is None:
            return ""
        return f"in {place(self.inner.filename, self.inner.line)}"


def described_cause(guard: Any, frames: Mapping[Any, str]) -> Cause:
    """The line that made a guard necessary, or the frame that is entered with what it tests."""
    inner = inner_of(guard)
    cause = cause_of(guard)
    if cause is None:
        return Cause(f"entry of {frames.get(guard, 'the frame')}", None, inner)
    return Cause(place(cause.filename, cause.line), cause.text, inner)


def html_row(guard: Any, cause: Cause, why: str | None) -> tuple[str, str, str, str]:
    """The four cells of a guard. `why` says why it did not hold, if it did not."""
    path = about(guard)
    tests = [highlighted(readable(test.text(path)), "python")[0] for test in guard.tests]
    # Torch's settings are many and short: a line each
    and_ = "<br>and " if guard.kind == "state" else " and "
    must_hold = f'<code class="cl-whole" title="{escape(guard.expr)}">{and_.join(tests)}</code>'
    if why is not None:
        must_hold += f'<div class="cl-torn"><b>✕ did not hold:</b> {escape(why)}</div>'

    because_of = breakable(cause.where)
    if cause.source:
        because_of += f"<br><code>{highlighted(cause.source, 'python')[0]}</code>"
    if cause.inner:
        tip = f' title="{escape(cause.inner.text)}"'
        because_of += f'<br><span class="cl-dim"{tip}>{breakable(cause.looked)}</span>'

    what = path
    if guard.kind == "sizes":
        what = subjects(expression_of(guard))
    kind = f'<span class="cl-g">{escape(guard.kind)}</span>'
    return kind, f"<code>{escape(what)}</code>", must_hold, because_of


def text_lines(guard: Any, cause: Cause, broken: bool) -> list[str]:
    """A guard in plain text, in as many lines as it needs."""
    because = f"# {cause.where}"
    if cause.source is not None:
        because += f": {cause.source}"
    if cause.inner:
        because += f" ({cause.looked})"

    # The mark, and the kind in a column of 9; what goes on in the next line is set further in.
    mark = "✕" if broken else " "
    return textwrap.wrap(
        f"{expression_of(guard)}    {because}",
        TEXT_WIDTH,
        initial_indent=f"{mark} {guard.kind:<9} ",
        subsequent_indent=" " * 16,
    )


# ---- a guard in words ----------------------------------------------------------------------------

STACK = re.compile(r"stack\d+\b")
"""What a resume function calls a value of the stack that it takes."""
DEF = re.compile(r"(async )?def ")
"""A line that begins a function."""
NUMBER = re.compile(r"(?:repr\()?([^()]*?)\)? == '?([^' ]+)'?: expected True, got False")
"""A symbolic number that had to be one value: `repr(k) == '0.5'`, `k == 4`."""


def about(guard: Any) -> str:
    """The path of a guard's source as a reader says it: `self.ln.weight`, `torch`.

    (`guard.expr` has it as it is tested.)"""
    if guard.kind == "state":
        return "torch's settings"
    path = readable_path(guard.source.shown)
    return path.replace("__func.__globals__", "globals").replace("__func", "function")


def expression_of(guard: Any) -> str:
    """All tests of a guard as one expression."""
    path = about(guard)
    return readable(" and ".join(test.text(path) for test in guard.tests))


def cause_of(guard: Any) -> Any:
    """The line that made a guard necessary; None for what a frame is entered with.

    (A resume function takes what stood on the stack in its first instructions, which have the line
    of the `def`.)"""
    if guard.cause is None:
        return None
    if STACK.match(about(guard)) and DEF.match(guard.cause.text):
        return None
    return guard.cause


def inner_of(guard: Any) -> Any:
    """The line of a library that looked at it, where the cause is the line that called the library;
    else None."""
    if cause_of(guard) and str(guard.inner) != str(guard.cause):
        return guard.inner
    return None


def subjects(test: str) -> str:
    """Whose sizes a test compares: `2*xs[1].shape[0] > x.shape[0]` → `xs[1], x`."""
    # Names with dots and brackets, but no function that is called (`max(`), nor the first letters
    # of one: without `\w*` the pattern would find `ma`.
    paths = re.findall(r"[A-Za-z_][\w.]*(?:\[[^\]]*\][\w.]*)*(?!\w*\()", test)
    names = [re.split(r"\.(?:shape|stride|storage_offset)\b", path)[0] for path in paths]
    names_in_order = dict.fromkeys(name for name in names if name not in ("and", "or", "not"))
    return ", ".join(names_in_order)


def readable(test: str) -> str:
    """Tests without addresses: `<code object f at 0x7f…, file "…", line 3>` → `<code of f>`."""
    # A lambda has no name of its own: its line tells which one it is.
    test = re.sub(
        r'<code object (<\w+>) at 0x[0-9a-f]+, file "[^"]*", line (\d+)>',
        r"<code of \1, line \2>",
        test,
    )
    test = re.sub(
        r'<code object (\S+) at 0x[0-9a-f]+, file "[^"]*", line \d+>', r"<code of \1>", test
    )
    test = re.sub(r" at 0x[0-9a-f]+", "", test)
    return test.replace("<course_lib.capture.classes.SeenClass object>", "the class as it was then")


def told(failure: Any) -> str:
    """What was found instead, without the line that made the guard necessary (it has a column of
    its own). '' without a failure."""
    if failure is None:
        return ""

    # Two paths had to lead to one object, or to two.
    tests = failure.guard.tests
    if len(tests) == 1 and isinstance(tests[0].right, SameAs):
        now = "one object" if tests[0].op == "is not" else "two objects"
        return f"{about(failure.guard)} and {tests[0].right.__name__} are {now} now"

    # A `Failure` of the check, else the event that tells it in one sentence
    if hasattr(failure, "part"):
        sentence = f"{failure.part}: expected {failure.expected}, got {failure.got}"
    else:
        sentence = str(failure.got).split(" (assumed because of")[0]
    return readable(NUMBER.sub(r"\1: expected \2, got another number", sentence))
