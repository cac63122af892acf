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

ROUNDING_GROWS = (
    "rounding grows in this model: no result is further from double precision than twice eager's"
)


@dataclass(frozen=True)
class Workload:
    """`function` on what `inputs()` gives.

    `train`: forward and backward (no optimizer), else under `inference_mode`."""

    name: str
    function: Callable[..., torch.Tensor]
    inputs: Callable[[], Inputs]
    train: bool = False

    def mode(self) -> AbstractContextManager[Any]:
        return torch.enable_grad() if self.train else torch.inference_mode()

    def results(
        self, function: Callable[..., torch.Tensor], inputs: Inputs
    ) -> Sequence[torch.Tensor]:
        """All that one run computes: the output and, in training, every gradient."""
        if not self.train:
            output: Any = function(*inputs)
            return output if isinstance(output, tuple) else [output]
        output = function(*inputs)
        return [output.detach(), *self.backward(output, inputs, torch.ones_like(output).cos())]

    def backward(
        self, output: torch.Tensor, inputs: Inputs, upstream: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        parameters = (
            self.function.parameters() if isinstance(self.function, torch.nn.Module) else ()
        )
        return torch.autograd.grad(output, [*inputs, *parameters], upstream)

    def step(self, function: Callable[..., torch.Tensor], inputs: Inputs) -> Call:
        """What is timed."""
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
        parts += [count(self.recompiles, "recompile")] if self.recompiles is not None else []
        parts += [count(self.kernels, "kernel")]
        parts += (
            [count(self.library_calls, "library call")] if self.library_calls is not None else []
        )
        return ", ".join(parts) + "".join(f"; {text}" for text in self.fallbacks)


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
            try:
                function = contender.compile(workload.function)
                check = functools.partial(
                    check_results, outcome, workload, function, inputs, expected, device
                )
                outcome.program = contender.watch(check)
                if not outcome.problem:
                    steps[contender.name] = workload.step(function, inputs[0])
                    outcome.notes += memory_note(device, steps[contender.name], memory_before)
            except Exception as error:  # whatever a compiler may raise: the others go on
                outcome.problem = reason_of(error)
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
            torch.cuda.synchronize()
        if number == 0:
            outcome.first_call = time.perf_counter() - start
        for place, (ours, theirs) in enumerate(zip(results, right, strict=True)):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                outcome.problem = f"gives {ours.dtype} {tuple(ours.shape)}, eager {theirs.dtype} {tuple(theirs.shape)}"
                outcome.wrong = True
                return
            difference = (
                (ours.double() - theirs.double()).abs().max().item() if ours.numel() else 0.0
            )
            outcome.max_abs_diff = max(outcome.max_abs_diff, difference)
            rtol, atol = tolerance(theirs)
            if not torch.allclose(ours, theirs, rtol=rtol, atol=atol, equal_nan=True):
                if isinstance(workload.function, torch.nn.Module) and as_exact(
                    ours, theirs, exact(workload, arguments)[place]
                ):
                    outcome.notes = [
                        "rounding grows in this model: no result is further from double precision than twice eager's"
                    ]
                    continue
                outcome.problem = f"wrong result: differs from eager by up to {difference:.1e}"
                outcome.wrong = True
                return


def exact(workload: Workload, inputs: Inputs) -> Sequence[torch.Tensor]:
    """The results of eager in double precision, of a workload that is a module."""
    model = copy.deepcopy(workload.function).double()  # type: ignore[attr-defined]
    wide = tuple(map(in_double, inputs))
    return dataclasses.replace(workload, function=model).results(model, wide)


def in_double(x: torch.Tensor) -> torch.Tensor:
    """Floating-point numbers in double precision; other tensors as they are."""
    return x.detach().double().requires_grad_(x.requires_grad) if x.is_floating_point() else x


def as_exact(ours: torch.Tensor, theirs: torch.Tensor, right: torch.Tensor) -> bool:
    """Is `ours` at most twice as far from `right` as `theirs` is?

    Batch norms over few values, layer after layer, make large differences of small ones. Two runs
    of eager that round in different ways are as far apart.
    """
    return bool((ours.double() - right).abs().max() <= 2 * (theirs.double() - right).abs().max())


def tolerance(tensor: torch.Tensor) -> tuple[float, float]:
    """`rtol` and `atol` for this tensor."""
    rtol, atol = TOLERANCES.get(tensor.dtype, (0.0, 0.0))
    if (
        tensor.device.type == "cuda"
        and tensor.dtype == torch.float32
        and torch.get_float32_matmul_precision() != "highest"
    ):
        rtol, atol = TOLERANCES[torch.float16]  # TF32 keeps as many digits as float16
    largest = tensor.abs().max().item() if tensor.numel() else 0.0
    return rtol, atol * max(1.0, largest)


def reserved_memory(device: torch.device) -> int:
    """Bytes on the GPU that are in use or held for CUDA graphs."""
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

    is_as_default = mode != "default" and course_lib.list_mode_options(
        mode
    ) == course_lib.list_mode_options("default")
    note = f"mode {mode} still does what default does" if is_as_default else ""
    compile = functools.partial(course_lib.compile, mode=mode, dynamic=dynamic, fullgraph=fullgraph)
    return Contender("course_lib", compile, watch_ours, note)


def watch_ours(run: Callable[[], None]) -> Program:
    """Read from the events what was compiled."""
    recording = Recording()
    with events.listener(recording.events.append):
        run()
    built = [
        kernel
        for event in recording.of(events.KernelsBuilt)
        for kernel in event.compiled.schedule.kernels
    ]
    library = sum(isinstance(kernel, ExternKernel) and kernel.is_library for kernel in built)
    return Program(
        len(recording.graphs),
        len(recording.graph_breaks),
        len(built) - library,
        library,
        len(recording.recompiles),
        list(
            dict.fromkeys(f"{event.what}: {event.why}" for event in recording.of(events.FellBack))
        ),
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
    sources: list[str] = []
    with patch.object(GraphLowering, "save_output_code", sources.append):
        run()
    code = "\n".join(sources)
    return Program(
        counters["stats"]["unique_graphs"],
        sum(counters["graph_break"].values()),
        len(re.findall(r"^\s+(?:cpp_\w+\(|triton_\w+\.run\()", code, re.MULTILINE)),
        len(
            re.findall(
                r"^\s+(?:\w+ = )?(?:extern_kernels\.\w+|torch\.ops(?:\.\w+){2,3})\(",
                code,
                re.MULTILINE,
            )
        ),
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
