"""Compiled graphs as a part of the program: writes to inputs, and a node in autograd's graph.

In:  the compiled halves of a graph, and its `Signature`.
Out: a function of the captured graph's inputs that gives its results, with gradients
(`differentiable`) or without (`finished`).
In PyTorch: `torch/_functorch/_aot_autograd/runtime_wrappers.py`
(`AOTDispatchAutograd.post_compile`, `RuntimeWrapper`).
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from course_lib import events
from course_lib.autograd.again import Again
from course_lib.autograd.gradients import Gradients, Program, once_only
from course_lib.autograd.partition import Partition
from course_lib.autograd.result_hooks import CANNOT, Watched, hooks_by_value, keep_hooks, watched
from course_lib.autograd.signature import Result, Signature, Update, made_of, results_in_call, write
from course_lib.failing import may_fail

OP_BY_OP = "the graph runs operation by operation"
HOOKS = "hooks for saved tensors (`checkpoint` has some) expect what eager saves"
WRITTEN = (
    "The compiled graph computes its gradients from this tensor, where eager has kept another value. Call `backward()` before the"
    " write, write to a copy (`x = x + 1`), or leave this part out of the graph (cl.disable)."
)


def op_by_op(gm: fx.GraphModule) -> Program:
    """The captured graph, run as it is."""
    return restoring(gm.forward, gm)


def fall_back(gm: fx.GraphModule, why: str, warn: bool = False) -> Program:
    """Run the captured graph operation by operation, and say why."""
    events.emit(events.FellBack(OP_BY_OP, why))
    if warn:
        warnings.warn(why, stacklevel=2)
    return op_by_op(gm)


def restoring(program: Program, gm: fx.GraphModule) -> Program:
    """A program that may write to inputs as it goes.

    If it fails after a write, the inputs get their old values back, because eager then runs the
    frame from its start.
    """
    nodes = list(gm.graph.nodes)
    written_inputs = [
        n for n, x in enumerate(gm.graph.find_nodes(op="placeholder")) if is_written(x)
    ]
    if not written_inputs or not any(map(may_fail, nodes)):
        return program

    def run(*inputs: Any) -> tuple[Any, ...]:
        states_before = []
        for n in written_inputs:
            tensor = inputs[n]
            # The program may give the tensor other memory, so both are kept: the memory and a copy
            # of the values.
            states_before.append((tensor, tensor.data, tensor.detach().clone()))
        try:
            return program(*inputs)
        except Exception:
            for x, memory, old in states_before:
                with torch.inference_mode(x.is_inference()), torch.no_grad():
                    if x.data_ptr() != memory.data_ptr():
                        x.data = memory
                    x.data.copy_(old)
            raise

    return run


def is_written(placeholder: fx.Node) -> bool:
    """Does an operation of the graph write to this input?"""
    val = placeholder.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return False
    # Writes that raise no version: to running statistics of a norm, to `x.data`, and
    # `x.data = ...` (`set_data`)
    writes_unseen = any(
        getattr(user.target, "__name__", "") in ("batch_norm", "instance_norm", "set_data")
        or (user.target is getattr and user.args[1] == "data")
        for user in placeholder.users
    )
    # Tensors of inference mode have no version, so each may have been written to
    return writes_unseen or val.is_inference() or val._version > 0


def finished(
    graph: Program, signature: Signature, original: Program, shown: Sequence[int] | None = None
) -> Program:
    """The captured graph's results; by `original` if a written input overlaps another.

    `shown`: the numbers of the values that `graph` returns; None: it returns all."""
    if not signature.updates and list(signature.results) == [
        Result(n) for n in range(len(signature.differentiable))
    ]:
        return graph  # the values are the results, one after the other
    results_of = results_in_call(signature.results)
    # The writes that are done here. The graph's node does those of values that it does not show.
    to_write = [update for update in signature.updates if shown is None or update.index in shown]

    def run(*inputs: Any) -> tuple[Any, ...]:
        if signature.updates and overlaps(inputs, signature):
            events.emit(
                events.FellBack(OP_BY_OP, "an input that is written to shares memory with another")
            )
            return original(*inputs)
        values: Any = (
            graph(*inputs) if shown is None else dict(zip(shown, graph(*inputs), strict=True))
        )
        write(to_write, inputs, values)
        return tuple(made_of(result, inputs, values) for result in results_of(inputs))

    return run


@dataclass(frozen=True)
class Shown:
    """Which of a graph's values its node gives to autograd. Each costs autograd some time."""

    numbers: tuple[int, ...]  # Of the values
    has_gradient: tuple[bool, ...]  # For each of them
    quiet: tuple[Update, ...]  # Writes to inputs that the node does itself, unseen


