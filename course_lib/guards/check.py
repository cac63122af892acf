"""Guards as one generated Python function.

    def check(__func, self, x):
        try:
            if not looks_like(x, Tensor, float32, (32, 128, 768), (98304, 768, 1), False, False, -1): return False
            v1 = self._modules
            v2 = v1['ln']
            ...
            return True
        except (AttributeError, KeyError, ...):
            return False

Each source is looked up once, in a variable for the paths below it; `_tensors.c` asks all of a tensor. `first_failure` says why.
Most guards of a model are on what lies in dictionaries: parameters, settings, hooks. These are in a second function, called when
a dictionary has a new version. (Since Python 3.13 it gets none, nor tells its watchers, when its object stores a value.)
In PyTorch: `torch/_dynamo/guards.py` (`CheckFunctionManager`, `GuardBuilder`), `torch/csrc/dynamo/guards.cpp` (also "dict tags").
"""

import functools
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import torch

from course_lib.capture import FUNCTION, Guard, SameAs, Source, Test
from course_lib.capture.calls import HOOKS
from course_lib.capture.classes import SeenClass
from course_lib.capture.sources import HELPERS, MOVED, REGISTRIES, has_literal, variables
from course_lib.guards.tensors import LOOKS, PLAIN_TENSORS, has_dict_versions, in_c
from course_lib.written import define

IN_C = "looks_like", "unchanged", "note"
HELPERS.update(dict.fromkeys((*IN_C, "noted", "again")))  # so that no parameter is called so
OF_DICTS = "absent", "hooks", "keys"  # Kinds of guards that ask a dictionary
CONSTANTS = (
    bool,
    int,
    float,
    str,
    bytes,
    tuple,
    type(None),
    torch.dtype,
    torch.device,
    torch.memory_format,
)
"""Types whose values never change. Once a guard has found such a value in a dictionary, it holds until the dictionary changes."""
SWITCH = re.compile(r"torch(\.\w+)+\(\)")
"""A question to torch that takes nothing, such as `torch.is_grad_enabled()`."""
OPPOSITE = {"is": "is not", "is not": "is", "==": "!="}
FAILS = {
    "is": operator.is_not,
    "is not": operator.is_,
    "==": operator.ne,
    "holds": lambda got, _: not got,
}


class Failure(NamedTuple):
    """The first test that did not hold: `part` was expected to be `expected` and is `got`."""

    guard: Guard
    part: str
    expected: str
    got: str

    def __str__(self) -> str:
        because = (
            f" (assumed because of {self.guard.cause}: {self.guard.cause.text})"
            if self.guard.cause
            else ""
        )
        return f"{self.part}: expected {self.expected}, got {self.got}{because}"


