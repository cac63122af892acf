"""`cl.mirror(f, *args)`: one call through both compilers, side by side.

In:  a function or module, and the arguments of one call.
Out: a `Mirror`: the graphs that course_lib and the real `torch.compile` captured, their guards in
     both dialects, and in words what differs. `.compiled` goes on to the kernels (`back.py`): it
     takes torch.compile seconds, so it waits to be asked.

The call is made three times (eager, ours, theirs) on copies of the arguments, from one random seed;
the backend of this first half keeps the graph and runs it as it is. In PyTorch:
`torch._dynamo.explain` tells one side."""

from __future__ import annotations

import functools
import inspect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from course_lib import events
from course_lib.compiler import compile
from course_lib.viz.kit.arguments import a_function
from course_lib.viz.kit.style import Picture, escape, plural
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.mirror.back import NOT_AVAILABLE, SAME, Halves, Trial, course, halves, verdict
from course_lib.viz.pictures.graphs.fx_graphs import op_name, readable_path, source_of
from course_lib.viz.recording import Recording

__all__ = ["Mirror", "Side", "course", "mirror"]


@dataclass(frozen=True)
class Node:
    """A node of a captured graph: its operation, and all of it as one line of text."""

    operation: str
    text: str

    @functools.cached_property
    def without_names(self) -> str:
        """The line without the names of nodes: each compiler has its own."""
        return re.sub(r"%\w+", "%", self.text)


@dataclass(frozen=True)
class Listing:
    """One captured graph: where its inputs come from, and its other nodes."""

    inputs: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


@dataclass
class Side:
    """What one compiler made of the call. `answer` says how its result compares with eager's."""

    name: str
    graphs: list[Listing] = field(default_factory=list)
    guards: int = 0
    guard_texts: list[str] = field(default_factory=list)
    """Each as its compiler would say it; empty where a version of torch does not tell."""
    breaks: list[str] = field(default_factory=list)
    answer: str = SAME

    @property
    def operations(self) -> list[str]:
        """The operations of all its graphs, in order."""
        nodes = [node for graph in self.graphs for node in graph.nodes]
        return [node.operation for node in nodes if node.operation != "output"]

    @property
    def counts(self) -> tuple[str, ...]:
        """The column of this side in the table of `COUNTED`."""
        numbers = (len(self.graphs), len(self.operations), self.guards, len(self.breaks))
        return (*map(str, numbers), self.answer)


COUNTED = ("graphs", "operations", "guards", "graph breaks", "result")
CAPTION = "One call in both compilers; %name is what a node computes. An orange edge: the other graph lacks it."


@dataclass
class Mirror:
    """Both sides. Shows itself as a picture; `str()` is the same as text."""

    ours: Side
    theirs: Side
    trial: Trial

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.ours, self.theirs

    @functools.cached_property
    def compiled(self) -> Halves:
        """Both compilers all the way to kernels: what each fuses, bytes, times, and how the results
        compare."""
        return halves(self.trial)

    @property
    def guards(self) -> Picture:
        """The guards in both dialects: ours one for each object, with all that is assumed of it;
        theirs one for each question."""
        texts = [side.guard_texts or [NOT_AVAILABLE] for side in self.sides]
        rows = list(itertools.zip_longest(*texts, fillvalue=""))
        header = (self.ours.name, self.theirs.name)

        cells = []
        for ours, theirs in rows:
            cells.append((f"<code>{escape(ours)}</code>", f"<code>{escape(theirs)}</code>"))
        body = html_table(cells, header)

        counts = [f"{side.name}: {plural(side.guards, 'guard')}" for side in self.sides]
        alt = f"{'; '.join(counts)}."
        caption = "What each compiler tests before it uses its code again, in its own words."
        return Picture(f'<div class="cl-scroll">{body}</div>', caption, alt, columns(rows, header))

    @property
    def differences(self) -> list[str]:
        """What a reader should notice, a sentence each."""
        return differences(self.ours, self.theirs)

    @property
    def picture(self) -> Picture:
        """Counts, the node lists side by side, and the differences."""
        header = ("", self.ours.name, self.theirs.name)
        counts = list(zip(COUNTED, self.ours.counts, self.theirs.counts))
        body = [html_table(counts, header)]
        text = [columns(counts, header)]

        # A compiler that made fewer graphs has an empty one beside each that the other made.
        pairs = itertools.zip_longest(self.ours.graphs, self.theirs.graphs, fillvalue=Listing())
        for number, (ours, theirs) in enumerate(pairs, 1):
            titles = [
                graph_title(ours, number, self.ours.name),
                graph_title(theirs, number, self.theirs.name),
            ]
            body.append(pair_html(ours, theirs, titles))
            rows = [(row.ours or "–", row.theirs or "–") for row in pair_up(ours, theirs)]
            text.append(columns(rows, titles))

        sentences = self.differences
        items = "".join(f"<li>{escape(line)}</li>" for line in sentences)
        body.append(f'<ul class="cl-mi-said">{items}</ul>')
        text.append("\n".join(f"• {line}" for line in sentences))

        graphs = [f"{side.name}: {plural(len(side.graphs), 'graph')}" for side in self.sides]
        alt = f"{'; '.join(graphs)}. {' '.join(sentences)}"
        html = f'<div class="cl-scroll">{"".join(body)}</div>'
        return Picture(html, CAPTION, alt, "\n\n".join(text), sheets=("mirror",))

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


