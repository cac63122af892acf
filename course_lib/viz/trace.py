"""`with cl.record() as trace:` and then one method for each picture.

In:  the events of everything that is compiled within the block. Out: `Trace`, a `Recording` that
     can draw itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from course_lib import events
from course_lib.viz.explorer.explorer import Explorer
from course_lib.viz.kit.arguments import shown
from course_lib.viz.kit.highlight import block, code
from course_lib.viz.kit.style import Picture, escape, plural
from course_lib.viz.pictures.autograd.joint_graph import joint_graph
from course_lib.viz.pictures.capture.break_card import break_card
from course_lib.viz.pictures.capture.bytecode_table import bytecode_table, plain_problem
from course_lib.viz.pictures.capture.cut_frame import cut_frame
from course_lib.viz.pictures.capture.stack_words import in_words
from course_lib.viz.pictures.codegen.tiles import tile_map
from course_lib.viz.pictures.graphs.fx_graphs import AT_MOST, fx_graph
from course_lib.viz.pictures.graphs.module_graphs import module_graph
from course_lib.viz.pictures.guards.call_timeline import timeline
from course_lib.viz.pictures.guards.guard_tables import guard_table
from course_lib.viz.pictures.guards.guard_trees import guard_tree
from course_lib.viz.pictures.guards.shape_map import shape_map
from course_lib.viz.pictures.guards.symbolic_sizes import size_guards
from course_lib.viz.pictures.lowering.loop_formulas import loops
from course_lib.viz.pictures.pipeline.pipeline_map import pipeline_map
from course_lib.viz.pictures.runtime.call_events import (
    CudaGraphReplayed,
    GuardsChecked,
    KernelLaunched,
    telling,
)
from course_lib.viz.pictures.runtime.kernel_limits import kernel_roofline
from course_lib.viz.pictures.runtime.speedups import tuned
from course_lib.viz.pictures.scheduling.fused_loops import fusion
from course_lib.viz.pictures.scheduling.memory_timeline import MemoryUse
from course_lib.viz.recording import Recording
from course_lib.viz.report.compile_time import compile_time
from course_lib.viz.report.page import Run, command_line, how_it_ended, write_report
from course_lib.viz.widgets.stepper import Stepper

Which = str | int | Callable[..., Any] | None
"""A frame: by its name, its number, or the function itself; None for the first."""

CAPTURED = "graph was captured"
TRACED = "graph was traced to ATen operators (backend='eager' does not)"
DIFFERENTIATED = "graph was differentiated (no input needed a gradient)"
LOWERED = "graph was lowered to loops (this backend stops before that)"
SCHEDULED = "graph was scheduled (this backend stops before that)"
PLANNED = "memory was planned (this backend stops before that)"
BUILT = "kernel was built (this backend stops before that)"
IN_TRITON = 'Triton kernel was made (options={"codegen": "triton"} makes some)'
TUNED = "kernel was tuned"
"""What is missed if there is none: 'no graph was captured while recording'."""


class Trace(Recording):
    """A recording with pictures.

    Beside the methods here, `graphs`, `guards`, `kernels`, `graph_breaks`, `recompiles` and
    `seconds` are the data themselves."""

    @property
    def launches(self) -> list[KernelLaunched]:
        """The kernels that ran, generated or a library's, in order, with their seconds; of each the
        first 100 times."""
        return self.of(KernelLaunched)

    @property
    def replays(self) -> list[CudaGraphReplayed]:
        """The starts of recorded CUDA graphs, of each the first 100."""
        return self.of(CudaGraphReplayed)

    @property
    def guard_checks(self) -> list[GuardsChecked]:
        """When the guards of an entry were asked, with the answer and the seconds that it took; the
        first 100 times of each."""
        return self.of(GuardsChecked)

    def show(self) -> Picture:
        """The pipeline, with what each stage did and how long it took."""
        return pipeline_map(recording=self)

    def compile_time(self) -> Picture:
        """Where compile time went: functions, and below each its stages."""
        return compile_time(self)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace report: one HTML file with every compile of this recording.

        Gives the path back."""
        return write_report(self, Path(path))

    def bytecode(self, function: Which = None) -> Picture:
        """Each instruction that the symbolic interpreter ran, with the stack."""
        return bytecode_table(self, function)

    def stepper(self, function: Which = None) -> Stepper:
        """The capture of a function (the first if None), one instruction at a time, with a
        slider."""
        return Stepper(self, function)

    def explorer(self, target: str = "") -> Explorer:
        """Every stage side by side, from line to kernel.

        `target` ("sm_90", "x86-64-v3") adds machine code."""
        return Explorer(self, target=target)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the explorer as one page that needs no network (`.html`). Gives the path back."""
        return self.explorer().save(path)

    def graph(self, index: int = 0, by_module: bool | None = None) -> Picture:
        """The captured graph; one with more than 120 operations is drawn by module (None: by its
        size)."""
        result = pick(self.captures, index, CAPTURED)
        is_large = result.operations > AT_MOST
        if by_module or (by_module is None and is_large):
            return module_graph(result.graph, result.name)
        return fx_graph(result.graph, result.name, "capture")

    def aten(self, index: int = 0) -> Picture:
        """The graph in ATen operators; one with more than 120 is drawn by module."""
        graph = pick(self.of(events.AtenTraced), index, TRACED).graph
        count = sum(node.op == "call_function" for node in graph.graph.nodes)
        if count > AT_MOST:
            return module_graph(graph)
        return fx_graph(graph, stage="autograd")

    def joint(self, index: int = 0, detail: str | None = None) -> Picture:
        """Forward and backward of one graph side by side, what is kept between them, and what is
        computed again.

        detail: "operators", "operations" or "modules"; None chooses by size."""
        partition = pick(self.of(events.Partitioned), index, DIFFERENTIATED).partition
        signature = self.of(events.JointTraced)[index].graph.meta.get("signature")
        return joint_graph(partition, signature, detail=detail)

    def guards_table(self, index: int | None = None) -> Picture:
        """Every guard once, or those of one captured graph; the last one that failed is marked."""
        failures = self.of(events.GuardFailed)
        failed = failures[-1] if failures else None
        if index is not None:
            result = pick(self.captures, index, CAPTURED)
            return guard_table(result.guards, failed, result.name)

        # Where there are several functions, each guard says whose it is. (The same guard of two is
        # the first one's: its name is written last.)
        frames: dict[Any, str] = {}
        for result in reversed(self.captures):
            frames |= dict.fromkeys(result.guards, result.name)
        several = len(set(frames.values())) > 1
        guards = dict.fromkeys(self.guards)
        return guard_table(guards, failed, frames=frames if several else {})

    def guards_tree(self, index: int = 0) -> Picture:
        """The guards of one captured graph, hung on the paths of what they test; if one failed, its
        branch is marked."""
        result = pick(self.captures, index, CAPTURED)
        failures = [
            failure for failure in self.of(events.GuardFailed) if failure.guard in result.guards
        ]
        failed = failures[-1] if failures else None
        return guard_tree(result.guards, failed, title=result.name)

    def timeline(self, function: str | Callable[..., Any] | None = None) -> Picture:
        """The calls of one function (itself, or its qualified name; None for the first): which
        entry served each, where one was compiled.

        Calls that fit an entry are seen only if they were made through
        `viz.each_call(compiled)`."""
        return timeline(self, function)

    def size_guards(self, index: int = 0) -> list[str]:
        """What one captured graph assumed about sizes."""
        return size_guards(pick(self.captures, index, CAPTURED))

    def shape_map(
        self, function: Any, sizes: Mapping[str, Sequence[int]], *make: Callable[..., Any]
    ) -> Picture:
        """Which entry serves which size (see `viz.shape_map`)."""
        return shape_map(self, function, sizes, *make)

    def loops(self, index: int = 0) -> Picture:
        """The loop nodes of one graph."""
        return loops(pick(self.of(events.Lowered), index, LOWERED).graph)

    def fusion(self, index: int = 0) -> Picture:
        """Loops before and after fusion, and why some stayed apart."""
        pick(self.of(events.Scheduled), index, SCHEDULED)  # raises if there is none
        return fusion(self, index)

    def memory(self, index: int = 0) -> MemoryUse:
        """How much memory one compiled graph holds while it runs.

        `print` it; its numbers are attributes."""
        plan = pick(self.of(events.MemoryPlanned), index, PLANNED).plan
        return MemoryUse(self.of(events.Scheduled)[index].schedule, plan)

    def code(self, index: int = 0, kernel: int | str | None = None) -> Picture:
        """What was generated for one graph: the wrapper and every kernel; or one kernel, by number
        or name.

        Raises LookupError for a kernel that there is not."""
        compiled = pick(self.of(events.KernelsBuilt), index, BUILT).compiled
        if kernel is None:
            return all_code(compiled)

        chosen = kernel_named(compiled.kernels, kernel)
        caption = f"The generated source of {chosen.name}."
        return code(chosen.source, chosen.language, chosen.name, caption=caption)

    def tiles(
        self, index: int = 0, kernel: int = 0, meta: Mapping[str, int] | None = None
    ) -> Picture:
        """How a Triton kernel's programs cover its tensor, and which lanes are masked."""
        compiled = pick(self.of(events.KernelsBuilt), index, BUILT).compiled
        triton = [source for source in compiled.kernels if source.language == "triton"]
        return tile_map(pick(triton, kernel, IN_TRITON), meta)

    def roofline(
        self, bandwidth: float, peak: float, index: int = 0, seconds: Sequence[float] | None = None
    ) -> Picture:
        """The kernels of one compiled graph under the limits of a machine, in bytes/s and FLOP/s.

        They are timed here and now, unless `seconds` says what was measured elsewhere."""
        pick(self.of(events.KernelsBuilt), index, BUILT)  # raises if there is none
        return kernel_roofline(self, bandwidth, peak, index, seconds)

    def autotuned(self, index: int = 0) -> Picture:
        """What was tried for one kernel or product, how long each took, and which was taken."""
        event = pick(self.of(events.Autotuned), index, TUNED)
        return tuned(event.kernel, event.choice, event.seconds)

    def breaks(self) -> Picture:
        """Every graph break: the reason, the line, and what to do about it."""
        problems = self.graph_breaks
        if not problems:
            return Picture("<p>No graph break.</p>", "", "No graph break.", "no graph break")

        sentences = [
            f"{number}. {plain_problem(problem)}" for number, problem in enumerate(problems, 1)
        ]
        reasons = "; ".join(problem.reason for problem in problems)
        body = "".join(
            f'<div class="cl-torn cl-m">✂ {escape(sentence)}</div>' for sentence in sentences
        )
        caption = "Where capture stopped, why, and what can be done about it."
        alt = f"Capture stopped {plural(len(problems), 'time')}: {reasons}."
        return Picture(body, caption, alt, "\n\n".join(sentences), sheets=("break",))

    def break_card(self, index: int = 0) -> Picture:
        """One graph break in full: with the bytecode around it and the calls that led there."""
        return break_card(self, index)

    def cut(self, function: str | Callable[..., Any] | None = None) -> Picture:
        """A frame cut in pieces by its graph breaks: its graphs, what Python does between, its
        resume functions."""
        return cut_frame(self, function)


