"""How the results of a captured graph are made of what its traced graph computes.

A traced graph is functional: it computes values and writes to nothing. A program may do more that
its caller sees: write to its inputs, return an input or a part of one, or results that share
memory. `Signature` holds what must still be done then.
In PyTorch: `torch/_functorch/_aot_autograd/schemas.py` (`OutputAliasInfo`, `InputAliasInfo`),
`collect_metadata_analysis.py`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch

from course_lib import sizes

Values = Sequence[Any]
SeenBy = Literal["autograd", "version", "nobody"]
"""Who notices a write to an input. "autograd": gradients flow through it. "version": it only raises
the tensor's version number (a write under `no_grad`). "nobody": it was a write to `x.data`."""


OF_SEVERAL = {"SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0"}
"""Autograd's nodes for operations that give several views: `chunk`, `split`, `unbind`."""


class Layout(NamedTuple):
    """How a view lies in its base: sizes, strides, and elements after the base's first."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Result:
    """A result of the program: a value of the graph or an input, the tensor itself or a view of
    it."""

    # The number of the value, or of the input
    index: int
    of_input: bool = False
    # None for the tensor itself
    layout: Layout | None = None
    requires_grad: bool = True
    # What the view does to the numbers that lie in its base. (Rare, so it is not printed)
    conjugates: bool = field(default=False, repr=False)
    negates: bool = field(default=False, repr=False)
    # Is it one of several views that an operation gave (`chunk`)? Nobody may write to it then
    is_one_of_several: bool = field(default=False, repr=False)

    def in_sizes(self) -> "Result":
        """This result, with the numbers of its layout as `sizes.Size`s."""
        return replace(self, layout=self.layout and Layout(*map(sizes.shape_or_size, self.layout)))

    def made_of(self, inputs: Values, values: Values) -> Any:
        """The result, made of inputs of the program and values of the graph."""
        base = (inputs if self.of_input else values)[self.index]
        if self.layout is None:
            return base

        # In eager a view without a gradient is a view of a detached tensor.
        if base.requires_grad and not self.requires_grad:
            base = base.detach()

        sizes, strides, offset = self.layout
        # Also under `no_grad`: the view has a `grad_fn` then, as in eager.
        with torch.enable_grad():
            is_whole = (base.shape, base.stride(), 0) == (sizes, strides, offset)
            if not (is_whole and (self.conjugates or self.negates)):
                base = base.as_strided(sizes, strides, base.storage_offset() + offset)
            if self.conjugates:
                base = base.conj()
            return torch._neg_view(base) if self.negates else base


def made_of(result: Result, inputs: Values, values: Values) -> Any:
    """The result, made of inputs of the program and values of the graph; one of several views is
    such a view for autograd, too."""
    tensor = result.made_of(inputs, values)
    # `unbind` gives several views, even if there is one only
    return tensor.unsqueeze(0).unbind()[0] if result.is_one_of_several else tensor


@dataclass(frozen=True)
class Update:
    """An input that the program writes to."""

    input: int
    # Which value of the graph it holds afterwards
    index: int
    # Who notices the write: autograd, the tensor's version only, or nobody
    seen_by: SeenBy


@dataclass
class Signature:
    """What the outputs of a traced graph mean.

    The outputs of a forward graph are its values. A joint graph has the gradients of inputs behind
    them."""

    # One for each output of the captured graph
    results: tuple[Result, ...]
    updates: tuple[Update, ...]
    # For each value: has it a gradient?
    differentiable: tuple[bool, ...]
    # The inputs whose gradients the joint graph returns
    gradients: tuple[int, ...] = ()
    # For each value that has a gradient: the inputs to which its gradient flows
    reached: tuple[frozenset[int], ...] = ()
    # The inputs that require a gradient and get none from any value (the program used `x.detach()`)
    unconnected: tuple[int, ...] = ()
    # The values that other values are computed from. Their gradients come in part from these others
    inner: tuple[int, ...] = ()

    @property
    def reaches_autograd(self) -> bool:
        """Has a result a gradient: a value, or a view of an input?"""
        of_inputs = [result for result in self.results if result.of_input]
        return any(self.differentiable) or any(result.requires_grad for result in of_inputs)


def results_in_call(results: Sequence[Result]) -> Callable[[Values], Sequence[Result]]:
    """The results for the inputs of a call: where layouts are formulas of sizes, they become
    numbers."""
    known = sizes.sizes_of(*(n for r in results if r.layout for n in flat(r.layout)))
    if known is None:
        return lambda inputs: results

    layouts = [result.layout and known.function(result.layout) for result in results]

    def in_call(inputs: Values) -> Sequence[Result]:
        return [
            replace(result, layout=Layout(*layout(inputs))) if layout else result
            for result, layout in zip(results, layouts, strict=True)
        ]

    return in_call


def flat(layout: Layout) -> tuple[Any, ...]:
    """All numbers of a layout in one row."""
    return (*layout.sizes, *layout.strides, layout.offset)


def write(updates: Iterable[Update], inputs: Values, values: Any) -> None:
    """Write the new values of inputs into them, unless a kernel has done so already."""
    for update in updates:
        x, new = inputs[update.input], values[update.index]
        if new is not x and not is_there(new, x):
            target = x.data if update.seen_by == "nobody" else x
            with torch.set_grad_enabled(update.seen_by == "autograd"):
                target.copy_(new)
        elif update.seen_by == "version":
            torch.autograd.graph.increment_version(x)


def is_there(new: torch.Tensor, x: torch.Tensor) -> bool:
    """True if a kernel has written `new` into the memory of `x`."""
    if x.numel() == 0 or new.data_ptr() != x.data_ptr():
        return False

    # `restride` gives the tensor itself if no element would move: strides of dimensions of size 1
    # may differ.
    return new.stride() == x.stride() or restride(new, x) is new


def signature_of(
    inputs: Values, before: Values, results: Values, fakes: Values, like: Values
) -> tuple[Signature, list[Any]]:
    """The signature of a program that has run on functional `inputs`, and the values that its graph
    must return.

    before: the `grad_fn`s of the inputs before it ran. results: what it returned.
    fakes, like: inputs and results of the captured program. They say how a result lies in an input
    or in another result.
    Raises NotImplementedError for what cannot be said this way: an input that got another shape or
    memory.
    """
    describing = Describing(inputs, fakes, results, like)
    all_results = describing.describe()
    updates = describing.updates(before)

    # What an input holds afterwards has a gradient if autograd saw the write.
    differentiable = [has_gradient(value) for value in describing.values]
    for update in updates:
        differentiable[update.index] = update.seen_by == "autograd"
    return Signature(all_results, updates, tuple(differentiable)), describing.values


class Owner(NamedTuple):
    """Whom memory belongs to: an input, or a value of the graph."""

    of_input: bool
    # The number of the input, or of the value
    number: int
    tensor: torch.Tensor
    # The same tensor as the captured program had it; None if the layouts of results are to be read
    # off `tensor` itself
    captured: Any


class Mate(NamedTuple):
    """One of several results that lie in the same memory."""

    tensor: torch.Tensor
    # The same result as the captured program had it
    captured: Any


class Describing:
    """Finds for each result what it is made of, and collects the values that the graph must
    return. Arguments as for `signature_of`."""

    def __init__(self, inputs: Values, fakes: Values, results: Values, like: Values) -> None:
        self.inputs, self.results, self.like = inputs, results, like
        self.values: list[Any] = []
        # Memory → whose it is
        self.owners: dict[Any, Owner] = {}
        for n, x in enumerate(inputs):
            if not isinstance(x, torch.Tensor):
                continue
            self.owners[memory(x)] = Owner(True, n, x, fakes[n])
            if torch._functionalize_has_metadata_mutation(x.elem):
                raise NotImplementedError(
                    "an input is given another shape or memory (`t_`, `resize_`, `set_`, `x.data = ...`)"
                )

    def describe(self) -> tuple[Result, ...]:
        """Each result of the program."""
        results: list[Result] = []
        for n, (tensor, captured) in enumerate(zip(self.results, self.like, strict=True)):
            # One that is returned twice is one value.
            earlier_place = next((k for k in range(n) if self.results[k] is tensor), None)
            if earlier_place is not None:
                results.append(results[earlier_place])
            elif isinstance(tensor, torch.Tensor):
                results.append(self.result(tensor, captured))
            else:
                results.append(self.value(tensor))
        return tuple(results)

    def updates(self, before: Values) -> tuple[Update, ...]:
        """The inputs that were written to; what they hold afterwards are values, too."""
        written_inputs = []
        for n, x in enumerate(self.inputs):
            if isinstance(x, torch.Tensor) and torch._functionalize_has_data_mutation(x.elem):
                written_inputs.append(n)
        if any(overlaps_itself(self.inputs[n]) for n in written_inputs):
            raise NotImplementedError("an input is written to whose elements share memory")

        updates = []
        for n in written_inputs:
            x = self.inputs[n]
            updates.append(Update(n, self.value(x).index, who_sees(x, before[n])))
        return tuple(updates)

    def value(self, tensor: Any) -> Result:
        """A result that is one more value of the graph."""
        self.values.append(tensor)
        return Result(len(self.values) - 1)

    def result(self, tensor: torch.Tensor, captured: Any) -> Result:
        """A tensor: the owner of its memory, or a view of that."""
        if memory(tensor) not in self.owners:
            self.owners[memory(tensor)] = self.new_owner(tensor)

        owner = self.owners[memory(tensor)]
        if owner.tensor is tensor:
            return Result(owner.number, owner.of_input)

        refuse_other_views(tensor, owner.tensor)
        part, base = tensor, owner.tensor
        # Where the captured program had both tensors, its layout counts: decompositions may have
        # chosen other strides.
        if captured is not None and owner.captured is not None:
            part, base = captured, owner.captured
        offset = part.storage_offset() - base.storage_offset()
        layout = Layout(tuple(part.shape), part.stride(), offset)
        return Result(
            owner.number,
            owner.of_input,
            layout,
            tensor.requires_grad,
            conjugates=part.is_conj() != base.is_conj(),
            negates=part.is_neg() != base.is_neg(),
            is_one_of_several=tensor.requires_grad and is_one_of_several(tensor, owner.tensor),
        )

    def new_owner(self, tensor: torch.Tensor) -> Owner:
        """The owner of the memory of `tensor`, a result that shares memory with no input.

        It is the tensor of which all results in this memory are views. It becomes a value of the
        graph, with the strides that it had in the captured program."""
        # All results in this memory
        mates = []
        for result, captured in zip(self.results, self.like, strict=True):
            if memory(result) == memory(tensor):
                mates.append(Mate(result, captured))

        # A value of the graph is what lies in memory. `(x * 2).conj()` shows something else, so it
        # is a view of `x * 2` for us, too.
        is_as_in_memory = not (tensor.is_conj() or tensor.is_neg())
        is_alone = is_as_in_memory and all(mate.tensor is tensor for mate in mates)
        base = tensor
        if not is_alone:
            base = base_of(tensor, mates)

        # If they share memory in the captured program, too, its tensor says how the value lies.
        base_as_captured = None
        if len({memory(mate.captured) for mate in mates}) == 1:
            base_as_captured = captured_base(base, mates, is_alone)

        laid_out = restride(base, base_as_captured)
        number = self.value(laid_out).index
        # It lay so already: layouts of results are read off the traced tensors themselves.
        if laid_out is base:
            base_as_captured = None
        return Owner(False, number, base, base_as_captured)


def base_of(tensor: torch.Tensor, mates: Sequence[Mate]) -> torch.Tensor:
    """The tensor that several results in one memory are views of.

    It may be a result itself (one that is no view). If several are, one that has a gradient is
    taken."""
    tensors_without_base = [mate.tensor for mate in mates if mate.tensor._base is None]
    with_gradient = [
        tensor_of_mate for tensor_of_mate in tensors_without_base if tensor_of_mate.requires_grad
    ]
    base = next(iter(with_gradient or tensors_without_base), tensor._base)

    # If a mate has a gradient and the base has none, autograd does not know it as the base's view.
    is_base = base is not None and memory(base) == memory(tensor)
    if not is_base or any(mate.tensor.requires_grad > base.requires_grad for mate in mates):
        raise NotImplementedError("two results share memory in a way that autograd does not know")
    return base


def captured_base(base: torch.Tensor, mates: Sequence[Mate], is_alone: bool) -> Any:
    """The captured program's own tensor for `base`, or None: there it may be a view of something
    else."""
    for mate in mates:
        if mate.tensor is base and (is_alone or mate.captured._base is None):
            return mate.captured
    return None


def refuse_other_views(tensor: torch.Tensor, base: torch.Tensor) -> None:
    """Raise NotImplementedError for a view that `as_strided` of its base would not be."""
    if base.dtype != tensor.dtype:
        raise NotImplementedError("a result is a view of an input in another dtype")

    # It may be a view by a function of the user's, or one that was made under `no_grad`.
    if tensor.requires_grad and not is_known_view(tensor, base):
        raise NotImplementedError(
            "a result has a gradient of its own, and shares memory with an input (`detach`)"
        )


def is_known_view(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """True if autograd knows `tensor` as a view of `base`, and no `autograd.Function` of the user
    lies between them."""
    of_user = torch.autograd.function.BackwardCFunction
    root = base if base._base is None else base._base
    if tensor.grad_fn is None or tensor._base is not root:
        return False

    nodes = nodes_between(tensor, base)
    reaches_base = not nodes or next_of(nodes[-1]) is base.grad_fn
    return reaches_base and not any(isinstance(node, of_user) for node in nodes)


def is_one_of_several(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """Did `chunk` or its like give `tensor`, or what it is a view of? Autograd lets nobody write to
    such views."""
    return any(node.name() in OF_SEVERAL for node in nodes_between(tensor, base))


def nodes_between(tensor: torch.Tensor, base: torch.Tensor) -> list[Any]:
    """Autograd's nodes from `tensor` back to `base`, without that of `base`."""
    nodes = []
    node = tensor.grad_fn
    while node is not None and node is not base.grad_fn:
        nodes.append(node)
        node = next_of(node)
    return nodes


