"""The values on the interpreter's stack, put into words: tensors by the node that computes them."""

from __future__ import annotations

import types
from typing import Any

import torch

from course_lib.capture.graph import PLAIN
from course_lib.capture.world import NULL, Handled, World, is_full

BRACKETS: dict[type, str] = {list: "[{}]", tuple: "({})", set: "{{{}}}", frozenset: "{{{}}}"}


def in_words(world: World, value: Any, depth: int = 4) -> str:
    """A value as the stack is shown."""
    if depth == 0:
        return "…"
    say = lambda one: in_words(world, one, depth - 1)
    listed = lambda values: shorten(", ".join(map(say, values)))
    if isinstance(value, torch.Tensor):
        return (
            f"{name_of(world, value)}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        )
    if type(value) is Handled:  # what CPython has there
        return say(value.before)
    known = world.of(value)
    if isinstance(value, torch.nn.Module):
        return f"{type(value).__name__}()"
    if type(value) is types.BuiltinMethodType and isinstance(value.__self__, torch.Tensor):
        return f"{say(value.__self__)}.{value.__name__}"
    if isinstance(value, types.MethodType):
        return f"{say(value.__self__)}.{value.__func__.__name__}"
    if type(value) in BRACKETS:
        return BRACKETS[type(value)].format(listed(value))
    if type(value) is dict:
        return (
            "{"
            + shorten(", ".join(f"{say(key)}: {say(item)}" for key, item in value.items()))
            + "}"
        )
    if type(value) is types.CellType:
        return f"cell({known.source.shown if known else say(value.cell_contents) if is_full(value) else 'empty'})"
    if isinstance(value, types.FunctionType):
        return f"{value.__name__}()"
    if world.is_static(value) and isinstance(getattr(value, "__name__", None), str):
        return str(value.__name__)
    if type(value) is slice:
        return f"slice({listed((value.start, value.stop, value.step))})"
    plain = type(value) in PLAIN or isinstance(value, (range, torch.SymInt)) or value is NULL
    return shorten(repr(value)) if plain else f"{type(value).__name__} object"


def name_of(world: World, tensor: torch.Tensor) -> str:
    """Its node's name, or where it comes from."""
    known, (_, node) = world.of(tensor), world.builder._nodes.get(id(tensor), (None, None))
    return node.name if node is not None else known.source.shown if known is not None else "tensor"


def shorten(text: str, width: int = 40) -> str:
    """`text`, cut in the middle."""
    return text if len(text) <= width else text[: width - 12] + " … " + text[-9:]
