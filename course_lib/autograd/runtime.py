"""Compiled graphs as a part of the program: writes to inputs, and a node in autograd's graph.
In PyTorch: `torch/_functorch/_aot_autograd/runtime_wrappers.py` (`AOTDispatchAutograd.post_compile`, `RuntimeWrapper`).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from course_lib import events
from course_lib.autograd.absent import absent, without
from course_lib.autograd.again import Again
from course_lib.autograd.partition import Partition
from course_lib.autograd.signature import Result, Signature, restride, write
from course_lib.failing import may_fail

TWICE = "this compiled graph cannot be differentiated twice ({}): compute this gradient in eager, or leave its part out (cl.disable)"
OP_BY_OP = "the graph runs operation by operation"
Program = Callable[..., tuple[Any, ...]]


def op_by_op(gm: fx.GraphModule) -> Program:
    """The captured graph, run as it is."""
    return restoring(gm.forward, gm)


def restoring(program: Program, gm: fx.GraphModule) -> Program:
    """A program that may write to inputs as it goes. If it fails after that, they get back what they held: the head lets eager
    run the frame from its start."""
    nodes = list(gm.graph.nodes)
    written = [n for n, x in enumerate(gm.graph.find_nodes(op="placeholder")) if is_written(x)]
    if not written or not any(map(may_fail, nodes)):
        return program

    def run(*inputs: Any) -> tuple[Any, ...]:
        before = [(x := inputs[n], x.detach().clone()) for n in written]
        try:
            return program(*inputs)
        except Exception:
            for x, old in before:
                with torch.inference_mode(x.is_inference()), torch.no_grad():
                    x.data.copy_(old)
            raise

    return run


def is_written(placeholder: fx.Node) -> bool:
    """Does an operation of the graph write to this input?"""
    val = placeholder.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return False
    # running statistics, and what `x.data` is for, count no version
    quiet = any(
        getattr(user.target, "__name__", "") in ("batch_norm", "instance_norm")
        or (user.target is getattr and user.args[1] == "data")
        for user in placeholder.users
    )
    return quiet or val.is_inference() or val._version > 0


def finished(
    graph: Program, signature: Signature, original: Program, shown: Sequence[int] | None = None
) -> Program:
    """The captured graph's results; by `original` if a written input overlaps another. `shown`: the values that it returns."""
    if not signature.updates and list(signature.results) == [
        Result(n) for n in range(len(signature.differentiable))
    ]:
        return graph  # the values are the results, one after the other
    loud = [update for update in signature.updates if shown is None or update.index in shown]

    def run(*inputs: Any) -> tuple[Any, ...]:
        if signature.updates and overlaps(inputs, signature):
            events.emit(
                events.FellBack(OP_BY_OP, "an input that is written to shares memory with another")
            )
            return original(*inputs)
        values: Any = (
            graph(*inputs) if shown is None else dict(zip(shown, graph(*inputs), strict=True))
        )
        write(loud, inputs, values)
        return tuple(result.made_of(inputs, values) for result in signature.results)

    return run


def differentiable(
    forward: Program,
    backward: Program,
    signature: Signature,
    parts: Partition,
    original: Program,
    compile_graph: Callable[[fx.GraphModule], Program] | None = None,
    captured: fx.GraphModule | None = None,
) -> Program:
    """The captured graph's results with gradients. `forward` and `backward` are the two graphs of `parts`, compiled;
    `compile_graph` compiles the backward graph for calls after which some results are not used. (Without it: zeros for them.)
    `captured` runs again where backward is to be as in eager (`again.py`). Without it gradients have no gradients."""
    told = {r.index for r in signature.results if not r.of_input}
    quiet = [
        u
        for u in signature.updates
        if u.seen_by != "autograd" and u.index not in told and u.input not in parts.places
    ]
    # each costs autograd some time
    shown = sorted({*range(len(signature.differentiable))}.difference(u.index for u in quiet))
    has_gradient = [signature.differentiable[n] for n in shown]
    gradients_of = Gradients(backward, parts, signature, compile_graph)
    again = Again(captured, signature, parts) if captured else None

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
            numbers = again and again.random()
            results = forward(*inputs)
            ctx.save_for_backward(*map((*inputs, *results).__getitem__, parts.places))
            write(quiet, inputs, results)
            # no view made in here
            values = [v.detach() if isinstance(v := results[n], torch.Tensor) else v for n in shown]
            constant = (
                v
                for v, yes in zip(values, has_gradient, strict=True)
                if isinstance(v, torch.Tensor) and not yes
            )
            ctx.mark_non_differentiable(*constant)
            ctx.inputs = len(inputs)
            noted = dict(zip(shown, values, strict=True))
            ctx.noted = again and again.note(inputs, noted, numbers)
            ctx.set_materialize_grads(False)
            return tuple(values)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            wanted = [*itertools.compress(gradients, has_gradient)]
            # nothing of it was used: parameters have no gradient, not one of zeros
            if wanted and all(g is None for g in wanted):
                return (None,) * ctx.inputs
            given = {n: g for n, g in zip(shown, gradients, strict=True) if g is not None}
            asked = [*itertools.compress(range(ctx.inputs), ctx.needs_input_grad)]

            why_not = "nobody kept its captured graph"
            if again is not None:
                if ctx.noted.changed():
                    again.refuse_as_eager(ctx.noted, given, asked)
                if again.is_wanted():
                    inputs, why_not = again.inputs_of(ctx.noted, ctx.saved_tensors)
                    if not why_not:
                        found = again.gradients(ctx.noted, inputs, given, asked)
                        return tuple(map(found.get, range(ctx.inputs)))

            with torch.no_grad(), torch._C._DisableAutocast():
                found = gradients_of(ctx.saved_tensors, wanted)
            if torch.is_grad_enabled() and found:
                found = once_only(found, [*ctx.saved_tensors, *wanted], why_not)
            return tuple(map(found.get, range(ctx.inputs)))

    # the graph turns it on itself
    apply = Forward.apply if torch.is_grad_enabled() else torch.enable_grad()(Forward.apply)
    apply = without_history(apply, signature.unconnected)
    compiled = finished(apply, signature, original, shown if quiet else None)

    def run(*inputs: Any) -> tuple[Any, ...]:
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
            return compiled(*inputs)
        events.emit(
            events.FellBack(
                OP_BY_OP, "hooks for saved tensors (`checkpoint` has some) expect what eager saves"
            )
        )
        return original(*inputs)

    return run


