"""Guards as a table: what was assumed, and which of the user's lines made it necessary. And as a tree: by the path of what
is tested, with what each test costs.

In:  `Guard`s (`capture.sources`), and perhaps a `Failure` (`guards.check`). Out: a `Picture`.
"""

from __future__ import annotations

import re
import textwrap
import timeit
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from course_lib.capture import SameAs, literal
from course_lib.viz.kit.asked import GUARDS, TEXT, having, takes
from course_lib.viz.kit.highlight import highlighted
from course_lib.viz.kit.style import SMALL, Picture, escape, human_seconds, place, plural
from course_lib.viz.kit.svg import Svg, middle, shorten, text_width
from course_lib.viz.kit.tables import breakable, html_table
from course_lib.viz.pictures.graphs.fx_graphs import readable_path


@takes(guards=GUARDS, title=TEXT)
def guard_table(
    guards: Iterable[Any],
    failure: Any = None,
    title: str = "",
    frames: Mapping[Any, str] = MappingProxyType({}),
) -> Picture:
    """Each guard as the Python expression that is tested on every call; `failure` (a `Failure` or a `GuardFailed`) is marked.
    `frames`: guard → the frame it belongs to, where there are several."""
    guards = list(guards)
    failed = getattr(failure, "guard", None)
    why = told(failure)
    rows, text = [], []
    for guard in guards:
        broken = failed is not None and guard == failed
        path = about(guard)
        expr = readable(" and ".join(test.text(path) for test in guard.tests))
        tests = [highlighted(readable(test.text(path)), "python")[0] for test in guard.tests]
        and_ = "<br>and " if guard.kind == "state" else " and "
        cell = f'<code class="cl-whole" title="{escape(guard.expr)}">{and_.join(tests)}</code>'
        if broken:
            cell += f'<div class="cl-torn"><b>✕ did not hold:</b> {escape(why)}</div>'
        cause = cause_of(guard)
        where = (
            place(cause.filename, cause.line)
            if cause
            else f"entry of {frames.get(guard, 'the frame')}"
        )
        line = (
            f"<br><code>{highlighted(cause.text, 'python')[0]}</code>"
            if cause and cause.text
            else ""
        )
        inner = inner_of(guard)
        looked = f"in {place(inner.filename, inner.line)}" if inner else ""
        tip = f' title="{escape(inner.text)}"' if inner else ""
        line += f'<br><span class="cl-dim"{tip}>{breakable(looked)}</span>' if inner else ""
        kind = f'<span class="cl-g">{escape(guard.kind)}</span>'
        what = subjects(expr) if guard.kind == "sizes" else path
        rows.append((kind, f"<code>{escape(what)}</code>", cell, f"{breakable(where)}{line}"))
        because = f"# {where}: {cause.text}" if cause else f"# {where}"
        because += f" ({looked})" if inner else ""
        first = f"{'✕' if broken else ' '} {guard.kind:<9} "
        text += textwrap.wrap(
            f"{expr}    {because}", 110, initial_indent=first, subsequent_indent=" " * 16
        )
    kinds: dict[str, int] = {}
    for guard in guards:
        kinds[guard.kind] = kinds.get(guard.kind, 0) + 1
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    alt = f"{plural(len(guards), 'guard')}{f' of {title}' if title else ''}: {counted}."
    alt += f" One did not hold: {why}." if failed is not None else ""
    caption = "What is tested before compiled code may be used again; on the right, your line that made the test necessary."
    body = f'<div class="cl-scroll">{html_table(rows, ("kind", "about", "must hold", "because of"))}</div>'
    if failed is not None:
        text.append(f"did not hold: {why}")
    return Picture(body, caption, alt, "\n".join(text), ("code", "guards", "break"))


def about(guard: Any) -> str:
    """The path of a guard's source as a reader says it: `self.ln.weight`, `torch`. (`guard.expr` has it as it is tested.)"""
    if guard.kind == "state":
        return "torch's settings"
    return (
        readable_path(guard.source.shown)
        .replace("__func.__globals__", "globals")
        .replace("__func", "function")
    )


def cause_of(guard: Any) -> Any:
    """The line that made a guard necessary; None for what a frame is entered with. (A resume function takes what stood on the
    stack in its first instructions, which have the line of the `def`.)"""
    return (
        None
        if guard.cause is None or (STACK.match(about(guard)) and DEF.match(guard.cause.text))
        else guard.cause
    )


def inner_of(guard: Any) -> Any:
    """The line of a library that looked at it, where the cause is the line that called the library; else None."""
    return guard.inner if cause_of(guard) and str(guard.inner) != str(guard.cause) else None


STACK, DEF = re.compile(r"stack\d+\b"), re.compile(r"(async )?def ")


