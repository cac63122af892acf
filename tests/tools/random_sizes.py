"""Random graphs with random symbolic sizes, compiled once and run on ten sets of sizes, forward and backward, held against eager.

    python tests/tools/random_sizes.py --start 0 --count 200      (says the seeds that differ)
    python tests/tools/random_sizes.py --start 1000000            (seeds with more kinds of steps)
    python tests/tools/random_sizes.py --pairs                    (holds printed guards against what happens)
    python tests/tools/random_sizes.py --device cuda              (on a GPU)

A seed is a program over two or three inputs. Their dimensions are letters (a, b, c), and a set of sizes gives each letter a number: small
ones, 0, 1, primes, powers of two, sizes that are equal by chance, some that go in blocks or in threads. Inputs are dense, transposed, or
every other row of a longer tensor. A program is some steps, each of which is right for any size: arithmetic that broadcasts, reductions,
softmax, norms, products, views, slices, joins, padding, indices, `arange`, arithmetic with sizes.

All numbers are float64, so that results may differ by rounding alone. The last line says how many programs there were, how many of
them were compiled in symbols, how many graphs and programs were made in all, and why sizes had to be numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

import course_lib as cl
from course_lib import events
from course_lib.runtime import compiler
from course_lib.sizes import Sizes

LETTERS = "abc"
SIZES = [2, 3, 4, 5, 7, 8, 9, 13, 16, 31, 33, 64]
RARE = [0, 1, 1, 2, 127, 200]
LARGE = [300, 1031]
SETS = 10
Tensors = list[torch.Tensor]
Step = Callable[[Tensors], Any]


@dataclass(frozen=True)
class Case:
    """One program: how its inputs are made, and what it computes."""

    dims: tuple[str, ...]  # For each input the letters of its dimensions
    layouts: tuple[str, ...]
    steps: tuple[tuple[str, Any], ...]

    def run(self, *inputs: torch.Tensor) -> Any:
        """The program itself: each step appends a value; the last ones are the results."""
        values = list(inputs)
        for name, numbers in self.steps:
            step = STEPS.get(name) or LATER[name]
            values.append(step(values, numbers))
        return tuple(values[max(len(inputs), len(values) - 3) :])

    def __str__(self) -> str:
        steps = ", ".join(f"{name}{numbers}" for name, numbers in self.steps)
        return f"{dict(zip(self.dims, self.layouts, strict=True))}: {steps}"


def pick(values: Tensors, number: int) -> torch.Tensor:
    """One of the values so far, rather a late one."""
    return values[-1 - number % len(values)]


def matrix(values: Tensors, number: int) -> torch.Tensor:
    """One of them that has two dimensions at least."""
    found = [v for v in values if v.ndim >= 2]
    return (
        found[-1 - number % len(found)]
        if found
        else pick(values, number)[None].expand(2, *pick(values, number).shape)
    )


def partner(values: Tensors, x: torch.Tensor, number: int) -> torch.Tensor:
    """A value of the same shape as `x`, or `x` itself."""
    found = [
        v
        for v in values
        if v.ndim == x.ndim and all(m == n for m, n in zip(v.shape, x.shape, strict=True))
    ]
    return found[number % len(found)]


def last(x: torch.Tensor) -> torch.Tensor:
    return x if x.ndim else x[None]


def arithmetic(v: Tensors, n: Any) -> torch.Tensor:
    x = pick(v, n[0])
    y = partner(v, x, n[1])
    return [x + y, x * y, x - 2 * y, torch.maximum(x, y)][n[1] % 4]


def function(v: Tensors, n: Any) -> torch.Tensor:
    x = pick(v, n[0])
    return [x.sin, x.tanh, x.sigmoid, lambda: F.gelu(x), lambda: x * 0.5 + 1, x.relu][n[1] % 6]()


def reduce(v: Tensors, n: Any) -> torch.Tensor:
    x, keep = last(pick(v, n[0])), bool(n[1] % 2)
    dim = n[2] % x.ndim
    return [x.sum, x.mean, x.sum][n[1] % 3](dim, keepdim=keep)


def best(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    return x.amax(n[1] % x.ndim, keepdim=True) + x


def softmax(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    return torch.softmax(x, n[1] % x.ndim)


def norm(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    return F.layer_norm(x, (x.shape[-1],)) if n[1] % 2 else F.normalize(x, dim=-1)


def product(v: Tensors, n: Any) -> torch.Tensor:
    x = matrix(v, n[0])[..., :50, :50]  # a long row would make a matrix of gigabytes
    y = x.sin().transpose(-1, -2)
    return (x @ y) / x.shape[-1] if n[1] % 2 else y @ x


def view(v: Tensors, n: Any) -> torch.Tensor:
    x = matrix(v, n[0])
    if n[1] % 4 == 0:
        return x.transpose(-1, -2)
    if n[1] % 4 == 1:
        return x.reshape(-1)
    if n[1] % 4 == 2:
        return x.unsqueeze(n[2] % x.ndim)
    return x.flatten(0, 1)


def part(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    ways = [
        lambda: x[..., 1:],
        lambda: x[..., :-1],
        lambda: x[: (x.shape[0] + 1) // 2],
        lambda: x.flip(0),
        lambda: x[::2],
        lambda: x[..., -1],
    ]
    return ways[n[1] % 6]()


def join(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    y = partner(v, x, n[1])
    return torch.cat([x, y.cos()], n[2] % x.ndim) if n[1] % 2 else torch.stack([x, y])


def pad(v: Tensors, n: Any) -> torch.Tensor:
    return F.pad(last(pick(v, n[0])), (n[1] % 3, n[2] % 2), value=0.5)


def count(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    place = torch.arange(x.shape[-1], dtype=torch.float64, device=x.device)
    return [
        x + place,
        x * x.shape[0],
        x / (x.numel() + 1),
        torch.where(place > x.shape[-1] // 2, x, 0.0),
    ][n[1] % 4]


def broadcast(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    return x.sum(-1, keepdim=True) * x - x.mean(0, keepdim=True)


def look_up(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    places = torch.arange(x.shape[0] - 1, -1, -1, device=x.device)
    return x[places] if n[1] % 2 else x.index_select(0, places)


def triangle(v: Tensors, n: Any) -> torch.Tensor:
    x = matrix(v, n[0])
    return x.tril(n[1] % 2) if n[2] % 2 else x.triu()


def write(v: Tensors, n: Any) -> torch.Tensor:
    y = last(pick(v, n[0])) * 1
    if n[1] % 2:
        y.mul_(2)
    else:
        y[..., :1] = 3
    return y


def total(v: Tensors, n: Any) -> torch.Tensor:
    return pick(v, n[0]).cumsum(0) if pick(v, n[0]).ndim else pick(v, n[0])


def branch(v: Tensors, n: Any) -> torch.Tensor:
    """Python looks at a size: each answer is a graph of its own."""
    x = last(pick(v, n[0]))
    if x.shape[0] > 3 * n[1]:
        return x + 1
    return x * 2 if x.shape[-1] % 2 else x - 1


def spread(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    dim = n[2] % x.ndim
    ways = [
        lambda: x.var(dim, correction=0),
        lambda: x.logsumexp(dim),
        lambda: (x - x.mean(dim, keepdim=True)).square().mean(dim),
        lambda: x.norm(dim=dim),
    ]
    return ways[n[1] % 4]()


def place(v: Tensors, n: Any) -> torch.Tensor:
    """What argmax and sorting give, as numbers."""
    x = last(pick(v, n[0]))
    dim = n[2] % x.ndim
    ways = [
        lambda: x.detach().argmax(dim).to(torch.float64),
        lambda: x.sort(dim).values,
        lambda: x.max(dim).values,
        lambda: x.cummax(dim).values,
    ]
    return ways[n[1] % 4]()


def repeat(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    ways = [
        lambda: x.repeat(*[1] * (x.ndim - 1), 2),
        lambda: x.repeat_interleave(2, n[2] % x.ndim),
        lambda: x[..., None].expand(*x.shape, 3).sum(-1),
        lambda: x.roll(1 + n[2], n[2] % x.ndim),
    ]
    return ways[n[1] % 4]()


def window(v: Tensors, n: Any) -> torch.Tensor:
    x = matrix(v, n[0])
    x = x.reshape(x.shape[0], 1, -1)[:20, :, :90]
    kernel = torch.tensor([[[0.5, -1.0, 0.25]]], dtype=torch.float64, device=x.device)
    ways = [
        lambda: F.conv1d(x, kernel, padding=1),
        lambda: F.avg_pool1d(x, 2, 1, 1),
        lambda: F.max_pool1d(x, 3, 2, 1),
        lambda: F.pad(x, (2, 2)).unfold(-1, 3, 2).sum(-1),
    ]
    return ways[n[1] % 4]()[:, 0]


def attention(v: Tensors, n: Any) -> torch.Tensor:
    x = matrix(v, n[0])
    x = x.reshape(1, x.shape[0], -1)[:, :50, :50]
    return F.scaled_dot_product_attention(x, x.cos(), x, is_causal=n[1] % 2 == 0)[0]


def scatter(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    places = torch.arange(x.shape[0], device=x.device) // 2
    if n[1] % 2:
        return torch.zeros_like(x).index_add(0, places, x)
    return x.masked_fill(x > 0.5, n[2] / 4).clamp(max=x.shape[0])


def symbolic_slice(v: Tensors, n: Any) -> torch.Tensor:
    """Bounds that are formulas of sizes."""
    x = matrix(v, n[0])
    half = x.shape[-1] // 2
    ways = [
        lambda: x[..., half:],
        lambda: x[..., : max(1, half)],
        lambda: x.narrow(-1, half, x.shape[-1] - half),
        lambda: x.reshape(x.shape[0], -1)[:, : x.shape[0] + 1],
        lambda: torch.cat(x.split([half, x.shape[-1] - half], -1)[::-1], -1),
        lambda: x.new_zeros(x.shape[0] * 2, half + 1) + x.sum(),
    ]
    return ways[n[1] % 6]()


def whole_numbers(v: Tensors, n: Any) -> torch.Tensor:
    x = last(pick(v, n[0]))
    counted = torch.arange(x.shape[0], device=x.device)
    ways = [
        lambda: counted * x.shape[-1] + 1,
        lambda: counted % (x.shape[-1] + 1),
        lambda: counted // (x.shape[-1] + 1),
        lambda: (x.detach() * 10).long().clamp(-99, 99).sum(0, keepdim=True),
    ]
    return ways[n[1] % 4]().to(torch.float64)


STEPS: dict[str, Callable[[Tensors, Any], torch.Tensor]] = {
    each.__name__: each
    for each in (
        *(arithmetic, function, reduce, best, softmax, norm, product, view, part, join, pad),
        *(count, broadcast, look_up, triangle, write, total),
    )
}  # fmt: skip
LATER: dict[str, Callable[[Tensors, Any], torch.Tensor]] = {
    each.__name__: each
    for each in (
        *(branch, spread, place, repeat, window, attention, scatter, symbolic_slice),
        *(whole_numbers,),
    )
}
"""Steps of seeds from `SECOND` on: those before it stay the programs that they were."""
SECOND = 1_000_000


def case_of(seed: int) -> Case:
    """The program of a seed."""
    draw = Random(seed)
    known = [*STEPS, "arithmetic", "function"]
    if seed >= SECOND:
        known += LATER
    dims = tuple(
        "".join(draw.choice(LETTERS) for _ in range(draw.choice([1, 2, 2, 2, 3])))
        for _ in range(draw.choice([1, 2, 3]))
    )
    layouts = tuple(draw.choice(["dense", "dense", "transposed", "strided"]) for _ in dims)
    steps = tuple(
        (
            draw.choice(known),
            tuple(draw.randrange(12) for _ in range(3)),
        )
        for _ in range(draw.randrange(2, 8))
    )
    return Case(dims, layouts, steps)


def sizes_of(seed: int, number: int) -> dict[str, int]:
    """The numbers of the letters in one set of sizes."""
    draw = Random(f"{seed} {number}")
    pool = RARE if number % 4 == 3 else SIZES
    sizes = {letter: draw.choice(pool) for letter in LETTERS}
    if number % 5 == 4:
        sizes[draw.choice(LETTERS)] = draw.choice(LARGE)
    if number % 3 == 2:
        sizes["b"] = sizes["a"]
    return sizes


def inputs_of(case: Case, sizes: dict[str, int], seed: int, device: str = "cpu") -> Tensors:
    """The inputs for one set of sizes: the same numbers and layouts on each device."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(shape: list[int]) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device)

    found = []
    for letters, layout in zip(case.dims, case.layouts, strict=True):
        shape = [
            min(sizes[letter], 40) if n > 0 else sizes[letter] for n, letter in enumerate(letters)
        ]
        if layout == "strided":
            found.append(numbers([2 * shape[0], *shape[1:]])[::2])
        elif layout == "transposed":
            found.append(numbers(shape[::-1]).permute(*range(len(shape))[::-1]))
        else:
            found.append(numbers(shape))
    return found


