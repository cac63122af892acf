"""A graph with sizes that only the data says (`x[x > 0]`, `n.item()`), in pieces.

In:  a captured graph in which some nodes are marked `of_data`, and what compiles a piece.
Out: a program. It runs a marked node as eager does, for nothing can be compiled for a size that
     nobody knows. The operations between two such nodes are a piece, which is compiled for all
     sizes when it is first reached: by then its inputs are there, with their sizes.

So a piece is compiled as any graph with symbolic sizes is: a size of the data is one of its inputs'
sizes, and what the compiler asks about it becomes a guard of the piece. Where the guards do not
hold (a size of 0 or 1), the piece is compiled once more. Each piece is a node of its own to
autograd, and so is each operation in between.
In PyTorch: one graph with unbacked symbols (`torch/_inductor/graph.py`, `unbacked_bindings`).
"""

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from course_lib import capture, config
from course_lib.autograd.buckets import inputs_of, lives_until_written, turns_other_switch
from course_lib.autograd.partition import part
from course_lib.autograd.runtime import Program, fall_back, restoring
from course_lib.capture.facts import is_fact
from course_lib.capture.graph import STATE
from course_lib.capture.of_data import symbols_of_data
from course_lib.capture.shapes import History, Shapes
from course_lib.capture.sources import Source
from course_lib.capture.strides import stride_tests
from course_lib.capture.symbolic_numbers import SYMBOLIC
from course_lib.written import forget, quiet, traceable

CompilePiece = Callable[[fx.GraphModule, Sequence[Any]], Program]
"""(a graph whose sizes are known or symbols, this call's inputs) → a program."""
ValueOfNode = dict[fx.Node, Any]


def has_sizes_of_data(gm: fx.GraphModule) -> bool:
    """Is there a node whose result has a size that only the data says, or an input with a size that
    nobody looks at (`mark_unbacked`)?"""
    inputs = gm.graph.find_nodes(op="placeholder")
    if any(symbols_of_data(node.meta.get("val")) for node in inputs):
        return True
    operations = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    return any(node.meta.get("of_data") for node in operations)


def around_data(
    gm: fx.GraphModule,
    compile_piece: CompilePiece,
    apart: Callable[[], AbstractContextManager[None]],
) -> Program:
    """The program of the whole graph. `apart`: what a compile in the middle of a run needs.

    Raises NotImplementedError for a graph that cannot be cut."""
    steps = steps_of(gm)
    refuse_writes_across(steps)
    results = list(gm.graph.output_node().args[0])

    # A piece is compiled at the first call that reaches it: only then are its sizes there
    runs: list[Alone | Piece] = []
    for step in steps:
        if isinstance(step, Alone):
            runs.append(step)
        else:
            outputs = outputs_of(step, results)
            inputs = inputs_of(step)
            graph = part(gm, inputs, outputs, more=step)
            runs.append(Piece(inputs, outputs, graph, compile_piece, apart))

    placeholders = gm.graph.find_nodes(op="placeholder")

    def run(*args: Any) -> tuple[Any, ...]:
        values: ValueOfNode = dict(zip(placeholders, args, strict=True))
        for each in runs:
            each.run(values)
        return tuple(map(values.__getitem__, results))

    # If a node fails after another one has written to an input, the input gets its old value back.
    return restoring(run, gm)


# ---- which operations go together ----------------------------------------------------------------


@dataclass(frozen=True)
class Alone:
    """An operation that runs as it is: its result has a size of the data, or it is a number."""

    node: fx.Node

    def run(self, values: ValueOfNode) -> None:
        """Run it, and note its result."""
        node = self.node
        args = fx.node.map_arg(node.args, values.__getitem__)
        kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
        if node.op == "call_method":
            first, *others = args
            values[node] = getattr(first, str(node.target))(*others, **kwargs)
        else:
            function: Any = node.target
            values[node] = function(*args, **kwargs)


def steps_of(gm: fx.GraphModule) -> list[Any]:
    """The operations in order: `Alone`, or a list of those that make a piece.

    Numbers are computed as soon as they can be: what they are made of is no result of a piece."""
    operations = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    if any(map(turns_level, operations)):
        raise NotImplementedError("a level of torch.func, around a size that only the data says")

    numbers = [node for node in operations if is_number(node)]
    done = set(gm.graph.find_nodes(op="placeholder"))
    steps: list[Any] = []

    def run_alone(nodes: Sequence[fx.Node]) -> None:
        steps.extend(map(Alone, nodes))
        done.update(nodes)

    def run_numbers() -> None:
        for node in numbers:
            if node not in done and done.issuperset(node.all_input_nodes):
                run_alone([node])

    run_numbers()
    piece: list[fx.Node] = []

    def end_piece() -> None:
        nonlocal piece
        if piece:
            steps.append(piece)
        piece = []

    for node in operations:
        # A number is a step of its own (`run_numbers`), as soon as what it needs is there
        if is_number(node):
            continue
        if not runs_alone(node):
            piece.append(node)
            continue

        end_piece()
        run_alone([node])
        # What this operation gave may be all that a number waits for
        run_numbers()
    end_piece()

    # The results of a piece are not `done`: a number made of one would have to stand inside it
    if not done.issuperset(numbers):
        raise NotImplementedError("a size is the size of a tensor that a piece computes")
    return steps


