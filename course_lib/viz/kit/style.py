"""The one visual language: colours, fonts, and `Picture`, what every drawing function gives back.

A colour a stage (Okabe–Ito, safe for colour-blind readers), always with a label or a shape beside
it. No picture sets its own. Text is `currentColor` throughout, so it is whatever the notebook's
theme says; fills are translucent tints of a stage's colour; coloured text and lines are that colour
mixed with `currentColor`. So one picture reads well in a light and in a dark theme, without asking
which it is.
"""

from __future__ import annotations

import functools
import html
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.languages import translate_html

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
"""Stage → colour of its lines. Eager is grey; the real torch.compile is dark slate, always with a
dashed edge."""
FILLS = {**COLOURS, "codegen": "#F0E442"}
"""Stage → colour of its tints."""

SANS = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'Liberation Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
SMALL, NORMAL, LARGE = 11.5, 13, 15
"""Font sizes in px. Nothing is smaller than 11."""
DIM = 0.75
"""Opacity of text that stands back; still 4.5:1 on either theme."""

SHEETS = Path(__file__).with_name("css")


@functools.cache
def sheet(*names: str) -> str:
    """The CSS of a figure: the colours and fonts as custom properties, `css/figure.css`, and the
    sheets named."""
    properties = [f"--cl-{stage.replace('.', '-')}: {colour};" for stage, colour in COLOURS.items()]
    properties += [
        f"--cl-codegen-fill: {FILLS['codegen']};",
        f"--cl-sans: {SANS};",
        f"--cl-mono: {MONO};",
    ]
    rules = [(SHEETS / f"{name}.css").read_text(encoding="utf-8") for name in ("figure", *names)]
    text = re.sub(r"/\*.*?\*/", "", "\n".join(rules), flags=re.S)
    text = re.sub(r"\s*([{};,])\s*", r"\1", text)  # saved notebooks carry a copy with every figure
    return f".cl-fig{{{''.join(properties)}}}{text.strip()}"


def escape(text: object) -> str:
    """Text for HTML and SVG, in content and in attributes."""
    return html.escape(str(text), quote=True)


def ink(stage: str, share: int = 55) -> str:
    """A stage's colour for text and lines: mixed with the theme's own, so that it is darker on
    light and lighter on dark.

    share: how much of it is the stage's, in percent. Text needs more contrast than a line."""
    return f"color-mix(in srgb, {COLOURS[stage]} {share}%, currentColor)"


@dataclass(frozen=True)
class Picture:
    """A figure that survives in a saved notebook.

    body: one `<svg>`, or HTML; caption: one line that says what to see; alt: the same for someone
    who cannot.
    text: the content as plain text, the same on every machine: terminals show it, nbval compares
    it.
    sheets: the style sheets of `css/` that this kind of picture needs.
    """

    body: str
    caption: str
    alt: str
    text: str
    sheets: tuple[str, ...] = ()

    @property
    def html(self) -> str:
        """The figure as a piece of HTML that stands alone.

        Code hosts, and JupyterLab until a notebook is trusted, take style sheets and drawings out.
        Then the plain form is what is seen: only the figure's own style sheet hides it and shows
        the rest."""
        caption = ""
        if self.caption:
            caption = f"<figcaption>{escape(self.caption)}</figcaption>"
        style = f"<style>{sheet(*self.sheets)}</style>"
        plain = f'<pre class="cl-plain">{escape(self.text)}</pre>'
        body = f'{plain}<div class="cl-rich" hidden style="display: none">\n{self.body}\n</div>'
        figure = f'<figure class="cl-fig" aria-label="{escape(self.alt)}">{style}{body}{caption}</figure>'
        return translate_html(figure)

    @property
    def embedded(self) -> str:
        """The figure for a `page` that has the style sheets itself."""
        caption = ""
        if self.caption:
            caption = f"<figcaption>{escape(self.caption)}</figcaption>"
        return (
            f'<figure class="cl-fig" aria-label="{escape(self.alt)}">{self.body}{caption}</figure>'
        )

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What Jupyter shows and saves. (`include` and `exclude` are its own, and not needed.)"""
        return {"text/html": self.html, "text/plain": self.text}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a file: `.svg` (drawings only), `.html`, or `.txt`.

        Gives the path back.

        Raises ValueError for another suffix, or `.svg` for what is not one drawing."""
        path = Path(path)
        if path.suffix == ".svg":
            # One alone can be a file of its own: a table has none, and some pictures have several.
            drawings = re.findall(r"<svg.*?</svg>", self.body, flags=re.S)
            if len(drawings) != 1:
                raise ValueError("this picture is not a drawing: save it as .html or .txt")
            path.write_text(standalone_svg(drawings[0]), encoding="utf-8")
        elif path.suffix == ".html":
            path.write_text(page(self.html, self.caption), encoding="utf-8")
        elif path.suffix == ".txt":
            path.write_text(self.text + "\n", encoding="utf-8")
        else:
            raise ValueError(f"a picture is saved as .svg, .html or .txt, not '{path.suffix}'")
        return path


def page(body: str, title: str, sheets: tuple[str, ...] = ()) -> str:
    """A whole HTML page that follows the reader's own light or dark setting; with `sheets`, it has
    the style sheets for all figures in it."""
    look = "body { color-scheme: light dark; background: Canvas; color: CanvasText; margin: 24px; }"
    look += sheet(*sheets) if sheets else ""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    head += f"<style>{look}</style>"
    return f'<!doctype html><html lang="en">{head}\n{body}</html>\n'


def standalone_svg(svg: str) -> str:
    """A drawing as a file: text is dark, or light where the reader asked for a dark theme."""
    dark = "@media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }"
    look = f"<style>svg {{ color-scheme: light dark; color: #1f2328 }} {dark}</style>"
    return re.sub(r"(<svg\b[^>]*>)", lambda tag: tag[1] + look, svg, count=1) + "\n"


def place(filename: str, line: int | None = None) -> str:
    """A file as a reader knows it: the cell of a notebook, a file of an installed package from the
    package on, else its name (an `__init__.py` with its folder)."""
    filename = filename.replace("\\", "/")
    if re.search(r"ipykernel_\d+/|^<ipython-input", filename):
        short = "this notebook"
    elif match := re.search(r"(?:site|dist)-packages/(.+)$", filename):
        short = match[1]
    else:
        parts = filename.split("/")
        short = "/".join(parts[-2:] if parts[-1] == "__init__.py" else parts[-1:])
    return f"{short}:{line}" if line else short


def human_bytes(count: Any) -> str:
    """12582912 → '12.6 MB'. A size that is not a number yet is shown as it is."""
    try:
        size = float(count)
    except (TypeError, ValueError):
        return f"{count} B"
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            if unit == "B":
                return f"{size:.0f} B"
            return f"{size:.3g} {unit}"
        size /= 1000
    if size < 1000:
        return f"{size:,.3g} GB"
    return f"{size:,.0f} GB"


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
    if noun.endswith("ry"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}s"


def short_types(text: str) -> str:
    """'x: float32[2, 3]' → 'x: f32[2, 3]', as PyTorch's own graph printouts write it."""
    letters = {"float": "f", "bfloat": "bf", "complex": "c", "int": "i", "uint": "u"}
    return re.sub(r"\b(b?float|u?int|complex)(\d+)\b", lambda m: letters[m[1]] + m[2], text)
