"""Arguments that eager's kernels refuse, though fake tensors take them: dtypes, numbers or memory
that do not go together, and tensors without elements.

In:  an operation that has run on fake tensors.
Out: `Unsupported` where a rehearsal on real tensors of zeros raises: the operation then runs in
     eager, which says what is wrong.

Only what looks suspicious is rehearsed, so that ordinary operations cost nothing: tensors of
several floating dtypes, numbers that a dtype cannot hold, a tensor that is written to in memory
that another argument shares, or with values of another kind than its own, a tensor without
elements.
For other sizes of the same graph a guard is kept: `x[2:].max(0)` is refused where `len(x)` is 2
(`keep_from_nothing`).
In PyTorch there is no counterpart: `torch.compile` computes something there.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from course_lib.capture import global_state
from course_lib.capture.of_data import symbols_of_data
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import is_of_data
from course_lib.capture.world import World, listeners
from course_lib.failing import CHECKED, is_torchs, name_of
from course_lib.written import quiet

DIMENSION_AT = {
    **dict.fromkeys("softmax log_softmax softmin sort argsort".split(), 1),
    "slice_scatter": 2,
}
"""Functions that take any dimension on fakes: which argument it is, where it has no name."""
DIVIDED_BY_ZERO = "ZeroDivisionError"
"""Kernels for integers raise RuntimeError with this word alone."""
NO_NUMBER, BOOL, INTEGER, FLOAT, COMPLEX = range(5)
KINDS = {bool: BOOL, int: INTEGER, float: FLOAT, complex: COMPLEX}
"""Kinds of numbers, the smaller ones first (torch calls them categories of dtypes)."""
LARGE = 10**6
"""Elements: with more, an operation is too slow to be run only to see if it is refused."""

WITH_RULES_FOR_NUMBERS = {"celu", "smooth_l1_loss", "logsumexp"}
"""Functions that refuse some numbers (`alpha=0`), or no dimensions (`logsumexp(())`), where what
they are made of does not."""
WITH_A_SLOPE = {"leaky_relu_", "elu_", "celu_", "rrelu_"}
"""Activations in place, whose slope on the left may be negative."""
MAXIMA = {"max", "min", "median", "nanmedian", "mode"}
"""Reductions that have no result where there is nothing to reduce, and whose fakes do not look.
(`amax`, `argmax`, `kthvalue` and `logsumexp` have fakes that do, or a result.)"""
WITHOUT_RESULT_OF_ALL = {"max", "min"}
"""Those of `MAXIMA` that eager refuses for a whole tensor without elements. The others give NaN."""


def listen(
    world: World, function: Any, args: Any, kwargs: dict[str, Any], result: Any, caught: list[Any]
) -> None:
    """Rehearse an operation that eager may refuse. Raises Unsupported if it does."""
    leaves = tree_leaves((args, kwargs))
    tensors = tensors_among(leaves)
    if not tensors:
        refuse_value_of_new_tensor(function, args, kwargs, result)
        return
    keep_from_nothing(function, args, kwargs)

    # What has no real tensor like it cannot be rehearsed.
    if not all(map(is_plain, tensors)) or symbols_of_data((args, kwargs, result)):
        return
    is_suspect = is_suspicious(function, args, kwargs, result)
    if is_suspect and sum(map(elements, tensors)) <= LARGE:
        rehearse(function, args, kwargs)
    refuse_large_integer(function, leaves, tensors)
    refuse_negative_slope(name_of(function), leaves, tensors)


def is_suspicious(function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> bool:
    """May eager refuse these arguments, though their fakes were taken?"""
    leaves = tree_leaves((args, kwargs))
    tensors = tensors_among(leaves)
    results = tensors_among(tree_leaves(result))

    # `out=`, and what an operation like `add_` returns: one of its arguments
    ids_of_arguments = set(map(id, tensors))
    changed = [tensor for tensor in results if id(tensor) in ids_of_arguments]
    written = [*tensors_among(tree_leaves(kwargs.get("out"))), *changed]

    return (
        mixed(tensors)
        or too_large(leaves, [*tensors, *results])
        or shared(written, tensors)
        or other_kind(written, leaves)
        or reads_nothing(function, tensors)
        or out_of_range(name_of(function), tensors[0], args, kwargs)
        or (has_complex(leaves) and not any(map(torch.is_complex, results)))
        or name_of(function).strip("_") in WITH_RULES_FOR_NUMBERS
    )


def tensors_among(leaves: list[Any]) -> list[torch.Tensor]:
    """The tensors of a flat list."""
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def refuse_value_of_new_tensor(
    function: Any, args: Any, kwargs: dict[str, Any], result: Any
) -> None:
    """Rehearse `torch.full((2,), 300, dtype=torch.uint8)`, and what else makes a tensor of a number
    that its dtype cannot hold."""
    if not isinstance(result, torch.Tensor) or not is_plain(result) or not is_torchs(function):
        return
    numbers = tree_leaves((args, kwargs))
    wrong_kind = has_complex(numbers) and not result.is_complex()
    if (wrong_kind or too_large(numbers, [result])) and elements(result) <= LARGE:
        rehearse(function, args, kwargs)


def has_complex(leaves: list[Any]) -> bool:
    """Is there a complex number among the arguments?"""
    return any(type(leaf) is complex for leaf in leaves)


def refuse_negative_slope(name: str, leaves: list[Any], tensors: list[torch.Tensor]) -> None:
    """Eager cannot tell from the result of `leaky_relu_(x, -1)` what `x` was, so its backward
    raises."""
    has_negative = any(type(leaf) in (int, float) and leaf < 0 for leaf in leaves)
    if name in WITH_A_SLOPE and has_negative and any(tensor.requires_grad for tensor in tensors):
        raise Unsupported(f"{name} has a negative slope", "its backward raises in eager")


def refuse_large_integer(function: Any, leaves: list[Any], tensors: list[torch.Tensor]) -> None:
    """Integers from 2**63 on are no numbers of a graph, where eager computes with them: beside
    tensors of integers it takes them for unsigned ones of 64 bits."""
    has_floating = any(map(torch.is_floating_point, tensors)) or any(map(torch.is_complex, tensors))
    is_large = any(type(leaf) is int and not -(2**63) <= leaf < 2**63 for leaf in leaves)
    if is_large and not has_floating:
        raise Unsupported(f"{name_of(function)} is given an integer of more than 64 bits")


def rehearse(function: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Run an operation on real tensors of zeros. Raises Unsupported if it raises."""
    restore_random = global_state.random()
    memory: dict[int, torch.Tensor] = {}
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad(), quiet():
            real_args, real_kwargs = tree_map(lambda leaf: real(leaf, memory), (args, kwargs))
            function(*real_args, **real_kwargs)
    except Exception as error:
        # Zeros stand for the data here. This error is about them, not about the arguments
        if str(error).splitlines()[:1] == [DIVIDED_BY_ZERO]:
            return
        first_line = str(error).splitlines()[0]
        why = f"eager refuses these arguments of {name_of(function)}: {first_line}"
        raise Unsupported(why, "it raises in eager too") from None
    finally:
        restore_random()