def pick(items: Sequence[Any], index: int, what: str) -> Any:
    """One of `items`; LookupError with a sentence if there is none."""
    if not items:
        raise LookupError(
            f"no {what} while recording. If it was compiled before, cl.reset() forgets it."
        )
    if not isinstance(index, int):
        raise TypeError(
            f"index must be the number of a graph, 0 to {len(items) - 1}, got {shown(index)}"
        )
    if not -len(items) <= index < len(items):
        raise LookupError(f"index {index} is out of range: there are {len(items)}, numbered from 0")
    return items[index]


def kernel_named(kernels: Sequence[Any], which: int | str) -> Any:
    """One of the kernels, by number or name. Raises LookupError if there is none such."""
    names = [kernel.name for kernel in kernels]
    if which in names:
        return kernels[names.index(which)]
    if isinstance(which, int) and -len(kernels) <= which < len(kernels):
        return kernels[which]
    there_are = ", ".join(names) or "none"
    raise LookupError(f"there is no kernel {shown(which)}; there are {there_are}")


def all_code(compiled: Any) -> Picture:
    """The wrapper open, each kernel folded under its name."""
    wrapper = compiled.wrapper_source
    title = "the wrapper: allocates, calls kernels and library"
    parts = [section(title, wrapper, "python", opened=True)]
    text = ["# ---- wrapper", wrapper.rstrip()]

    few = len(compiled.kernels) <= 2
    for kernel in compiled.kernels:
        language = "C++" if kernel.language == "cpp" else kernel.language.capitalize()
        name = f"{kernel.name} ({language})"
        parts.append(section(name, kernel.source, kernel.language, opened=few))
        text += [f"// ---- {name}", kernel.source.rstrip()]

    names = ", ".join(kernel.name for kernel in compiled.kernels)
    alt = f"Generated code: a wrapper and {plural(len(compiled.kernels), 'kernel')}: {names}."
    caption = "All that was generated for this graph; open a kernel to read it."
    return Picture("".join(parts), caption, alt, "\n".join(text), sheets=("code",))


