"""What stands for arrays and numbers of NumPy in the interpreted program.

In:  an array of constants, with which NumPy computes now; or a tensor of the graph that has the
     array's data.
Out: an `Array` or a `Number`, which are to Python what NumPy's own are. What operators and indices
     do with them is in `array_operators.py`.

In PyTorch: `torch/_numpy/_ndarray.py`, and `NumpyNdarrayVariable` in
`torch/_dynamo/variables/tensor.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import torch

from course_lib.capture.corners.numpy_rules import NUMPY_DTYPES, TORCH_DTYPES
from course_lib.capture.sources import Unsupported

MOST_CONSTANTS = 4096
"""Elements of an array of constants that a graph may hold: they stand in its code one by one."""
HINT = "use torch's function, or call it outside the compiled function"


def refuse(what: str) -> NoReturn:
    """End the graph here. `what` the program does, in the words of the message."""
    raise Unsupported(what, HINT)


class Memory:
    """The memory that an array of constants and its views share.

    `tensor`: the graph's tensor that has this memory, once there is one."""

    def __init__(self) -> None:
        self.tensor: torch.Tensor | None = None

    def check(self, writes: bool) -> None:
        """Raise Unsupported if the data that NumPy has may be out of date: the graph has written to
        the tensor with this memory. If `writes`, raise as soon as there is such a tensor: it would
        not see what NumPy writes."""
        if self.tensor is not None and (writes or self.tensor._version):
            refuse(
                "changes an array of NumPy that shares its memory with a tensor and other arrays"
            )


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
        """The value, for Python. Raises Unsupported where it is known only when the graph runs."""
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

    def __contains__(self, item: Any) -> bool:
        return item in self.in_python()

    def __array__(self, *options: Any, **more: Any) -> Any:
        refuse("gives an array of NumPy to a function that capture does not know")

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse("copies or pickles an array of NumPy")


class Number(LikeNumPy):
    """Stands for a number of NumPy's, as `numpy.float32(2)`, whose value is no constant of the
    graph.

    `known`: gives the value, and leaves a guard that it is this one; None if the value is known
    only when the graph runs.
    `compute`: gives a tensor without dimensions; it is called once, when an operation needs it.
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
        self.dtype = dtype
        self.compute = compute
        self.known = known
        self.symbol = symbol
        self._tensor = None

    def numpy_class(self) -> type:
        return self.dtype.type

    # What `isinstance` asks. (Capture itself does not: `classes.is_a`.)
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
    """Stands for a `numpy.ndarray`: one of constants, with which NumPy computes now, or one whose
    data the graph knows (`tensor`)."""

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

    # What `isinstance` asks. (Capture itself does not: `classes.is_a`.)
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
        """A tensor of the graph with the array's data of now. Nobody may write to it: the array
        would not change."""
        if self.tensor is None:
            return tensor_of(self.in_python())
        return self.tensor

    def shared(self) -> torch.Tensor:
        """The tensor of the graph that has the array's memory: who writes to one writes to both.
        From here on the graph has the data, and NumPy can no longer compute with them."""
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
            yield self[at]  # type: ignore[index]


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor of these constants, made anew at each call."""
    if array.dtype not in TORCH_DTYPES or array.size > MOST_CONSTANTS:
        refuse(f"takes an array of {array.size} numbers of {array.dtype} into the graph")

    # A list of no numbers does not say how many dimensions it has.
    tensor = torch.tensor(array.tolist(), dtype=TORCH_DTYPES[array.dtype])
    if array.size:
        return tensor
    return tensor.reshape(array.shape)


def number_or_array(tensor: torch.Tensor) -> Any:
    """What stands for a result: NumPy gives a number where it has no dimensions."""
    if tensor.ndim:
        return Array(tensor=tensor)
    return Number(NUMPY_DTYPES[tensor.dtype], lambda: tensor)
