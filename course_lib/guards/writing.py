"""The source text of a check.

In:  guards in the order in which capture wrote them, and `Names`: what generated code may call by
     name.
Out: the text of a function `check(__func, *parameters)` that leaves at the first test that does not
     hold.

The order of guards is kept: an earlier one may make sure that a later one finds what it looks up.
Each source is looked up once, in a variable, and the paths below it begin there. Most of the speed
of a check comes from that. A way to ask fewer guards registers as a `shortcut`; the first shortcut
that applies writes the text instead.
In PyTorch: `torch/_dynamo/guards.py` (`GuardBuilder`) builds a tree of C++ objects,
`RootGuardManager`, instead of text.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from course_lib.capture import FUNCTION, Guard, SameAs, Source
from course_lib.capture.guard_tests import Holds, Operator, SwitchIs, has_literal
from course_lib.capture.sources import ALL_OF, HELPERS, Attribute
from course_lib.guards.tensors import in_c, looks_of

IN_C = ("looks_like", "unchanged", "note")
"""Functions of `_tensors.c` that checks call."""
NOTED, AGAIN = "noted", "again"
"""What a check in two functions uses besides (`corners/dictionaries.py`): what was noted of
dictionaries, and its second function."""
# A name in HELPERS is reserved: no parameter goes by it (`variable_for`). The values of these exist
# only once there is a check, so they are None until then.
HELPERS.update(dict.fromkeys((*IN_C, NOTED, AGAIN)))

SHORT_LINE = 120
"""Characters of tests that stand in one line; more are written below one another."""

Shortcut = Callable[[Sequence[Guard], "Names"], str | None]
SHORTCUTS: list[Shortcut] = []


def shortcut(function: Shortcut) -> Shortcut:
    """Register a way to ask less.

    It gives the whole text of a check, or None where it does not apply."""
    SHORTCUTS.append(function)
    return function


# A switch whose function is Python's, and does no more than call one of C. The hook makes a call of
# Python code dear, and a check asks at every call of the program.
THE_SAME_IN_C = {
    torch.are_deterministic_algorithms_enabled: torch._C._get_deterministic_algorithms,
}


class Names:
    """What the generated functions call by name: helpers, functions of C, torch's switches, and
    objects on the right of tests."""

    def __init__(self, parameters: Sequence[str]) -> None:
        self.parameters = tuple(parameters)
        self.known: dict[str, Any] = {**HELPERS, NOTED: [b"", b""]}
        for name in IN_C:
            # Without C no text names these. A call by mistake is then a NameError, which a check
            # does not catch; a call of None would be one of MOVED, "the guard does not hold".
            del self.known[name]
            if hasattr(in_c(), name):
                self.known[name] = getattr(in_c(), name)
        self._spelled: dict[int, str] = {}

    def spell(self, value: Any, op: Operator = "==") -> str:
        """A literal where one does; else the name of this very object."""
        # `is` asks for one object: a literal makes another, but for True, False and None
        literal_is_itself = type(value) in (bool, type(None))
        if has_literal(value) and (op == "==" or literal_is_itself):
            return repr(value)

        if id(value) not in self._spelled:
            type_or_name = getattr(value, "__name__", None)
            # an object with a `__getattr__` may give anything
            if type(type_or_name) is not str or not type_or_name:
                type_or_name = type(value).__name__
            # "<lambda>" is no name.
            letters = re.sub(r"\W", "_", type_or_name)
            name = f"{letters}_{len(self.known)}"
            self._spelled[id(value)] = name
            self.known[name] = value
        return self._spelled[id(value)]

    def call_of(self, test: SwitchIs) -> str:
        """The call of a switch, by a name of its own: `torch._C.f()` would look two attributes up
        in each call."""
        _, *path = test.path.split(".")
        name = path[-1]
        function = functools.reduce(getattr, path, torch)
        function = THE_SAME_IN_C.get(function, function)

        # a parameter, a helper or another switch may have the name already
        is_parameter = name in self.parameters
        if is_parameter or self.known.setdefault(name, function) is not function:
            return test.left
        return f"{name}()"


class Body:
    """The lines of one function that is being written, and the variable that each source lies
    in."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.lines: list[str] = []
        self.variables: dict[Source, str] = {}

    def ask(self, guards: Iterable[Guard]) -> None:
        """Add what returns where one of these does not hold."""
        for guard in guards:
            conditions = self.conditions(guard)
            together = " or "
            if len("".join(conditions)) >= SHORT_LINE:
                together = " or \\\n                "
            self.lines.append(f"if {together.join(conditions)}: return False")

    def conditions(self, guard: Guard) -> list[str]:
        """When the guard does not hold: one condition for each test, or one for all that C asks of
        a tensor."""
        path = self.variable(guard.source)
        # `looks_like` asks what all seven tests of such a guard ask
        if looks := looks_of(guard):
            wanted = ", ".join(map(self.names.spell, looks))
            return [f"not looks_like({path}, {wanted})"]

        conditions = []
        for test in guard.tests:
            if isinstance(test, SwitchIs):
                call = self.names.call_of(test)
                conditions.append(test.differs(call, self.spell))
                continue

            condition = test.fails(path, self.spell)
            if isinstance(test, Holds):
                condition = self.listed_once(condition)
            conditions.append(condition)
        return conditions

    def listed_once(self, formula: str) -> str:
        """A formula that reads the variables of lists that were made already.

        A formula of sizes names sources by their whole paths, which may begin with the list of all
        values of a dict: `[*dict.values(d)][0].shape[0]`. Where that list is in `v3`, this becomes
        `v3[0].shape[0]`, so the list is not made again."""
        if ALL_OF in formula:
            for source, name in self.variables.items():
                if source.before.startswith(ALL_OF):
                    formula = formula.replace(source.expr, name)
        return formula

    def spell(self, value: Any, op: Operator = "==") -> str:
        """The right side of a test: an object, or what lies at another source."""
        if isinstance(value, SameAs):
            return self.variable(value.source)
        return self.names.spell(value, op)

    def variable(self, source: Source) -> str:
        """The variable that holds the object at `source`, which is looked up on first use."""
        if source.is_variable:
            return source.expr

        if source not in self.variables:
            variable_of_base = ""
            base = source.base
            # What lies in the `__dict__` of an `nn.Module` is looked up there: its `__getattr__` is
            # slow.
            if base is not None and source.in_dict:
                base = base.attr("__dict__")
            if base is not None:
                variable_of_base = self.variable(base)

            name = f"v{len(self.variables)}"
            while name in self.names.parameters:
                name = "_" + name
            self.variables[source] = name

            looked_up = source.from_base(variable_of_base)
            if source.in_dict and isinstance(source.step, Attribute):
                looked_up = f"{variable_of_base}[{source.step.name!r}]"
            self.lines.append(f"{name} = {looked_up}")
        return self.variables[source]

    def function(self, name: str) -> str:
        """The text of a function of these lines.

        What cannot be looked up any more does not hold."""
        body = "\n        ".join(self.lines)
        parameters = ", ".join((FUNCTION, *self.names.parameters))
        return (
            f"def {name}({parameters}):\n"
            f"    try:\n        {body}\n"
            f"    except MOVED:\n        return False\n"
        )


def write(guards: Sequence[Guard], names: Names) -> str:
    """The text of `check`, and of what it calls.

    Adds to `names` the objects that the text names."""
    for take_shortcut in SHORTCUTS:
        if (text := take_shortcut(guards, names)) is not None:
            return text

    body = Body(names)
    body.ask(guards)
    body.lines.append("return True")
    return body.function("check")
