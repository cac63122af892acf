"""NumPy beside tensors: numbers, functions of numbers, and arrays from outside that become tensors.

In:  `numpy.float32(2)` from outside, `numpy.sqrt(8)`, `torch.as_tensor(array)`.
Out: constants under a guard, and inputs of the graph that share the array's memory.
In PyTorch: `NumpyNdarrayVariable` in `torch/_dynamo/variables/tensor.py`, which follows all of NumPy. Here arrays made of
tensors end the graph.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from course_lib.capture.calls.tables import FUNCTIONS, TYPES
from course_lib.capture.corners.torch_functions import tensor_of
from course_lib.capture.rebuild import BY_TYPE, write_name
from course_lib.capture.shapes import SYMBOLIC, concrete
from course_lib.capture.sources import HELPERS, Source, Unsupported
from course_lib.capture.stand_ins.make import OF_TYPE
from course_lib.capture.tests import PrintsAs, TypeIs
from course_lib.capture.values import CONSTANT_TYPES
from course_lib.capture.world import World

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

NUMBERS = (np.integer, np.floating, np.bool_)
HELPERS["as_tensor"] = torch.as_tensor


def number(world: World, value: Any, source: Source) -> Any:
    """A NumPy number from outside: this very one."""
    world.assume(source, "value", TypeIs(type(value)), PrintsAs(repr(value)))
    return world.know(value, value, source).stand_in


def of_numbers(it: Machine, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """A function of NumPy: of numbers alone it gives a number, now."""
    given = [concrete(arg) for arg in args]
    options = {name: concrete(arg) for name, arg in kwargs.items()}
    if all(map(is_plain, (*given, *options.values()))):
        result = function(*given, **options)
        if isinstance(result, NUMBERS) or type(result) in CONSTANT_TYPES:
            return result
    raise Unsupported(
        f"calls numpy.{function.__name__}, of which capture knows nothing",
        "use torch's function, or call it outside the compiled function",
    )


def made_of_numbers(cls: Any, it: Machine, *args: Any, **kwargs: Any) -> Any:
    """`numpy.float32(2)`: a number of NumPy's."""
    return of_numbers(it, cls, *args, **kwargs)


def is_plain(value: Any) -> bool:
    """A number or a text, or a tuple or list of these?"""
    if type(value) in (tuple, list, torch.Size):
        return all(map(is_plain, value))
    return type(value) in CONSTANT_TYPES or isinstance(value, NUMBERS) or type(value) in SYMBOLIC


def tensor_of_array(name: str, it: Machine, data: Any, *args: Any, **options: Any) -> Any:
    """`torch.as_tensor(array)`: the array's memory is an input of the graph."""
    known = it.world.of(data)
    if known is None or not isinstance(known.real, np.ndarray):
        return BEFORE[name](it, data, *args, **options)

    try:
        with it.world.builder.real_world():
            real = torch.as_tensor(known.real)
    except TypeError as problem:  # of objects, or of texts
        raise Unsupported(f"makes a tensor of an array: {problem}") from None
    tensor = it.world.wrap(real, Source(")", known.source, "as_tensor("))
    builder = it.world.builder

    if name == "tensor":  # a copy
        tensor = builder.call("clone", [tensor])
    if args or set(options) - {"dtype", "device"}:
        raise Unsupported(f"calls torch.{name} of an array with options that are not followed")
    return builder.call("to", [tensor], options) if any(options.values()) else tensor


def from_numpy(it: Machine, data: Any) -> Any:
    return it.world.builder.call(torch.from_numpy, [data])


BEFORE: dict[str, Any] = {
    "as_tensor": functools.partial(tensor_of, torch.as_tensor),
    "tensor": functools.partial(tensor_of, torch.tensor),
    "from_numpy": from_numpy,
}
FUNCTIONS |= {getattr(torch, name): functools.partial(tensor_of_array, name) for name in BEFORE}
TYPES |= {np.ufunc: of_numbers, type(np.prod): of_numbers}
for cls in {*np.sctypeDict.values()}:
    if issubclass(cls, NUMBERS):
        OF_TYPE[cls] = number
        FUNCTIONS[cls] = functools.partial(made_of_numbers, cls)
        BY_TYPE[cls] = write_name
