"""How much of torch course_lib compiles, and whether it is right: torch's own operator database,
one call at a time.

In:  `torch.testing._internal.common_methods_invocations.op_db`: about 700 operators, each with
     sample inputs for many dtypes.
Out: for each operator and dtype how its calls were compiled, as JSON and as a Markdown table.

A call counts as
    lowered       every kernel is ours (or there is nothing to run: views, constants)
    mixed         kernels of ours and calls of torch's own operators
    extern        only calls of torch's own operators
    not captured  a graph break, or the graph runs operation by operation
    wrong         a value, dtype, shape or stride differs from eager's, or compiling failed

Kernels are built for real, or their loops are run by the numpy evaluator, which is faster by far
(`Job.build` says which). Every operator has a process of its own, so that a crash or an endless
loop costs that operator only.
In PyTorch: `test/inductor/test_torchinductor_opinfo.py`.
"""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import time
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import course_lib as cl
from course_lib import events
from course_lib.lowering import ExternKernel, LoopGraph
from course_lib.tools.differences import differ, difference
from course_lib.viz.evaluator import evaluate

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "bool")
KINDS = ("lowered", "mixed", "extern", "not captured", "wrong")

WIDER = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
"""dtype → the one in which eager is asked for the exact result."""
NOBODY_SET_IT = ("empty", "resize_")
"""Operators whose values are whatever lay in memory (a part of their name)."""
MANY = 60
"""A call with more tensors than this in it says nothing that a smaller one does not."""


@dataclass(frozen=True)
class Job:
    """What to do with one operator: which dtypes, how many samples of each, and how."""

    operator: str
    dtypes: tuple[str, ...] = DTYPES
    samples: int = 4
    build: tuple[str, ...] = ()
    """Dtypes whose kernels are built in C++ and called; for the others the numpy evaluator runs the
    loops."""
    hostile: bool = False
    """Samples with nan, inf, denormals and zeros in them, transposed, flipped and expanded."""
    seed: int = 0


@dataclass
class Row:
    """One operator with one dtype."""

    operator: str
    dtype: str
    built: bool
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    extern: dict[str, str] = field(default_factory=dict)
    """ATen operators that torch runs, and why."""
    notes: list[str] = field(default_factory=list)
    """Why something was not captured; what is wrong."""


@dataclass
class Call:
    """How one call was compiled."""

    kind: str
    extern: dict[str, str] = field(default_factory=dict)
    note: str = ""


# ---- the operators and their samples -------------------------------------------------------------


def database() -> dict[str, Any]:
    """Every `OpInfo` of torch's database by its full name ('norm.fro', 'nn.functional.gelu')."""
    from torch.testing._internal import common_methods_invocations as torchs

    # The database seeds each call by itself; here `seeded` does that.
    torchs.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

    op_infos = list(torchs.op_db)
    for kind in ("unary", "binary", "pointwise", "reduce", "other"):
        op_infos += getattr(torchs, f"foreach_{kind}_op_db")
    return {op.full_name: op for op in op_infos}


def operation(info: Any) -> Callable[..., Any]:
    """What to call.

    The database wraps some operators in functions of its own; capture follows these like a
    user's."""
    op = info.op
    if not (isinstance(op, types.FunctionType) and op.__module__.startswith("torch.testing")):
        return op

    users = types.FunctionType(
        op.__code__, op.__globals__, op.__name__, op.__defaults__, op.__closure__
    )
    users.__kwdefaults__ = op.__kwdefaults__
    users.__module__ = __name__
    return users


