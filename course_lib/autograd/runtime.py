"""Compiled graphs as a part of the program: writes to inputs, and a node in autograd's graph.
In PyTorch: `torch/_functorch/_aot_autograd/runtime_wrappers.py` (`AOTDispatchAutograd.post_compile`, `RuntimeWrapper`).
"""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib import events
from course_lib.autograd.partition import Partition
from course_lib.autograd.signature import Result, Signature, restride, write

TWICE = b"a compiled graph cannot be differentiated twice: compute this gradient in eager, or leave its part out (cl.disable)"
OP_BY_OP = "the graph runs operation by operation"
Program = Callable[..., tuple[Any, ...]]


def finished(
    graph: Program, signature: Signature, original: Program, shown: Sequence[int] | None = None
) -> Program:
    """The captured graph's results; by `original` if a written input overlaps another. `shown`: the values that it returns."""
    if not signature.updates and list(signature.results) == [
        Result(n) for n in range(len(signature.results))
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
    forward: Program, backward: Program, signature: Signature, parts: Partition, original: Program
) -> Program:
    """The captured graph's results with gradients. `forward` and `backward` are the two graphs of `parts`, compiled."""
    told = {r.index for r in signature.results if not r.of_input}
    quiet = [
        u
        for u in signature.updates
        if u.seen_by != "autograd" and u.index not in told and u.input not in parts.places
    ]
    # each costs autograd some time
    shown = sorted({*range(len(signature.differentiable))}.difference(u.index for u in quiet))
    has_gradient = [signature.differentiable[n] for n in shown]
    tangents = [
        n.meta["val"] for n in parts.backward.graph.find_nodes(op="placeholder")[len(parts.saved) :]
    ]

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
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
            ctx.set_materialize_grads(False)
            return tuple(values)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            wanted = [*itertools.compress(gradients, has_gradient)]
            # nothing of it was used: parameters have no gradient, not one of zeros
            if wanted and all(g is None for g in wanted):
                return (None,) * ctx.inputs
            zeros = lambda like: torch.zeros(like.shape, dtype=like.dtype, device=like.device)
            wanted = [
                zeros(like) if g is None else g for g, like in zip(wanted, tangents, strict=True)
            ]
            with torch.no_grad(), torch._C._DisableAutocast():
                found = backward(*ctx.saved_tensors, *map(restride, wanted, tangents))
            # where `known` is empty, `backward()` still raises
            if torch.is_grad_enabled() and found:
                known = [t for t in (*ctx.saved_tensors, *wanted) if t.requires_grad] or [
                    found[0].detach().requires_grad_()
                ]
                found = torch._C._functions.DelayedError(TWICE, len(found) + len(known))(
                    *found, *known
                )[: len(found)]
            by_input = dict(zip(signature.gradients, found, strict=True))
            return tuple(map(by_input.get, range(ctx.inputs)))

    # the graph turns it on itself
    apply = Forward.apply if torch.is_grad_enabled() else torch.enable_grad()(Forward.apply)
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