def runs_alone(node: fx.Node) -> bool:
    """Must this operation run as it is? One that gives sizes of the data, or looks up a part of
    such a result; and a switch."""
    if node.meta.get("of_data") or node.target in STATE:
        return True

    # `x.nonzero(as_tuple=True)[0]`: a piece takes no tuples
    sources = [arg for arg in node.all_input_nodes if arg.meta.get("of_data")]
    return any(isinstance(source.meta.get("val"), (tuple, list)) for source in sources)


def is_number(node: fx.Node) -> bool:
    """Is it a number made of numbers or of a tensor's shape, or a fact about such?"""
    is_symbolic = isinstance(node.meta.get("val"), tuple(SYMBOLIC))
    is_condition = any(map(is_fact, node.users))
    return (is_symbolic or is_condition or is_fact(node)) and not node.meta.get("of_data")


def turns_level(node: fx.Node) -> bool:
    """Does it enter or leave a level of `torch.func`, or of forward-mode AD?"""
    return node.target not in STATE and turns_other_switch(node)


def refuse_writes_across(steps: Sequence[Any]) -> None:
    """Raise NotImplementedError if memory is written to in another step than the first that saw it.

    Autograd would not know of a write to a view that an earlier piece has made."""
    operations: list[fx.Node] = []
    step_of_place: list[int] = []
    for number, step in enumerate(steps):
        nodes = step
        if isinstance(step, Alone):
            nodes = [step.node]
        operations += nodes
        step_of_place += [number] * len(nodes)

    for life in lives_until_written(operations):
        if step_of_place[life.start] != step_of_place[life.stop]:
            raise NotImplementedError(
                "a tensor is written to behind an operation whose result has a size of the data"
            )


def outputs_of(piece: Sequence[fx.Node], results: Sequence[fx.Node]) -> list[fx.Node]:
    """What a piece gives: results of the whole graph, and what others use.

    Raises NotImplementedError for what is no tensor."""
    own = set(piece)
    outputs = [node for node in piece if node in results or not node.users.keys() <= own]
    if not all(isinstance(node.meta.get("val"), torch.Tensor) for node in outputs):
        raise NotImplementedError("a piece of the graph gives something else than tensors")
    return outputs


# ---- a piece -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One program of a piece, and for which inputs it is."""

    fits: Callable[[Sequence[Any]], bool]
    program: Program


