"""Hooks of the checks: what a load, a store and an offset tell the watch.

In:  the builder of Triton's interpreter, mended.
Out: the same, which asks `watching.current` where there is one.
In Triton: the methods of `InterpreterBuilder` with these names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from course_lib.simulator import watching
from course_lib.simulator.mends.arithmetic import Builder, Handle
from course_lib.simulator.mends.table import override

SAME_SHAPE = """
    binary_op unary_op cast_impl create_fp_to_fp create_bitcast create_fma create_clampf create_sdiv create_udiv
    create_idiv create_ashr create_umulhi create_erf create_fabs""".split()
"""Operations lane by lane: a lane without a value gives one without a value."""

OTHER_SHAPE = """
    create_reshape create_trans create_expand_dims create_broadcast create_splat create_unsplat create_join
    create_cat create_split""".split()
"""Operations that move lanes: what is known of a lane moves with it."""

MARKS = ("undefined", "wrapped")
"""What may be true of a lane: it has no value; its number went past the range of its integers. Each
is a key of `handle.attr`, with an array of bools. "region" is a third key, of a whole pointer: the
tensor that it points into."""


def put_in_place() -> None:
    """Hook all of them. Called after the mends, whose methods these wrap."""
    for name in SAME_SHAPE:
        setattr(Builder, name, watching.spreading("undefined", getattr(Builder, name)))
    for name in OTHER_SHAPE:
        setattr(Builder, name, moving(getattr(Builder, name)))
    # A number that left int32 is no better in 64 bits.
    Builder.cast_impl = watching.spreading("wrapped", Builder.cast_impl)
    decide_by_one_side()
    select_between_lanes()
    gather_lanes()
    call_libdevice()
    combine_lanes()
    load_and_store()
    watch_offsets()


def moving(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that moves lanes: the marks move, and a pointer stays one into the same tensor."""

    def moved(self: Any, *arguments: Any) -> Any:
        result = method(self, *arguments)
        handle = next((x for x in arguments if isinstance(x, Handle)), None)
        if watching.current is None or handle is None or not handle.attr:
            return result

        parts = result if isinstance(result, tuple) else (result,)
        if "region" in handle.attr:
            for part in parts:
                part.attr = {**part.attr, "region": handle.attr["region"]}

        # The same move, of the marks: what happened to a lane happens to its mark.
        for mark in MARKS:
            if not any(mark in x.attr for x in arguments if isinstance(x, Handle)):
                continue
            moved_flags = method(self, *(flags_of(x, mark) for x in arguments))
            moved_flags = moved_flags if isinstance(result, tuple) else (moved_flags,)
            for part, flags in zip(parts, moved_flags, strict=True):
                part.attr = {**part.attr, mark: flags.data}
        return result

    return moved


def flags_of(argument: Any, mark: str) -> Any:
    """A block's marks as a block; any other argument as it is."""
    if not isinstance(argument, Handle):
        return argument
    return Handle(np.broadcast_to(argument.attr.get(mark, False), argument.data.shape), tl.int1)


def marked(result: Any, undefined: Any) -> Any:
    """The result, with a mark for each lane that has no value (if there is one)."""
    if np.any(undefined):
        flags = np.broadcast_to(undefined, result.data.shape)
        result.attr = {**result.attr, "undefined": flags}
    return result


def undefined_lanes(handle: Any) -> Any:
    """Which lanes have no value: a block of bools."""
    return np.broadcast_to(handle.attr.get("undefined", False), handle.data.shape)


def decide_by_one_side() -> None:
    """`(i < n) & flag` is False where `i < n` is, whatever `flag` holds; an `|` is True where one
    side is. So such a lane has a value, also where the other side has none."""
    for name, decides in (("create_and", False), ("create_or", True)):
        setattr(Builder, name, of_two_bools(getattr(Builder, name), decides))


def of_two_bools(method: Callable[..., Any], decides: bool) -> Callable[..., Any]:
    """`and` or `or`. `decides`: the truth of one side that makes the other side's matter not."""

    def computed(self: Any, lhs: Any, rhs: Any) -> Any:
        result = method(self, lhs, rhs)
        is_marked = watching.current is not None and "undefined" in result.attr
        if not is_marked or result.data.dtype != np.bool_:
            return result
        is_decided = False
        for side in (lhs, rhs):
            is_decided = is_decided | ((side.data == decides) & ~undefined_lanes(side))
        flags = result.attr["undefined"] & ~is_decided
        result.attr = {**result.attr, "undefined": np.broadcast_to(flags, result.data.shape)}
        return result

    return computed


