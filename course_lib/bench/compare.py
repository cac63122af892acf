"""One workload, several ways to run it: eager, course_lib, torch.compile.

In:  a `Workload` and `Contender`s.
Out: an `Outcome` for each: is the result right, what did the first call cost, how fast are the
     others, what was compiled.

Order matters. Results are checked before anything is timed, on fresh inputs: the speed of a wrong
answer means nothing. The first call (which compiles) is told apart from the steady state. Whoever
fails is told and left out; the others go on.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from course_lib import events
from course_lib.bench.measure import Call, Samples, clock_for, interleaved
from course_lib.lowering.ir import ExternKernel
from course_lib.viz.recording import Recording

Inputs = tuple[torch.Tensor, ...]

TOLERANCES = {
    torch.float64: (1e-7, 1e-8),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (1e-2, 2e-3),
    torch.bfloat16: (2e-2, 1e-2),
}
"""dtype → difference from eager that rounding explains, relative to the element and to the largest
element of the tensor (a sum of many terms is rounded relative to those, not to what is left of
them). Integers must be equal."""


@dataclass(frozen=True)
class Workload:
    """`function` on what `inputs()` gives.

    `train`: forward and backward (no optimizer), else under `inference_mode`."""

    name: str
    function: Callable[..., torch.Tensor]
    inputs: Callable[[], Inputs]
    train: bool = False

    def mode(self) -> AbstractContextManager[Any]:
        if self.train:
            return torch.enable_grad()
        return torch.inference_mode()

    def results(
        self, function: Callable[..., torch.Tensor], inputs: Inputs
    ) -> Sequence[torch.Tensor]:
        """All that one run computes: the output and, in training, every gradient."""
        if not self.train:
            output: Any = function(*inputs)
            if isinstance(output, tuple):
                return output
            return [output]
        output = function(*inputs)
        # The gradient that comes from above is 0.54 (cos 1) everywhere: with 1, a compiler that
        # forgets to multiply by it would be right.
        return [output.detach(), *self.backward(output, inputs, torch.ones_like(output).cos())]

    def backward(
        self, output: torch.Tensor, inputs: Inputs, upstream: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        """The gradients of the inputs and of the parameters; `upstream` is the output's."""
        parameters = (
            self.function.parameters() if isinstance(self.function, torch.nn.Module) else ()
        )
        return torch.autograd.grad(output, [*inputs, *parameters], upstream)

    def step(self, function: Callable[..., torch.Tensor], inputs: Inputs) -> Call:
        """What is timed. What it needs is made before."""
        if not self.train:
            return functools.partial(function, *inputs)
        upstream = torch.randn_like(self.function(*inputs))
        return lambda: self.backward(function(*inputs), inputs, upstream)


@dataclass
class Program:
    """What a compiler made of the workload. `fallbacks`: what runs in eager after all, and why."""

    graphs: int
    breaks: int
    kernels: int
    library_calls: int | None = None
    recompiles: int | None = None
    fallbacks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [count(self.graphs, "graph"), count(self.breaks, "graph break")]
        # Not every contender tells these two
        if self.recompiles is not None:
            parts.append(count(self.recompiles, "recompile"))
        parts.append(count(self.kernels, "kernel"))
        if self.library_calls is not None:
            parts.append(count(self.library_calls, "library call"))
        return "; ".join([", ".join(parts), *self.fallbacks])


@dataclass(frozen=True)
class Contender:
    """`compile(function)` gives what is called instead; `watch(run)` runs and tells what was
    compiled meanwhile."""

    name: str
    compile: Callable[[Callable[..., Any]], Callable[..., Any]]
    watch: Callable[[Callable[[], None]], Program | None]
    note: str = ""


@dataclass
class Outcome:
    """How one contender did.

    `problem` says why there are no samples; `wrong` is set if the problem is a wrong result."""

    name: str
    first_call: float = 0.0
    """Seconds of the first run, compilation included (kernels may come from a cache on disk)."""
    max_abs_diff: float = 0.0
    """Largest absolute difference from eager over all results and inputs."""
    samples: Samples | None = None
    program: Program | None = None
    problem: str = ""
    wrong: bool = False
    notes: list[str] = field(default_factory=list)


