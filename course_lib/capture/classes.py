"""What a class had when capture looked at it: the names that the program looked up, and all special
methods.

Python itself looks special methods up (`x + y` asks for `__add__`). So all of them count, also
those that the class has not.
In PyTorch: `torch/_dynamo/guards.py` guards the entries of `type(x).__dict__` that TorchDynamo
itself looked up.
"""

import functools
import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any

from torch.distributions.utils import lazy_property

from course_lib.frames.hook import class_version

TRUSTED = {"torch", "numpy", "course_lib", "typing_extensions", *sys.stdlib_module_names}
TRUSTED -= {"__main__", "this", "os"}
"""Top-level packages whose functions, classes and constants nobody rebinds: reading them needs no
guard. (`os` is not among them, for programs do change `os.environ`.)"""
BELOW_TORCH = tuple(
    """torch._tensor. torch._ops. torch.fx. torch._subclasses. torch.utils._sympy. sympy. torch.overrides.
    torch._dynamo. torch._guards. torch._prims torch._refs. torch._decomp torch._meta
    torch.utils._python_dispatch. torch.utils.weak. weakref. _weakrefset. torch._library.
    torch._higher_order_ops. copyreg.""".split()
)
"""How the names of modules begin that torch's operators and symbolic sizes run on the way. They are
written in Python, but capture does not interpret them: it calls them as it calls C code."""
HEAP_TYPE = 1 << 9
"""The flag in `cls.__flags__` of a class that was made at run time: each class written in Python
has it, and a few written in C. (CPython: `Py_TPFLAGS_HEAPTYPE`)"""
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
"""Stands for an attribute that a class has not."""

MOST_ANSWERS = 64
"""So many versions of a class are kept, each with the answer to "does the class mean what capture
saw?". There must be a limit: a class whose attribute changes in each call has ever new versions."""


class SeenClass:
    """The members of `cls` that capture has seen.

    It is equal to each `class_version` of a class that has the same members."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.members = special_methods(cls)
        self.answers = Answers(self)
        self.__name__ = self.answers.__name__

    def see(self, names: Iterable[str]) -> None:
        self.members |= {name: member_of(self.cls, name) for name in names}

    def __eq__(self, version: object) -> bool:
        """version: the version of the class which a check met. None: the check asks about
        `self.cls` itself, whose version is looked up."""
        if isinstance(version, SeenClass):
            # Two guards are compared, not a class and a guard.
            return self is version

        if version is None:
            version = class_version(self.cls)
        return self.answers[version]

    def is_seen_in(self, version: int) -> bool:
        """Does a class of this version have the members that were seen?

        Version 0: CPython has given `self.cls` none."""
        is_another_class = version != 0 and version != class_version(self.cls)
        if is_another_class:
            return False
        return not self.changed()

    def changed(self) -> str:
        """The first name that means something else than it did, "" if there is none."""
        for name in self.members | special_methods(self.cls):
            if member_of(self.cls, name) is not self.members.get(name, MISSING):
                return name
        return ""

    __hash__ = object.__hash__


class Answers(dict[Any, bool]):
    """`class_version` → does a class of this version mean what was seen?

    Checks look it up at every call.

    CPython gives no version to two classes, nor to one class twice: so an answer holds for good,
    and two classes that come in turn both find theirs.
    """

    def __init__(self, seen: SeenClass) -> None:
        self.seen = seen
        self.cls = seen.cls
        self.__name__ = f"{seen.cls.__name__}_as_seen"
        if version := class_version(seen.cls):
            self[version] = True

    def __missing__(self, version: int) -> bool:
        answer = self.seen.is_seen_in(version)
        if version:
            if len(self) >= MOST_ANSWERS:
                self.clear()
            self[version] = answer
        return answer


def member_of(cls: type, name: str) -> Any:
    """What stands under this name in the class body, or in one above it."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), MISSING)


def special_methods(cls: type) -> dict[str, Any]:
    """The special methods of a class and its bases: functions and descriptors, or None
    (`__hash__ = None`)."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        for name, member in base.__dict__.items():
            if name[:2] == "__" == name[-2:]:
                members[name] = member
    return {name: member for name, member in members.items() if is_method(member)}


def is_method(member: Any) -> bool:
    return member is None or callable(member) or hasattr(type(member), "__get__")


PARTS = ("fget", "fset", "fdel", "__func__", "func", "wrapped")
WRAPPING = (property, classmethod, staticmethod, functools.cached_property, lazy_property)
"""What stands in a class body around functions, and where each of these keeps them."""


def functions_of(member: Any) -> dict[str, FunctionType]:
    """The functions that a class attribute is made of, and by which name it keeps each: of a
    property, `fget`."""
    parts = PARTS if type(member) in WRAPPING else ()
    members = {"": member, **{part: getattr(member, part, None) for part in parts}}
    return {part: function for part, function in members.items() if is_a(function, FunctionType)}


def makes_bare(base: Any, cls: Any) -> bool:
    """Does `base.__new__` make an instance that lacks its attributes only?

    A class written in C holds more, and may refuse."""
    if not cls.__flags__ & HEAP_TYPE:
        return False
    # To try it would make an object, whose `__del__` would run the user's code.
    if type(member_of(cls, "__del__")) is FunctionType:
        return True

    try:
        return isinstance(base.__new__(cls), cls)
    except TypeError:
        return False


def is_users(thing: Any) -> bool:
    """Is this class or function the user's, who may change it?"""
    return str(thing.__module__).split(".")[0] not in TRUSTED


def has_own_lookup(cls: type) -> bool:
    """Does each `obj.name`, or at least `obj.__class__`, run the user's code?"""
    return FunctionType in (
        type(cls.__getattribute__),
        type(getattr(cls.__dict__.get("__class__"), "fget", None)),
    )


def is_a(obj: Any, classes: Any) -> bool:
    """`isinstance`, without a look at `obj.__class__`: that may be a property, and capture must not
    run the user's code."""
    if has_own_lookup(type(obj)):
        return issubclass(type(obj), classes)
    return isinstance(obj, classes)


def own_dict(value: Any) -> dict[str, Any]:
    """The instance's own attributes."""
    if not type(value).__dictoffset__:
        return {}
    own: dict[str, Any] = object.__getattribute__(value, "__dict__")
    return own
