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
    create_idiv create_ashr""".split()
"""Operations lane by lane: a lane without a value gives one without a value."""

OTHER_SHAPE = """
    create_reshape create_trans create_expand_dims create_broadcast create_splat create_join create_cat""".split()
"""Operations that move lanes: what is known of a lane moves with it."""

MARKS = ("undefined", "wrapped")
"""What may be true of a lane: it has no value; its number went past the range of its integers. Each
is a key of `handle.attr`, with an array of bools. "region" is a third key, of a whole pointer: the
tensor that it points into."""


def put_in_place() -> None:
    for name in SAME_SHAPE:
        setattr(Builder, name, watching.spreading("undefined", getattr(Builder, name)))
    for name in OTHER_SHAPE:
        setattr(Builder, name, moving(getattr(Builder, name)))
    select_between_lanes()
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

        known = {mark: handle.attr[mark] for mark in ("region",) if mark in handle.attr}
        for mark in MARKS:
            if mark in handle.attr:
                flags = [
                    Handle(np.broadcast_to(x.attr.get(mark, False), x.data.shape), tl.int1)
                    if isinstance(x, Handle)
                    else x
                    for x in arguments
                ]
                known[mark] = method(self, *flags).data
        result.attr = {**result.attr, **known}
        return result

    return moved


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


def combine_lanes() -> None:
    """A sum, a scan or a product that takes in a lane without a value has none itself."""
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = combining(kind.apply_impl)
    before = Builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        result = before(self, a, b, d, *rest)
        if watching.current is not None and any(unknown(x) for x in (a, b, d)):
            result.attr = {**result.attr, "undefined": np.ones(result.data.shape, bool)}
        return result

    Builder.create_dot = create_dot


def unknown(handle: Any) -> bool:
    """Is there a lane whose value is undefined?"""
    return "undefined" in handle.attr and bool(handle.attr["undefined"].any())


def combining(method: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction or scan: with one undefined lane among its inputs, all lanes of its results are
    undefined."""

    def combined(self: Any, inputs: Any) -> Any:
        results = method(self, inputs)
        if watching.current is not None and any(unknown(x.handle) for x in inputs):
            for result in results:
                flags = np.ones(result.handle.data.shape, bool)
                result.handle.attr = {**result.handle.attr, "undefined": flags}
        return results

    return combined


def load_and_store() -> None:
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
        if watch is not None:
            mask = watch.access("atomic", ptr, mask, val)
        return change(self, op, ptr, val, mask, *rest)

    def create_atomic_cas(self: Any, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        watch = watching.current
        if watch is not None:
            watch.access("atomic", ptr, Handle(np.ones_like(ptr.data, bool), tl.int1), val)
        return compare(self, ptr, cmp, val, *rest)

    override(
        Builder,
        create_masked_load=create_masked_load,
        create_masked_store=create_masked_store,
        create_atomic_rmw=create_atomic_rmw,
        create_atomic_cas=create_atomic_cas,
    )


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
