"""The second half of `cl.mirror`: kernels, bytes and times of both compilers, side by side; and the four ways to combine halves.

In:  a `Trial`: a function with the arguments of one call, forward only or with a backward.
Out: `Halves`: for each compiler its kernels and what each fuses, the bytes they move, how long compiling and one call took,
     and how results and gradients compare with eager's. `ablation` runs capture and back half of both in all combinations.

What torch.compile made is learned in its public ways: the code that `run_and_get_code` returns and the counters of
`torch._inductor.metrics`. Where a version of torch has them no more, the cell says "not available".
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from course_lib import events
from course_lib.compiler import compile
from course_lib.pipeline import Pipeline, fall_back, needs_grad
from course_lib.viz.kit.asked import a_function
from course_lib.viz.kit.style import Picture, escape, human_bytes, human_seconds
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.recording import Recording
from course_lib.viz.report.compile_tree import compiles_of

SAME = "as eager"
NOT_AVAILABLE = "not available"
Wrap = Callable[[Any], Any]


@dataclass
class Trial:
    """One call, to be made again and again on equal arguments. With `train`, the backward of the sum of its results follows."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    train: bool = False

    def prepare(self, wrap: Wrap) -> Callable[[], Any]:
        """The call through `wrap(function)`, on copies of the function and of the arguments, ready to be made many times. It
        gives the results and, with `train`, the gradients."""
        fresh = lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad)
        args, kwargs = pytree.tree_map_only(torch.Tensor, fresh, (self.args, self.kwargs))
        own = copy.deepcopy(self.function)
        wrapped = wrap(own)
        leaves = [
            t
            for t in pytree.tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor) and t.requires_grad
        ]
        leaves += list(own.parameters()) if isinstance(own, torch.nn.Module) else []

        def call() -> Any:
            results = wrapped(*args, **kwargs)
            if not self.train:
                return results
            for leaf in leaves:
                leaf.grad = None
            tensors = [
                t
                for t in pytree.tree_leaves(results)
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            torch.autograd.backward([t.sum() for t in tensors])
            return results, [leaf.grad for leaf in leaves]

        return call

    def run(self, wrap: Wrap) -> Any:
        """The call, once, with numbers that are the same each time."""
        return seeded(self.prepare(wrap))


def seeded(call: Callable[[], Any]) -> Any:
    """What a call gives, its random numbers drawn from the same seed; the user's generator stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return call()


def verdict(got: Any, wanted: Any) -> str:
    """`SAME`, or how a result differs from eager's."""
    for one, two in itertools.zip_longest(pytree.tree_leaves(got), pytree.tree_leaves(wanted)):
        try:
            torch.testing.assert_close(one, two, equal_nan=True, check_dtype=False)
        except (AssertionError, TypeError):
            return "other values than eager"
        if isinstance(two, torch.Tensor) and one.dtype != two.dtype:
            return f"{one.dtype} where eager gives {two.dtype}".replace("torch.", "")
    return SAME


def largest_difference(got: Any, wanted: Any) -> float:
    """Between the numbers of two results."""
    pairs = zip(pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=False)
    tensors = [
        (a, b)
        for a, b in pairs
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
    ]
    return max(
        (
            float((a.detach().double() - b.detach().double()).abs().max())
            for a, b in tensors
            if a.numel()
        ),
        default=0.0,
    )


@dataclass
class Half:
    """What one compiler made of the call. A value that could not be learned is None."""

    name: str
    kernels: list[str] | None = None
    """Each with what it fuses."""
    bytes: float | None = None
    compile_seconds: float | None = None
    run_seconds: float | None = None
    answer: str = SAME
    difference: float = 0.0

    def cells(self) -> list[str]:
        """As the table has them."""
        show = lambda value, how: NOT_AVAILABLE if value is None else how(value)
        return [
            show(self.kernels, lambda kernels: str(len(kernels))),
            show(self.bytes, human_bytes),
            show(self.compile_seconds, human_seconds),
            show(self.run_seconds, human_seconds),
            self.answer
            if self.answer != SAME
            else f"{SAME} (largest difference {self.difference:.1e})",
        ]


ROWS = ("kernels", "bytes through memory", "compiling, first call", "one call", "result")


@dataclass
class Halves:
    """Both compilers, all the way to kernels; and eager's time for one call."""

    ours: Half
    theirs: Half
    eager_seconds: float
    train: bool = False

    @property
    def picture(self) -> Picture:
        """The numbers, and below them the kernels. Times are no part of the text: they are never twice the same."""
        sides = (self.ours, self.theirs)
        header = ("", *(side.name for side in sides))
        rows = list(zip(ROWS, *(side.cells() for side in sides), strict=True))
        lists = [
            [NOT_AVAILABLE] if side.kernels is None else side.kernels or ["none"] for side in sides
        ]
        pairs = list(itertools.zip_longest(*lists, fillvalue=""))
        body = (
            html_table(rows, header)
            + f"<p>Eager takes {human_seconds(self.eager_seconds)} for one call.</p>"
        )
        body += html_table(
            [tuple(f"<code>{escape(kernel)}</code>" for kernel in pair) for pair in pairs],
            [f"kernels of {s.name}" for s in sides],
        )
        same = [row for row in rows if row[0] in ROWS[:2]] + [
            ("result", *(side.answer for side in sides))
        ]
        text = (
            columns(same, header)
            + "\n\n"
            + columns(pairs, [f"kernels of {side.name}" for side in sides])
        )
        kind = "forward and backward" if self.train else "forward"
        alt = (
            f"Kernels of both compilers, {kind}: "
            + "; ".join(f"{s.name} {s.cells()[0]}, {s.cells()[1]}" for s in sides)
            + "."
        )
        caption = f"The same call ({kind}) in both compilers: each line is a kernel or library call, in the order in which it runs."
        return Picture(f'<div class="cl-scroll">{body}</div>', caption, alt, text, ("mirror",))

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


def halves(trial: Trial) -> Halves:
    """Make the call through both compilers and in eager. Resets `torch._dynamo` before and after."""
    expected = trial.run(lambda f: f)
    calls: dict[str, Callable[[], Any]] = {"eager": trial.prepare(lambda f: f)}
    ours = our_half(trial, expected, calls)
    theirs = their_half(trial, expected, calls)
    seconds = seeded(lambda: interleaved(calls))
    ours.run_seconds, theirs.run_seconds = seconds.get(ours.name), seconds.get(theirs.name)
    torch._dynamo.reset()
    return Halves(ours, theirs, seconds["eager"], trial.train)


def our_half(trial: Trial, expected: Any, calls: dict[str, Callable[[], Any]]) -> Half:
    half, recording = Half("course_lib"), Recording()
    with events.listener(recording.note):
        first_call(half, trial, compile, expected, calls)
    programs = [program for one in compiles_of(recording) for program in one.programs]
    # built at once, and not run
    programs = [program for program in programs if trial.train or program.part != "backward"]
    kernels = [kernel for program in programs for kernel in kernels_of(program)]
    half.kernels = [
        kernel.name if kernel.is_library else f"{kernel.name} over {kernel.space}"
        for kernel in kernels
    ]
    half.bytes = float(sum(kernel.bytes for kernel in kernels))
    return half


def their_half(trial: Trial, expected: Any, calls: dict[str, Callable[[], Any]]) -> Half:
    half, sources = Half("torch.compile"), []
    torch._dynamo.reset()
    try:
        from torch._inductor import compile_fx, config, metrics
        from torch._inductor.utils import run_and_get_code

        metrics.reset()
        with (
            config.patch(force_disable_caches=True),
            counting(compile_fx.inductor_metrics_log),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            _, sources = run_and_get_code(
                lambda: first_call(half, trial, torch.compile, expected, calls)
            )
        kernels = [name for source in sources for name in kernels_in(source)]
        if kernels or not sources:  # a source in which none is found is another torch's
            half.kernels, half.bytes = (
                kernels,
                float(metrics.num_bytes_accessed) if kernels else 0.0,
            )
    except (ImportError, AttributeError, TypeError):
        # another torch: what it made is not known, how long it takes is
        if half.name not in calls:
            first_call(half, trial, torch.compile, expected, calls)
    return half


@contextlib.contextmanager
def counting(log: logging.Logger) -> Iterator[None]:
    """TorchInductor counts bytes only for those who read this log. They are read here, and nothing is printed."""
    level, propagate, handlers = log.level, log.propagate, log.handlers
    log.propagate, log.handlers = False, [logging.NullHandler()]
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.propagate, log.handlers = propagate, handlers
        log.setLevel(level)


def first_call(
    half: Half, trial: Trial, wrap: Wrap, expected: Any, calls: dict[str, Callable[[], Any]]
) -> None:
    """Compile and call once, and compare."""
    call = trial.prepare(wrap)
    start = time.perf_counter()
    try:
        got = seeded(call)
    except Exception as error:
        half.answer = f"raised {type(error).__name__}"
        return
    half.compile_seconds = time.perf_counter() - start
    half.answer, half.difference = verdict(got, expected), largest_difference(got, expected)
    calls[half.name] = call


def kernels_in(source: str) -> list[str]:
    """The kernels and library calls in code that TorchInductor generated, in the order in which they run."""
    start = max(source.find("def call("), 0)
    pattern = r"^\s+(?:\w+ = )?(cpp_fused_\w+|triton_\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+?)(?:\.default|\.out|\.run)?\("
    return re.findall(pattern, source[start:].partition("\nrunner = ")[0], flags=re.M)


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int = 7, seconds: float = 0.003
) -> dict[str, float]:
    """Seconds for one call of each: the median of rounds in which all take turns. (Lesson 13 measures with more care.)"""
    counts = {}
    took: dict[str, list[float]] = {name: [] for name in calls}
    with silent():
        for name, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            counts[name] = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
        for _ in range(rounds):
            for name, call in calls.items():
                start = time.perf_counter()
                for _ in range(counts[name]):
                    call()
                took[name].append((time.perf_counter() - start) / counts[name])
    return {name: sorted(times)[rounds // 2] for name, times in took.items()}


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What is called many times over only to be timed prints nothing, and warns of nothing."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


# ---- the halves, exchanged ------------------------------------------------------------------------------------------


def course(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Our back half under torch's capture: `torch.compile(f, backend="course")` (registered as an entry point)."""
    if not all(isinstance(one, (torch.Tensor, torch.SymInt, int)) for one in example_inputs):
        return fall_back(gm, "torch's capture gave it inputs that are neither tensors nor sizes")
    # so it does with a float that has changed
    if gm.graph.find_nodes(op="call_method", target="item"):
        return fall_back(gm, "the graph reads a number out of a tensor")
    for node in gm.graph.nodes:
        if "example_value" in node.meta:
            node.meta.setdefault("val", node.meta["example_value"])
    return Pipeline().run_compile(gm, differentiate=needs_grad(example_inputs, gm))


COMBINATIONS: dict[tuple[str, str], Wrap] = {
    ("course_lib", "course_lib"): compile,
    ("course_lib", "TorchInductor"): lambda f: compile(f, backend="torch_inductor"),
    ("TorchDynamo", "course_lib"): lambda f: torch.compile(f, backend=course),
    ("TorchDynamo", "TorchInductor"): torch.compile,
}
"""(who captures, who makes kernels) → how."""


@dataclass
class Ablation:
    """One call through each combination: seconds of the first call and of one call, and how the result compares."""

    first: dict[tuple[str, str], float] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    eager_seconds: float = 0.0

    @property
    def picture(self) -> Picture:
        header = ("capture", "kernels", "first call", "one call", "against eager", "result")
        rows = []
        for combination, answer in self.answers.items():
            took = self.seconds.get(combination)
            times = (
                [human_seconds(self.first[combination]), human_seconds(took)]
                if took
                else ["–", "–"]
            )
            ratio = f"{self.eager_seconds / took:.2f}× as fast" if took else "–"
            rows.append((*combination, *times, ratio, answer))
        text = columns(
            [(a, b, answer) for (a, b), answer in self.answers.items()], (*header[:2], header[-1])
        )
        said = "; ".join(f"{a} with {b}: {answer}" for (a, b), answer in self.answers.items())
        caption = "Capture and back half of both compilers in all four combinations: what differs between two lines is one half's."
        alt = f"Four combinations of capture and back half: {said}."
        return Picture(
            f'<div class="cl-scroll">{html_table(rows, header, [2, 3])}</div>', caption, alt, text
        )

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


def ablation(
    function: Callable[..., Any], *args: Any, train: bool = False, **kwargs: Any
) -> Ablation:
    """`function(*args, **kwargs)` through the four combinations of capture and back half, to tell which half a difference comes
    from: {ours, TorchDynamo} × {ours, TorchInductor}. Resets `torch._dynamo` before and after."""
    a_function(function, "ablation")
    trial, result = Trial(function, args, kwargs, train), Ablation()
    expected = trial.run(lambda f: f)
    calls: dict[Any, Callable[[], Any]] = {"eager": trial.prepare(lambda f: f)}
    for combination, wrap in COMBINATIONS.items():
        torch._dynamo.reset()
        half = Half(" with ".join(combination))
        made: dict[str, Callable[[], Any]] = {}
        first_call(half, trial, wrap, expected, made)
        result.answers[combination] = half.answer
        if half.compile_seconds is not None:
            result.first[combination], calls[combination] = half.compile_seconds, made[half.name]
    seconds = seeded(lambda: interleaved(calls))
    result.eager_seconds = seconds.pop("eager")
    result.seconds = seconds
    torch._dynamo.reset()
    return result
