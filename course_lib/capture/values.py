"""What stands on the symbolic stack.

Where CPython's interpreter holds an object, ours holds a `Value`: either a known Python object (`Constant`,
`Object`), or a stand-in for one that will exist only when the graph runs (`Tensor`), or a container whose items are
values. A value that was read from outside the frame has a `source`, so that it can be guarded and found again.

In PyTorch: `torch/_dynamo/variables/` (`ConstantVariable`, `TensorVariable`, `ListVariable`, ...: about 150 classes).
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from course_lib.capture.sources import Source


@dataclass(eq=False)
class Value:
    """Base of all symbolic values. Equality is identity: two values may become equal objects, but they are two."""

    source: Source | None = field(default=None, kw_only=True)


class Null(Value):
    """CPython's NULL on the value stack: 'no self here'."""

    def __str__(self) -> str:
        return "NULL"


NULL = Null()


@dataclass(eq=False)
class Constant(Value):
    """An immutable Python object that is known now: number, string, None, dtype, torch.Size, slice of constants."""

    value: Any

    def __str__(self) -> str:
        return shorten(repr(self.value))


@dataclass(eq=False)
class Tensor(Value):
    """A tensor of the graph. `fake` carries shape, stride, dtype and device; `node` computes it (None for an input
    that no operation has used yet: it becomes a placeholder on first use)."""

    fake: torch.Tensor
    node: fx.Node | None = None
    real: torch.Tensor | None = None
    """For inputs: the tensor this frame was called with, an example for the backend."""

    def __str__(self) -> str:
        name = self.node.name if self.node else str(self.source)
        return f"{name}: {str(self.fake.dtype).removeprefix('torch.')}{list(self.fake.shape)}"


@dataclass(eq=False)
class Object(Value):
    """A Python object that is known now and may have state: a module, a class, a builtin function, an instance."""

    value: Any

    def __str__(self) -> str:
        name = getattr(self.value, "__name__", None)
        return name if isinstance(name, str) else f"{type(self.value).__name__} object"


@dataclass(eq=False)
class Module(Object):
    """An `nn.Module` instance."""

    def __str__(self) -> str:
        return f"{type(self.value).__name__}()"


@dataclass(eq=False)
class Cell(Value):
    """A closure cell; `content` is None while it is empty. A cell that existed before the frame is looked into when
    it is read: `real` is the cell then, `source` where its contents are found."""

    content: Value | None = None
    real: types.CellType | None = None

    def __str__(self) -> str:
        return f"cell({self.content or self.source or 'empty'})"


@dataclass(eq=False)
class Function(Value):
    """A Python function, found or made by this frame (a lambda, a nested `def`): its code and what it closes over."""

    code: types.CodeType
    globals: dict[str, Any]
    cells: tuple[Cell, ...] = ()
    defaults: tuple[Value, ...] = ()
    kwdefaults: dict[str, Value] = field(default_factory=dict)
    real: types.FunctionType | None = None
    """The function object, if it existed before the frame."""
    home: Source | None = None
    """For a function made by this frame: where a function with the same globals is found."""

    def __str__(self) -> str:
        return f"{self.code.co_name}()"


@dataclass(eq=False)
class Method(Value):
    """A callable bound to its first argument."""

    function: Value
    self: Value

    def __str__(self) -> str:
        return f"{self.self}.{self.function!s}"


@dataclass(eq=False)
class TensorMethod(Value):
    """`tensor.name`, about to be called."""

    self: Tensor
    name: str

    def __str__(self) -> str:
        return f"{self.self}.{self.name}"


@dataclass(eq=False)
class PythonMethod(Value):
    """`container.name` or `constant.name`, about to be called."""

    self: Value
    name: str

    def __str__(self) -> str:
        return f"{self.self}.{self.name}"


@dataclass(eq=False)
class Super(Value):
    """`super(cls, self)`, about to be asked for an attribute."""

    cls: Value
    self: Value

    def __str__(self) -> str:
        return f"super({self.cls}, …)"


@dataclass(eq=False)
class Sequence(Value):
    """A list or a tuple of values. `cls` is list, tuple, or one of torch's named results (`torch.return_types.max`)."""

    cls: type
    items: list[Value]

    def __str__(self) -> str:
        inside = shorten(", ".join(map(str, self.items)))
        return f"[{inside}]" if self.cls is list else f"({inside})"


@dataclass(eq=False)
class Dict(Value):
    """A dict with constant keys."""

    items: dict[Any, Value]

    def __str__(self) -> str:
        return "{" + shorten(", ".join(f"{key!r}: {value}" for key, value in self.items.items())) + "}"


@dataclass(eq=False)
class Iterator(Value):
    """An iterator over values that are all known: the loop over it is unrolled. `items` is the list itself, as in
    CPython, so that a list that grows while it is looped over behaves as it should."""

    items: list[Value]
    position: int = 0

    def __str__(self) -> str:
        return f"iterator({len(self.items) - self.position} left)"


def shorten(text: str, width: int = 40) -> str:
    """`text`, cut in the middle."""
    return text if len(text) <= width else text[: width - 12] + " … " + text[-9:]
