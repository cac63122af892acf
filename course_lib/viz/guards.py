"""Guards as a table: what was assumed, and which of the user's lines made it necessary.

In:  `Guard`s (`capture.sources`), and perhaps a `Failure` (`guards.check`). Out: a `Picture`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from course_lib.viz.code import CSS as CODE_CSS
from course_lib.viz.code import highlighted
from course_lib.viz.graphs import readable_path
from course_lib.viz.style import Picture, escape, ink, place, plural, tint
from course_lib.viz.tables import html_table

CSS = f"""
.cl-fig .cl-g {{ display: inline-block; border: 1.5px solid {ink("guards", 80)}; background: {tint("guards", 0.2)}; border-radius: 3px; padding: 0 7px; white-space: nowrap; }}
.cl-fig .cl-g::before {{ content: "◆ "; color: {ink("guards", 80)}; }}
.cl-fig .cl-failed {{ display: block; border-left: 4px dashed {ink("break", 80)}; background: {tint("break", 0.16)}; padding: 3px 8px; margin-top: 3px; }}
"""


def guard_table(guards: Iterable[Any], failure: Any = None, title: str = "") -> Picture:
    """Each guard as the Python expression that is tested on every call. `failure` (a `Failure`, or a `GuardFailed` event) is marked."""
    guards = list(guards)
    failed = getattr(failure, "guard", None)
    why = told(failure)
    rows, text = [], []
    for guard in guards:
        broken = failed is not None and guard == failed
        tests = [readable(test.text(guard.source.expr)) for test in guard.tests]
        expr = "<br>".join(f"<code>{'and ' if i else ''}{highlighted(test, 'python')[0]}</code>" for i, test in enumerate(tests))
        if broken:
            expr += f'<span class="cl-failed"><b>✕ did not hold:</b> {escape(why)}</span>'
        where = f"{place(guard.cause.filename, guard.cause.line)}" if guard.cause else "entry of the frame"
        line = f"<br><code>{highlighted(guard.cause.text, 'python')[0]}</code>" if guard.cause and guard.cause.text else ""
        subject = escape(about(guard.source.expr) if guard.kind == "state" else about(guard.source.expr + " ").strip())
        rows.append((f'<span class="cl-g">{escape(guard.kind)}</span>', f"<code>{subject}</code>", expr, f"{escape(where)}{line}"))
        because = f"# {where}: {guard.cause.text}" if guard.cause else f"# {where}"
        text.append(f"{'✕' if broken else ' '} {guard.kind:<9} {tests[0]}")
        text += [f"            and {test}" for test in tests[1:]]
        text[-1] += "    " + because
    kinds: dict[str, int] = {}
    for guard in guards:
        kinds[guard.kind] = kinds.get(guard.kind, 0) + 1
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    alt = f"{plural(len(guards), 'guard')}{f' of {title}' if title else ''}: {counted}." + (f" One did not hold: {why}." if failed is not None else "")
    caption = "What is tested before compiled code may be used again; on the right, your line that made the test necessary."
    body = f'<div class="cl-scroll">{html_table(rows, ("kind", "about", "must hold", "because of"))}</div>'
    if failed is not None:
        text.append(f"did not hold: {why}")
    return Picture(body, caption, alt, "\n".join(text), CODE_CSS + CSS)


def about(expr: str) -> str:
    """Whose property it is, as a reader says it: `self.ln.weight`, `torch (global)`."""
    expr = re.sub(r"^__func\.__globals__\['(\w+)'\]", r"global \1", readable_path(expr))
    expr = re.sub(r"^__func\.__closure__\[(\d+)\]\.cell_contents", r"closure cell \1", expr)
    return "torch's global state" if expr == "__func" else expr.replace("__func", "the function")


def readable(test: str) -> str:
    """A test without addresses: `<code object f at 0x7f…, file "…", line 3>` → `<code of f>`."""
    test = re.sub(r'<code object (\S+) at 0x[0-9a-f]+, file "[^"]*", line \d+>', r"<code of \1>", test)
    return re.sub(r" at 0x[0-9a-f]+", "", test)


def told(failure: Any) -> str:
    """What was found instead, without the place (it has a column of its own)."""
    if failure is None:
        return ""
    if hasattr(failure, "part"):
        return readable(f"{failure.part}: expected {failure.expected}, got {failure.got}")
    return readable(str(failure.got).split(" (assumed because of")[0])
