"""Each stage of every compiled graph as files: what `options={"trace.enabled": True}` writes.

In:  a backend. Out: the same backend, which writes a folder for each program (forward, backward)
that it compiles, below `course_debug/run_<time>_<process>/` in the current folder, or below
`$COURSE_DEBUG_DIR`:

    model_0/captured.py            the captured graph as Python
    model_0/aten.py                the same in ATen operators, forward or backward
    model_0/loops_before_fusion.txt
    model_0/kernels_after_fusion.txt   with every decision and its reason
    model_0/memory.txt
    model_0/output_code.txt        kernels and wrapper as they run
    model_0/graph_diagram.svg      what was fused, if `trace.graph_diagram` asks for it (.html if it
                                   is very large)

In PyTorch: `torch/_inductor/debug.py` (`DebugContext`, `DebugFormatter`), `torch_compile_debug/`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib import events
from course_lib.viz.kit.style import Picture
from course_lib.viz.pictures.lowering.loop_formulas import formula
from course_lib.viz.pictures.scheduling.fused_loops import fusion_of
from course_lib.viz.pictures.scheduling.memory_timeline import MemoryUse
from course_lib.viz.recording.logs import aot_graph

FOLDER = "COURSE_DEBUG_DIR"
"""The environment variable that says where to write."""


class DebugFolder:
    """Listens while one backend compiles, and writes what it hears."""

    def __init__(self, diagram: bool) -> None:
        self.diagram = diagram
        # The captured graph as Python (`compile_traced` sets it)
        self.captured = ""
        # The folder of this run, made when the first program is; and that of the program which is
        # being compiled: None before the first, and where nothing can be written
        self.root: Path | None = None
        self.here: Path | None = None
        # What the last events told, for files that need it later
        self.loops: Any = None
        self.schedule: Any = None
        # Numbers for the folders of programs
        self.numbers = itertools.count()

    def start(self) -> Path:
        """The folder of the next program."""
        if self.root is None:
            base = Path(os.environ.get(FOLDER) or "course_debug")
            stamp = f"run_{time.strftime('%Y_%m_%d_%H_%M_%S')}_{os.getpid()}"
            # A second backend of this process may begin in the same second: its folder is `…_1`.
            candidates = (base / f"{stamp}{f'_{n}' if n else ''}" for n in itertools.count())
            self.root = next(path for path in candidates if not path.exists()).absolute()
            print(f"course_lib: each stage is written to {self.root}", file=sys.stderr)
        here = self.root / f"model_{next(self.numbers)}"
        here.mkdir(parents=True)
        return here

    def write(self, name: str, text: str) -> None:
        if self.here is not None:
            (self.here / name).write_text(text.rstrip() + "\n", encoding="utf-8")

    def draw(self, picture: Picture) -> None:
        """A drawing; of many loops there is one for each kernel, on a page."""
        if self.here is not None:
            suffix = ".svg" if picture.body.count("<svg") == 1 else ".html"
            picture.save(self.here / f"graph_diagram{suffix}")

    def note(self, event: events.Event) -> None:
        """A listener. A folder that cannot be written to is no reason to stop a compile."""
        try:
            self.hear(event)
        except OSError as error:
            warnings.warn(
                f"trace.enabled: cannot write below {self.root} ({error.strerror}); set {FOLDER}",
                stacklevel=2,
            )
            self.here = None

    def hear(self, event: events.Event) -> None:
        """Write what an event tells. `AtenTraced` is the first of a program."""
        match event:
            case events.AtenTraced(graph):
                self.here = self.start()
                self.write("captured.py", self.captured)
                self.write("aten.py", f"# {aot_graph(event)}")
            case events.Lowered(graph):
                self.loops = graph
                formulas = [formula(node, graph.buffers) for node in graph.nodes]
                self.write("loops_before_fusion.txt", "\n".join(formulas))
            case events.Scheduled(schedule):
                self.schedule = schedule
                decisions = "\n".join(map(str, schedule.decisions)) or "none"
                self.write("kernels_after_fusion.txt", f"{schedule}\n\nDecisions:\n{decisions}")
                if self.diagram:
                    self.draw(fusion_of(schedule, self.loops))
            case events.MemoryPlanned(plan):
                self.write("memory.txt", str(MemoryUse(self.schedule, plan)))
            case events.KernelsBuilt(compiled):
                self.write("output_code.txt", compiled.source)


def traced(backend: Callable[..., Any], diagram: bool) -> Callable[..., Any]:
    """The backend, with all that it compiles written to a folder.

    A graph with symbolic sizes is compiled when it is called, so the events of calls are heard as
    well."""
    folder = DebugFolder(diagram)

    def compile_traced(gm: Any, inputs: Any) -> Callable[..., Any]:
        folder.captured = gm.code.strip()
        with events.listener(folder.note):
            program = backend(gm, inputs)

        def run(*args: Any) -> Any:
            with events.listener(folder.note):
                return program(*args)

        return run

    return compile_traced