def section(name: str, source: str, language: str, opened: bool) -> str:
    """One source, foldable."""
    is_open = " open" if opened else ""
    head = f"<summary><b>{escape(name)}</b></summary>"
    inner = f'<div class="cl-code" tabindex="0">{block(source.rstrip(), language)}</div>'
    return f'<details{is_open} style="margin-bottom: 6px">{head}{inner}</details>'


@contextlib.contextmanager
def record(folder: str | os.PathLike[str] | None = None) -> Iterator[Trace]:
    """Collect what the compiler tells within the block:

    with cl.record() as trace:
        cl.compile(f)(x)
    trace.show()

    With a `folder`, the report of the block is written there, as `report.html`, however the block
    ends."""
    if not isinstance(folder, (str, os.PathLike, type(None))):
        raise TypeError(
            f"record takes the folder that its report goes to, a text or a Path, not {shown(folder)}"
        )
    report = None
    if folder is not None:
        # Absolute, for the block may go to another folder.
        report = Path(folder).absolute() / "report.html"
        report.parent.mkdir(parents=True, exist_ok=True)

    trace = Trace()
    run = Run(command_line())
    start = time.perf_counter()
    try:
        with events.listener(trace.note, in_words), telling():
            yield trace
    except BaseException as error:
        # The program's traceback should not begin with this frame, which is none of its own.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        run.error = how_it_ended(error)
        raise
    finally:
        if report is not None:
            run.seconds = time.perf_counter() - start
            write_report(trace, report, run)
