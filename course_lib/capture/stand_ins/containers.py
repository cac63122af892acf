"""A container from outside: a copy, filled with what stands for the items.

In:  a list, tuple, deque or dict, or an instance of a class built on one; a set of constants.
Out: the copy, under a guard on its type and its keys (or its length). The program changes the copy;
the head does what differs.
In PyTorch: `torch/_dynamo/variables/lists.py`, `dicts.py` (`ConstDictVariable`), `sets.py`.
"""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib.capture.guard_tests import (
    Equals,
    KeysAre,
    LengthIs,
    PrintsAs,
    Test,
    TypeIs,
    has_literal,
)
from course_lib.capture.known import Known
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import ALL_OF, Source
from course_lib.capture.stand_ins.kinds import BY_IDENTITY, MAPPINGS, can_copy, solid_base
from course_lib.capture.values import CONSTANT_TYPES

if TYPE_CHECKING:
    from course_lib.capture.world import World


@dataclass(frozen=True)
class Container:
    """A container from outside; `base` is the builtin type that it is built on."""

    obj: Any
    base: Any
    source: Source

    @property
    def is_keyed(self) -> bool:
        return self.base in MAPPINGS

    @property
    def is_builtin(self) -> bool:
        """Is it of the builtin type itself?

        A class of the user's may say otherwise what an item is."""
        return type(self.obj) is self.base

    @property
    def keys(self) -> tuple[Any, ...]:
        """Keys, or places."""
        if self.is_keyed:
            return tuple(self.base.keys(self.obj))
        return tuple(range(self.base.__len__(self.obj)))

    @property
    def base_name(self) -> str:
        """How guards name the builtin type."""
        module, name = self.base.__module__, self.base.__name__
        if module == "builtins":
            return name
        return f"modules[{module!r}].{name}"

    @property
    def dict_class(self) -> str:
        """How guards name the type whose `keys` and `values` they call."""
        if self.base is collections.OrderedDict:
            return self.base_name
        return "dict"

    @property
    def length_expression(self) -> str:
        """How guards ask for the length. A class of the user's may say otherwise what `len` is."""
        if self.is_builtin:
            return "len({})"
        return f"{self.base_name}.__len__({{}})"

    def key_source(self, place: int) -> Source:
        """Where the key at this place is found: `[*dict.keys(d)][2]`."""
        return self.listed("keys").item(place)

    def listed(self, method: str) -> Source:
        """All keys, or all values (`method`), as a list: `[*dict.keys(d)]`.

        It is a step of its own on the path, so a check makes the list once, and takes each item
        from it."""
        return Source(")]", self.source, before=f"{ALL_OF}{self.dict_class}.{method}(")

    def item_source(self, place: int, key: Any) -> Source:
        """Where the item under `key`, the one at this place, is found: `d["a"]`.

        A key that cannot be written as Python text is not used. Its value is found by its place:
        `[*dict.values(d)][2]`. A class of the user's may have a `__getitem__` of its own, which
        must not run. So the builtin's is called: `dict.__getitem__(d, "a")`.
        """
        if not has_literal(key):
            return self.listed("values").item(place)
        if self.is_builtin or self.base is tuple:
            return self.source.item(key)

        # The class may have a `__getitem__` of its own: the builtin type's is asked.
        kind = self.base_name
        if self.is_keyed:
            kind = "dict"
        lookup = f"{kind}.__getitem__("
        return Source(f", {key!r})", self.source, before=lookup, pretty=f"[{key!r}]")


def container(world: World, obj: Any, source: Source) -> Any:
    """A rule of `make.py`: the stand-in of a list, tuple, deque or dict."""
    cls: Any = type(obj)
    base = solid_base(cls)
    if base in (object, types.SimpleNamespace) or not (cls is base or can_copy(cls)):
        return GO_ON

    outside = Container(obj, base, source)
    keys = outside.keys
    has_known_keys = all(has_known_value(world, key) for key in keys)
    if not has_known_keys and not all(map(is_equal_to_itself_only, keys)):
        return world.opaque(obj, source)

    assume_keys(world, outside, keys, has_known_keys)
    if base is tuple:
        items = [item(world, outside, place, key) for place, key in enumerate(keys)]
        known = world.know(tuple.__new__(cls, items), obj, source)
    elif outside.is_keyed:
        known = mapping(world, outside, keys, has_known_keys)
    else:
        known = sequence(world, outside, keys)
    # An instance of the user's class has attributes besides its items: filled in when asked for.
    known.attributes = None
    if not outside.is_builtin:
        known.attributes = {}
    return known.stand_in


