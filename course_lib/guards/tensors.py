"""All that guards ask of a tensor, by one call of C (`_tensors.c`). In PyTorch: `torch/csrc/dynamo/guards.cpp`, `TensorCheck`."""

import ctypes
import functools
import struct
from pathlib import Path
from typing import Any

import torch

from course_lib import native

LOOKS = ["type({})", "{}.dtype", "{}.shape", "{}.stride()", "{}.requires_grad", "{}.is_neg()"]
"""The tests of a tensor that `looks_like` does all at once, in this order; one of its device follows."""
PLAIN_TENSORS = torch.Tensor, torch.nn.Parameter


@functools.cache
def in_c() -> Any:
    """The module `_tensors.c`, told how to read this torch's tensors; None (Python asks then) where that cannot be."""
    names = [
        f"aoti_torch_get_{name}"
        for name in "layout dtype device_type device_index dim sizes strides".split()
    ]
    names += ["_ZN2at6native6is_negERKNS_6TensorE", "_ZNK3c1010TensorImpl13requires_gradEv"]
    tensor = torch.empty(0)
    try:
        library = ctypes.CDLL(str(next(Path(torch.__file__).parent.glob("lib/libtorch_cpu.*"))))
        readers = [ctypes.cast(library[name], ctypes.c_void_p).value for name in names]
        place = next(
            at
            for at in range(16, 64, 8)
            if ctypes.c_void_p.from_address(id(tensor) + at).value == tensor._cdata
        )
        module: Any = native.load("course_lib.guards._tensors")
        module.configure(struct.pack("n9P", place, *readers))
    except (OSError, AttributeError, StopIteration):
        return None
    return module


def has_dict_versions() -> bool:
    """Does this Python give a dictionary another number whenever it changes? (3.11 and 3.12 do.)"""
    return bool(getattr(in_c(), "dict_versions", False))