# ---- what differs, in words ----------------------------------------------------------------------


def differences(ours: Side, theirs: Side) -> list[str]:
    """What a reader should notice, a sentence each."""
    sentences = [
        *answers_told(ours, theirs),
        *breaks_told(ours, theirs),
        *breaks_told(theirs, ours),
    ]
    if all(side.breaks and len(side.graphs) > 1 for side in (ours, theirs)):
        sentences.append("Both leave that to Python and go on behind it in a resume function.")

    sentences += orders_told(ours, theirs)
    sentences += operations_told(ours, theirs)
    sentences += operations_told(theirs, ours)
    if ours.guards and theirs.guards and ours.guards != theirs.guards:
        sentences.append(
            "Guards are cut differently: one of ours holds all that is assumed about one object."
        )
    return sentences or ["No difference."]


def answers_told(ours: Side, theirs: Side) -> list[str]:
    """Results that differ from eager's."""
    return [
        f"The result of {side.name}: {side.answer}."
        for side in (ours, theirs)
        if side.answer != SAME
    ]


def orders_told(ours: Side, theirs: Side) -> list[str]:
    """Graphs that take the same inputs in another order."""
    sentences = []
    for number, (our_graph, their_graph) in enumerate(zip(ours.graphs, theirs.graphs), 1):
        if our_graph.inputs != their_graph.inputs and sorted(our_graph.inputs) == sorted(
            their_graph.inputs
        ):
            sentences.append(f"Graph {number} takes the same inputs in another order.")
    return sentences


def operations_told(side: Side, other: Side) -> list[str]:
    """Operations of which `side` has more than `other`."""
    more = more_operations(side, other)
    if more:
        return [f"More of these in {side.name}: {', '.join(more)}."]
    return []


def breaks_told(side: Side, other: Side) -> list[str]:
    """Where one compiler ends a graph, and whether the other goes on."""
    sentences = []
    for reason, count in Counter(side.breaks).items():
        times = f", {count} times" if count > 1 else ""
        sentences.append(f"{side.name} ends a graph{times}: {reason.rstrip('.')}.")

    if other.graphs and not side.graphs and side.answer == SAME:
        sentences.append(f"{side.name} makes no graph of it: Python runs all of it.")
    if side.breaks and other.graphs and not other.breaks:
        sentences.append(f"{other.name} puts that into the graph.")
    return sentences


def more_operations(side: Side, other: Side) -> list[str]:
    """Operations of which `side` has more, each once.

    (Nothing is told if the other has no operation at all: the graphs side by side show that.)"""
    ours, theirs = Counter(side.operations), Counter(other.operations)
    if not theirs:
        return []
    return [name for name in ours if ours[name] > theirs[name]]


# ---- two graphs side by side ---------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Two nodes that stand for the same, as text; "" where one graph lacks it."""

    ours: str
    theirs: str


def graph_title(graph: Listing, number: int, name: str) -> str:
    """'graph 1 of course_lib', 'no graph 2 of torch.compile'."""
    no = "" if graph.nodes else "no "
    return f"{no}graph {number} of {name}"


