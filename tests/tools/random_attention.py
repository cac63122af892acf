"""Random programs like attention, held against float64 within eager's own error.

    python tests/tools/random_attention.py --start 0 --count 500      (says the seeds that differ, and why some are no stream)
    python tests/tools/random_attention.py --training --count 200     (forward and backward)

A seed is a program as somebody might write it: q, k and v in some layout and dtype, grouped heads or not, a product, masks, biases
and caps in some order, a softmax in one of several spellings, sometimes something behind it, another product. Some also return
what lies between: they must be refused and still be right. Tiles are small, so that small matrices have several blocks.

What is demanded: eager's NaNs, and a distance to the result in float64 of at most `ALLOWED` times eager's own, plus a few
units in the last place of the largest element.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

import torch
from back_half import traced

import course_lib as cl
from course_lib import autograd, events, lowering, runtime, scheduling
from course_lib.codegen import stream_walks, streamed
from course_lib.scheduling import attempts, training

DTYPES = [torch.float32, torch.float32, torch.float16, torch.bfloat16]
ALLOWED = 2.0
UNITS = 8


@dataclass
class Program:
    """A function of tensors, as source, and its inputs."""

    lines: list[str] = field(default_factory=list)
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    # What it must not become: it returns a matrix of scores
    returns_scores: bool = False

    @property
    def source(self) -> str:
        body = "\n    ".join(self.lines)
        return f"def attention({', '.join(self.inputs)}):\n    {body}\n"

    def function(self):
        names = {"torch": torch}
        exec(self.source, names)
        return names["attention"]


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.program = Program()
        pick = self.rng.choice
        self.dtype = pick(DTYPES)
        self.batch = pick([(), (2,), (3, 2), (1, 4), (2, 4)])
        self.queries = pick([17, 24, 33, 40, 63])
        self.keys = pick([self.queries, self.queries, 16, 31, 50, 97])
        self.depth, self.width = pick([4, 8, 16, 20]), pick([4, 16, 17, 32])

    def write(self) -> Program:
        self.operands()
        self.scores()
        for _ in range(self.rng.randrange(4)):
            self.between()
        self.softmax()
        self.ending()
        return self.program

    def line(self, text: str) -> None:
        self.program.lines.append(text)

    def tensor(self, name: str, shape, dtype=None, scale=1.0) -> None:
        values = torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale
        self.program.inputs[name] = values.to(dtype or self.dtype)

    # --- q, k, v

    def operands(self) -> None:
        self.operand("q", self.queries, self.depth)
        self.grouped = len(self.batch) == 2 and self.batch[1] == 4 and self.rng.random() < 0.5
        self.operand("k", self.keys, self.depth)
        self.operand("v", self.keys, self.width)

    def operand(self, name: str, rows: int, columns: int) -> None:
        """One of q, k, v, in some layout."""
        batch = list(self.batch)
        is_grouped = name != "q" and self.grouped
        if is_grouped:
            batch[1] //= 2
        layout = self.rng.choice(["plain", "plain", "heads inside", "turned", "part", "far"])
        if layout == "heads inside" and len(batch) == 2:
            self.tensor(name, [batch[0], rows, batch[1], columns])
            self.line(f"{name} = {name}.transpose(1, 2)")
        elif layout == "turned":
            self.tensor(name, [*batch, columns, rows])
            self.line(f"{name} = {name}.mT")
        elif layout == "part":
            self.tensor(name, [*batch, rows, columns + 3])
            self.line(f"{name} = {name}[..., 2:{columns + 2}]")
        elif layout == "far":
            self.tensor(name, [*batch, rows, 2 * columns])
            self.line(f"{name} = {name}[..., ::2]")
        else:
            self.tensor(name, [*batch, rows, columns])

        if is_grouped and self.rng.random() < 0.5:
            self.line(f"{name} = {name}.repeat_interleave(2, 1)")
        elif is_grouped:
            shape = f"{batch[0]}, {batch[1]}, 2, {rows}, {columns}"
            self.line(
                f"{name} = {name}[:, :, None].expand({shape}).reshape({batch[0]}, -1, {rows}, {columns})"
            )

    # --- scores

    def scores(self) -> None:
        scale = self.rng.choice([self.depth**-0.5, 1.0, 0.25])
        spelling = self.rng.choice(["after", "after", "before", "einsum", "turned", "divided"])
        if spelling == "after":
            self.line(f"s = q @ k.transpose(-2, -1) * {scale}")
        elif spelling == "divided":
            self.line(f"s = (q @ k.mT) / {1 / scale}")
        elif spelling == "before":
            self.line(f"s = (q * {scale}) @ k.mT")
        elif spelling == "einsum":
            self.line(f"s = torch.einsum('...id,...jd->...ij', q, k) * {scale}")
        else:
            self.line(f"s = (k @ q.mT).mT * {scale}")

    def positions(self) -> None:
        if "i = " not in " ".join(self.program.lines):
            self.line(f"i = torch.arange({self.queries}, device=q.device)[:, None]")
            self.line(f"j = torch.arange({self.keys}, device=q.device)")

    def name(self) -> str:
        return f"x{len(self.program.inputs)}"

    def between(self) -> None:
        """A mask, a bias, a cap."""
        step = self.rng.choice(
            "causal triangle window bias row_bias key_mask mask cap alibi scale documents finite relu".split()
        )
        getattr(self, f"put_{step}")()

    def put_causal(self) -> None:
        self.positions()
        self.line("s = torch.where(i >= j, s, float('-inf'))")

    def put_triangle(self) -> None:
        self.line("s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), float('-inf'))")

    def put_window(self) -> None:
        self.positions()
        width = self.rng.choice([1, 3, 12])
        self.line(f"s = torch.where((i - j).abs() <= {width}, s, float('-inf'))")

    def put_bias(self) -> None:
        name = self.name()
        batch = [size if self.rng.random() < 0.5 else 1 for size in self.batch]
        self.tensor(name, [*batch, self.queries, self.keys])
        self.line(f"s = s + {name}")

    def put_row_bias(self) -> None:
        name = self.name()
        self.tensor(name, [self.queries, 1], torch.float32)
        self.line(f"s = s + {name}")

    def put_key_mask(self) -> None:
        name = self.name()
        self.program.inputs[name] = (
            torch.rand([*self.batch[:1], *[1] * max(0, len(self.batch) - 1), 1, self.keys]) < 0.7
        )
        self.line(f"s = s.masked_fill(~{name}, float('-inf'))")

    def put_mask(self) -> None:
        name = self.name()
        self.program.inputs[name] = (
            torch.rand([self.queries, self.keys], generator=self.generator) < 0.3
        )
        self.line(f"s = torch.where({name}, s, float('-inf'))")

    def put_finite(self) -> None:
        name = self.name()
        self.program.inputs[name] = (
            torch.rand([self.queries, self.keys], generator=self.generator) < 0.3
        )
        self.line(f"s = s.masked_fill({name}, -1e4)")

    def put_cap(self) -> None:
        self.line("s = 5 * torch.tanh(s / 5)")

    def put_relu(self) -> None:
        self.line("s = torch.relu(s) - 0.1 * s")

    def put_alibi(self) -> None:
        self.positions()
        name = self.name()
        self.tensor(name, [*self.batch[-1:], 1, 1], torch.float32)
        self.line(f"s = s - (i - j).abs() * {name}.abs()")

    def put_scale(self) -> None:
        name = self.name()
        self.tensor(name, [*self.batch[-1:], 1, 1])
        self.line(f"s = s * {name}")

    def put_documents(self) -> None:
        name = self.name()
        count = max(self.queries, self.keys)
        self.program.inputs[name] = (
            torch.randint(0, 3, [count], generator=self.generator).sort().values
        )
        self.line(
            f"s = s.masked_fill({name}[:{self.queries}, None] != {name}[:{self.keys}], float('-inf'))"
        )

    # --- the softmax, and what comes after

    def softmax(self) -> None:
        spelling = self.rng.choice(
            [
                "torch",
                "torch",
                "float",
                "by hand",
                "quiet",
                "linear",
                "sigmoid",
                "log",
                "differential",
            ]
        )
        if spelling == "float":
            self.line("p = torch.softmax(s.float(), -1).to(v.dtype)")
        elif spelling == "by hand":
            self.line("e = torch.exp(s - s.amax(-1, keepdim=True))")
            self.line("p = (e / e.sum(-1, keepdim=True)).to(v.dtype)")
        elif spelling == "quiet":
            self.line("m = s.max(-1, keepdim=True).values")
            self.line("e = torch.exp(s - m)")
            self.line("p = (e / (torch.exp(-m) + e.sum(-1, keepdim=True))).to(v.dtype)")
        elif spelling == "linear":
            self.line("p = torch.where(s == float('-inf'), 0, s).to(v.dtype)")
        elif spelling == "sigmoid":
            self.line("p = torch.sigmoid(s).to(v.dtype)")
        elif spelling == "log":
            self.line("p = torch.log_softmax(s, -1).exp().to(v.dtype)")
        elif spelling == "differential":
            self.line("p = (torch.softmax(s, -1) - 0.3 * torch.softmax(s * 0.5, -1)).to(v.dtype)")
        else:
            self.line("p = torch.softmax(s, -1).to(v.dtype)")

    def ending(self) -> None:
        if self.rng.random() < 0.2:
            name = self.name()
            self.program.inputs[name] = (
                torch.rand([self.queries, self.keys], generator=self.generator) < 0.8
            )
            self.line(f"p = p * {name} / 0.8")
        if self.rng.random() < 0.15:
            self.line("p = p.masked_fill(p != p, 0.0)")

        ending = self.rng.choice(["product", "product", "einsum", "turned", "heads inside"])
        if ending == "einsum":
            self.line("o = torch.einsum('...ij,...jd->...id', p, v)")
        elif ending == "turned":
            self.line("o = (v.mT @ p.mT).mT")
        else:
            self.line("o = p @ v")
        if ending == "heads inside" and len(self.batch) == 2:
            self.line("o = o.transpose(1, 2).flatten(2)")

        also = self.rng.choice(["", "", "", "", "", "", "s", "p", "s.amax(-1)"])
        self.program.returns_scores = also in ("s", "p")
        self.line(f"return (o, {also})" if also else "return (o,)")


@contextlib.contextmanager
def small_tiles():
    """Several blocks in each direction, for matrices of some dozens of rows."""
    small = {256: stream_walks.walking_tile(16, 16, 2, 4)}
    with (
        patch.object(stream_walks, "TILES_OF_HALVES", small),
        patch.object(stream_walks, "TILES_OF_FLOATS", small),
        patch.object(attempts, "MOST_IN_CACHES", 64),
        patch.object(attempts, "FEWEST_IN_ALL", 64),
        patch.object(training, "LARGER", 0),
        patch.object(streamed, "ROWS", 12),
        patch.object(streamed, "COLUMNS", 32),
    ):
        yield


def compile_streamed(function, *inputs, codegen="auto", most_times=1):
    """A `CompiledGraph`, with streams where they can be."""
    aten = traced(function, *inputs)
    why_not = partial(runtime.why_no_stream, codegen=codegen)
    loops = scheduling.stream_products(lowering.lower(aten), why_not, most_times)
    schedule = scheduling.schedule(loops)
    plan = scheduling.plan(schedule, loops)
    compiled = runtime.build(loops, schedule, plan, codegen=codegen)
    compiled.run = autograd.finished(compiled.run, aten.meta["signature"], function)
    return compiled


def in_double(value):
    return value.double() if value.is_floating_point() else value


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest difference, where both are numbers."""
    apart = (found.double() - exact).abs()
    apart = torch.where(found.double() == exact, 0.0, apart)
    return float(apart.nan_to_num(0.0, posinf=float("inf")).max()) if apart.numel() else 0.0


