"""Attributes of tensors: what a guard settles, what is an operation, what the user stored there.

In:  a tensor of the interpreted program, and a name.
Out: the attribute; of a tensor from outside what the real one has.
In PyTorch: `torch/_dynamo/variables/tensor.py` (`TensorVariable.var_getattr`, `method_attr_shape`,
...).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.classes import MISSING, is_a
from course_lib.capture.guard_tests import LacksAttribute
from course_lib.capture.known import Known
from course_lib.capture.sources import HELPERS, Unsupported
from course_lib.capture.stand_ins.iterators import Remaining
from course_lib.capture.symbolic_numbers import SYMBOLIC
from course_lib.written import quiet

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

SETTLED = set(
    """shape dtype device ndim requires_grad layout is_cuda is_cpu itemsize nbytes is_sparse is_quantized is_meta is_mps
    is_xpu is_mkldnn is_nested T mT H mH real imag data""".split()
)
"""Attributes of a tensor that its guard settles, and those that are operations."""
OF_AUTOGRAD = ("grad", "grad_fn", "is_leaf")
"""Attributes that autograd sets: the real tensor is asked, not its fake."""
ASSIGNED: dict[str, Callable[[Machine, torch.Tensor, Any], None]] = {}
"""Attributes of torch's own tensors that a program may set, and how (`corners/tensors.py`)."""
CLASS_OF: dict[type, Callable[[Any], type]] = {}
"""Type of a stand-in → what `type(value)` is to the program (`corners/numpy.py`)."""


def tensor_attribute(it: Machine, tensor: torch.Tensor, name: str) -> Any:
    """`tensor.name`"""
    if name == "__class__":
        return type_of(it, tensor)
    if name in SETTLED:
        return it.world.builder.call(getattr, [tensor, name])

    stored = it.world.stored.get((id(tensor), name))
    if stored is not None and stored.value is not MISSING:
        return stored.value

    known = it.world.of(tensor)
    if name in OF_AUTOGRAD or (stored is None and is_users_own(known, name)):
        return attribute_of_real(it, tensor, name)

    member = getattr(torch.Tensor, name, MISSING)
    if callable(member):
        return it.native(getattr, tensor, name)
    if member is not MISSING:
        raise reaches_around(name)

    # where the program itself has deleted it, the real one may have it
    if known is not None and stored is None:
        it.world.assume(known.source, "absent", LacksAttribute(name))
    raise AttributeError(f"'Tensor' object has no attribute '{name}'", name=name, obj=tensor)


def attribute_of_real(it: Machine, tensor: torch.Tensor, name: str) -> Any:
    """An attribute that only the real tensor knows: one of autograd's, or one that the user has
    set."""
    known = it.world.of(tensor)
    attribute = real_attribute(it, tensor, name)
    if name == "grad_fn" and attribute is not None:
        raise reaches_around(name)
    if known is None:
        return attribute

    # a guard that asks the tensor itself would warn, too
    warns = name == "grad" and not known.real.is_leaf
    source = known.source.inside("grad_of") if warns else known.source.attr(name)
    return it.world.wrap(attribute, source)


def grad_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """`tensor.grad`, without the warning where the tensor is no leaf."""
    with quiet():
        return tensor.grad


HELPERS["grad_of"] = grad_of


def reaches_around(name: str) -> Unsupported:
    """The break at an attribute that no graph can hold."""
    return Unsupported(
        f"reads tensor.{name}, which reaches around the graph",
        "move it out of the compiled function",
    )


def is_users_own(known: Known | None, name: str) -> bool:
    """Has a tensor from outside an attribute that the user gave it?"""
    return known is not None and name in getattr(known.real, "__dict__", {})


def real_attribute(it: Machine, tensor: torch.Tensor, name: str) -> Any:
    """What the real tensor has, if there is one."""
    known = it.world.of(tensor)
    real = known.real if known else tensor
    with torch._C.DisableTorchFunction(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attribute = getattr(real, name)

    # `.grad` warns where the tensor is no leaf
    if caught:
        it.world.builder.tell_warnings(getattr, [real, name], {}, attribute, caught)
    return attribute


def type_of(it: Machine, value: Any) -> type:
    """`type(value)`: of a tensor, what eager would say."""
    if type(value) in CLASS_OF:
        return CLASS_OF[type(value)](value)
    if not is_a(value, (torch.Tensor, Remaining)):
        return SYMBOLIC.get(type(value), type(value))

    known = it.world.of(value)
    if known:
        return type(known.real)
    if is_a(value, torch.nn.Parameter):
        return torch.nn.Parameter
    return torch.Tensor


def change_tensor(it: Machine, tensor: torch.Tensor, name: str, new: Any = MISSING) -> None:
    """`tensor.name = new`: an attribute of the user's own, or the gradient of a tensor from
    outside."""
    if new is MISSING:
        tensor_attribute(it, tensor, name)  # raises if there is none
    elif name in ASSIGNED:
        ASSIGNED[name](it, tensor, new)
        return

    known = it.world.of(tensor)
    sets_gradient = name == "grad" and known and may_be_gradient(tensor, new)
    if hasattr(torch.Tensor, name) and not sets_gradient:
        raise Unsupported(f"changes the attribute '{name}' of a tensor")

    it.world.store(tensor, name, new)
    if new is MISSING and known is None:
        # The program made the tensor, and gave it this attribute. Nothing is left to be done
        # outside.
        del it.world.stored[id(tensor), name]


def may_be_gradient(tensor: torch.Tensor, new: Any) -> bool:
    """Would autograd take `new` for the gradient of `tensor`?"""
    if new is None:
        return True
    return is_a(new, torch.Tensor) and (new.shape, new.dtype) == (tensor.shape, tensor.dtype)
