# ruff: noqa: E501  (programs are written in tables)
"""Random graphs of tensor operations through the whole back half, forward and backward, held against eager.

    python tests/tools/random_graphs.py --start 0 --count 2000      (says the first seeds that differ)
    python tests/tools/random_graphs.py --codegen triton --device cuda --count 1000      (on a GPU; on the CPU Triton interprets)

A seed is a program: inputs of random shapes, dtypes, layouts (transposed, sliced, expanded, overlapping, far apart, empty) and
values (also nan, inf, denormal), and some steps: arithmetic, views, indexing, reductions, norms, products, losses, writes in
place, also to inputs. It is traced, differentiated where floats require grad, lowered and scheduled (some without mercy, with
`Fuse(1)` for every pair). Then three ways of running it are compared, on the inputs it was compiled for and on fresh ones:

    eager          torch, line by line
    loops          the loops one by one, by the numpy evaluator (`course_lib.viz.evaluator`)
    kernels        C++; many programs share one build, at -O1, and the sizes from which on code goes in blocks, past the caches
                   or in threads are drawn too, so that small tensors meet all of it. (`--flags=-O3` for what users get.)

How far results may be apart is found out for each program: what torch computes exactly (`x + y`, `x.abs()`) must be the same
bits; elsewhere eager runs a few times more with its roundings disturbed by some units in the last place, and a difference
counts if it is larger than what that does. Steps that jump (comparisons, `round`, `argmax`) only take exact operands. What eager
itself leaves open (the sign of a zero, inf or nan by the order of operations) is in `eager_variants`; the last line of a run says how
many comparisons each of those rules decided.

Four programs a second on one core that is not shared (40 in 10 s, recorded 2026-11-21): 50,000 in three and a half hours.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import math
import re
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import eager_variants
import torch
import torch.nn.functional as F
from torch import fx

from course_lib import config, native, runtime
from course_lib.codegen import cpp
from course_lib.codegen import plan as cpp_plan
from course_lib.codegen.wrapper import Wrapper
from course_lib.for_each_size import with_sizes
from course_lib.pipeline import Pipeline
from course_lib.runtime import compiler
from course_lib.scheduling import Fuse, FusedKernel
from course_lib.viz.evaluator import evaluate
from course_lib.written import define

FLOATS = [torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16, torch.bool]
SIZES = [1, 2, 3, 4, 5, 6, 8, 17]
LARGE = [70, 130, 300, 4100, 17000]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-42, 1.0, -1.0, 2.5, -0.5]
LONGEST = 120  # Seconds that a program may take to compile
LAYOUTS = "dense dense dense permuted permuted sliced offset expanded overlapping far".split()
ORDERS = ["1", "2", "3", "float('inf')", "0.5"]


@dataclass(frozen=True)
class Input:
    """How one input is made."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    values: str
    # "" for none, "leaf", or "computed": a copy of a leaf, which may be written to, or a view of one
    grad: str

    def make(self, seed: int, grad: bool) -> torch.Tensor:
        g = torch.Generator().manual_seed(seed)
        r = Random(seed)  # not of the layout: fresh inputs lie as the first did
        laid = Random(repr(self))
        wanted = grad and self.grad
        base = self.laid_out(
            lambda shape: self.numbers(shape, g, r).requires_grad_(wanted == "computed"), laid
        )
        return (
            base.detach().requires_grad_()
            if wanted == "leaf"
            else base.clone()
            if base.is_leaf and wanted
            else base
        )

    def numbers(self, shape: Sequence[int], g: torch.Generator, r: Random) -> torch.Tensor:
        if self.dtype is torch.bool:
            return (torch.rand(shape, generator=g, device="cpu") > 0.5).to(
                torch.get_default_device()
            )
        if not self.dtype.is_floating_point:
            limit = torch.iinfo(self.dtype)
            low, high = (
                (limit.min, limit.max) if self.values == "hostile" else (max(limit.min, -9), 10)
            )
            numbers = torch.randint(low, high, shape, generator=g, dtype=self.dtype, device="cpu")
            return numbers.to(torch.get_default_device())
        x = torch.randn(shape, generator=g, dtype=torch.float64, device="cpu")
        if self.values == "hostile":
            special = torch.tensor(SPECIAL, dtype=torch.float64, device="cpu")
            special = special[torch.randint(len(SPECIAL), shape, generator=g, device="cpu")]
            x = torch.where(torch.rand(shape, generator=g, device="cpu") < 0.3, special, x)
        x = x.to(self.dtype) if self.values != "whole" else x.mul(2).round().to(self.dtype)
        return x.to(torch.get_default_device())

    def laid_out(self, numbers: Callable[[Sequence[int]], torch.Tensor], r: Random) -> torch.Tensor:
        shape, rank = self.shape, len(self.shape)
        if rank == 0 or self.layout == "dense":
            return numbers(shape)
        if self.layout == "permuted":
            order = r.sample(range(rank), rank)
            return numbers([shape[d] for d in order]).permute([order.index(d) for d in range(rank)])
        if self.layout == "sliced":
            return numbers([2 * n + 1 for n in shape])[tuple(slice(1, 2 * n + 1, 2) for n in shape)]
        count = math.prod(shape)
        if self.layout == "offset":
            return numbers([count + 3])[3:].view(shape)
        if self.layout == "expanded":
            return numbers([1 if r.random() < 0.5 else n for n in shape]).expand(shape)
        if self.layout == "overlapping":
            return numbers([sum(shape) + 1]).as_strided(shape, [1] * rank)
        step = 1009 if count < 2000 else 2
        return numbers([count * step + 1]).as_strided(
            shape, [s * step for s in torch.empty(shape, device="meta").stride()]
        )


@dataclass
class Line:
    """A statement. `rough`: it rounds, so what it gives is compared with a tolerance."""

    text: str
    rough: bool
    target: str = ""


@dataclass
class Program:
    """What a seed stands for."""

    seed: int
    inputs: list[Input]
    lines: list[Line]
    outputs: list[str]
    # For each output, and then each input as it is afterwards
    exact: list[bool] = field(default_factory=list)
    differentiate: bool = False
    # Of the outputs, as torch says of fake tensors: not always what eager has
    strides: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        body = [f"{line.target} = {line.text}" if line.target else line.text for line in self.lines]
        head = f"def f({', '.join(i.name for i in self.inputs)}):"
        return "\n    ".join([head, *body, f"return ({', '.join(self.outputs)},)"])

    def __str__(self) -> str:
        about = "\n".join(f"# {i}" for i in self.inputs)
        return f"{about}\n{self.text}\n# differentiate: {self.differentiate}"

    def function(self, torch_: Any = torch) -> Callable[..., Any]:
        namespace = {"torch": torch_, "F": F}
        exec(self.text, namespace)
        return namespace["f"]

    def graph(self) -> fx.GraphModule:
        """As capture would have it: also what makes a tensor from nothing is a node."""
        tracer = fx.Tracer()

        class Torch:
            def __getattr__(self, name: str) -> Any:
                function = getattr(torch, name)
                if name not in ("arange", "full", "rand", "randn", "tensor", "zeros"):
                    return function
                return lambda *args, **kwargs: tracer.create_proxy(
                    "call_function", function, args, kwargs
                )

        return fx.GraphModule({}, tracer.trace(self.function(Torch())))

    def without_unused(self) -> Program:
        """The program without the lines whose values nobody needs."""
        needed, lines = set(self.outputs), []
        for line in reversed(self.lines):
            if not line.target or line.target in needed:
                lines.append(line)
                needed.update(re.findall(r"\b[xv]\d+\b", line.text))
        return replace(self, lines=lines[::-1])

    def arguments(self, call: int) -> list[torch.Tensor]:
        return [
            i.make(self.seed * 100 + 10 * call + n, self.differentiate)
            for n, i in enumerate(self.inputs)
        ]