def next_of(node: Any) -> Any:
    """The node that a view's gradient flows to: a view has one input only. None at a leaf."""
    return next((earlier for earlier, _ in node.next_functions if earlier is not None), None)


class Form(NamedTuple):
    """Shape, strides, dtype and device in one call of a tensor whose sizes were symbolic.

    The tensor itself does not exist."""

    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def stride(self) -> tuple[int, ...]:
        return self.strides


def restride(value: Any, like: Any, lies: Any = None) -> Any:
    """`value` with the strides of `like`, for decompositions and autograd may choose others.

    Itself, if it has them already.

    lies: a tensor that lies in memory as `value` does, if `value` does not say so itself (a
    functional tensor).
    """
    if not is_strided(value) or not (isinstance(like, Form) or is_strided(like)):
        return value
    # Some fake tensors of torch 2.11 have a wrong shape.
    if value.shape != like.shape:
        return value

    laid_out = value if lies is None else lies
    strides = laid_out.stride()
    of_dims = zip(value.shape, strides, like.stride(), strict=True)
    if all(size == 1 or have == want for size, have, want in of_dims):
        return value

    copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return copy.copy_(value)


def is_strided(value: Any) -> bool:
    """True for a tensor whose elements lie in steps: neither sparse nor nested."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def memory(value: Any) -> int:
    """What stands for the memory of a tensor: equal for two that share it. 0 for what is no
    tensor."""
    if not isinstance(value, torch.Tensor):
        return 0
    storage = value.untyped_storage()
    return torch.multiprocessing.reductions.StorageWeakRef(storage).cdata


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """True if two elements of a tensor lie in one place of memory.

    For symbolic sizes the answer may be a guard."""
    return shows_twice(tensor.shape, tensor.stride())


def shows_twice(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """True if a view with these sizes and strides shows an element of its memory twice.

    From the smallest stride to the largest, each must be larger than all that the dimensions before
    it reach. (A dimension of size 1 reaches nothing.) Symbolic sizes are put in order by a guess,
    which the comparisons confirm."""
    dims = [
        (stride, size)
        for stride, size in zip(strides, shape, strict=True)
        if isinstance(size, torch.SymInt) or size > 1
    ]
    dims.sort(key=sizes.hint)

    reached = 0
    for stride, size in dims:
        if stride <= reached:
            return True
        reached += stride * (size - 1)
    return False


def who_sees(written: Any, before: Any) -> SeenBy:
    """Who notices the writes to an input.

    `before`: its `grad_fn` when the program began. A write under `no_grad` or through `detach()`
    leaves that as it was."""
    if torch._functionalize_are_all_mutations_hidden_from_autograd(written.elem):
        return "nobody"
    if written.grad_fn is before:
        return "version"
    return "autograd"


def has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
