"""Guards as a tree: hung on the paths of what they test, with what each test costs.

In:  `Guard`s (`capture.guard_tests`), perhaps a `Failure` (`guards.check`) and the seconds of each
     test.
Out: a `Picture`.
"""

from __future__ import annotations

import re
import timeit
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from course_lib.capture import literal
from course_lib.viz.kit.arguments import GUARDS, TEXT, takes, with_attributes
from course_lib.viz.kit.style import SMALL, Picture, escape, human_seconds, plural
from course_lib.viz.kit.svg import Svg, middle, shorten, text_width
from course_lib.viz.kit.tables import html_table
from course_lib.viz.pictures.guards.guard_tables import about, readable, told


@dataclass
class Branch:
    """One step of a path: `self`, then `.ln`, then `.weight`; the guards about the object there,
    and the steps below."""

    name: str
    guards: list[Any] = field(default_factory=list)
    below: dict[str, Branch] = field(default_factory=dict)

    def rows(self, depth: int = 0) -> Iterator[Row]:
        """All that is below this branch, top to bottom."""
        for branch in self.below.values():
            yield Row(depth, branch)
            yield from branch.rows(depth + 1)

    def holds(self, guard: Any) -> bool:
        """Is the guard about this object, or one below it?"""
        return guard in self.guards or any(branch.holds(guard) for branch in self.below.values())


@dataclass(frozen=True)
class Row:
    """A branch, and how many steps deep it lies."""

    depth: int
    branch: Branch


def tree_of(guards: Iterable[Any]) -> Branch:
    """Guards by the path of what they are about."""
    root = Branch("")
    for guard in guards:
        branch = root
        for step in steps_of(guard):
            branch = branch.below.setdefault(step, Branch(step))
        branch.guards.append(guard)
    return root


def steps_of(guard: Any) -> list[str]:
    """The path cut in steps: `self.ln['x']` → `self`, `.ln`, `['x']`.

    Tests of several objects are one step."""
    path = about(guard)
    if guard.kind in ("state", "sizes"):
        return [path]
    return re.findall(r"\[[^\]]*\]|\.?[^.\[]+", path)


# ---- what a test costs ---------------------------------------------------------------------------

REPEATS, CALLS = 5, 2000
"""How often a test is timed, and how many calls are timed together."""
RESOLUTION = 1e-9
"""seconds: what is less is noise in the mean of so many calls."""


@takes(
    check=with_attributes(
        "the check of an entry (of the compiler)", "guards", "parameters", "function"
    )
)
def guard_costs(check: Any, function: Any, *args: Any) -> dict[Any, float]:
    """Seconds for each guard of a `Check`, tested alone (its path is looked up anew, so their sum
    is more than the whole)."""

    def seconds(guards: tuple[Any, ...]) -> float:
        """The check of these guards alone: the fastest of several rounds."""
        test = type(check)(guards, check.parameters).function
        timer = timeit.Timer(lambda: test(function, *args))
        return min(timer.repeat(REPEATS, CALLS)) / CALLS

    # A check without guards: what the call itself costs.
    nothing = seconds(())
    return {guard: max(seconds((guard,)) - nothing, 0.0) for guard in check.guards}


# ---- the drawing ---------------------------------------------------------------------------------

ROW, STEP = 24, 18
"""px: the height of a row, and the indent of a step."""
TESTS, MOST_TESTS, NAME = 250, 430, 110
"""px: where the tests stand. They stand further right if names are long or the tree is deep, but
not beyond `MOST_TESTS` unless the last name then had less than `NAME`."""
MARGIN, DIAMOND_ROOM = 4, 40
"""px: left of the tree, and between a name and the tests: the diamond stands there."""
BASE_LINE = 15
"""px: from the top of a row to the base line of its text."""
BAR = 90
"""px: the bar of the most expensive test."""
CAPTION = "Each guard (◇) on the path of the object it tests; point at a test to read all of it."


@takes(guards=GUARDS, title=TEXT)
def guard_tree(
    guards: Iterable[Any],
    failure: Any = None,
    costs: Mapping[Any, float] = MappingProxyType({}),
    title: str = "",
) -> Picture:
    """Guards hung on the paths of what they are about.

    failure: the branch that leads to it is marked.
    costs: guard → seconds (see `guard_costs`), drawn as bars on the right.
    """
    guards = list(guards)
    drawing = TreeDrawing(list(tree_of(guards).rows()), failure, costs)
    drawing.draw()

    of_title = f" of {title}" if title else ""
    paths = plural(len(drawing.rows), "path")
    alt = f"{plural(len(guards), 'guard')}{of_title} as a tree of {paths}."
    caption = CAPTION
    if drawing.failed is not None:
        alt += f" One did not hold: {drawing.why}."
        caption += " The broken branch leads to the guard that did not hold."

    body = f'<div class="cl-scroll" tabindex="0">{drawing.svg.render(alt)}</div>{in_full(drawing.rows)}'
    return Picture(body, caption, alt, "\n".join(drawing.text), sheets=("guards", "break"))


