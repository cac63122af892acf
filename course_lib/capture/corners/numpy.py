"""NumPy in a program: what stands for its arrays and numbers, and what calls of its functions do.

In:  `numpy.sqrt(8)`, `numpy.float32(2)` as an argument, `x.numpy()`, `torch.from_numpy(array)`, an
     array from outside.
Out: of constants what NumPy gives, now; a number that is an input of the graph; an `Array` whose
     memory a tensor of the graph has.

- `arrays.py`: what stands for arrays and numbers; `array_operators.py`: their operators and items.
- `numpy_constants.py`: what NumPy computes now; `numpy_ufuncs.py` and `numpy_functions.py`: what
  the graph computes.
- `numpy_rules.py`: the tables of both.

In PyTorch: `NumpyNdarrayVariable` in `torch/_dynamo/variables/tensor.py`, `NumpyVariable` in
`variables/misc.py`.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from course_lib import frames
from course_lib.capture.attributes import lookup as lookups
from course_lib.capture.attributes.lookup import Lookup
from course_lib.capture.attributes.tensors import CLASS_OF
from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.calls.tables import FUNCTIONS, TYPES
from course_lib.capture.classes import is_a
from course_lib.capture.corners import numpy_functions
from course_lib.capture.corners.array_operators import argument, assign
from course_lib.capture.corners.arrays import Array, Number, refuse
from course_lib.capture.corners.numpy_constants import (
    given,
    is_constant,
    name_of,
    run_now,
    value_of,
)
from course_lib.capture.corners.numpy_rules import METHODS, NUMPY_DTYPES, TORCH_DTYPES
from course_lib.capture.corners.numpy_ufuncs import compute
from course_lib.capture.corners.torch_functions import new_tensor, tensor_of
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.guard_tests import PrintsAs, TypeIs
from course_lib.capture.operations import INSTEAD, Operation, takes_data_into_python
from course_lib.capture.rebuild import Rebuilder
from course_lib.capture.rebuild_kinds import BY_TYPE, write_name
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import HELPERS, Source
from course_lib.capture.stand_ins.make import OF_TYPE
from course_lib.capture.values import owner_of
from course_lib.capture.world import World

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

NUMPY_NUMBERS = (np.integer, np.floating, np.bool_)
HELPERS["as_tensor"] = torch.as_tensor


# ---- what stands for objects from outside --------------------------------------------------------


def number(world: World, value: Any, source: Source) -> Any:
    """A NumPy number from outside: an argument is an input of the graph, any other this very one
    until it changes."""
    item = value.item()
    symbol: Any = item
    if type(item) in (int, float):
        place = Source(".item()", source)
        symbol = world.number(item, place, at_once=source.is_variable)
    # It has no symbol: it has not changed so far, or is a bool
    if symbol is item or value.dtype not in TORCH_DTYPES:
        assume_value(world, value, source)
        return world.know(value, value, source).stand_in

    world.assume_type(value, source)
    stand_in = Number(
        value.dtype,
        compute=lambda: input_of(world, value, source),
        known=lambda: assume_value(world, value, source),
        symbol=lambda: symbol,
    )
    return world.know(stand_in, value, source).stand_in


def assume_value(world: World, value: Any, source: Source) -> Any:
    """Guard that it is this number."""
    world.assume(source, "value", TypeIs(type(value)), PrintsAs(repr(value)))
    return value


def input_of(world: World, value: Any, source: Source) -> torch.Tensor:
    """A number or an array from outside as a tensor: an input of the graph.

    The memory of an array is the tensor's."""
    with world.builder.real_world():
        real = torch.as_tensor(value)
    tensor: torch.Tensor = world.wrap(real, source.inside("as_tensor"))
    return tensor


def array(world: World, value: Any, source: Source) -> Any:
    """An array from outside. One that torch cannot take is opaque."""
    plain = value.dtype in TORCH_DTYPES and value.flags.writeable
    if not plain or min(value.strides, default=0) < 0:
        return world.opaque(value, source)
    try:
        tensor = input_of(world, value, source)
    except (TypeError, ValueError):  # the other byte order
        return world.opaque(value, source)
    world.assume_type(value, source)
    return world.know(Array(tensor=tensor), value, source).stand_in