def compare(
    workload: Workload,
    contenders: Sequence[Contender],
    *,
    device: torch.device | str = "cpu",
    rounds: int = 20,
    warmup: int = 3,
    min_time: float = 0.005,
    checks: int = 3,
) -> list[Outcome]:
    """Check all contenders against `workload.function` as it is, on `checks` fresh inputs, then
    time them interleaved."""
    device = torch.device(device)
    inputs = [workload.inputs() for _ in range(checks)]
    steps: dict[str, Call] = {}
    with workload.mode():
        expected = [workload.results(workload.function, arguments) for arguments in inputs]

        outcomes = []
        for contender in contenders:
            outcome = Outcome(contender.name, notes=[contender.note] if contender.note else [])
            outcomes.append(outcome)
            memory_before = reserved_memory(device)
            # Whatever a compiler may raise, the others go on
            try:
                function = contender.compile(workload.function)
                check = functools.partial(
                    check_results, outcome, workload, function, inputs, expected, device
                )
                outcome.program = contender.watch(check)

                # A wrong result is not timed
                if not outcome.problem:
                    steps[contender.name] = workload.step(function, inputs[0])
                    outcome.notes += memory_note(device, steps[contender.name], memory_before)
            except Exception as error:
                outcome.problem = reason_of(error)

        # In turn, so that a busy moment of the machine meets all of them
        samples = interleaved(steps, rounds, min_time, warmup, clock_for(device))

    for outcome in outcomes:
        outcome.samples = samples.get(outcome.name)
    return outcomes


def check_results(
    outcome: Outcome,
    workload: Workload,
    function: Callable[..., torch.Tensor],
    inputs: Sequence[Inputs],
    expected: Sequence[Sequence[torch.Tensor]],
    device: torch.device,
) -> None:
    """Run on all inputs, the first of them on the clock, and compare with what eager gave."""
    for number, (arguments, right) in enumerate(zip(inputs, expected, strict=True)):
        start = time.perf_counter()
        results = workload.results(function, arguments)
        if device.type == "cuda":
            # A GPU works on while Python goes on
            torch.cuda.synchronize()
        if number == 0:
            outcome.first_call = time.perf_counter() - start

        for place, (ours, theirs) in enumerate(zip(results, right, strict=True)):
            problem = problem_of(outcome, ours, theirs)
            if not problem:
                continue

            if rounding_grew(workload, arguments, ours, theirs, place):
                outcome.notes = [ROUNDING_GREW]
                continue
            outcome.problem = problem
            outcome.wrong = True
            return


ROUNDING_GREW = (
    "rounding grows in this model: no result is further from double precision than twice eager's"
)


def rounding_grew(
    workload: Workload, inputs: Inputs, ours: torch.Tensor, theirs: torch.Tensor, place: int
) -> bool:
    """Is a result of a model as near to double precision as eager's own? `place`: which of the
    results it is.

    Many layers make a large difference of a small one, in eager as well."""
    if not isinstance(workload.function, torch.nn.Module):
        return False
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    return as_exact(ours, theirs, exact(workload, inputs)[place])


def problem_of(outcome: Outcome, ours: torch.Tensor, theirs: torch.Tensor) -> str:
    """What is wrong with one result, or "". Notes the largest difference in the outcome."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"gives {ours.dtype} {tuple(ours.shape)}, eager {theirs.dtype} {tuple(theirs.shape)}"

    difference = 0.0
    if ours.numel():
        difference = (ours.double() - theirs.double()).abs().max().item()
    outcome.max_abs_diff = max(outcome.max_abs_diff, difference)

    rtol, atol = tolerance(theirs)
    if torch.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    return f"wrong result: differs from eager by up to {difference:.1e}"


def exact(workload: Workload, inputs: Inputs) -> Sequence[torch.Tensor]:
    """The results of eager in double precision, of a workload that is a module."""
    model = copy.deepcopy(workload.function).double()  # type: ignore[attr-defined]
    wide = tuple(map(in_double, inputs))
    return dataclasses.replace(workload, function=model).results(model, wide)


def in_double(x: torch.Tensor) -> torch.Tensor:
    """Floating-point numbers in double precision; other tensors as they are."""
    if x.is_floating_point():
        return x.detach().double().requires_grad_(x.requires_grad)
    return x


def as_exact(ours: torch.Tensor, theirs: torch.Tensor, right: torch.Tensor) -> bool:
    """Is `ours` at most twice as far from `right` as `theirs` is?

    Batch norms over few values, layer after layer, make large differences of small ones. Two runs
    of eager that round in different ways are as far apart.
    """
    return bool((ours.double() - right).abs().max() <= 2 * (theirs.double() - right).abs().max())


def tolerance(tensor: torch.Tensor) -> tuple[float, float]:
    """`rtol` and `atol` for this tensor."""
    rtol, atol = TOLERANCES.get(tensor.dtype, (0.0, 0.0))
    # TF32 keeps as many digits as float16
    may_be_tf32 = tensor.device.type == "cuda" and tensor.dtype == torch.float32
    if may_be_tf32 and torch.get_float32_matmul_precision() != "highest":
        rtol, atol = TOLERANCES[torch.float16]

    # What is added up to a number beside 0 has the error of its terms
    largest = 0.0
    if tensor.numel():
        largest = tensor.abs().max().item()
    return rtol, atol * max(1.0, largest)


def reserved_memory(device: torch.device) -> int:
    """Bytes on the GPU that are in use or held for CUDA graphs: what torch holds back without need
    is given back first."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def memory_note(device: torch.device, step: Call, before: int) -> list[str]:
    """How much more memory than `before` the GPU has reserved at the peak of a step, with what CUDA
    graphs keep between steps."""
    if device.type != "cuda":
        return []
    # What other contenders have left is given back first
    reserved_memory(device)
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return [f"takes {(torch.cuda.max_memory_reserved() - before) / 2**20:.0f} MiB"]