def pair_html(ours: Listing, theirs: Listing, titles: Sequence[str]) -> str:
    """Both graphs in two columns, node beside node."""
    cells = [f"<b>{escape(title)}</b>" for title in titles]
    # Where one compiler made no graph, all of the other is alone: then no node is marked.
    paired = bool(ours.nodes and theirs.nodes)
    for row in pair_up(ours, theirs):
        cells.append(chip(row.ours, "cl-us", row.theirs, paired))
        cells.append(chip(row.theirs, "cl-them", row.ours, paired))
    return f'<div class="cl-mi cl-m">{"".join(cells)}</div>'


def chip(text: str, who: str, partner: str, paired: bool) -> str:
    """A node, marked if the other graph lacks it; a dash where this graph lacks one."""
    if not text:
        return f'<span class="cl-none">{"–" if paired else ""}</span>'

    kind = who if partner or not paired else f"{who} cl-alone"
    return f'<span class="{kind}">{escape(text)}</span>'


def pair_up(ours: Listing, theirs: Listing) -> list[Row]:
    """Inputs by where they come from; operations by name, each side in its own order, those with
    the same arguments first."""
    rows = []
    for name in dict.fromkeys([*ours.inputs, *theirs.inputs]):
        text = f"placeholder    {name}"
        rows.append(Row(text if name in ours.inputs else "", text if name in theirs.inputs else ""))

    # Between two pairs stand the nodes that have no partner.
    i = j = 0
    for i_same, j_same in alignment(ours.nodes, theirs.nodes):
        rows += unpaired(ours.nodes[i:i_same], theirs.nodes[j:j_same])
        rows.append(Row(ours.nodes[i_same].text, theirs.nodes[j_same].text))
        i, j = i_same + 1, j_same + 1
    return rows + unpaired(ours.nodes[i:], theirs.nodes[j:])


def unpaired(ours: Sequence[Node], theirs: Sequence[Node]) -> list[Row]:
    """Nodes that the other graph lacks: ours first."""
    return [Row(node.text, "") for node in ours] + [Row("", node.text) for node in theirs]


def likeness(one: Node, two: Node) -> int:
    """0 for different operations; more if the inputs are the same, too."""
    if one.operation != two.operation:
        return 0
    # One more pair counts more than equal inputs in all the others.
    return PAIR + (one.without_names == two.without_names)


PAIR = 1000
"""What a pair of one operation counts."""


def alignment(ours: Sequence[Node], theirs: Sequence[Node]) -> list[tuple[int, int]]:
    """Which nodes stand for the same: as many of one operation as can be, among these as many with
    the same inputs as can be.

    The longest common subsequence, where a pair counts by its likeness."""
    # best[i][j]: what the nodes from i and from j on can reach
    best = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i in reversed(range(len(ours))):
        for j in reversed(range(len(theirs))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1])
            score = likeness(ours[i], theirs[j])
            if score:
                best[i][j] = max(best[i][j], score + best[i + 1][j + 1])

    # Walk along the best way and note the pairs.
    pairs = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        score = likeness(ours[i], theirs[j])
        if score and best[i][j] == score + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


# ---- the call ------------------------------------------------------------------------------------


def mirror(function: Callable[..., Any], *args: Any, train: bool = False, **kwargs: Any) -> Mirror:
    """`function(*args, **kwargs)` in eager, through course_lib and through `torch.compile`; the
    graphs side by side.

    With `train`, the backward of the sum of its results is run too, and gradients are compared.
    What eager raises is raised; what only one compiler raises is told. Resets `torch._dynamo`
    before and after."""
    import torch._dynamo as dynamo

    a_function(function, "mirror")
    trial = Trial(function, args, kwargs, train)
    expected = trial.run(lambda f: f)

    ours = our_side(trial, expected)
    dynamo.reset()
    theirs = their_side(trial, expected)
    dynamo.reset()
    return Mirror(ours, theirs, trial)


def compare(side: Side, trial: Trial, expected: Any, wrap: Callable[[Any], Any]) -> None:
    """Run the call through one compiler, and note how its result compares with eager's."""
    try:
        side.answer = verdict(trial.run(wrap), expected)
    except Exception as error:
        side.answer = f"raised {type(error).__name__}"


def our_side(trial: Trial, expected: Any) -> Side:
    """The call through our capture."""
    side = Side("course_lib")
    recording = Recording()
    # (Not `note`, which keeps what reports need and moves breaks to the line of a call.)
    with events.listener(recording.events.append):
        compare(side, trial, expected, lambda f: compile(f, backend="eager"))

    side.graphs = [listing(gm, source_of) for gm in recording.graphs]
    side.guards = len(recording.guards)
    side.guard_texts = [f"{guard.kind}: {guard.expr}" for guard in recording.guards]
    # The reasons in the compiler's own words, as torch tells its own
    side.breaks = [event.problem.reason for event in recording.of(events.GraphBroke)]
    return side


