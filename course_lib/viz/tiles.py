"""How a Triton kernel covers its tensor: tiles, the programs that have them, and the lanes that a mask switches off.

In:  a `TritonSource` (`trace.tiles()` finds it), and the tile sizes if not those that a GPU would get.
Out: a `Picture`. A box is a tile; what is tinted lies in the tensor, what is dashed is masked. Of many tiles the first and
     the last are drawn.
In PyTorch there is no such picture; `TORCH_LOGS=output_code` shows the `xnumel`, `XBLOCK` and masks that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.viz.style import SMALL, Picture, plural
from course_lib.viz.svg import Svg
from course_lib.viz.tables import columns

WIDE, TALL, GAP, LEFT, TOP = 128.0, 46.0, 10.0, 190.0, 44.0
"""px: a tile, what is between two, and the room for names on the left and on top."""


def tile_map(source: Any, meta: Mapping[str, int] | None = None, title: str = "") -> Picture:
    """The tiles of one kernel. `meta` are its tile sizes (`ROWS` and `COLUMNS`, or `BLOCK`)."""
    tiling = source.tiling
    meta = dict(meta or tiling.meta(interpreted=False))
    tall = meta.get("ROWS", meta.get("BLOCK", 1))
    across = meta.get("COLUMNS", 1) if tiling.columns else 0
    programs = tiling.programs(meta)
    steps = -(-tiling.columns // across) if across else 1
    down, right = shown(programs), shown(steps)
    svg = Svg(LEFT + len(right) * (WIDE + GAP) + 48, TOP + len(down) * (TALL + GAP) + 6)
    svg.text(4, 16, title or source.name, bold=True, mono=True)
    rows = []
    for i, program in enumerate(down):
        y = TOP + i * (TALL + GAP)
        if program is None:
            svg.text(4, y + TALL / 2, f"… {programs - len(down) + 1:,} more", dim=True)
            rows.append(("…", "", ""))
            continue
        first, last = program * tall, min((program + 1) * tall, tiling.rows)
        svg.text(4, y + 18, f"program {program:,}", bold=True)
        what, end = "row" if across else "element", f" to {last - 1:,}" if last - first > 1 else ""
        span = f"{what}{'s' * bool(end)} {first:,}{end}"
        svg.text(4, y + 35, span, SMALL, dim=True)
        used = (last - first) / tall
        for j, step in enumerate(right):
            x = LEFT + j * (WIDE + GAP)
            if step is None:
                svg.text(x + WIDE / 2, y + TALL / 2 + 4, "…", anchor="middle")
                continue
            if across:
                inside = (min((step + 1) * across, tiling.columns) - step * across) / across
                draw_tile(svg, x, y, inside, used, across, tall)
            else:
                draw_tile(svg, x, y, used, 1.0, tall, 1)
            if i == 0 and across:
                end = min((step + 1) * across, tiling.columns) - 1
                svg.text(x, TOP - 8, f"columns {step * across:,} to {end:,}", SMALL, dim=True)
        masked = tall * max(1, steps * across) - (last - first) * max(1, tiling.columns)
        rows.append((f"program {program:,}", span, f"{plural(masked, 'lane')} masked"))
    lanes = programs * tall * max(1, steps * across)
    elements = tiling.rows * max(1, tiling.columns)
    share = 100 * (1 - elements / lanes)
    sizes = ", ".join(f"{name}={size}" for name, size in meta.items())
    walk = (
        "each holds its rows at once"
        if tiling.persistent
        else f"each walks its rows in {plural(steps, 'step')}"
        if across
        else ""
    )
    caption = f"{plural(programs, 'program')} with {sizes}{'; ' + walk if walk else ''}. Tinted: in the tensor; dashed: masked"
    caption += f", {share:.1f} % of all lanes."
    alt = f"Tiles of {title or source.name}: {caption}"
    return Picture(f'<div class="cl-scroll">{svg.render(alt)}</div>', caption, alt, columns(rows) + f"\n{caption}")


def shown(count: int, most: int = 4) -> list[int | None]:
    """Numbers from 0 to `count`: the first and the last, and None for those between."""
    return list(range(count)) if count <= most else [*range(most - 2), None, count - 1]


def draw_tile(svg: Svg, x: float, y: float, wide: float, tall: float, columns: int, rows: int) -> None:
    """A tile, of which the shares `wide` and `tall` lie in the tensor. Its lanes are drawn where they are few enough to count."""
    svg.box(
        x, y, WIDE, TALL, "codegen", radius=0, strength=0, line=1.2, dashed=True, tip="masked lanes: neither read nor written"
    )
    svg.box(x, y, WIDE * wide, TALL * tall, "codegen", radius=0, strength=0.35, line=1.6)
    if columns <= 16 and rows <= 4:
        for column in range(1, columns):
            svg.path(f"M{x + WIDE * column / columns:.1f} {y} v{TALL}", stage="codegen", line=0.8, opacity=0.6)
        for row in range(1, rows):
            svg.path(f"M{x} {y + TALL * row / rows:.1f} h{WIDE}", stage="codegen", line=0.8, opacity=0.6)
