"""The stages of the compiler as a dataclass of callables: any can be the learner's own
(`cl.Pipeline().replace(fuse=my_fuse)`).

In:  a captured graph. Out: a `Program`: a callable that gives the graph's outputs.

frame ─ capture ─▶ FX graph, guards, head ─ trace ─▶ ATen graph ─ lower ─▶ loops
─ schedule(fuse) ─▶ kernels ─ plan ─▶ memory ─ build ─▶ CompiledGraph

In PyTorch: `torch/_inductor/compile_fx.py` (`compile_fx`, `compile_fx_inner`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from course_lib import autograd, capture, events, lowering, runtime, scheduling, sizes
from course_lib.apart import apart_from_hooks
from course_lib.autograd import Program
from course_lib.capture import CaptureResult
from course_lib.for_each_size import BuildForSizes, specialized, with_numbers


@dataclass(frozen=True)
class Pipeline:
    """Each field is one stage; its default is the room of the same lesson."""

    # One method per instruction (lesson 02)
    interpreter: type[capture.Interpreter] = capture.Interpreter
    # (frame, interpreter) → CaptureResult (lesson 02)
    capture: Callable[..., CaptureResult] = capture.capture
    decompositions: dict[Any, Callable[..., Any]] = dataclasses.field(
        default_factory=lambda: lowering.DECOMPOSITIONS
    )
    """ATen operator → how it is written in simpler ones (lesson 06)"""
    # (graph, decompositions) → ATen graph (lesson 06)
    trace: Callable[..., fx.GraphModule] = autograd.trace
    # (graph, decompositions) → forward and backward in one (lesson 06)
    joint: Callable[..., fx.GraphModule] = autograd.joint
    # (joint graph, may_recompute) → its halves (lesson 06)
    partition: Callable[..., autograd.Partition] = autograd.partition
    # ATen graph → loop IR (lesson 07)
    lower: Callable[[fx.GraphModule], lowering.LoopGraph] = lowering.lower
    # (producer, consumer) → `Fuse` or `No` (lesson 08)
    fuse: Callable[..., Any] = scheduling.can_fuse
    # (loops, fuse) → kernels in order (lesson 08)
    schedule: Callable[..., scheduling.Schedule] = scheduling.schedule
    # (schedule, loops) → which buffer lives where (lesson 08)
    plan: Callable[..., scheduling.MemoryPlan] = scheduling.plan
    # (loops, schedule, plan, codegen) → a callable (lessons 09, 10)
    build: Callable[..., runtime.CompiledGraph] = runtime.build
    cudagraphs: bool = False  # Record the kernels of a program as a CUDA graph? (lesson 11)
    templates: bool = False  # Measure kernels of our own for matrix products, too? (lesson 11)
    # For a graph with symbolic sizes: the sizes that are the same in all calls (lesson 05)
    fixed: frozenset[int] | None = None

    def replace(self, **stages: Any) -> "Pipeline":
        """A pipeline with some stages exchanged. Unknown names raise TypeError."""
        known = [field.name for field in dataclasses.fields(self)]
        for name in stages:
            if name not in known:
                raise TypeError(
                    f"the pipeline has no stage '{name}'; its stages are {', '.join(known)}"
                )
        return dataclasses.replace(self, **stages)

    def run_compile(
        self, gm: fx.GraphModule, codegen: str = "auto", differentiate: bool = False
    ) -> Program:
        """From captured graph to machine code (`codegen` "none": to ATen).

        What cannot be compiled runs as it is, and is told."""
        if makes_parameter(gm):
            return autograd.fall_back(gm, "a parameter is made inside")
        if autograd.has_sizes_of_data(gm):
            return self.compile_around_data(gm, codegen)
        if is_symbolic(gm):
            return self.compile_for_sizes(gm, codegen, differentiate)

        try:
            # Tracing runs the graph, which may switch modes (autocast). Behind this they are as
            # before, also if it raises half-way.
            with capture.recording_mode():
                if not differentiate:
                    return self.compile_forward(gm, codegen)
                # (All of it is one piece, but under DistributedDataParallel.)
                compile_piece = partial(self.compile_with_gradients, codegen=codegen)
                return autograd.in_pieces(gm, compile_piece)

        except NotImplementedError as problem:
            # a learner's stage: its own NotImplementedError is the message
            if self.lower is not lowering.lower or "Exercise:" in str(problem):
                raise
            return autograd.fall_back(gm, str(problem))
        except (runtime.BackendMissing, runtime.CompileFailed) as problem:
            return autograd.fall_back(gm, str(problem), warn=True)

    def compile_for_sizes(self, gm: fx.GraphModule, codegen: str, differentiate: bool) -> Program:
        """A graph with symbolic sizes: one program for all of them; where that cannot be, one for
        each set of sizes."""
        if (why := self.needs_numbers()) is None:
            try:
                return self.compile_in_symbols(gm, codegen, differentiate)
            except sizes.NeedsNumbers as problem:
                why = str(problem)
            except Exception as problem:
                # A fault of ours with formulas stops no program: numbers may do. (If something else
                # is wrong, say no C++ compiler is there, numbers fail, too, and that is told.)
                why = f"{type(problem).__name__}: {problem}"
        events.emit(events.SizesAreNumbers(why))

        # The sizes that are the same in all calls. A kernel takes the others as arguments, so what
        # is built for one set of sizes serves the next one, too.
        numbers = frozenset(size for size in sizes_of(gm) if isinstance(size, int))
        stages = self.replace(fixed=numbers)

        def compile_static(static: fx.GraphModule, args: list[Any]) -> Program:
            return stages.run_compile(static, codegen, differentiate)

        return self.specialize(gm, compile_static)

    def compile_around_data(self, gm: fx.GraphModule, codegen: str) -> Program:
        """A graph with sizes that only the data says: what gives them runs as in eager, and what
        lies between is compiled when its inputs are there."""

        if self.cudagraphs:
            runtime.tell_that_it_falls_back("it has a size, or a number, that only the data says")
        stages = self.replace(cudagraphs=False)

        def compile_piece(piece: fx.GraphModule, inputs: Sequence[Any]) -> Program:
            return stages.run_compile(piece, codegen, needs_grad(inputs, piece))

        try:
            return autograd.around_data(gm, compile_piece, apart_from_hooks)
        except NotImplementedError as problem:
            return autograd.fall_back(gm, str(problem))

    def needs_numbers(self) -> str | None:
        """Why no graph is compiled in symbols by these stages, or None."""
        if self.templates:
            return "products are measured for one set of sizes"
        ours = Pipeline()
        for stage in ("trace", "joint", "partition", "lower", "fuse", "schedule", "plan", "build"):
            if getattr(self, stage) is not getattr(ours, stage):
                return f"the stage '{stage}' is not the library's own"
        return None

    def compile_in_symbols(self, gm: fx.GraphModule, codegen: str, differentiate: bool) -> Program:
        """One program for all sizes. What it assumes about them are guards of capture's (`Sizes`).
        Raises NeedsNumbers where something must know a size as a number."""
        # Floats that are computed of sizes (`n ** 0.5`) become inputs: a kernel takes no formula
        lifted = autograd.lift_numbers(gm, of_sizes=True)
        graph = lifted.graph if lifted else gm
        placeholders = graph.graph.find_nodes(op="placeholder")
        if any(isinstance(n.meta["val"], torch.SymFloat) and n.users for n in placeholders):
            raise sizes.NeedsNumbers("an input is a floating-point number that changes")

        inputs = [node.meta["val"] for node in placeholders]
        program, known = self.compile_with_sizes(graph, inputs, codegen, differentiate)
        # It is compiled anew until no further symbol turns out to be a number.
        while fixed := known.became_numbers:
            # Some answer was right for one value of these only. So they are numbers, and the others
            # are symbols still.
            if len(fixed) == len(known.places):
                raise sizes.NeedsNumbers(f"{', '.join(fixed)} can have one value only")
            program, known = self.compile_with_sizes(graph, inputs, codegen, differentiate)

        gm.meta["sizes"] = known
        events.emit(events.SizesAreSymbols(known))
        if lifted:
            return with_numbers(program, lifted, gm)
        return program

    def compile_with_sizes(
        self, graph: fx.GraphModule, inputs: Sequence[Any], codegen: str, differentiate: bool
    ) -> tuple[Program, sizes.Sizes]:
        """The program, and the sizes that it is for.

        Each question about them has its answer when this is done."""
        known = sizes.Sizes(inputs)
        with sizes.compiling_for(known), capture.recording_mode():
            try:
                if differentiate:
                    compile_piece = partial(self.compile_with_gradients, codegen=codegen)
                    program = autograd.in_pieces(graph, compile_piece)
                else:
                    program = self.compile_forward(graph, codegen)
            except NotImplementedError as problem:
                raise sizes.NeedsNumbers(str(problem)) from problem
        # A later question has no guard: it raises
        known.open = False
        return program, known

    def compile_forward(
        self, gm: fx.GraphModule, codegen: str, inputs_require_grad: bool = False
    ) -> Program:
        """Without gradients: trace, then one graph."""
        aten = events.stage("trace", None, self.trace, gm, self.decompositions)
        program = self.compile_graph(aten, codegen)
        if inputs_require_grad:
            program = without_recording(program)
        return autograd.finished(program, aten.meta["signature"], autograd.op_by_op(gm))

    def compile_with_gradients(self, gm: fx.GraphModule, codegen: str) -> Program:
        """Trace forward and backward in one, cut it in two, compile both halves."""
        joint = events.stage("trace", events.JointTraced, self.joint, gm, self.decompositions)
        if not joint.meta["signature"].reaches_autograd:
            # nothing that the graph gives has a gradient (an optimizer's step): autograd need not
            # know of it
            return self.compile_forward(gm, codegen, inputs_require_grad=True)
        parts = events.stage("partition", events.Partitioned, self.halves, joint, codegen)
        forward = self.compile_graph(parts.forward, codegen)
        backward = self.compile_graph(parts.backward, codegen)

        known = sizes.current()

        def compile_later(graph: fx.GraphModule) -> Program:
            # when backward runs, and finds that some results were not used
            with apart_from_hooks(), capture.recording_mode(), sizes.compiling_for(known):
                try:
                    return self.compile_graph(graph, codegen)
                except sizes.NeedsNumbers as problem:
                    assert known is not None
                    events.emit(events.FellBack(autograd.runtime.OP_BY_OP, str(problem)))
                    return autograd.with_numbers_for_sizes(graph, known)

        return autograd.differentiable(
            forward,
            backward,
            joint.meta["signature"],
            parts,
            autograd.op_by_op(gm),
            compile_later,
            captured=gm,
        )

    def halves(self, joint: fx.GraphModule, codegen: str) -> autograd.Partition:
        """The joint graph, cut in two: with large products computed again in backward, where both
        halves can be streams."""
        may_recompute = lowering.may_recompute
        parts = self.partition(joint, may_recompute)
        # A learner's own cut stays as it is.
        is_own_cut = self.partition is not autograd.partition
        if is_own_cut or not self.prints_streams(codegen):
            return parts

        why_not = partial(runtime.why_no_stream, codegen=codegen)
        # The graph holds autocast's casts: what is lowered for a look must not be cast once more.
        with torch._C._DisableAutocast():
            return scheduling.without_scores(
                joint, parts, self.partition, may_recompute, self.lower, why_not
            )

    def compile_graph(self, aten: fx.GraphModule, codegen: str) -> Program:
        """A functional ATen graph to machine code."""
        events.emit(events.AtenTraced(aten))
        # The graph holds autocast's casts. Autocast itself is off while the compiler multiplies,
        # and while the program runs.
        autocast = torch._C._is_any_autocast_enabled()
        with torch._C._DisableAutocast():
            program = self.compile_kernels(aten, codegen)
        if autocast:
            return without_autocast(program)
        return program

    def compile_kernels(self, aten: fx.GraphModule, codegen: str) -> Program:
        """Lower, schedule and build. (`codegen` "none": the graph runs as it is.)"""
        if codegen == "none":
            if known := sizes.current():
                return autograd.with_numbers_for_sizes(aten, known)
            # torch.fx writes `forward` at its first call: here the written one, not the stub
            _LazyGraphModule.force_recompile(aten)
            return cast(Program, torch.no_grad()(aten.forward))

        # (In Triton's interpreter a kernel for GPUs runs on tensors of the CPU.)
        def is_for_gpu(buffer: Any) -> bool:
            return codegen == "triton" or buffer.device.type == "cuda"

        # A template is measured in kernels as they would be scheduled with it
        def planned(part: lowering.LoopGraph) -> scheduling.Schedule:
            return self.schedule(part, self.fuse)

        lowered = events.stage("lower", events.Lowered, self.lower, aten)
        loops = dataclasses.replace(lowered, fixed=self.fixed)
        loops = scheduling.split_reductions(loops, is_for_gpu)
        if self.prints_streams(codegen):
            why_not = partial(runtime.why_no_stream, codegen=codegen)
            loops = scheduling.streamed_loops(loops, aten, why_not)
        if self.templates:
            choose = runtime.choose_templates
            loops = events.stage("templates", None, choose, loops, codegen, planned)
        # What is still a library's product goes to the library that is faster here
        loops = runtime.choose_products(loops)

        schedule = events.stage("schedule", events.Scheduled, self.schedule, loops, self.fuse)
        plan = events.stage("memory", events.MemoryPlanned, self.plan, schedule, loops)
        program = events.stage(
            "build", events.KernelsBuilt, self.build, loops, schedule, plan, codegen
        )
        if self.cudagraphs:
            return runtime.with_cuda_graphs(program, loops)
        return program

    def prints_streams(self, codegen: str) -> bool:
        """May streams (`scheduling.streams`) be built? Not where a stage is a learner's own: it
        would not know them."""
        ours = Pipeline()
        is_ours = all(
            without_options(getattr(self, name)) is getattr(ours, name)
            for name in ("lower", "fuse", "schedule", "plan", "build")
        )
        return codegen in ("auto", "cpp", "triton") and is_ours

    def specialize(self, gm: fx.GraphModule, build: BuildForSizes) -> Program:
        """A program for each set of sizes, each compiled by `build` when it is met."""
        return specialized(gm, build)


def without_options(stage: Any) -> Any:
    """The function of a stage: for `max-autotune` one of ours is a `partial` with an option."""
    if isinstance(stage, partial):
        return stage.func
    return stage


def makes_parameter(gm: fx.GraphModule) -> bool:
    """Is a leaf made inside, whose gradient belongs to no input?"""
    return any(
        node.target is torch.nn.Parameter or node.kwargs.get("requires_grad")
        for node in gm.graph.nodes
    )


def is_symbolic(gm: fx.GraphModule) -> bool:
    """Has the graph an input whose size (or value) is a symbol?"""
    return any(isinstance(size, (torch.SymInt, torch.SymFloat)) for size in sizes_of(gm))


def sizes_of(gm: fx.GraphModule) -> list[Any]:
    """Sizes and strides of all inputs, and those inputs that are numbers."""
    sizes: list[Any] = []
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            sizes += (*value.shape, *value.stride())
        else:
            sizes.append(value)
    return sizes


def without_autocast(program: Program) -> Program:
    """A program whose operators are not cast once more: what autocast does is in the graph."""

    def run(*args: Any) -> tuple[Any, ...]:
        with torch._C._DisableAutocast():
            return program(*args)

    return run


def without_recording(program: Program) -> Program:
    """A program that runs with grad mode off.

    Grad mode is on where some input requires grad. Then an operator that writes its result into a
    buffer of ours (`aten.hypot.out(x, y, out=buf0)`) would refuse."""

    def run(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            return program(*args)

    return run


def needs_grad(inputs: Sequence[torch.Tensor], gm: fx.GraphModule) -> bool:
    """Will eager record a backward for these inputs? (`gm` may turn grad mode on itself.)"""
    turns_on = any(
        node.target is torch._C._set_grad_enabled and node.args[0] for node in gm.graph.nodes
    )
    if not (torch.is_grad_enabled() or turns_on):
        return False
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)
