"""A ufunc (`np.add`, `np.exp`) of operands some of which only the graph knows.

In:  the ufunc and its operands.
Out: an `Array` or a `Number`. NumPy decides the dtypes; torch's function computes in them, if it
     gives the same there (`numpy_rules.UFUNCS`). Anything else is `Unsupported`: the graph ends,
     and NumPy does it.

In PyTorch: `torch/_numpy/_ufuncs.py`.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import torch

from course_lib.capture.corners.arrays import Array, Number, number_or_array, refuse, tensor_of
from course_lib.capture.corners.numpy_constants import is_constant, run_now, value_of
from course_lib.capture.corners.numpy_rules import TORCH_DTYPES, UFUNCS, Elementwise
from course_lib.capture.symbolic_numbers import SYMBOLIC


def compute(ufunc: Any, operands: list[Any]) -> Any:
    """`ufunc(*operands)`: of constants now, of numbers when the result is needed, of arrays in the
    graph."""
    if is_constant(operands):
        return run_now(ufunc, operands, {})

    call = UfuncCall(ufunc, operands)
    if not any(type(value) is Array for value in operands):
        return call.of_numbers()
    return number_or_array(call.in_graph())


class UfuncCall:
    """A call of a ufunc with some operand that is no constant.

    `dtypes`: in which it computes, one for each operand; `result`: the dtype of what it gives.
    NumPy decides these, and raises where there is none. `rule`: torch's function that gives the
    same in these dtypes; None if there is none.
    """

    def __init__(self, ufunc: Any, operands: list[Any]) -> None:
        self.ufunc, self.operands = ufunc, operands
        # The None at the end: there is no `out=`, NumPy decides about the result, too.
        *self.dtypes, self.result = ufunc.resolve_dtypes((*map(dtype_of, operands), None))
        self.rule = self.find_rule()

    def find_rule(self) -> Elementwise | None:
        """torch's function that gives the same in these dtypes; None if there is none."""
        rule = UFUNCS.get(self.ufunc.__name__)
        if rule is None or self.ufunc.nout != 1 or TORCH_DTYPES.get(self.result) is None:
            return None

        # The rule of `power` holds for floats. Of integers torch gives the same, where NumPy does
        # not raise.
        kinds = {dtype.kind for dtype in self.dtypes}
        if kinds <= set(rule.kinds) or self.is_power_of_integers():
            return rule
        return None

    def is_power_of_integers(self) -> bool:
        """True for `integers ** n`, where n is a constant and not negative. (NumPy raises for a
        negative n.)"""
        exponent = self.operands[-1]
        return self.ufunc is np.power and type(exponent) is int and exponent >= 0

    def of_numbers(self) -> Any:
        """The result, where all operands are numbers: torch computes it when an operation needs
        it."""
        numbers = [value for value in self.operands if type(value) is Number]
        is_known = all(number.known is not None for number in numbers)
        now = self.now if is_known else None

        if self.rule is not None:
            return Number(self.result, self.in_graph, now)
        if now is not None:
            return now()
        self.refuse()

    def now(self) -> Any:
        """What NumPy gives for the values of the numbers; each leaves a guard."""
        return run_now(self.ufunc, self.operands, {})

    def in_graph(self) -> torch.Tensor:
        """What torch gives."""
        if self.rule is None:
            self.refuse()
        return elementwise(self.rule, self.operands, self.dtypes, self.result)

    def refuse(self) -> NoReturn:
        name, dtype = self.ufunc.__name__, self.dtypes[0]
        refuse(f"calls numpy.{name} in {dtype}, where torch's result may differ")


def elementwise(
    rule: Elementwise, operands: list[Any], loop: list[Any], result: np.dtype[Any]
) -> torch.Tensor:
    """Operands in the dtypes of NumPy's loop, then torch's function."""
    casted = [
        operand(value, dtype, rule.takes_numbers)
        for value, dtype in zip(operands, loop, strict=True)
    ]

    # torch's function wants at least one tensor.
    if not any(isinstance(value, torch.Tensor) for value in casted):
        casted[0] = operand(operands[0], loop[0], as_number=False)
    return checked(rule.function(*casted), result)


def checked(tensor: torch.Tensor, dtype: np.dtype[Any]) -> torch.Tensor:
    """See that torch's result has the dtype of NumPy's."""
    if tensor.dtype != TORCH_DTYPES.get(dtype):
        refuse(f"calls a function whose result is {dtype} in NumPy and {tensor.dtype} in torch")
    return tensor


# ---- operands


def dtype_of(value: Any) -> Any:
    """The dtype of an operand.

    Of a number of Python's: its class, which gives way to any dtype of its kind."""
    if type(value) in SYMBOLIC:
        return SYMBOLIC[type(value)]
    if type(value) in (int, float, complex):
        return type(value)
    if type(value) is bool:
        return np.dtype(bool)
    if type(value) in (Array, Number) or isinstance(value, np.generic):
        return value.dtype
    if type(value) in (list, tuple) and is_constant(value):
        return np.asarray(value_of(value)).dtype
    refuse(f"calls a function of NumPy with a {type(value).__name__}")


def kinds_of(values: Any) -> set[str]:
    """The kinds of dtypes."""
    return {np.dtype(dtype_of(value)).kind for value in values}


def operand(value: Any, dtype: np.dtype[Any], as_number: bool = True) -> Any:
    """An operand in the dtype in which NumPy computes: a tensor, or a number of Python's."""
    wanted = TORCH_DTYPES.get(dtype)
    if wanted is None:
        refuse(f"computes in {dtype}, which torch has not")
    if type(value) in (Array, Number):
        tensor: torch.Tensor = value.as_tensor() if type(value) is Array else value.tensor
        if tensor.dtype == wanted:
            return tensor
        return tensor.to(wanted)

    try:
        with np.errstate(over="raise", invalid="raise"):
            number = np.asarray(value_of(value), dtype)
    except (OverflowError, FloatingPointError) as error:
        refuse(f"gives a number that {dtype} cannot hold: {error}")
    if number.ndim:
        return tensor_of(number)
    if as_number:
        return number.item()
    return torch.full((), number.item(), dtype=wanted)
