"""All that guards ask of a tensor, by one call of C (`_tensors.c`).

In:  the guard of a tensor.
Out: what `looks_like` compares the tensor with, or None where Python has to ask, test by test.
In PyTorch: `torch/csrc/dynamo/guards.cpp`, `TensorCheck` (behind `TENSOR_MATCH`).
"""

import ctypes
import functools
import struct
from pathlib import Path
from typing import Any, NamedTuple

import torch

from course_lib import native
from course_lib.capture import Guard
from course_lib.capture.guard_tests import (
    DeviceIs,
    DtypeIs,
    IsNegated,
    IsOnCpu,
    RequiresGrad,
    SizesAre,
    StridesAre,
    TypeIs,
)

PLAIN_TENSORS = torch.Tensor, torch.nn.Parameter
CPU = -1
"""The place of a tensor that is on no GPU, as `looks_like` knows it."""
READERS = ("layout", "dtype", "device_type", "device_index", "dim", "sizes", "strides")
"""What torch's interface for C tells of a tensor: `aoti_torch_get_layout`, ..."""
READERS_OF_CXX = ("_ZN2at6native6is_negERKNS_6TensorE", "_ZNK3c1010TensorImpl13requires_gradEv")
"""Two functions that only C++ has: `at::native::is_neg` and `c10::TensorImpl::requires_grad`."""


class LooksLike(NamedTuple):
    """How a tensor looked, in the order of `looks_like`'s arguments. sizes, strides: in elements;
    device: of CUDA, or `CPU`."""

    cls: type
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    requires_grad: bool
    is_negated: bool
    device: int


def looks_of(guard: Guard) -> LooksLike | None:
    """What `looks_like` takes to ask all that `guard` asks of a tensor; None where it cannot."""
    match guard.tests:
        case (
            TypeIs(cls),
            DtypeIs(dtype),
            SizesAre(sizes),
            StridesAre(strides),
            RequiresGrad(grad),
            IsNegated(negated),
            IsOnCpu() | DeviceIs() as place,
        ) if cls in PLAIN_TENSORS and in_c():
            device = CPU
            if isinstance(place, DeviceIs):
                # C knows no other device than these two
                if place.right.type != "cuda":
                    return None
                device = place.right.index
            return LooksLike(cls, dtype, sizes, strides, grad, negated, device)
    return None


@functools.cache
def in_c() -> Any:
    """The module `_tensors.c`, after it was told how to read this torch's tensors.

    None if it cannot be had: then Python asks."""
    try:
        found = Path(torch.__file__).parent.glob("lib/libtorch_cpu.*")
        library = ctypes.CDLL(str(next(found)))
        names = [*(f"aoti_torch_get_{name}" for name in READERS), *READERS_OF_CXX]
        readers = [ctypes.cast(library[name], ctypes.c_void_p).value for name in names]

        module: Any = native.load("course_lib.guards._tensors")
        # The struct `torch` of `_tensors.c`: one size, then nine addresses of functions
        module.configure(struct.pack("n9P", place_of_cxx_tensor(), *readers))
    except (OSError, AttributeError, StopIteration):
        return None
    return module


def place_of_cxx_tensor() -> int:
    """How many bytes behind the start of a tensor's Python object the address of its C++ object
    lies."""
    tensor = torch.empty(0)
    address = tensor._cdata  # of its C++ object
    # A Python object begins with 16 bytes of CPython's; what follows lies in steps of 8. Where none
    # of these holds the address, the error makes `in_c` give None.
    places = range(16, 64, 8)
    return next(at for at in places if pointer_at(id(tensor) + at) == address)


def pointer_at(address: int) -> int | None:
    """The address that lies at this address."""
    return ctypes.c_void_p.from_address(address).value


def has_dict_versions() -> bool:
    """Does this Python give a dictionary another number whenever it changes? (3.11 and 3.12 do.)"""
    return bool(getattr(in_c(), "dict_versions", False))