class Writer:
    """Writes one program, running each statement as soon as it is written: one that torch rejects is dropped."""

    def __init__(self, seed: int) -> None:
        self.r = r = Random(seed)
        self.program = Program(seed, self.draw_inputs(), [], [])
        self.program.differentiate = any(i.grad for i in self.program.inputs)
        self.ns: dict[str, Any] = {"torch": torch, "F": F}
        self.exact: set[str] = set()
        self.drawn: list[str] = []
        for i, t in zip(self.program.inputs, self.program.arguments(0), strict=True):
            self.ns[i.name] = t
            self.exact.add(i.name)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(r.randint(1, 12)):
                self.statement()
        names = self.names()
        chosen = [names[-1], *(n for n in names[:-1] if n in self.drawn or r.random() < 0.2)]
        self.program.outputs = r.sample(chosen, len(chosen))
        self.program.exact = [
            n in self.exact for n in [*self.program.outputs, *(i.name for i in self.program.inputs)]
        ]

    def draw_inputs(self) -> list[Input]:
        r = self.r
        main = tuple(r.choice(SIZES) for _ in range(r.choice([0, 1, 2, 2, 2, 3, 3, 4])))
        if main and r.random() < 0.08:
            main = (*main[:-1][-1:], r.choice(LARGE))
            main = main[::-1] if r.random() < 0.3 else main
        if main and r.random() < 0.06:
            place = r.randrange(len(main))
            main = tuple(0 if d == place else n for d, n in enumerate(main))
        result = []
        dtype, hostile, grad = r.choice(FLOATS), r.random() < 0.2, r.random() < 0.5
        for n in range(r.randint(1, 4)):
            shape = r.choice(
                [main, main, main, main[1:], tuple(r.choice([1, m]) for m in main), main[::-1]]
            )
            mine = dtype if r.random() < 0.75 else r.choice(FLOATS + INTS)
            values = (
                "hostile"
                if hostile and r.random() < 0.7
                else r.choice(["normal", "normal", "whole"])
            )
            wants = (
                r.choice(["leaf", "leaf", "computed", ""])
                if grad and mine.is_floating_point
                else ""
            )
            layout = r.choice(LAYOUTS)
            # several gradients for one number
            wants = "computed" if wants and layout in ("expanded", "overlapping") else wants
            result.append(Input(f"x{n}", shape, mine, layout, values, wants))
        return result

    # --- operands

    def names(
        self, want: Callable[[torch.Tensor], bool] = lambda t: True, exact: bool = False
    ) -> list[str]:
        found = [n for n, t in self.ns.items() if isinstance(t, torch.Tensor) and want(t)]
        return [n for n in found if not exact or n in self.exact]

    def any(
        self, want: Callable[[torch.Tensor], bool] = lambda t: True, exact: bool = False
    ) -> str:
        """A value, rather a late one. Raises IndexError if there is none."""
        found = self.names(want, exact)
        return self.r.choice(found[-4:] if self.r.random() < 0.7 else found)

    def floating(self, want: Callable[[torch.Tensor], bool] = lambda t: True) -> str:
        return self.any(lambda t: t.dtype.is_floating_point and want(t))

    def beside(self, x: str, exact: bool = False) -> str:
        """Something that broadcasts with `x`, or a number."""
        shape = self.ns[x].shape
        fits = self.names(
            lambda t: all(
                m == n or m == 1 or n == 1 for m, n in zip(t.shape[::-1], shape[::-1], strict=False)
            ),
            exact,
        )
        return self.r.choice(fits) if self.r.random() < 0.85 else self.number(x)

    def not_written_to(self, name: str, x: str, where: str) -> str:
        """What is read beside a write to `where` (of x): a copy, if it lies there too, for then results hang on the order."""
        elsewhere = (
            name not in self.ns
            or self.ns[name].untyped_storage().data_ptr() != self.ns[x].untyped_storage().data_ptr()
        )
        return name if elsewhere or name == where else f"{name}.clone()"

    def number(self, x: str) -> str:
        t = self.ns[x]
        return self.r.choice(
            [
                "2",
                "1",
                "-1",
                "3",
                *(["0.5", "1.5", "-0.1", "1e-3"] if t.dtype.is_floating_point else []),
            ]
        )

    def dim(self, x: str) -> int:
        return self.r.randrange(-self.ns[x].ndim, self.ns[x].ndim)

    def dims(self, x: str) -> str:
        r, rank = self.r, self.ns[x].ndim
        return str(
            r.choice([[self.dim(x)], [self.dim(x)], r.sample(range(rank), r.randint(1, rank))])
        )

    def index(self, size: int, rank: int | None = None) -> str:
        """An integer tensor of places in a dimension of this size."""
        fits = lambda t: (
            not t.dtype.is_floating_point and t.dtype is not torch.bool and rank in (None, t.ndim)
        )
        found = self.names(fits, exact=True)
        if found and self.r.random() < 0.7:
            return f"{self.r.choice(found)}.long().remainder({size})"
        shape = [
            self.r.randint(1, 4) for _ in range(self.r.randint(1, 2) if rank is None else rank)
        ]
        g = torch.Generator().manual_seed(self.r.randrange(1000))
        places = torch.randint(size, shape, generator=g, device="cpu")
        return f"torch.tensor({places.tolist()})"

    # --- statements

    def statement(self) -> None:
        kinds = list(KINDS)
        for _ in range(20):
            kind = self.r.choices(kinds, [weight for weight, _ in kinds])[0][1]
            try:
                text, rough = kind(self)
            except (IndexError, ValueError, ZeroDivisionError, RuntimeError):
                continue
            if self.accept(text, rough, in_place=kind is Writer.in_place):
                # returned: what nobody needs is not drawn, and the next numbers would be others
                if kind is Writer.chance:
                    self.drawn.append(self.program.lines[-1].target)
                return

    def accept(self, text: str, rough: bool, in_place: bool) -> bool:
        used = [n for n in re.findall(r"\b[xv]\d+\b", text) if n in self.ns]
        with (
            torch.no_grad() if in_place and not self.program.differentiate else torch.enable_grad()
        ):
            try:
                value = eval(text, self.ns)
            except Exception:
                return False
        if not in_place and (
            not isinstance(value, torch.Tensor)
            or value.numel() > 60_000
            or value.ndim > 5
            or value.is_complex()
        ):
            return False
        dtypes = {self.ns[n].dtype for n in used}
        dtypes |= {torch.int64} if "arange" in text else set()
        # Eager rounds some operands to these before it begins.
        narrow = value.dtype in (torch.float16, torch.bfloat16)
        rough = rough or (
            narrow and bool(dtypes - {value.dtype, torch.bool, torch.int8, torch.uint8})
        )
        rough = rough or any(n not in self.exact for n in used)
        target = "" if in_place else f"v{len(self.program.lines)}"
        self.program.lines.append(Line(text, rough, target))
        if in_place:
            changed = value.untyped_storage().data_ptr()
            if rough:
                self.exact -= {
                    n for n in self.names() if self.ns[n].untyped_storage().data_ptr() == changed
                }
            return True
        self.ns[target] = value
        if not rough:
            self.exact.add(target)
        return True

    # fmt: off

    def arithmetic(self):
        x = self.any()
        y = self.beside(x)
        one, two = self.r.choice([(x, y), (y, x)])
        return self.r.choice([f"{one} + {two}", f"{one} - {two}", f"{one} * {two}", f"torch.maximum({x}, {self.any()})",
                              f"torch.minimum({x}, {self.any()})", f"{one} + {two}", f"{one} * {two}"]), False

    def division(self):
        x = self.floating()
        y = self.beside(x)
        return self.r.choice([f"{x} / ({y} * {y} + 1)", f"{x} / {y}", f"{x} / 3", f"1 / {x}", f"{x}.reciprocal()"]), False

    def plain(self):
        """One operand, exact where it is."""
        x = self.any()
        return self.r.choice([
            f"-{x}", f"{x}.abs()", f"torch.relu({x})", f"{x}.clamp(-1, 1)", f"{x}.clamp(min=0)", f"{x} * {self.number(x)}",
            f"{x} + {self.number(x)}", f"1 - {x}", f"torch.square({x})", f"{x}.clone()", f"{x}.contiguous()", f"torch.zeros_like({x})",
            f"torch.full_like({x}, 3)", f"{x}.detach()", f"F.leaky_relu({x}, 0.1)", f"F.threshold({x}, 0.1, 2)", f"F.hardtanh({x})",
            f"{x}.clamp_max({self.number(x)})",
        ]), False

    def rough_unary(self):
        x = self.floating()
        op = self.r.choice(
            "exp log sin cos tanh sigmoid erf log1p expm1 rsqrt sqrt exp2 log2 log10 atan asinh erfc tan sinh cosh acosh asin acos atanh".split()
            if self.r.random() < 0.5 else "exp tanh sigmoid erf".split()
        )
        return self.r.choice([f"torch.{op}({x})", f"torch.{op}({x})", f"F.gelu({x})", f"F.silu({x})", f"F.softplus({x})", f"F.mish({x})",
                              f"F.elu({x}.nan_to_num())", f"F.gelu({x}, approximate='tanh')", f"F.hardswish({x})", f"F.logsigmoid({x})", f"F.selu({x}.nan_to_num())",
                              f"{x}.pow({self.r.choice(['2', '3', '0.5', '-1', '1.5', '-0.5', '-2'])})", f"torch.hypot({x}, {x} + 1)"]), True

    def rough_binary(self):
        x = self.floating()
        y = self.beside(x)
        return self.r.choice([
            f"torch.add({x}, {y}, alpha=0.3)", f"torch.sub({x}, {y}, alpha=2)", f"torch.addcmul({x}, {x}, {self.any()}, value=0.5)",
            f"torch.addcdiv({x}, {x}, {self.any()} * 0 + 2)", f"torch.lerp({x}, {self.floating()}, 0.3)", f"torch.atan2({x}, {self.floating()})",
            f"{x}.abs().pow({y})", f"torch.logaddexp({x}, {self.floating()})", f"torch.xlogy({x}, {self.floating()}.abs() + 1)",
        ]), True

    def jump(self):
        """Steps, whose operands must therefore be exact."""
        x = self.any(exact=True)
        y, of = self.beside(x, exact=True), self.r.choice(["2", "3", "0.5", "-1.5"])
        choices = [f"{x} {op} {y}" for op in ("<", "<=", ">", ">=", "==", "!=")] + [f"{x}.logical_not()", f"torch.sign({x})", f"{x} > 0"]
        if self.ns[x].dtype.is_floating_point:
            choices += [f"torch.{op}({x})" for op in ("floor", "ceil", "trunc", "round", "isnan", "isinf", "frac")]
            choices += [f"torch.isfinite({x})", f"{x}.nan_to_num(0, 1, -1)", f"{x} % {of}", f"torch.fmod({x}, {of})",
                        f"{x} // {of}", f"torch.nan_to_num({x})", f"torch.copysign({x}, {self.any(exact=True)})", f"torch.heaviside({x}, {x})"]
        else:
            z = self.any(lambda t: not t.dtype.is_floating_point, exact=True)
            choices += [f"{x} // 3", f"{x} % 3", f"{x} & {z}", f"{x} | {z}", f"{x} ^ {z}", f"~{x}", f"{x} // ({y} * 0 + 2)", *([f"{x} << 1", f"{x} >> 1"] if self.ns[x].dtype is not torch.bool else []),
                        f"torch.div({x}, 3, rounding_mode='trunc')", f"torch.fmod({x}, 3)", f"{x} / 3", f"{x} % -4"]
        return self.r.choice(choices), False

    def where(self):
        b = self.any(lambda t: t.dtype is torch.bool, exact=True)
        x = self.any()
        return self.r.choice([f"torch.where({b}, {x}, {self.beside(x)})", f"{x}.masked_fill({b}, {self.number(x)})", f"torch.logical_and({b}, {self.any(exact=True)})",
                              f"torch.where({b}, 0, {x})", f"{b}.sum(-1)", f"{b} * {x}", f"torch.logical_xor({b}, {b}.logical_not())"]), False

    def convert(self):
        x = self.any()
        to = self.r.choice([d for d in FLOATS + INTS if d != self.ns[x].dtype])
        if to.is_floating_point:
            return f"{x}.to({to})", False
        x = self.any(exact=True)
        safe = f"{x}.nan_to_num(0, 9, -9).clamp(-100, 100)" if self.ns[x].dtype.is_floating_point else x
        safe = f"{safe}.abs()" if to is torch.uint8 and self.ns[x].dtype.is_floating_point else safe
        return f"{safe}.to({to})", False

    def view(self):
        x = self.any(lambda t: t.ndim > 0)
        r, t, d, e = self.r, self.ns[x], self.dim(x), self.dim(x)
        n = t.shape[d]
        start, stop = r.randint(0, n), r.randint(0, n + 1)
        order = r.sample(range(t.ndim), t.ndim)
        return r.choice([
            f"{x}.transpose({d}, {e})", f"{x}.permute({order})", f"{x}.reshape(-1)", f"{x}.unsqueeze({d})", f"{x}.squeeze({d})", f"{x}.squeeze()",
            f"{x}[{start}:{stop}]" if d in (0, -t.ndim) else f"{x}.narrow({d}, {min(start, n)}, {max(0, n - start)})", f"{x}[..., ::2]", f"{x}[..., 1:]",
            f"{x}[1::3]", f"{x}.select({d}, {r.randrange(-n, n)})", f"{x}.expand(3, *{list(t.shape)})", f"{x}.unsqueeze({d}).expand({[-1] * t.ndim + [4]})",
            f"{x}.flip({self.dims(x)})", f"{x}.flip({d})", f"{x}.diagonal()", f"{x}.unfold({d}, {r.randint(1, max(1, n))}, {r.randint(1, 3)})",
            f"{x}.chunk(2, {d})[0]", f"{x}.split({max(r.randint(1, 4), n // 50)}, {d})[-1]", f"{x}.unbind({d})[0]" if n < 200 else f"{x}.select({d}, 0)", f"{x}.flatten({r.randint(0, 1)})", f"{x}.movedim({d}, {e})",
            f"{x}.contiguous()", f"{x}.reshape({r.choice(shapes_of(t.numel(), r))})", f"{x}.view({r.choice(shapes_of(t.numel(), r))})", f"{x}.mT",
            f"{x}[None]", f"{x}[..., None]", f"{x}[:, -1]", f"{x}.unflatten({d}, (-1, {r.choice([1, 2, 3])}))", f"{x}.swapaxes({d}, {e})",
            f"torch.diag_embed({x})", f"{x}.rot90()", f"{x}.expand_as({self.any()})", f"torch.broadcast_to({x}, {list(self.ns[self.any()].shape)})",
            f"{x}.clone(memory_format=torch.channels_last)", f"{x}.contiguous(memory_format=torch.channels_last)",
        ]), False

    def assemble(self):
        x = self.any(lambda t: t.ndim > 0)
        r, t, d = self.r, self.ns[x], self.dim(x)
        alike = self.names(lambda u: u.ndim == t.ndim and all(a == b for n, (a, b) in enumerate(zip(u.shape, t.shape, strict=True)) if n != d % t.ndim))
        same = self.names(lambda u: u.shape == t.shape)
        parts = ", ".join(r.choice(alike) for _ in range(r.choice([1, 2, 2, 3, 9])))
        return r.choice([
            f"torch.cat([{parts}], {d})", f"torch.cat([{parts}], {d})", f"torch.stack([{x}, {r.choice(same)}, {x}], {d})",
            f"F.pad({x}, ({r.randint(-1, 2)}, {r.randint(-1, 3)}), value={r.choice(['0', '1.5'])})", f"F.pad({x}, (1, 0, 2, 1))", f"{x}.roll({r.randint(-2, 3)}, {d})",
            f"{x}.repeat({[r.randint(1, 2) for _ in range(t.ndim)]})", f"{x}.tril({r.randint(-1, 1)})", f"{x}.triu({r.randint(-1, 1)})",
            f"{x}.repeat_interleave(2, {d})", f"F.pad({x}, (1, 1), mode='{r.choice(['reflect', 'replicate', 'circular'])}')", f"torch.hstack([{x}, {x}])",
            f"torch.arange({t.shape[-1]}) * {x}", f"torch.full({list(t.shape)}, 2) + {x}", f"torch.arange({t.shape[-1]}).flip(0) + {x}",
            f"{x}.contiguous().slice_scatter({x} * 2, {d}, 0)", f"{x}.contiguous().select_scatter({x}.select({d}, 0) + 1, {d}, -1)", f"torch.tile({x}, (2,))",
        ]), False

    def indexing(self):
        x = self.any(lambda t: t.ndim > 0)
        r, t, d = self.r, self.ns[x], self.dim(x)
        n, first = t.shape[d], t.shape[0]
        i = self.index(n, 1)
        whole = self.names(lambda u: not u.dtype.is_floating_point and u.dtype is not torch.bool and u.shape == t.shape, exact=True)
        places = f"{r.choice(whole)}.long().remainder({n})" if whole else f"torch.zeros_like({x}, dtype=torch.int64)"
        return r.choice([
            f"{x}.index_select({d}, {i})", f"{x}[{self.index(first)}]", f"{x}[{self.index(first)}]", f"{x}.gather({d}, {places})", f"{x}[:, {self.index(t.shape[-1])}]",
            f"F.embedding({self.index(first)}, {x})", f"torch.take_along_dim({x}, {places}, {d})",
            f"{x}[{self.index(first)} - {first}]", f"{x}.index_fill({d}, {i}, 2)", f"{x}[{self.index(first, 1)}[:2], {self.index(t.shape[-1], 1)}[:2]]",
            f"{x}[..., {self.index(t.shape[-1])}, None]", f"torch.take({x}, {self.index(t.numel())})",
        ]), False

    def scatter(self):
        x = self.any(lambda t: t.ndim > 0)
        r, t, d = self.r, self.ns[x], self.dim(x)
        i = self.index(t.shape[d], 1)
        whole = self.names(lambda u: u.dtype == t.dtype and u.shape == t.shape)
        y = r.choice(whole)
        return r.choice([f"{x}.index_add({d}, {i}, {y}.index_select({d}, {i}))", f"{x}.scatter_add({d}, torch.zeros_like({x}, dtype=torch.int64), {y})",
                         f"{x}.index_put(({self.index(t.shape[0], 1)},), {x}[0])", f"torch.cumsum({x}, {d})", f"{x}.scatter({d}, torch.zeros_like({x}, dtype=torch.int64)[:1], 2)",
                         f"torch.cumprod({x}, {d})" if t.shape[d] < 300 else f"torch.cumsum({x}, {d})"]), True  # its gradient is a loop in torch

    def reduction(self):
        x = self.any(lambda t: t.ndim > 0)
        keep, dims, d = self.r.choice(["", ", keepdim=True"]), self.dims(x), self.dim(x)
        return self.r.choice([
            f"{x}.sum({dims}{keep})", f"{x}.sum({dims}{keep})", f"{x}.sum()", f"{x}.mean({dims}{keep})", f"{x}.mean({dims}{keep})", f"{x}.mean()", f"{x}.prod({d}{keep})",
            f"{x}.var({dims}{keep})", f"{x}.var({dims}, correction=0{keep})", f"{x}.std({d}{keep})", f"torch.var_mean({x}, {dims}{keep})[{self.r.randint(0, 1)}]",
            f"{x}.norm()", f"torch.linalg.vector_norm({x}, {self.r.choice(ORDERS)}, {dims}{keep})", f"{x}.logsumexp({dims}{keep})",
            f"{x}.sum({dims}{keep}, dtype=torch.float64)", f"torch.cumsum({x}, {d})", f"{x}.nansum({dims})", f"{x}.float().mean({dims})", f"{x}.sum(0)", f"{x}.sum(-1)",
            f"{x}.mean(0)", f"torch.dist({x}, {x} * 2)", f"{x}.norm(dim={d})",
        ]), True

    def extreme(self):
        """Reductions that pick."""
        x = self.any(lambda t: t.ndim > 0, exact=self.r.random() < 0.6)
        keep, dims, d = self.r.choice(["", ", keepdim=True"]), self.dims(x), self.dim(x)
        choices = [f"{x}.amax({dims}{keep})", f"{x}.amin({dims}{keep})", f"{x}.max()", f"{x}.min()", f"{x}.max({d}{keep})[0]", f"torch.aminmax({x}, dim={d})[0]"]
        if x in self.exact:
            choices += [f"{x}.argmax({d}{keep})", f"{x}.argmin({d}{keep})", f"{x}.argmax()", f"{x}.max({d}{keep})[1]", f"{x}.any({d}{keep})", f"{x}.all({d}{keep})",
                        f"{x}.any()", f"{x}.all()", f"torch.count_nonzero({x}, {d})", f"{x}.sort({d}, stable=True)[{self.r.randint(0, 1)}]", f"{x}.topk(1, {d})[0]"]
        return self.r.choice(choices), False

    def norm(self):
        x = self.floating(lambda t: t.ndim > 0)
        t, d = self.ns[x], self.dim(x)
        last = self.names(lambda u: u.dtype == t.dtype and u.shape == t.shape[-1:]) or ["None"]
        w, b = self.r.choice([*last, "None"]), self.r.choice([*last, "None"])
        channels = self.names(lambda u: t.ndim > 1 and u.dtype == t.dtype and u.shape == t.shape[1:2]) or ["None"]
        return self.r.choice([
            f"F.softmax({x}, {d})", f"F.softmax({x}, {d})", f"F.log_softmax({x}, {d})", f"F.layer_norm({x}, {list(t.shape[-1:])}, {w}, {b})", f"F.layer_norm({x}, {list(t.shape[-1:])})",
            f"F.layer_norm({x}, {list(t.shape[-2:])})", f"F.rms_norm({x}, {list(t.shape[-1:])}, {w})", f"F.group_norm({x}, 1)", f"F.normalize({x}, dim={d})",
            f"F.batch_norm({x}, None, None, {self.r.choice(channels)}, {self.r.choice(channels)}, training=True)", f"F.softmin({x}, {d})",
            f"F.batch_norm({x}, {x}.detach().mean([0, *range(2, {t.ndim})]), {x}.detach().mean([0, *range(2, {t.ndim})]).abs() + 1)", f"F.cosine_similarity({x}, {x} + 1, {d})",
            f"F.softmax({x}, {d}, dtype=torch.float32)",
        ]), True

    def loss(self):
        x = self.floating(lambda t: t.ndim > 0)
        t = self.ns[x]
        y = self.r.choice(self.names(lambda u: u.dtype == t.dtype and u.shape == t.shape))
        how = self.r.choice(["mean", "sum", "none"])
        classes = t.shape[1] if t.ndim > 1 else t.shape[0]
        if not classes:  # eager does not look at a label that is ignored, we say that it is out of range
            raise ValueError
        target = self.index(classes, 1) if t.ndim == 2 else f"torch.zeros({[t.shape[0], *t.shape[2:]] if t.ndim > 1 else []}, dtype=torch.int64)"
        if t.ndim == 2 and t.shape[0] < 50:
            target = f"torch.tensor({[self.r.randrange(classes) for _ in range(t.shape[0])]})"
        return self.r.choice([
            f"F.mse_loss({x}, {y}, reduction='{how}')", f"F.l1_loss({x}, {y}, reduction='{how}')", f"F.smooth_l1_loss({x}.nan_to_num(), {y}.nan_to_num(), reduction='{how}')", f"F.huber_loss({x}.nan_to_num(), {y}.nan_to_num())",
            f"F.cross_entropy({x}, {target}, reduction='{how}')", f"F.cross_entropy({x}, {target}, label_smoothing=0.1)", f"F.nll_loss({x}, {target}, reduction='{how}')",
            f"F.binary_cross_entropy_with_logits({x}, {y}.sigmoid(), reduction='{how}')", f"F.kl_div({x}, {y}, log_target=True, reduction='{how}')", f"F.soft_margin_loss({x}, {y})",
            f"F.cross_entropy({x}, {target}, ignore_index=0)", f"F.margin_ranking_loss({x}, {y}, {y}.sign() * 0 + 1)", f"F.cross_entropy({x}, {y}.softmax(-1))",
        ]), True

    def product(self):
        x = self.floating(lambda t: t.ndim > 0 and t.numel() < 3000)
        t = self.ns[x]
        y = self.r.choice(self.names(lambda u: u.dtype == t.dtype and u.ndim > 0 and u.numel() < 3000))
        return self.r.choice([
            f"{x} @ {x}.mT", f"{x}.mT @ {x}", f"{x} @ {y}", f"{x} @ {y}.mT", f"F.linear({x}, {y})", f"torch.einsum('...i,...i->...', {x}, {y})", f"torch.outer({x}, {y})",
            f"torch.addmm({x}, {x}, {y})", f"torch.baddbmm({x}, {x}, {y})", f"F.scaled_dot_product_attention({x}, {x}, {y})" if t.numel() else f"{x} @ {y}", f"F.conv1d({x}, {y})",
            f"F.conv2d({x}, {y}, padding=1)", f"F.max_pool2d({x}, 2)", f"F.avg_pool2d({x}, 2, padding=1)", f"F.interpolate({x}, scale_factor=2)", f"F.adaptive_avg_pool2d({x}, 1)",
            f"F.interpolate({x}, scale_factor=2, mode='bilinear')", f"torch.dot({x}, {y})", f"F.max_pool1d({x}, 2, 1)", f"F.pixel_shuffle({x}, 2)", f"F.glu({x}, -1)",
        ]), True

    def chance(self):
        """On what is contiguous: numbers are drawn in the order of memory, and torch says otherwise of some fake tensors' strides."""
        x = self.floating(lambda t: t.is_contiguous())
        return self.r.choice([f"F.dropout({x}.contiguous(), 0.5)", f"torch.bernoulli(torch.full_like({x}.contiguous().detach(), 0.5))",
                              f"torch.rand({list(self.ns[x].shape)})", f"torch.randn({list(self.ns[x].shape)}) * {x}"]), False

    def in_place(self):
        drawn = {self.ns[n].untyped_storage().data_ptr() for n in self.drawn}  # what is written over is not drawn
        x = self.any(lambda t: t.untyped_storage().data_ptr() not in drawn)
        r, t = self.r, self.ns[x]
        y = self.beside(x)
        where = x
        if t.ndim and r.random() < 0.5:
            d, n = self.dim(x), t.shape[0]
            where = r.choice([f"{x}[{r.randint(0, n)}:]", f"{x}[..., ::2]", f"{x}.select({d}, 0)", f"{x}.transpose({d}, 0)", f"{x}.view(-1)", f"{x}[..., 1:]", f"{x}.diagonal()",
                              f"{x}.unsqueeze({d})", f"{x}.narrow({d}, 0, 1)"])
            y = r.choice([y, self.number(x)])
        y, z, w = (self.not_written_to(name, x, where) for name in (y, self.any(), x))
        safe = r.choice([f"{where}.add_({y})", f"{where}.mul_({y})", f"{where}.sub_({y})", f"{where}.relu_()", f"{where}.clamp_(-1, 1)", f"{where}.zero_()", f"{where}.fill_(2)",
                         f"{where}.copy_({z})", f"{where}.neg_()", f"{where}.masked_fill_({where} > 0, 1)" if x in self.exact else f"{where}.abs_()",
                         f"{where}.add_({y})", f"{where}.mul_({y})", f"{where}.copy_({x}.flip(0))"])
        if r.random() < 0.75:
            return safe, False
        return r.choice([f"{where}.sigmoid_()", f"{where}.add_({y}, alpha=0.3)", f"{where}.exp_()", f"{where}.div_({self.number(x)})", f"{where}.lerp_({z}, 0.2)",
                         f"{where}.addcmul_({w}, {w}, value=0.1)", f"{where}.index_add_(0, torch.tensor([0]), {where}[:1] * 2)"]), True