def has_known_value(world: World, key: Any) -> bool:
    """Is this a key that a guard can compare?"""
    return type(key) in (*CONSTANT_TYPES, tuple, frozenset) or world.is_static(key)


def is_equal_to_itself_only(key: Any) -> bool:
    """A constant, or a key that is equal to no other object?"""
    if type(key) in CONSTANT_TYPES:
        return True
    return {type(key).__eq__, type(key).__hash__} <= BY_IDENTITY


def assume_keys(world: World, outside: Container, keys: tuple[Any, ...], named: bool) -> None:
    """Guard type and keys; of a sequence, or where the keys cannot be compared, the length.

    `named`: a guard can compare each key."""
    tests: list[Test] = [TypeIs(type(outside.obj))]
    if outside.is_keyed and named:
        kind = "keys"
        listed = "tuple({})"
        if not outside.is_builtin:
            listed = f"tuple({outside.dict_class}.keys({{}}))"
        tests.append(KeysAre(keys, listed))
        # 1, 1.0 and True are equal
        if not all(type(key) is str for key in keys):
            tests.append(PrintsAs(repr(keys), listed))
    else:
        kind = "length"
        tests.append(LengthIs(len(keys), outside.length_expression))
    if outside.base is collections.deque:
        tests.append(Test("{}.maxlen", "==", outside.obj.maxlen))
    world.assume(outside.source, kind, *tests)


def item(world: World, outside: Container, place: int, key: Any) -> Any:
    """What stands for one item."""
    real_item = outside.base.__getitem__(outside.obj, key)
    return world.wrap(real_item, outside.item_source(place, key))


def sequence(world: World, outside: Container, keys: tuple[Any, ...]) -> Known:
    """A list or a deque.

    It becomes known before its items are wrapped, for one of them may hold it."""
    cls, base, obj = type(outside.obj), outside.base, outside.obj
    stand_in: Any
    if base is collections.deque:
        stand_in = cls(maxlen=obj.maxlen)
    else:
        stand_in = base.__new__(cls)
    known = world.know(stand_in, obj, outside.source)
    for place, key in enumerate(keys):
        base.append(stand_in, item(world, outside, place, key))

    # compared at the end: what differs is a side effect
    known.items_before = list(base.__iter__(stand_in))
    return known


def mapping(world: World, outside: Container, keys: tuple[Any, ...], named: bool) -> Known:
    """A dict of some kind.

    It becomes known before its items are wrapped, for one of them may hold it."""
    base, obj, source = outside.base, outside.obj, outside.source
    stand_in: Any = base.__new__(type(obj))
    if base is collections.defaultdict:
        stand_in.default_factory = world.wrap(obj.default_factory, source.attr("default_factory"))

    known = world.know(stand_in, obj, source)
    for place, key in enumerate(keys):
        # A key that can be written down stands for itself. Another one is an object from outside,
        # at a place of its own.
        stand_in_key = key
        if not named:
            stand_in_key = world.wrap(key, outside.key_source(place))
        base.__setitem__(stand_in, stand_in_key, item(world, outside, place, key))

    # compared at the end: what differs is a side effect
    known.items_before = dict(base.items(stand_in))
    return known


def set_of_constants(world: World, obj: Any, source: Source) -> Any:
    """A rule of `make.py`: a set or frozenset, guarded by value."""
    cls = type(obj)
    if cls not in (set, frozenset):
        return GO_ON
    if not all(
        type(part) in CONSTANT_TYPES or has_literal(part) or world.is_static(part) for part in obj
    ):
        return GO_ON

    tests: list[Test] = [TypeIs(cls), Equals(cls(obj))]
    # 1, 1.0 and True are equal
    if not all(type(part) is str for part in obj):
        tests.append(Test("set(map(repr, {}))", "==", {*map(repr, obj)}))
    world.assume(source, "value", *tests)

    # A set may change: what it held before tells at the end what is to be done to the real one.
    items_before = list(obj) if cls is set else None
    return world.know(cls(obj), obj, source, items_before=items_before).stand_in