def samples(info: Any, dtype: torch.dtype, job: Job) -> Iterator[Any]:
    """A few of the operator's samples, spread over all of them."""
    torch.manual_seed(job.seed)
    # Some operators have thousands of samples, and making them takes long.
    every = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=False), 400))
    every = [one for one in every if len(tree_leaves((one.input, one.args, one.kwargs))) <= MANY]

    chosen = every
    if job.samples:
        step = max(1, len(every) // job.samples)
        chosen = every[::step][: job.samples]
    for sample in chosen:
        if job.hostile:
            yield from hostile(sample)
        else:
            yield sample


def hostile(sample: Any) -> Iterator[Any]:
    """The same call with values and layouts that break careless code."""
    for twist in (with_hard_values, flipped, transposed, widened):
        yield sample.transform(on_tensors(twist))


def on_tensors(twist: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """`twist` for tensors; other values stay as they are."""

    def changed(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return twist(value)
        return value

    return changed


def with_hard_values(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return x

    # below `tiny`, the smallest normal number, lie the denormals
    tiny = torch.finfo(x.dtype).tiny
    values = [float("nan"), float("inf"), -float("inf"), tiny / 4, 0.0, -0.0, 1.0, -tiny]
    hard = torch.tensor(values, dtype=torch.float64).to(x.dtype)
    picked = hard[torch.randint(len(hard), x.shape)]
    return torch.where(torch.rand(x.shape) < 0.3, picked, x)


def flipped(x: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor, from another place than its start."""
    if x.layout is not torch.strided:
        return x
    room = torch.zeros([2 * size + 1 for size in x.shape], dtype=x.dtype)
    return room[tuple(slice(1, None, 2) for _ in x.shape)].copy_(x)


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The same tensor with its first dimension fastest in memory."""
    if x.layout is not torch.strided:
        return x
    turned = tuple(range(x.ndim))[::-1]
    return x.clone().permute(turned).contiguous().permute(turned)


def widened(x: torch.Tensor) -> torch.Tensor:
    """All rows the same memory (stride 0)."""
    if x.ndim and x.shape[0] and x.layout is torch.strided:
        return x[:1].expand(x.shape)
    return x


# ---- one call ------------------------------------------------------------------------------------


def run_by_numpy(
    loops: LoopGraph, schedule: Any, plan: Any, codegen: str
) -> Callable[..., tuple[Any, ...]]:
    """In place of `runtime.build`: the loops as they were lowered, without kernels."""

    def run(*args: Any) -> tuple[Any, ...]:
        return tuple(evaluate(loops, *args))

    return run


BY_NUMPY = cl.Pipeline().replace(build=run_by_numpy)


class Watch:
    """What the compiler tells about one call."""

    def __init__(self) -> None:
        self.ours = 0
        self.extern: dict[str, str] = {}
        self.problems: list[str] = []

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.GraphBroke):
            self.problems.append(f"graph break: {event.problem.reason}")
        elif isinstance(event, events.FellBack):
            self.problems.append(event.why)
        elif isinstance(event, events.Scheduled):
            for kernel in event.schedule.kernels:
                if isinstance(kernel, ExternKernel) and kernel.is_library:
                    self.extern[str(kernel.op)] = kernel.why
                else:
                    self.ours += 1

    def call(self) -> Call:
        """How the call was compiled. Of several problems the first is told."""
        if self.problems:
            return Call("not captured", self.extern, self.problems[0].splitlines()[0])
        if not self.extern:
            return Call("lowered")
        return Call("mixed" if self.ours else "extern", self.extern)


def try_call(info: Any, op: Callable[..., Any], sample: Any, build: bool) -> Call | None:
    """Compile and run one sample; None where eager raises itself."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    sample_arguments = (sample.input, *sample.args), sample.kwargs
    try:
        changed = fresh(sample_arguments)
        expected = seeded(op, changed)
        random = is_random(info, op, sample_arguments, expected)
    except Exception:
        return None

    arguments, watch = fresh(sample_arguments), Watch()
    try:
        compiled = cl.compile(function, dynamic=False, pipeline=None if build else BY_NUMPY)
        with events.listener(watch):
            result = seeded(compiled, arguments)
    except Exception as error:
        first_line = ""
        if str(error):
            first_line = str(error).splitlines()[0]
        return Call("wrong", watch.extern, f"{type(error).__name__}: {first_line}")

    # Arguments that the call writes to must be as eager leaves them, too.
    reference = None if random else in_float64(op, sample_arguments)
    problem = difference(result, expected, random, reference) or difference(
        arguments, changed, random
    )
    if problem:
        return Call("wrong", watch.extern, problem)
    return watch.call()


def is_random(info: Any, op: Callable[..., Any], arguments: Any, expected: Any) -> bool:
    """Does the result depend on the seed, or on memory that nobody set?"""
    if any(part in info.name for part in NOBODY_SET_IT):
        return True
    return differ(expected, seeded(op, fresh(arguments), seed=1))


def fresh(arguments: Any) -> Any:
    """Copies of the arguments with the same strides, so that a call that writes to them harms
    nobody."""

    def copied(x: torch.Tensor) -> torch.Tensor:
        if x.layout is not torch.strided:
            return x.clone()
        memory = x.untyped_storage().clone()
        return torch.empty(0, dtype=x.dtype).set_(memory, x.storage_offset(), x.shape, x.stride())

    # A tensor that is given twice is one tensor in the copy, too.
    memo: dict[int, torch.Tensor] = {}

    def once(x: torch.Tensor) -> torch.Tensor:
        return memo.setdefault(id(x), copied(x))

    return tree_map_only(torch.Tensor, once, copy.copy(arguments))


def seeded(function: Callable[..., Any], arguments: Any, seed: int = 0) -> Any:
    """The result of a call that draws the same random numbers each time."""
    torch.manual_seed(seed)
    args, kwargs = arguments
    return function(*args, **kwargs)


def in_float64(op: Any, arguments: Any) -> Any:
    """What eager says if it computes with float64, or None."""

    def widen(x: torch.Tensor) -> torch.Tensor:
        if x.dtype in WIDER:
            return x.to(WIDER[x.dtype])
        return x

    wide = tree_map_only(torch.Tensor, widen, fresh(arguments))
    try:
        return seeded(op, wide)
    except Exception:
        return None


# ---- all of them ---------------------------------------------------------------------------------


def run_job(job: Job) -> list[Row]:
    """All dtypes of one operator."""
    warnings.simplefilter("ignore")
    info = database()[job.operator]
    known = info.supported_dtypes("cpu")
    return [run_dtype(job, info, name) for name in job.dtypes if getattr(torch, name) in known]


def run_dtype(job: Job, info: Any, name: str) -> Row:
    """All samples of one operator with one dtype."""
    op = operation(info)
    row = Row(job.operator, name, name in job.build)
    for sample in samples(info, getattr(torch, name), job):
        call = try_call(info, op, sample, row.built)
        cl.reset()
        if call is None:
            continue

        row.counts[call.kind] += 1
        row.extern |= call.extern
        note = f"{call.kind}: {call.note}"
        if call.note and note not in row.notes:
            row.notes.append(note)
    return row


def run_all(
    jobs: Sequence[Job], workers: int, seconds: float, tell: Callable[[str], None]
) -> list[Row]:
    """Each job in a process of its own, `workers` at a time; one that crashes or takes longer than
    `seconds` is wrong."""
    # Loaded once, before the processes fork
    database()

    waiting = list(reversed(jobs))
    running: dict[Connection, Running] = {}
    rows: list[Row] = []

    def done(new_rows: list[Row]) -> None:
        rows.extend(new_rows)
        tell(summary(new_rows, len(waiting)))

    while waiting or running:
        while waiting and len(running) < workers:
            pipe, child = started(waiting.pop())
            running[pipe] = child

        # Looks at least once a second: a process that hangs writes nothing into its pipe.
        ready = wait(list(running), timeout=1)
        for pipe in [pipe for pipe in running if pipe in ready]:
            done(received(pipe, running.pop(pipe)))

        for pipe, child in list(running.items()):
            if time.monotonic() - child.began > seconds:
                child.process.kill()
                child.process.join()
                del running[pipe]
                done([failed(child.job, f"took more than {seconds:.0f} s")])

    return sorted(rows, key=lambda row: (row.operator, DTYPES.index(row.dtype)))


@dataclass
class Running:
    """A job in its process, and when that began."""

    job: Job
    process: Any
    began: float


def started(job: Job) -> tuple[Connection, Running]:
    """A process for the job, and the pipe through which its rows will come."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(job, there))
    process.start()
    there.close()
    return here, Running(job, process, time.monotonic())


def received(pipe: Connection, child: Running) -> list[Row]:
    """The rows of a process that has ended, or a row that says how it died."""
    try:
        rows = pipe.recv()
    except EOFError:
        child.process.join()
        status = child.process.exitcode
        return [failed(child.job, f"the process died with exit status {status}")]
    child.process.join()
    return rows


def work(job: Job, pipe: Connection) -> None:
    """In the child: run the job and send its rows."""
    torch.set_num_threads(1)
    pipe.send(run_job(job))
    pipe.close()


def failed(job: Job, why: str) -> Row:
    """A row for a job of which nothing else is known: one wrong call, under its first dtype."""
    row = Row(job.operator, job.dtypes[0], bool(job.build))
    row.counts["wrong"] = 1
    row.notes.append(f"wrong: {why}")
    return row


def summary(rows: Sequence[Row], left: int) -> str:
    """One line for one operator."""
    if not rows:
        return ""
    counts = totals(rows)
    counts_in_words = [f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]]
    lines = [f"{rows[0].operator}: {', '.join(counts_in_words) or 'no samples'} ({left} left)"]
    for row in rows:
        lines += [f"    {note}" for note in row.notes if note.startswith("wrong")]
    return "\n".join(lines)


def totals(rows: Sequence[Row]) -> Counter[str]:
    """Calls of each kind."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.counts)
    return counts


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
