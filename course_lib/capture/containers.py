"""Operators, truth, iteration and items of symbolic values: what Python does through `__add__`, `__bool__`,
`__iter__`, `__getitem__`.

The rule throughout: known constants are computed now, tensors go into the graph, and whatever is neither stops the
capture.
In PyTorch: `torch/_dynamo/variables/builtin.py` and `lists.py`, `dicts.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from course_lib.capture.graph import is_plain
from course_lib.capture.sources import Member
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import Constant, Dict, Iterator, Module, Object, Sequence, Tensor, Value

if TYPE_CHECKING:
    from course_lib.capture.interpreter import Interpreter

C = TypeVar("C", Sequence, Dict)
MODULE_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList)


def constant(value: Value) -> Any:
    """The Python object behind a value that must be known now; tuples and lists of constants count."""
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, Sequence):
        return value.cls(constant(item) for item in value.items)
    if isinstance(value, Tensor):
        raise Unsupported(
            f"Python needs the number in the tensor {value}, which is not known while capturing",
            "keep it a tensor, or compute it outside the compiled function",
        )
    raise Unsupported(f"{value} is not a constant")


def is_constant(value: Value) -> bool:
    """Is the value known now, through and through?"""
    return isinstance(value, Constant) or (isinstance(value, Sequence) and all(map(is_constant, value.items)))


def key(value: Value) -> Any:
    """A value as a dict key."""
    found = constant(value)
    try:
        hash(found)
    except TypeError:
        raise Unsupported(f"{value} is used as a dict key but cannot be hashed") from None
    return found


def own(value: Value, kind: type[C]) -> C:
    """A container that this frame made, so that changing it is nobody else's business (yet)."""
    if not isinstance(value, kind):
        raise Unsupported(f"{value} is changed, which is not a plain {kind.__name__.lower()}")
    if value.source is not None:
        raise Unsupported(
            f"changes {value.source}, which existed before the call",
            "return the new value and let the caller keep it",
        )
    return value


def has_tensor(value: Value) -> bool:
    if isinstance(value, Sequence):
        return any(map(has_tensor, value.items))
    return isinstance(value, Tensor)


def operate(it: Interpreter, function: Callable[..., Any], args: list[Value], symbol: str) -> Value:
    """An operator: `function(*args)`."""
    if any(isinstance(arg, Tensor) for arg in args):
        return it.context.builder.call(function, args, {})
    if all(isinstance(arg, Constant) for arg in args):
        return evaluate(function, args)
    left = args[0]
    if isinstance(left, Sequence) and len(args) == 2:
        right = args[1]
        if symbol == "+" and isinstance(right, Sequence) and left.cls is right.cls:
            return Sequence(left.cls, left.items + right.items)
        if symbol == "+=" and isinstance(right, Sequence) and left.cls is right.cls is tuple:
            return Sequence(tuple, left.items + right.items)
        if symbol == "+=" and left.cls is list:
            own(left, Sequence).items.extend(items(it, right))
            return left
        if symbol == "*" and isinstance(right, Constant) and type(right.value) is int:
            return Sequence(left.cls, left.items * right.value)
        if is_constant(left) and is_constant(right):
            return evaluate(function, args)
    raise Unsupported(f"the operator {symbol} on {' and '.join(map(str, args))}")


def evaluate(function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value] | None = None) -> Value:
    """Call a pure function on constants, now."""
    try:
        result = function(*map(constant, args), **{name: constant(v) for name, v in (kwargs or {}).items()})
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"{getattr(function, '__name__', function)} raises {type(error).__name__}: {error}") from None
    return from_python(result)


def from_python(result: Any) -> Value:
    """The value for a Python object computed now: immutable ones are constants, lists and dicts are the frame's own."""
    if is_plain(result):
        return Constant(result)
    if type(result) in (list, tuple):
        return Sequence(type(result), [from_python(item) for item in result])
    if type(result) is dict:
        return Dict({key: from_python(item) for key, item in result.items()})
    raise Unsupported(f"a {type(result).__name__} is computed, which capture has no symbolic form for")