def outcome(program: Any, inputs: Tensors, train: bool) -> Any:
    """Results and gradients, or the type of the error."""
    leaves = [
        x.detach().as_strided(x.shape, x.stride(), x.storage_offset()).requires_grad_(train)
        for x in inputs
    ]
    try:
        with torch.set_grad_enabled(train):
            results = program(*leaves)
            wanted = [t for t in results if t.requires_grad]
            if train and wanted:
                sum((t * t.detach().cos()).sum() for t in wanted).backward()
    except Exception as error:
        return error
    return [t.detach() for t in results], [x.grad for x in leaves]


def difference(got: Any, want: Any) -> str:
    """What differs, in words; empty if nothing does."""
    if isinstance(got, Exception) or isinstance(want, Exception):
        return "" if type(got) is type(want) else f"{want!r:.200} / {got!r:.400}"
    try:
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7, equal_nan=True)
    except AssertionError as error:
        return str(error)[:300]
    for ours, theirs in zip([*got[0], *got[1]], [*want[0], *want[1]], strict=True):
        if ours is None:
            continue
        of_dims = zip(theirs.shape, ours.stride(), theirs.stride(), strict=True)
        if theirs.numel() and any(a != b for n, a, b in of_dims if n > 1):
            return f"strides {ours.stride()} instead of {theirs.stride()} of {tuple(theirs.shape)}"
    return ""


