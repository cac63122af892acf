"""What every access of a launch is held against: the tensors that were given, and what is known of
each lane.

In:  the tensors of a launch; then each load, store and atomic, with its addresses and mask.
Out: the lanes that may go to memory; a sentence for each lane that may not.
In triton-viz: `clients/sanitizer`, which looks at the storage of a tensor; here it is the tensor
itself, by its pointer.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import triton

from course_lib.simulator.refused import GPUFault, shown
from course_lib.simulator.settings import settings

MOST_RECORDED = 50_000_000
"""Accesses of one launch that are kept for the search for races: 2 GB. Later ones are not looked
at."""

DOES = {"read": "reads", "write": "writes", "atomic": "changes"}
"""What a kernel does to an address, in words."""

MOST_SENTENCES = 100
"""Faults of one launch that are kept, where they are collected."""

OURS = (str(Path(triton.__file__).parent), str(Path(__file__).parent))
"""Lines of these folders are not the learner's."""


@dataclass(eq=False)
class Region:
    """One tensor of a launch: `name` as the kernel calls it, its addresses from `base` to `end`."""

    name: str
    tensor: torch.Tensor
    base: int = 0
    end: int = 0

    has_gaps: bool = False

    def __post_init__(self) -> None:
        self.base = self.end = self.tensor.data_ptr()
        if self.tensor.numel():
            steps = zip(self.tensor.shape, self.tensor.stride(), strict=True)
            elements = 1 + sum((size - 1) * stride for size, stride in steps)
            self.end = self.base + elements * self.tensor.element_size()
            self.has_gaps = self.lies_apart(elements)

    @property
    def steps(self) -> list[tuple[int, int, int]]:
        """(stride, size, dimension) of each dimension along which one goes on in memory, the
        longest stride first."""
        dimensions = zip(self.tensor.stride(), self.tensor.shape, range(self.tensor.dim()))
        return sorted((step for step in dimensions if step[0] and step[1] > 1), reverse=True)

    def lies_apart(self, elements: int) -> bool:
        """Does other memory lie between the first and the last element, as between the rows of
        `x[:, :10]`? `elements`: how many fit in there.

        Where elements overlap (`as_strided`), nobody can say which one an address is: then the
        answer is no."""
        inner = 0
        for stride, size, _ in reversed(self.steps):
            if stride <= inner:
                return False
            inner += (size - 1) * stride
        return math.prod(size for _, size, _ in self.steps) < elements

    def holds(self, addresses: Any) -> Any:
        """Which addresses between `base` and `end` belong to an element."""
        left = (addresses - np.uint64(self.base)) // np.uint64(self.tensor.element_size())
        good = np.ones(left.shape, bool)
        for stride, size, _ in self.steps:
            good &= left // np.uint64(stride) < np.uint64(size)
            left = left % np.uint64(stride)
        return good & (left == 0)

    def contains(self, addresses: Any, size: int) -> Any:
        """Which addresses have `size` bytes of this tensor behind them."""
        last = addresses + np.uint64(size - 1)
        good = (addresses >= np.uint64(self.base)) & (last < np.uint64(self.end))
        if self.has_gaps:
            good &= self.holds(addresses) & self.holds(last)
        return good

    def at(self, address: int) -> str:
        """An address as `tensor[index]`; with one number for what lies outside."""
        place = (address - self.base) // self.tensor.element_size()
        if not self.base <= address < self.end or self.tensor.dim() < 2:
            return f"{self.name}[{place}]"

        indices = [0] * self.tensor.dim()
        for stride, _, dimension in self.steps:
            indices[dimension], place = divmod(place, stride)
        return f"{self.name}[{', '.join(map(str, indices))}]"

    def end_in_words(self, address: int) -> str:
        """Why an address is not inside."""
        if address < self.base:
            return f"it lies before {self.name}"
        if address < self.end:
            shape = tuple(self.tensor.shape)
            return f"the shape of {self.name} is {shape}, and other memory lies between"
        last = (self.end - self.base) // self.tensor.element_size() - 1
        return f"{self.name} ends at {self.name}[{last}]"


@dataclass
class Access:
    """What one line did in one program: addresses of the lanes that were not masked out."""

    kind: str
    line: str
    program: int
    addresses: Any
    # The numbers of these lanes in the block; None: all of them
    lanes: Any
    shape: tuple[int, ...]
    # The smallest and the largest address: two accesses that lie apart need no closer look
    low: int
    high: int
    # What was stored
    values: Any = None
    # May an address come twice in this one store?
    repeated: bool = False
    # How many atomics this program had done before
    atomics_before: int = 0


