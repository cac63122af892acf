"""Which loops run together.

In:  two groups of loop nodes, the producer before the consumer, each with what it reads and writes (`scheduling.dependencies`).
Out: `Fuse(saved)` or `No(reason, lost)`.
In PyTorch: `torch/_inductor/scheduler.py`, `Scheduler.can_fuse` and `InductorChoices.can_fuse`.

Fusing saves memory traffic: in one kernel, what one loop writes and the next reads stays in registers, and what two read is read
once. Two questions: is it *legal* (the same elements, in an order that respects dependencies), and *worth it* (bytes saved)?
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from course_lib.lowering.ir import Buffer, Product
from course_lib.scheduling.groups import Group, fit, join

# (producer, consumer, what is between them) → why not, or None
Rule = Callable[[Group, Group, frozenset[Buffer]], str | None]
ONE_ROW = 16 * 1024  # Columns from which on a single row should not be left to one thread
MANY_STEPS = 256  # Nodes from which on a kernel is too long for compilers
LAUNCH = 2**23  # Bytes that a GPU moves while a kernel starts


class Fuse(NamedTuple):
    """Yes: `saved` bytes of traffic disappear."""

    saved: int

    def __str__(self) -> str:
        return f"fuse, saves {human_bytes(self.saved)}"


class No(NamedTuple):
    """No, and what it costs: `lost` bytes still travel through memory because of `reason`."""

    reason: str
    lost: int = 0

    def __str__(self) -> str:
        return f"keep apart: {self.reason} ({human_bytes(self.lost)} through memory)"


def can_fuse(producer: Group, consumer: Group, rules: tuple[Rule, ...] | None = None) -> Fuse | No:
    """Decide about one pair; the same answer feeds the scheduler, `explain` and the pictures. `LEGAL` alone: can it be?"""
    shared = producer.writes & consumer.reads or producer.reads & consumer.reads
    for rule in rules or RULES:
        if reason := rule(producer, consumer, shared):
            return No(reason, lost=sum(b.nbytes for b in shared))
    return Fuse(saved(producer, consumer))


def saved(producer: Group, consumer: Group) -> int:
    """Bytes of traffic that disappear; of two small kernels on a GPU, those that could move while one of them starts."""
    both = join(producer, consumer)
    gain = 0 if both is None else producer.traffic + consumer.traffic - both.traffic
    return gain or (LAUNCH if both and is_small(producer) and is_small(consumer) else 0)


def is_small(group: Group) -> bool:
    """Does a GPU take longer to start this kernel than to run it?"""
    return (
        not group.is_extern
        and group.traffic < LAUNCH
        and next(iter(group.writes)).device.type == "cuda"
    )


def extern_kernels_stay_alone(
    producer: Group, consumer: Group, shared: frozenset[Buffer]
) -> str | None:
    return (
        "a library call (GEMM, convolution) cannot take loops in"
        if producer.is_extern or consumer.is_extern
        else None
    )


def products_take_epilogues(
    producer: Group, consumer: Group, shared: frozenset[Buffer]
) -> str | None:
    if (
        producer.columns
        and consumer.columns
        and any(isinstance(n, Product) for n in producer.nodes + consumer.nodes)
    ):
        return "a matrix product takes in loops over its result, not another loop over what it sums"
    return None


def same_device(producer: Group, consumer: Group, shared: frozenset[Buffer]) -> str | None:
    devices = sorted({str(buffer.device) for buffer in producer.writes | consumer.writes})
    return f"they run on different devices: {' and '.join(devices)}" if len(devices) > 1 else None


def same_iteration_space(producer: Group, consumer: Group, shared: frozenset[Buffer]) -> str | None:
    return (
        f"loops differ: {producer.space} and {consumer.space}"
        if fit(producer, consumer) is None
        else None
    )


def same_elements(producer: Group, consumer: Group, shared: frozenset[Buffer]) -> str | None:
    if (found := fit(producer, consumer)) and found.mismatched:
        return f"the consumer needs other elements of {', '.join(found.mismatched)} than the one that was just computed"
    return None


def something_to_save(producer: Group, consumer: Group, shared: frozenset[Buffer]) -> str | None:
    return "no traffic would be saved" if saved(producer, consumer) == 0 else None


def siblings_share_enough(
    producer: Group, consumer: Group, shared: frozenset[Buffer]
) -> str | None:
    """Siblings only read the same: worth it if that is a good part of what they move."""
    if producer.writes & consumer.reads:
        return None
    gain, least = saved(producer, consumer), min(producer.traffic, consumer.traffic)
    return f"they only share {human_bytes(gain)} of what they read" if gain * 8 < least else None


def one_row_needs_all_threads(
    producer: Group, consumer: Group, shared: frozenset[Buffer]
) -> str | None:
    """A reduction of everything must be complete before anything after it: as one kernel, one thread would do it all."""
    both = join(producer, consumer)
    if (
        both is None
        or not producer.columns
        or both.rows
        or consumer.loops == ()
        or consumer.columns
    ):
        return None
    columns = math.prod(loop.size for loop in both.columns)
    if columns >= ONE_ROW and consumer.writes and producer.writes & consumer.reads:
        return f"a single row of {columns} columns would leave all but one thread idle"
    return None


def same_innermost_loop(producer: Group, consumer: Group, shared: frozenset[Buffer]) -> str | None:
    """Where one walks memory row by row and the other column by column, one of them would jump at every step."""
    if (found := fit(producer, consumer)) is None or producer.columns or consumer.columns:
        return None
    steps = []
    for group in (producer, consumer):
        stores = {member.body.write.index for member in found.members if member.node in group.nodes}
        steps.append(
            {loop.symbol for loop in found.loops for f in stores if f.coefficient(loop.symbol) == 1}
        )
    if steps[0] and steps[1] and not steps[0] & steps[1]:
        return "one walks through memory row by row, the other column by column"
    return None


def not_too_long(producer: Group, consumer: Group, shared: frozenset[Buffer]) -> str | None:
    steps = len(producer.nodes) + len(consumer.nodes)
    return f"{steps} steps are too many for one kernel" if steps > MANY_STEPS else None


LEGAL: tuple[Rule, ...] = (
    extern_kernels_stay_alone,
    products_take_epilogues,
    same_device,
    same_iteration_space,
    same_elements,
)
WORTH: tuple[Rule, ...] = (
    something_to_save,
    siblings_share_enough,
    one_row_needs_all_threads,
    same_innermost_loop,
    not_too_long,
)
RULES: tuple[Rule, ...] = LEGAL + WORTH


def human_bytes(count: float) -> str:
    """'3.1 MB'."""
    if count < 1000:
        return f"{count} bytes"
    power = 1 + (count >= 1e6) + (count >= 1e9)
    return f"{count / 1000**power:.1f} {' KMG'[power]}B"