def select_between_lanes() -> None:
    """`tl.where(mask, x, 0.0)` gives a value to the lanes that had none."""
    before = Builder.create_select

    def create_select(self: Any, condition: Any, lhs: Any, rhs: Any) -> Any:
        result = before(self, condition, lhs, rhs)
        handles = (condition, lhs, rhs)
        if watching.current is None or not any(handle.attr for handle in handles):
            return result

        # A lane is marked if the one that was chosen is, or if the condition that chose it is.
        for mark in MARKS:
            if not any(mark in handle.attr for handle in handles):
                continue
            of_condition, of_lhs, of_rhs = [handle.attr.get(mark, False) for handle in handles]
            flags = np.where(condition.data, of_lhs, of_rhs) | of_condition
            result.attr = {**result.attr, mark: np.broadcast_to(flags, result.data.shape)}

        # Both pointers lead into one tensor: so does the one that was chosen.
        region = lhs.attr.get("region")
        if region is not None and region is rhs.attr.get("region"):
            result.attr = {**result.attr, "region": region}
        return result

    Builder.create_select = create_select


def gather_lanes() -> None:
    """A lane of `tl.gather` has no value if the lane that it fetches has none, or its index."""
    before = Builder.create_gather

    def create_gather(self: Any, src: Any, indices: Any, axis: int) -> Any:
        result = before(self, src, indices, axis)
        if watching.current is None or not (unknown(src) or unknown(indices)):
            return result
        fetched = np.take_along_axis(undefined_lanes(src), indices.data, axis)
        return marked(result, fetched | undefined_lanes(indices))

    Builder.create_gather = create_gather


def call_libdevice() -> None:
    """A function of libdevice works lane by lane."""
    before = Builder.create_extern_elementwise

    def create_extern_elementwise(
        self: Any, name: str, path: str, symbol: str, arguments: Any, *rest: Any
    ) -> Any:
        result = before(self, name, path, symbol, arguments, *rest)
        if watching.current is None or not any(unknown(x) for x in arguments):
            return result
        return marked(result, functools.reduce(np.logical_or, map(undefined_lanes, arguments)))

    Builder.create_extern_elementwise = create_extern_elementwise


def combine_lanes() -> None:
    """A sum, a scan or a product that takes in a lane without a value has none itself."""
    reduce, scan = interpreter.ReduceOps, interpreter.ScanOps
    reduce.apply_impl = combining(reduce.apply_impl, after_reduction)
    scan.apply_impl = combining(scan.apply_impl, after_scan)

    dot, histogram = Builder.create_dot, Builder.create_histogram

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        result = dot(self, a, b, d, *rest)
        if watching.current is None or not any(unknown(x) for x in (a, b, d)):
            return result
        rows = undefined_lanes(a).any(-1, keepdims=True)
        columns = undefined_lanes(b).any(-2, keepdims=True)
        return marked(result, rows | columns | undefined_lanes(d))

    def create_histogram(self: Any, data: Any, bins: int, mask: Any) -> Any:
        result = histogram(self, data, bins, mask)
        if watching.current is None or not unknown(data):
            return result
        # A lane that the mask leaves out is not counted.
        counted = undefined_lanes(data) if mask is None else undefined_lanes(data) & mask.data
        return marked(result, counted.any())

    override(Builder, create_dot=create_dot, create_histogram=create_histogram)
    # The interpreters of 3.6 and 3.7 have a scaled product only by a mend (`products.py`)
    if hasattr(Builder, "create_dot_scaled"):
        mark_scaled_products()


def mark_scaled_products() -> None:
    """Where an operand has a lane without a value, no lane of the result has one."""
    dot_scaled = Builder.create_dot_scaled

    def create_dot_scaled(self: Any, *operands: Any) -> Any:
        result = dot_scaled(self, *operands)
        handles = [x for x in operands if isinstance(x, Handle)]
        if watching.current is not None and any(unknown(x) for x in handles):
            result = marked(result, True)
        return result

    override(Builder, create_dot_scaled=create_dot_scaled)


def unknown(handle: Any) -> bool:
    """Is there a lane whose value is undefined?"""
    return "undefined" in handle.attr and bool(handle.attr["undefined"].any())


