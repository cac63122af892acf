"""Arrays and numbers of NumPy in the interpreted program: what stands for them, and what operators do. (Functions: `numpy_functions.py`.)

In:  an `Array` or a `Number`, operands, an index.
Out: what NumPy would give: of constants NumPy itself, now; of data that only the graph knows operations of torch (`numpy_rules.py`),
     where these give the same. Anything else is `Unsupported`: the graph ends, and NumPy does it.

Python and NumPy call the operators below natively; `TorchRecorder` hears of the operations of torch in them.
In PyTorch: `torch/_numpy/_ndarray.py`, and `NumpyNdarrayVariable` in `torch/_dynamo/variables/tensor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import torch

from course_lib.capture.corners.numpy_rules import NUMPY_DTYPES, TORCH_DTYPES, UFUNCS, Elementwise
from course_lib.capture.shapes import SYMBOLIC, concrete
from course_lib.capture.sources import Unsupported
from course_lib.capture.values import CONSTANT_TYPES

MOST_CONSTANTS = 4096
"""Elements of an array of constants that a graph may hold."""
HINT = "use torch's function, or call it outside the compiled function"
INDICES = (int, slice, type(None), type(...), np.integer)


def refuse(what: str) -> NoReturn:
    raise Unsupported(what, HINT)


class Memory:
    """What an array of constants and its views share. `tensor`: the graph's tensor that has this memory, once there is one."""

    def __init__(self) -> None:
        self.tensor: torch.Tensor | None = None

    def check(self, writes: bool) -> None:
        """May it still be read, or written to, by NumPy?"""
        if self.tensor is not None and (writes or self.tensor._version):
            refuse(
                "changes an array of NumPy that shares its memory with a tensor and other arrays"
            )


# ---- operators ---------------------------------------------------------------------------------------


def binary(name: str) -> Callable[[Any, Any], Any]:
    """`__add__`: `self + other`"""

    def operate(self: Any, other: Any) -> Any:
        return of_two(name, self, other)

    return operate


def reflected(name: str) -> Callable[[Any, Any], Any]:
    """`__radd__`: `other + self`"""

    def operate(self: Any, other: Any) -> Any:
        return of_two(name, other, self)

    return operate


def of_two(name: str, left: Any, right: Any) -> Any:
    """An operator of two operands, one of them an array or a number of NumPy's. torch decides where the other is a tensor."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return beside_tensor(name, left, right)
    return compute(getattr(np, name), [left, right])


def beside_tensor(name: str, left: Any, right: Any) -> Any:
    """`tensor + number`, or `number + tensor`, as torch does it."""
    rule = UFUNCS.get(name)
    if rule is None or not rule.takes_numbers:
        refuse(f"calls numpy.{name} of a tensor and an array")
    if isinstance(left, torch.Tensor):
        return rule.function(left, argument(right, left))
    return rule.function(argument(left, right), right)


def argument(value: Any, tensor: torch.Tensor | None = None) -> Any:
    """What stands for an array or a number among the arguments of torch's function; `tensor`: arithmetic with this one."""
    if type(value) is Number:
        if value.symbol is not None:
            return value.symbol()
        # a tensor without dimensions does what a number would
        if tensor is not None and tensor.ndim and value.dtype.kind in kinds_below(tensor):
            return value.tensor
        if value.known is not None:
            return value.known().item()
    refuse("gives an array of NumPy to an operation on tensors")


def kinds_below(tensor: torch.Tensor) -> str:
    """The kinds of dtypes of numbers that do not change the dtype of this tensor."""
    if tensor.is_floating_point():
        return "iuf"
    if tensor.dtype not in NUMPY_DTYPES:
        return ""
    return "iu" if NUMPY_DTYPES[tensor.dtype].kind in "iu" else ""


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """`array += other`: the array's memory changes. (A number is another one afterwards.)"""

    def operate(self: Any, other: Any) -> Any:
        if type(self) is Number:
            return NotImplemented
        self.assign(..., compute(getattr(np, name), [self, other]), "same_kind")
        return self

    return operate


def unary(name: str) -> Callable[[Any], Any]:
    def operate(self: Any) -> Any:
        return compute(getattr(np, name), [self])

    return operate


