"""How the tiles of a stream lie in a GPU's fast memory, and which of them cannot be together.

In:  a `Stream` and its tile.
Out: the same tile, or one of fewer rows.

Where a tile has 64 rows, Hopper's `wgmma` multiplies it. Each operand has a descriptor: its
address, and its swizzle, the order in which a tile's rows of 32, 64 or 128 bytes lie.

    two operands of one kernel    bytes of a row    descriptor (64 bits)
    keys   [64, 64] float16       128               address + 0x40000040_00000000
    keys1  [64, 32] float16        64               address + 0x80000020_00000000

Both lie at the same address, `keys1` when `keys` is not needed any more. So their descriptors
differ in the upper half only, and `ptxas` of CUDA 12.8, which Triton 3.6 and 3.7 use for this GPU,
computes the lower half once. It then takes it from a register that has another value by now: the
product is of other numbers, or the address is outside of the memory. With one swizzle for all
operands both descriptors are the same. With fewer rows `mma` multiplies, which has no descriptors.

Measured: docs/design/attention.md, "What an H200 found".
In PyTorch: no counterpart. (Such kernels: https://github.com/triton-lang/triton/issues/11366.)
"""

from collections.abc import Iterator

from course_lib.codegen.tilings import Choice
from course_lib.lowering.indexing import power_of_two
from course_lib.scheduling.stream_nodes import Factor, Stream

# `wgmma` multiplies blocks of so many rows
ROWS_OF_WGMMA = 64
# Bytes of the longest row of a tile that is swizzled as one
LONGEST_SWIZZLE = 128
# `tl.dot` takes no smaller side
LEAST_SIDE = 16


def with_one_swizzle(tile: Choice, stream: Stream, in_halves: bool) -> Choice:
    """The tile, with so few rows that `mma` multiplies it if its operands are swizzled in different
    ways."""
    meta = tile.meta
    if meta["ROWS"] < ROWS_OF_WGMMA or len(swizzles(stream, meta, in_halves)) == 1:
        return tile
    return Choice({**meta, "ROWS": ROWS_OF_WGMMA // 2}, tile.warps)


def swizzles(stream: Stream, meta: dict[str, int], in_halves: bool) -> set[int]:
    """How many bytes of each operand are swizzled as one."""
    size = 2 if in_halves else 4
    lengths = [*lengths_of_rows(stream, meta["ROWS"], meta["COLUMNS"])]
    # Tensor cores take values of float32 only with the columns as neighbours.
    if not in_halves:
        lengths.append(meta["COLUMNS"])
    return {min(LONGEST_SWIZZLE, max(LEAST_SIDE, length) * size) for length in lengths}


def lengths_of_rows(stream: Stream, rows: int, columns: int) -> Iterator[int]:
    """How many numbers of each operand are neighbours in its tile."""
    for scores in stream.scores:
        yield from neighbours(scores.left, rows)
        yield from neighbours(scores.right, columns)
    for end in stream.ends:
        yield from neighbours(end.values, columns)


def neighbours(factor: Factor, rows: int) -> Iterator[int]:
    """How many numbers of an operand are neighbours in its tile. Where those of a row are none in
    memory, Triton may lay the tile down in columns."""
    for node in factor.tree.walk():
        if node.op == "load":
            yield power_of_two(factor.columns.size)
            if node.detail[1].coeff(factor.columns.symbol) != 1:
                yield rows