def keep_from_nothing(function: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Ask the sizes that eager asks, so that other sizes have other graphs.

    Raises Unsupported where there is nothing to reduce, or no pixel to draw another one from."""
    for size in sizes_of_data_to_squeeze(function, args):
        torch._check(size != 1)
    for size in sizes_that_eager_asks(name_of(function), list(args), kwargs):
        if is_of_data(size):
            torch._check(size != 0)
        elif size == 0:
            raise Unsupported(
                f"{name_of(function)} has no result for a tensor without elements",
                "it raises in eager too",
            )


def sizes_of_data_to_squeeze(function: Any, args: Any) -> list[Any]:
    """The sizes of `x` in `x.squeeze()` that only the data says. `squeeze` drops dimensions of size
    1, and torch records it as if none of these sizes were 1."""
    if name_of(function) not in ("squeeze", "squeeze_"):
        return []
    if not isinstance(args[0], torch.Tensor):
        return []
    return [size for size in args[0].shape if is_of_data(size)]


def sizes_that_eager_asks(name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The sizes that must not be 0 for an operation whose fake does not look at them."""
    tensor = args[0] if args else kwargs.get("input")
    second = args[1] if len(args) > 1 else None
    if not isinstance(tensor, torch.Tensor):
        return []
    if name == "interpolate":
        return list(tensor.shape[2:])
    if name not in MAXIMA:
        return []

    # The dimension by its name, by NumPy's name, or as the second argument. `x.mode()` reduces the
    # last one.
    dim = kwargs.get("dim", kwargs.get("axis", second))
    if dim is None and name == "mode":
        dim = -1

    if type(dim) is int:
        if tensor.ndim == 0:
            return []  # a single number is its own maximum
        return [tensor.shape[dim]]
    if dim is None and name in WITHOUT_RESULT_OF_ALL:
        return list(tensor.shape)
    return []


def reads_nothing(function: Any, tensors: list[torch.Tensor]) -> bool:
    """Has an argument no elements in this call? A rehearsal costs nothing then.

    Operations that refuse some data would refuse zeros."""
    if not is_torchs(function):
        return False
    words = set(name_of(function).split("_"))
    if words & CHECKED:
        return False
    return any(elements(tensor) == 0 for tensor in tensors)


def is_plain(tensor: torch.Tensor) -> bool:
    """Can a real tensor like this one be made on a CPU?"""
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return not is_wrapped and tensor.layout is torch.strided and tensor.device.type == "cpu"


def mixed(tensors: list[torch.Tensor]) -> bool:
    """Are there several floating or complex dtypes? (A tensor without dimensions goes with any.)"""
    dtypes = set()
    for tensor in tensors:
        has_fractions = tensor.is_floating_point() or tensor.is_complex()
        if tensor.ndim and has_fractions:
            dtypes.add(tensor.dtype)
    return len(dtypes) > 1


def too_large(leaves: list[Any], tensors: list[torch.Tensor]) -> bool:
    """Is there a number that one of the dtypes cannot hold?"""
    dtypes = {tensor.dtype for tensor in tensors}

    # The narrowest dtype of numbers, int8, holds up to 127.
    large = [leaf for leaf in leaves if type(leaf) in (int, float) and abs(leaf) > 127]
    for dtype in dtypes:
        for number in large:
            if not holds(dtype, number):
                return True
    return False


def holds(dtype: torch.dtype, number: float) -> bool:
    """Does torch take this number beside a tensor of this dtype?"""
    if dtype is torch.bool or dtype.is_complex or not math.isfinite(number):
        # any float, and each integer that 64 bits can hold
        return type(number) is float or -(2**63) <= number < 2**63

    limits: torch.finfo | torch.iinfo
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
    else:
        limits = torch.iinfo(dtype)
    return limits.min <= number <= limits.max


def other_kind(written: list[torch.Tensor], leaves: list[Any]) -> bool:
    """Is a value written to a tensor that has no place for its kind, as a fraction to integers?
    Or is a bool or a complex number among the arguments, for which many kernels do not exist?

    Eager takes some of these (`ints.fill_(2.5)`), and refuses others (`ints.mul_(2.5)`)."""
    if not written:
        return False
    smallest_place = min(map(kind_of, written))
    kinds = {kind_of(leaf) for leaf in leaves}
    return BOOL in kinds or COMPLEX in kinds or max(kinds) > smallest_place


def kind_of(leaf: Any) -> int:
    """What kind of numbers this is, or holds: a larger kind has no place in a smaller one."""
    if isinstance(leaf, torch.Tensor):
        return kind_of_dtype(leaf.dtype)
    if isinstance(leaf, (torch.SymInt, torch.SymFloat)):
        return KINDS[leaf.node.pytype]
    return KINDS.get(type(leaf), NO_NUMBER)


def kind_of_dtype(dtype: torch.dtype) -> int:
    """The same of a dtype; a quantized one counts as integers."""
    if dtype is torch.bool:
        return BOOL
    if dtype.is_complex:
        return COMPLEX
    if dtype.is_floating_point:
        return FLOAT
    return INTEGER


def out_of_range(
    name: str, tensor: torch.Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> bool:
    """Is there no such dimension?"""
    dim = kwargs.get("dim")
    place = DIMENSION_AT.get(name, len(args))
    if place < len(args):
        dim = args[place]
    if type(dim) is not int:
        return False
    # A single number takes 0 and -1, too.
    is_there = -tensor.ndim <= dim < max(tensor.ndim, 1)
    return not is_there


def shared(written: list[torch.Tensor], tensors: list[torch.Tensor]) -> bool:
    """Does a write change elements that another tensor shows at other places, or that its own
    tensor shows twice?"""
    if any(map(shows_twice, written)):
        return True
    for tensor in written:
        for other in tensors:
            if overlaps(tensor, other):
                return True
    return False


def shows_twice(tensor: torch.Tensor) -> bool:
    """Is it expanded, so that several of its elements are one in memory?"""
    sizes, strides, _ = place_of(tensor)
    dimensions = zip(sizes, strides, strict=True)
    return any(stride == 0 and size != 1 for size, stride in dimensions)


def overlaps(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Does another tensor show the same memory in another way?"""
    if other is tensor:
        return False
    if tensor.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    return place_of(other) != place_of(tensor)


def real(leaf: Any, memory: dict[int, torch.Tensor]) -> Any:
    """A real tensor of zeros like a fake one; a number for a symbolic size; anything else itself.

    `memory`: by the fake memory, the real one. So two tensors share memory if the fake ones do.
    """
    if not isinstance(leaf, torch.Tensor):
        return known(leaf)

    storage = leaf.untyped_storage()
    if storage._cdata not in memory:
        memory[storage._cdata] = torch.zeros(known(storage.nbytes()), dtype=torch.uint8)
    sizes, strides, offset = place_of(leaf)
    tensor = torch.empty(0, dtype=leaf.dtype)
    return tensor.set_(memory[storage._cdata].untyped_storage(), offset, sizes, strides)


def known(number: Any) -> Any:
    """The value that a symbolic number has in this call.

    It leaves no guard, for an operation is refused for each value."""
    if not isinstance(number, (torch.SymInt, torch.SymFloat)):
        return number

    # a size of the data that was found to be a number has no hint
    formula = number.node.expr
    if formula.is_number:
        return number.node.pytype(formula)
    return number.node.hint


def place_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides, and where in its memory a tensor starts."""
    sizes = tuple(map(known, tensor.shape))
    strides = tuple(map(known, tensor.stride()))
    return sizes, strides, known(tensor.storage_offset())


def elements(tensor: torch.Tensor) -> int:
    return math.prod(map(known, tensor.shape))


listeners.append(listen)
