"""What capture relied on, as records: a `Guard` is a source and the tests that must hold there.

In:  what an instruction looked at: a class, a value, the keys of a dict, how a tensor looks.
Out: one `Test` for each question, and a `Guard` that says which source they are about and which
     line of the user caused them.

A test is used in three ways. `python(path)` is the condition that a check runs at each call,
`text(path)` is what a reader sees, and `explain(path, got)` says what was expected where it does
not hold. Each kind of question is a class of its own, so whoever works on guards asks for the kind
and never reads a text.
In PyTorch: `torch/_guards.py` (`Guard`), `torch/_dynamo/guards.py` (`GuardBuilder.TYPE_MATCH`,
`EQUALS_MATCH`, ...), `torch/csrc/dynamo/guards.cpp` (`LeafGuard` and what inherits from it).
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple

import torch

from course_lib.capture.sources import Location, Source

Operator = Literal["is", "is not", "==", "holds"]
Spell = Callable[[Any, Operator], str]
"""(object on the right, operator) → how generated code names it."""
OPPOSITE = {"is": "is not", "is not": "is", "==": "!="}
LONGEST_SHOWN = 80
"""Characters of a value that a failure shows."""


@dataclass(frozen=True)
class SameAs:
    """The right-hand side of a test that two sources hold one object, or do not."""

    source: Source

    @property
    def __name__(self) -> str:
        return self.source.shown


class Difference(NamedTuple):
    """Why a test does not hold: `part` was expected to be `expected` and is `got`.

    All three are texts for a reader."""

    part: str
    expected: str
    got: str


@dataclass(frozen=True)
class Test:
    """`left op right`: the smallest thing that can fail.

    `Test("len({})", "==", 3)` is `len(x) == 3` at the source `x`.

    left: a question, with `{}` where the expression of the source goes. right: the object that must
    be the answer, written as a literal where it can be. With `op` "holds", `left` is a whole
    condition; pretty: how a reader sees that.

    Generated checks ask the opposite (`fails`, `differs`). `holds` asks in Python, to find the test
    that failed; `explain` says it. `python` and `text` show the test.
    """

    __match_args__ = ("right",)

    left: str
    op: Operator
    right: Any = field(hash=False)
    pretty: str = field(default="", compare=False)

    def python(self, path: str) -> str:
        """The condition about the object that the expression `path` finds."""
        left = self.left.format(path)
        if self.op == "holds":
            return left
        return f"{left} {self.op} {literal(self.right)}"

    def fails(self, path: str, spell: Spell) -> str:
        """The opposite condition, as generated code asks it: so it can leave at once."""
        return self.differs(self.left.format(path), spell)

    def differs(self, answer: str, spell: Spell) -> str:
        """The opposite condition, where the expression `answer` stands on the left."""
        if self.op == "holds":
            return f"not ({answer})"
        return f"{answer} {OPPOSITE[self.op]} {spell(self.right, self.op)}"

    def text(self, path: str) -> str:
        """The condition as a reader sees it."""
        return self.pretty or self.python(path)

    def holds(self, got: Any, expected: Any) -> bool:
        """Is `got` what the test wants?

        `expected`: the object on the right, or what lies at the source that stands there."""
        if self.op == "holds":
            return bool(got)
        if self.op == "==":
            return not operator.ne(got, expected)  # as the generated code asks
        return (got is expected) == (self.op == "is")

    def part(self, path: str) -> str:
        """What was asked, as a reader sees it."""
        return self.pretty or self.left.format(path)

    def explain(self, path: str, got: Any) -> Difference:
        """What to say where the answer was `got`."""
        return Difference(self.part(path), short(self.right), short(got))


# ---- which object, which value -------------------------------------------------------------------


class TypeIs(Test):
    """The object is an instance of this very class, not of one below it. (`TYPE_MATCH`)"""

    def __init__(self, cls: type) -> None:
        super().__init__("type({})", "is", cls)


class Is(Test):
    """It is this very object. (`ID_MATCH`)"""

    def __init__(self, obj: Any) -> None:
        super().__init__("{}", "is", obj)


class HasCode(Test):
    """It is a function with this code: one that is made anew at each call counts as the same.

    (`CLOSURE_MATCH`)"""

    def __init__(self, code: CodeType) -> None:
        super().__init__("{}.__code__", "is", code)


class Equals(Test):
    """It is equal to this value, whose type has a test of its own. (`EQUALS_MATCH`)"""

    def __init__(self, value: Any) -> None:
        super().__init__("{}", "==", value)


class PrintsAs(Test):
    """Its `repr` is this one: tells 0.0 from -0.0, and finds NaN, which is equal to nothing."""

    def __init__(self, text: str, question: str = "{}") -> None:
        super().__init__(f"repr({question})", "==", text)


class SameObject(Test):
    """It is the object at another source, too: an argument that was passed twice.

    (`DUPLICATE_INPUT`)"""

    def __init__(self, source: Source) -> None:
        super().__init__("{}", "is", SameAs(source))

    def explain(self, path: str, got: Any) -> Difference:
        other = self.right.source.shown
        return Difference(self.part(path), f"the same object as {other}", "one that is not")


class AnotherObject(Test):
    """It is not the object at this other source. (`NO_TENSOR_ALIASING` is near.)"""

    def __init__(self, source: Source) -> None:
        super().__init__("{}", "is not", SameAs(source))

    def explain(self, path: str, got: Any) -> Difference:
        return Difference(self.part(path), f"another object than {self.right.source.shown}", "it")


class AllApart(Test):
    """It and the objects at these other sources are each another one."""

    others: tuple[Source, ...]

    def __init__(self, others: Sequence[Source]) -> None:
        # `len({*map(id, (x, y, z))}) == 3`. The source x goes in by `format`, so the braces of the
        # set are doubled.
        listed = ", ".join(verbatim(source.expr) for source in others)
        question = "len({{*map(id, ({}, " + listed + "))}})"
        shown = ", ".join(source.shown for source in others)
        pretty = "each another object: {}, " + shown
        super().__init__(question, "==", len(others) + 1, pretty)
        object.__setattr__(self, "others", tuple(others))  # the record is frozen

    def fails(self, path: str, spell: Spell) -> str:
        other_paths = ", ".join(spell(SameAs(source), "==") for source in self.others)
        return f"len({{*map(id, ({path}, {other_paths}))}}) != {self.right}"

    def text(self, path: str) -> str:
        return self.pretty.format(path)

    def part(self, path: str) -> str:
        return self.text(path)


def verbatim(text: str) -> str:
    """A part of a question that is no place for a source: a name may have braces."""
    return text.replace("{", "{{").replace("}", "}}")


def quoted(name: str) -> str:
    """A name as a part of a question."""
    return verbatim(repr(name))


# ---- containers and names ------------------------------------------------------------------------


class LengthIs(Test):
    """It has this many items. `counted`: how they are counted. (`SEQUENCE_LENGTH`)"""

    def __init__(self, length: int, counted: str = "len({})") -> None:
        super().__init__(counted, "==", length)


class KeysAre(Test):
    """It has these keys in this order. `listed`: how they are asked for. (`DICT_KEYS_MATCH`)"""

    def __init__(self, keys: Sequence[Any], listed: str = "tuple({})") -> None:
        super().__init__(listed, "==", keys)


class LacksKey(Test):
    """A dict has no such key. (`DICT_CONTAINS`)"""

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} not in {{}}", "holds", True)


class HasKey(Test):
    """A dict has such a key, whatever lies there. (`DICT_CONTAINS`)"""

    def __init__(self, name: str) -> None:
        super().__init__(f"{quoted(name)} in {{}}", "holds", True)


class LacksAttribute(Test):
    """An object has no such attribute. (`HASATTR`)"""

    def __init__(self, name: str) -> None:
        super().__init__(f"not hasattr({{}}, {quoted(name)})", "holds", True)


class SlotIsEmpty(Test):
    """An object with `__slots__` has nothing in this one. (`HASATTR`)"""

    def __init__(self, name: str) -> None:
        super().__init__(f"not is_full({{}}, {quoted(name)})", "holds", True)


class ClassAsSeen(Test):
    """A class has the members that capture has seen (`classes.SeenClass`).

    found: the class is looked up by its source at each call. Otherwise the very class that capture
    met is asked: has it changed? (TorchDynamo guards the entries of the class's dict that it looked
    up.)
    """

    found: bool

    def __init__(self, seen: Any, found: bool) -> None:
        left = "class_version({})" if found else "None"
        super().__init__(left, "==", seen)
        object.__setattr__(self, "found", found)  # the record is frozen

    def fails(self, path: str, spell: Spell) -> str:
        # a dict, which gives in C the answers that it has given before
        answers = spell(self.right.answers, "==")
        cls = path if self.found else f"{answers}.cls"
        return f"not {answers}[class_version({cls})]"

    def explain(self, path: str, got: Any) -> Difference:
        name = f"{self.right.cls.__name__}.{self.right.changed()}"
        return Difference(name, "what it was", "another")


# ---- tensors -------------------------------------------------------------------------------------
# `guards/tensors.py` asks seven of these at once, in C, as `TENSOR_MATCH` does.


class DtypeIs(Test):
    """A tensor has this dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__("{}.dtype", "is", dtype)


