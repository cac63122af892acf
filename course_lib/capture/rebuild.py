"""How a value of the interpreted world is written as an expression of the real one.

In:  a value that the interpreted program returns, or leaves in an object from outside.
Out: an expression for the head. `__out[0]` is a tensor that the graph gives; `x` and
     `self.ln.weight` come from outside; what the program made itself is made anew: `[__out[0], 3]`.

One object stays one object: a value that is asked for twice gets a variable. This file decides
where a value comes from and keeps the names. How each kind of value is made anew stands in
`rebuild_kinds.py`.
In PyTorch: `PyCodegen.__call__` in `torch/_dynamo/codegen.py`, and the `reconstruct` methods in
`torch/_dynamo/variables/`.
"""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from course_lib.capture.classes import MISSING, is_a
from course_lib.capture.guard_tests import has_literal
from course_lib.capture.known import Known
from course_lib.capture.rebuild_kinds import (
    BY_TYPE,
    METHOD_TO_ADD_ITEMS,
    WAYS,
    is_instance_of_python_class,
    write_instance,
    write_reduced,
)
from course_lib.capture.sources import HELPERS, Source, Unsupported
from course_lib.capture.stand_ins.kinds import MAPPINGS
from course_lib.capture.values import CONSTANT_TYPES, name_of
from course_lib.capture.world import World
from course_lib.written import as_tuple

LONGEST_NAME = 40
"""Characters of an object's own name that a name in the head keeps."""


