"""The stages of the compiler as one dataclass of callables, so that any of them can be the learner's own.

cl.compile(f, pipeline=cl.Pipeline().replace(fuse=my_fuse))

frame ─ capture ─▶ FX graph, guards, head ─ trace ─▶ ATen graph ─ lower ─▶ loops ─ schedule(fuse) ─▶ kernels ─ plan ─▶
memory
      ─ build ─▶ CompiledGraph
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from course_lib import autograd, capture, events, lowering, runtime, scheduling
from course_lib.capture import CaptureResult


@dataclass(frozen=True)
class Pipeline:
    """Each field is one stage; its default is the room of the same lesson."""

    interpreter: type[capture.Interpreter] = capture.Interpreter
    """The symbolic interpreter's class: one method per instruction. (lesson 02)"""
    capture: Callable[..., CaptureResult] = capture.capture
    """(frame, interpreter) → CaptureResult (lesson 02)"""
    decompositions: dict[Any, Callable[..., Any]] = dataclasses.field(default_factory=lambda: lowering.DECOMPOSITIONS)
    """ATen operator → how it is written in simpler ones (lesson 06)"""
    trace: Callable[..., fx.GraphModule] = autograd.trace
    """(graph, decompositions) → ATen graph (lesson 06)"""
    lower: Callable[[fx.GraphModule], lowering.LoopGraph] = lowering.lower
    """ATen graph → loop IR (lesson 07)"""
    fuse: Callable[..., Any] = scheduling.can_fuse
    """(producer, consumer) → `Fuse` or `No` (lesson 08)"""
    schedule: Callable[..., scheduling.Schedule] = scheduling.schedule
    """(loops, fuse) → kernels in order (lesson 08)"""
    plan: Callable[..., scheduling.MemoryPlan] = scheduling.plan
    """(schedule, loops) → which buffer lives where (lesson 08)"""
    build: Callable[..., runtime.CompiledGraph] = runtime.build
    """(loops, schedule, plan, codegen) → a callable (lessons 09 and 10)"""

    def replace(self, **stages: Any) -> Pipeline:
        """A pipeline with some stages exchanged. Unknown names raise TypeError."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in stages:
            if name not in known:
                raise TypeError(f"the pipeline has no stage '{name}'; its stages are {', '.join(known)}")
        return dataclasses.replace(self, **stages)

    def run_capture(self, frame: Any) -> CaptureResult:
        """The front half: from a frame to a graph."""
        with events.stage("capture"):
            return self.capture(frame, self.interpreter)

    def run_compile(self, gm: fx.GraphModule, codegen: str = "auto") -> Callable[..., tuple[Any, ...]]:
        """The back half: from a captured graph to machine code. What it cannot compile yet runs as it is, and is
        told."""
        with events.stage("trace"):
            aten = self.trace(gm, self.decompositions)
        events.emit(events.AtenTraced(aten))
        if written := autograd.mutated_inputs(aten):
            return fall_back(gm, f"the graph writes to its input {written[0].name}; lesson 06 will compile that")
        try:
            with events.stage("lower"):
                loops = self.lower(aten)
        except NotImplementedError as problem:
            if self.lower is not lowering.lower:
                raise  # an exercise that is not written yet says so itself
            return fall_back(gm, str(problem))
        events.emit(events.Lowered(loops))
        with events.stage("schedule"):
            schedule = self.schedule(loops, self.fuse)
        events.emit(events.Scheduled(schedule))
        with events.stage("memory"):
            plan = self.plan(schedule, loops)
        events.emit(events.MemoryPlanned(plan))
        try:
            with events.stage("build"):
                compiled = self.build(loops, schedule, plan, codegen=codegen)
        except (runtime.BackendMissing, runtime.CompileFailed) as problem:
            return fall_back(gm, str(problem), warn=True)
        events.emit(events.KernelsBuilt(compiled))
        return compiled


def fall_back(gm: fx.GraphModule, why: str, warn: bool = False) -> Callable[..., tuple[Any, ...]]:
    """Run the captured graph operation by operation, and say why."""
    events.emit(events.FellBack("the graph runs operation by operation", why))
    if warn:
        runtime.warn_once(why)
    return gm.forward


def needs_grad(inputs: Sequence[torch.Tensor]) -> bool:
    """Will eager record a backward for these inputs?"""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