class NumbersAre(Test):
    """A tensor has these numbers, one for each dimension: its sizes, or its strides."""

    def explain(self, path: str, got: Any) -> Difference:
        """The first dimension that differs, where there are as many:
        `x.shape[0]: expected 3, got 4`."""
        if not isinstance(got, tuple) or len(got) != len(self.right):
            return super().explain(path, got)

        for dim, (want, have) in enumerate(zip(self.right, got, strict=True)):
            if want != have:
                return Difference(f"{self.part(path)}[{dim}]", short(want), short(have))
        return super().explain(path, got)


class SizesAre(NumbersAre):
    """A tensor has this shape, in elements."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__("{}.shape", "==", sizes)


class StridesAre(NumbersAre):
    """A tensor has these strides, in elements."""

    def __init__(self, strides: tuple[int, ...]) -> None:
        super().__init__("{}.stride()", "==", strides)


class SizeIs(Test):
    """One dimension of a tensor is fixed, while others may change."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__(f"{{}}.shape[{dim}]", "==", size)


class DimensionsAre(Test):
    """A tensor has this many dimensions."""

    def __init__(self, count: int) -> None:
        super().__init__("{}.ndim", "==", count)


class RequiresGrad(Test):
    """Does eager record a backward for this tensor?"""

    def __init__(self, requires: bool) -> None:
        super().__init__("{}.requires_grad", "is", requires)


