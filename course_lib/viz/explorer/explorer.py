"""The compiler explorer: every stage side by side; point at anything, and what belongs to it lights
up in all.

In:  a `Recording` (or, for `cl.explore(f, *args)`, a function and the arguments of one call).
Out: `Explorer`: a widget where widgets live, a table from line to kernel everywhere else, and a
     page of its own (`save`).

All data goes to the browser at once, and explorer.js asks nothing of the kernel: the saved page
does the same as the widget.
In PyTorch: the provenance page of `tlparse`, and Compiler Explorer (godbolt.org) for other
compilers.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from course_lib import events
from course_lib.compiler import compile
from course_lib.viz.explorer.provenance import PANES, Provenance, Row
from course_lib.viz.kit.arguments import a_function, recorded, text
from course_lib.viz.kit.style import Picture, escape, page, plural, sheet
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.capture.stack_words import in_words
from course_lib.viz.recording import Recording
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("explorer.js")
UNSEEN = "position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%)"
"""The looks of a page's heading that only a screen reader says: the explorer has its title in sight
already."""
FOLD_CALLS_FROM = 400
"""With more instructions than this, calls that were followed are folded."""
TABLE_ROWS = 40
"""So many operations stand in the table at once; the others unfold."""


class Explorer(Live):
    """What was recorded, from line to kernel. `provenance` has the rows and their links as data."""

    def __init__(self, recording: Recording, title: str = "", target: str = "") -> None:
        self.provenance = Provenance(
            recorded(recording, "an explorer"), text(target, "the target of an explorer")
        )
        frames, graphs = self.provenance.rows["bytecode"], self.provenance.rows["fx"]
        heads = [row.text for row in frames or graphs if row.kind == "head"]
        if not heads:
            raise LookupError(
                "nothing was compiled while recording. Was the function compiled before? cl.reset() forgets it."
            )
        self.title = title or heads[0]

    @cached_property
    def data(self) -> str:
        """Everything the browser needs, as JSON."""
        rows = list(self.provenance)
        number = {row: n for n, row in enumerate(rows)}
        # A value on a stack, as text → its place in the list that is sent
        strings: dict[str, int] = {}

        content = {
            "title": self.title,
            "panes": self.panes(number),
            "rows": [row_data(row, number, strings) for row in rows],
            "moments": [(moment.stage, moment.text) for moment in self.provenance.moments],
            "start": number[self.start],
            "folded": [number[row] for row in self.folded_calls()],
            # Last, for `row_data` fills it.
            "strings": list(strings),
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    def panes(self, number: dict[Row, int]) -> list[dict[str, Any]]:
        """The lists that have rows; `number` numbers all rows.

        A list has those from `start` up to `end`."""
        panes = []
        for key, pane in PANES.items():
            rows = self.provenance.rows[key]
            if not rows:
                continue

            start = number[rows[0]]
            # In training the ATen graph has both halves
            joint = key == "aten" and self.trains
            panes.append(
                {
                    "key": key,
                    "title": "Joint graph" if joint else pane.title,
                    "stage": pane.stage,
                    "one": pane.one,
                    "start": start,
                    "end": start + len(rows),
                    "size": sum(row.kind != "head" for row in rows),
                }
            )
        return panes

    def folded_calls(self) -> list[Row]:
        """The calls that are folded at first: where there are many instructions, each call that was
        followed."""
        instructions = self.provenance.rows["bytecode"]
        if len(instructions) <= FOLD_CALLS_FROM:
            return []
        return [row for row, after in pairwise(instructions) if 0 < row.depth < after.depth]

    @property
    def trains(self) -> bool:
        """Was a backward compiled, too?"""
        return any(row.kind in ("saved", "backward") for row in self.provenance.rows["aten"])

    @property
    def start(self) -> Row:
        """What is lit at first: an operation that became a line of a kernel; the first row, if
        there is none."""
        operations = [row for row in self.provenance.rows["fx"] if not row.kind]
        for row in operations:
            if any(other_row.pane == "code" for other_row in self.provenance.related(row)):
                return row
        return next(iter(operations or self.provenance))

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees: for each captured operation its line, and what
        became of it."""
        header = ("line", "operation", "ATen operators", "loops", "becomes part of")
        rows = [thread(self.provenance, row) for row in self.provenance.rows["fx"] if not row.kind]
        alt = f"From line to kernel: {plural(len(rows), 'operation')} of {self.title}."
        if not rows:
            return Picture(
                "<p>No operation was captured.</p>", "", alt, "No operation was captured."
            )
        marked = [[f"<code>{escape(cell)}</code>" for cell in row] for row in rows]
        body = f'<div class="cl-scroll">{html_table(marked[:TABLE_ROWS], header)}</div>'
        if len(rows) > TABLE_ROWS:
            more = f'<div class="cl-scroll">{html_table(marked[TABLE_ROWS:], header)}</div>'
            summary = f"{plural(len(rows) - TABLE_ROWS, 'operation')} more"
            body += f"<details><summary>{summary}</summary>{more}</details>"
        caption = "Each captured operation: the line it came from, and what became of it. (Run the cell for the explorer.)"
        return Picture(body, caption, alt, columns(rows, header))

    @cached_property
    def widget(self) -> Any:
        """The live form. Raises ImportError without `anywidget`."""
        import traitlets

        base: Any = widget_class(SCRIPT, "code", "explorer")

        class ExplorerWidget(base):
            """Everything happens in explorer.js."""

            data = traitlets.Unicode().tag(sync=True)

        return ExplorerWidget(data=self.data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the explorer as one page that needs no network (`.html`), or the table (`.txt`).

        Gives the path back."""
        path = Path(path)
        if path.suffix != ".html":
            return self.picture.save(path)
        heading = f'<h1 style="{UNSEEN}">{escape(self.title)}: explorer</h1>'
        body = f"<body><main>{heading}{self.html}</main></body>"
        path.write_text(page(body, f"{self.title}: explorer"), encoding="utf-8")
        return path

    @property
    def html(self) -> str:
        """The live form as a piece of HTML: it may stand in any page, with others of its kind."""
        # The widget takes the script as a module. In a page it is plain script, and `render` gets a
        # stand-in for the widget's model: its one field, `data`, is the text of the element before.
        script = SCRIPT.read_text(encoding="utf-8").replace("export default { render };", "")
        # Nothing in it may end the script
        data = self.data.replace("</", "<\\/").replace("<!--", "<\\u0021--")
        start = "const here = document.currentScript; "
        start += "render({ model: { get: () => here.previousElementSibling.textContent }, el: here.parentElement });"
        return (
            f'<style>{sheet("code", "explorer")}</style><div><script type="application/json">{data}</script>'
            f"<script>(() => {{\n{script}{start} }})();</script></div>"
        )

    def __repr__(self) -> str:
        return self.picture.text


def row_data(row: Row, number: dict[Row, int], strings: dict[str, int]) -> dict[str, Any]:
    """A row for the browser, without what is not there.

    The values on a stack come again and again: each is sent once (`strings`), and told by its
    number there."""
    # The page may have a hundred thousand rows: what the browser can make itself is not sent
    html = row.html if row.html != escape(row.text) else ""
    may_be_absent = {
        "text": row.text,
        "html": html,
        "label": row.label,
        "note": row.note,
        "kind": row.kind,
        "up": [number[origin] for origin in row.up],
    }
    content: dict[str, Any] = {name: value for name, value in may_be_absent.items() if value}
    content.update(text=row.text, depth=row.depth, at=row.at)

    if row.of:
        content["of"] = number[row.of]
    if row.stack:
        content["stack"] = [
            [strings.setdefault(value, len(strings)) for value in part] for part in row.stack
        ]
    return content


def thread(provenance: Provenance, row: Row) -> list[str]:
    """One captured operation as a line of the table."""
    related = provenance.related(row)
    rows_of_pane = {}
    for pane, rows in provenance.rows.items():
        rows_of_pane[pane] = [related_row for related_row in rows if related_row in related]

    lines = [
        f"{related_row.label}: {related_row.text.strip()}" for related_row in rows_of_pane["source"]
    ]
    # Groups have depth 1. (Their steps have depth 2, and are left out.)
    groups = [
        group_name(related_row) for related_row in rows_of_pane["groups"] if related_row.depth == 1
    ]
    return [
        lines[0] if lines else "",
        row.text.split(" = ")[0],
        listed(name_of(related_row) for related_row in rows_of_pane["aten"]),
        str(len(rows_of_pane["loops"])),
        listed(groups),
    ]


def group_name(group: Row) -> str:
    """A kernel by its name; a library call, which has none, in words."""
    if group.kind == "library":
        return "a library call"
    return group.text


def name_of(row: Row) -> str:
    """The operator of a node: 'add' of 'add_3 = add.Tensor(x, y)'."""
    return row.text.split(" = ")[-1].split("(")[0].split(".")[0]


def listed(names: Iterable[str]) -> str:
    """'add, mul ×3'."""
    count = Counter(names)
    return ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in count.items())


def explore(
    function: Callable[..., Any], *args: Any, train: bool = False, target: str = "", **kwargs: Any
) -> Explorer:
    """Compile `function` for one call with these arguments, make the call, and show every stage
    side by side: Python, bytecode, graphs, loops, fused groups, generated code.

    `train`: with gradients, so that forward and backward are compiled. `target` ("sm_90" for
    Triton, "x86-64-v3" for C++) adds the machine code. Raises what the call raises."""
    a_function(function, "explore")
    text(target, "the target of an explorer")

    # What torch.compile gave is asked for what it was made of, a module or a function: ours is to
    # compile that, not a call of torch's compiler.
    inner = getattr(function, "_torchdynamo_orig_callable", function)
    function = getattr(function, "_orig_mod", inner)

    recording = Recording()
    with torch.set_grad_enabled(train), events.listener(recording.note, in_words):
        compile(function)(*args, **kwargs)
    return Explorer(recording, target=target)