class Piece:
    """The operations between two that run alone, compiled when they are reached."""

    def __init__(
        self,
        inputs: list[fx.Node],
        outputs: list[fx.Node],
        graph: fx.GraphModule,
        compile_piece: CompilePiece,
        apart: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.inputs, self.outputs, self.graph = inputs, outputs, graph
        self.compile_piece, self.apart = compile_piece, apart
        self.entries: list[Entry] = []

    def run(self, values: ValueOfNode) -> None:
        """Run the piece, and note its results."""
        args = [values[node] for node in self.inputs]
        values.update(zip(self.outputs, self.program_for(args)(*args), strict=True))

    def program_for(self, args: Sequence[Any]) -> Program:
        """The program whose guards hold for these inputs; a new one if there is none."""
        for entry in self.entries:
            if entry.fits(args):
                return entry.program

        # Sizes that differ in each call would be compiled for in each call
        if len(self.entries) >= config.sizes_limit:
            why = f"it met more than {config.sizes_limit} sets of sizes"
            return fall_back(self.graph, why)

        # The whole graph is running: hooks and modes of the run are not those of a compile
        with self.apart(), capture.recording_mode():
            entry = self.compiled(args)
        self.entries.append(entry)
        return entry.program

    def compiled(self, args: Sequence[Any]) -> Entry:
        """Compile the piece for these inputs, and all that are like them."""
        shapes = Shapes(self.history(args))
        sources = [Source(f"inputs[{n}]") for n in range(len(args))]
        fakes = [self.fake(shapes, arg, at) for arg, at in zip(args, sources, strict=True)]
        graph = with_fakes(self.graph, shapes, fakes)
        try:
            program = self.compile_piece(graph, args)
        except Exception as problem:
            # It runs as in eager, which raises what there is to raise.
            program = fall_back(self.graph, f"{type(problem).__name__}: {problem}")
        return Entry(Fits(shapes, args, fakes), program)

    def history(self, args: Sequence[Any]) -> History:
        """Sizes that are symbols in the whole graph are symbols here; the others are numbers."""
        history = History(looks_at_all=True)
        for n, (node, arg) in enumerate(zip(self.inputs, args, strict=True)):
            value = node.meta["val"]
            # To a history a number is a shape with one size
            sizes = (value,)
            if isinstance(arg, torch.Tensor):
                sizes = value.shape
            for dim, size in enumerate(sizes):
                if type(size) in SYMBOLIC:
                    history.changed.add((f"inputs[{n}]", dim))
        return history

    @staticmethod
    def fake(shapes: Shapes, value: Any, source: Source) -> Any:
        """What stands for an input while the piece is compiled."""
        if type(value) in (int, float):
            return shapes.number(value, source)
        if not isinstance(value, torch.Tensor):
            return value
        if value.is_leaf:
            return shapes.fake(value, source)

        # A fake with a gradient and no history is enough: to autograd the piece is one node.
        return shapes.fake(value.detach(), source).requires_grad_(value.requires_grad)


def with_fakes(gm: fx.GraphModule, shapes: Shapes, fakes: Sequence[Any]) -> fx.GraphModule:
    """The graph with what each node gives for these inputs."""
    graph = copy.deepcopy(gm)
    interpreter = fx.Interpreter(graph, garbage_collect_values=False)
    # As capture itself runs operations on fakes (`GraphBuilder.fake_world`)
    with (
        quiet(),
        torch._C.DisableTorchFunction(),
        torch._C._EnablePythonDispatcher(),
        shapes.mode,
    ):
        interpreter.run(*fakes)
    for node, value in interpreter.env.items():
        node.meta["val"] = value

    # An input that is neither a tensor nor a symbol is a constant of this program: its guard is
    # `Fits.forms`
    for node, fake in zip(graph.graph.find_nodes(op="placeholder"), fakes, strict=True):
        node.meta["requires_grad"] = getattr(fake, "requires_grad", False)
        if not isinstance(fake, (torch.Tensor, *SYMBOLIC)):
            node.replace_all_uses_with(fake)

    # `recompile` gives the copy another `forward`, so nobody needs the source of the first one.
    forget(type(graph))
    graph.recompile()
    return traceable(graph)


class Fits:
    """Is a program of a piece for these inputs? The guards of the piece, as one question."""

    def __init__(self, shapes: Shapes, args: Sequence[Any], fakes: Sequence[Any]) -> None:
        self.shapes, self.fakes = shapes, fakes
        self.forms = [form(arg, fake) for arg, fake in zip(args, fakes, strict=True)]
        self.question: Callable[[Sequence[Any]], bool] | None = None

    def __call__(self, args: Sequence[Any]) -> bool:
        # Forms first: the question may be asked only of inputs of these kinds
        is_alike = all(
            form(arg, fake) == expected
            for arg, fake, expected in zip(args, self.fakes, self.forms, strict=True)
        )
        if is_alike and self.question is None:
            self.question = self.written()
        return is_alike and self.question is not None and self.question(args)

    def written(self) -> Callable[[Sequence[Any]], bool]:
        """What was asked about symbolic sizes, as Python. (It is written at the second call: the
        compiler has asked everything by then.)"""
        conditions = [test.python("") for test in self.shapes.tests()]
        for n, fake in enumerate(self.fakes):
            if isinstance(fake, torch.Tensor):
                tests = stride_tests(self.shapes, fake)
                conditions += [test.python(f"inputs[{n}]") for test in tests]
        source = f"lambda inputs: {' and '.join(conditions) or True}"
        names = {"math": math, "is_finite": math.isfinite}
        question: Callable[[Sequence[Any]], bool] = eval(source, names)
        return question


def form(arg: Any, fake: Any) -> Any:
    """What must be the same of an input, beside its symbolic sizes."""
    # Its value is free; what was asked about it is a guard (`Fits.written`)
    if type(fake) in SYMBOLIC:
        return type(arg)
    if not isinstance(arg, torch.Tensor):
        # `repr` tells 0.0 from -0.0
        return type(arg), repr(arg)

    # Sizes that are the same in each call (not strict: `arg.ndim` below tells other ranks apart)
    sizes = []
    for size, size_of_fake in zip(arg.shape, fake.shape, strict=False):
        if type(size_of_fake) is int:
            sizes.append(size)

    # Strides beside symbolic sizes are symbols, too: `Fits.written` asks for them
    strides: list[int] = []
    if not any_symbol(fake.shape):
        strides = list(arg.stride())
    records = torch.is_grad_enabled() and arg.requires_grad
    return (arg.ndim, sizes, strides, arg.dtype, arg.device, records)


def any_symbol(sizes: Sequence[Any]) -> bool:
    return any(type(size) is torch.SymInt for size in sizes)
