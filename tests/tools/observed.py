"""Everything that a call gives and leaves behind, as something that can be compared."""

import collections
import contextlib
import io
import random
import types

import torch
from language_programs import LOG, functions

PLAIN = (int, float, complex, bool, str, bytes, type(None), type(...), torch.dtype, torch.device)


def describe(value, seen):
    """A value as something comparable: types, contents, and which parts of it are one object."""
    cls = type(value)
    if cls in PLAIN or isinstance(
        value, (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType)
    ):
        return cls.__name__, repr(value)
    if cls in (tuple, frozenset) and all(type(item) in PLAIN for item in value):
        return cls.__name__, repr(value)
    if id(value) in seen:
        return "again", seen[id(value)][0]
    seen[id(value)] = len(seen), value
    go = lambda part: describe(part, seen)
    if isinstance(value, torch.Tensor):
        facts = (
            value.dtype,
            value.stride(),
            value.requires_grad,
            value.is_inference(),
            value.is_leaf,
        )
        return (cls, *facts, value.tolist(), go(dict(value.__dict__)))
    inside = []
    if isinstance(value, (list, tuple, collections.deque, torch.Size)):
        inside += map(go, list(value))
    elif isinstance(value, dict):
        inside += [(go(key), go(item)) for key, item in value.items()]
        inside.append(value.default_factory if isinstance(value, collections.defaultdict) else None)
    elif isinstance(value, (set, frozenset)):
        inside += map(go, sorted(value, key=repr))
    elif isinstance(value, types.FunctionType):
        cells = [go(cell.cell_contents) for cell in value.__closure__ or ()]
        return (
            value.__qualname__,
            value.__doc__,
            cells,
            go(value.__defaults__),
            go(value.__kwdefaults__),
            go(value.__dict__),
        )
    elif isinstance(value, types.MethodType):
        return "method", value.__name__, go(value.__self__)
    elif isinstance(value, BaseException):
        inside += [
            str(value),
            go(value.args),
            go(value.__cause__),
            go(value.__context__),
            value.__suppress_context__,
        ]
    elif hasattr(type(value), "__next__"):
        inside += map(go, list(value))
    elif isinstance(value, (slice, range)):
        inside.append(repr(value))
    names = {name for base in cls.__mro__ for name in base.__dict__.get("__slots__", ())} & set(
        dir(value)
    )
    inside += [(name, go(getattr(value, name))) for name in sorted(names) if hasattr(value, name)]
    return (
        cls.__qualname__,
        inside,
        [(name, go(item)) for name, item in getattr(value, "__dict__", {}).items()],
    )


def run(function, make, turn):
    """Everything that a call gives and leaves behind."""
    torch.manual_seed(turn)
    random.seed(turn)
    LOG.clear()
    functions.STATE = 0
    args = make(turn)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = function(*args)
        except Exception as error:
            result = error
    state = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
    )
    torch.set_default_dtype(torch.float32)
    return describe(
        (result, args, LOG, functions.STATE, printed.getvalue(), state, random.random()), {}
    )