# ---- the contenders ------------------------------------------------------------------------------


def eager() -> Contender:
    """The workload as it is."""
    return Contender("eager", lambda function: function, watch_nothing)


def watch_nothing(run: Callable[[], None]) -> None:
    run()


def ours(mode: str = "default", dynamic: bool | None = None, fullgraph: bool = False) -> Contender:
    """`course_lib.compile`."""
    import course_lib

    # A mode that changes nothing on this machine should not look like a measurement of its own
    note = ""
    options, of_default = map(course_lib.list_mode_options, (mode, "default"))
    if mode != "default" and options == of_default:
        note = f"mode {mode} still does what default does"
    compile = functools.partial(course_lib.compile, mode=mode, dynamic=dynamic, fullgraph=fullgraph)
    return Contender("course_lib", compile, watch_ours, note)


def watch_ours(run: Callable[[], None]) -> Program:
    """Read from the events what was compiled."""
    recording = Recording()
    with events.listener(recording.events.append):
        run()

    # Calls of a library stand among the kernels
    built: list[Any] = []
    for event in recording.of(events.KernelsBuilt):
        built += event.compiled.schedule.kernels
    library = sum(isinstance(kernel, ExternKernel) and kernel.is_library for kernel in built)

    # Each reason once
    reasons = [f"{event.what}: {event.why}" for event in recording.of(events.FellBack)]
    return Program(
        graphs=len(recording.graphs),
        breaks=len(recording.graph_breaks),
        kernels=len(built) - library,
        library_calls=library,
        recompiles=len(recording.recompiles),
        fallbacks=list(dict.fromkeys(reasons)),
    )


def theirs(
    mode: str = "default", dynamic: bool | None = None, fullgraph: bool = False
) -> Contender:
    """`torch.compile`."""
    compile = functools.partial(torch.compile, mode=mode, dynamic=dynamic, fullgraph=fullgraph)
    return Contender("torch.compile", compile, watch_theirs)


def watch_theirs(run: Callable[[], None]) -> Program:
    """Read torch's own counters, and count the calls in the code that Inductor writes (its kernel
    counter counts attempts)."""
    from unittest.mock import patch

    from torch._dynamo.utils import counters
    from torch._inductor.graph import GraphLowering

    counters.clear()
    # Inductor hands each program that it has written to this method, which does nothing.
    sources: list[str] = []
    with patch.object(GraphLowering, "save_output_code", sources.append):
        run()

    # `cpp_fused_add_0(arg0, buf0)`, `triton_poi_fused_add_0.run(...)`
    code = "\n".join(sources)
    kernels = re.findall(r"^\s+(?:cpp_\w+\(|triton_\w+\.run\()", code, re.MULTILINE)
    # `extern_kernels.mm(...)`, `buf0 = torch.ops.aten.sort.stable(...)`
    library = re.findall(
        r"^\s+(?:\w+ = )?(?:extern_kernels\.\w+|torch\.ops(?:\.\w+){2,3})\(", code, re.MULTILINE
    )
    return Program(
        graphs=counters["stats"]["unique_graphs"],
        breaks=sum(counters["graph_break"].values()),
        kernels=len(kernels),
        library_calls=len(library),
    )


# ---- helpers -------------------------------------------------------------------------------------


def count(number: int, thing: str) -> str:
    """'no graph breaks', '1 graph', '3 kernels'."""
    return f"{number or 'no'} {thing}{'' if number == 1 else 's'}"


def reason_of(error: BaseException) -> str:
    """An exception in one line: the innermost cause says most."""
    while error.__cause__ is not None:
        error = error.__cause__
    message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {message}"[:200]