def fault_of(got, eager, exact, scale: float = 0.0) -> str:
    """What is wrong with one result; empty if nothing is. scale: of the numbers that it is a sum of, if these are larger."""
    if (got.dtype, got.shape) != (eager.dtype, eager.shape):
        return f"{got.dtype} {got.shape}, and eager gives {eager.dtype} {eager.shape}"
    if not torch.equal(got.isnan(), eager.isnan()):
        return f"{int(got.isnan().sum())} NaNs, and eager gives {int(eager.isnan().sum())}"

    largest = float(exact.abs().nan_to_num(0.0, posinf=0.0).max()) if exact.numel() else 0.0
    units = UNITS * torch.finfo(eager.dtype).eps * max(largest, scale)
    allowed = ALLOWED * distance(eager, exact) + units
    off = distance(got, exact)
    return "" if off <= allowed else f"{off:.3g} from float64, where {allowed:.3g} is allowed"


def gradients(function, inputs, wanted, given):
    """What a program gives, and the gradients of the inputs `wanted` for the gradients `given` of its results."""
    entered = [x.detach().requires_grad_(n in wanted) for n, x in enumerate(inputs)]
    results = function(*entered)
    found = torch.autograd.grad(results, [entered[n] for n in wanted], given, allow_unused=True)
    made = [torch.zeros(()) if gradient is None else gradient for gradient in found]
    return [result.detach() for result in results], made


