"""What a call gives and leaves behind, and in what two calls differ."""

from __future__ import annotations

import contextlib
import io
import os
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
THIS = os.path.abspath(__file__)


@dataclass
class Seen:
    """Everything that can be compared after one call."""

    outcome: Any
    """("gives", what holds no tensor) or ("raises", type, message, lines of this folder in the traceback)."""
    facts: list[Any] = field(default_factory=list)
    """Of each tensor in the result and the arguments: where it is, its kind, and with which one it shares memory."""
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    warned: list[Any] = field(default_factory=list)
    """Category, message, file and line of each warning, in order."""
    printed: str = ""
    state: Any = None


def parts(value: Any, path: str, seen: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """All that can be reached from `value`, each with its path. What was reached before stands as its first path."""
    if isinstance(value, torch.Tensor) or not isinstance(value, ATOMS):
        if id(value) in seen:
            yield path, f"is {seen[id(value)]}"
            return
        seen[id(value)] = path

    yield path, value
    if isinstance(value, torch.Tensor):
        if value.is_leaf and value.grad is not None:
            yield from parts(value.grad, f"{path}.grad", seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from parts(item, f"{path}[{key!r}]", seen)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from parts(item, f"{path}[{i}]", seen)
    elif isinstance(value, BaseException):
        yield f"{path}.args", repr(value.args)
    if isinstance(value, torch.nn.Module):
        for name, item in (*value.named_parameters(), *value.named_buffers()):
            yield from parts(item, f"{path}.{name}", seen)
        yield f"{path}.training", [m.training for m in value.modules()]
    elif (
        hasattr(value, "__dict__")
        and not isinstance(value, (type, torch.Tensor))
        and not callable(value)
    ):
        for key, item in vars(value).items():
            yield from parts(item, f"{path}.{key}", seen)


ATOMS = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type,
    torch.dtype,
    torch.device,
    torch.Size,
)


def of_tensor(t: torch.Tensor, path: str, memory: dict[int, str]) -> Any:
    """The kind of a tensor: all but its values."""
    strided = t.layout is torch.strided
    strides = (
        [step for step, n in zip(t.stride(), t.shape, strict=True) if n > 1] if strided else []
    )
    if t.numel() == 0:
        strides = []
    shared = None
    if strided and t.numel():
        shared = memory.setdefault(t.untyped_storage().data_ptr(), path), t.storage_offset()
    return (
        path,
        type(t).__name__,
        t.dtype,
        tuple(t.shape),
        strides,
        t.requires_grad,
        t.is_leaf,
        t.is_inference(),
        shared,
    )


def lines(error: BaseException) -> list[Any]:
    """The places in this folder's programs through which an error came."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        (os.path.basename(frame.filename), frame.lineno, frame.name)
        for frame in frames
        if os.path.dirname(frame.filename) == HERE and frame.filename != THIS
    ]


def chain(error: BaseException | None) -> Any:
    """An error with what caused it."""
    if error is None:
        return None
    return (
        type(error).__qualname__,
        str(error),
        lines(error),
        chain(error.__cause__),
        chain(error.__context__),
    )


def differentiate(result: Any) -> None:
    """Backward from every tensor of the result that has a gradient, so that leaves among the arguments get theirs."""
    found = [
        value
        for _, value in parts(result, "result", {})
        if isinstance(value, torch.Tensor) and value.requires_grad and value.grad_fn is not None
    ]
    found = [t for t in found if t.dtype.is_floating_point]
    if found:
        torch.autograd.backward(found, [torch.full_like(t, 0.5) for t in found])


def observe(function: Callable[..., Any], make: Callable[[int], Any], turn: int) -> Seen:
    """Call `function` with the arguments of call `turn`."""
    torch.manual_seed(turn)
    random.seed(turn)
    arguments = make(turn)
    printed = io.StringIO()
    result = None
    # Or torch would show some of its warnings in the first run only.
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            result = function(*arguments)
            outcome: Any = ("gives",)
            differentiate(result)
        except Exception as error:
            outcome = ("raises", *chain(error))

    torch.set_warn_always(always)
    seen = Seen(outcome, printed=printed.getvalue())
    memory: dict[int, str] = {}
    plain = []
    known: dict[int, str] = {}
    for path, value in [
        *parts(result, "result", known),
        *parts(list(arguments), "arguments", known),
    ]:
        if isinstance(value, torch.Tensor):
            seen.facts.append(of_tensor(value, path, memory))
            seen.values[path] = value.detach()
        elif isinstance(value, (*ATOMS, set, frozenset, range, slice)):
            plain.append((path, type(value).__name__, repr(value)))
        else:
            plain.append(
                (
                    path,
                    type(value).__qualname__,
                    len(value) if isinstance(value, (list, dict, tuple)) else "",
                )
            )
    seen.outcome = (*outcome, plain)
    seen.warned = [
        (w.category.__name__, str(w.message), os.path.basename(w.filename), w.lineno)
        for w in caught
    ]
    seen.state = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        random.random(),
        torch.rand(()).item(),
    )
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    return seen


def differences(ours: Seen, eagers: Seen) -> list[str]:
    """In what the two differ, as text; empty where they do not."""
    found = [
        f"{name}:\n  ours   {getattr(ours, name)}\n  eager  {getattr(eagers, name)}"
        for name in ("outcome", "warned", "printed", "state")
        if getattr(ours, name) != getattr(eagers, name)
    ]
    found += [
        f"a tensor:\n  ours   {mine}\n  eager  {theirs}"
        for mine, theirs in zip(ours.facts, eagers.facts)
        if mine != theirs
    ]
    if len(ours.facts) != len(eagers.facts):
        found.append(f"{len(ours.facts)} tensors, eager has {len(eagers.facts)}")
    if found:
        return found

    for path, theirs in eagers.values.items():
        try:
            torch.testing.assert_close(ours.values[path], theirs, equal_nan=True)
        except AssertionError as error:
            found.append(f"{path}: {error}")
    return found
