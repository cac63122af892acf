"""The second half of `cl.mirror`: kernels, bytes and times of both compilers, side by side; and the
four ways to combine halves.

In:  a `Trial`: a function with the arguments of one call, forward only or with a backward.
Out: `Halves`: for each compiler its kernels and what each fuses, the bytes they move, how long
     compiling and one call took, and how results and gradients compare with eager's. `ablation`
     runs capture and back half of both in all combinations.

What torch.compile made is learned in its public ways: the code that `run_and_get_code` returns and
the counters of `torch._inductor.metrics`. Where a version of torch has them no more, the cell says
"not available".
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from course_lib import events
from course_lib.autograd import fall_back
from course_lib.compiler import compile
from course_lib.pipeline import Pipeline, needs_grad
from course_lib.viz.kit.arguments import a_function
from course_lib.viz.kit.style import Picture, escape, human_bytes, human_seconds
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.mirror.timing import interleaved
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.recording import Recording
from course_lib.viz.report.compile_tree import compiles_of

SAME = "as eager"
"""How a result compares that does not differ."""
NOT_AVAILABLE = "not available"
Wrap = Callable[[Any], Any]
"""What compiles a function: `compile`, `torch.compile`; or gives it back, for eager."""


@dataclass
class Trial:
    """One call, to be made again and again on equal arguments.

    With `train`, the backward of the sum of its results follows."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    train: bool = False

    def prepare(self, wrap: Wrap) -> Callable[[], Any]:
        """The call through `wrap(function)`, on copies of the function and of the arguments, ready
        to be made many times.

        It gives the results and, with `train`, the gradients."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, copied, (self.args, self.kwargs))
        own = copy.deepcopy(self.function)
        wrapped = wrap(own)

        leaves = with_gradient((args, kwargs))
        if isinstance(own, torch.nn.Module):
            leaves += own.parameters()

        def call() -> Any:
            results = wrapped(*args, **kwargs)
            if not self.train:
                return results

            for leaf in leaves:
                leaf.grad = None
            torch.autograd.backward([tensor.sum() for tensor in with_gradient(results)])
            return results, [leaf.grad for leaf in leaves]

        return call

    def run(self, wrap: Wrap) -> Any:
        """The call, once, with numbers that are the same each time."""
        return seeded(self.prepare(wrap))


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf of its own with the same values."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def with_gradient(tree: Any) -> list[torch.Tensor]:
    """The tensors in nested arguments or results that a gradient flows to."""
    return [tensor for tensor in tensors_in(tree) if tensor.requires_grad]


def seeded(call: Callable[[], Any]) -> Any:
    """What a call gives, its random numbers drawn from the same seed; the user's generator stays as
    it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return call()


def itself(function: Any) -> Any:
    """What eager is wrapped in."""
    return function


# ---- comparing results ---------------------------------------------------------------------------


def verdict(got: Any, wanted: Any) -> str:
    """`SAME`, or how a result differs from eager's."""
    # (Of results with unequal numbers of leaves, `None` stands beside what the other has more.)
    for our_leaf, eager_leaf in itertools.zip_longest(
        pytree.tree_leaves(got), pytree.tree_leaves(wanted)
    ):
        try:
            torch.testing.assert_close(our_leaf, eager_leaf, equal_nan=True, check_dtype=False)
        except (AssertionError, TypeError):
            return "other values than eager"
        if isinstance(eager_leaf, torch.Tensor) and our_leaf.dtype != eager_leaf.dtype:
            return f"{our_leaf.dtype} where eager gives {eager_leaf.dtype}".replace("torch.", "")
    return SAME


def largest_difference(got: Any, wanted: Any) -> float:
    """Between the numbers of two results."""
    differences = []
    for our_leaf, eager_leaf in zip(
        pytree.tree_leaves(got), pytree.tree_leaves(wanted), strict=False
    ):
        if not (isinstance(our_leaf, torch.Tensor) and isinstance(eager_leaf, torch.Tensor)):
            continue
        if our_leaf.shape == eager_leaf.shape and our_leaf.numel():
            difference = our_leaf.detach().double() - eager_leaf.detach().double()
            differences.append(float(difference.abs().max()))
    return max(differences, default=0.0)


# ---- both compilers side by side -----------------------------------------------------------------


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
        """The row of the table: one text for each column."""
        answer = self.answer
        if answer == SAME:
            answer = f"{SAME} (largest difference {self.difference:.1e})"
        return [
            NOT_AVAILABLE if self.kernels is None else str(len(self.kernels)),
            if_known(self.bytes, human_bytes),
            if_known(self.compile_seconds, human_seconds),
            if_known(self.run_seconds, human_seconds),
            answer,
        ]

    @property
    def listed(self) -> list[str]:
        """The kernels, a line each."""
        if self.kernels is None:
            return [NOT_AVAILABLE]
        return self.kernels or ["none"]


def if_known(number: float | None, in_words: Callable[[float], str]) -> str:
    """A number in words, or that it is not available."""
    if number is None:
        return NOT_AVAILABLE
    return in_words(number)


