"""What each part of the compiler is worth: all of it, then without one part at a time.

In:  a `Workload`.
Out: an `Outcome` for eager, for the whole compiler and for each compiler with a part taken out; and
     their table.

A part is taken out by replacing a stage of the `Pipeline`, so that the rest of the compiler stays
as it is. Results are checked against eager first, as everywhere in `bench`: a compiler without a
part is slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import course_lib
from course_lib import Pipeline, events
from course_lib.bench.compare import (
    Contender,
    Outcome,
    Program,
    Workload,
    compare,
    count,
    eager,
    watch_ours,
)
from course_lib.bench.report import speedup
from course_lib.scheduling import No
from course_lib.viz.kit.style import Picture, escape, human_bytes
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.recording import Recording


def keep_apart(producer: Any, consumer: Any) -> No:
    """A `fuse` that never fuses."""
    return No("fusion is switched off")


PARTS: dict[str, dict[str, Any]] = {
    "all of it": {},
    "no fusion": {"pipeline": Pipeline().replace(fuse=keep_apart)},
    "no decompositions": {"pipeline": Pipeline().replace(decompositions={})},
    "no kernels": {"backend": "aot_eager"},
    "capture only": {"backend": "eager"},
}
"""Name → what `cl.compile` is told. The last two stop after autograd and after capture, and run
operator by operator."""


def contender(name: str, settings: Mapping[str, Any], bytes_of: dict[str, int]) -> Contender:
    """The compiler with these settings; what its kernels move is written into `bytes_of`."""

    def watch(run: Any) -> Program:
        recording = Recording()
        with events.listener(recording.events.append):
            program = watch_ours(run)
        # Bytes are counted from the schedule, and so are the same on each machine
        built = []
        for event in recording.of(events.KernelsBuilt):
            built += kernels_of(event.compiled)
        bytes_of[name] = sum(kernel.bytes for kernel in built)
        return program

    return Contender(name, lambda function: course_lib.compile(function, **settings), watch)


def ablate(
    workload: Workload, parts: Mapping[str, Mapping[str, Any]] = PARTS, **how: Any
) -> tuple[list[Outcome], dict[str, int]]:
    """Outcomes of eager and of each entry of `parts`, and the bytes that the kernels of each move.

    `how` goes to `compare`."""
    bytes_of: dict[str, int] = {}
    chosen = [contender(name, settings, bytes_of) for name, settings in parts.items()]
    return compare(workload, [eager(), *chosen], **how), bytes_of


def ablation_table(outcomes: Sequence[Outcome], bytes_of: Mapping[str, int]) -> Picture:
    """What each compiler made, and how fast it is.

    Times are no part of the text: they are never twice the same."""
    header = ("", "kernels", "bytes through memory", "against eager", "result")
    rows, plain = [], []
    for outcome in outcomes:
        bytes_moved = bytes_of.get(outcome.name)
        program_cells = (
            outcome.name,
            kernels_in_words(outcome),
            human_bytes(bytes_moved) if bytes_moved else "–",
        )
        result = outcome.problem or ("as eager" if outcome.program else "")
        plain.append((*program_cells, result))
        cells = (*program_cells, against_eager(outcome, outcomes), result)
        rows.append(list(map(escape, cells)))

    rows_in_words = "; ".join(", ".join(filter(None, row)) for row in plain)
    alt = f"Ablation: {rows_in_words}."
    caption = "All of the compiler, then without one part: what the part was worth is the difference to the first line."
    body = f'<div class="cl-scroll">{html_table(rows, header, (2, 3))}</div>'
    return Picture(body, caption, alt, columns(plain, (*header[:3], header[-1])))


def kernels_in_words(outcome: Outcome) -> str:
    """'3 kernels, 1 library call'; "" for eager."""
    program = outcome.program
    if not program:
        return ""
    calls = count(program.library_calls or 0, "library call")
    return f"{count(program.kernels, 'kernel')}, {calls}"


def against_eager(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    """'1.50× as fast'; a dash for eager itself, and where one of the two was not timed."""
    ratio = speedup(outcome, outcomes, "eager")
    if ratio is None or not outcome.program:
        return "–"
    return f"{ratio:.2f}× as fast"
