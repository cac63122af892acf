"""`cl.mirror(f, *args)`: one call through both compilers, side by side.

In:  a function or module, and the arguments of one call.
Out: a `Mirror`: the graphs that course_lib and the real `torch.compile` captured, their guards in both dialects, and in words
     what differs. `.compiled` goes on to the kernels (`back.py`): it takes torch.compile seconds, so it waits to be asked.

The call is made three times (eager, ours, theirs) on copies of the arguments, from one random seed; the backend of this first
half keeps the graph and runs it as it is. In PyTorch: `torch._dynamo.explain` tells one side."""

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
from course_lib.viz.kit.asked import a_function
from course_lib.viz.kit.style import Picture, escape, plural
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.mirror.back import NOT_AVAILABLE, SAME, Halves, Trial, course, halves, verdict
from course_lib.viz.pictures.graphs.fx_graphs import op_name, readable_path, source_of
from course_lib.viz.recording import Recording

__all__ = ["Mirror", "Side", "course", "mirror"]


@dataclass(frozen=True)
class Listing:
    """One captured graph: where its inputs come from, and its other nodes as (operation, text)."""

    inputs: list[str] = field(default_factory=list)
    nodes: list[tuple[str, str]] = field(default_factory=list)


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
        return [name for graph in self.graphs for name, _ in graph.nodes if name != "output"]


@dataclass
class Mirror:
    """Both sides. Shows itself as a picture; `str()` is the same as text."""

    ours: Side
    theirs: Side
    trial: Trial

    @functools.cached_property
    def compiled(self) -> Halves:
        """Both compilers all the way to kernels: what each fuses, bytes, times, and how the results compare."""
        return halves(self.trial)

    @property
    def guards(self) -> Picture:
        """The guards in both dialects: ours one for each object, with all that is assumed of it; theirs one for each question."""
        sides = [side.guard_texts or [NOT_AVAILABLE] for side in (self.ours, self.theirs)]
        rows, header = (
            list(itertools.zip_longest(*sides, fillvalue="")),
            (self.ours.name, self.theirs.name),
        )
        body = html_table(
            [tuple(f"<code>{escape(cell)}</code>" for cell in row) for row in rows], header
        )
        alt = (
            "; ".join(
                f"{side.name}: {plural(side.guards, 'guard')}" for side in (self.ours, self.theirs)
            )
            + "."
        )
        caption = "What each compiler tests before it uses its code again, in its own words."
        return Picture(f'<div class="cl-scroll">{body}</div>', caption, alt, columns(rows, header))

    @property
    def differences(self) -> list[str]:
        """What a reader should notice, a sentence each."""
        ours, theirs = self.ours, self.theirs
        said = [
            f"The result of {side.name}: {side.answer}."
            for side in (ours, theirs)
            if side.answer != SAME
        ]
        for side, other in ((ours, theirs), (theirs, ours)):
            for reason, count in Counter(side.breaks).items():
                said.append(
                    f"{side.name} ends a graph{f', {count} times' if count > 1 else ''}: {reason.rstrip('.')}."
                )
            if other.graphs and not side.graphs and side.answer == SAME:
                said.append(f"{side.name} makes no graph of it: Python runs all of it.")
            if side.breaks and other.graphs and not other.breaks:
                said.append(f"{other.name} puts that into the graph.")
        if all(side.breaks and len(side.graphs) > 1 for side in (ours, theirs)):
            said.append("Both leave that to Python and go on behind it in a resume function.")
        for number, (one, two) in enumerate(zip(ours.graphs, theirs.graphs), 1):
            if one.inputs != two.inputs and sorted(one.inputs) == sorted(two.inputs):
                said.append(f"Graph {number} takes the same inputs in another order.")
        for side, other in ((ours, theirs), (theirs, ours)):
            mine, yours = side.operations, other.operations
            more = [name for name in dict.fromkeys(mine) if mine.count(name) > yours.count(name)]
            said += [f"More of these in {side.name}: {', '.join(more)}."] if more and yours else []
        if ours.guards and theirs.guards and ours.guards != theirs.guards:
            said.append(
                "Guards are cut differently: one of ours holds all that is assumed about one object."
            )
        return said or ["No difference."]

    @property
    def picture(self) -> Picture:
        """Counts, the node lists side by side, and the differences."""
        sides, said = (self.ours, self.theirs), self.differences
        names = [side.name for side in sides]
        values = [
            map(str, (len(s.graphs), len(s.operations), s.guards, len(s.breaks), s.answer))
            for s in sides
        ]
        counts = list(zip(("graphs", "operations", "guards", "graph breaks", "result"), *values))
        body, text = [html_table(counts, ("", *names))], [columns(counts, ("", *names))]
        for number, pair in enumerate(
            itertools.zip_longest(*(s.graphs for s in sides), fillvalue=Listing()), 1
        ):
            titles = [
                f"{'no ' * (not graph.nodes)}graph {number} of {name}"
                for graph, name in zip(pair, names)
            ]
            rows = pair_up(*pair)
            cells = [f"<b>{escape(title)}</b>" for title in titles]
            paired = all(graph.nodes for graph in pair)  # else the whole graph is alone
            cells += [
                chip(*way, paired) for a, b in rows for way in ((a, "cl-us", b), (b, "cl-them", a))
            ]
            body.append(f'<div class="cl-mi cl-m">{"".join(cells)}</div>')
            text.append(columns([(a or "–", b or "–") for a, b in rows], titles))
        body.append(
            f'<ul class="cl-mi-said">{"".join(f"<li>{escape(line)}</li>" for line in said)}</ul>'
        )
        text.append("\n".join(f"• {line}" for line in said))
        caption = "One call in both compilers; %name is what a node computes. An orange edge: the other graph lacks it."
        alt = (
            "; ".join(f"{side.name}: {plural(len(side.graphs), 'graph')}" for side in sides)
            + f". {' '.join(said)}"
        )
        return Picture(
            f'<div class="cl-scroll">{"".join(body)}</div>',
            caption,
            alt,
            "\n\n".join(text),
            ("mirror",),
        )

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