def once_only(found: dict[int, Any], known: Sequence[Any], why_not: str) -> dict[int, Any]:
    """The gradients `found`, which were computed from `known`. To differentiate them raises an error."""
    # where none is `known`, `backward()` still raises
    tied = [t for t in known if t is not None and t.requires_grad] or [
        next(iter(found.values())).detach().requires_grad_()
    ]
    message = TWICE.format(why_not).encode()
    refuse = torch._C._functions.DelayedError(message, len(found) + len(tied))
    return dict(zip(found, refuse(*found.values(), *tied), strict=False))


def without_history(program: Program, unconnected: Sequence[int]) -> Program:
    """`program`, which is not told where these inputs come from. No gradient flows to them, so the graph behind them is none of
    its business: it may be freed already, and to stay tied to it would keep every earlier step of a loop alive."""
    if not unconnected:
        return program

    def run(*inputs: Any) -> tuple[Any, ...]:
        cut = list(inputs)
        for n in unconnected:
            cut[n] = inputs[n].detach()
        return program(*cut)

    return run


class Gradients:
    """The gradients of inputs, by one of several backward graphs: which depends on what results were used."""

    def __init__(
        self,
        backward: Program,
        parts: Partition,
        signature: Signature,
        compile_graph: Callable[[fx.GraphModule], Program] | None,
    ) -> None:
        self.backward, self.parts, self.signature = backward, parts, signature
        self.compile_graph = compile_graph

        placeholders = parts.backward.graph.find_nodes(op="placeholder")
        self.tangents = placeholders[len(parts.saved) :]
        self.like = [node.meta["val"] for node in self.tangents]
        # Which tangents there are → the program for these, and the inputs of whose gradients it gives
        self.programs: dict[tuple[bool, ...], tuple[Program, list[int]]] = {}

    def __call__(self, saved: Sequence[torch.Tensor], given: Sequence[Any]) -> dict[int, Any]:
        """The gradients by the number of the input. `given`: those of the results, None for one that was not used."""
        filled = [
            zeros(like) if g is None else restride(g, like)
            for g, like in zip(given, self.like, strict=True)
        ]
        present = tuple(g is not None for g in given)
        if all(present) or not self.signature.reached:
            return dict(zip(self.signature.gradients, self.backward(*saved, *filled), strict=True))

        if present not in self.programs:
            self.programs[present] = self.program_for(present)
        program, inputs = self.programs[present]
        found = dict(zip(inputs, program(*saved, *filled), strict=True))

        # in eager, autograd gets to no other input
        reached = set().union(*itertools.compress(self.signature.reached, present))
        shapes = self.parts.backward.graph.output_node().args[0]
        by_input = dict(zip(self.signature.gradients, shapes, strict=True))
        return {n: found[n] if n in found else zeros(by_input[n].meta["val"]) for n in reached}

    def program_for(self, present: tuple[bool, ...]) -> tuple[Program, list[int]]:
        """What computes the gradients if only these tangents are there."""
        graph, inputs = self.parts.backward, list(self.signature.gradients)
        missing = [node for node, there in zip(self.tangents, present, strict=True) if not there]
        lost = absent(graph.graph, self.tangents, missing)
        if lost.zeros_do or self.compile_graph is None:
            return self.backward, inputs

        results = graph.graph.output_node().args[0]
        left = [n for n, node in zip(inputs, results, strict=True) if node not in lost.nodes]
        return self.compile_graph(without(graph, lost.nodes)), left


def zeros(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)


def overlaps(inputs: Sequence[Any], signature: Signature) -> bool:
    """Does an input that is written to share memory with another?"""
    where = lambda tensors: map(
        torch.UntypedStorage.data_ptr, map(torch.Tensor.untyped_storage, tensors)
    )
    count = Counter(where(x for x in inputs if isinstance(x, torch.Tensor)))
    return any(
        count[address] > 1
        for address in where(inputs[update.input] for update in signature.updates)
    )