def subjects(test: str) -> str:
    """Whose sizes a test compares: `2*xs[1].shape[0] > x.shape[0]` → `xs[1], x`."""
    paths = re.findall(r"[A-Za-z_][\w.]*(?:\[[^\]]*\][\w.]*)*(?!\w*\()", test)
    found = dict.fromkeys(
        re.split(r"\.(?:shape|stride|storage_offset)\b", path)[0] for path in paths
    )
    return ", ".join(name for name in found if name not in ("and", "or", "not"))


def readable(test: str) -> str:
    """Tests without addresses: `<code object f at 0x7f…, file "…", line 3>` → `<code of f>`."""
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
    """What was found instead, without the place (it has a column of its own)."""
    if failure is None:
        return ""
    tests = failure.guard.tests
    if len(tests) == 1 and isinstance(tests[0].right, SameAs):
        is_one = tests[0].op == "is not"
        return f"{about(failure.guard)} and {tests[0].right.__name__} are {'one object' if is_one else 'two objects'} now"
    got = str(failure.got).split(" (assumed because of")[0]
    said = (
        f"{failure.part}: expected {failure.expected}, got {failure.got}"
        if hasattr(failure, "part")
        else got
    )
    return readable(NUMBER.sub(r"\1: expected \2, got another number", said))


NUMBER = re.compile(r"(?:repr\()?([^()]*?)\)? == '?([^' ]+)'?: expected True, got False")
"""A symbolic number that had to be one value: `repr(k) == '0.5'`, `k == 4`."""


# ---- the tree -------------------------------------------------------------------------------------------------------


@dataclass
class Branch:
    """One step of a path: `self`, then `.ln`, then `.weight`; the guards about the object there, and the steps below."""

    name: str
    guards: list[Any] = field(default_factory=list)
    below: dict[str, Branch] = field(default_factory=dict)

    def rows(self, depth: int = 0) -> Iterator[tuple[int, Branch]]:
        """All that is below this branch, top to bottom, and how deep."""
        for branch in self.below.values():
            yield depth, branch
            yield from branch.rows(depth + 1)

    def holds(self, guard: Any) -> bool:
        """Is the guard about this object, or one below it?"""
        return guard in self.guards or any(branch.holds(guard) for branch in self.below.values())


def tree_of(guards: Iterable[Any]) -> Branch:
    """Guards by the path of what they are about."""
    root = Branch("")
    for guard in guards:
        branch = root
        path = about(guard)
        for step in (
            [path]
            if guard.kind in ("state", "sizes")
            else re.findall(r"\[[^\]]*\]|\.?[^.\[]+", path)
        ):
            branch = branch.below.setdefault(step, Branch(step))
        branch.guards.append(guard)
    return root


@takes(check=having("the check of an entry (of the compiler)", "guards", "parameters", "function"))
def guard_costs(check: Any, function: Any, *args: Any) -> dict[Any, float]:
    """Seconds for each guard of a `Check`, tested alone (its path is looked up anew, so their sum is more than the whole)."""

    def seconds(function_: Any) -> float:
        timer = timeit.Timer(lambda: function_(function, *args))
        return min(timer.repeat(5, 2000)) / 2000

    alone = [
        type(check)(guards, check.parameters).function
        for guards in ((), *((guard,) for guard in check.guards))
    ]
    nothing, *each = map(seconds, alone)
    return {guard: max(took - nothing, 0.0) for guard, took in zip(check.guards, each, strict=True)}


ROW, STEP, TESTS, MOST_TESTS, NAME = 24, 18, 250, 430, 110
"""px: the height of a row, the indent of a step, where the tests stand (further right if names are long or the tree is deep, but
not beyond `MOST_TESTS` unless the last name then had less than `NAME`)."""