def chip(text: str, who: str, partner: str, paired: bool) -> str:
    """A node, marked if the other graph lacks it; a dash where this graph lacks one."""
    kind = who if partner or not paired else f"{who} cl-alone"
    return (
        f'<span class="{kind}">{escape(text)}</span>'
        if text
        else f'<span class="cl-none">{"–" * paired}</span>'
    )


def pair_up(ours: Listing, theirs: Listing) -> list[tuple[str, str]]:
    """Inputs by where they come from; operations by name, each side in its own order, those with the same arguments first."""
    one, two = (
        {name: f"placeholder    {name}" for name in graph.inputs} for graph in (ours, theirs)
    )
    rows = [(one.get(name, ""), two.get(name, "")) for name in one | two]
    i = j = 0
    for i_next, j_next in [
        *alignment(ours.nodes, theirs.nodes),
        (len(ours.nodes), len(theirs.nodes)),
    ]:
        rows += [(text, "") for _, text in ours.nodes[i:i_next]] + [
            ("", text) for _, text in theirs.nodes[j:j_next]
        ]
        rows += [
            (a, b)
            for (_, a), (_, b) in zip(
                ours.nodes[i_next : i_next + 1], theirs.nodes[j_next : j_next + 1]
            )
        ]
        i, j = i_next + 1, j_next + 1
    return rows


def alignment(
    ours: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]
) -> list[tuple[int, int]]:
    """Which nodes stand for the same: as many of one operation as can be, among these as many with the same inputs as can be. (A
    node's own name says nothing: each compiler has its names.)"""
    called = [
        [(name, re.sub(r"%\w+", "%", text)) for name, text in nodes] for nodes in (ours, theirs)
    ]
    alike = lambda a, b: 1000 + (a[1] == b[1]) if a[0] == b[0] else 0
    best = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]  # of what follows
    for i in reversed(range(len(ours))):
        for j in reversed(range(len(theirs))):
            same = alike(called[0][i], called[1][j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], same and same + best[i + 1][j + 1])
    found, i, j = [], 0, 0
    while i < len(ours) and j < len(theirs):
        same = alike(called[0][i], called[1][j])
        if same and best[i][j] == same + best[i + 1][j + 1]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


