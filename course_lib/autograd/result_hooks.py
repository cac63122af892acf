"""Hooks that a program puts on results of a compiled graph (`t.register_hook`, `t.retain_grad`).

In:  the hooks of a call's results, and the gradients that came for these results from outside of
     the graph.
Out: the same hooks, called as in eager.

For autograd a compiled graph is one node. Autograd knows the part of a result's gradient that comes
from outside of the graph. If another result is computed from this one (an *inner* result), the
other part comes from inside, where nobody sees it. And if no gradient comes from outside, autograd
would call the hook with None. So the node keeps the hooks itself: `keep_hooks` stands in for the
method that `Tensor.register_hook` calls. In backward there are two ways:

- A hook on a result that is not inner gets the gradient from outside (`Watched.call_hooks`), or is
  not called.
- Else the captured graph runs again, operation by operation, with the hooks where they belong
  (`again.py`).

In PyTorch: `torch/csrc/autograd/python_hook.cpp` (`PyFunctionTensorPreHook`). A function of
`torch.compile` calls such hooks with the gradient from outside, or with None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

GradientHook = Callable[[torch.Tensor], torch.Tensor | None]
CANNOT = (
    "a hook on a result of a compiled graph (`register_hook`, `retain_grad`) needs the gradients inside of the graph, and the graph"
    " cannot run again: {}. Put the hook on the tensor inside of the function, or leave this part out of the graph (cl.disable)"
)


@dataclass(frozen=True)
class Kept:
    """The hooks of one result.

    The dict is the tensor's own: what is removed from it is gone here, too."""

    place: int  # Of the result, among those that the node returns
    hooks: dict[int, GradientHook]


@dataclass
class Watched:
    """A result whose gradient somebody wants to see."""

    value: int  # Its number among the graph's values
    hooks: list[GradientHook] = field(default_factory=list)
    retaining: torch.Tensor | None = None  # The result itself, if it keeps its gradient

    def watch(self, replayed: torch.Tensor, outside: torch.Tensor | None) -> None:
        """Put the hooks on the result of the captured graph that runs again.

        `outside`: the gradient that autograd knew."""
        for hook in self.hooks:
            replayed.register_hook(hook)
        if self.retaining is not None:
            replayed.register_hook(lambda whole: self.retain(whole, outside))

    def call_hooks(self, outside: torch.Tensor) -> torch.Tensor:
        """The gradient after the hooks, if all of it comes from outside.

        Raises autograd's error if a hook gives no gradient."""
        gradient = outside
        for hook in self.hooks:
            answer = hook(gradient)
            if answer is not None:
                gradient = checked(answer, gradient, hook)
        if self.retaining is not None and gradient is not outside:
            self.retain(gradient, outside)
        return gradient

    def retain(self, whole: torch.Tensor, outside: torch.Tensor | None) -> None:
        """`retain_grad` sees what the hooks gave.

        Autograd has kept the gradient from outside; the difference is added."""
        tensor = self.retaining
        assert tensor is not None
        rest = whole
        if outside is not None:
            rest = whole - outside

        if tensor.grad is None:
            tensor.grad = rest.clone()
        else:
            tensor.grad = tensor.grad + rest


def checked(answer: Any, gradient: torch.Tensor, hook: GradientHook) -> torch.Tensor:
    """What a hook gave in place of a gradient."""
    name = getattr(hook, "__name__", "<unknown>")
    if not isinstance(answer, torch.Tensor):
        raise TypeError(f"expected Variable, but hook '{name}' returned {type(answer).__name__}")
    if answer.shape != gradient.shape:
        raise RuntimeError(f"hook '{name}' has changed the size of value")
    if answer.dtype != gradient.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value")
    return answer


def keep_hooks(ctx: Any, tensor: torch.Tensor) -> None:
    """Autograd calls this in place of a node's `_register_hook_dict`, when a result of the node
    (`tensor`) gets its first hook."""
    hooks: Any = tensor._backward_hooks
    ctx.hooked = (*ctx.hooked, Kept(tensor.output_nr, hooks))


def hooks_by_value(hooked: Sequence[Kept], numbers: Sequence[int]) -> dict[int, list[GradientHook]]:
    """Value → its hooks, in order. `numbers`: the value behind each place of the node."""
    hooks_of: dict[int, list[GradientHook]] = {}
    for kept in hooked:
        # Empty: all of them were removed again
        if kept.hooks:
            value = numbers[kept.place]
            hooks_of.setdefault(value, []).extend(kept.hooks.values())
    return hooks_of


def watched(
    hooked: dict[int, list[GradientHook]], results: Iterable[tuple[int, torch.Tensor]]
) -> list[Watched]:
    """The results that are looked at.

    `results`: those that are alive, some of which may keep their gradient."""
    watched_by_value = {value: Watched(value, hooks) for value, hooks in hooked.items()}
    for value, tensor in results:
        if tensor.retains_grad:
            watched_by_value.setdefault(value, Watched(value)).retaining = tensor
    return list(watched_by_value.values())