def their_side(trial: Trial, expected: Any) -> Side:
    """The call through torch's capture. A backend hears of its graphs, a filter of its guards."""
    from torch._dynamo.utils import counters

    side = Side("torch.compile")

    def keep(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        """The backend: it keeps the graph, and runs it as it is."""

        def source(node: fx.Node) -> str:
            return as_ours(dynamo_source(node), trial.function)

        side.graphs.append(listing(gm, source))
        return gm.forward

    def count(guards: Any) -> list[bool]:
        """The filter: it counts, and keeps every guard. (Older versions of torch do not tell what
        kind they are.)"""
        side.guards += len(guards)
        for guard in guards:
            if hasattr(guard, "guard_type"):
                side.guard_texts.append(f"{guard.guard_type} {dialect(guard.name)}".rstrip())
        return [True] * len(guards)

    counters.clear()
    options = {"guard_filter_fn": count}
    compare(side, trial, expected, lambda f: torch.compile(f, backend=keep, options=options))
    side.breaks = breaks_in(counters)
    return side


def breaks_in(counters: Mapping[str, Counter[str]]) -> list[str]:
    """What `torch._dynamo.utils.counters` tells: under "graph_break" each place where a graph ends,
    under "unimplemented" (too) what made it give up a whole frame."""

    def reasons(kind: str) -> list[str]:
        """The first line of each, as often as it was met."""
        return [text.splitlines()[0] for text in counters[kind].elements()]

    breaks = reasons("graph_break")
    frames = dict.fromkeys(reasons("unimplemented"))
    return breaks + [reason for reason in frames if reason not in breaks]


# ---- a graph in words ----------------------------------------------------------------------------


class Name(str):
    """A text that shows itself without quotes."""

    __repr__ = str.__str__


def listing(gm: fx.GraphModule, source: Callable[[fx.Node], str]) -> Listing:
    """A graph in words; inputs are called by their `source`."""
    inputs = {node.name: source(node) for node in gm.graph.nodes if node.op == "placeholder"}
    called = {node.name: f"%{node.name}" for node in gm.graph.nodes}
    called |= inputs

    def said(argument: Any) -> str:
        """An argument with every node in it by name."""
        return str(fx.map_arg(argument, lambda node: Name(called[node.name])))

    nodes = []
    for node in gm.graph.nodes:
        arguments = [said(argument) for argument in node.args]
        arguments += [f"{key}={said(argument)}" for key, argument in node.kwargs.items()]
        arguments_text = ", ".join(arguments)
        if node.op == "output":
            nodes.append(Node("output", f"output         {arguments_text}"))
        elif node.op != "placeholder":
            name = op_name(node)
            nodes.append(Node(name, f"{node.op:<13}  %{node.name} = {name}({arguments_text})"))
    return Listing(list(inputs.values()), nodes)


def dynamo_source(node: fx.Node) -> str:
    """Where a placeholder of torch's graph comes from, as the user would write it:
    `self.ln.weight`."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None) or node.name
    # In older versions of torch the name is a method.
    return dialect(str(name() if callable(name) else name))


def as_ours(name: str, function: Callable[..., Any]) -> str:
    """TorchDynamo's name of an input, as the name that we have for it.

    A layer of torch itself is run by torch inside `def inner(*args): return fn(*args)`, so its own
    names are `fn.0.weight` and `args[0]`; ours are `self[0].weight` and `input`."""
    if isinstance(function, torch.nn.Module):
        parameters = dict(enumerate(inspect.signature(function.forward).parameters))

        def parameter(match: re.Match[str]) -> str:
            return parameters.get(int(match[1]), match[0])

        name = re.sub(r"^fn\b", "self", name)
        name = re.sub(r"^args\[(\d+)\]", parameter, name)
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)


def dialect(name: str) -> str:
    """A path as torch writes it, as the user would: `L['self']._modules['ln']` → `self.ln`.

    What lay on the stack is `stack0`."""
    of_torch = r"\b[LG]\['(?:___(?=stack\d))?(\w+)'\]|^___(?=stack\d)"
    return re.sub(of_torch, r"\1", readable_path(name))