@takes(guards=GUARDS, title=TEXT)
def guard_tree(
    guards: Iterable[Any],
    failure: Any = None,
    costs: Mapping[Any, float] = MappingProxyType({}),
    title: str = "",
) -> Picture:
    """Guards hung on the paths of what they are about; the branch that leads to `failure` is marked, and `costs` (guard →
    seconds, see `guard_costs`) are bars on the right."""
    guards = list(guards)
    failed, why = getattr(failure, "guard", None), told(failure)
    rows = list(tree_of(guards).rows())
    names = [
        4 + STEP * depth + text_width(branch.name, mono=True, bold=True) + 40
        for depth, branch in rows
    ]
    deepest = 44 + STEP * max((depth for depth, _ in rows), default=0)
    tests = max(TESTS, min(MOST_TESTS, max(names, default=0)), deepest + NAME)
    cost = tests - TESTS + (600 if costs else 725)
    svg = Svg(cost + 160 if costs else cost + 40, ROW * (len(rows) + (failed is not None)) + 30)
    svg.text(4, 14, "what", SMALL, dim=True)
    svg.text(tests, 14, "must be", SMALL, dim=True)
    if costs:
        svg.text(cost + 12, 14, "cost of this test alone", SMALL, dim=True)
    most, y, text = max(costs.values(), default=0.0) or 1.0, 24.0, []
    above: dict[int, float] = {}  # depth → where the last branch of that depth stands
    for depth, branch in rows:
        broken = failed is not None and branch.holds(failed)
        here = failed is not None and failed in branch.guards
        colour = "break" if broken else None
        if depth:
            x, top = 10 + STEP * (depth - 1), above[depth - 1] + 18
            top = top if broken else max(top, above.get(depth, 0.0) + 11)
            line, opacity = (2.4, 1.0) if broken else (1.2, 0.4)
            svg.path(f"M{x} {top} V{y + 11} H{x + 10}", stage=colour, line=line, opacity=opacity)
        above = {**{d: place for d, place in above.items() if d < depth}, depth: y}
        x = 4 + STEP * depth
        name = middle(branch.name, tests - x - 40, mono=True, bold=broken)
        svg.text(x + 4, y + 15, name, mono=True, bold=broken, stage=colour, tip=branch.name)
        if branch.guards:
            draw_diamond(svg, tests - 14, y + 10, "break" if here else "guards")
            expr = readable("; ".join(dict.fromkeys(map(required, branch.guards))))
            svg.text(
                tests,
                y + 15,
                shorten(expr, cost - tests, SMALL, mono=True),
                SMALL,
                mono=True,
                tip=expr,
            )
        if costs and branch.guards:
            took = sum(costs.get(guard, 0.0) for guard in branch.guards)
            svg.box(
                cost + 12, y + 5, max(2.0, 90 * took / most), 11, "guards", radius=2, strength=0.45
            )
            svg.text(cost + 18 + max(2.0, 90 * took / most), y + 15, human_seconds(took), SMALL)
        kinds = ", ".join(dict.fromkeys(guard.kind for guard in branch.guards))
        text.append(
            f"{'✕' if here else '│' if broken else ' '} {'  ' * depth}{branch.name:<{30 - 2 * depth}} {kinds}".rstrip()
        )
        y += ROW
        if here:
            svg.text(
                tests,
                y + 13,
                middle(f"✕ {why}", cost - tests - 20, bold=True),
                bold=True,
                stage="break",
                tip=why,
            )
            y += ROW
            text.append(f"  {'  ' * depth}  did not hold: {why}")
    alt = f"{plural(len(guards), 'guard')}{f' of {title}' if title else ''} as a tree of {plural(len(rows), 'path')}."
    alt += f" One did not hold: {why}." if failed is not None else ""
    caption = (
        "Each guard (◇) on the path of the object it tests; point at a test to read all of it."
    )
    caption += (
        " The broken branch leads to the guard that did not hold." if failed is not None else ""
    )
    return Picture(
        f'<div class="cl-scroll">{svg.render(alt)}</div>',
        caption,
        alt,
        "\n".join(text),
        ("guards", "break"),
    )


def required(guard: Any) -> str:
    """A guard's tests without the path: `float32 (32, 768) strides (768, 1)`, `LayerNorm`, `== 1e-05`, `no hooks`."""
    values = {test.left.format("·"): test for test in guard.tests}
    right = lambda left: literal(values[left].right).removeprefix("torch.")
    match guard.kind:
        case "tensor" if "·.shape" in values:
            grad = ", requires grad" * (values["·.requires_grad"].right is True)
            return f"{right('type(·)')} {right('·.dtype')} {right('·.shape')} strides {right('·.stride()')}{grad}"
        case "state":
            return ", ".join(
                f"{re.sub(r'^torch.(_C._?)?|[(][)]', '', left)} {right(left)}" for left in values
            )
        case "absent":
            hides = (
                "no variable hides a builtin"
                if "__globals__" in guard.source.expr
                else "no attribute of its own hides it"
            )
            return hides
        case "hooks":
            return guard.tests[0].pretty.split(" on ")[0]
        case "value" if len(values) == 2 and "·" in values:
            return f"== {literal(values['·'].right)}"
    return " and ".join(test.text("·") for test in guard.tests).replace("·.", ".")


def draw_diamond(svg: Svg, x: float, y: float, stage: str, size: float = 7) -> None:
    """A guard. A failed one has a cross in it."""
    corners = f"M{x} {y - size} L{x + size} {y} L{x} {y + size} L{x - size} {y} Z"
    svg.path(corners, stage=stage, line=2, opacity=1)
    if stage == "break":
        arm = size * 0.4
        svg.path(
            f"M{x - arm} {y - arm} l{2 * arm} {2 * arm} M{x + arm} {y - arm} l{-2 * arm} {2 * arm}",
            stage=stage,
            opacity=1,
        )