def shown_values(signature: Signature, parts: Partition) -> Shown:
    """All values, but those that only go into an input by a write that autograd does not see.

    If the input is saved for backward, its value is shown: autograd notes the version of a saved
    tensor when the node's `forward` has ended, so it would not notice a write in there."""
    returned = {result.index for result in signature.results if not result.of_input}
    quiet = tuple(
        update
        for update in signature.updates
        if update.seen_by != "autograd"
        and update.index not in returned
        and update.input not in parts.places
    )
    hidden = {update.index for update in quiet}
    numbers = tuple(n for n in range(len(signature.differentiable)) if n not in hidden)
    return Shown(numbers, tuple(signature.differentiable[n] for n in numbers), quiet)


@dataclass
class GraphNode:
    """What autograd's node of a compiled graph does, forward and backward.

    `ctx` is the node of one call."""

    forward_program: Program
    gradients_of: Gradients
    shown_values: Shown
    parts: Partition
    inner: tuple[int, ...]  # The values from which other values are computed
    # How backward runs the captured graph again, where eager's rules ask for it
    replay: Again | None

    def forward(self, ctx: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run the graph, save what backward needs, and do those writes to inputs that autograd does
        not see."""
        replay, shown, sizes = self.replay, self.shown_values, self.parts.sizes
        ctx.sizes = () if sizes is None else sizes.values(inputs)
        # Asked before the graph draws numbers
        random = replay and replay.random()
        results = self.forward_program(*inputs)

        inputs_and_results = (*inputs, *results)
        ctx.save_for_backward(*(inputs_and_results[place] for place in self.parts.places))
        write(shown.quiet, inputs, results)

        values = []
        without_gradient = []
        for n, has_gradient in zip(shown.numbers, shown.has_gradient, strict=True):
            value = results[n]
            if isinstance(value, torch.Tensor):
                # Autograd takes no view that was made in here.
                value = value.detach()
                if not has_gradient:
                    without_gradient.append(value)
            values.append(value)
        ctx.mark_non_differentiable(*without_gradient)
        # A result that was not used shall have the gradient None, not zeros (`absent.py`).
        ctx.set_materialize_grads(False)

        ctx.inputs = len(inputs)
        if replay is not None:
            value_by_number = dict(zip(shown.numbers, values, strict=True))
            ctx.noted = replay.note(inputs, value_by_number, random, ctx.sizes)
        return tuple(values)

    def backward(self, ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradients of all inputs, None for those that have none."""
        # value → its gradient, for values that were used
        gradient_of_value = {
            n: g for n, g in zip(self.shown_values.numbers, gradients, strict=True) if g is not None
        }
        if not gradient_of_value and any(self.shown_values.has_gradient):
            # parameters get no gradient then, not one of zeros
            return (None,) * ctx.inputs

        gradient_of_input = self.gradients(ctx, gradient_of_value)
        return tuple(map(gradient_of_input.get, range(ctx.inputs)))

    def gradients(self, ctx: Any, gradient_of_value: dict[int, Any]) -> dict[int, Any]:
        """The gradients by the number of the input: by the captured graph where eager's rules ask
        for it, else by kernels."""
        if self.replay is None:
            return self.compiled(
                ctx, ctx.saved_tensors, gradient_of_value, "nobody kept its captured graph"
            )

        wanted_inputs = [*itertools.compress(range(ctx.inputs), ctx.needs_input_grad)]
        saved, why_lost = self.saved(ctx, gradient_of_value, wanted_inputs)
        watched_results = self.watched(ctx)
        must_replay = any(watched_result.value in self.inner for watched_result in watched_results)
        in_order = len(watched_results) > 1  # eager calls their hooks in the order of its own nodes

        why_not = ""
        if why_lost or must_replay or in_order or self.replay.is_wanted():
            inputs, why_not = self.replay.inputs_of(ctx.noted, saved)
            if not why_not:
                return self.replay.gradients(
                    ctx.noted, inputs, gradient_of_value, wanted_inputs, watched_results
                )
            if why_lost:
                raise RuntimeError(f"{why_lost}\n  {WRITTEN}")
            if must_replay:
                raise RuntimeError(CANNOT.format(why_not))

        # The hook of the last result first: backward goes through a program from its end
        for watched_result in reversed(watched_results):
            if watched_result.value in gradient_of_value:
                gradient_of_value[watched_result.value] = watched_result.call_hooks(
                    gradient_of_value[watched_result.value]
                )
        return self.compiled(ctx, saved, gradient_of_value, why_not)

    def saved(
        self, ctx: Any, gradient_of_value: dict[int, Any], asked: Sequence[int]
    ) -> tuple[Sequence[Any], str]:
        """What forward saved; or nothing, and autograd's words, if a tensor was written to that
        eager does not need. `asked`: the inputs whose gradients are wanted.
        Raises eager's RuntimeError if eager needs it, too."""
        assert self.replay is not None
        if ctx.noted.changed():
            self.replay.refuse_as_eager(ctx.noted, gradient_of_value, asked)
        try:
            return tuple(ctx.saved_tensors), ""
        except RuntimeError as problem:
            if "modified by an inplace operation" not in str(problem):
                raise
            # Autograd does not say which of the saved inputs was written to. Would eager refuse if
            # all were?
            try:
                self.replay.refuse_as_eager(
                    ctx.noted, gradient_of_value, asked, written=self.replay.saved
                )
            except RuntimeError:
                raise problem from None
            return (), str(problem)

    def watched(self, ctx: Any) -> list[Watched]:
        """The results of this call that have hooks, or keep their gradient."""
        if not ctx.hooked and not self.inner:
            return []
        hooks = hooks_by_value(ctx.hooked, self.shown_values.numbers)

        # For any other result autograd's own `retain_grad` is right: its whole gradient comes from
        # outside.
        may_retain = {*self.inner, *hooks}
        alive = [(n, tensor) for n, tensor in ctx.noted.alive_values() if n in may_retain]
        return watched(hooks, alive)

    def compiled(
        self, ctx: Any, saved: Sequence[Any], gradient_of_value: dict[int, Any], why_not: str
    ) -> dict[int, Any]:
        """The gradients by the compiled backward graph."""
        differentiable = itertools.compress(
            self.shown_values.numbers, self.shown_values.has_gradient
        )
        incoming = [gradient_of_value.get(n) for n in differentiable]
        with torch.no_grad(), torch._C._DisableAutocast():
            gradients = self.gradients_of(saved, incoming, ctx.sizes)
        # `create_graph=True`, and the captured graph cannot run again: what is differentiated once
        # more raises, and says why
        if torch.is_grad_enabled() and gradients:
            return once_only(gradients, [*saved, *incoming], why_not)
        return gradients

    def function(self) -> type[torch.autograd.Function]:
        """The node as a function that autograd knows."""
        node = self

        class Forward(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
                return node.forward(ctx, inputs)

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
                return node.backward(ctx, gradients)

        # `_backward_cls` is the class of `ctx`. `hooked`: the hooks that `keep_hooks` keeps.
        made: Any = Forward
        made._backward_cls.hooked = ()
        if self.replay is not None:
            made._backward_cls._register_hook_dict = keep_hooks
        return Forward


def differentiable(
    forward: Program,
    backward: Program,
    signature: Signature,
    parts: Partition,
    original: Program,
    compile_graph: Callable[[fx.GraphModule], Program] | None = None,
    captured: fx.GraphModule | None = None,
) -> Program:
    """The captured graph's results with gradients.

    forward, backward: the two graphs of `parts`, compiled.
    compile_graph: compiles the backward graph for calls of which some results are not used. None:
    their gradients are zeros.
    captured: the graph that runs again where backward must run as in eager (`again.py`). None:
    gradients have no gradients."""
    shown = shown_values(signature, parts)
    node = GraphNode(
        forward,
        Gradients(backward, parts, signature, compile_graph),
        shown,
        parts,
        signature.inner,
        Again(captured, signature, parts) if captured else None,
    )

    apply: Any = node.function().apply
    if not torch.is_grad_enabled():
        # The call was made under `no_grad`, and the graph has gradients all the same: it turns them
        # on itself.
        apply = torch.enable_grad()(apply)
    apply = without_history(apply, signature.unconnected)
    compiled = finished(apply, signature, original, shown.numbers if shown.quiet else None)

    def run(*inputs: Any) -> tuple[Any, ...]:
        if hooks_for_saved_tensors():
            events.emit(events.FellBack(OP_BY_OP, HOOKS))
            return original(*inputs)
        return compiled(*inputs)

    return run


def with_numbers_for_sizes(graph: fx.GraphModule, known: Any) -> Program:
    """A traced graph run operation by operation, with the numbers of a call in the place of its
    symbolic sizes.
    Raises NeedsNumbers where no input says how large one is."""
    sizes_here = known.found_in(
        [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    )
    formulas = formulas_in(graph.graph)
    numbers_of = sizes_here.function(tuple(map(known.of, formulas.values())))

    class Interpreter(fx.Interpreter):
        # The text of a formula → its number in this call
        numbers: Mapping[str, Any] = {}

        def fetch_args_kwargs_from_env(self, n: fx.Node) -> Any:
            arguments = super().fetch_args_kwargs_from_env(n)
            return fx.node.map_aggregate(arguments, self.number)

        def number(self, value: Any) -> Any:
            """A symbolic size in this call; any other argument itself."""
            is_formula = isinstance(value, (torch.SymInt, torch.SymFloat))
            return self.numbers[str(value)] if is_formula else value

    def run(*args: Any) -> tuple[Any, ...]:
        interpreter = Interpreter(graph)
        interpreter.numbers = dict(zip(formulas, numbers_of(args), strict=True))
        with torch.no_grad():
            return tuple(interpreter.run(*args))

    return run


def formulas_in(graph: fx.Graph) -> dict[str, Any]:
    """Every symbolic size among the arguments of a graph's operations, by its text."""
    formula_by_text: dict[str, Any] = {}

    def note(value: Any) -> Any:
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            formula_by_text[str(value)] = value
        return value

    for node in graph.nodes:
        fx.node.map_aggregate((node.args, node.kwargs), note)
    return formula_by_text


def hooks_for_saved_tensors() -> bool:
    """Is somebody asked what to save for backward (`saved_tensors_hooks`)?"""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def without_history(program: Program, unconnected: Sequence[int]) -> Program:
    """`program` with the inputs `unconnected` cut off from autograd's graph.

    No gradient flows to them.

    The graph behind them may be freed already. And if the program held it, each step of a loop
    would keep all earlier ones alive.
    """
    if not unconnected:
        return program

    def run(*inputs: Any) -> tuple[Any, ...]:
        cut = list(inputs)
        for n in unconnected:
            cut[n] = inputs[n].detach()
        return program(*cut)

    return run


def overlaps(inputs: Sequence[Any], signature: Signature) -> bool:
    """Does an input that is written to share memory with another?"""
    # The quick answer, for nearly all calls: each tensor has memory of its own
    addresses = [address(x) for x in inputs if isinstance(x, torch.Tensor)]
    if len(set(addresses)) == len(addresses):
        return False
    inputs_at = Counter(addresses)
    return any(inputs_at[address(inputs[update.input])] > 1 for update in signature.updates)


def address(tensor: torch.Tensor) -> int:
    """Where its memory begins."""
    return tensor.untyped_storage().data_ptr()