def in_full(rows: Iterable[Row]) -> str:
    """All tests as a table that opens: what a tip of the drawing holds can be reached by the
    keyboard here."""
    cells = []
    for row in rows:
        guards = row.branch.guards
        if guards:
            tests = readable("; ".join(dict.fromkeys(map(required, guards))))
            cells.append((in_code(about(guards[0])), in_code(tests)))

    if not cells:
        return ""
    table = html_table(cells, ["object", "test"])
    return f"<details><summary>All tests in full</summary>{table}</details>"


def in_code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


class TreeDrawing:
    """The tree while it is drawn, row by row; `text` is the same in plain text."""

    def __init__(self, rows: list[Row], failure: Any, costs: Mapping[Any, float]) -> None:
        self.rows = rows
        self.failed = getattr(failure, "guard", None)
        self.why = told(failure)
        self.costs = costs
        # 1.0 if all are 0: bars are divided by it
        self.greatest_cost = max(costs.values(), default=0.0) or 1.0

        # px from the left: where the column of tests begins, and behind it the column of costs
        self.tests_x = x_of_tests(rows)
        end_of_tests = 600 if costs else 725  # with the tests at `TESTS`
        self.cost_x = end_of_tests + self.tests_x - TESTS
        width = self.cost_x + (160 if costs else 40)
        # The reason why a guard did not hold stands in a row of its own.
        extra_row = self.failed is not None
        self.svg = Svg(width, ROW * (len(rows) + extra_row) + 30)
        self.text: list[str] = []

        # px from the top: the row that is drawn next, and by depth the last branch of that depth
        self.y = 24.0
        self.above: dict[int, float] = {}

    def draw(self) -> None:
        self.svg.text(MARGIN, 14, "what", SMALL, dim=True)
        self.svg.text(self.tests_x, 14, "must be", SMALL, dim=True)
        if self.costs:
            self.svg.text(self.cost_x + 12, 14, "cost of this test alone", SMALL, dim=True)

        for row in self.rows:
            self.draw_row(row)

    def draw_row(self, row: Row) -> None:
        """A step of a path with the guards about the object there."""
        depth, branch = row.depth, row.branch
        broken = self.failed is not None and branch.holds(self.failed)
        here = self.failed is not None and self.failed in branch.guards

        if depth:
            self.draw_twig(depth, broken)
        # What was deeper hung on another branch: no twig of this one begins there.
        self.above = {d: place for d, place in self.above.items() if d < depth}
        self.above[depth] = self.y

        x = MARGIN + STEP * depth
        y = self.y + BASE_LINE
        name = middle(branch.name, self.tests_x - x - DIAMOND_ROOM, mono=True, bold=broken)
        colour = "break" if broken else None
        self.svg.text(x + 4, y, name, mono=True, bold=broken, stage=colour, tip=branch.name)
        if branch.guards:
            self.draw_tests(branch, here)
        if branch.guards and self.costs:
            self.draw_cost(branch)

        self.write(row, broken, here)
        self.y += ROW
        if here:
            self.draw_failure()
            self.text.append(f"  {'  ' * depth}  did not hold: {self.why}")

    def draw_twig(self, depth: int, broken: bool) -> None:
        """The line from the branch above: down, then right to the middle of the row.

        It goes on from the twig of the last branch of this depth. That of a broken branch starts at
        its parent, so that the eye can follow it."""
        row_middle = 11
        x = 10 + STEP * (depth - 1)
        top = self.above[depth - 1] + 18  # below the parent's name
        if not broken:
            top = max(top, self.above.get(depth, 0.0) + row_middle)

        twig = f"M{x} {top} V{self.y + row_middle} H{x + 10}"
        if broken:
            self.svg.path(twig, stage="break", line=2.4, opacity=1.0)
        else:
            self.svg.path(twig, stage=None, line=1.2, opacity=0.4)

    def draw_tests(self, branch: Branch, failed: bool) -> None:
        """What the object of a branch must be, in the column of tests."""
        draw_diamond(self.svg, self.tests_x - 14, self.y + 10, "break" if failed else "guards")
        tests = readable("; ".join(dict.fromkeys(map(required, branch.guards))))
        fits = shorten(tests, self.cost_x - self.tests_x, SMALL, mono=True)
        self.svg.text(self.tests_x, self.y + BASE_LINE, fits, SMALL, mono=True, tip=tests)

    def draw_cost(self, branch: Branch) -> None:
        """A bar as long as the tests of a branch are slow, and their seconds beside it."""
        cost = sum(self.costs.get(guard, 0.0) for guard in branch.guards)
        length = max(2.0, BAR * cost / self.greatest_cost)  # the least that is seen
        x = self.cost_x + 12
        self.svg.box(x, self.y + 5, length, 11, "guards", radius=2, strength=0.45)
        # A test that is faster than the clock can tell is not free: "0 ns" would be wrong.
        shown = "under 1 ns"
        if cost >= RESOLUTION:
            shown = human_seconds(cost)
        self.svg.text(x + 6 + length, self.y + BASE_LINE, shown, SMALL)

    def draw_failure(self) -> None:
        """Below the guard that did not hold: a row that says why."""
        why = middle(f"✕ {self.why}", self.cost_x - self.tests_x - 20, bold=True)
        self.svg.text(self.tests_x, self.y + 13, why, bold=True, stage="break", tip=self.why)
        self.y += ROW

    def write(self, row: Row, broken: bool, here: bool) -> None:
        """The row in plain text: the path to a broken guard is marked, and so is the guard."""
        mark = " "
        if broken:
            mark = "✕" if here else "│"

        indent = "  " * row.depth
        kinds = ", ".join(dict.fromkeys(guard.kind for guard in row.branch.guards))
        name = f"{row.branch.name:<{30 - len(indent)}}"
        self.text.append(f"{mark} {indent}{name} {kinds}".rstrip())