class Check:
    """The compiled form of `guards` for a frame with these parameters. `function(func, *args)` answers True or False."""

    def __init__(
        self, guards: Sequence[Guard], parameters: Sequence[str], name: str = "frame"
    ) -> None:
        self.guards, self.name = tuple(guards), name
        self.parameters = tuple(variables(parameters).values())
        self.names: dict[str, Any] = {
            **HELPERS,
            **{name: getattr(in_c(), name, None) for name in IN_C},
            "noted": [b"", b""],
        }
        self._named: dict[int, str] = {}
        self._types = {
            guard.source: test.right
            for guard in guards
            if (test := guard.tests[0]).left == "type({})"
        }
        self._dicts = {guard.source for guard in guards if guard.kind in OF_DICTS}
        self.source = self._write()
        self.function: Callable[..., bool] = define(
            "check", self.source, f"guards of {name}", self.names
        )

    def __call__(self, func: FunctionType, *args: Any) -> bool:
        return self.function(func, *args)

    def _write(self) -> str:
        variables: dict[Source, str] = {}
        found: dict[Source, str] = {}
        lasting = {guard: None for guard in self.guards if self._lasts(guard)}
        asked = [guard for guard in self.guards if guard not in lasting]
        lines, again = self._asked(asked, variables), self._asked(lasting, found)
        if not lasting:
            return self._function("check", [*lines, "return True"])
        # To note: an object and its `__dict__`, roots first (each call looks them up); other dictionaries twice; tensors.
        dicts = [path for path in found if self._is_dict(path) and self._stays(path)]
        holders = {
            path: path.base if path.base and path.after == ".__dict__" else path for path in dicts
        }
        roots_first = sorted(holders.items(), key=lambda pair: self._stays(pair[1]))
        pairs = [(found.get(holder, holder.expr), found[path]) for path, holder in roots_first]
        pairs += [
            (f"{found[each.source]}[{name!r}]",) * 2
            for each in lasting
            if each.kind == "hooks"
            for name in HOOKS
        ]
        pairs += [
            (found[each.source], self._right(self._looks(each)))
            for each in lasting
            if each.kind == "tensor"
        ]
        roots = [
            self._variable(root, variables, lines)
            for root in holders.values()
            if not self._stays(root)
        ]
        lines.append(
            f"return unchanged({', '.join(['noted', *roots])}) or again({', '.join((FUNCTION, *self.parameters))})"
        )
        again.append(f"return note(noted, *({', '.join(map(', '.join, pairs))}))")
        return f"{self._function('check', lines)}\n\n{self._function('again', again)}"

    def _lasts(self, guard: Guard) -> bool:
        """Does it hold until a dictionary on its path changes? (Of tensors: is it there until then?)"""
        test, *more = guard.tests
        sources = (
            guard.source,
            *(test.right.source for test in guard.tests if isinstance(test.right, SameAs)),
        )
        if not has_dict_versions() or not all(map(self._stays, sources)):
            return False
        if guard.kind in OF_DICTS:
            return self._is_dict(guard.source)
        noted = guard.source.attr("__dict__") in self._dicts and not more
        is_type = test.left == "type({})" and (test.right in CONSTANTS or noted)
        return bool(self._looks(guard)) or (
            guard.kind != "tensor" and test.op != "holds" and (test.left == "{}" or is_type)
        )

    def _stays(self, path: Source) -> bool:
        """Is one object there until a dictionary changes that is found on the way?"""
        if path.base is None or path.base.module or path.before:
            return False
        inside = self._is_dict(path.base) or self._types.get(path.base) is tuple
        # in the `__dict__` of an object, or that itself
        found = path.in_dict or path.after == ".__dict__"
        return found or (path.after[0] == "[" and inside and self._stays(path.base))

    def _is_dict(self, path: Source) -> bool:
        return path.after[1:] in (*REGISTRIES, "__dict__") or self._types.get(path) is dict

    def _function(self, name: str, lines: list[str]) -> str:
        body = "\n        ".join(lines)
        signature = f"def {name}({', '.join((FUNCTION, *self.parameters))}):"
        return f"{signature}\n    try:\n        {body}\n    except MOVED:\n        return False\n"

    def _asked(self, guards: Iterable[Guard], variables: dict[Source, str]) -> list[str]:
        """The lines that return where a guard does not hold."""
        lines: list[str] = []
        for guard in guards:
            expr, looks = self._variable(guard.source, variables, lines), self._looks(guard)
            fails = [self._fails(test, expr, variables, lines) for test in guard.tests if not looks]
            if looks:
                fails = [f"not looks_like({expr}, {', '.join(map(self._right, looks))})"]
            together = " or " if len("".join(fails)) < 120 else " or \\\n                "
            lines.append(f"if {together.join(fails)}: return False")
        return lines

    def _variable(self, source: Source, variables: dict[Source, str], lines: list[str]) -> str:
        """The variable that holds the object at `source`, looked up on first use."""
        if source.is_variable:
            return source.expr
        if source not in variables:
            base = source.base.attr("__dict__") if source.base and source.in_dict else source.base
            found = self._variable(base, variables, lines) if base else ""
            variables[source] = name = f"v{len(variables)}"
            while name in self.parameters:
                variables[source] = name = "_" + name
            lines.append(
                f"{name} = {f'{found}[{source.after[1:]!r}]' if source.in_dict else source.from_base(found)}"
            )
        return variables[source]

    def _fails(self, test: Test, expr: str, variables: dict[Source, str], lines: list[str]) -> str:
        """The condition under which the test does not hold."""
        if test.op == "holds":
            return f"not ({test.left.format(expr)})"
        if SWITCH.fullmatch(test.left):
            return (
                f"{self._switch(test.left)} {OPPOSITE[test.op]} {self._right(test.right, test.op)}"
            )
        if isinstance(test.right, SameAs):
            return f"{test.left.format(expr)} {OPPOSITE[test.op]} {self._variable(test.right.source, variables, lines)}"
        if isinstance(test.right, SeenClass):  # what it does first, without a call
            seen = self._right(test.right)
            return f"{test.left.format(expr)} != (seen := {seen}).version and {test.left.format(expr)} != seen"
        return f"{test.left.format(expr)} {OPPOSITE[test.op]} {self._right(test.right, test.op)}"

    def _switch(self, call: str) -> str:
        """The call of one of torch's switches, by a name of its own: `torch._C.f()` looks two attributes up, in each call."""
        path = call.removesuffix("()").split(".")
        name, function = path[-1], functools.reduce(getattr, path[1:], torch)
        # a parameter, a helper or another switch may have the name already
        if name in self.parameters or self.names.setdefault(name, function) is not function:
            return call
        return f"{name}()"

    def _looks(self, guard: Guard) -> tuple[Any, ...]:
        """What `looks_like` takes to ask all that `guard` asks of a tensor; empty where it cannot."""
        *tests, last = guard.tests
        known = in_c() and (
            last.left == "{}.is_cpu" or (last.left == "{}.device" and last.right.type == "cuda")
        )
        if (
            not known
            or [test.left for test in tests] != LOOKS
            or tests[0].right not in PLAIN_TENSORS
        ):
            return ()
        return (*(test.right for test in tests), getattr(last.right, "index", -1))

    def _right(self, value: Any, op: str = "==") -> str:
        if has_literal(value) and (op == "==" or type(value) in (bool, type(None))):
            return repr(value)
        if id(value) not in self._named:
            base = getattr(value, "__name__", None) or type(value).__name__
            self._named[id(value)] = name = (
                f"{''.join(c if c.isalnum() else '_' for c in base)}_{len(self.names)}"
            )
            self.names[name] = value
        return self._named[id(value)]

    def first_failure(self, func: FunctionType, *args: Any) -> Failure | None:
        """Which test fails for this call, and on what; None if all hold."""
        namespace = {**self.names, FUNCTION: func, **dict(zip(self.parameters, args, strict=True))}
        for guard, test in ((each, test) for each in self.guards for test in each.tests):
            part, expected = test.pretty or test.left.format(guard.source.shown), test.right
            try:
                got = eval(test.left.format(guard.source.expr), namespace)
                if isinstance(expected, SameAs):
                    expected = eval(expected.source.expr, namespace)
            except MOVED as error:
                return Failure(guard, part, short(test.right), f"{type(error).__name__}: {error}")
            if FAILS[test.op](got, expected):
                return difference(guard, test, part, expected, got)
        return None


def difference(guard: Guard, test: Test, part: str, expected: Any, got: Any) -> Failure:
    """A failure told as narrowly as possible: one dimension of a shape rather than the whole."""
    if isinstance(expected, SeenClass):
        return Failure(
            guard, f"{expected.cls.__name__}.{expected.changed()}", "what it was", "another"
        )
    if isinstance(test.right, SameAs):
        way, found = (
            ("the same object as", "one that is not")
            if test.op == "is"
            else ("another object than", "it")
        )
        return Failure(guard, part, f"{way} {test.right.source.shown}", found)
    if (
        isinstance(expected, tuple)
        and isinstance(got, tuple)
        and len(expected) == len(got)
        and guard.kind == "tensor"
    ):
        for i, (want, have) in enumerate(zip(expected, got, strict=True)):
            if want != have:
                return Failure(guard, f"{part}[{i}]", short(want), short(have))
    return Failure(guard, part, short(expected), short(got))


def short(value: Any) -> str:
    text = value.__name__ if isinstance(value, (type, FunctionType, SameAs)) else repr(value)
    return text if len(text) <= 80 else f"{text[:38]}...{text[-39:]}"