@dataclass
class Watch:
    """The watch of one launch."""

    regions: list[Region]
    grid: tuple[int, int, int]
    # For tensors that are marked (`never_written`): which elements nobody has written yet
    never_written: dict[Region, Any] = field(default_factory=dict)
    accesses: list[Access] = field(default_factory=list)
    # Lanes in these accesses
    recorded: int = 0
    # The program that runs: its place in the grid
    program: tuple[int, int, int] = (0, 0, 0)
    # The number of a program → how many atomics it has done
    atomics: dict[int, int] = field(default_factory=dict)
    # What was found so far
    sentences: list[str] = field(default_factory=list)

    @property
    def number(self) -> int:
        """The program's number in the grid."""
        x, y, z = self.program
        return (x * self.grid[1] + y) * self.grid[2] + z

    def report(self, sentence: str) -> None:
        """Raise it, or collect it and go on."""
        if not settings.collect:
            raise GPUFault([sentence])
        if sentence not in self.sentences and len(self.sentences) < MOST_SENTENCES:
            self.sentences.append(sentence)

    def who(self, lane: Any, shape: tuple[int, ...], program: int | None = None) -> str:
        """`program 3, lane 17`."""
        names = self.program if program is None else np.unravel_index(program, self.grid)
        return f"program {program_name(names, self.grid)}, lane {lane_name(int(lane), shape)}"

    def access(self, kind: str, pointer: Any, mask: Any, values: Any = None) -> Any:
        """Look at one access before it happens.

        Gives the mask of the lanes that may go to memory."""
        addresses = np.asarray(pointer.data)
        lanes = np.broadcast_to(np.asarray(mask.data, bool), addresses.shape)
        whole = bool(lanes.all())
        active_addresses = addresses.reshape(-1) if whole else addresses[lanes]
        if not active_addresses.size and "undefined" not in mask.attr:
            return mask

        line = line_of_the_kernel()
        self.look_at_taints(kind, line, pointer, mask, values, lanes)
        if not active_addresses.size:
            return mask

        # the numbers of the active lanes; None: all of them are
        places = None if whole else np.flatnonzero(lanes)
        region = pointer.attr.get("region")
        # Bytes of an element; a bool takes a whole one
        size = max(1, pointer.dtype.scalar.element_ty.primitive_bitwidth // 8)

        is_inside = self.inside(region, active_addresses, size)
        if is_inside is not None:
            numbers = np.arange(lanes.size) if places is None else places
            first = first_false(is_inside)
            self.outside(
                kind, line, region, int(active_addresses[first]), numbers[first], lanes.shape
            )

            # the lanes outside of the tensor do not go to memory
            keep = np.zeros(lanes.size, bool)
            keep[numbers[is_inside]] = True
            mask = type(mask)(keep.reshape(lanes.shape), mask.dtype)
            lanes, active_addresses = mask.data, active_addresses[is_inside]
            places = np.flatnonzero(keep)
            if not active_addresses.size:
                return mask

        if self.never_written:
            self.look_at_unwritten(kind, line, region, active_addresses, places, lanes.shape)
        self.record(kind, line, active_addresses, places, lanes, values)
        return mask

    def inside(self, region: Region | None, active_addresses: Any, size: int) -> Any:
        """None if all addresses are within the tensor; else which of them are.

        region: None for a pointer of which nobody knows where it came from: then any tensor of the
        launch will do. size: bytes of an element."""
        # The quick answer, for nearly all: they lie in one tensor.
        low, high = int(active_addresses.min()), int(active_addresses.max()) + size
        regions = self.regions if region is None else [region]
        if any(r.base <= low and high <= r.end and not r.has_gaps for r in regions):
            return None
        good = np.zeros(active_addresses.shape, bool)
        for r in regions:
            good |= r.contains(active_addresses, size)
        return None if good.all() else good

    def outside(
        self, kind: str, line: str, region: Region | None, address: int, lane: int, shape: Any
    ) -> None:
        """Report an access outside of the tensor (`region`), or outside of all (None)."""
        if region is None:
            where = f"address {address:#x}, which lies in no tensor of this launch"
        else:
            where = f"{region.at(address)}, outside: {region.end_in_words(address)}"
        self.report(f"{line}: {self.who(lane, shape)} {DOES[kind]} {where}")

    def look_at_taints(
        self, kind: str, line: str, pointer: Any, mask: Any, values: Any, lanes: Any
    ) -> None:
        """Offsets that left int32, and values that no load gave."""
        for handle, taint, sentence in (
            (
                pointer,
                "wrapped",
                "{does} {where} by an offset beyond int32: it wraps around; use `.to(tl.int64)`",
            ),
            (
                pointer,
                "undefined",
                "{does} {where}: the place comes from a lane that a mask left without a value",
            ),
            (
                mask,
                "undefined",
                "{does} {where} or not: the mask comes from a lane that a mask left without a "
                "value; give the load an `other=`",
            ),
            (
                values,
                "undefined",
                "{does} {where} with a lane that a mask left without a value; give the load an "
                "`other=`",
            ),
        ):
            bad = None if handle is None else handle.attr.get(taint)
            if bad is None:
                continue
            # A mask that nobody knows may be true as well.
            counted = True if handle is mask else lanes
            bad = np.broadcast_to(bad, lanes.shape) & counted
            if bad.any():
                lane = np.flatnonzero(bad)[0]
                where = self.place(pointer, np.asarray(pointer.data).reshape(-1)[lane])
                said = sentence.format(does=DOES[kind], where=where)
                self.report(f"{line}: {self.who(lane, lanes.shape)} {said}")

    def place(self, pointer: Any, address: Any) -> str:
        """`tensor[index]`, for the tensor that the pointer came from."""
        region = pointer.attr.get("region")
        return f"address {int(address):#x}" if region is None else region.at(int(address))

    def decision(self, decides: str, handle: Any) -> None:
        """A branch, or the number of a loop's turns: it must not hang on a lane without a value.

        decides: what the kernel does by it, as "branches"."""
        undefined = handle.attr.get("undefined")
        if undefined is None or not np.any(undefined):
            return
        self.report(
            f"{line_of_the_kernel()}: program {program_name(self.program, self.grid)} {decides} by "
            "a number of a lane that a mask left without a value; give the load an `other=`"
        )

    def look_at_unwritten(
        self,
        kind: str,
        line: str,
        region: Region | None,
        active_addresses: Any,
        places: Any,
        shape: Any,
    ) -> None:
        """Has anybody written what is read here?"""
        unwritten = self.never_written.get(region) if region is not None else None
        if region is None or unwritten is None:
            return

        # Addresses become the numbers of elements.
        elements = (
            (active_addresses - np.uint64(region.base)) // region.tensor.element_size()
        ).astype(int)
        if kind == "write":
            unwritten[elements] = False
            return

        # One report for an access: the first lane that reads such an element
        bad = np.flatnonzero(unwritten[elements])
        if bad.size:
            lane = bad[0] if places is None else places[bad[0]]
            where = region.at(int(active_addresses[bad[0]]))
            self.report(f"{line}: {self.who(lane, shape)} reads {where}, which nobody has written")

    def record(
        self, kind: str, line: str, active_addresses: Any, places: Any, lanes: Any, values: Any
    ) -> None:
        """Keep an access for the search for races.

        active_addresses: the addresses of the lanes that are not masked out. places: which lanes
        these are; None if all. values: what is stored."""
        if self.recorded > MOST_RECORDED:
            return
        self.recorded += active_addresses.size
        number = self.number
        before = self.atomics.get(number, 0)
        if kind == "atomic":
            self.atomics[number] = before + 1

        stored = None
        repeated = False
        if values is not None and kind == "write":
            stored = np.broadcast_to(values.data, lanes.shape)
            stored = stored.reshape(-1) if places is None else stored.reshape(-1)[places]
            # Addresses that only rise cannot come twice.
            repeated = not bool((active_addresses[1:] > active_addresses[:-1]).all())

        access = Access(
            kind,
            line,
            program=number,
            addresses=active_addresses,
            lanes=places,
            shape=lanes.shape,
            low=int(active_addresses.min()),
            high=int(active_addresses.max()),
            values=stored,
            repeated=repeated,
            atomics_before=before,
        )
        self.accesses.append(access)


current: Watch | None = None
"""The watch of the launch that is running; None when nothing is checked."""

unwritten_tensors: dict[int, tuple[Any, Any]] = {}
"""Address → (weak reference to the tensor, which of its elements nobody has written)."""


def program_name(program: Any, grid: Any) -> str:
    """The program's number; in a grid of more dimensions its place."""
    coordinates = [int(n) for n in program]
    while len(coordinates) > 1 and grid[len(coordinates) - 1] == 1:
        coordinates.pop()
    return str(coordinates[0] if len(coordinates) == 1 else tuple(coordinates))


def lane_name(lane: int, shape: tuple[int, ...]) -> str:
    """The lane's number; in a block of more dimensions its place."""
    if len(shape) < 2:
        return str(lane)
    return f"({', '.join(str(int(n)) for n in np.unravel_index(lane, shape))})"


def first_false(flags: Any) -> int:
    """The place of the first False."""
    return int(np.argmin(flags))


known_code: dict[Any, bool] = {}
"""Code object → is it the learner's?"""


def is_the_learners(code: Any) -> bool:
    """Is this code neither Triton's nor the simulator's?"""
    if code not in known_code:
        known_code[code] = not code.co_filename.startswith(OURS)
    return known_code[code]


def line_of_the_kernel() -> str:
    """`file:line` of the innermost line that is neither Triton's nor the simulator's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_the_learners(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return "?"
    return f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}"


def spreading(taint: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, with a mark for each lane of its result: a lane is marked if that lane of some
    operand is.

    taint: the name of the mark, a key of the operands' `attr`.
    """

    def spread(self: Any, *operands: Any) -> Any:
        result = method(self, *operands)
        marks = [x.attr[taint] for x in operands if taint in getattr(x, "attr", ())]
        if marks and current is not None:
            mark = marks[0]
            for other in marks[1:]:
                mark = mark | other
            result.attr = {**result.attr, taint: np.broadcast_to(mark, result.data.shape)}
        return result

    return spread
