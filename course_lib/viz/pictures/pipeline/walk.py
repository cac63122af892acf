"""One function from Python to its kernel, as a drawing that moves: the README's first picture.

In:  a `Walk`, read from the recording of one call (`course_lib/tools/walk.py`).
Out: the text of an SVG file. It moves by CSS alone: no script, so that code hosts show it.

Six scenes follow each other, in the places where the reader of the course meets them. Nothing in
them is made up: instructions, nodes, guards, loops, bytes and code are those of the recording. The
file has a ground of its own, light or dark as the reader's browser asks for. It plays three times
and stays on its last scene. Who asks for less motion sees the first scene, still.

PyTorch has no counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from course_lib.languages import translate
from course_lib.viz.kit.style import COLOURS, FILLS, MONO, SANS, escape, human_bytes

WIDTH, HEIGHT = 520, 400
"""px. A phone of 400 px shows it at seven tenths, and the letters are then 11 px."""
CODE, PLAIN = 16, 16
"""px: the sizes of letters."""
LEFT, TOP, LINE = 18, 92, 25
"""px: where a scene begins, and the height of a line of code."""
STACK, NODE = 172, 318
"""px: where the second and the third column of the instructions begin."""
NODE_WIDTH, NODE_HEIGHT, BETWEEN = 168, 36, 26
"""px: a node of the graph, and the arrow to the next."""
LOOP_WIDTH, LOOP_HEIGHT, LOOP_STEP = 360, 58, 78
"""px: the box of a loop, and from one to the next."""
FADE = 0.35
"""Seconds that a thing takes to come or to go."""
TIMES = 3
"""How often it plays."""
LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "rim": "#d1d9e0"}
DARK = {"ground": "#0d1117", "ink": "#f0f6fc", "soft": "#aab4c0", "rim": "#3d444d"}

# CSS classes of the SVG file. They are one letter long: the file has hundreds of them, and whoever
# opens the README loads it.
GROUND = "g"
INK = "i"
SOFT = "s"
STROKE = "l"
IN_CODE = "c"


@dataclass(frozen=True)
class Instruction:
    """One instruction of the call, as capture ran it. stack: names, top at the right. node: what it
    added to the graph."""

    text: str
    stack: str
    node: str


@dataclass(frozen=True)
class Node:
    """A node of the graph, and which nodes it reads. An input reads none."""

    name: str
    shape: str
    reads: Sequence[str]


@dataclass(frozen=True)
class Walk:
    """What the six scenes show.

    nodes: inputs first. guards: one test for each input. loops: (ranges, formula).
    before, after: bytes through memory, loop by loop and fused. code: lines of the kernel."""

    source: Sequence[str]
    instructions: Sequence[Instruction]
    nodes: Sequence[Node]
    guards: Sequence[str]
    loops: Sequence[tuple[str, str]]
    before: float
    after: float
    kernel: str
    code: Sequence[str]


# ---- the film ------------------------------------------------------------------------------------


@dataclass
class Film:
    """Pieces of a drawing, each with the seconds at which it comes and goes."""

    language: str | None = None
    parts: list[str] = field(default_factory=list)
    # (second at which pieces come, second at which they go) → the CSS class of these pieces
    spans: dict[tuple[float, float], str] = field(default_factory=dict)
    # Where the next scene begins, in seconds; at the end the length of the film
    now: float = 0.0

    def scene(self, seconds: float, parts: Sequence[tuple[float, str]]) -> None:
        """Shows each part from its own moment, counted from the beginning of the scene, until the
        scene ends."""
        end = self.now + seconds
        for moment, part in parts:
            name = self.spans.setdefault((self.now + moment, end), f"t{len(self.spans)}")
            self.parts.append(f'<g class="{name}">{part}</g>')
        self.now = end

    def say(self, text: str) -> str:
        """A text of the drawing in the film's language."""
        return translate(text, self.language)

    def rules(self) -> str:
        """The CSS that shows and hides the pieces.

        What is there at second 0 is what a reader without motion sees."""
        rules = []
        whole = self.now
        for (start, end), name in self.spans.items():
            shown = int(start == 0)
            looks = f"opacity: {shown}; animation: {name} {whole:g}s linear {TIMES} both"
            rules.append(f".{name} {{ {looks} }}")

            # (second, opacity): a piece fades in at `start`, and out before `end`.
            stops = [(start, 0.0), (start + FADE, 1.0)] if start else [(0.0, 1.0)]
            if end == whole:
                # The last scene stays.
                stops.append((end, 1.0))
            else:
                stops += [(end - FADE, 1.0), (end, 0.0), (whole, 0.0)]

            frames = []
            for second, opacity in stops:
                frames.append(f"{100 * second / whole:.2f}% {{ opacity: {opacity:g} }}")
            frames_of_piece = " ".join(frames)
            rules.append(f"@keyframes {name} {{ 0% {{ opacity: {shown} }} {frames_of_piece} }}")
        return "\n".join(rules)


