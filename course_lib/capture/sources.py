"""Where a value came from.

A `Source` is a path from the frame to an object: `self._modules['ln']._parameters['weight']`. It
prints as the Python expression that finds the object again on the next call; guards test it there
(`guard_tests.py`), and the head fetches graph inputs through it.
`Unsupported`: where capture stopped.
In PyTorch: `torch/_dynamo/source.py` (`LocalSource`, `AttrSource`, `GetItemSource`, ...), `exc.py`
(`Unsupported`).
"""

import builtins
import keyword
import linecache
import math
import sys
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from course_lib.frames.hook import class_version
from course_lib.twin import model_of

MOVED = (AttributeError, LookupError, TypeError, ArithmeticError, ValueError, RuntimeError)
"""What looking up a path may raise when the objects on it have changed: then the guard does not
hold."""


def is_finite(number: Any) -> bool:
    """Is this a float, and neither infinite nor NaN?"""
    return type(number) is float and math.isfinite(number)


HELPERS: dict[str, Any] = {
    "modules": sys.modules,
    "torch": torch,
    "math": math,
    "CellType": CellType,
    "FunctionType": FunctionType,
    "MethodType": MethodType,
    "MOVED": MOVED,
    "class_version": class_version,
    "model_of": model_of,
    "is_finite": is_finite,
}
"""What heads and checks use by name. Other modules add to it."""
# Where an `nn.Module` keeps what a user knows as its attributes
REGISTRIES = "_parameters", "_buffers", "_modules"
ALL_OF = "[*"  # How a step begins that lists all keys or values of a dict
MODEL_OF = "model_of("  # How a step begins that leads from a compiled twin to its module
FUNCTION = "__func"  # The name by which checks and heads know the frame's function object


@dataclass(frozen=True)
class Attribute:
    """The last step of a path is `.name`."""

    name: str


@dataclass(frozen=True)
class Item:
    """The last step of a path is `[key]`."""

    key: Any


@dataclass(frozen=True)
class Source:
    """A path to an object, as Python: the expression of a shorter path, with text before and after
    it. `getattr(x.y, 'class')` is the path `x.y` between `getattr(` and `, 'class')`."""

    # The text behind the shorter path
    after: str
    # The shorter path; None for a root: a variable of the frame, its function, or a module
    base: "Source | None" = None
    # The text in front of the shorter path
    before: str = ""
    # What a user would write behind the shorter path; None if it is as in `before` and `after`
    pretty: str | None = None
    # True if a user would write `pretty` alone, without the shorter path: a variable's name is
    # written without the dict or the function in which it lies
    alone: bool = False
    # The module's name if this is the root `Imported(module)`
    module: str = ""
    # True if the attribute is read from the object's `__dict__`: its class has a `__getattr__`, and
    # then `base.name` is slow. Not compared: the path leads to the same object either way.
    in_dict: bool = field(default=False, compare=False)
    # The last step as a record, if it is an attribute or an item
    step: Attribute | Item | None = field(default=None, compare=False)

    def from_base(self, base: str) -> str:
        """The Python expression, given the expression of `base`."""
        return f"{self.before}{base}{self.after}"

    @property
    def expr(self) -> str:
        """The whole Python expression."""
        return self.from_base(self.base.expr if self.base else "")

    @property
    def bases(self) -> "tuple[Source, ...]":
        """The shorter paths that lead to it, from the root on."""
        if self.base:
            return (*self.base.bases, self.base)
        return ()

    @property
    def root(self) -> "Source":
        """The path from which it starts."""
        return self.base.root if self.base else self

    @property
    def shown(self) -> str:
        """The expression as the user would write it: `self.ln.weight`, not
        `self._modules['ln']._parameters['weight']`."""
        registry = self.base
        if registry and registry.base and registry.is_registry and isinstance(self.step, Item):
            module, key = registry.base.shown, self.step.key
            if str(key).isdigit():
                return f"{module}[{key}]"
            return f"{module}.{key}"

        base = self.base.shown if self.base and not self.alone else ""
        if self.pretty is None:
            return self.from_base(base)
        return base + self.pretty

    @property
    def is_registry(self) -> bool:
        """Does a module keep its parameters, buffers or children there?"""
        return isinstance(self.step, Attribute) and self.step.name in REGISTRIES

    @property
    def is_own_dict(self) -> bool:
        """Is it the `__dict__` of an object?"""
        return self.step == Attribute("__dict__")

    @property
    def is_variable(self) -> bool:
        """Is it a parameter of the frame, or its function?"""
        return self.base is None and not self.module

    def attr(self, name: str) -> "Source":
        """`base.name`"""
        if keyword.iskeyword(name):
            return Source(f", {name!r})", self, "getattr(", f".{name}")
        # the user knows the variable, and not the cell that holds it
        pretty = "" if self.alone and name == "cell_contents" else None
        return Source(f".{name}", self, pretty=pretty, step=Attribute(name))

    def item(self, key: Any) -> "Source":
        """`base[key]`"""
        return Source(f"[{key!r}]", self, step=Item(key))

    def inside(self, function: str) -> "Source":
        """`function(base)`"""
        return Source(after=")", base=self, before=f"{function}(")

    def type(self) -> "Source":
        """`type(base)`"""
        return self.inside("type")

    def model(self) -> "Source":
        """The module of which `base` is the compiled twin."""
        return Source(after=")", base=self, before=MODEL_OF, pretty="")

    @property
    def twin(self) -> "Source | None":
        """Where the compiled twin is, if this is the path from it to its module (`model`); else
        None."""
        return self.base if self.before == MODEL_OF else None

    def variable(self, name: str, at: str = "") -> "Source":
        """A variable that is shown by its name alone.

        Without `at` it is a global variable: the item `name` of the dict `base`. With `at` it is a
        variable of an enclosing function, which lies in a cell of the function `base`: `at` is the
        path from there (`.__closure__[0].cell_contents`).
        """
        if at:
            return Source(at, self, pretty=name, alone=True)
        return Source(f"[{name!r}]", self, pretty=name, alone=True, step=Item(name))

    def __str__(self) -> str:
        return self.shown