def is_unstable(case: Case, inputs: Tensors, train: bool, want: Any) -> bool:
    """Does eager itself give other values if the inputs change in their last bit?

    (A gradient of `normalize` at zeros that are rounding errors may.) An error,
    or other strides, are never excused."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        nudged = []
        for x in inputs:
            noise = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
            nudged.append(torch.empty_like(x).copy_(x * (1 + 1e-15 * noise)))
        again = outcome(case.run, nudged, train)
        if isinstance(again, Exception) or isinstance(want, Exception):
            return False
        if difference(again, want):
            return True
    return False


def check(seed: int, said: Counter[str], codegen: str = "auto", device: str = "cpu") -> list[str]:
    """The differences of one seed."""
    case, train = case_of(seed), seed % 2 == 1
    cl.reset()
    compiled = cl.compile(case.run, dynamic=True, options={"codegen": codegen})
    found = []
    with cl.record() as trace:
        for number in range(SETS):
            sizes = sizes_of(seed, number)
            inputs = inputs_of(case, sizes, number, device)
            want = outcome(case.run, inputs, train)
            if isinstance(want, Exception) and number == 0:
                said["raises in eager"] += 1
                return []
            wrong = difference(outcome(compiled, inputs, train), want)
            if wrong and is_unstable(case, inputs, train, want):
                said["excused: eager's own values jump"] += 1
            elif wrong:
                found.append(f"{sizes}: {wrong}")

    said["programs"] += 1
    said["graphs"] += len(trace.of(events.GraphCaptured))
    said["built"] += len(trace.of(events.KernelsBuilt))
    why = {event.why for event in trace.of(events.SizesAreNumbers)}
    said["in symbols"] += not why
    said.update(f"numbers: {each}" for each in why)
    return found


def pairs(seed: int, said: Counter[str], codegen: str = "auto", device: str = "cpu") -> list[str]:
    """Is what the printed guards say of sizes true? Sizes inside must find the program and be right, others must compile anew."""
    case, train = case_of(seed), seed % 2 == 1
    cl.reset()
    compiled = cl.compile(case.run, dynamic=True, options={"codegen": codegen})
    found: list[str] = []
    entries: list[list[str]] = []
    for number in range(SETS):
        sizes = sizes_inside(seed, number)
        dense = Case(case.dims, ("dense",) * len(case.dims), ())
        inputs = inputs_of(dense, sizes, number, device)
        want = outcome(case.run, inputs, train)
        if isinstance(want, Exception):
            said["raises in eager"] += 1
            continue

        inside = any(
            all(eval(text, {"inputs": inputs, "torch": torch}) for text in texts)
            for texts in entries
        )
        with cl.record() as trace:
            wrong = difference(outcome(compiled, inputs, train), want)
        made = trace.of(events.GuardsMade)
        entries += [
            [guard.expr for guard in each.check.guards if guard.kind == "sizes"] for each in made
        ]

        said["inside" if inside else "outside"] += 1
        if wrong:
            found.append(f"{sizes}: {wrong}")
        if inside == bool(made):
            found.append(f"{sizes}: inside {inside}, compiled {bool(made)}: {entries}")
    return found


def sizes_inside(seed: int, number: int) -> dict[str, int]:
    """Sizes that are neither 0 nor 1, which are other graphs in any case."""
    draw = Random(f"pairs {seed} {number}")
    return {letter: draw.choice([*SIZES, *LARGE]) for letter in LETTERS}


def note_places(said: Counter[str]) -> None:
    """From now on count which lines of the compiler ask questions that become guards."""
    answer = Sizes.answer

    def noted(self: Sizes, relation: Any, one: Any, other: Any) -> bool:
        before = len(self.asked)
        got = answer(self, relation, one, other)
        if len(self.asked) > before:
            frames = [
                frame
                for frame in traceback.extract_stack()
                if "course_lib" in frame.filename and "/sizes/" not in frame.filename
            ]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].name}: {frames[-1].line}"
            said[f"guard at {place}"] += 1
        return got

    Sizes.answer = noted  # type: ignore[method-assign]


def still_works() -> bool:
    """Does the GPU take orders of this process?"""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument(
        "--flags", default="-O0", help="how C++ is optimised: -O0 is quickest, -O3 what users get"
    )
    parser.add_argument("--codegen", default="auto", help="triton: kernels by its interpreter")
    parser.add_argument("--device", default="cpu", help="cuda: kernels are Triton's")
    parser.add_argument("--pairs", action="store_true", help="hold guards against what they say")
    parser.add_argument("--guards", action="store_true", help="count who asks about sizes")
    options = parser.parse_args()
    compiler.FLAGS = tuple(options.flags if flag == "-O3" else flag for flag in compiler.FLAGS)
    warnings.simplefilter("ignore")
    cl.config.recompile_limit = 100

    said: Counter[str] = Counter()
    if options.guards:
        note_places(said)
    look = pairs if options.pairs else check
    until = time.monotonic() + 60 * options.minutes
    # Ctrl-C: what was found until then is said
    with contextlib.suppress(KeyboardInterrupt):
        for seed in range(options.start, options.start + options.count):
            if time.monotonic() > until:
                break
            try:
                problems = look(seed, said, options.codegen, options.device)
            except RuntimeError as error:
                # Inputs cannot be made, for example
                problems = [f"{error!r:.400}"]
            for problem in problems:
                said["DIFFERENT"] += 1
                print(f"seed {seed}: {case_of(seed)}\n    {problem}", flush=True)
            # After an error of its own a GPU does nothing more for this process
            if options.device == "cuda" and not still_works():
                said[f"stopped by the GPU after seed {seed}"] += 1
                break
    print(*(f"{count:6} {what}" for what, count in said.most_common()), sep="\n")


if __name__ == "__main__":
    main()
