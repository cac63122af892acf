"""Where an object can be found again.

In:  an object of the interpreted program.
Out: its `Source`: where it was met, or, for a module, a class or a function, where it can be
imported from.
In PyTorch: `torch/_dynamo/source.py`; `trace_rules.py` says what is torch's own.
"""

import dataclasses
import enum
import sys
import types
from typing import Any

import torch

from course_lib.capture.classes import MISSING, TRUSTED, is_a
from course_lib.capture.known import Known
from course_lib.capture.sources import Imported, Source

SENTINELS = tuple(
    type(getattr(dataclasses, name))
    for name in "MISSING _FIELD _FIELD_CLASSVAR _HAS_DEFAULT_FACTORY".split()
)
"""The types of the marks with which dataclasses say "no default", and the like."""
STATIC = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, enum.Enum)
"""Classes whose instances, and those of subclasses, stand for themselves."""
STATIC_TYPES = {
    *(types.CodeType, types.GenericAlias, types.UnionType, types.GetSetDescriptorType),
    *(property, staticmethod, classmethod, object, type(sys.version_info), *SENTINELS),
    *(torch._ops.OpOverload, torch._ops.OpOverloadPacket, type(torch.ops)),
    *(torch.finfo, torch.iinfo, torch._C._SDPBackend),
    torch._library.custom_ops.CustomOpDef,
}
"""Types of which only the very instances do."""


@dataclasses.dataclass(frozen=True)
class GlobalNames:
    """A dict of global variables, and where it is found."""

    names: dict[str, Any]
    source: Source


class Places:
    """What is known of objects from outside, and where they are."""

    known: dict[int, Known]
    """By the `id` of the stand-in."""
    globals: dict[int, GlobalNames]

    def of(self, value: Any) -> Known | None:
        """What is known of a stand-in from outside."""
        known = self.known.get(id(value))
        if known is not None and known.stand_in is value:
            return known
        return None

    def is_opaque(self, value: Any) -> bool:
        """Is it an object of which capture knows nothing?"""
        known = self.of(value)
        return known is not None and known.opaque

    @staticmethod
    def is_static(obj: Any) -> bool:
        """Functions, classes, modules and the like: nothing in them changes that matters, so no
        copy stands for them."""
        if is_a(obj, STATIC) and not is_a(obj, torch.nn.Module) and not is_bound(obj):
            return True
        if type(obj) in STATIC_TYPES:
            return True
        # `List[int]`, compiled patterns
        return type(obj).__module__ in ("typing", "re")

    def is_trusted(self, source: Source) -> bool:
        """May we assume that nobody assigns to it?

        Yes in modules of torch and of Python's library."""
        return source.root.module.split(".")[0] in TRUSTED

    def source_of(self, obj: Any) -> Source | None:
        """Where to find `obj` again: where it was found, or where it can be imported from."""
        known = self.of(obj)
        if known:
            return known.source
        return self.static_source(obj)

    def static_source(self, obj: Any) -> Source | None:
        """Where an object that names its own place (a module, a class, a function) can be imported
        from."""
        if is_a(obj, types.ModuleType):
            loaded = sys.modules.get(obj.__name__, MISSING)
            if obj is loaded:
                return Imported(obj.__name__)
            return None

        module: Any = getattr(obj, "__module__", None)
        path: Any = getattr(obj, "__qualname__", None)
        if not is_a(module, str) or not is_a(path, str):
            return None
        # `f.<locals>.g` and `<lambda>` cannot be reached from the module.
        if "<" in path:
            return None
        if module not in sys.modules:
            return None

        imported: Any = sys.modules[module]
        source: Source = Imported(module)
        for name in path.split("."):
            imported = getattr(imported, name, None)
            source = source.attr(name)
        return source if imported is obj else None

    def globals_source(self, names: dict[str, Any], function: Any = None) -> Source | None:
        """Where this dict of global variables is found."""
        if id(names) in self.globals:
            return self.globals[id(names)].source

        module, known = str(names.get("__name__")), self.of(function)
        if getattr(sys.modules.get(module), "__dict__", None) is names:
            source = Imported(module).attr("__dict__")
        elif known is not None:
            source = known.source.attr("__globals__")
        else:
            return None
        self.globals[id(names)] = GlobalNames(names, source)
        return source


def is_bound(obj: Any) -> bool:
    """Is this a method of a builtin type, bound to an object that may change (`values.append`)?"""
    if type(obj) is not types.BuiltinMethodType:
        return False
    if is_a(obj.__self__, (types.NoneType, types.ModuleType, type)):
        return False
    # A function that pybind11 made is bound to an object that has no method of this name.
    return hasattr(type(obj.__self__), obj.__name__)
