"""How a Triton kernel covers its tensor: tiles, the programs that have them, and the lanes that a mask switches off.

In:  a `TritonSource` (`trace.tiles()` finds it), and the tile sizes if not those that a GPU would get.
Out: a `Picture`. A box is a tile; what is tinted lies in the tensor, what is dashed is masked; an arrow leads to the tile that
     the same program has next. Of many tiles the first and the last are drawn. Of a matrix product the operands too, so placed
     that a tile of the result stands right of the rows and below the columns that its program walks along.
In PyTorch there is no such picture; `TORCH_LOGS=output_code` shows the `xnumel`, `XBLOCK` and masks that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.codegen.triton import ProductTiling
from course_lib.viz.kit.asked import having, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns as table_text

WIDE, TALL, GAP, STEP, LEFT, TOP = 128.0, 46.0, 10.0, 24.0, 140.0, 44.0
"""px: a tile, what is between two programs, and between two tiles of one; the room for names on the left and on top."""
MASKED = "masked lanes: neither read nor written"


class Cover:
    """Which elements every tile of a kernel has. A program has a few rows (or elements) and one tile for all columns; or it walks
    along the columns; or, where sums are gathered down the columns, along its chunk of rows."""

    def __init__(self, tiling: Any, meta: Mapping[str, int]) -> None:
        self.tall, self.across = meta.get("ROWS", meta.get("BLOCK", 1)), meta.get("COLUMNS", 1)
        self.columns, self.programs, self.chunks = (
            max(1, tiling.columns),
            tiling.programs(meta),
            tiling.chunks,
        )
        self.rows = tiling.rows * (tiling.chunks or 1)
        self.rows_each = tiling.rows if tiling.chunks else self.tall
        self.is_flat, self.persistent = not tiling.columns, tiling.persistent
        self.steps = (
            -(-self.rows_each // self.tall) if self.chunks else -(-self.columns // self.across)
        )

    @property
    def lanes(self) -> int:
        """Of all tiles together."""
        return self.programs * self.steps * self.tall * self.across

    def row_span(self, program: int) -> tuple[int, int]:
        """The first row of a program, and the one after its last."""
        return program * self.rows_each, min((program + 1) * self.rows_each, self.rows)

    def inside(self, program: int, step: int) -> tuple[float, float]:
        """How much of a tile lies in the tensor: shares of its rows and of its columns."""
        first, end = self.row_span(program)
        left = 0 if self.chunks else step * self.across
        first = first + step * self.tall if self.chunks else first
        return min(end - first, self.tall) / self.tall, min(
            self.columns - left, self.across
        ) / self.across

    def masked(self, program: int) -> int:
        first, end = self.row_span(program)
        return self.lanes // self.programs - (end - first) * self.columns

    def heading(self, step: int) -> str:
        """What the tiles of one step have in common."""
        if self.chunks:
            return span("row", step * self.tall, min((step + 1) * self.tall, self.rows_each), "+")
        return span("column", step * self.across, min((step + 1) * self.across, self.columns))

    @property
    def walk(self) -> str:
        """How a program goes through what it has."""
        if self.is_flat:
            return ""
        if self.chunks:
            return f"; each walks down its {plural(self.rows_each, 'row')} in {plural(self.steps, 'step')} and sums on the way"
        return (
            "; each holds its rows at once"
            if self.persistent
            else f"; each walks its rows in {plural(self.steps, 'step')}"
        )


def span(what: str, first: int, end: int, sign: str = "") -> str:
    """'columns 0 to 299', or 'row 8' where it is one."""
    return (
        f"{what}s {sign}{first:,} to {end - 1:,}" if end - first > 1 else f"{what} {sign}{first:,}"
    )


@takes(source=having("the source of a Triton kernel (trace.tiles() finds it)", "tiling", "name"))
def tile_map(source: Any, meta: Mapping[str, int] | None = None, title: str = "") -> Picture:
    """The tiles of one kernel. `meta`: tile sizes to be other than they are (`ROWS` and `COLUMNS`, with `DEPTH` for a product; or
    `BLOCK`). Raises ValueError for one that it does not have."""
    usual = {
        name: size for name, size in source.tiling.meta(interpreted=False).items() if name.isupper()
    }
    other = {name: size for name, size in (meta or {}).items() if name.isupper()}
    if unknown := other.keys() - usual.keys():
        raise ValueError(
            f"this kernel's tiles have no size {', '.join(sorted(unknown))}; they have {', '.join(usual)}"
        )
    meta = usual | other
    if isinstance(source.tiling, ProductTiling):
        return product_map(source.tiling, meta, title or source.name)
    cover, name = Cover(source.tiling, meta), title or source.name
    if not cover.lanes:
        raise ValueError(f"{name} writes an empty tensor: no program is started")
    down, right = shown(cover.programs), shown(cover.steps)
    kind = "element" if cover.is_flat else "row"
    left = max(
        LEFT,
        *(
            16 + text_width(span(kind, *cover.row_span(one)), SMALL)
            for one in down
            if one is not None
        ),
    )
    width = left + len(right) * (WIDE + STEP) + (84 if cover.chunks else 18)
    svg = Svg(max(width, text_width(name, mono=True) + 8), TOP + len(down) * (TALL + GAP) + 6)
    svg.text(4, 16, name, bold=True, mono=True)
    rows = []
    for i, program in enumerate(down):
        y = TOP + i * (TALL + GAP)
        if program is None:
            svg.text(4, y + TALL / 2, f"… {cover.programs - len(down) + 1:,} more", dim=True)
            rows.append(("…", "", ""))
            continue
        has = span(kind, *cover.row_span(program))
        svg.text(4, y + 18, f"program {program:,}", bold=True)
        svg.text(4, y + 35, has, SMALL, dim=True)
        draw_program(svg, cover, program, right, left, y, headed=i == 0 and not cover.is_flat)
        rows.append(
            (f"program {program:,}", has, f"{plural(cover.masked(program), 'lane')} masked")
        )
    share = 100 * (1 - cover.rows * cover.columns / cover.lanes)
    sizes = ", ".join(f"{name}={size}" for name, size in meta.items())
    caption = f"{plural(cover.programs, 'program')} with {sizes}{cover.walk}. Tinted: in the tensor; dashed: masked"
    caption += f", {share:.1f} % of all lanes."
    alt = f"Tiles of {name}: {caption}"
    return Picture(
        f'<div class="cl-scroll">{svg.render(alt)}</div>',
        caption,
        alt,
        table_text(rows) + f"\n{caption}",
    )


def draw_program(
    svg: Svg,
    cover: Cover,
    program: int,
    steps: list[int | None],
    left: float,
    y: float,
    headed: bool,
) -> None:
    """The tiles of one program, in the order in which it has them."""
    for j, step in enumerate(steps):
        x = left + j * (WIDE + STEP)
        if step is None:
            svg.text(
                x + WIDE / 2,
                y + TALL / 2 + 4,
                f"… {cover.steps - len(steps) + 1:,} more",
                SMALL,
                anchor="middle",
                dim=True,
            )
        else:
            draw_tile(svg, cover, x, y, *cover.inside(program, step))
            if headed:
                svg.text(x, TOP - 8, cover.heading(step), SMALL, dim=True)
        if j + 1 < len(steps) or cover.chunks:
            svg.arrow(
                [(x + WIDE + 4, y + TALL / 2), (x + WIDE + STEP - 4, y + TALL / 2)],
                stage="codegen",
                line=1.2,
            )
    if cover.chunks:
        x = left + len(steps) * (WIDE + STEP)
        svg.box(
            x,
            y + TALL / 2 - 6,
            80,
            12,
            "scheduling",
            radius=0,
            strength=0.35,
            line=1.6,
            tip="stored when the walk is over",
        )
        if headed:
            svg.text(x, TOP - 8, "its sums", SMALL, dim=True)


def shown(count: int, most: int = 4) -> list[int | None]:
    """Numbers from 0 to `count`: the first and the last, and None for those between."""
    return list(range(count)) if count <= most else [*range(most - 2), None, count - 1]


def draw_tile(svg: Svg, cover: Cover, x: float, y: float, tall: float, wide: float) -> None:
    """A tile, of which the shares `tall` and `wide` lie in the tensor. Its lanes are drawn where they are few enough to count.
    Elements without rows and columns lie side by side."""
    rows, columns = (1, cover.tall) if cover.is_flat else (cover.tall, cover.across)
    tall, wide = (1.0, tall) if cover.is_flat else (tall, wide)
    svg.box(x, y, WIDE, TALL, "codegen", radius=0, strength=0, line=1.2, dashed=True, tip=MASKED)
    svg.box(x, y, WIDE * wide, TALL * tall, "codegen", radius=0, strength=0.35, line=1.6)
    if columns <= 16 and rows <= 4:
        for column in range(1, columns):
            svg.path(
                f"M{x + WIDE * column / columns:.1f} {y} v{TALL}",
                stage="codegen",
                line=0.8,
                opacity=0.6,
            )
        for row in range(1, rows):
            svg.path(
                f"M{x} {y + TALL * row / rows:.1f} h{WIDE}", stage="codegen", line=0.8, opacity=0.6
            )


SLIM, LOW, TILE = 36.0, 18.0, 96.0
"""px: a step along k in the left operand, and in the right one; how wide a tile of the result is."""


def program_of(down: int, across: int, tall: int, wide: int, together: int = 8) -> int:
    """Which program has this tile: `tl.swizzle2d` goes down `together` tiles, then on to the right."""
    first = down // together * together
    height = min(tall - first, together)
    return first * wide + across * height + down - first


def product_map(tiling: ProductTiling, meta: Mapping[str, int], name: str) -> Picture:
    """The tiles of a matrix product: left and right operand, the result, and what its first program walks along."""
    rows, columns, depth = meta["ROWS"], meta["COLUMNS"], meta["DEPTH"]
    tall, wide, steps = (
        -(-tiling.rows // rows),
        -(-tiling.columns // columns),
        -(-tiling.depth // depth),
    )
    downs, acrosses, walked = shown(tall), shown(wide), shown(steps)
    label = lambda what, at, tile, size: span(what, at * tile, min((at + 1) * tile, size))
    labels = {down: label("row", down, rows, tiling.rows) for down in downs if down is not None}
    left = max(16 + text_width(text, SMALL) for text in labels.values())
    middle, below = left + len(walked) * SLIM + 2 * STEP, TOP + len(walked) * LOW + STEP
    right = middle + len(acrosses) * (TILE + GAP)
    svg = Svg(max(right, text_width(name, mono=True) + 8), below + len(downs) * (TALL + GAP) + 6)
    svg.text(4, 16, name, bold=True, mono=True)
    svg.text(left, below - 8, f"left operand: {plural(steps, 'step')}", SMALL, dim=True)
    svg.text(middle - 8, TOP + 13, "right operand", SMALL, anchor="end", dim=True)
    x_of = {across: middle + place * (TILE + GAP) for place, across in enumerate(acrosses)}
    y_of = {down: below + place * (TALL + GAP) for place, down in enumerate(downs)}
    share = lambda at, tile, size: min(size - at * tile, tile) / tile
    for across, x in x_of.items():
        if across is not None:
            text = label("column", across, columns, tiling.columns)
            svg.text(x, TOP - 8, text if across == 0 else text.partition(" ")[2], SMALL, dim=True)
            for place, step in enumerate(walked):
                inside = (
                    share(step or 0, depth, tiling.depth),
                    share(across, columns, tiling.columns),
                )
                draw_operand(
                    svg, x, TOP + place * LOW, TILE, LOW, inside, across == 0, step is None
                )
    table = []
    for down, y in y_of.items():
        if down is None:
            svg.text(4, y + TALL / 2, f"… {tall - len(downs) + 1:,} more", dim=True)
            table.append(("…", "", "", ""))
            continue
        svg.text(4, y + TALL / 2 + 4, labels[down], SMALL, dim=True)
        for place, step in enumerate(walked):
            inside = (share(down, rows, tiling.rows), share(step or 0, depth, tiling.depth))
            draw_operand(svg, left + place * SLIM, y, SLIM, TALL, inside, down == 0, step is None)
        for across, x in x_of.items():
            if across is None:
                svg.text(
                    x + TILE / 2,
                    y + TALL / 2 + 4,
                    f"… {wide - len(acrosses) + 1:,} more",
                    SMALL,
                    anchor="middle",
                    dim=True,
                )
                continue
            program = f"program {program_of(down, across, tall, wide):,}"
            inside = (share(down, rows, tiling.rows), share(across, columns, tiling.columns))
            draw_operand(svg, x, y, TILE, TALL, inside, down == across == 0)
            low = 4 + TALL / 2 * inside[0] if inside[0] > 0.4 else 14 + TALL * inside[0]
            svg.text(x + 6, y + low, program, SMALL, bold=down == across == 0)
            masked = f"{plural(round(rows * columns * (1 - inside[0] * inside[1])), 'lane')} masked"
            table.append(
                (program, labels[down], label("column", across, columns, tiling.columns), masked)
            )
    svg.arrow(
        [(middle - 2 * STEP + 4, below + TALL / 2), (middle - 4, below + TALL / 2)],
        stage="codegen",
        line=1.2,
    )
    svg.arrow(
        [(middle + TILE / 2, below - STEP + 3), (middle + TILE / 2, below - 4)],
        stage="codegen",
        line=1.2,
    )
    sizes = ", ".join(f"{name}={size}" for name, size in meta.items())
    caption = f"{plural(tiling.programs(meta), 'program')} with {sizes}"
    caption += (
        f" for {tiling.batch:,} products, the first of which is drawn" if tiling.batch > 1 else ""
    )
    caption += f". Each has one tile of the result and walks along k in {plural(steps, 'step')}; what program 0 reads is filled. "
    idle = 100 * (1 - tiling.rows * tiling.columns / (tall * rows * wide * columns))
    caption += (
        f"Dashed: masked, {idle:.1f} % of all lanes of the result."
        if idle
        else "No lane of the result is masked."
    )
    alt = f"Tiles of {name}: {caption}"
    return Picture(
        f'<div class="cl-scroll">{svg.render(alt)}</div>',
        caption,
        alt,
        table_text(table) + f"\n{caption}",
    )


def draw_operand(
    svg: Svg,
    x: float,
    y: float,
    wide: float,
    tall: float,
    inside: tuple[float, float],
    read: bool,
    gap: bool = False,
) -> None:
    """A tile of a product, of whose rows and columns the shares `inside` lie in the matrix; `gap`: some are left out here."""
    if gap:
        return svg.text(x + wide / 2, y + tall / 2 + 4, "…", SMALL, anchor="middle", dim=True)
    svg.box(x, y, wide, tall, "codegen", radius=0, strength=0, line=1.2, dashed=True, tip=MASKED)
    svg.box(
        x,
        y,
        wide * inside[1],
        tall * inside[0],
        "codegen",
        radius=0,
        strength=0.35 if read else 0.08,
        line=1.6,
    )