class Rebuilder:
    """Writes expressions, and into `body` the statements that they need to come first."""

    def __init__(self, world: World) -> None:
        self.world = world
        # The tensors (and generators of random numbers) that the graph is to give, in order
        self.outputs: list[Any] = []
        # Statements that fetch objects from outside, before the side effects may move them
        self.fetched: list[tuple[str, Source | str]] = []
        self.body: list[str] = []
        # Names that are bound to objects without a literal form
        self.names: dict[str, Any] = {}

        # By `id`: values that have an expression, and values whose expression is being made
        self._written: dict[int, Written] = {}
        self._being_written: set[int] = set()
        # Lists and dicts that were met again inside of themselves
        self._hold_themselves: set[int] = set()
        # Numbers for the names of variables
        self._count = itertools.count()

    # --- an expression for any value

    def rebuild(self, value: Any) -> str:
        """The expression that gives `value` in the real world.

        A value asked for twice is one object both times."""
        known = self.world.of(value)
        if known is not None and not self.has_own_place(known, value):
            return self.fetch_twin(known) or self.fetch(known)
        if type(value) in CONSTANT_TYPES and has_literal(value):
            return repr(value)
        if id(value) in self._written:
            return self._written[id(value)].text
        if id(value) in self._being_written:
            return self.name_of_unfinished(value)

        self._being_written.add(id(value))
        text = self.write(value)
        self._being_written.discard(id(value))

        # A container that holds itself has got a variable, empty, and is filled now: with the items
        # of `text`, which is another container.
        if id(value) in self._hold_themselves:
            name = self._written[id(value)].text
            method = METHOD_TO_ADD_ITEMS[type(value)]
            self.body.append(f"{name}.{method}({text})")
        self._written.setdefault(id(value), Written(value, text))
        return self._written[id(value)].text

    def has_own_place(self, known: Known, value: Any) -> bool:
        """Is `value` named by itself (`name_for`), not fetched by way of its path?

        So is a class or a module, unless a variable of the frame holds it. (A function is fetched:
        it may have been made anew, with the same code.)"""
        has_own_name = self.world.is_static(value) and not is_a(value, types.FunctionType)
        return has_own_name and not known.source.is_variable

    def name_of_unfinished(self, value: Any) -> str:
        """A variable for a container that is met again while its items are written: it contains
        itself."""
        if type(value) not in (list, dict):
            raise Unsupported(f"a {type(value).__name__} that contains itself is alive here")
        self._hold_themselves.add(id(value))
        return self.assign(f"{type(value).__name__}()", value)

    def write(self, value: Any) -> str:
        """The expression that makes `value` anew.

        What must stay one object is put into a variable by its way (`assign`), whose name is the
        expression. If its parts may refer to it, the way gives `assign` the value too, before the
        parts are written: they find the variable."""
        for way in WAYS:
            if way.applies(self, value):
                return way.write(self, value)

        special = BY_TYPE.get(type(value))
        if special is not None:
            return special(self, value)
        if is_instance_of_python_class(value):
            return write_instance(self, value)
        return write_reduced(self, value)

    def listed(self, values: Iterable[Any]) -> str:
        """A tuple of values."""
        return as_tuple([self.rebuild(item) for item in values])

    def display(self, items: Any) -> str:
        """The text of a list or a dict with these items."""
        if not is_a(items, dict):
            texts = [self.rebuild(item) for item in items]
            return f"[{', '.join(texts)}]"

        pairs = [f"{self.rebuild(key)}: {self.rebuild(item)}" for key, item in items.items()]
        return "{" + ", ".join(pairs) + "}"

    # --- variables and names

    def fetch(self, known: Known) -> str:
        """The real object that a stand-in from outside stands for."""
        if known.source.is_variable:
            return known.source.expr
        return self.hoist(known.stand_in, known.source)

    def fetch_twin(self, known: Known) -> str:
        """The compiled twin of a module, if the program met the twin and not the module itself;
        else ""."""
        twin = known.source.twin
        if twin is None:
            return ""
        if twin.is_variable:
            return twin.expr
        # The interpreted world has no object for the twin: its path takes that place.
        return self.hoist(value=twin, found=twin)

    def hoist(self, value: Any, found: Source | str) -> str:
        """A variable that gets what is at this source (or this expression) at the start of the
        head.

        `value`: what has this variable from now on."""
        if id(value) not in self._written:
            name = f"__in{next(self._count)}"
            self.fetched.append((name, found))
            self._written[id(value)] = Written(value, name)
        return self._written[id(value)].text

    def assign(self, text: str, value: Any = MISSING) -> str:
        """Give an object a variable, so that it is made once. With `value`, what is written from
        here on refers to `value` by this name, also while it is still being filled."""
        name = f"__v{next(self._count)}"
        self.body.append(f"{name} = {text}")
        if value is not MISSING:
            self._written[id(value)] = Written(value, name)
        return name

    def is_written(self, value: Any) -> bool:
        """Has `value` an expression already?"""
        return id(value) in self._written

    def name_for(self, obj: Any, wanted: str = "") -> str:
        """A name bound to an object that has no literal form."""
        for name, known in self.names.items():
            if known is obj:
                return name

        made_inside = id(obj) in self.world.made and is_a(obj, type)
        if obj is __build_class__ or made_inside:
            what = "a class is made here, and it or an instance of it outlives the graph"
            raise Unsupported(what, "make it outside")

        own_name = getattr(obj, "__name__", "")
        if HELPERS.get(own_name) is obj:
            return str(own_name)

        if not wanted:
            wanted = "globals" if is_a(obj, dict) else name_of(obj)
        name = label = "__" + re.sub(r"[^\w]", "_", wanted[:LONGEST_NAME])
        while name in self.names:
            name = f"{label}_{next(self._count)}"
        self.names[name] = obj
        return name

    # --- containers

    def put(self, place: str, base: Any, is_of_base: bool, items: Any, anew: bool = False) -> None:
        """Add items to the container that the expression `place` gives; `anew`: it is emptied
        before.

        `base`: the builtin class whose methods do it. `is_of_base`: the container is of this very
        class. Otherwise its class may have methods of its own, which must not run."""
        if base in MAPPINGS and not is_of_base:
            # `OrderedDict.update` would call the class's own `__setitem__`.
            method = "__setitem__"
            texts = [f"{self.rebuild(key)}, {self.rebuild(item)}" for key, item in items.items()]
        else:
            method = METHOD_TO_ADD_ITEMS[base]
            texts = [self.display(items)]

        # The method, and its arguments
        calls: list[tuple[str, list[str]]] = []
        if anew:
            calls.append(("clear", []))
        if items:
            calls += [(method, [text]) for text in texts]

        for name, arguments in calls:
            if is_of_base:
                self.body.append(f"{place}.{name}({', '.join(arguments)})")
            else:
                listed = ", ".join([place, *arguments])
                self.body.append(f"{self.name_for(base)}.{name}({listed})")


@dataclass(frozen=True)
class Written:
    """A value that has an expression. (It is kept: no other object can take its address.)"""

    value: Any
    text: str