def x_of_tests(rows: list[Row]) -> float:
    """px from the left: where the column of tests begins, so that the names have room before it."""
    names = []
    for row in rows:
        name = text_width(row.branch.name, mono=True, bold=True)
        names.append(MARGIN + STEP * row.depth + name + DIAMOND_ROOM)

    deepest = MARGIN + DIAMOND_ROOM + STEP * max((row.depth for row in rows), default=0)
    return max(TESTS, min(MOST_TESTS, max(names, default=0)), deepest + NAME)


def required(guard: Any) -> str:
    """A guard's tests without the path: `float32 (32, 768) strides (768, 1)`, `LayerNorm`,
    `== 1e-05`, `no hooks`."""
    # What is looked at (`·.shape`: the dot stands for the object) → the test
    tests = {test.left.format("·"): test for test in guard.tests}

    def right(left: str) -> str:
        """What the left side must be equal to."""
        return literal(tests[left].right).removeprefix("torch.")

    match guard.kind:
        case "tensor" if "·.shape" in tests:
            shape = f"{right('type(·)')} {right('·.dtype')} {right('·.shape')}"
            grad = ", requires grad" if tests["·.requires_grad"].right is True else ""
            return f"{shape} strides {right('·.stride()')}{grad}"
        case "state":
            settings = []
            for left in tests:
                # `torch._C._get_x()` → `get_x`
                name = re.sub(r"^torch.(_C._?)?|[(][)]", "", left)
                settings.append(f"{name} {right(left)}")
            return ", ".join(settings)
        case "absent" if "__globals__" in guard.source.expr:
            return "no variable hides a builtin"
        case "absent":
            return "no attribute of its own hides it"
        case "hooks":
            # "no hooks on self.ln": the path stands on the left
            return guard.tests[0].pretty.split(" on ")[0]
        case "value" if len(tests) == 2 and "·" in tests:
            # Type and value are tested; the value says both.
            return f"== {literal(tests['·'].right)}"
    return " and ".join(test.text("·") for test in guard.tests).replace("·.", ".")


def draw_diamond(svg: Svg, x: float, y: float, stage: str, size: float = 7) -> None:
    """A guard. A failed one has a cross in it."""
    corners = f"M{x} {y - size} L{x + size} {y} L{x} {y + size} L{x - size} {y} Z"
    svg.path(corners, stage=stage, line=2, opacity=1)

    if stage == "break":
        arm = size * 0.4
        falling = f"M{x - arm} {y - arm} l{2 * arm} {2 * arm}"
        rising = f"M{x + arm} {y - arm} l{-2 * arm} {2 * arm}"
        svg.path(f"{falling} {rising}", stage=stage, opacity=1)
