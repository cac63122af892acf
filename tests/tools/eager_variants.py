"""Other ways to run a program of `random_graphs` in eager: where eager differs from itself, nobody can be held against it.

Each way computes the same mathematics on the same numbers. It only decides differently what eager leaves open, and says so:

    the sign of a zero       two zeros are equal wherever results are compared, and so are two nan: what hangs on their sign
                             (`1 / x`, `copysign`, `atan2`) cannot be held either. Eager's own `relu`, `maximum` and `clamp` give
                             -0 or 0, its `max` -nan or nan, by whether an element is reached by the vector loop or by what is
                             left over from it.
    gaps between elements    operands that are not dense go through other loops of eager, with other answers for nan and infinity
                             (the gradient of `hardswish`: nan in the vector loop, finite in the other) and other roundings.
    another formula          `var_mean` runs Welford's update, where one infinity in a row makes its mean nan, a sum does not;
                             `prod` has two formulas for its gradient and asks the data which to take; `batch_norm` multiplies
                             scale and deviation first; `layer_norm` sums in float32, which may overflow;
                             `pow(0.5)` and `pow(-0.5)` are `sqrt` and `rsqrt`, but a `pow` for float16.
    torch's decompositions   torch writes many operators in smaller ones (for `torch.compile`, and for us), and those have other
                             answers for nan and infinity: bilinear interpolation, the gradients of `huber_loss` and `elu`.
    another library          on processors with AVX-512 eager's `gelu` is oneDNN's: infinite from 1.7e38 on, and nan at infinity.
    what cancels is 0        a difference of equal numbers is 0, or what their roundings leave of it: divided by its own norm
                             it is nan, or anything.
    rounded once             each operation computed in double precision and rounded at its end: eager sums thousands of numbers
                             in float32 here and there (`nansum`), we in double.
    views by `as_strided`    what is returned as a view of an input that is shown several times (`expand`) has a gradient that is
                             summed where the memory is, one number after the other, in its own dtype.

A result of ours that differs from eager's must be, element by element, what one of these ways gives. `random_graphs` counts how
often each was needed.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib import compiler  # noqa: F401  (first: the rooms import each other in its order)
from course_lib.lowering.decompositions import torchs_own

Function = Callable[..., Any]
DECOMPOSITIONS = torchs_own()


class Decomposed(TorchDispatchMode):
    """Runs operators as torch's decompositions say."""

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op not in DECOMPOSITIONS:
            return op(*args, **(kwargs or {}))
        with self:
            result = DECOMPOSITIONS[op](*args, **(kwargs or {}))
        return op(*args, **(kwargs or {})) if result is NotImplemented else result


def variants(program: Any) -> Iterator[tuple[str, Function]]:
    """The ways, each with its name. `program`: a `random_graphs.Program`."""
    for zero in (0.0, -0.0):
        one_sign = functools.partial(with_sign, of=zero)
        yield "the sign of a zero", line_by_line(program, after=one_sign)
        yield "the sign of a zero", line_by_line(program, after=one_sign, inputs=False)
    yield "gaps between elements", line_by_line(program, operands=with_gaps)
    if (text := otherwise(program.text)) != program.text:
        yield "another formula", function_of(text)
        yield "another formula", line_by_line(program, operands=with_gaps, rewrite=otherwise)
        for zero in (0.0, -0.0):
            yield (
                "another formula",
                line_by_line(
                    program, after=functools.partial(with_sign, of=zero), rewrite=otherwise
                ),
            )
    if "gelu" in program.text:
        yield "another library", in_mode(program.function(), WithoutOneDNN())
    yield "what cancels is 0", with_nothing_left(program)
    yield (
        "rounded once",
        line_by_line(
            program, operands=in_double, rewrite=lambda text: text.replace(".float()", "")
        ),
    )
    yield "torch's decompositions", in_mode(program.function(), Decomposed())
    if any(i.layout in ("expanded", "overlapping") and i.grad for i in program.inputs):
        yield "views by `as_strided`", with_strided_results(program)


class WithoutOneDNN:
    """torch's own kernels, where eager would take another library's."""

    def __enter__(self) -> None:
        self.before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)

    def __exit__(self, *error: object) -> None:
        torch._C._set_mkldnn_enabled(self.before)


def in_mode(function: Function, mode: Any) -> Function:
    """The function, and its backward, in this mode."""
    run = lambda *inputs: function(*inputs)
    run.mode = mode  # type: ignore[attr-defined]
    return run