def walk(shown: Walk, language: str | None = None) -> str:
    """The SVG file.

    `language`: that of the headings, as in `course_lib.languages`; None for English."""
    film = Film(language)
    scenes = (_python, _bytecode, _graph, _lowered, _fused, _kernel)
    for number, scene in enumerate(scenes):
        scene(film, shown, number)

    title = film.say("One function on its way from Python to one kernel")
    described = film.say(
        "Six scenes: its source, its bytecode with the stack, the graph with its guards, the loops, the loops fused into one kernel, "
        "and the C++ of that kernel."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-labelledby="t d" font-family="{escape(SANS)}">\n'
        f'<title id="t">{escape(title)}</title>\n<desc id="d">{escape(described)}</desc>\n'
        f"<style>\n{_looks(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{_looks(DARK)}\n}}\n"
        f".{IN_CODE} {{ font-family: {MONO}; white-space: pre }}\n{film.rules()}\n"
        "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }\n</style>\n"
        f'<rect class="{GROUND}" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>\n'
        + "\n".join(film.parts)
        + "\n</svg>\n"
    )


def _looks(theme: dict[str, str]) -> str:
    """The CSS of the classes that have a colour, in a theme: `LIGHT` or `DARK`."""
    return (
        f".{GROUND} {{ fill: {theme['ground']}; stroke: {theme['rim']} }} "
        f".{INK} {{ fill: {theme['ink']} }} "
        f".{SOFT} {{ fill: {theme['soft']} }} "
        f".{STROKE} {{ stroke: {theme['soft']} }}"
    )


# ---- what scenes are made of ---------------------------------------------------------------------

TABS = (
    ("Python", "eager"),
    ("bytecode", "capture"),
    ("graph", "capture"),
    ("loops", "lowering"),
    ("fusion", "scheduling"),
    ("C++", "codegen"),
)
"""By the number of a scene: its name, and the stage whose colour it has."""


def _head(film: Film, number: int, sentence: str) -> str:
    """The head of scene `number`: the names of all six, this one's lit, and below them a sentence
    that says what to see."""
    parts = []
    step = (WIDTH - 2 * LEFT) / len(TABS)
    wide = step - 6
    for i, (name, stage) in enumerate(TABS):
        x = LEFT + i * step
        if i == number:
            strength, line, looks, weight = 0.3, 2.5, INK, ' font-weight="600"'
        else:
            strength, line, looks, weight = 0.08, 0, SOFT, ""

        parts.append(_rect(x, 14, wide, 28, stage, strength, line))
        parts.append(
            f'<text class="{looks}" x="{x + wide / 2:.1f}" y="33" font-size="13.5" '
            f'text-anchor="middle"{weight}>{escape(film.say(name))}</text>'
        )
    parts.append(_text(LEFT, 68, film.say(sentence), plain=True))
    return "".join(parts)


