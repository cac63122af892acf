"""The kinds of reduction: what each one combines, and how each language says it.

In:  the name of a kind: "sum", "argmax", ...
Out: its `ReductionKind`. `KINDS` is the table of all eight.
In PyTorch: `torch/_inductor/ir.py` (`REDUCTION_COMBINE_FN`, `Reduction.default_accumulator`) and,
for C++, `torch/_inductor/codegen/cpp.py` (`reduction_init`, `reduction_combine`).

There are three families:

    combined by an operator     sum, prod, any, all     `total = total + value`, and so on
    the best one                max, min                `value > total`: then `total = value`;
                                                        NaN is better than all
    where the best one is       argmax, argmin          as above, and the position is the result

A new kind of one of these families is one more row; `viz/evaluator.py` calls the method of NumPy's
arrays that has the kind's name. A kind that keeps more than one number (logsumexp: a maximum and a
sum) would be a fourth family. These ask which family a kind is of: `lowering/reductions.py`;
`groups.py`, `fitting.py`, `dependencies.py` and `split.py` of `scheduling/`; `plan.py`, `cpp.py`,
`accumulators.py` and `triton_reductions.py` of `codegen/`.
"""

from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class ReductionKind:
    """All that lowering, the scheduler, the printers and the evaluator need to know about one
    kind."""

    name: str
    """Also the method of a NumPy array that does it: `array.sum()`, `array.argmax()`."""

    operator: str = ""
    """How C++, OpenMP and Triton combine two values, "+".

    Empty where the better of two values stays."""

    better: Literal["", ">", "<"] = ""
    """The comparison that a value must win against the best one so far.

    Empty where an operator combines."""

    neutral: Literal[0, 1, None] = None
    """What an operator starts with: it changes nothing."""

    over_tile: str = ""
    """The function of Triton that combines a whole tile: `tl.sum`. ("prod" is a `tl.reduce`.)"""

    gives_place: bool = False
    """True if the result is the position of the best value, not the value."""

    is_logical: bool = False
    """True if it combines truth values.

    They are gathered as int, which vectorises where bool does not."""

    grows: bool = False
    """True if the result may not fit the dtype of the values: integers are gathered as int64."""

    on_bools: str = ""
    """The kind that gives the same for bools, and is cheaper there."""

    def __post_init__(self) -> None:
        """A kind is combined by an operator or finds the best, and never both."""
        if bool(self.operator) == bool(self.better):
            raise ValueError(
                f"the reduction '{self.name}' needs an operator (how two values are combined) or a comparison "
                "(which of two is better), and not both"
            )

    @property
    def has_operator(self) -> bool:
        """True for sum, prod, any, all."""
        return self.operator != ""

    @property
    def finds_best(self) -> bool:
        """True for max, min, argmax, argmin. Of no values there is no best one."""
        return self.better != ""

    @property
    def gives_best(self) -> bool:
        """True for max and min: the value itself is the result."""
        return self.finds_best and not self.gives_place

    def identity(self, dtype: torch.dtype) -> bool | int | float:
        """The value to start with: combined with any other, it gives that other."""
        if self.neutral is not None:
            return self.neutral
        if self.better == ">":
            return lowest(dtype)
        return highest(dtype)


def lowest(dtype: torch.dtype) -> bool | int | float:
    """The value of `dtype` that no other is below."""
    if dtype.is_floating_point:
        return float("-inf")
    if dtype == torch.bool:
        return False
    return torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> bool | int | float:
    """The value of `dtype` that no other is above."""
    if dtype.is_floating_point:
        return float("inf")
    if dtype == torch.bool:
        return True
    return torch.iinfo(dtype).max


SUM = ReductionKind("sum", operator="+", neutral=0, over_tile="sum", grows=True)
PROD = ReductionKind("prod", operator="*", neutral=1, over_tile="prod", grows=True)
ANY = ReductionKind("any", operator="|", neutral=0, over_tile="max", is_logical=True)
ALL = ReductionKind("all", operator="&", neutral=1, over_tile="min", is_logical=True)
MAX = ReductionKind("max", better=">", over_tile="max", on_bools="any")
MIN = ReductionKind("min", better="<", over_tile="min", on_bools="all")
ARGMAX = ReductionKind("argmax", better=">", over_tile="max", gives_place=True)
ARGMIN = ReductionKind("argmin", better="<", over_tile="min", gives_place=True)

KINDS = {kind.name: kind for kind in (SUM, PROD, ANY, ALL, MAX, MIN, ARGMAX, ARGMIN)}
"""Every kind, by its name: the name is what `Reduction.kind` holds."""


def kind_named(name: str) -> ReductionKind:
    """The kind with this name. Raises ValueError for one that is not in the table."""
    if name not in KINDS:
        known = ", ".join(KINDS)
        raise ValueError(f"there is no reduction '{name}': lowering/reduction_kinds.py has {known}")
    return KINDS[name]