THEIR_KERNEL = re.compile(
    r"^\s+(?:\w+ = )?(cpp_fused_\w+|triton_\w+|extern_kernels\.\w+|torch\.ops\.[\w.]+?)"
    r"(?:\.default|\.out|\.run)?\(",
    flags=re.M,
)
"""A kernel or library call in code that TorchInductor printed."""
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
        """The numbers, and below them the kernels.

        Times are no part of the text: they are never twice the same."""
        sides = (self.ours, self.theirs)
        header = ("", *(side.name for side in sides))
        kernels_header = [f"kernels of {side.name}" for side in sides]
        rows = list(zip(ROWS, *(side.cells() for side in sides), strict=True))
        pairs = list(itertools.zip_longest(*(side.listed for side in sides), fillvalue=""))

        code = [tuple(f"<code>{escape(kernel)}</code>" for kernel in pair) for pair in pairs]
        body = f'<div class="cl-scroll">{html_table(rows, header)}'
        body += f"<p>Eager takes {human_seconds(self.eager_seconds)} for one call.</p>"
        body += f"{html_table(code, kernels_header)}</div>"

        # Kernels and bytes; times differ from run to run.
        stable_rows = [row for row in rows if row[0] in ROWS[:2]]
        stable_rows.append(("result", *(side.answer for side in sides)))
        text = f"{columns(stable_rows, header)}\n\n{columns(pairs, kernels_header)}"

        kind = "forward and backward" if self.train else "forward"
        kernels_in_words = []
        for side in sides:
            kernels, bytes_moved, *_ = side.cells()
            kernels_in_words.append(f"{side.name} {kernels}, {bytes_moved}")
        alt = f"Kernels of both compilers, {kind}: {'; '.join(kernels_in_words)}."
        caption = f"The same call ({kind}) in both compilers: each line is a kernel or library call, in the order in which it runs."
        return Picture(body, caption, alt, text, sheets=("mirror",))

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


def halves(trial: Trial) -> Halves:
    """Make the call through both compilers and in eager.

    Resets `torch._dynamo` before and after."""
    expected = trial.run(itself)
    calls: dict[str, Callable[[], Any]] = {"eager": trial.prepare(itself)}
    ours = our_half(trial, expected, calls)
    theirs = their_half(trial, expected, calls)

    seconds = seeded(lambda: interleaved(calls))
    ours.run_seconds = seconds.get(ours.name)
    theirs.run_seconds = seconds.get(theirs.name)
    torch._dynamo.reset()
    return Halves(ours, theirs, seconds["eager"], trial.train)


def our_half(trial: Trial, expected: Any, calls: dict[str, Callable[[], Any]]) -> Half:
    """Our kernels, from the events; the call that is ready to be timed is put into `calls`."""
    half = Half("course_lib")
    recording = Recording()
    with events.listener(recording.note):
        first_call(half, trial, compile, expected, calls)

    # Backward is built together with forward. Without `train` it does not run.
    programs = [program for one in compiles_of(recording) for program in one.programs]
    programs = [program for program in programs if trial.train or program.part != "backward"]
    kernels = [kernel for program in programs for kernel in kernels_of(program)]

    half.kernels = []
    for kernel in kernels:
        over = "" if kernel.is_library else f" over {kernel.space}"
        half.kernels.append(f"{kernel.name}{over}")
    half.bytes = float(sum(kernel.bytes for kernel in kernels))
    return half


