"""The values on the interpreter's stack, put into words: tensors by the node that computes them."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch

from course_lib.capture.stand_ins.slots import is_full
from course_lib.capture.values import CONSTANT_TYPES
from course_lib.capture.world import NULL, Handled, World

BRACKETS: dict[type, str] = {list: "[{}]", tuple: "({})", set: "{{{}}}", frozenset: "{{{}}}"}
"""A kind of container → its brackets, for `str.format` (which writes `{{` as one brace)."""
WIDTH, END = 40, 9
"""A longer text is cut in its middle, so that this many letters of its end stay."""


def in_words(world: World, value: Any, depth: int = 4) -> str:
    """A value as the stack is shown. Containers are told down to `depth` levels."""
    if depth == 0:
        return "…"
    return Words(world, depth).of(value)


class Words:
    """Says values of one world; what they hold is said one level less deep."""

    def __init__(self, world: World, depth: int) -> None:
        self.world = world
        self.depth = depth

    def say(self, inner: Any) -> str:
        return in_words(self.world, inner, self.depth - 1)

    def listed(self, values: Iterable[Any]) -> str:
        """The items of a container, separated by commas."""
        return shorten(", ".join(self.say(value) for value in values))

    def of(self, value: Any) -> str:
        """The first that knows how to say it."""
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            return f"{name_of(self.world, value)}: {dtype}{list(value.shape)}"
        if type(value) is Handled:
            # CPython's stack has there what was being handled before.
            return self.say(value.before)
        if isinstance(value, torch.nn.Module):
            return f"{type(value).__name__}()"
        return self.function(value) or self.container(value) or self.plain(value)

    def function(self, value: Any) -> str:
        """A method with what it is bound to, or a function; '' for anything else."""
        if type(value) is types.BuiltinMethodType and isinstance(value.__self__, torch.Tensor):
            return f"{self.say(value.__self__)}.{value.__name__}"
        if isinstance(value, types.MethodType):
            return f"{self.say(value.__self__)}.{value.__func__.__name__}"
        if isinstance(value, types.FunctionType):
            return f"{value.__name__}()"
        return ""

    def container(self, value: Any) -> str:
        """A container with what is in it; '' for anything else."""
        if type(value) in BRACKETS:
            return BRACKETS[type(value)].format(self.listed(value))
        if type(value) is dict:
            pairs = [f"{self.say(key)}: {self.say(item)}" for key, item in value.items()]
            return f"{{{shorten(', '.join(pairs))}}}"
        if type(value) is types.CellType:
            return f"cell({self.in_cell(value)})"
        return ""

    def in_cell(self, cell: types.CellType) -> str:
        """Where a variable comes from if it is one from outside; else what it holds now."""
        known_outside = self.world.of(cell)
        if known_outside:
            return known_outside.source.shown
        if is_full(cell):
            return self.say(cell.cell_contents)
        return "empty"

    def plain(self, value: Any) -> str:
        """A number, a text, a module of Python; of other objects the class."""
        if self.world.is_static(value) and isinstance(getattr(value, "__name__", None), str):
            return str(value.__name__)
        if type(value) is slice:
            return f"slice({self.listed((value.start, value.stop, value.step))})"
        if (
            type(value) in CONSTANT_TYPES
            or isinstance(value, (range, torch.SymInt))
            or value is NULL
        ):
            return shorten(repr(value))
        return f"{type(value).__name__} object"


def name_of(world: World, tensor: torch.Tensor) -> str:
    """The name of a tensor's node, or of the place where the tensor comes from."""
    # (The tensor itself stands beside its node: while it lives, no other has its id.)
    _, node = world.builder._nodes.get(id(tensor), (None, None))
    if node is not None:
        return node.name

    known = world.of(tensor)
    if known is not None:
        return known.source.shown
    return "tensor"


def shorten(text: str, width: int = WIDTH) -> str:
    """`text`, cut in the middle."""
    if len(text) <= width:
        return text
    cut = " … "
    return text[: width - END - len(cut)] + cut + text[-END:]