def function_of(text: str) -> Function:
    namespace = {"torch": torch, "F": F, **FORMULAS}
    exec(text, namespace)
    return namespace["f"]


def line_by_line(
    program: Any,
    after: Function = lambda value: value,
    operands: Function | None = None,
    rewrite: Callable[[str], str] = lambda text: text,
    inputs: bool = True,
) -> Function:
    """The program with something done to each value after it is made (and to `inputs`), or to what a line reads."""

    def run(*given: torch.Tensor) -> tuple[Any, ...]:
        ns: dict[str, Any] = {"torch": torch, "F": F, **FORMULAS}
        ns |= {
            i.name: after(t) if inputs else t for i, t in zip(program.inputs, given, strict=True)
        }
        for line in program.lines:
            text, random = rewrite(line.text), torch.get_rng_state()
            if (
                operands
                and line.target
                and "nan_to_num(" not in text
                and not is_view(value := eval(line.text, dict(ns)), ns)
            ):
                torch.set_rng_state(random)
                others = {
                    name: operands(v) if isinstance(v, torch.Tensor) else v
                    for name, v in ns.items()
                }
                value = eval(text, others).to(value.dtype)
            elif not operands or not line.target or "nan_to_num(" in text:
                value = eval(text, dict(ns))
            value = after(value)
            if line.target:
                ns[line.target] = value
        return tuple(ns[name] for name in program.outputs)

    return run


def is_view(value: torch.Tensor, ns: dict[str, Any]) -> bool:
    """Does it share memory with a value that is there already?"""
    memory = value.untyped_storage().data_ptr()
    return any(
        isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() == memory
        for t in ns.values()
    )


def with_sign(value: torch.Tensor, of: float) -> torch.Tensor:
    """All zeros, and all nan, with the sign of `of`, in forward and backward."""
    nan = math.copysign(math.nan, of)
    signed = lambda x: x.masked_fill(x == 0, of).masked_fill(x.isnan(), nan)
    if value.dtype.is_floating_point:
        if not shown_twice(value):
            value.data.copy_(signed(value.data))
        if value.requires_grad:
            value.register_hook(signed)
    return value


def shown_twice(value: torch.Tensor) -> bool:
    return any(n > 1 and step == 0 for n, step in zip(value.shape, value.stride(), strict=True))


def with_gaps(value: torch.Tensor) -> torch.Tensor:
    """The same numbers, every second place in memory."""
    return torch.stack([value, value], -1)[..., 0] if value.numel() < 60_000 else value


def in_double(value: torch.Tensor) -> torch.Tensor:
    """The same numbers; operations on them round to 53 bits."""
    return value.double() if value.dtype.is_floating_point else value


REWRITTEN = [
    (r"torch\.var_mean\((\w+), (\[[^\]]*\])(, keepdim=True)?\)\[1\]", r"torch.mean(\1, \2\3)"),
    (r"torch\.var_mean\((\w+), (\[[^\]]*\])(, keepdim=True)?\)\[0\]", r"variance(\1, \2\3)"),
    (r"\b(\w+)\.var\((\[[^\]]*\])(, correction=0)?(, keepdim=True)?\)", r"variance(\1, \2\3\4)"),
    (r"\b(\w+)\.std\((-?\d+)((?:, \w+=\w+)*)\)", r"deviation(\1, [\2]\3)"),
    (r"\b(\w+)\.prod\((-?\d+)(, keepdim=True)?\)", r"product(\1, \2\3)"),
    (r"F\.batch_norm\((\w+), None, None, (\w+), (\w+), training=True\)", r"normalized(\1, \2, \3)"),
    (r"F\.layer_norm\(", "layer_normed("),
    (r"F\.group_norm\((\w+), 1\)", r"layer_normed(\1, \1.shape[1:])"),
    (r"\b(\w+)\.pow\(-0\.5\)", r"torch.rsqrt(\1)"),
    (r"\b(\w+)\.pow\(0\.5\)", r"torch.sqrt(\1)"),
]
"""Operators whose formula is eager's choice → the same by another one."""


def otherwise(text: str) -> str:
    for pattern, by in REWRITTEN:
        text = re.sub(pattern, by, text)
    return text


