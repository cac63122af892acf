"""The variables that a reduction gathers its result in, as C++.

In:  a reduction step (sum, prod, max, min, any, all, argmax, argmin).
Out: its variables, how one value is taken in, how two halves are put together, and the result.

A `max` needs two variables: `a > b ? a : b` loses NaN, so a flag remembers it. Both are plain reductions to OpenMP, and so
the loop stays vectorised.

In PyTorch: `torch/_inductor/codegen/cpp.py`, `reduction_init`, `reduction_combine`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from course_lib.codegen.cpp_ops import computed_as, number
from course_lib.codegen.printer import extreme
from course_lib.lowering.ir import Reduction

ONE_VARIABLE = {"sum": ("0", "+="), "prod": ("1", "*="), "any": ("0", "|="), "all": ("1", "&=")}


@dataclass(frozen=True)
class Accumulator:
    """`name` and, for some kinds, `name_nan` or `name_at`."""

    name: str
    kind: str
    dtype: torch.dtype
    at: str = ""
    """For argmax and argmin: the number of the current column."""

    @staticmethod
    def of(node: Reduction, value_dtype: torch.dtype, name: str, at: str) -> Accumulator:
        """What `node` needs, if its values have `value_dtype`."""
        kind = node.kind
        if kind in ("max", "min") and value_dtype == torch.bool:
            kind = "any" if kind == "max" else "all"
        sums = kind in ("sum", "prod")
        dtype = torch.bool if kind in ("any", "all") else node.accumulate if sums else value_dtype
        return Accumulator(name, kind, dtype, at)

    @property
    def is_plain(self) -> bool:
        """True if one variable and one operator do it; else values are compared."""
        return self.kind in ONE_VARIABLE

    @property
    def in_order(self) -> bool:
        """True if the first of equals wins, so that columns must come one after the other."""
        return self.kind.startswith("arg")

    @property
    def sums_floats(self) -> bool:
        return self.kind == "sum" and computed_as(self.dtype) == "float"

    @property
    def has_nan(self) -> bool:
        return self.kind in ("max", "min") and self.dtype.is_floating_point

    def variables(self) -> list[tuple[str, str, str]]:
        """(type, name, first value) of each."""
        if self.is_plain:
            ctype = "int" if self.dtype == torch.bool else computed_as(self.dtype)  # bool would not be vectorised
            return [(ctype, self.name, ONE_VARIABLE[self.kind][0])]
        first = number(extreme(self.dtype, lowest="max" in self.kind), self.dtype)
        more = [("int", f"{self.name}_nan", "0")] if self.has_nan else []
        more += [("int64_t", f"{self.name}_at", "0")] if self.in_order else []
        return [(computed_as(self.dtype), self.name, first), *more]

    def clauses(self) -> list[str]:
        """OpenMP's reduction clauses."""
        operator = ONE_VARIABLE[self.kind][1][0] if self.is_plain else self.kind
        return [f"reduction({operator}: {self.name})"] + ([f"reduction(|: {self.name}_nan)"] if self.has_nan else [])

    def take(self, value: str, lane: str, is_nan: str = "") -> list[str]:
        """Lines that take in one value (a name, if it is needed more than once)."""
        mine, better, is_nan = self.name + lane, "<" if "min" in self.kind else ">", is_nan or f"{value} != {value}"
        if self.is_plain:
            return [f"{mine} {ONE_VARIABLE[self.kind][1]} {value};"]
        if self.in_order:
            nan = f" || ({is_nan} && {mine} == {mine})" if self.dtype.is_floating_point else ""
            return [f"if ({value} {better} {mine}{nan}) {{ {mine} = {value}; {self.name}_at{lane} = {self.at}; }}"]
        lines = [f"{mine} = {value} {better} {mine} ? {value} : {mine};"]
        return lines + ([f"{self.name}_nan{lane} |= {is_nan};"] if self.has_nan else [])

    def combine(self, part: Accumulator, lane: str) -> list[str]:
        """Lines that take in what another accumulator gathered."""
        return self.take(part.name + lane, lane, f"{part.name}_nan{lane}")

    def result(self, lane: str) -> str:
        if self.in_order:
            return f"{self.name}_at{lane}"
        return f"({self.name}_nan{lane} ? NAN : {self.name}{lane})" if self.has_nan else self.name + lane