def dtype(world: World, value: Any, source: Source) -> Any:
    world.assume(source, "value", TypeIs(type(value)), PrintsAs(repr(value)))
    return world.know(value, value, source).stand_in


# ---- calls ---------------------------------------------------------------------------------------

DISPATCHER = type(np.prod)
"""The type of most of NumPy's functions. They ask their arguments for `__array_function__`."""
CLASSES = (np.dtype, np.finfo, np.iinfo)
"""Classes of NumPy's that are called for what they tell of a dtype."""
FUNCTION_TYPES = (types.BuiltinFunctionType, types.FunctionType)
"""The types of NumPy's other functions, which lie in one of `MODULES`."""
MODULES = {"numpy", "numpy.linalg", "numpy.fft", "numpy.lib.stride_tricks"}
NOT_NOW = set(
    """save savez savez_compressed savetxt load loadtxt fromfile genfromtxt fromregex memmap seterr seterrcall setbufsize
    set_printoptions printoptions errstate copyto put place putmask put_along_axis fill_diagonal vectorize fromfunction
    piecewise apply_along_axis apply_over_axes frompyfunc fromiter frombuffer from_dlpack info show_config
    show_runtime nditer""".split()
)
"""Functions that have an effect, or call functions of the program: they run in eager."""


def is_of_numpy(it: Machine, function: Any) -> bool:
    """A function of NumPy's, or a method of one of its numbers or functions?"""
    cls = type(function)
    if cls is np.ufunc or cls is DISPATCHER:
        return True
    if is_a(function, type):
        is_number = issubclass(function, NUMPY_NUMBERS) and function.__module__ == "numpy"
        return is_number or function in CLASSES
    if cls not in FUNCTION_TYPES:
        return False
    owner = owner_of(function)
    if isinstance(owner, (np.ufunc, np.generic, np.dtype)) and type(owner) is not Number:
        return True
    return getattr(function, "__module__", None) in MODULES