def truth(value: Value) -> bool:
    """What `if value:` decides."""
    match value:
        case Constant():
            return bool(value.value)
        case Sequence() | Dict():
            return bool(value.items)
        case Tensor():
            raise Unsupported(
                "a branch depends on the data in a tensor",
                "use torch.where to compute both sides, torch.cond for a real branch, or move the `if` out of the function",
            )
        case Module() if isinstance(value.value, MODULE_CONTAINERS):
            return len(value.value) > 0
        case Object() if not hasattr(type(value.value), "__bool__") and not hasattr(type(value.value), "__len__"):
            return True
    raise Unsupported(f"the truth of {value} is not known while capturing")


def is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None


def same_object(left: Value, right: Value) -> bool:
    """`left is right`"""
    if isinstance(left, Constant) and isinstance(right, Constant):
        return left.value is right.value
    if isinstance(left, Object) and isinstance(right, Object):
        return left.value is right.value
    return left is right


def contains(container: Value, item: Value) -> bool:
    """`item in container`"""
    if isinstance(container, Dict):
        return key(item) in container.items
    return constant(item) in constant(container)


def items(it: Interpreter, value: Value) -> list[Value]:
    """All that iterating over `value` gives, in a new list."""
    iterator = iterate(it, value)
    if not isinstance(iterator, Iterator):
        raise Unsupported(f"the items of {value} are not known while capturing")
    rest = iterator.items[iterator.position :]
    iterator.position = len(iterator.items)
    return rest


def iterate(it: Interpreter, value: Value) -> Iterator:
    """`iter(value)`"""
    match value:
        case Iterator():
            return value
        case Sequence():
            return Iterator(value.items)
        case Dict():
            return Iterator([Constant(name) for name in value.items])
        case Constant():
            try:
                return Iterator([from_python(item) for item in value.value])
            except TypeError:
                raise Unsupported(f"a loop over {value}, which is not iterable") from None
        case Tensor():
            rows = it.context.builder.call("unbind", [value], {})
            assert isinstance(rows, Sequence)
            return Iterator(rows.items)
        case Module() if isinstance(value.value, MODULE_CONTAINERS):
            return Iterator(submodules(it, value))
    raise Unsupported(f"a loop over {value}, whose items are not known while capturing")


def submodules(it: Interpreter, container: Module) -> list[Value]:
    """The children of a Sequential or ModuleList, each with its source."""
    children = container.value._modules
    if container.source is None:
        return [it.context.wrap_static(child) for child in children.values()]
    it.context.assume_keys(children, container.source.attr("_modules"))
    return [it.context.wrap(child, Member("_modules", name, base=container.source)) for name, child in children.items()]


def get_item(it: Interpreter, container: Value, index: Value) -> Value:
    """`container[index]`"""
    if isinstance(container, Tensor) or has_tensor(index):
        return it.context.builder.call(operator.getitem, [container, index], {})
    match container:
        case Constant():
            return evaluate(operator.getitem, [container, index])
        case Sequence():
            place = constant(index)
            try:
                found = container.items[place]
            except (IndexError, TypeError) as error:
                raise Unsupported(f"{container}[{place!r}] raises {type(error).__name__}") from None
            return Sequence(container.cls, found) if isinstance(found, list) else found
        case Dict():
            if (name := key(index)) not in container.items:
                raise Unsupported(f"the dict has no key {name!r}")
            return container.items[name]
        case Module() if isinstance(container.value, MODULE_CONTAINERS):
            place = constant(index)
            if type(place) is int and -len(container.value) <= place < len(container.value):
                return submodules(it, container)[place]
        case Module() if isinstance(container.value, torch.nn.ModuleDict) and container.source is not None:
            if (name := key(index)) in container.value:
                return it.context.wrap(container.value[name], Member("_modules", name, base=container.source))
    raise Unsupported(f"an item of {container} is read")


def set_item(it: Interpreter, container: Value, index: Value, value: Value) -> None:
    """`container[index] = value`"""
    if isinstance(container, Tensor):
        it.context.builder.call(operator.setitem, [container, index, value], {})
    elif isinstance(container, Dict):
        own(container, Dict).items[key(index)] = value
    else:
        target, place = own(container, Sequence), constant(index)
        if target.cls is not list or type(place) is not int or not -len(target.items) <= place < len(target.items):
            raise Unsupported(f"{container}[{place!r}] = {value}")
        target.items[place] = value
