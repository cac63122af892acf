"""Questions about values that several files of this room ask.

In:  any value of the interpreted program, or a nest of containers.
Out: whether it holds a tensor, the memory of its tensors, how a user would write a function.
"""

import types
from typing import Any

import torch
from torch.overrides import resolve_name
from torch.utils._pytree import tree_leaves

CONSTANT_TYPES = (
    *(bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
"""Types of values that cannot change: guards compare them by value, and graphs hold them as they
are."""

# Private modules that users know under another name
PUBLIC_MODULES = {"posix": "os", "io": "builtins", "operator": "builtins"}


def tensors_in(values: Any) -> list[torch.Tensor]:
    """The tensors in a nest of containers."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def has_tensor(value: Any) -> bool:
    """Is there a tensor in this nest of containers, or of slices?"""
    if isinstance(value, dict):
        return any(map(has_tensor, value.values()))
    if type(value) is slice:
        return any(map(has_tensor, (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)):
        return any(map(has_tensor, value))
    return isinstance(value, torch.Tensor)


def without_levels(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor below all levels of `torch.func` (vmap, grad)."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def storages(values: Any) -> dict[int, torch.UntypedStorage]:
    """The memory of the tensors in a nest, by its address."""
    tensors = [without_levels(tensor) for tensor in tensors_in(values)]
    with torch._C.DisableTorchFunction():
        memories = [t.untyped_storage() for t in tensors if t.layout is torch.strided]
        return {memory._cdata: memory for memory in memories}


def owner_of(function: Any) -> Any:
    """What a method is bound to; None for what is no method.

    A class is not asked: its metaclass may have a `__getattr__`."""
    if issubclass(type(function), type):
        return None
    return getattr(function, "__self__", None)


def name_of(function: Any, exact: bool = False) -> str:
    """How a user would write the function; `exact`: what Python's own messages call it."""
    if not exact and type(function).__module__ == "builtins":
        public = resolve_name(function)
        if public:
            return public.replace("torch.functional.", "torch.")

    module = getattr(function, "__module__", None) or "builtins"
    names = (getattr(function, "__qualname__", None), getattr(function, "__name__", None))
    # an object with a `__getattr__` may give anything
    valid_names = (name for name in names if type(name) is str and name)
    name: str = next(valid_names, type(function).__name__)
    # `_operator.add` is `operator.add` to users
    if not exact and isinstance(function, types.BuiltinFunctionType):
        module = module.lstrip("_")
        module = PUBLIC_MODULES.get(module, module)

    path = name
    if module != "builtins":
        path = f"{module}.{name}"
    parts = [part for part in path.split(".") if not part.startswith("pybind11_")]
    return ".".join(parts)
