"""The variables in which a C++ loop gathers the result of a reduction.

In:  a kind of reduction (`lowering.reduction_kinds`) and the dtype to gather it in.
Out: the variables with their first values, the lines that take a value in, and the result as text.

A `max` needs two variables: `a > b ? a : b` loses NaN, so a flag remembers it; for OpenMP both are
plain reductions. An `argmax` needs the best value and its place.
In PyTorch: `torch/_inductor/codegen/cpp.py`, `reduction_init` and `reduction_combine`.
"""

from dataclasses import dataclass

import torch

from course_lib.codegen.cpp_ops import computed_as, number
from course_lib.lowering.reduction_kinds import ReductionKind


@dataclass(frozen=True)
class Variable:
    """A variable in C++. `openmp` is what a `reduction(...)` clause calls its kind."""

    ctype: str
    name: str
    first: str
    openmp: str


@dataclass(frozen=True)
class Accumulator:
    """What one reduction gathers in: the variable `name` and, for some kinds, `name_nan` or
    `name_at`."""

    name: str
    kind: ReductionKind
    dtype: torch.dtype
    # For argmax and argmin: the number of the current column, as source. The first of equal values
    # wins, so the columns must come in order
    at: str = ""
    # 0.0 and -0.0 are equal, and eager's maximum of them is one or the other. True if the last one
    # wins, False if the first one does
    last_of_equals: bool = False

    @property
    def has_nan(self) -> bool:
        """True if a flag must remember that there was a NaN."""
        return self.kind.gives_best and self.dtype.is_floating_point

    def variables(self) -> list[Variable]:
        """The variables in which it gathers: one, and perhaps a flag for NaN or a place."""
        first = self.kind.identity(self.dtype)
        if self.kind.has_operator:
            return [Variable(self.ctype, self.name, str(first), self.kind.operator)]

        best = Variable(self.ctype, self.name, number(first, self.dtype), self.kind.name)
        if self.has_nan:
            return [best, Variable("int", f"{self.name}_nan", "0", "|")]
        if self.at:
            return [best, Variable("int64_t", f"{self.name}_at", "0", "")]
        return [best]

    @property
    def ctype(self) -> str:
        """The type of the main variable.

        (A bool that is gathered by | or & would not be vectorised.)"""
        if self.kind.has_operator and self.dtype == torch.bool:
            return "int"
        return computed_as(self.dtype)

    def take(self, value: str, lane: str) -> list[str]:
        """Lines that take in one value (a name, if it is needed more than once).

        `lane`: "", or the index into an array."""
        variable = self.name + lane
        if self.kind.has_operator:
            return [f"{variable} {self.kind.operator}= {value};"]

        is_nan = f"{value} != {value}"
        better = f"{value} {self.kind.better} {variable}"
        if self.at:
            # The first NaN is better than any number.
            if self.dtype.is_floating_point:
                better += f" || ({is_nan} && {variable} == {variable})"
            place = f"{self.name}_at{lane} = {self.at};"
            return [f"if ({better}) {{ {variable} = {value}; {place} }}"]

        if self.last_of_equals and self.dtype.is_floating_point:
            # `>=` instead of `>` (or `<=` instead of `<`): an equal value takes the place, too.
            better = f"{value} {self.kind.better}= {variable}"
        lines = [f"{variable} = {better} ? {value} : {variable};"]
        if self.has_nan:
            lines.append(f"{self.name}_nan{lane} |= {is_nan};")
        return lines

    def result(self, lane: str) -> str:
        """What was gathered, as source."""
        if self.at:
            return f"{self.name}_at{lane}"
        if self.has_nan:
            return f"({self.name}_nan{lane} ? NAN : {self.name}{lane})"
        return self.name + lane


def clauses_of(accumulators: list[Accumulator]) -> list[str]:
    """What OpenMP must know so that threads, or lanes, may gather apart and combine at the end."""
    clauses = []
    for accumulator in accumulators:
        for variable in accumulator.variables():
            clauses.append(f"reduction({variable.openmp}: {variable.name})")
    return clauses
