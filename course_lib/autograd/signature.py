"""How the results of a captured graph are made of what its traced graph computes.

A traced graph is functional: it computes values and writes to nothing. A program may do more that its caller sees: write to its
inputs, return an input or a part of one, or results that share memory. `Signature` holds what must still be done then.
In PyTorch: `torch/_functorch/_aot_autograd/schemas.py` (`OutputAliasInfo`, `InputAliasInfo`), `collect_metadata_analysis.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

Values = Sequence[Any]


@dataclass(frozen=True)
class Result:
    """A result of the program: a value of the graph or an input, the tensor itself or a view of it."""

    index: int  # Of the value, or of the input
    of_input: bool = False
    # A view's sizes, strides, and elements after the start
    layout: tuple[tuple[int, ...], tuple[int, ...], int] | None = None
    requires_grad: bool = True

    def made_of(self, inputs: Values, values: Values) -> Any:
        base = (inputs if self.of_input else values)[self.index]
        if self.layout is None:
            return base
        sizes, strides, offset = self.layout
        # a view knows its base: of what is detached that is not `base`
        base = base if self.requires_grad or not base.requires_grad else base.detach()
        with torch.enable_grad():
            return base.as_strided(sizes, strides, base.storage_offset() + offset)


@dataclass(frozen=True)
class Update:
    """An input that the program writes to."""

    input: int
    index: int  # Of the value that it holds afterwards
    # 'autograd': gradients flow through the write; 'version': it only counts as one; 'nobody': it is to `x.data`
    seen_by: str


@dataclass
class Signature:
    """What the outputs of a traced graph mean: they are the values, and then, if it is a joint graph, gradients of inputs."""

    results: tuple[Result, ...]  # One for each output of the captured graph
    updates: tuple[Update, ...]
    differentiable: tuple[bool, ...]  # For each value: has it a gradient?
    gradients: tuple[int, ...] = ()  # The inputs whose gradients the joint graph returns
    # For each value that has a gradient: the inputs to which autograd gets from it
    reached: tuple[frozenset[int], ...] = ()
    # The inputs that require a gradient and to which autograd gets from no value (`x.detach()`)
    unconnected: tuple[int, ...] = ()
    # The values on which other values depend, and so their gradients
    inner: tuple[int, ...] = ()


def write(updates: Iterable[Update], inputs: Values, values: Any) -> None:
    """Put what was computed into inputs, where no kernel has."""
    for update in updates:
        x, new = inputs[update.input], values[update.index]
        there = (
            x.numel()
            and new.data_ptr() == x.data_ptr()
            and (new.stride() == x.stride() or restride(new, x) is new)
        )
        if new is not x and not there:
            with torch.set_grad_enabled(update.seen_by == "autograd"):
                (x.data if update.seen_by == "nobody" else x).copy_(new)
        elif update.seen_by == "version":
            torch.autograd.graph.increment_version(x)


def signature_of(
    inputs: Values, before: Values, results: Values, fakes: Values, like: Values
) -> tuple[Signature, list[Any]]:
    """The signature of a program that has run on functional `inputs`, whose `grad_fn`s were `before`, and the values that its
    graph must return. How a result lies in an input, or in one that is laid out anew, is asked of the captured program's.
    Raises NotImplementedError for what cannot be said this way: an input that got another shape or memory."""
    values: list[Any] = []
    owners: dict[Any, tuple[bool, int, torch.Tensor, Any]] = {}
    for n, x in enumerate(inputs):
        if isinstance(x, torch.Tensor):
            owners[memory(x)] = True, n, x, fakes[n]
            if torch._functionalize_has_metadata_mutation(x.elem):
                raise NotImplementedError(
                    "an input is given another shape or memory (`t_`, `resize_`, `set_`, `x.data = ...`)"
                )

    def value(tensor: Any) -> Result:
        values.append(tensor)
        return Result(len(values) - 1)

    def result(tensor: Any, real: Any) -> Result:
        same = next((r for r, seen in zip(made, results, strict=False) if seen is tensor), None)
        if same is not None or not isinstance(tensor, torch.Tensor):
            return same or value(tensor)
        if memory(tensor) not in owners:
            mates = [
                (r, fake)
                for r, fake in zip(results, like, strict=True)
                if memory(r) == memory(tensor)
            ]
            alone, whole = (
                all(r is tensor for r, _ in mates),
                [r for r, _ in mates if r._base is None],
            )
            base = (
                tensor
                if alone
                else next(iter(sorted(whole, key=lambda r: not r.requires_grad)), tensor._base)
            )
            if (
                base is None
                or memory(base) != memory(tensor)
                or any(r.requires_grad > base.requires_grad for r, _ in mates)
            ):
                raise NotImplementedError(
                    "two results share memory in a way that autograd does not know"
                )
            together = len({memory(fake) for _, fake in mates}) == 1
            lies = next(
                (
                    fake
                    for r, fake in mates
                    if r is base and together and (alone or fake._base is None)
                ),
                None,
            )
            laid = restride(base, lies)
            owners[memory(tensor)] = False, value(laid).index, base, None if laid is base else lies
        of_input, index, base, lies = owners[memory(tensor)]
        if base is tensor:
            return Result(index, of_input)
        if base.dtype != tensor.dtype:
            raise NotImplementedError("a result is a view of an input in another dtype")
        function = tensor.grad_fn
        while function not in (None, base.grad_fn) and not isinstance(
            function, torch.autograd.function.BackwardCFunction
        ):
            function = next(
                (before for before, _ in function.next_functions if before is not None), None
            )
        root = base if base._base is None else base._base
        seen = tensor.grad_fn is not None and function is base.grad_fn and tensor._base is root
        # a view by a function of the user's, or under `no_grad`
        if tensor.requires_grad and not seen:
            raise NotImplementedError(
                "a result has a gradient of its own, and shares memory with an input (`detach`)"
            )
        part, base = (tensor, base) if real is None or lies is None else (real, lies)
        layout = tuple(part.shape), part.stride(), part.storage_offset() - base.storage_offset()
        return Result(index, of_input, layout, tensor.requires_grad)

    made: list[Result] = []
    for tensor, real in zip(results, like, strict=True):
        made.append(result(tensor, real))
    written = [
        n
        for n, x in enumerate(inputs)
        if isinstance(x, torch.Tensor) and torch._functionalize_has_data_mutation(x.elem)
    ]
    if any(overlaps_itself(inputs[n]) for n in written):
        raise NotImplementedError("an input is written to whose elements share memory")
    updates = tuple(
        Update(n, value(inputs[n]).index, who_sees(inputs[n], before[n])) for n in written
    )
    ours = {update.index: update.seen_by == "autograd" for update in updates}
    return Signature(
        tuple(made), updates, tuple(ours.get(n, has_gradient(v)) for n, v in enumerate(values))
    ), values


def restride(value: Any, like: Any, lies: Any = None) -> Any:
    """`value`, which lies in memory as `lies` does, with the strides of `like`: decompositions and autograd may choose others."""
    if (
        not all(isinstance(t, torch.Tensor) and t.layout is torch.strided for t in (value, like))
        or value.shape != like.shape
    ):
        return value  # of torch 2.11's fake tensors some have a wrong shape
    strides = (value if lies is None else lies).stride()
    if all(
        n == 1 or have == want
        for n, have, want in zip(value.shape, strides, like.stride(), strict=True)
    ):
        return value
    return torch.empty_strided(
        like.shape, like.stride(), dtype=like.dtype, device=like.device
    ).copy_(value)


def memory(tensor: Any) -> int:
    return (
        torch.is_tensor(tensor)
        and torch.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage()).cdata
    )


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Are two elements in one place?"""
    dims = sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1)
    reach = accumulate((stride * (size - 1) for stride, size in dims), initial=0)
    return any(stride <= before for (stride, _), before in zip(dims, reach, strict=False))


def who_sees(written: Any, before: Any) -> str:
    """`before`: its `grad_fn` when the program began. A write under `no_grad` or through `detach()` leaves that as it was."""
    if torch._functionalize_are_all_mutations_hidden_from_autograd(written.elem):
        return "nobody"
    return "version" if written.grad_fn is before else "autograd"


def has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