def variables(names: Any) -> dict[str, str]:
    """By parameter, the variable of heads and checks: the same name, unless they use that
    themselves (`type`, `torch`)."""
    return {name: variable_for(name, names) for name in names}


LIST_VARIABLES = {"locals", "dir"}


def lists_variables(code: CodeType) -> bool:
    """Does this code name a function that lists the variables of the frame that calls it, also
    those that no line reads?"""
    return not LIST_VARIABLES.isdisjoint(code.co_names)


def variable_for(name: str, names: Any) -> str:
    """A parameter's own name, with as many `_` behind it as it takes to be free."""
    called = name
    while hasattr(builtins, called) or called in HELPERS or (called != name and called in names):
        called += "_"
    return called


def Local(name: str, called: str = "") -> "Source":
    """An argument of the frame.

    `called`: what heads and checks call it, if that is known (`variables`)."""
    return Source(called or variables([name])[name], pretty=name)


FRAME = Source(FUNCTION)  # The frame's own function object


def Imported(name: str) -> "Source":
    """A module that has been imported."""
    return Source(f"modules[{name!r}]", pretty=name, module=name)


class Location(NamedTuple):
    """A place in the user's source.

    `column` and `end_column` count from 0 and are -1 where Python does not know them."""

    filename: str
    line: int
    function: str
    column: int = -1
    end_column: int = -1

    @property
    def text(self) -> str:
        """The source line, stripped."""
        return linecache.getline(self.filename, self.line).strip()

    @property
    def caret(self) -> str:
        """The source line with `^^^` under the expression."""
        raw = linecache.getline(self.filename, self.line).rstrip("\n")
        if not self.text or self.column < 0:
            return self.text
        start = self.column - (len(raw) - len(raw.lstrip()))
        return f"{self.text}\n{' ' * start}{'^' * max(1, min(self.end_column, len(raw)) - self.column)}"

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}"


def attribute_of(source: Source | None, name: str) -> Source | None:
    """The place of an attribute; None if its owner has no known place."""
    return source.attr(name) if source else None


@dataclass(eq=False)
class Unsupported(Exception):
    """Capture met something that has no form in a graph.

    reason: one sentence; hint: what the user can do; stack: the calls that led to the location,
    outermost first.
    as_eager: why the graph that ends here has to run operation by operation; "" if it may be
    compiled.
    anew: what is outside has changed in a way that capture wants, so it starts again."""

    reason: str
    hint: str = ""
    location: Location | None = None
    instruction: str = ""
    offset: int = -1
    stack: tuple[Location, ...] = field(default=())
    as_eager: str = ""
    anew: bool = False

    def __str__(self) -> str:
        lines = [self.reason]
        if self.location:
            lines.append(f"  at {self.location} in {self.location.function}")
            lines += ["    " + row for row in self.location.caret.splitlines()]
        if len(self.stack) > 1:
            lines.append(
                "  reached through "
                + " → ".join(f"{call.function} ({call})" for call in self.stack)
            )
        if self.hint:
            lines.append(f"  what to do: {self.hint}")
        return "\n".join(lines)