def call_numpy(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A call of a function of NumPy: on arrays of constants it runs now; on data of the graph the
    tables say what stands for it."""
    if getattr(function, "__name__", "") in NOT_NOW or kwargs.get("out") is not None:
        refuse(f"calls numpy.{name_of(function)}, which has an effect or calls other functions")
    args = [array_of(it, function, arg) for arg in args]
    kwargs = {name: array_of(it, function, arg) for name, arg in kwargs.items()}

    constant = is_constant(args) and is_constant(kwargs)
    of_number = is_a(function, type) or isinstance(owner_of(function), (np.generic, np.dtype))
    if constant or (of_number and all_known([args, kwargs])):
        return frames.call(None, run_now, function, args, kwargs)
    return frames.call(None, numpy_functions.call, function, args, kwargs)


def all_known(value: Any) -> bool:
    """Is each number in this nest from outside, so that a guard can say which it is?"""
    if isinstance(value, (list, tuple)):
        return all(map(all_known, value))
    if type(value) is dict:
        return all(map(all_known, value.values()))
    return value.known is not None if type(value) is Number else is_constant(value)


def array_of(it: Machine, function: Any, value: Any) -> Any:
    """A tensor that is given to `numpy.asarray`, or to `numpy.array`: the array that has its
    memory."""
    if not isinstance(value, torch.Tensor):
        return value
    if function not in (np.asarray, np.array, np.asanyarray):
        refuse("gives a tensor to a function of NumPy")
    return it.world.builder.call("numpy", [value])


class Method:
    """`array.sum`, bound to its array."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name


def call_method(it: Machine, method: Method, /, *args: Any, **kwargs: Any) -> Any:
    """`array.sum(axis=0)`"""
    name, owner = method.name, method.owner
    constant = type(owner) is Array and owner.constant is not None
    # Those named here give the memory another form, or write it to a file: they are refused below
    if constant and name not in ("view", "setflags", "resize", "tofile", "dump", "byteswap"):
        return frames.call(None, call_method_now, owner, name, args, kwargs)

    # `array.reshape(2, 3)` is `array.reshape((2, 3))`
    arguments = list(args)
    if name in ("reshape", "transpose") and args and type(args[0]) not in (tuple, list):
        arguments = [tuple(args)]
    return frames.call(None, call_method_of_data, owner, name, arguments, kwargs)


def call_method_now(owner: Array, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A call of a method of an array of constants."""
    writes = name in ("fill", "sort", "partition", "put", "itemset")
    if not is_constant(args) or not is_constant(kwargs) or kwargs.get("out") is not None:
        if writes:
            refuse(f"calls array.{name} with data that only the graph knows")
        return call_method_of_data(owner, name, list(args), kwargs)
    owner.memory.check(writes)
    bound = getattr(owner.in_python(), name)
    return of_bound(bound, owner, args, kwargs)


def of_bound(bound: Any, owner: Array, args: Any, kwargs: dict[str, Any]) -> Any:
    """What a method of a constant array gives; a view shares the array's memory."""
    if bound.__name__ in ("tolist", "item", "tobytes"):
        return bound(*value_of(args))
    # `owner` is among the arguments: with it the result is compared for shared memory (`given`)
    return run_now(lambda first, *rest, **options: bound(*rest, **options), [owner, *args], kwargs)


def call_method_of_data(owner: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`array.name(...)`, of an array whose data only the graph knows."""
    if name == "astype":
        return numpy_functions.astype(owner, *args, **kwargs)
    if name == "fill" and len(args) == 1:
        assign(owner, ..., args[0], "unsafe")
        return None
    if name == "flatten" and not args and not kwargs:
        return Array(tensor=owner.as_tensor().reshape(-1).clone())
    if name in ("clip", "round"):
        return numpy_functions.SPECIAL[name](owner, *args, **kwargs)
    if name in ("conj", "conjugate"):
        return compute(np.conjugate, [owner])
    if name in ("item", "tolist") and type(owner) is Number and not args:
        return owner.in_python().item()
    if name not in METHODS:
        refuse(f"calls the method {name} of an array whose data only the graph knows")
    return numpy_functions.call(getattr(np, name), [owner, *args], kwargs)


# ---- attributes ----------------------------------------------------------------------------------


def of_array(lookup: Lookup) -> Any:
    """`array.name`"""
    value, name = lookup.value, lookup.name
    if type(value) is Array:
        read = attribute_now if value.constant is not None else attribute_of_data
    elif type(value) is Number:
        read = attribute_of_data
    else:
        return GO_ON

    if name == "__class__":
        return value.numpy_class()
    attribute = getattr(value.numpy_class(), name, None)
    if attribute is None:
        cls = value.numpy_class()
        class_name = f"{cls.__module__}.{cls.__name__}"
        raise AttributeError(f"'{class_name}' object has no attribute '{name}'")
    if callable(attribute) and not name.startswith("__"):
        return Method(value, name)
    return frames.call(None, read, value, name)


NOW = "shape dtype ndim size itemsize nbytes strides T real imag".split()
"""Attributes of an array of constants that NumPy gives now."""


def attribute_now(value: Array, name: str) -> Any:
    """`array.name`, of an array of constants."""
    if name not in NOW:
        refuse(f"reads the attribute '{name}' of an array of NumPy")
    return given(getattr(value.in_python(), name), [value])


def attribute_of_data(value: Any, name: str) -> Any:
    """`value.name`, of an array or a number whose data only the graph knows."""
    if name == "dtype":
        return value.dtype
    if name == "itemsize":
        return value.dtype.itemsize
    shape = value.shape if type(value) is Array else ()
    if name == "shape":
        return shape
    if name == "ndim":
        return len(shape)
    if name in ("size", "nbytes"):
        size = functools.reduce(operator.mul, shape, 1)
        return size if name == "size" else size * value.dtype.itemsize
    if name == "T":
        if not shape:
            return value
        backwards = list(range(len(shape)))[::-1]
        return Array(tensor=value.shared().permute(backwards))
    if name == "real" and value.dtype.kind != "c":
        return value
    refuse(f"reads the attribute '{name}' of an array of NumPy")


# ---- tensors -------------------------------------------------------------------------------------


def numpy_of_tensor(builder: GraphBuilder, operation: Operation) -> Any:
    """`x.numpy()`: an array with the memory of the tensor.

    (torch refuses a tensor that needs a gradient.)"""
    if operation.name != "numpy" or not operation.is_on_tensor or builder.inference:
        return GO_ON
    if len(operation.args) > 1 or operation.kwargs:
        return GO_ON

    tensor = operation.args[0]
    with torch._C.DisableTorchFunction():
        if not has_memory_for_numpy(tensor):
            return GO_ON
    return Array(tensor=builder.call("detach", [tensor]))


def has_memory_for_numpy(tensor: torch.Tensor) -> bool:
    """Does eager's `tensor.numpy()` give an array?"""
    if tensor.device.type != "cpu" or tensor.dtype not in NUMPY_DTYPES:
        return False
    if tensor.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return False
    # `x.conj()` and `x.conj().imag` are marks on memory that has other numbers
    return not tensor.is_conj() and not tensor.is_neg()


def bool_as_float(arg: Any) -> Any:
    """To eager a bool of NumPy among the arguments is 0.0 or 1.0."""
    return float(arg) if type(arg) is np.bool_ else arg


def with_numbers(builder: GraphBuilder, operation: Operation) -> Any:
    """Numbers of NumPy among the arguments of an operation: what stands for them there."""
    if any(type(arg) is np.bool_ for arg in operation.args):
        operation.args = [bool_as_float(arg) for arg in operation.args]
    if any(map(holds, operation.args)):
        tensor = other_operand(operation)
        operation.args = [in_operation(arg, tensor) for arg in operation.args]
    if any(map(holds, operation.kwargs.values())):
        operation.kwargs = {name: in_operation(arg) for name, arg in operation.kwargs.items()}
    return GO_ON


ARITHMETIC = "add sub rsub mul div truediv rtruediv pow rpow lt le gt ge eq ne iadd isub imul itruediv".split()


def other_operand(operation: Operation) -> torch.Tensor | None:
    """The tensor in arithmetic of a tensor and a number."""
    tensors = [arg for arg in operation.args if isinstance(arg, torch.Tensor)]
    if operation.name not in ARITHMETIC or (len(operation.args), len(tensors)) != (2, 1):
        return None
    return tensors[0]


def holds(value: Any) -> bool:
    """Is there an array or a number of NumPy's in it?"""
    if type(value) in (tuple, list, torch.Size):
        return any(map(holds, value))
    if type(value) is slice:
        return any(map(holds, (value.start, value.stop, value.step)))
    return type(value) in (Array, Number)


def in_operation(value: Any, tensor: torch.Tensor | None = None) -> Any:
    """What stands for it among the arguments; `tensor`: the other operand in arithmetic."""
    if type(value) in (tuple, list, torch.Size):
        return type(value)(map(in_operation, value))
    if type(value) is slice:
        return slice(*map(in_operation, (value.start, value.stop, value.step)))
    if type(value) in (Array, Number):
        return argument(value, tensor)
    return value


def tensor_of_array(name: str, it: Machine, data: Any, *args: Any, **options: Any) -> Any:
    """`torch.as_tensor(array)`, `torch.from_numpy(array)` share the array's memory;
    `torch.tensor(array)` does not."""
    if isinstance(data, np.generic) and type(data) is not Number and data.dtype in TORCH_DTYPES:
        # the recorder makes it a number of Python's, which has no dtype
        options = {"dtype": TORCH_DTYPES[data.dtype]} | options
    if type(data) not in (Array, Number):
        return WITHOUT_ARRAYS[name](it, data, *args, **options)
    if args or set(options) - {"dtype", "device"}:
        refuse(f"calls torch.{name} of an array with options that are not followed")
    device = options.get("device")
    if device is not None and torch.device(device).type != "cpu":
        refuse(f"calls torch.{name} of an array with another device")

    copies = name == "tensor"
    tensor = frames.call(None, memory_of, data, copies=copies)
    dtype = options.get("dtype")
    if dtype is None:
        return tensor
    return it.world.builder.call("to", [tensor, dtype])


def memory_of(data: Any, copies: bool) -> torch.Tensor:
    """A tensor with the memory of the array, or a copy. (A number has no memory.)"""
    if type(data) is Number:
        return data.tensor.clone()
    if copies:
        return data.as_tensor().clone()
    return data.shared().detach()


def new_tensor_of_array(cls: Any, it: Machine, *data: Any, **options: Any) -> Any:
    """`torch.Tensor(array)`, `torch.FloatTensor(array)`: a copy in the dtype of the class."""
    if len(data) != 1 or type(data[0]) is not Array or options:
        return new_tensor(cls, it, *data, **options)
    dtype = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
    tensor = frames.call(None, memory_of, data[0], copies=True)
    return it.world.builder.call("to", [tensor, dtype])


def from_numpy(it: Machine, data: Any) -> Any:
    return it.world.builder.call(torch.from_numpy, [data])


WITHOUT_ARRAYS: dict[str, Any] = {
    "as_tensor": functools.partial(tensor_of, torch.as_tensor),
    "tensor": functools.partial(tensor_of, torch.tensor),
    "from_numpy": from_numpy,
}
"""Function of torch → what it does with data that is no array of the program."""


# ---- in heads ------------------------------------------------------------------------------------


def write_array(head: Rebuilder, value: Array) -> str:
    """An array that the program made: of constants a copy at each call, else what has the memory of
    the graph's tensor."""
    if value.constant is None:
        return head.assign(f"{head.rebuild(value.tensor)}.numpy()", value)
    memory = value.memory
    memory.check(writes=False)
    if head.is_written(memory):
        refuse("keeps two arrays of NumPy that share their memory")
    if not is_constant(value.constant.tolist()):
        refuse("keeps an array of NumPy that holds objects")
    copied = head.assign(f"{head.name_for(value.constant, 'array')}.copy('K')", value)
    head.assign(copied, memory)
    return copied


def write_number(head: Rebuilder, value: Number) -> str:
    return head.assign(f"{head.rebuild(value.tensor)}.numpy()[()]", value)


def write_bound(head: Rebuilder, method: Method) -> str:
    return head.assign(f"{head.rebuild(method.owner)}.{method.name}")


Write = Callable[[Any, Any], str]
WRITERS: dict[type, Write] = {Array: write_array, Number: write_number, Method: write_bound}

FUNCTIONS |= {
    getattr(torch, name): functools.partial(tensor_of_array, name) for name in WITHOUT_ARRAYS
}
FUNCTIONS |= {
    cls: functools.partial(new_tensor_of_array, cls)
    for cls in (torch.Tensor, *torch._tensor_classes)
    if cls.__module__ == "torch"
}
TYPES[Method] = call_method
CLASS_OF |= dict.fromkeys((Array, Number), lambda value: value.numpy_class())
BY_TYPE |= WRITERS
OF_TYPE[np.ndarray] = array
for cls in {*np.sctypeDict.values()}:
    if issubclass(cls, NUMPY_NUMBERS):
        OF_TYPE[cls] = number
        BY_TYPE[cls] = write_name
for known in TORCH_DTYPES:
    OF_TYPE[type(known)] = dtype
    BY_TYPE[type(known)] = write_name
INSTEAD.insert(0, with_numbers)
INSTEAD.insert(INSTEAD.index(takes_data_into_python), numpy_of_tensor)
lookups.register(of_array, before=lookups.of_tensor)
register(
    CallRule("function of NumPy", is_of_numpy, call_numpy),
    before="arithmetic on symbolic numbers",
)
