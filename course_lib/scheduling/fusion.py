"""Which loops run together.

In:  two groups of loop nodes, the producer before the consumer, each with what it reads and writes
     (`scheduling.dependencies`).
Out: `Fuse(saved)` or `No(reason, lost)`.
In PyTorch: `torch/_inductor/scheduler.py`, `Scheduler.can_fuse` and `InductorChoices.can_fuse`.

Fusing saves memory traffic: in one kernel, what one loop writes and the next reads stays in
registers, and what two read is read once. Two questions: is it *legal* (the same elements, in an
order that respects dependencies), and *worth it* (bytes saved)?
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import sympy

from course_lib.lowering.ir import Buffer, Product
from course_lib.scheduling.fitting import fit, join
from course_lib.scheduling.groups import Group
from course_lib.sizes import hint, same

Buffers = frozenset[Buffer]
FusionRule = Callable[[Group, Group, Buffers], str | None]
"""(producer, consumer, what is between them) → why not, or None."""

ONE_ROW = 16 * 1024  # A single row of so many columns should not be left to one thread
MANY_STEPS = 256  # A kernel of more nodes is too long for compilers
# What it costs to start a kernel on a GPU, as bytes: so many it moves in the same time
LAUNCH = 2**23
GOOD_PART = 8  # Siblings share a good part if it is an eighth of what the smaller one moves


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


def can_fuse(
    producer: Group, consumer: Group, rules: tuple[FusionRule, ...] | None = None
) -> Fuse | No:
    """Decide about one pair; the same answer feeds the scheduler, `explain` and the pictures.

    `LEGAL` alone: can it be?"""
    shared = producer.writes & consumer.reads or producer.reads & consumer.reads
    for rule in rules or RULES:
        if reason := rule(producer, consumer, shared):
            return No(reason, lost=sum(b.nbytes for b in shared))
    return Fuse(saved(producer, consumer))


def saved(producer: Group, consumer: Group) -> int:
    """Bytes of traffic that disappear. If there are none, and both are small kernels of a GPU: what
    the start of one of them costs (`LAUNCH`)."""
    both = join(producer, consumer)
    if both is None:
        return 0

    gain = producer.traffic + consumer.traffic - both.traffic
    if gain == 0 and is_small(producer) and is_small(consumer):
        return LAUNCH
    return gain


def is_small(group: Group) -> bool:
    """Does a GPU take longer to start this kernel than to run it?"""
    if group.is_extern or group.traffic >= LAUNCH:
        return False
    return next(iter(group.writes)).device.type == "cuda"


# --- is it legal?


def extern_kernels_stay_alone(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """Nothing is fused with a call of a library."""
    if producer.is_extern or consumer.is_extern:
        return "a library call (GEMM, convolution) cannot take loops in"
    return None


def products_take_epilogues(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """Beside a matrix product there is no second reduction."""
    has_product = any(isinstance(node, Product) for node in producer.nodes + consumer.nodes)
    if has_product and producer.columns and consumer.columns:
        return "a matrix product takes in loops over its result, not another loop over what it sums"
    return None


def same_device(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """A kernel runs in one place."""
    devices = sorted({str(buffer.device) for buffer in producer.writes | consumer.writes})
    if len(devices) > 1:
        return f"they run on different devices: {' and '.join(devices)}"
    return None


def same_iteration_space(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """There must be loops that serve both."""
    if fit(producer, consumer) is None:
        return f"loops differ: {producer.space} and {consumer.space}"
    return None


def same_elements(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """The consumer must read the very element that the producer has just computed."""
    joined_group = fit(producer, consumer)
    if joined_group and joined_group.mismatched:
        return f"the consumer needs other elements of {', '.join(joined_group.mismatched)} than the one that was just computed"
    return None


# --- is it worth it?


def something_to_save(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """One kernel must move less than two."""
    if saved(producer, consumer) == 0:
        return "no traffic would be saved"
    return None


def siblings_share_enough(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """Siblings only read the same: worth it if that is a good part of what they move."""
    if producer.writes & consumer.reads:
        return None

    # (Two small kernels of a GPU that share nothing pass: a start costs more than either moves.)
    gain = saved(producer, consumer)
    smaller = min(producer.traffic, consumer.traffic)
    if gain * GOOD_PART < smaller:
        return f"they only share {human_bytes(gain)} of what they read"
    return None


def one_row_needs_all_threads(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """A reduction of everything must be complete before anything after it: as one kernel, one
    thread would do it all."""
    both = join(producer, consumer)
    if both is None or both.rows:
        return None

    comes_after = consumer.loops != () and not consumer.columns
    if not producer.columns or not comes_after:
        return None

    columns = math.prod(hint(loop.size) for loop in both.columns)
    if columns >= ONE_ROW and producer.writes & consumer.reads:
        return f"a single row of {columns} columns would leave all but one thread idle"
    return None


def same_innermost_loop(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """Where one walks memory row by row and the other column by column, one of them would jump at
    every step."""
    joined_group = fit(producer, consumer)
    if joined_group is None or producer.columns or consumer.columns:
        return None

    one, other = neighbours(joined_group, producer), neighbours(joined_group, consumer)
    if one and other and not one & other:
        return "one walks through memory row by row, the other column by column"
    return None


def neighbours(both: Group, group: Group) -> set[sympy.Symbol]:
    """Loops of `both` whose next iteration stores the next element of what `group` computes."""
    nodes_of_group = set(group.nodes)
    stores = {member.body.write.index for member in both.members if member.node in nodes_of_group}

    symbols = set()
    for loop in both.loops:
        if any(same(index.coefficient(loop.symbol), 1) for index in stores):
            symbols.add(loop.symbol)
    return symbols


def not_too_long(producer: Group, consumer: Group, shared: Buffers) -> str | None:
    """C++ compilers take very long over very long functions."""
    if is_too_long(producer, consumer):
        steps = len(producer.nodes) + len(consumer.nodes)
        return f"{steps} steps are too many for one kernel"
    return None


def is_too_long(a: Group, b: Group) -> bool:
    """True if one kernel of both would have too many steps, whatever else may be said about
    them."""
    return len(a.nodes) + len(b.nodes) > MANY_STEPS


LEGAL: tuple[FusionRule, ...] = (
    extern_kernels_stay_alone,
    products_take_epilogues,
    same_device,
    same_iteration_space,
    same_elements,
)
WORTH: tuple[FusionRule, ...] = (
    something_to_save,
    siblings_share_enough,
    one_row_needs_all_threads,
    same_innermost_loop,
    not_too_long,
)
RULES: tuple[FusionRule, ...] = LEGAL + WORTH


def human_bytes(count: float) -> str:
    """'3.1 MB'."""
    if count < 1000:
        return f"{count} bytes"
    if count < 1e6:
        return f"{count / 1e3:.1f} KB"
    if count < 1e9:
        return f"{count / 1e6:.1f} MB"
    return f"{count / 1e9:.1f} GB"