KINDS = [
    (8, Writer.arithmetic),
    (3, Writer.division),
    (6, Writer.plain),
    (6, Writer.rough_unary),
    (2, Writer.rough_binary),
    (4, Writer.jump),
    (4, Writer.where),
    (3, Writer.convert),
    (14, Writer.view),
    (5, Writer.assemble),
    (5, Writer.indexing),
    (1, Writer.scatter),
    (7, Writer.reduction),
    (4, Writer.extreme),
    (5, Writer.norm),
    (2, Writer.loss),
    (3, Writer.product),
    (0.7, Writer.chance),
    (6, Writer.in_place),
]

# fmt: on


def shapes_of(count: int, r: Random) -> list[list[int]]:
    """Some shapes with so many elements."""
    factors = [n for n in range(1, 18) if count % n == 0]
    one = r.choice(factors)
    two = r.choice([n for n in factors if count // one % n == 0])
    return [[count], [one, count // one], [count // one, one], [one, two, count // one // two]]


# --- running a program


@dataclass
class Outcome:
    """Results, the inputs afterwards, gradients; which of the first two share memory; or what was raised."""

    tensors: list[torch.Tensor | None] = field(default_factory=list)
    shares: list[int] = field(default_factory=list)
    problem: str = ""


def outcome(program: Program, function: Callable[..., Any], call: int) -> Outcome:
    """Run it on the inputs of this call, and backward."""
    inputs = program.arguments(call)
    leaves = [leaf_of(i) for i in inputs if i.requires_grad]
    torch.manual_seed(call)
    try:
        with getattr(function, "mode", contextlib.nullcontext()):
            results = list(function(*inputs))
            gradients = gradients_of(program, leaves, [*results, *inputs])
    except Exception as problem:
        return Outcome(
            problem=f"{type(problem).__name__}: {problem}\n{traceback.format_exc()[-1500:]}"
        )
    memory = [
        t.untyped_storage().data_ptr() if t.numel() else -n
        for n, t in enumerate([*results, *inputs], 1)
    ]
    return Outcome([*results, *inputs, *gradients], list(map(memory.index, memory)))


def gradients_of(
    program: Program, leaves: list[torch.Tensor], outputs: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    outputs = [o for o in outputs if o.grad_fn is not None]
    if not leaves or not outputs:
        return []
    g = torch.Generator().manual_seed(program.seed)
    tangents = [
        torch.randn(o.shape, generator=g, dtype=torch.float64, device="cpu").to(o) for o in outputs
    ]
    return list(torch.autograd.grad(outputs, leaves, tangents, allow_unused=True))


def leaf_of(tensor: torch.Tensor) -> torch.Tensor:
    """The leaf that an input is, or that it is made of."""
    function = tensor.grad_fn
    while function and not hasattr(function, "variable"):
        function = function.next_functions[0][0]
    return function.variable if function else tensor


def sharing(value: torch.Tensor, names: dict[str, Any]) -> list[torch.Tensor]:
    """What of these shares memory with the value."""
    memory = value.untyped_storage().data_ptr()
    return [
        t
        for t in names.values()
        if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() == memory
    ]


def disturbed(program: Program, size: float, seed: int) -> Callable[..., Any]:
    """The program, line by line, with roundings off by up to `size` units in the last place, forward and backward."""
    g = torch.Generator().manual_seed(seed)

    def shaken(t: Any, times: float = 1) -> Any:
        """Each number off by so much of itself, and by as much of 1: terms of the size of 1 may have cancelled."""
        if not isinstance(t, torch.Tensor) or not t.dtype.is_floating_point:
            return t
        # sometimes all are off alike, as equal numbers are
        shape = t.shape if seed % 3 else [1] * t.ndim
        random = torch.rand((2, *shape), generator=g, dtype=torch.float64, device="cpu").to(
            t.device
        )
        off, of_one = (random * 2 - 1) * size * times * torch.finfo(t.dtype).eps
        wide = t if t.dtype is torch.float64 else t.float()
        return (wide * (1 + off).to(wide.dtype) + of_one.to(wide.dtype)).to(t.dtype)

    # which eager's gradients of `var` and `std` take for exact
    rounded = lambda mean: shaken(mean).detach()
    formulas = dict(eager_variants.FORMULAS)
    formulas |= {
        name: functools.partial(formulas[name], rounded=rounded)
        for name in ("variance", "deviation", "layer_normed")
    }

    def uses_apart(text: str, names: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Each use of a value by a name of its own, whose gradient is shaken by itself: in which order they are added is open."""
        own: dict[str, Any] = {}

        def name_of(use: re.Match[str]) -> str:
            value = names.get(use[0])
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                return use[0]
            own[name := f"{use[0]}_{len(own)}"] = value.view_as(value)
            own[name].register_hook(shaken)
            return name

        return re.sub(r"\b[vx]\d+\b", name_of, text), {**names, **own}

    def run(*inputs: torch.Tensor) -> tuple[Any, ...]:
        ns: dict[str, Any] = {
            "torch": torch,
            "F": F,
            **{i.name: t for i, t in zip(program.inputs, inputs, strict=True)},
        }
        for t in inputs:
            if t.requires_grad:
                t.register_hook(shaken)
        for line in program.lines:
            random = torch.get_rng_state()
            seen = ns
            text = eager_variants.otherwise(line.text) if line.rough and seed % 2 else line.text
            # else the mean that `std` and `var` subtract is shaken
            if line.rough and line.target and text == line.text:
                # as the line says
                wide = lambda t: (
                    t.float() if ".float()" in line.text and isinstance(t, torch.Tensor) else t
                )
                seen = {
                    name: shaken(wide(t)) if re.search(rf"\b{name}\b", line.text) else t
                    for name, t in ns.items()
                }
            torch.set_rng_state(random)
            value = eval(text, {**seen, **formulas})
            if value.requires_grad and line.target and not sharing(value, ns):
                torch.set_rng_state(random)
                text, seen = uses_apart(text, seen)
                value = eval(text, {**seen, **formulas})
            if value.dtype.is_floating_point:
                if line.rough and not (line.target and sharing(value, ns)):
                    # Equal numbers are all rounded the same way: a sum of many of them is off by as many units.
                    most = max(
                        (t.numel() for t in seen.values() if isinstance(t, torch.Tensor)), default=1
                    )
                    many = most / max(value.numel(), 1) / 16 if value.dtype is torch.float64 else 1
                    value.data.copy_(
                        shaken(value.data, max(many, 1))
                    ) if 0 not in value.stride() else None
                    # which may be written to, if this kernel saved its result
                    value = value.clone() if line.target else value
                # Who writes into a view gives its base a gradient function of its own: that of the view is not on its way.
                for t in (value,) if line.target else sharing(value, ns):
                    # one of several views (`unbind`) whose base was written to
                    with contextlib.suppress(RuntimeError):
                        if t.requires_grad and t.grad_fn is not None:
                            t.register_hook(shaken)
            if line.target:
                ns[line.target] = value
        return tuple(ns[name] for name in program.outputs)

    return run


EXCUSED: Counter[str] = Counter()
"""How many comparisons each rule decided: the ways of `eager_variants`, and those below."""
# An operator whose result nobody needs is not run, so its error is not raised
UNSEEN = "raises where nobody looks"
# torch orders dimensions by strides that say little there
OVERLAPPING = "strides beside overlapping inputs"
POLE = (
    # 1 / x where rounding alone decides whether x is 0: infinite, or so large that no digit is known; and its gradient
    "a pole"
)


def differences(program: Program, call: int, eager: Outcome, ours: Outcome) -> str:
    """'' if they agree, else what differs."""
    if eager.problem and not ours.problem:
        used = program.without_unused()
        if not (needed := outcome(used, used.function(), call)).problem:
            EXCUSED[UNSEEN] += 1
            program, eager = used, needed
    if ours.problem or eager.problem:
        return (
            ""
            if ours.problem and eager.problem
            else f"ours: {ours.problem or 'fine'}\neager: {eager.problem or 'fine'}"
        )
    said = (
        ""
        if ours.shares == eager.shares
        else f"other results share memory: {ours.shares}, in eager {eager.shares}"
    )
    if not (said := said or apart(program, call, eager, ours, [])):
        return ""
    others: list[Outcome] = []
    for name, function in eager_variants.variants(program):
        other = outcome(program, function, call)
        if not other.problem and len(other.tensors) == len(eager.tensors):
            others.append(other)
            if any(ours.shares == o.shares for o in [eager, *others]) and not apart(
                program, call, eager, ours, others
            ):
                EXCUSED[name] += 1
                return ""
    return said


def apart(program: Program, call: int, eager: Outcome, ours: Outcome, others: list[Outcome]) -> str:
    """'' if each element of ours is eager's, or that of one of the `others`."""
    for times, size in ((3, 4.0), (24, 24.0)):
        noisy: list[Outcome] | None = None
        said = ""
        for n, (a, b) in enumerate(zip(ours.tensors, eager.tensors, strict=True)):
            if a is None or b is None:
                said = f"tensor {n}: {a} instead of {b}" if a is not b else ""
            else:
                a, b = a.detach(), b.detach()
                exact = n < len(program.exact) and program.exact[n]
                said = unlike(ours.tensors[n], eager.tensors[n])
                known = (
                    n >= len(program.strides)
                    or a.stride() == program.strides[n]
                    or strides(a) == strides(b)
                )
                known = known or any(
                    a.stride() == o.tensors[n].stride() for o in others if o.tensors[n] is not None
                )
                if not known and any(i.layout == "overlapping" for i in program.inputs):
                    EXCUSED[OVERLAPPING] += 1
                    known = True
                said = said or ("" if known else f"{a.stride()} instead of {b.stride()}")
                also = [
                    o.tensors[n].detach()
                    for o in others
                    if o.tensors[n] is not None and o.tensors[n].shape == b.shape
                ]
                if not said and not same_bits(a, b):
                    if exact or not b.dtype.is_floating_point:
                        if not bool(
                            functools.reduce(
                                torch.logical_or, [same(a, other) for other in (b, *also)]
                            ).all()
                        ):
                            return f"tensor {n} is not exactly\n{b}\nbut\n{a}\nat {where(a, b)}"
                        continue
                    if noisy is None:
                        noisy = [
                            outcome(program, disturbed(program, size, k), call)
                            for k in range(times)
                        ]
                        noisy = [o for o in noisy if not o.problem]
                    near = [
                        o.tensors[n].detach()
                        for o in noisy
                        if len(o.tensors) > n and o.tensors[n] is not None
                    ]
                    said = too_far(a, b, near, also)
            if said:
                said = f"tensor {n}: {said}"
                break
        if not said:
            return ""
    return said


def unlike(a: torch.Tensor, b: torch.Tensor) -> str:
    ours, eager = ((t.dtype, t.shape, t.requires_grad) for t in (a, b))
    return "" if ours == eager else f"{ours} instead of {eager}"


def strides(t: torch.Tensor) -> list[int]:
    return [stride for n, stride in zip(t.shape, t.stride(), strict=True) if n > 1 and t.numel()]


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | ((a != a) & (b != b))


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(same(a, b).all())


def where(a: torch.Tensor, b: torch.Tensor) -> list[Any]:
    return (~same(a, b)).nonzero()[:4].tolist()


def too_far(
    a: torch.Tensor, b: torch.Tensor, noisy: list[torch.Tensor], others: list[torch.Tensor]
) -> str:
    """'' if `a` is as near to `b`, or to what eager gives in one of the `others`, as rounding explains."""
    info = torch.finfo(b.dtype)
    a, b, noisy = a.double(), b.double(), [n.double() for n in noisy]
    fine = (a == b) | (a.isnan() & b.isnan())
    spread = torch.zeros_like(b)
    for n in noisy:
        fine |= (n.isfinite() != b.isfinite()) | (
            ~n.isfinite() & ~b.isfinite() & (n.isnan() != b.isnan())
        )
        spread = torch.maximum(spread, (n - b).abs().nan_to_num(0, 0, 0))
    for other in (b, *(o.double() for o in others)):
        # where eager gives nan, nobody knows how far roundings go
        units = torch.where(b.isfinite(), 4, 64)
        allowed = (
            6 * spread
            + units * info.eps * other.abs().nan_to_num(0, 0, 0)
            + 4 * max(info.tiny, 1e-40)
        )
        fine |= same(a, other) | ((a - other).abs() <= allowed)
        # a sum overflows: which infinity, or nan, hangs on its order
        fine |= ~a.isfinite() & ~b.isfinite() & other.isfinite()
    if bool(fine.all()):
        return ""
    pole = bool((b.abs() * info.eps > 1).any())
    if pole and bool((fine | (~a.isfinite() & (2 * spread > b.abs()))).all()):
        EXCUSED[POLE] += 1
        return ""
    at = tuple((~fine).nonzero()[0].tolist())
    return f"{a[at].item()!r} instead of {b[at].item()!r} at {list(at)}, rounding explains {allowed[at].item():.2e} ({int((~fine).sum())} of {b.numel()} elements)"


# --- compiling many


class NotTraced(Exception):
    """torch itself cannot run the program on fake tensors."""


def settings_of(draw: Random) -> dict[str, int]:
    """From which sizes on code goes in blocks, past the caches or in threads: drawn, so that small tensors meet all of it."""
    if draw.random() >= 0.5:
        # at -O1 one register adds up what 32 do for users, so a block has fewer numbers
        return {"BLOCK": 512}

    return {
        "PARALLEL_FROM": draw.choice([128, 2**14]),
        "BLOCK": draw.choice([16, 64, 512]),
        "STREAM_FROM": draw.choice([0, 2**26]),
        "FEW_ROWS": draw.choice([1, 4, 16]),
        "LANES": draw.choice([4, 64]),
        "STRIP": draw.choice([8, 64]),
    }


@contextlib.contextmanager
def with_settings(settings: dict[str, int]):
    """Print C++ with these settings."""
    before = {name: getattr(cpp_plan, name) for name in settings}
    vars(cpp_plan).update(settings)
    try:
        yield
    finally:
        vars(cpp_plan).update(before)


class Batch:
    """Programs whose C++ kernels are built as one library. Triton's are built one by one, as users get them."""

    def __init__(self, flags: str = "-O1 -ftree-vectorize", codegen: str = "cpp") -> None:
        self.flags = flags
        self.codegen = codegen
        self.graphs: list[Any] = []
        self.seed = 0
        self.mode = "loops"
        self.fell_back = 0

    def add(self, program: Program) -> Callable[..., Any]:
        """Compile all but the kernels. The result runs as `mode` says."""
        r = Random(program.seed)
        self.settings = settings_of(r)
        pipeline = Pipeline(build=self.build)
        if r.random() < 0.2:
            pipeline = pipeline.replace(fuse=lambda producer, consumer: Fuse(1))
        arguments = program.arguments(0)
        torch.manual_seed(0)
        try:
            gm = with_sizes(program.graph(), arguments)
        except Exception as problem:
            raise NotTraced from problem
        program.strides = [node.meta["val"].stride() for node in gm.graph.output_node().args[0]]
        before = len(self.graphs)
        compiled = pipeline.run_compile(gm, self.codegen, program.differentiate)
        self.fell_back += len(self.graphs) == before
        return compiled

    def build(self, graph: Any, schedule: Any, plan: Any, codegen: str) -> Callable[..., Any]:
        if codegen != "cpp":
            self.graphs.append(
                [graph, schedule, plan, {}, runtime.build(graph, schedule, plan, codegen)]
            )
            return self.graphs[-1][-1]
        with with_settings(self.settings):
            fused = [k for k in schedule.kernels if isinstance(k, FusedKernel)]
            sources = {
                k: cpp.cpp_source(k, graph.buffers, f"{k.name}_{len(self.graphs)}_{n}")
                for n, k in enumerate(fused)
            }
        number = len(self.graphs)
        self.graphs.append([graph, schedule, plan, sources, None])

        def run(*inputs: Any) -> tuple[Any, ...]:
            if self.mode == "loops":
                return tuple(evaluate(graph, *inputs))
            return self.graphs[number][-1](*inputs)

        return run

    def build_kernels(self) -> None:
        if self.codegen != "cpp":
            return
        sources = [source for entry in self.graphs for source in entry[3].values()]
        if sources:
            kept = compiler.FLAGS
            compiler.FLAGS = (*(f for f in kept if f != "-O3"), *self.flags.split())
            try:
                entry = compiler.build_library(
                    "\n".join([cpp.prelude(), *(s.source for s in sources)])
                )
            finally:
                compiler.FLAGS = kept
            library, make = (
                ctypes.CDLL(str(entry.path)),
                native.load("course_lib.runtime._launcher").launcher,
            )
            address = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            launches = {
                s.name: make(struct.pack("Pn", address(s.name), len(s.buffers) + s.checked))
                for s in sources
            }
        for entry in self.graphs:
            graph, schedule, plan, mine, _ = entry
            text, names = Wrapper(schedule.kernels, plan, graph, mine).print()
            entry[4] = define(
                "call",
                text,
                "program",
                {**names, **{s.name: launches[s.name] for s in mine.values()}},
            )


def too_long(*_: Any) -> None:
    raise TimeoutError(f"takes more than {LONGEST} seconds")


def make(seed: int) -> Program:
    """The program of a seed. Where eager itself cannot go backward, it has no gradients."""
    with torch.device("cpu"):  # where an index that is too large is an error like others
        program = Writer(seed).program
        if program.differentiate and outcome(program, program.function(), 0).problem:
            program.differentiate = False
    return program


def eager_is_random(program: Program) -> bool:
    """Attention lays its result out as the query: where elements of that share memory, it gives something else each time."""
    return "scaled_dot_product" in program.text and any(
        i.layout in ("overlapping", "expanded") for i in program.inputs
    )


def eager_is_odd_on_gpu(program: Program) -> bool:
    """What eager itself does otherwise on a GPU: `hardswish` of float64 multiplies by a float32 1/6, the mean loss of one label
    that is ignored is 0 where a CPU says nan, `rms_norm` of an infinite row is nan; attention of tensors that do not begin at a
    multiple of 16 bytes reads a misaligned address, and `index_put` looks at indices into nothing: both end the process. Who writes
    to elements that share memory is not said."""
    text = program.text
    shared = any(i.layout in ("overlapping", "expanded") for i in program.inputs)
    return (
        ("F.hardswish(" in text and "float64" in str(program))
        or ("torch.zeros([]" in text and "ignore_index=0" in text)
        or ("F.rms_norm(" in text and any(i.values == "hostile" for i in program.inputs))
        or ("scaled_dot_product" in text and any(i.layout == "offset" for i in program.inputs))
        or (
            program.differentiate
            and "[torch.tensor(" in text
            and any(0 in i.shape for i in program.inputs)
        )
        or (shared and any(not line.target for line in program.lines))
    )


def check(
    seeds: Sequence[int],
    flags: str = "-O1 -ftree-vectorize",
    ways: Sequence[str] = ("loops", "kernels"),
    codegen: str = "cpp",
) -> dict[int, str]:
    """The seeds whose programs differ from eager, each with what differs."""
    wrong: dict[int, str] = {}
    batch, programs = Batch(flags, codegen), {}
    kept = config.measure_products, signal.signal(signal.SIGALRM, too_long)
    config.measure_products = False
    on_gpu = torch.get_default_device().type == "cuda"
    for seed in seeds:
        program = make(seed)
        if eager_is_random(program) or (on_gpu and eager_is_odd_on_gpu(program)):
            check.left_out += 1
            continue
        if codegen == "triton":  # x * y + z is rounded once there
            for line in program.lines:
                line.rough = True
            program.exact = []
        try:
            signal.alarm(LONGEST)
            programs[seed] = program, batch.add(program)
        except NotTraced:
            check.not_traced += 1
        except Exception:
            wrong[seed] = f"does not compile: {traceback.format_exc()}\n{program}"
        finally:
            signal.alarm(0)
    if "kernels" in ways:
        batch.build_kernels()
    for seed, (program, compiled) in programs.items():
        for call in (0, 1):
            eager = outcome(program, program.function(), call)
            if eager.problem and on_gpu:  # some backward passes do not take every layout there
                continue
            for batch.mode in ways if call == 0 else ways[-1:]:
                said = differences(program, call, eager, outcome(program, compiled, call))
                if said and seed not in wrong:
                    wrong[seed] = f"{batch.mode}, call {call}: {said}\n{program}"
    check.fell_back += batch.fell_back
    config.measure_products, _ = kept[0], signal.signal(signal.SIGALRM, kept[1])
    return wrong


check.fell_back = check.not_traced = check.left_out = 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=40, help="programs for one build of C++")
    parser.add_argument("--flags", default="-O1 -ftree-vectorize")
    parser.add_argument("--ways", nargs="+", default=["loops", "kernels"])
    parser.add_argument("--show", type=int, default=3)
    parser.add_argument(
        "--codegen",
        default="cpp",
        choices=["cpp", "triton"],
        help="triton: only the kernels are compared",
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no batch after so many"
    )
    args = parser.parse_args()
    if args.device == "cuda" and args.codegen == "cpp":
        parser.error("C++ kernels cannot read the memory of a GPU: add --codegen triton")
    torch.set_default_device(args.device)
    ways = args.ways if args.codegen == "cpp" else ["kernels"]
    warnings.simplefilter("ignore")
    bad, start, kinds = 0, time.time(), Counter()
    for first in range(args.start, args.start + args.count, args.batch):
        if time.time() - start > args.seconds:
            args.count = first - args.start
            break
        seeds = range(first, min(first + args.batch, args.start + args.count))
        for seed, said in check(seeds, args.flags, ways, args.codegen).items():
            bad += 1
            kinds[said.split(",")[0][:40]] += 1
            if bad <= args.show:
                print(f"seed {seed}: {said}\n", flush=True)
            else:
                print(f"seed {seed}", flush=True)
        print(f"... {first}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    seconds = time.time() - start
    print(
        f"{args.count} programs from seed {args.start}: {bad} differ {dict(kinds)}, {check.fell_back} ran op by op, {check.not_traced} torch cannot trace, {check.left_out} left out (eager is odd there), comparisons excused {dict(EXCUSED)}; {seconds:.0f} s, {args.count / seconds:.1f} a second"
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
