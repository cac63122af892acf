"""The variables that a reduction gathers its result in, as C++.

In:  a reduction step (sum, prod, max, min, any, all, argmax, argmin).
Out: its variables, how one value is taken in, how two halves are put together, and the result.

A `max` needs two variables: `a > b ? a : b` loses NaN, so a flag remembers it. Both are plain reductions to OpenMP, and so
the loop stays vectorised.

In PyTorch: `torch/_inductor/codegen/cpp.py`, `reduction_init`, `reduction_combine`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
    def compares(self) -> bool:
        return self.kind in ("max", "min")

    @property
    def in_order(self) -> bool:
        """True if the first of equals wins, so that columns must come one after the other."""
        return self.kind.startswith("arg")

    @property
    def sums_floats(self) -> bool:
        return self.kind == "sum" and computed_as(self.dtype) == "float"

    @property
    def has_nan(self) -> bool:
        return self.compares and self.dtype.is_floating_point

    def variables(self) -> list[tuple[str, str, str]]:
        """(type, name, first value) of each."""
        if self.kind in ONE_VARIABLE:
            ctype = "int" if self.dtype == torch.bool else computed_as(self.dtype)  # bool would not be vectorised
            return [(ctype, self.name, ONE_VARIABLE[self.kind][0])]
        result = [
            (computed_as(self.dtype), self.name, number(extreme(self.dtype, lowest="max" in self.kind), self.dtype))
        ]
        if self.has_nan:
            result.append(("int", f"{self.name}_nan", "0"))
        if self.in_order:
            result.append(("int64_t", f"{self.name}_at", "0"))
        return result

    def clauses(self) -> list[str]:
        """OpenMP's reduction clauses."""
        operator = ONE_VARIABLE[self.kind][1][0] if self.kind in ONE_VARIABLE else self.kind
        return [f"reduction({operator}: {self.name})"] + ([f"reduction(|: {self.name}_nan)"] if self.has_nan else [])

    def take(self, value: str, lane: str) -> list[str]:
        """Lines that take in one value (a name, if it is needed more than once)."""
        mine, better = self.name + lane, "<" if "min" in self.kind else ">"
        if self.kind in ONE_VARIABLE:
            return [f"{mine} {ONE_VARIABLE[self.kind][1]} {value};"]
        if self.in_order:
            nan = f" || ({value} != {value} && {mine} == {mine})" if self.dtype.is_floating_point else ""
            where = f"{self.name}_at{lane}"
            return [f"if ({value} {better} {mine}{nan}) {{ {mine} = {value}; {where} = {self.at}; }}"]
        lines = [f"{mine} = {value} {better} {mine} ? {value} : {mine};"]
        return lines + ([f"{self.name}_nan{lane} |= {value} != {value};"] if self.has_nan else [])

    def combine(self, part: Accumulator, lane: str) -> list[str]:
        """Lines that take in what another accumulator gathered."""
        lines = replace(self, dtype=torch.int64 if self.compares else self.dtype).take(part.name + lane, lane)
        return lines + ([f"{self.name}_nan{lane} |= {part.name}_nan{lane};"] if self.has_nan else [])

    def result(self, lane: str) -> str:
        if self.in_order:
            return f"{self.name}_at{lane}"
        return f"({self.name}_nan{lane} ? NAN : {self.name}{lane})" if self.has_nan else self.name + lane
