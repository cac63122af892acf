"""Compiled graphs as a part of the program: writes to inputs, and a node in autograd's graph.
In PyTorch: `torch/_functorch/_aot_autograd/runtime_wrappers.py` (`AOTDispatchAutograd.post_compile`, `RuntimeWrapper`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib import events
from course_lib.autograd.partition import Partition
from course_lib.autograd.signature import Result, Signature, restride

TWICE = b"a compiled graph cannot be differentiated twice: compute this gradient in eager, or leave its part out (cl.disable)"
OP_BY_OP = "the graph runs operation by operation"
Program = Callable[..., tuple[Any, ...]]


def finished(graph: Program, signature: Signature, original: Program) -> Program:
    """The captured graph's results, by a compiled forward graph; by `original` if a written input overlaps another."""
    if not signature.updates and list(signature.results) == [Result(n) for n in range(len(signature.results))]:
        return graph  # the values are the results, one after the other

    def run(*inputs: Any) -> tuple[Any, ...]:
        if signature.updates and overlaps(inputs, signature):
            events.emit(events.FellBack(OP_BY_OP, "an input that is written to shares memory with another"))
            return original(*inputs)
        return signature.finish(inputs, graph(*inputs))

    return run


def differentiable(forward: Program, backward: Program, signature: Signature, parts: Partition, original: Program) -> Program:
    """The captured graph's results with gradients. `forward` and `backward` are the two graphs of `parts`, compiled."""
    count = len(signature.differentiable)
    tangents = [n.meta["val"] for n in parts.backward.graph.find_nodes(op="placeholder")[len(parts.saved) :]]

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
            results = forward(*inputs)
            ctx.save_for_backward(*map((*inputs, *results).__getitem__, parts.places))
            values = tuple(v.detach() if isinstance(v, torch.Tensor) else v for v in results[:count])  # no view made in here
            told = zip(values, signature.differentiable, strict=True)
            ctx.mark_non_differentiable(*(v for v, yes in told if isinstance(v, torch.Tensor) and not yes))
            ctx.inputs = len(inputs)
            ctx.set_materialize_grads(False)
            return values

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            wanted = [g for g, yes in zip(gradients, signature.differentiable, strict=True) if yes]
            if wanted and all(g is None for g in wanted):  # nothing of it was used: parameters have no gradient, not one of zeros
                return (None,) * ctx.inputs
            zeros = lambda like: torch.zeros(like.shape, dtype=like.dtype, device=like.device)
            wanted = [zeros(like) if g is None else g for g, like in zip(wanted, tangents, strict=True)]
            with torch.no_grad(), torch._C._DisableAutocast():
                found = backward(*ctx.saved_tensors, *map(restride, wanted, tangents))
            if torch.is_grad_enabled() and found:  # where `known` is empty, `backward()` still raises
                known = [t for t in (*ctx.saved_tensors, *wanted) if t.requires_grad] or [found[0].detach().requires_grad_()]
                found = torch._C._functions.DelayedError(TWICE, len(found) + len(known))(*found, *known)[: len(found)]
            by_input = dict(zip(signature.gradients, found, strict=True))
            return tuple(map(by_input.get, range(ctx.inputs)))

    apply = Forward.apply if torch.is_grad_enabled() else torch.enable_grad()(Forward.apply)  # the graph turns it on itself
    compiled = finished(apply, signature, original)

    def run(*inputs: Any) -> tuple[Any, ...]:
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
            return compiled(*inputs)
        events.emit(events.FellBack(OP_BY_OP, "hooks for saved tensors (`checkpoint` has some) expect what eager saves"))
        return original(*inputs)

    return run


def overlaps(inputs: Sequence[Any], signature: Signature) -> bool:
    """Does an input that is written to share memory with another?"""
    memory = [x.untyped_storage().data_ptr() if isinstance(x, torch.Tensor) else None for x in inputs]
    count = Counter(memory)
    return any(count[memory[update.input]] > 1 for update in signature.updates)