def their_half(trial: Trial, expected: Any, calls: dict[str, Callable[[], Any]]) -> Half:
    """TorchInductor's kernels, from the code that it printed; the call that is ready to be timed is
    put into `calls`."""
    half = Half("torch.compile")
    torch._dynamo.reset()
    try:
        from torch._inductor import compile_fx, config, metrics
        from torch._inductor.utils import run_and_get_code

        metrics.reset()
        with (
            config.patch(force_disable_caches=True),
            counting_bytes(compile_fx.inductor_metrics_log),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            _, sources = run_and_get_code(
                lambda: first_call(half, trial, torch.compile, expected, calls)
            )

        # Source in which no kernel is found was printed by another version of torch.
        kernels = [name for source in sources for name in kernels_in(source)]
        if kernels or not sources:
            half.kernels = kernels
            half.bytes = float(metrics.num_bytes_accessed) if kernels else 0.0
    except (ImportError, AttributeError, TypeError):
        # Another version of torch: what it made is not known, how long it takes is.
        if half.name not in calls:
            first_call(half, trial, torch.compile, expected, calls)
    return half


@contextlib.contextmanager
def counting_bytes(log: logging.Logger) -> Iterator[None]:
    """TorchInductor counts bytes only for those who read this log.

    They are read here, and nothing is printed."""
    level = log.level
    propagate = log.propagate
    handlers = log.handlers
    log.propagate = False
    log.handlers = [logging.NullHandler()]
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.propagate = propagate
        log.handlers = handlers
        log.setLevel(level)


def first_call(
    half: Half, trial: Trial, wrap: Wrap, expected: Any, calls: dict[str, Callable[[], Any]]
) -> None:
    """Compile, call once and compare: notes the outcome in `half`, and in `calls` the compiled call
    (unless it raised)."""
    call = trial.prepare(wrap)
    start = time.perf_counter()
    try:
        got = seeded(call)
    except Exception as error:
        half.answer = f"raised {type(error).__name__}"
        return

    half.compile_seconds = time.perf_counter() - start
    half.answer = verdict(got, expected)
    half.difference = largest_difference(got, expected)
    calls[half.name] = call


def kernels_in(source: str) -> list[str]:
    """The kernels and library calls in code that TorchInductor generated, in the order in which
    they run."""
    # They are called in `call`, which ends before the line that makes a runner of it.
    start = max(source.find("def call("), 0)
    call = source[start:].partition("\nrunner = ")[0]
    return THEIR_KERNEL.findall(call)


# ---- the halves, exchanged -----------------------------------------------------------------------


def course(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Our back half under torch's capture: `torch.compile(f, backend="course")` (registered as an
    entry point)."""
    if not all(
        isinstance(example, (torch.Tensor, torch.SymInt, int)) for example in example_inputs
    ):
        return fall_back(gm, "torch's capture gave it inputs that are neither tensors nor sizes")
    # TorchDynamo makes a tensor of a float that has changed, and reads the number out of it.
    if gm.graph.find_nodes(op="call_method", target="item"):
        return fall_back(gm, "the graph reads a number out of a tensor")

    # Our back half looks for values under the name that FX uses.
    for node in gm.graph.nodes:
        if "example_value" in node.meta:
            node.meta.setdefault("val", node.meta["example_value"])
    return Pipeline().run_compile(gm, differentiate=needs_grad(example_inputs, gm))


def ours_then_theirs(function: Any) -> Any:
    """Our capture, and TorchInductor behind it."""
    return compile(function, backend="torch_inductor")


def theirs_then_ours(function: Any) -> Any:
    """TorchDynamo, and our back half behind it."""
    return torch.compile(function, backend=course)


COMBINATIONS: dict[tuple[str, str], Wrap] = {
    ("course_lib", "course_lib"): compile,
    ("course_lib", "TorchInductor"): ours_then_theirs,
    ("TorchDynamo", "course_lib"): theirs_then_ours,
    ("TorchDynamo", "TorchInductor"): torch.compile,
}
"""(who captures, who makes kernels) → how."""


@dataclass
class Ablation:
    """One call through each combination: seconds of the first call and of one call, and how the
    result compares."""

    first: dict[tuple[str, str], float] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    answers: dict[tuple[str, str], str] = field(default_factory=dict)
    eager_seconds: float = 0.0

    @property
    def picture(self) -> Picture:
        """A line for each combination. Times are no part of the text."""
        header = ("capture", "kernels", "first call", "one call", "against eager", "result")
        rows = [(*who, *self.times(who), answer) for who, answer in self.answers.items()]
        lines = [(*who, answer) for who, answer in self.answers.items()]
        answers_in_words = [f"{front} with {back}: {answer}" for front, back, answer in lines]

        body = f'<div class="cl-scroll">{html_table(rows, header, numbers=[2, 3])}</div>'
        caption = "Capture and back half of both compilers in all four combinations: what differs between two lines is one half's."
        alt = f"Four combinations of capture and back half: {'; '.join(answers_in_words)}."
        text = columns(lines, (*header[:2], header[-1]))
        return Picture(body, caption, alt, text)

    def times(self, who: tuple[str, str]) -> tuple[str, str, str]:
        """The first call, one call, and how it compares with eager."""
        seconds_of_call = self.seconds.get(who)
        if not seconds_of_call:
            return "–", "–", "–"
        ratio = f"{self.eager_seconds / seconds_of_call:.2f}× as fast"
        return human_seconds(self.first[who]), human_seconds(seconds_of_call), ratio

    def __repr__(self) -> str:
        return self.picture.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


def ablation(
    function: Callable[..., Any], *args: Any, train: bool = False, **kwargs: Any
) -> Ablation:
    """`function(*args, **kwargs)` through the four combinations of capture and back half, to tell
    which half a difference comes from: {ours, TorchDynamo} × {ours, TorchInductor}. Resets
    `torch._dynamo` before and after."""
    a_function(function, "ablation")
    trial = Trial(function, args, kwargs, train)
    result = Ablation()
    expected = trial.run(itself)

    calls: dict[Any, Callable[[], Any]] = {"eager": trial.prepare(itself)}
    for combination, wrap in COMBINATIONS.items():
        torch._dynamo.reset()
        half = Half(" with ".join(combination))

        # A combination that raises has no time, and no call to be timed later.
        made: dict[str, Callable[[], Any]] = {}
        first_call(half, trial, wrap, expected, made)

        result.answers[combination] = half.answer
        if half.compile_seconds is not None:
            result.first[combination] = half.compile_seconds
            calls[combination] = made[half.name]

    seconds = seeded(lambda: interleaved(calls))
    result.eager_seconds = seconds.pop("eager")
    result.seconds = seconds
    torch._dynamo.reset()
    return result
