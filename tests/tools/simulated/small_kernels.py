"""Small kernels that run in the simulator and on a GPU: text, inputs, and how their results are compared.

In:  nothing that is not in this folder: the same file runs on a machine with a GPU, without `course_lib`.
Out: `Program`s; `run(program, device)` gives the bytes of the result.

Inputs come from NumPy's `RandomState`, whose numbers are the same in every version.
"""

from __future__ import annotations

import linecache
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

TORCH = {
    "bool": torch.bool, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
    "uint8": torch.uint8, "uint32": torch.uint32, "float16": torch.float16, "bfloat16": torch.bfloat16,
    "float32": torch.float32, "float64": torch.float64, "float8e4nv": torch.float8_e4m3fn, "float8e5": torch.float8_e5m2,
}  # fmt: skip
"""Triton's name of a dtype → torch's."""

SPECIAL = [
    float("nan"),
    float("inf"),
    float("-inf"),
    0.0,
    -0.0,
    1e-40,
    -3e38,
    3e38,
    65504.0,
    0.5,
    -1.5,
    2.5,
    448.0,
    1e-3,
    -7.0,
    1.0,
]


@dataclass(frozen=True)
class Input:
    """One tensor: `kind` says what stands in it."""

    dtype: str
    size: int
    # normal, nice (multiples of an eighth), positive, special, whole (small integers), any (all bits), zeros, unit (0 to 1)
    kind: str = "normal"


@dataclass(frozen=True)
class Program:
    """A kernel `kernel(inputs..., O, n, N)` with its launch."""

    name: str
    body: str
    inputs: dict[str, Input]
    output: Input
    lanes: int = 64
    n: int = 0
    grid: tuple[int, ...] = (1,)
    helpers: str = ""
    # How far a float may be from the GPU's, in units of its last place at the result's largest number; 0: not at all
    ulps: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def source(self) -> str:
        parameters = ", ".join([*self.inputs, "O", "n", "N: tl.constexpr"])
        lines = "\n".join(
            f"    {line}" if line else "" for line in self.body.strip("\n").splitlines()
        )
        return f"{self.helpers}@triton.jit\ndef kernel({parameters}):\n{lines}\n"

    def kernel(self) -> Any:
        """The function, with its text where `inspect` looks for it."""
        import triton
        import triton.language as tl
        from triton.language.extra import libdevice

        filename = f"<simulated {self.name} {zlib.crc32(self.source.encode()):08x}>"
        text = self.source
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        names = {
            "triton": triton,
            "tl": tl,
            "libdevice": libdevice,
            "__name__": "simulated_programs",
        }
        exec(compile(text, filename, "exec"), names)
        return names["kernel"]


def values(given: Input, rng: np.random.RandomState) -> torch.Tensor:
    """What stands in an input, on the CPU."""
    dtype, size = TORCH[given.dtype], given.size
    if given.kind == "zeros":
        return torch.zeros(size, dtype=dtype)
    if given.kind == "any":
        raw = rng.randint(0, 256, size * dtype.itemsize).astype(np.uint8)
        return (
            torch.from_numpy(raw).view(dtype)
            if dtype != torch.bool
            else torch.from_numpy(raw % 2 == 1)
        )
    if not dtype.is_floating_point:
        low = 0 if given.dtype in ("uint8", "uint32", "bool") else -100
        high = {"whole": 7, "bool": 2}.get(given.kind, 2 if given.dtype == "bool" else 101)
        low = max(low, -6) if given.kind == "whole" else low
        return torch.from_numpy(rng.randint(low, high, size).astype(np.int64)).to(dtype)

    made = {
        "normal": lambda: rng.standard_normal(size) * 3,
        "nice": lambda: rng.randint(-64, 65, size) / 8,
        "positive": lambda: np.abs(rng.standard_normal(size)) * 3 + 0.01,
        "unit": lambda: rng.random_sample(size) * 1.98 - 0.99,
        "whole": lambda: rng.randint(-6, 7, size).astype(np.float64),
        "special": lambda: np.where(
            rng.randint(0, 2, size) == 1, rng.choice(SPECIAL, size), rng.standard_normal(size) * 3
        ),
    }[given.kind]()
    # Through float32, so that every machine rounds once and the same way
    tensor = torch.from_numpy(np.asarray(made, np.float64))
    return tensor if dtype == torch.float64 else tensor.float().to(dtype)


def run(program: Program, device: str) -> bytes:
    """The bytes of `O` after one launch. Raises what the launch raises."""
    rng = np.random.RandomState(zlib.crc32(f"{program.name} {program.seed}".encode()))
    tensors = [values(given, rng).to(device) for given in program.inputs.values()]
    out = values(program.output, rng).to(device)
    program.kernel()[program.grid](
        *tensors, out, program.n or program.lanes, program.lanes, **program.options
    )
    return out.cpu().contiguous().view(torch.uint8).numpy().tobytes()


def array(program: Program, raw: bytes) -> np.ndarray:
    """A result as float64 or as integers."""
    dtype = TORCH[program.output.dtype]
    tensor = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(dtype)
    if dtype == torch.bool or dtype == torch.uint32:
        tensor = tensor.to(torch.int64)
    return tensor.double().numpy() if dtype.is_floating_point else tensor.numpy()


@dataclass(frozen=True)
class Comparison:
    """`same`, `rounding` (by `ulps`), or `different` (at `place`)."""

    kind: str
    ulps: float = 0.0
    place: int = -1

    def __str__(self) -> str:
        if self.kind == "rounding":
            return f"rounding, {self.ulps:.3g} ulp"
        return self.kind if self.kind == "same" else f"different at {self.place}"


EPSILON = {
    "float8e4nv": 2.0**-3,
    "float8e5": 2.0**-2,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}


def compare(program: Program, got: bytes, recorded: bytes) -> Comparison:
    """One ulp is that of the result's own number, or of the largest one where numbers cancel (`reductions` and `dot` only)."""
    if got == recorded:
        return Comparison("same")
    a, b = array(program, got), array(program, recorded)
    if a.dtype.kind != "f":
        return Comparison("different", place=int(np.flatnonzero(a != b)[0]))

    both_nan = np.isnan(a) & np.isnan(b)
    equal = (a == b) & (np.signbit(a) == np.signbit(b)) | both_nan
    if equal.all():
        return Comparison("same")
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        unit = EPSILON[program.output.dtype] * np.maximum(np.abs(a), np.abs(b))
        error = np.where(
            equal, 0.0, np.where(finite, np.abs(a - b) / np.maximum(unit, 1e-300), np.inf)
        )
    # Below the smallest normal float32 a GPU's fast functions give 0
    tiny = finite & (np.maximum(np.abs(a), np.abs(b)) < 2.0**-126)
    error = np.where(tiny, np.minimum(error, 1.0), error)
    worst = float(error.max())
    if worst <= program.ulps:
        return Comparison("rounding", worst)
    return Comparison("different", worst, int(np.argmax(error)))