def check_training(seed: int, codegen: str = "auto", device: str = "cpu") -> Outcome:
    """Compile and run one program and its backward."""
    program = Writer(seed).write()
    function, inputs = program.function(), [each.to(device) for each in program.inputs.values()]
    rng = Random(seed)
    wanted = []
    for n, (name, value) in enumerate(program.inputs.items()):
        if value.is_floating_point() and (name in "qkv" or rng.random() < 0.3):
            wanted.append(n)

    eager_results = function(*inputs)
    generator = torch.Generator().manual_seed(seed)
    given = [torch.randn(r.shape, generator=generator).to(r) for r in eager_results]
    seen = []
    with small_tiles(), events.listener(seen.append):
        compiled = cl.compile(function, options={"codegen": codegen})
        got = gradients(compiled, inputs, wanted, given)
    eager = gradients(function, inputs, wanted, given)
    exact = gradients(function, list(map(in_double, inputs)), wanted, list(map(in_double, given)))

    schedules = [event.schedule for event in seen if isinstance(event, events.Scheduled)]
    halves = [any(isinstance(k, scheduling.Streamed) for k in s.kernels) for s in schedules]
    notes = [note for e in seen if isinstance(e, events.Partitioned) for note in e.partition.notes]
    is_stream = len(halves) > 1 and all(halves) and bool(notes) and "block by block" in notes[-1]
    outcome = Outcome(is_stream, [] if is_stream else notes[:1])
    for n, name in enumerate(["result", "gradient"]):
        # A gradient may be 0 but for rounding: what is added to a whole row changes no softmax.
        finite = [true.nan_to_num(0.0, 0.0, 0.0).abs() for true in exact[n]]
        scale = max(float(true.max()) for true in finite) if n else 0.0
        for place, (one, other, true) in enumerate(zip(got[n], eager[n], exact[n], strict=True)):
            if fault := fault_of(one, other, true, scale):
                outcome.fault += f"{name} {place}: {fault}; "
    return outcome


