"""Guards as a table: what was assumed, and which of the user's lines made it necessary.

In:  `Guard`s (`capture.sources`), and perhaps a `Failure` (`guards.check`). Out: a `Picture`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

from course_lib.viz.code import highlighted
from course_lib.viz.graphs import readable_path
from course_lib.viz.style import Picture, escape, place, plural
from course_lib.viz.tables import html_table


def guard_table(guards: Iterable[Any], failure: Any = None, title: str = "") -> Picture:
    """Each guard as the Python expression that is tested on every call; `failure` (a `Failure` or a `GuardFailed`) is marked."""
    guards = list(guards)
    failed = getattr(failure, "guard", None)
    why = told(failure)
    rows, text = [], []
    for guard in guards:
        broken = failed is not None and guard == failed
        path = about(guard)
        expr = readable(" and ".join(test.text(path) for test in guard.tests))
        cell = f'<code title="{escape(guard.expr)}">{highlighted(expr, "python")[0]}</code>'
        if broken:
            cell += f'<div class="cl-torn"><b>✕ did not hold:</b> {escape(why)}</div>'
        where = f"{place(guard.cause.filename, guard.cause.line)}" if guard.cause else "entry of the frame"
        line = (
            f"<br><code>{highlighted(guard.cause.text, 'python')[0]}</code>" if guard.cause and guard.cause.text else ""
        )
        kind = f'<span class="cl-g">{escape(guard.kind)}</span>'
        rows.append((kind, f"<code>{escape(about(guard))}</code>", cell, f"{escape(where)}{line}"))
        because = f"# {where}: {guard.cause.text}" if guard.cause else f"# {where}"
        first = f"{'✕' if broken else ' '} {guard.kind:<9} "
        text += textwrap.wrap(f"{expr}    {because}", 110, initial_indent=first, subsequent_indent=" " * 16)
    kinds: dict[str, int] = {}
    for guard in guards:
        kinds[guard.kind] = kinds.get(guard.kind, 0) + 1
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    alt = f"{plural(len(guards), 'guard')}{f' of {title}' if title else ''}: {counted}."
    alt += f" One did not hold: {why}." if failed is not None else ""
    caption = (
        "What is tested before compiled code may be used again; on the right, your line that made the test necessary."
    )
    body = f'<div class="cl-scroll">{html_table(rows, ("kind", "about", "must hold", "because of"))}</div>'
    if failed is not None:
        text.append(f"did not hold: {why}")
    return Picture(body, caption, alt, "\n".join(text), ("code", "guards", "break"))


def about(guard: Any) -> str:
    """The path of a guard's source as a reader says it: `self.ln.weight`, `torch`. (`guard.expr` has it as it is tested.)"""
    if guard.kind == "state":
        return "torch's settings"
    expr = re.sub(r"^__func\.__globals__\['(\w+)'\]", r"\1", readable_path(guard.source.expr))
    expr = re.sub(r"^__func\.__closure__\[(\d+)\]\.cell_contents", r"cell\1", expr)
    return expr.replace("__func", "function")


def readable(test: str) -> str:
    """Tests without addresses: `<code object f at 0x7f…, file "…", line 3>` → `<code of f>`."""
    test = re.sub(r'<code object (\S+) at 0x[0-9a-f]+, file "[^"]*", line \d+>', r"<code of \1>", test)
    return re.sub(r" at 0x[0-9a-f]+", "", test)


def told(failure: Any) -> str:
    """What was found instead, without the place (it has a column of its own)."""
    if failure is None:
        return ""
    if hasattr(failure, "part"):
        return readable(f"{failure.part}: expected {failure.expected}, got {failure.got}")
    return readable(str(failure.got).split(" (assumed because of")[0])