def mirror(function: Callable[..., Any], *args: Any, train: bool = False, **kwargs: Any) -> Mirror:
    """`function(*args, **kwargs)` in eager, through course_lib and through `torch.compile`; the graphs side by side. With
    `train`, the backward of the sum of its results is run too, and gradients are compared.
    What eager raises is raised; what only one compiler raises is told. Resets `torch._dynamo` before and after."""
    import torch._dynamo as dynamo
    from torch._dynamo.utils import counters

    a_function(function, "mirror")
    ours, theirs, recording = Side("course_lib"), Side("torch.compile"), Recording()
    trial = Trial(function, args, kwargs, train)

    def keep(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        theirs.graphs.append(listing(gm, lambda node: as_ours(dynamo_source(node), function)))
        return gm.forward

    def count(guards: Any) -> list[bool]:
        theirs.guards += len(guards)
        theirs.guard_texts += [
            f"{g.guard_type} {dialect(g.name)}".rstrip() for g in guards if hasattr(g, "guard_type")
        ]
        return [True] * len(guards)

    def compare(side: Side, wrap: Callable[[Any], Any]) -> None:
        try:
            side.answer = verdict(trial.run(wrap), expected)
        except Exception as error:
            side.answer = f"raised {type(error).__name__}"

    expected = trial.run(lambda f: f)
    with events.listener(recording.events.append):
        compare(ours, lambda f: compile(f, backend="eager"))
    ours.graphs, ours.guards = (
        [listing(gm, source_of) for gm in recording.graphs],
        len(recording.guards),
    )
    ours.guard_texts = [f"{guard.kind}: {guard.expr}" for guard in recording.guards]
    # in the compiler's words, as torch's
    ours.breaks = [event.problem.reason for event in recording.of(events.GraphBroke)]
    dynamo.reset()
    counters.clear()
    compare(theirs, lambda f: torch.compile(f, backend=keep, options={"guard_filter_fn": count}))
    theirs.breaks = breaks_in(counters)
    dynamo.reset()
    return Mirror(ours, theirs, trial)


def breaks_in(counters: Mapping[str, Counter[str]]) -> list[str]:
    """What `torch._dynamo.utils.counters` tells: under "graph_break" each place where a graph ends, under "unimplemented" (too)
    what made it give up a whole frame."""
    first = lambda kind: [
        text.splitlines()[0] for text, count in counters[kind].items() for _ in range(count)
    ]
    return (breaks := first("graph_break")) + [
        reason for reason in dict.fromkeys(first("unimplemented")) if reason not in breaks
    ]


class Name(str):
    """A text that shows itself without quotes."""

    __repr__ = str.__str__


def listing(gm: fx.GraphModule, source: Callable[[fx.Node], str]) -> Listing:
    """A graph in words; inputs are called by their `source`."""
    inputs = {node.name: source(node) for node in gm.graph.nodes if node.op == "placeholder"}
    called = {node.name: f"%{node.name}" for node in gm.graph.nodes} | inputs
    said = lambda argument: str(fx.map_arg(argument, lambda node: Name(called[node.name])))
    nodes = []
    for node in gm.graph.nodes:
        arguments = ", ".join(
            [said(a) for a in node.args] + [f"{key}={said(a)}" for key, a in node.kwargs.items()]
        )
        if node.op == "output":
            nodes.append(("output", f"output         {arguments}"))
        elif node.op != "placeholder":
            nodes.append(
                (op_name(node), f"{node.op:<13}  %{node.name} = {op_name(node)}({arguments})")
            )
    return Listing(list(inputs.values()), nodes)


def dynamo_source(node: fx.Node) -> str:
    """Where a placeholder of torch's graph comes from, as the user would write it: `self.ln.weight`."""
    name = getattr(getattr(node.meta.get("grapharg"), "source", None), "name", None) or node.name
    return dialect(str(name() if callable(name) else name))


def as_ours(name: str, function: Callable[..., Any]) -> str:
    """The same input by our name. A layer of torch itself is run by torch inside `def inner(*args): return fn(*args)`, so its own
    names are `fn.0.weight` and `args[0]`; ours are `self[0].weight` and `input`."""
    if isinstance(function, torch.nn.Module):
        parameters = dict(enumerate(inspect.signature(function.forward).parameters))
        name = re.sub(r"^fn\b", "self", name)
        name = re.sub(
            r"^args\[(\d+)\]", lambda found: parameters.get(int(found[1]), found[0]), name
        )
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", name)


def dialect(name: str) -> str:
    """A path as torch writes it, as the user would: `L['self']._modules['ln']` → `self.ln`. What lay on the stack is `stack0`."""
    return re.sub(
        r"\b[LG]\['(?:___(?=stack\d))?(\w+)'\]|^___(?=stack\d)", r"\1", readable_path(name)
    )
