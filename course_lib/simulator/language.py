"""What Python's own words mean in a kernel: `range`, `and`, `not`, `max`, `assert`, a loop's
variable.

In:  values of a kernel: Triton's tensors and Python's numbers.
Out: the same. `simulator.rewriting` puts calls of these functions where the words stood.
In Triton: `triton/compiler/code_generator.py`, `visit_For`, `visit_BoolOp`, `visit_UnaryOp`,
`builtin_namespace`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from course_lib.simulator import watching
from course_lib.simulator.refused import GPUFault
from course_lib.simulator.settings import settings

Handle: Any = interpreter.TensorHandle
python_range = builtins.range


def value(x: Any) -> Any:
    """What gets a name is a value of the kernel: `a = 200` is an int32, no longer a Python
    number."""
    if isinstance(x, (tuple, tl.tuple)) and not hasattr(x, "_fields"):
        return type(x)(value(part) for part in x)
    # False: what is no number (a function, a dtype) stays what it is, instead of an error
    return interpreter.interpreter_semantic.to_tensor(x, False)


def number(x: Any) -> int:
    """A bound of a loop as a Python number."""
    if isinstance(x, tl.tensor):
        if watching.current is not None:
            watching.current.decision("loops", x.handle)
        return int(np.ravel(x.handle.data)[0])
    # A `tl.constexpr` has its number in `value`.
    return int(getattr(x, "value", x))


class StaticLoop:
    """`tl.static_range`: unrolled when it is compiled, its variable a Python number."""

    compiled = False  # Is it still a loop in the compiled kernel?

    def __init__(self, *bounds: Any, step: Any = None, **named: Any) -> None:
        # Python's `range` takes a step in the third place only.
        steps = [] if step is None else [step]
        if steps and len(bounds) == 1:
            bounds = (0, *bounds)
        self.numbers = python_range(*(number(bound) for bound in (*bounds, *steps)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numbers)


class Loop(StaticLoop):
    """`range` and `tl.range`: a loop of the compiled kernel, its variable an int32 (int64 where a
    bound is one)."""

    compiled = True  # Is it still a loop in the compiled kernel?

    def __init__(self, *bounds: Any, step: Any = None, **named: Any) -> None:
        # Bounds may be given by name: `tl.range(arg1=0, arg2=8)`.
        named_bounds = [named[name] for name in ("arg1", "arg2") if name in named]
        bounds = (*bounds, *named_bounds)
        super().__init__(*bounds, step=step)

        # The loop's variable is int32, or what int32 and the types of its bounds are promoted to.
        semantic = interpreter.interpreter_semantic
        self.dtype = tl.int32
        steps = [] if step is None else [step]
        for bound in (*bounds, *steps):
            self.dtype = semantic.integer_promote_impl(self.dtype, semantic.to_tensor(bound).dtype)
        self.numpy_dtype = interpreter._get_np_dtype(self.dtype)

    def __iter__(self) -> Iterator[Any]:
        for i in self.numbers:
            yield tl.tensor(Handle(np.array([i], self.numpy_dtype), self.dtype), self.dtype)

    def behind(self, name: str, loop: str) -> Any:
        """What the loop's variable `name` is once the loop has ended: whoever reads it gets an
        error. `loop`: "line 3", where the loop begins."""
        return tl.tensor(BehindLoop(name, loop, self.dtype), self.dtype)


class BehindLoop(Handle):
    """The variable of a loop that has ended.

    To Triton's compiler it has no value then, so on a GPU it may be any number. Reading it raises
    `GPUFault`."""

    def __init__(self, name: str, loop: str, dtype: Any) -> None:
        self.name, self.loop = name, loop
        self.dtype = dtype
        self.attr: dict[str, Any] = {}

    @property
    def data(self) -> Any:
        builder = interpreter.interpreter_builder
        program = watching.program_name(builder.grid_idx, builder.grid_dim)
        raise GPUFault(
            [
                f"{watching.line_of_the_kernel()}: program {program} reads `{self.name}` behind its "
                f"loop ({self.loop}), where a GPU has any number in it; "
                f"keep what you need under another name inside the loop"
            ]
        )

    def __bool__(self) -> bool:
        return bool(self.data)


def loop(kind: Any, *bounds: Any, **named: Any) -> Any:
    """What `for i in kind(*bounds)` of a kernel iterates over."""
    if kind is python_range:
        return Loop(*bounds, **named)
    return kind(*bounds, **named)


def both(*parts: Callable[[], Any]) -> Any:
    """`a and b`: elementwise for tensors; Python numbers decide at once."""
    return logical("logical_and", False, parts)


def either(*parts: Callable[[], Any]) -> Any:
    """`a or b`: elementwise for tensors; Python numbers decide at once."""
    return logical("logical_or", True, parts)


def logical(method: str, decides: bool, parts: tuple[Callable[[], Any], ...]) -> Any:
    """`and` or `or` of several values.

    method: the method of tensors for it. decides: the truth of a Python value that ends it, as
    False ends an `and`. parts: functions that give the values; those after the end are not
    called."""
    tensors: list[Any] = []
    for part in parts:
        value = part()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is decides:
            return value
    if not tensors:
        # As in Python: nothing has decided, so the last value is the result.
        return value

    # Python values that do not decide change nothing. Tensors are combined from the right.
    result = tensors.pop()
    while tensors:
        result = getattr(tensors.pop(), method)(result)
    return result


def negated(x: Any) -> Any:
    """`not a`."""
    if isinstance(x, tl.tensor):
        return x.__not__()
    return not x


def maximum(*numbers: Any) -> Any:
    return chosen(builtins.max, tl.maximum, numbers)


def minimum(*numbers: Any) -> Any:
    return chosen(builtins.min, tl.minimum, numbers)


def chosen(of_python: Any, of_triton: Any, numbers: tuple[Any, ...]) -> Any:
    """`max` or `min`: Python's for plain numbers, Triton's if one of them is a tensor."""
    if not any(isinstance(x, tl.tensor) for x in numbers):
        return of_python(*numbers)
    result = numbers[0]
    for x in numbers[1:]:
        result = of_triton(result, x)
    return result


def printed(*values: Any) -> None:
    """`print` in a kernel is `tl.device_print`: first one text, then the other values."""
    texts = [x for x in values if isinstance(x, str)]
    others = [x for x in values if not isinstance(x, str)]
    tl.device_print(" ".join(texts), *others)


def meant(function: Any) -> Any:
    """What a call of a Python builtin means in a kernel."""
    try:
        return MEANT.get(function, function)
    except TypeError:  # it has no hash, so it is no builtin
        return function


MEANT: dict[Any, Any] = {builtins.max: maximum, builtins.min: minimum, builtins.print: printed}


def asserted(condition: Callable[[], Any], message: Callable[[], Any]) -> None:
    """`assert`: without debug mode the compiler leaves it out."""
    if settings.debug:
        assert np.all(condition().handle.data), message()


def static_assert(condition: Any, message: str = "") -> None:
    assert condition, message


def static_print(*values: Any, **named: Any) -> None:
    """Nothing: the compiler prints it, once and with types (`judging` asks it).

    The programs print nothing."""


def with_named_formats(dot_scaled: Any) -> Any:
    """`tl.dot_scaled` with formats as `tl.constexpr`, which it expects.

    In the simulator a kernel's constants are plain texts."""

    def called(*arguments: Any, **named: Any) -> Any:
        by_name = {name: as_constant(x) for name, x in named.items()}
        return dot_scaled(*map(as_constant, arguments), **by_name)

    return called


def as_constant(x: Any) -> Any:
    """A text as a `tl.constexpr`; anything else itself."""
    if isinstance(x, str):
        return tl.constexpr(x)
    return x


def condition(x: Any) -> bool:
    """What `if`, `while` and `a if c else b` look at: a scalar. A block has no truth value."""
    if not isinstance(x, tl.tensor):
        return bool(getattr(x, "value", x))  # of a `tl.constexpr`
    if x.type.is_block():
        raise ValueError("Boolean value of Tensor with more than one value is ambiguous")
    if watching.current is not None:
        watching.current.decision("branches", x.handle)
    return bool(np.ravel(x.handle.data)[0])
