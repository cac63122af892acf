"""What came from what, from the user's line to the line of a kernel, and back.

In:  a `Recording`. Out: `Provenance`: one list of `Row`s for each stage (`PANES`), and the
     `Moment`s in which they were made.

A row knows the rows of earlier stages that it came from (`up`): a line of a kernel its loop, a loop
its ATen nodes, an ATen node the captured node, that one its instruction, and an instruction its
line and the call that it is in. No link is guessed from texts: they are what the compiler's own
objects carry (`InstructionRun.node`, `meta["origin"]`, `origins`, `line_of`).
In PyTorch: `torch/_inductor/debug.py` (`create_mapping_pre_post_grad_nodes`), which `tlparse` shows
as its provenance page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from course_lib import events
from course_lib.viz.explorer.autograd_rows import AutogradRows
from course_lib.viz.explorer.capture_rows import CaptureRows
from course_lib.viz.explorer.kernel_rows import KernelRows
from course_lib.viz.explorer.rows import PANES, Lists, Moment, Pane, Row, Sees
from course_lib.viz.kit.style import human_seconds
from course_lib.viz.pictures.capture.bytecode_table import frame_runs
from course_lib.viz.recording import Recording


class Provenance:
    """All rows of a recording, by pane.

    `target` ("sm_90", "x86-64-v3") asks for the kernels' machine code too."""

    def __init__(self, recording: Recording, target: str = "") -> None:
        lists = read(recording, target)
        self.rows = lists.rows
        self.moments = lists.moments

        self.down: dict[Row, list[Row]] = {}
        """`Row.up` the other way round."""
        self.parts: dict[Row, list[Row]] = {}
        """`Row.of` the other way round."""
        for row in self:
            for origin in row.up:
                self.down.setdefault(origin, []).append(row)
            if row.of:
                self.parts.setdefault(row.of, []).append(row)

    def __iter__(self) -> Iterator[Row]:
        for rows in self.rows.values():
            yield from rows

    def related(self, row: Row) -> set[Row]:
        """The row, all that it came from, and all that came from it.

        A kernel stands for all that it holds."""
        row = row.of or row
        # What came from a kernel's steps came from the kernel.
        start = {row, *row.up} if row.kind == "group" else {row}

        def above(one: Row) -> Iterable[Row]:
            return one.up

        def below(one: Row) -> Iterable[Row]:
            return self.down.get(one, ())

        return {*self.parts.get(row, ()), *closure(start, above), *closure(start, below)}

    def find(self, pane: str, text: str) -> Row:
        """The first row of a pane that holds `text`. Raises LookupError."""
        for row in self.rows[pane]:
            if text in row.text and row.kind != "head":
                return row
        raise LookupError(f"no row of '{PANES[pane].title}' holds {text!r}")


def closure(start: Iterable[Row], after: Callable[[Row], Iterable[Row]]) -> set[Row]:
    """The rows `start`, the rows that `after` gives for them, those that it gives for these, and so
    on."""
    all_rows = set(start)
    waiting = list(all_rows)
    while waiting:
        new = set(after(waiting.pop())) - all_rows
        all_rows |= new
        waiting += new
    return all_rows


def read(recording: Recording, target: str) -> Lists:
    """Go through the events once, in order, and make rows and moments."""
    lists = Lists()
    capture = CaptureRows(lists, frame_runs(recording))
    autograd = AutogradRows(lists, capture)
    kernels = KernelRows(lists, target)
    without_rows = OtherMoments(lists)
    sees: Sees = {
        **capture.sees,
        **autograd.sees,
        **kernels.sees,
        **without_rows.sees,
    }

    lists.moment("eager", "before the call")
    capture.add_frames()
    for event in recording.events:
        if type(event) in sees:
            sees[type(event)](event)

    date_untold(lists.rows["bytecode"])
    return lists


def date_untold(rows: list[Row]) -> None:
    """No event tells of a heading, or of a call that did not come back (moment 0, "before the
    call"): it gets the moment of what follows it."""
    later = 0
    for row in reversed(rows):
        row.at = row.at or later
        later = row.at


STAGES = {
    "capture": "capture",
    "trace": "autograd",
    "partition": "autograd",
    "lower": "lowering",
    "schedule": "scheduling",
    "memory": "scheduling",
    "build": "codegen",
}
"""The name of a stage that was timed → the stage whose colour it has; others have that of
"runtime"."""


class OtherMoments:
    """What happens and makes no row."""

    def __init__(self, lists: Lists) -> None:
        self.lists = lists
        self.sees: Sees = {
            events.StageTimed: self.stage_timed,
            events.GuardFailed: self.guard_failed,
            events.FellBack: self.fell_back,
            events.Autotuned: self.autotuned,
        }

    def stage_timed(self, event: events.StageTimed) -> None:
        stage = STAGES.get(event.stage, "runtime")
        self.lists.moment(stage, f"{event.stage}: {human_seconds(event.seconds)}")

    def guard_failed(self, event: events.GuardFailed) -> None:
        words = f"a guard of {event.name} fails: {event.guard}; it got {event.got}"
        self.lists.moment("guards", words)

    def fell_back(self, event: events.FellBack) -> None:
        self.lists.moment("break", f"{event.what}: {event.why}")

    def autotuned(self, event: events.Autotuned) -> None:
        name = getattr(event.kernel, "label", event.kernel)
        self.lists.moment("lowering", f"{name}: {event.choice} was fastest")


__all__ = ["PANES", "Moment", "Pane", "Provenance", "Row"]