def product(x: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    """`prod` whose gradient is the product of the others, whatever they are."""
    if not x.dtype.is_floating_point or not x.shape[dim]:
        return x.prod(dim, keepdim)
    wide = x.float() if x.dtype != torch.float64 else x
    return functools.reduce(operator.mul, wide.split(1, dim)).to(x.dtype).sum(dim, keepdim)


def variance(
    x: torch.Tensor,
    dims: list[int],
    keepdim: bool = False,
    correction: int = 1,
    rounded: Function = lambda mean: mean,
) -> torch.Tensor:
    """`var` in two passes: the mean, then the squares of what differs from it. `rounded`: what becomes of the mean."""
    wide = x.float() if x.dtype != torch.float64 else x
    squares = (wide - rounded(wide.mean(dims, keepdim=True))).square().sum(dims, keepdim)
    return (squares / (x.numel() / max(squares.numel(), 1) - correction)).to(x.dtype)


def deviation(
    x: torch.Tensor, dims: list[int], keepdim: bool = False, **options: Any
) -> torch.Tensor:
    """`std`, of `variance`. Where it is nothing but roundings, of equal numbers, its gradient may be anything: here nan."""
    out = variance(x, dims, keepdim, **options).sqrt()
    if out.requires_grad:
        nothing = out.detach() <= 64 * torch.finfo(x.dtype).eps * x.detach().abs().amax(
            dims, keepdim
        )
        out.register_hook(lambda gradient: gradient.masked_fill(nothing, math.nan))
    return out


def normalized(x: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
    """`batch_norm` that subtracts the mean before it multiplies."""
    shape = [1, -1] + [1] * (x.ndim - 2)
    wide = x.float() if x.dtype != torch.float64 else x
    y = F.batch_norm(wide, None, None, training=True)
    y = y if weight is None else y * weight.to(wide.dtype).view(shape)
    return (y if bias is None else y + bias.to(wide.dtype).view(shape)).to(x.dtype)


def layer_normed(
    x: torch.Tensor,
    shape: list[int],
    weight: Any = None,
    bias: Any = None,
    rounded: Function = lambda mean: mean,
) -> torch.Tensor:
    """`layer_norm` in two passes, whose sums do not overflow; only the squares may. `rounded`: what becomes of the mean."""
    dims = list(range(-len(shape), 0))
    wide = x.float() if x.dtype != torch.float64 else x
    centred = wide - rounded(wide.double().mean(dims, keepdim=True).to(wide.dtype))
    y = centred * (centred.square().mean(dims, keepdim=True) + 1e-5).rsqrt()
    y = y if weight is None else y * weight.to(wide.dtype)
    return (y if bias is None else y + bias.to(wide.dtype)).to(x.dtype)


CANCELS = re.compile(r" [-+] |mean|sum|var|std|norm|lerp|add|sub|sdpa|attention|mm|matmul|linear")
"""Lines in which numbers may cancel."""


def with_nothing_left(program: Any) -> Function:
    """Where numbers cancel, what is at most some roundings of the largest of them is 0."""

    def run(*given: torch.Tensor) -> tuple[Any, ...]:
        ns: dict[str, Any] = {
            "torch": torch,
            "F": F,
            **{i.name: t for i, t in zip(program.inputs, given, strict=True)},
        }
        for line in program.lines:
            value = eval(line.text, dict(ns))
            if (
                line.rough
                and CANCELS.search(line.text)
                and value.dtype.is_floating_point
                and not shown_twice(value)
            ):
                read = [
                    v
                    for n, v in ns.items()
                    if isinstance(v, torch.Tensor) and re.search(rf"\b{n}\b", line.text)
                ]
                sizes = [
                    float(v.detach().double().abs().nan_to_num(0, 0, 0).max())
                    for v in read
                    if v.numel()
                ]
                most = max(sizes, default=0.0)
                value.data.masked_fill_(
                    value.data.abs() <= 64 * torch.finfo(value.dtype).eps * most, 0
                )
            if line.target:
                ns[line.target] = value
        return tuple(ns[name] for name in program.outputs)

    return run


FORMULAS = {f.__name__: f for f in (product, normalized, variance, deviation, layer_normed)}


def with_strided_results(program: Any) -> Function:
    """Each result that is a view of an input is made of it by `as_strided`."""
    function = program.function()

    def run(*inputs: torch.Tensor) -> tuple[Any, ...]:
        of = {x.untyped_storage().data_ptr(): x for x in inputs}
        results = []
        for r in function(*inputs):
            base = None if any(r is x for x in inputs) else of.get(r.untyped_storage().data_ptr())
            alike = base is not None and base.dtype == r.dtype
            results.append(base.as_strided(r.shape, r.stride(), r.storage_offset()) if alike else r)
        return tuple(results)

    return run