def _rect(
    x: float,
    y: float,
    width: float,
    height: float,
    stage: str,
    strength: float = 0.14,
    line: float = 2,
) -> str:
    """A box with its upper left corner at (x, y), in the colour of a stage. `strength`: how strong
    its tint is; `line`: how thick its edge."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="7" fill="{FILLS[stage]}" '
        f'fill-opacity="{strength:g}" stroke="{COLOURS[stage]}" stroke-width="{line:g}"/>'
    )


def _text(x: float, y: float, text: str, *, plain: bool = False, soft: bool = False) -> str:
    """A line of text; of code, unless it is `plain`. `soft`: in the colour of what matters less."""
    looks, size = (SOFT if soft else INK), PLAIN
    if not plain:
        looks, size = f"{looks} {IN_CODE}", CODE
    return f'<text class="{looks}" x="{x:.1f}" y="{y:.1f}" font-size="{size}">{escape(text)}</text>'


def _arrow(x: float, y: float, length: float) -> str:
    """An arrow that points down: from (x, y), `length` px long."""
    end = y + length
    shaft = f"M{x:.1f} {y:.1f} V{end:.1f}"
    head = f"M{x - 4:.1f} {end - 5:.1f} L{x:.1f} {end:.1f} L{x + 4:.1f} {end - 5:.1f}"
    return f'<path class="{STROKE}" d="{shaft} {head}" fill="none" stroke-width="1.6"/>'


# ---- the scenes ----------------------------------------------------------------------------------

# A scene is a list of (second, piece): when in it the piece comes. All that is to be read at once
# comes at 0.0; what follows comes a moment apart, line by line.


def _python(film: Film, shown: Walk, number: int) -> None:
    """The source, in large letters; below, what it costs in eager."""
    lines = [_large(LEFT, TOP + 48 + 38 * i, line) for i, line in enumerate(shown.source)]
    eager = film.say("Eager runs each operation alone:")
    count = film.say(f"{len(shown.loops)} kernels, {human_bytes(shown.before)} through memory.")
    below = _text(LEFT, TOP + 210, eager, plain=True, soft=True)
    below += _text(LEFT, TOP + 236, count, plain=True, soft=True)
    head = _head(film, number, "You write this, and call it.")
    film.scene(3.5, [(0.0, head + "".join(lines) + below)])


def _large(x: float, y: float, text: str) -> str:
    """A line of the source."""
    return f'<text class="{INK} {IN_CODE}" x="{x:.1f}" y="{y:.1f}" font-size="24">{escape(text)}</text>'


def _bytecode(film: Film, shown: Walk, number: int) -> None:
    """Instruction by instruction: what is on the stack then, and the node that it adds."""
    head = _head(film, number, "Its bytecode runs on names. What needs a tensor is noted.")
    head += _text(LEFT, TOP, film.say("instruction"), plain=True, soft=True)
    head += _text(STACK, TOP, film.say("stack"), plain=True, soft=True)
    head += _text(NODE + 80, TOP, film.say("graph"), plain=True, soft=True)
    parts = [(0.0, head)]
    for i, instruction in enumerate(shown.instructions):
        y = TOP + 24 + i * LINE
        row = _text(LEFT, y, instruction.text) + _text(STACK, y, instruction.stack)
        if instruction.node:
            row += _rect(NODE + 74, y - 18, 112, LINE - 1, "capture") + _text(
                NODE + 82, y, instruction.node
            )
        parts.append((0.5 + 0.45 * i, row))
    film.scene(2.0 + 0.45 * len(shown.instructions), parts)


def _graph(film: Film, shown: Walk, number: int) -> None:
    """Node by node; then, on the right, the guards with their diamonds."""
    parts = [(0.0, _head(film, number, "A graph is left, and guards: when may it be used again?"))]
    places = _places(shown.nodes)
    for i, node in enumerate(shown.nodes):
        x, y = places[node.name]
        box = _rect(x, y, NODE_WIDTH, NODE_HEIGHT, "capture")
        box += _text(x + 12, y + 24, node.name) + _text(x + 66, y + 24, node.shape, soft=True)
        for source in node.reads:
            box += _edge(places[source], (x, y))
        parts.append((0.2 + 0.3 * i, box))
    for i, guard in enumerate(shown.guards):
        x, y = LEFT + 232, TOP + 180 + i * 36
        diamond = f'<path d="M{x} {y - 5} l9 -10 l9 10 l-9 10 z" fill="{FILLS["guards"]}" stroke="{COLOURS["guards"]}"/>'
        parts.append((2.4 + 0.4 * i, diamond + _text(x + 26, y, guard)))
    film.scene(5.5, parts)


def _places(nodes: Sequence[Node]) -> dict[str, tuple[float, float]]:
    """Name → where its box is.

    The first input and all operations stand below each other, further inputs beside them."""
    column = [node for i, node in enumerate(nodes) if node.reads or i == 0]
    step = NODE_HEIGHT + BETWEEN
    places = {node.name: (float(LEFT), float(TOP + i * step)) for i, node in enumerate(column)}
    for node in nodes:
        if node.name not in places:
            reader = next(node_below for node_below in column if node.name in node_below.reads)
            places[node.name] = (LEFT + NODE_WIDTH + 40.0, places[reader.name][1] - step)
    return places


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    """From the box at `start` to the one at `end`, which is below it, or below and to the left.

    A place is the upper left corner of a box."""
    (start_x, start_y), (end_x, end_y) = start, end
    middle_of_start, bottom_of_start = start_x + NODE_WIDTH / 2, start_y + NODE_HEIGHT
    if start_x == end_x:
        return _arrow(middle_of_start, bottom_of_start, end_y - start_y - NODE_HEIGHT - 2)

    # Down from the middle of one box, then left to the right side of the other
    tip = end_x + NODE_WIDTH + 3
    way = f"M{middle_of_start:.1f} {bottom_of_start:.1f} V{end_y + NODE_HEIGHT / 2:.1f} H{tip:.1f}"
    return f'<path class="{STROKE}" d="{way} m5 -4 l-5 4 l5 4" fill="none" stroke-width="1.6"/>'


def _boxes(shown: Walk, stage: str) -> list[str]:
    """A loop in each: its ranges, its formula, and an arrow to the next."""
    boxes = []
    for i, (ranges, formula) in enumerate(shown.loops):
        x, y = LEFT + 8, TOP + 4 + i * LOOP_STEP
        box = _rect(x, y, LOOP_WIDTH, LOOP_HEIGHT, stage)
        box += _text(x + 12, y + 22, ranges, soft=True) + _text(x + 12, y + 46, formula)
        if i:
            box += _arrow(x + LOOP_WIDTH / 2, y - 19, 17)
        boxes.append(box)
    return boxes


def _lowered(film: Film, shown: Walk, number: int) -> None:
    """Loop by loop: each part with the second at which it appears. `scene` is told first how many
    seconds all of it takes."""
    parts = [(0.0, _head(film, number, "Each operation becomes a loop over memory."))]
    parts += [(0.3 + 0.5 * i, box) for i, box in enumerate(_boxes(shown, "lowering"))]
    film.scene(4.5, parts)


def _fused(film: Film, shown: Walk, number: int) -> None:
    """A frame around all loops; on the right, a bar for the bytes before and one for those
    after."""
    parts = [(0.0, _head(film, number, "All read the same element: they become one kernel."))]
    parts += [(0.0, box) for box in _boxes(shown, "scheduling")]
    tall = len(shown.loops) * LOOP_STEP + 4
    parts.append((0.9, _rect(LEFT, TOP - 6, LOOP_WIDTH + 16, tall, "scheduling", 0.06, 4)))
    x = LEFT + LOOP_WIDTH + 30
    full = 94.0  # px: the bar of all bytes
    for moment, y, amount, stage, said in (
        (0.3, TOP + 40, shown.before, "eager", "loop by loop"),
        (1.6, TOP + 130, shown.after, "scheduling", "as one"),
    ):
        bar = _text(x, y - 26, film.say(said), plain=True, soft=True)
        bar += _text(x, y - 4, human_bytes(amount), plain=True)
        bar += _rect(x, y + 6, full * amount / shown.before, 20, stage, 0.45, 1)
        parts.append((moment, bar))
    film.scene(5.0, parts)


def _kernel(film: Film, shown: Walk, number: int) -> None:
    """The kernel's name, and its code line by line."""
    parts = [
        (0.0, _head(film, number, "That kernel in C++. Later calls run it, if the guards hold."))
    ]
    parts.append((0.0, _text(LEFT, TOP + 12, shown.kernel, soft=True)))
    for i, line in enumerate(shown.code):
        parts.append((0.3 + 0.25 * i, _text(LEFT, TOP + 62 + i * 28, line)))
    film.scene(6.0, parts)
