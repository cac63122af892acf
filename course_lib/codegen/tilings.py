"""How much of the work each program of a Triton kernel has: its tile.

In:  how many rows and columns a kernel walks over (`TritonKernel.choose_tiling`).
Out: a `Tiling`, which gives the launcher the sizes of a tile, the number of programs, and the warps
for each.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py` (`triton_config`,
`_persistent_reduction_configs`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, Self

from course_lib.lowering.indexing import power_of_two
from course_lib.sizes import hint, is_symbolic, same

STEP = 32  # Columns of a tile where rows are neighbours; it has as many rows, or more
LARGEST_TILE = 1 << 20  # Triton allows no more elements in one tile
MANY_ROWS = 4096  # Fewer rows: more programs, each with fewer rows and more columns
ELEMENTS = 1024  # Of a tile without columns
LOOPED_COLUMNS = 2048  # Of a tile that walks along a long row
LEAST_INTERPRETED = (
    2048  # In the interpreter, where a kernel that is compiled for few elements may get many
)
# A tile with columns has up to 2048 elements; up to 4096 where each program walks down many rows,
# tile by tile (`chunks`). Where rows are neighbours (`across`), a tile has at least 16 of them: so
# many are read in one piece.


@dataclass(frozen=True)
class Tiling:
    """What the launcher must know: the elements along each direction of the tile.

    These may be formulas of sizes. A tile is then chosen for the call that is compiled, and serves
    all others; how many programs there are is another number in each call."""

    rows: Any
    # 0 for a kernel without a reduction
    columns: Any
    persistent: bool = False
    # Rows, not columns, lie side by side in memory
    across: bool = False
    # Programs that walk along `rows`, if each does so
    chunks: Any = 0

    @property
    def in_this_call(self) -> Self:
        """This tiling with numbers in the place of formulas: those of the call that is compiled."""
        return replace(self, **{each.name: hint(getattr(self, each.name)) for each in fields(self)})

    @property
    def reduces(self) -> bool:
        return not same(self.columns, 0)

    def meta(self, interpreted: bool) -> dict[str, int]:
        """Tile sizes.

        In the interpreter a program costs a millisecond whatever its tile: a few large ones."""
        rows = hint(self.rows)
        if interpreted and is_symbolic(self.rows):
            rows = max(rows, LEAST_INTERPRETED)
        if not self.reduces:
            all_rows = power_of_two(min(rows, LARGEST_TILE))
            return {"BLOCK": all_rows if interpreted else ELEMENTS}

        columns = self.step(interpreted)
        if self.persistent:
            columns = power_of_two(self.columns)
        least = 1
        if self.across:
            least = STEP if rows > MANY_ROWS else 16

        room = 2048 if same(self.chunks, 0) else 4096
        if interpreted:
            room = LARGEST_TILE
        most = max(least, room // columns)
        return {"ROWS": min(power_of_two(rows), most), "COLUMNS": columns}

    def step(self, interpreted: bool) -> int:
        """Columns that a program takes at a time while it walks along a row."""
        if interpreted:
            columns = max(power_of_two(hint(self.columns)), LEAST_INTERPRETED)
            return min(LARGEST_TILE // STEP, columns)
        if not self.across:
            return LOOPED_COLUMNS
        return STEP if hint(self.rows) > MANY_ROWS else 128

    def programs(self, meta: Mapping[str, int]) -> Any:
        """How many programs are started."""
        if not same(self.chunks, 0):
            return self.chunks
        size = meta["ROWS"] if "ROWS" in meta else meta.get("BLOCK", 1)
        return divided_up(self.rows, size)

    def warps(self, meta: Mapping[str, int]) -> int:
        """Threads for a tile, in units of 32: eight to thirty-two elements for each thread."""
        each = 256
        if not same(self.chunks, 0) and meta["ROWS"] > 1:
            each = 1024
        elif self.persistent or self.across or not self.reduces:
            each = 512
        return min(16, max(4, math.prod(meta.values()) // each))


def divided_up(count: Any, size: int) -> Any:
    """How many parts of this size there are, the last one perhaps not full."""
    return (count + size - 1) // size


class Choice(NamedTuple):
    """The sizes of a tile, and the warps for each program."""

    meta: dict[str, int]
    warps: int

    def __str__(self) -> str:
        sizes = [f"{name}={size}" for name, size in self.meta.items()]
        return ", ".join([*sizes, f"{self.warps} warps"])


def product_tile(rows: int, columns: int, depth: int, stages: int, warps: int) -> Choice:
    """A tile of a matrix product's result.

    `depth`: of one step along k; `stages`: tiles of the operands that are fetched ahead."""
    meta = {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "num_stages": stages}
    return Choice(meta, warps)


PRODUCT_STEP = 64
"""If the depth of a product is a multiple of this, tiles of this depth need no mask, and only tiles
that need none are tried."""
PRODUCT_TILES = [
    product_tile(64, 64, 64, 4, 4),
    product_tile(16, 32, 128, 5, 4),
    product_tile(16, 64, 128, 5, 4),
    product_tile(32, 64, 64, 5, 4),
    product_tile(64, 128, 64, 4, 4),
    product_tile(128, 64, 64, 3, 4),
    product_tile(128, 128, 64, 3, 8),
    product_tile(128, 256, 64, 4, 8),
]
"""What is tried for a matrix product, the usual one first: rows, columns, depth, stages, warps."""


@dataclass(frozen=True)
class ProductTiling(Tiling):
    """A matrix product: tiles in both directions of the result, `batch` times, each a sum of
    `depth` products."""

    batch: int = 1
    depth: int = 1

    @property
    def tiles(self) -> list[Choice]:
        """Tile sizes and warps. Where tiles of 64 along k need no mask, none has one."""
        if self.depth % PRODUCT_STEP:
            return list(PRODUCT_TILES)
        return [tile for tile in PRODUCT_TILES if self.depth % tile.meta["DEPTH"] == 0]

    def meta(self, interpreted: bool) -> dict[str, int]:
        return self.tiles[0].meta

    def programs(self, meta: Mapping[str, int]) -> int:
        down = divided_up(self.rows, meta["ROWS"])
        across = divided_up(self.columns, meta["COLUMNS"])
        return self.batch * down * across

    def warps(self, meta: Mapping[str, int]) -> int:
        return self.tiles[0].warps