class IsNegated(Test):
    """Is this tensor a view that negates what lies in memory (`torch._neg_view`)?"""

    def __init__(self, negated: bool) -> None:
        super().__init__("{}.is_neg()", "is", negated)


class IsConjugated(Test):
    """Is this tensor a view that conjugates what lies in memory (`x.conj()`)?"""

    def __init__(self, conjugated: bool) -> None:
        super().__init__("{}.is_conj()", "is", conjugated)


class IsOnCpu(Test):
    """The tensor lies in the memory of the CPU."""

    def __init__(self) -> None:
        super().__init__("{}.is_cpu", "is", True)


class DeviceIs(Test):
    """The tensor lies on this device, which is not the CPU."""

    def __init__(self, device: torch.device) -> None:
        super().__init__("{}.device", "==", device)


# ---- the state of the interpreter, and conditions ------------------------------------------------


class SwitchIs(Test):
    """A function of torch that takes nothing gives this: `torch.is_grad_enabled()`.

    (`GLOBAL_STATE`)

    path: its name from torch on, such as `torch.is_grad_enabled`.
    """

    path: str

    def __init__(self, path: str, value: Any, op: Operator | None = None) -> None:
        if op is None:
            op = "==" if type(value) in (int, str) else "is"
        super().__init__(f"{path}()", op, value)

        object.__setattr__(self, "path", path)  # the record is frozen


class Holds(Test):
    """A whole condition. `pretty`: how a reader sees it. (`SHAPE_ENV`, hooks)"""

    def __init__(self, condition: str, pretty: str = "") -> None:
        super().__init__(condition, "holds", True, pretty)


# ---- a guard -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """What capture assumed about the object at `source`, and the user's line that caused it.

    `kind` is one of: tensor, value, type, identity, length, keys, absent, present, class, hooks,
    state, sizes, and what corners add (logger, names).
    """

    source: Source
    kind: str
    tests: tuple[Test, ...]
    cause: Location | None = field(default=None, compare=False)
    # The line that looked at it, maybe of an installed library
    inner: Location | None = field(default=None, compare=False)

    @property
    def expr(self) -> str:
        """The whole assumption as one Python expression."""
        return " and ".join(test.text(self.source.shown) for test in self.tests)

    def __str__(self) -> str:
        if self.cause is None:
            return self.expr
        return f"{self.expr}    # {self.cause}: {self.cause.text}"


# ---- values as text ------------------------------------------------------------------------------


def has_literal(value: Any) -> bool:
    """Can `value` be written as a Python literal that makes an equal object of the same type?"""
    if type(value) in (bool, int, str, bytes, type(None), type(...)):
        return True
    if type(value) is float:
        return value - value == 0.0  # not inf, not nan
    return type(value) is tuple and all(map(has_literal, value))


def literal(value: Any) -> str:
    """How a test's right-hand side is shown: a literal, else the object's name if it has one."""
    name = None
    if not has_literal(value):
        name = getattr(value, "__name__", None)
    return name or repr(value)


def short(value: Any) -> str:
    """A value in at most `LONGEST_SHOWN` characters: the middle of a longer text is left out."""
    has_name = isinstance(value, (type, FunctionType, SameAs))
    text = value.__name__ if has_name else repr(value)
    if len(text) <= LONGEST_SHOWN:
        return text

    at_the_front = (LONGEST_SHOWN - len("...")) // 2
    at_the_end = LONGEST_SHOWN - len("...") - at_the_front
    return f"{text[:at_the_front]}...{text[-at_the_end:]}"