BINARY_UFUNCS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
"""Python's operators that have a form for each side, and one in place."""
COMPARISON_UFUNCS = {
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
UNARY_UFUNCS = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


class LikeNumPy:
    """What arrays and numbers have in common: to Python they are what NumPy's own are."""

    __slots__ = ()

    dtype: np.dtype[Any]

    def numpy_class(self) -> type:
        """What `type(value)` gives."""
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__slots__:
            refuse(f"changes the attribute '{name}' of an array of NumPy")
        object.__setattr__(self, name, value)

    def in_python(self) -> Any:
        """The value, for Python. Raises Unsupported where only the data knows it."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return bool(self.in_python())

    def __int__(self) -> int:
        return int(self.in_python())

    def __index__(self) -> int:
        return self.in_python().__index__()

    def __float__(self) -> float:
        return float(self.in_python())

    def __complex__(self) -> complex:
        return complex(self.in_python())

    def __hash__(self) -> int:
        return hash(self.in_python())

    def __repr__(self) -> str:
        return repr(self.in_python())

    def __str__(self) -> str:
        return str(self.in_python())

    def __format__(self, spec: str) -> str:
        return format(self.in_python(), spec)

    def __round__(self, *digits: int) -> Any:
        return round(self.in_python(), *digits)

    def __divmod__(self, other: Any) -> Any:
        return compute(np.floor_divide, [self, other]), compute(np.remainder, [self, other])

    def __contains__(self, item: Any) -> bool:
        return item in self.in_python()

    def __array__(self, *options: Any, **more: Any) -> Any:
        refuse("gives an array of NumPy to a function that capture does not know")

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse("copies or pickles an array of NumPy")


for sign, function_name in BINARY_UFUNCS.items():
    setattr(LikeNumPy, f"__{sign}__", binary(function_name))
    setattr(LikeNumPy, f"__r{sign}__", reflected(function_name))
    setattr(LikeNumPy, f"__i{sign}__", in_place(function_name))
for sign, function_name in COMPARISON_UFUNCS.items():
    setattr(LikeNumPy, f"__{sign}__", binary(function_name))
for sign, function_name in UNARY_UFUNCS.items():
    setattr(LikeNumPy, f"__{sign}__", unary(function_name))


class Number(LikeNumPy):
    """Stands for a number of NumPy's, as `numpy.float32(2)`, whose value is no constant of the graph.

    `known`: gives the value, and leaves a guard that it is this one; None: only the data knows it.
    `compute`: gives a tensor without dimensions; it is asked once, when an operation needs it.
    `symbol`: of a number from outside, what stands for it among the arguments of torch's functions.
    """

    __slots__ = ("_tensor", "compute", "dtype", "known", "symbol")

    def __init__(
        self,
        dtype: np.dtype[Any],
        compute: Callable[[], torch.Tensor],
        known: Callable[[], Any] | None = None,
        symbol: Callable[[], Any] | None = None,
    ) -> None:
        self.dtype, self.compute, self.known, self.symbol = dtype, compute, known, symbol
        self._tensor = None

    def numpy_class(self) -> type:
        return self.dtype.type

    # what `isinstance` asks (capture itself does not: `classes.is_a`)
    __class__ = property(numpy_class)

    @property
    def tensor(self) -> torch.Tensor:
        if self._tensor is None:
            self._tensor = self.compute()
        return self._tensor

    def in_python(self) -> Any:
        if self.known is None:
            refuse("takes a number of NumPy, which depends on the data of a tensor, into Python")
        return self.known()


class Array(LikeNumPy):
    """Stands for a `numpy.ndarray`: one of constants, with which NumPy computes now, or one whose data the graph knows."""

    __slots__ = ("constant", "memory", "tensor")

    def __init__(
        self,
        constant: np.ndarray[Any, Any] | None = None,
        tensor: torch.Tensor | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.constant, self.tensor = constant, tensor
        self.memory = memory or Memory()

    def numpy_class(self) -> type:
        return np.ndarray

    # what `isinstance` asks (capture itself does not: `classes.is_a`)
    __class__ = property(numpy_class)

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        if self.constant is not None:
            return self.constant.dtype
        assert self.tensor is not None
        return NUMPY_DTYPES[self.tensor.dtype]

    @property
    def shape(self) -> tuple[Any, ...]:
        if self.constant is not None:
            return self.constant.shape
        assert self.tensor is not None
        return tuple(self.tensor.shape)

    def in_python(self) -> Any:
        if self.constant is None:
            refuse("takes the data of an array of NumPy into Python")
        self.memory.check(writes=False)
        return self.constant

    def as_tensor(self) -> torch.Tensor:
        """Its data in the graph, as they are now: nobody may write to this tensor."""
        if self.tensor is None:
            return tensor_of(self.in_python())
        return self.tensor

    def shared(self) -> torch.Tensor:
        """The tensor that has the array's memory. From here on the graph knows its data."""
        if self.tensor is None:
            self.memory.check(writes=True)
            self.tensor = self.memory.tensor = tensor_of(self.in_python())
            self.constant = None
        return self.tensor

    # ---- items

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        for at in range(len(self)):
            yield self[at]

    def __getitem__(self, index: Any) -> Any:
        if self.constant is not None and is_constant(index):
            return given(self.in_python()[value_of(index)], [self])
        tensor = self.as_tensor()
        found = tensor[index_in_torch(index)]
        parts = index if type(index) is tuple else (index,)
        plain = all(isinstance(part, (int, np.integer)) for part in parts)
        if plain and len(parts) == tensor.ndim:
            element = found.clone()  # a number does not change with the array
            return Number(NUMPY_DTYPES[element.dtype], lambda: element)
        return Array(tensor=found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.assign(index, value, "unsafe")

    def assign(self, index: Any, value: Any, casting: Any) -> None:
        """`array[index] = value`, if NumPy casts so."""
        if self.constant is not None and is_constant((index, value)):
            self.memory.check(writes=True)
            if casting == "unsafe":
                self.constant[value_of(index)] = value_of(value)
            else:
                np.copyto(self.constant, value_of(value), casting=casting)
            return
        dtype = dtype_of(value)
        if isinstance(dtype, np.dtype) and not np.can_cast(dtype, self.dtype, casting):
            refuse(f"writes {dtype} numbers to an array of {self.dtype}")
        if "c" in kinds_of([value]) and self.dtype.kind != "c":
            refuse("writes complex numbers to an array of real ones")
        self.shared()[index_in_torch(index)] = operand(value, self.dtype)


# ---- what is known now -------------------------------------------------------------------------------


def is_constant(value: Any) -> bool:
    """Is this a number, a text, a dtype, an array of constants, or a nest of such?"""
    if type(value) in (tuple, list, torch.Size):
        return all(map(is_constant, value))
    if type(value) is slice:
        return is_constant((value.start, value.stop, value.step))
    if type(value) is dict:
        return is_constant([*value, *value.values()])
    if type(value) is Array:
        return value.constant is not None
    if type(value) is Number:  # (`isinstance` says that it is one of NumPy's)
        return False
    plain = type(value) in CONSTANT_TYPES or type(value) in SYMBOLIC or type(value) is range
    return plain or isinstance(value, (np.generic, np.dtype)) or names_dtype(value)


def names_dtype(value: Any) -> bool:
    """`float`, `numpy.float32`: a class for a dtype?"""
    return isinstance(value, type) and (
        value in (bool, int, float, complex) or issubclass(value, np.generic)
    )


def value_of(value: Any) -> Any:
    """With NumPy's own arrays in place of what stands for them."""
    if type(value) in (tuple, list):
        return type(value)(map(value_of, value))
    if type(value) is slice:
        return slice(value_of(value.start), value_of(value.stop), value_of(value.step))
    if type(value) is dict:
        return {key: value_of(item) for key, item in value.items()}
    return value.in_python() if type(value) in (Array, Number) else concrete(value)


def run_now(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy, of constants. What would warn at each call is not run now."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            result = function(*value_of(list(args)), **value_of(kwargs))
    except FloatingPointError as error:
        refuse(f"calls numpy.{name_of(function)}, which warns: {error}")
    return given(result, [*args, *kwargs.values()])


def given(result: Any, args: Any) -> Any:
    """What stands for a result of NumPy's. A view shares the memory of an argument."""
    if type(result) is np.ndarray:
        arrays = [arg for arg in args if type(arg) is Array and arg.constant is not None]
        sharing = (a.memory for a in arrays if np.may_share_memory(a.constant, result))
        return Array(result, memory=next(sharing, None))
    if type(result) in (tuple, list):
        return type(result)(given(part, args) for part in result)
    constant = type(result) in CONSTANT_TYPES or isinstance(result, (np.generic, np.dtype))
    if constant or type(result) in (np.finfo, np.iinfo):
        return result
    refuse(f"makes a {type(result).__name__} of NumPy's")


def name_of(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor of these constants, made anew at each call."""
    if array.dtype not in TORCH_DTYPES or array.size > MOST_CONSTANTS:
        refuse(f"takes an array of {array.size} numbers of {array.dtype} into the graph")
    made = torch.tensor(array.tolist(), dtype=TORCH_DTYPES[array.dtype])
    return made if array.size else made.reshape(array.shape)


# ---- what the graph computes -------------------------------------------------------------------------


def dtype_of(value: Any) -> Any:
    """The dtype of an operand; of a number of Python's its class, which gives way to any dtype of its kind."""
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
        return tensor if tensor.dtype == wanted else tensor.to(wanted)

    try:
        with np.errstate(over="raise", invalid="raise"):
            number = np.asarray(value_of(value), dtype)
    except (OverflowError, FloatingPointError) as error:
        refuse(f"gives a number that {dtype} cannot hold: {error}")
    if number.ndim:
        return tensor_of(number)
    return number.item() if as_number else torch.full((), number.item(), dtype=wanted)


def compute(ufunc: Any, operands: list[Any]) -> Any:
    """`ufunc(*operands)`: of constants now, of numbers when the result is needed, of arrays in the graph."""
    if is_constant(operands):
        return run_now(ufunc, operands, {})

    asked = UfuncCall(ufunc, operands)
    if not any(type(value) is Array for value in operands):
        return asked.of_numbers()
    return number_or_array(asked.in_graph())


class UfuncCall:
    """A call of a ufunc with some operand that is no constant.

    `dtypes`: in which it computes, one for each operand; `result`: the dtype of what it gives. NumPy decides these, and
    raises where there is none. `rule`: torch's function that gives the same in these dtypes; None if there is none.
    """

    def __init__(self, ufunc: Any, operands: list[Any]) -> None:
        self.ufunc, self.operands = ufunc, operands
        *self.dtypes, self.result = ufunc.resolve_dtypes((*map(dtype_of, operands), None))
        self.rule = self.find_rule()

    def find_rule(self) -> Elementwise | None:
        rule = UFUNCS.get(self.ufunc.__name__)
        if rule is None or self.ufunc.nout != 1 or TORCH_DTYPES.get(self.result) is None:
            return None

        kinds = {dtype.kind for dtype in self.dtypes}
        return rule if kinds <= set(rule.kinds) or self.is_power_of_integers() else None

    def is_power_of_integers(self) -> bool:
        """Is this `integers ** n`, for a constant n that is not negative? (For a negative one NumPy raises.)"""
        exponent = self.operands[-1]
        return self.ufunc is np.power and type(exponent) is int and exponent >= 0

    def of_numbers(self) -> Any:
        """The result, where all operands are numbers: torch computes it when an operation needs it."""
        numbers = [value for value in self.operands if type(value) is Number]
        is_known = all(number.known is not None for number in numbers)
        if self.rule is not None:
            return Number(self.result, self.in_graph, self.now if is_known else None)
        if is_known:
            return self.now()
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
    if not any(isinstance(value, torch.Tensor) for value in casted):
        casted[0] = operand(operands[0], loop[0], as_number=False)
    return checked(rule.function(*casted), result)


def checked(tensor: torch.Tensor, dtype: np.dtype[Any]) -> torch.Tensor:
    """See that torch's result has the dtype of NumPy's."""
    if tensor.dtype != TORCH_DTYPES.get(dtype):
        refuse(f"calls a function whose result is {dtype} in NumPy and {tensor.dtype} in torch")
    return tensor


def number_or_array(tensor: torch.Tensor) -> Any:
    """NumPy gives a number where a result has no dimensions."""
    if tensor.ndim:
        return Array(tensor=tensor)
    return Number(NUMPY_DTYPES[tensor.dtype], lambda: tensor)


def index_in_torch(index: Any) -> Any:
    """An index of NumPy's for a tensor."""
    if type(index) is tuple:
        return tuple(map(index_in_torch, index))
    if isinstance(index, (bool, np.bool_)):
        refuse("looks up an array by a single bool")
    if type(index) in (Array, list):
        return index_by_array(index)
    if type(index) is Number:
        return index.in_python().item()
    if isinstance(index, np.integer):
        return index.item()
    if not isinstance(index, (*INDICES, *SYMBOLIC)):
        refuse(f"looks up an array by a {type(index).__name__}")

    if type(index) is slice:
        step = value_of(index.step)
        if step is not None and step < 0:
            refuse("takes a slice backwards, which no tensor has")
    return index


def index_by_array(index: Any) -> torch.Tensor:
    """An array, or a list, of numbers or of bools, as an index."""
    array = given(np.asarray(value_of(index)), []) if type(index) is list else index
    if array.dtype.kind not in "bi" or not array.shape:
        refuse(f"looks up an array by one of {array.dtype}")
    tensor: torch.Tensor = array.as_tensor()
    return tensor