@dataclass
class Outcome:
    """What came of one seed."""

    is_stream: bool
    reasons: list[str]
    fault: str = ""


def place_of(codegen: str) -> contextlib.AbstractContextManager[Any]:
    """Where tests make tensors for kernels of this kind: with a GPU, Triton's kernels run there."""
    on_gpu = codegen == "triton" and torch.cuda.is_available()
    return torch.device("cuda") if on_gpu else contextlib.nullcontext()


def check(seed: int, codegen: str = "auto", device: str = "cpu") -> Outcome:
    """Compile and run one program."""
    with torch.device("cpu"):  # wherever a test makes its tensors
        program = Writer(seed).write()
    with torch.device(device):  # positions are made there, too
        return check_program(
            program, codegen, [each.to(device) for each in program.inputs.values()]
        )


def check_program(program: Program, codegen: str, inputs: list[torch.Tensor]) -> Outcome:
    """The same on these inputs."""
    function = program.function()
    with small_tiles():
        compiled = compile_streamed(function, *inputs, codegen=codegen)
    kernels = compiled.schedule.kernels
    found = [kernel for kernel in kernels if isinstance(kernel, scheduling.Streamed)]
    answers = [d.answer for d in compiled.schedule.decisions if isinstance(d.answer, scheduling.No)]
    reasons = [] if found else [answer.reason for answer in answers][:1]
    outcome = Outcome(bool(found), reasons)
    if found and program.returns_scores:
        outcome.fault = "a stream, though the scores are returned"

    eager = function(*inputs)
    exact = function(*map(in_double, inputs))
    for n, (one, other, true) in enumerate(zip(compiled(*inputs), eager, exact, strict=True)):
        if fault := fault_of(one, other, true):
            outcome.fault = f"result {n}: {fault}"
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--codegen", default="auto", help='"triton": in its interpreter')
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", type=int, help="print the program of this seed, and its kernels")
    parser.add_argument("--training", action="store_true", help="backward, too")
    options = parser.parse_args()
    check_one = partial(check, codegen=options.codegen, device=options.device)
    if options.training:
        check_one = partial(check_training, codegen=options.codegen, device=options.device)
    if options.show is not None:
        program = Writer(options.show).write()
        print(program.source)
        with small_tiles():
            print(
                compile_streamed(
                    program.function(), *program.inputs.values(), codegen=options.codegen
                ).source
            )
        print(check_one(options.show))
        return

    began, done, streamed_programs, faults = time.time(), 0, 0, {}
    reasons: Counter[str] = Counter()
    # Ctrl-C: what was found until then is said
    with contextlib.suppress(KeyboardInterrupt):
        for seed in range(options.start, options.start + options.count):
            if time.time() - began > options.seconds:
                break
            try:
                outcome = check_one(seed)
            except Exception as error:
                outcome = Outcome(False, [], f"{type(error).__name__}: {error}")
            done += 1
            streamed_programs += outcome.is_stream
            reasons.update(outcome.reasons)
            if outcome.fault:
                faults[seed] = outcome.fault
                print(f"seed {seed}: {outcome.fault}", flush=True)
            # After such an error a GPU does nothing more for this process
            if "CUDA error" in outcome.fault:
                break

    print(
        f"{done} programs in {time.time() - began:.0f} s, {streamed_programs} with a stream, {len(faults)} faults"
    )
    for reason, times in reasons.most_common(12):
        print(f"{times:6}  {reason}")


if __name__ == "__main__":
    main()
