"""The one visual language: colours, fonts, and `Picture`, what every drawing function gives back.

A colour a stage (Okabe–Ito, safe for colour-blind readers), always with a label or a shape beside it. No picture sets its own.
Text is `currentColor` throughout, so it is whatever the notebook's theme says; fills are translucent tints of a stage's colour, and
coloured text is that colour mixed with `currentColor`. So one picture reads well in a light and in a dark theme, without asking which.
"""

from __future__ import annotations

import html
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLOURS = {
    "frames": "#0072B2",
    "capture": "#0072B2",
    "guards": "#E69F00",
    "break": "#D55E00",
    "autograd": "#CC79A7",
    "lowering": "#56B4E9",
    "scheduling": "#009E73",
    "codegen": "#8A6D00",
    "runtime": "#6B7280",
    "eager": "#6B7280",
    "torch.compile": "#475569",
}
"""Stage → colour of its lines. Eager is grey; the real torch.compile is dark slate, always with a dashed edge."""
FILLS = {**COLOURS, "codegen": "#F0E442"}
"""Stage → colour of its tints."""

SANS = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'Liberation Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
SMALL, NORMAL, LARGE = 11.5, 13, 15
"""Font sizes in px. Nothing is smaller than 11."""
DIM = 0.75
"""Opacity of text that stands back; still 4.5:1 on either theme."""

CSS = """
.cl-fig { margin: .4em 0 1em; color: var(--jp-content-font-color1, var(--vscode-foreground, inherit)); font: 13px/1.45 SANS; overflow-x: auto; }
.cl-fig svg { display: block; background: transparent; max-width: none; height: auto; flex: none; }
.cl-fig figcaption { font-size: 13px; margin-top: .5em; max-width: 860px; opacity: .85; }
.cl-fig code, .cl-fig pre, .cl-fig .cl-m { font-family: var(--jp-code-font-family, MONO); font-size: 12px; background: transparent; color: inherit; }
.cl-fig summary { cursor: pointer; }
.cl-fig .cl-scroll { overflow: auto; max-height: 880px; }
.cl-fig.cl-fig table.cl-t { border-collapse: collapse; table-layout: auto; margin: 0; border: 0; font-size: 13px; color: inherit; }
.cl-fig.cl-fig table.cl-t tr { background: transparent; }
.cl-fig.cl-fig table.cl-t th, .cl-fig.cl-fig table.cl-t td { text-align: left; vertical-align: top; padding: 3px 12px 3px 6px; white-space: normal; color: inherit;
  border: 0; border-bottom: 1px solid color-mix(in srgb, currentColor 16%, transparent); max-width: 560px; overflow-wrap: anywhere; }
.cl-fig.cl-fig table.cl-t th { font-weight: 600; border-bottom-width: 2px; overflow-wrap: normal; }
.cl-fig.cl-fig table.cl-t .cl-n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.cl-fig .cl-dim { opacity: .75; }
""".replace("SANS", SANS).replace("MONO", MONO).strip()  # fmt: skip


def escape(text: object) -> str:
    """Text for HTML and SVG, in content and in attributes."""
    return html.escape(str(text), quote=True)


def tint(stage: str, strength: float = 0.18) -> str:
    """A translucent fill of a stage's colour, for CSS."""
    return f"{FILLS[stage]}{round(strength * 255):02x}"


def ink(stage: str, share: int = 55) -> str:
    """A stage's colour for text and lines: mixed with the theme's own, so that it is darker on light and lighter on dark."""
    return f"color-mix(in srgb, {COLOURS[stage]} {share}%, currentColor)"


@dataclass(frozen=True)
class Picture:
    """A figure that survives in a saved notebook.

    body: one `<svg>` or HTML; caption: one line that says what to see; alt: the same for someone who cannot; text: the content as plain
    text, the same on every machine (terminals show it, nbval compares it); css: rules that only this kind of picture needs.
    """

    body: str
    caption: str
    alt: str
    text: str
    css: str = ""

    @property
    def html(self) -> str:
        """The figure as a piece of HTML that stands alone."""
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        style = f"<style>{CSS}\n{self.css}</style>" if self.css else f"<style>{CSS}</style>"
        return f'<figure class="cl-fig" aria-label="{escape(self.alt)}">{style}\n{self.body}\n{caption}</figure>'

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.text}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file: `.svg` (drawings only), `.html`, or `.txt`. Gives the path back.

        Raises ValueError for another suffix, or `.svg` for a table."""
        path = Path(path)
        if path.suffix == ".svg":
            if not self.body.startswith("<svg"):
                raise ValueError("this picture is not a drawing: save it as .html or .txt")
            path.write_text(standalone_svg(self.body), encoding="utf-8")
        elif path.suffix == ".html":
            path.write_text(page(self.html, self.caption), encoding="utf-8")
        elif path.suffix == ".txt":
            path.write_text(self.text + "\n", encoding="utf-8")
        else:
            raise ValueError(f"a picture is saved as .svg, .html or .txt, not '{path.suffix}'")
        return path


def page(body: str, title: str) -> str:
    """A whole HTML page that follows the reader's own light or dark setting."""
    look = "body { color-scheme: light dark; background: Canvas; color: CanvasText; margin: 24px; }"
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{look}</style>\n{body}</html>\n'


def standalone_svg(svg: str) -> str:
    """A drawing as a file: text is dark, or light where the reader asked for a dark theme."""
    look = "<style>svg { color: #1f2328 } @media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>"
    return re.sub(r"(<svg\b[^>]*>)", lambda tag: tag[1] + look, svg, count=1) + "\n"


def place(filename: str, line: int | None = None) -> str:
    """A file as a reader knows it: the cell of a notebook, a file of an installed package from the package on, else its name."""
    filename = filename.replace("\\", "/")
    if re.search(r"ipykernel_\d+/|^<ipython-input|^<stdin>|^<string>", filename):
        short = "this notebook"
    elif match := re.search(r"(?:site|dist)-packages/(.+)$", filename):
        short = match[1]
    else:
        short = filename.rsplit("/", 1)[-1]
    return f"{short}:{line}" if line else short


def human_bytes(count: Any) -> str:
    """12582912 → '12.6 MB'. A size that is not a number yet is shown as it is."""
    try:
        size = float(count)
    except (TypeError, ValueError):
        return f"{count} B"
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} GB" if size < 1000 else f"{size:,.0f} GB"


def human_seconds(seconds: float) -> str:
    """0.0123 → '12.3 ms'."""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def plural(count: int, noun: str) -> str:
    """'1 kernel', '5 kernels', '2 entries'."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{count:,} {noun}s"


def short_types(text: str) -> str:
    """'x: float32[2, 3]' → 'x: f32[2, 3]', as PyTorch's own graph printouts write it."""
    return re.sub(r"\b(b?float|u?int|complex)(\d+)\b", lambda m: {"float": "f", "bfloat": "bf", "complex": "c"}.get(m[1], m[1][0]) + m[2], text)