def combining(method: Callable[..., Any], after: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A reduction or scan, with marks for the lanes of its results. `after` says which of them an
    undefined lane of the inputs reaches."""

    def combined(self: Any, inputs: Any) -> Any:
        results = method(self, inputs)
        if watching.current is None or not any(unknown(x.handle) for x in inputs):
            return results
        undefined = functools.reduce(np.logical_or, (undefined_lanes(x.handle) for x in inputs))
        reached = after(self, undefined)
        for result in results:
            marked(result.handle, reached.reshape(result.handle.data.shape))
        return results

    return combined


def after_reduction(reduction: Any, undefined: Any) -> Any:
    """A row with an undefined lane has an undefined result; other rows keep theirs."""
    return np.any(undefined, reduction.axis)


def after_scan(scan: Any, undefined: Any) -> Any:
    """What comes behind an undefined lane in its row is undefined."""
    axis = scan.axis
    if scan.reverse:
        return np.flip(np.logical_or.accumulate(np.flip(undefined, axis), axis), axis)
    return np.logical_or.accumulate(undefined, axis)


def load_and_store() -> None:
    """Loads, stores and atomics are looked at before they happen."""
    # Triton 3.9 has no block pointers.
    for name in ("BlockPointerHandle", "TensorDescHandle"):
        kind = getattr(interpreter, name, None)
        if kind is not None:
            kind.materialize_pointers = into_its_tensor(kind.materialize_pointers)
    load, store, change = (
        Builder.create_masked_load,
        Builder.create_masked_store,
        Builder.create_atomic_rmw,
    )
    compare = Builder.create_atomic_cas

    def create_masked_load(
        self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any
    ) -> Any:
        watch = watching.current
        if watch is None:
            return load(self, ptrs, mask, other, *rest, **named)

        # Triton's own block pointers give a plain array
        mask = mask if isinstance(mask, Handle) else Handle(mask, tl.int1)
        result = load(self, ptrs, watch.access("read", ptrs, mask), other, *rest, **named)
        if other is None and not mask.data.all():
            result.attr = {**result.attr, "undefined": ~np.asarray(mask.data, bool)}
        return result

    def create_masked_store(
        self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any
    ) -> Any:
        watch = watching.current
        mask = mask if isinstance(mask, Handle) else Handle(mask, tl.int1)
        if watch is not None:
            mask = watch.access("write", ptrs, mask, value)
        return store(self, ptrs, value, mask, *rest, **named)

    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        watch = watching.current
        if watch is None:
            return change(self, op, ptr, val, mask, *rest)
        # What was there before is known of the lanes that changed something.
        result = change(self, op, ptr, val, watch.access("atomic", ptr, mask, val), *rest)
        return marked(result, ~np.broadcast_to(np.asarray(mask.data, bool), result.data.shape))

    def create_atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        watch = watching.current
        if watch is None:
            return compare(self, ptr, cmp, val, *rest)

        all_lanes = Handle(np.ones_like(ptr.data, bool), tl.int1)
        lanes = watch.access("atomic", ptr, all_lanes, val).data
        if lanes.all():
            return compare(self, ptr, cmp, val, *rest)

        # It takes no mask, so it gets the lanes alone that may go to memory. The others are
        # reported, and find 0.
        found = np.zeros(lanes.shape, val.data.dtype)
        if lanes.any():
            kept = [
                Handle(np.broadcast_to(x.data, lanes.shape)[lanes], x.dtype)
                for x in (ptr, cmp, val)
            ]
            found[lanes] = compare(self, *kept, *rest).data
        return Handle(found, val.dtype.scalar)

    override(
        Builder,
        create_masked_load=create_masked_load,
        create_masked_store=create_masked_store,
        create_atomic_rmw=create_atomic_rmw,
        create_atomic_cas=create_atomic_cas,
    )


def into_its_tensor(method: Callable[..., Any]) -> Callable[..., Any]:
    """The pointers of a block pointer or descriptor lead into the tensor of its base."""

    def materialized(self: Any, *arguments: Any) -> Any:
        pointers, mask = method(self, *arguments)
        region = self.base.attr.get("region")
        if region is not None:
            pointers.attr = {**pointers.attr, "region": region}
        return pointers, mask

    return materialized


def watch_offsets() -> None:
    """A sum or product of int32 that does not fit marks its lanes; the mark counts where it becomes
    an address."""
    for name, op in (
        ("create_add", np.add),
        ("create_sub", np.subtract),
        ("create_mul", np.multiply),
    ):
        setattr(Builder, name, fitting(getattr(Builder, name), op))

    before = Builder.create_addptr

    def create_addptr(self: Any, ptr: Any, offset: Any) -> Any:
        result = before(self, ptr, offset)
        if watching.current is not None:
            known = dict(ptr.attr)
            for mark in MARKS:
                flags = [x.attr[mark] for x in (ptr, offset) if mark in x.attr]
                if flags:
                    either = functools.reduce(np.logical_or, flags)
                    known[mark] = np.broadcast_to(either, result.data.shape)
            result.attr = known
        return result

    Builder.create_addptr = create_addptr


def fitting(method: Callable[..., Any], op: Callable[..., Any]) -> Callable[..., Any]:
    """A method that computes `op`, and marks the lanes of its result that int32 cannot hold."""
    spread = watching.spreading("wrapped", method)

    def checked(self: Any, lhs: Any, rhs: Any) -> Any:
        result = spread(self, lhs, rhs)
        if watching.current is None or result.data.dtype != np.int32:
            return result
        wrapped = op(lhs.data, rhs.data, dtype=np.int64) != result.data
        if wrapped.any():
            result.attr = {**result.attr, "wrapped": result.attr.get("wrapped", False) | wrapped}
        return result

    return checked
