"""The head: what runs in place of a captured frame, as ordinary Python source.

    def head(__func, self, x):
        __out = __graph(x, self._modules['ln']._parameters['weight'], ...)
        self.steps = 3                                   # a side effect
        return __out[0]

It takes the frame's function object and its arguments, and does four things in this order:

    fetch      the graph's inputs, through their sources
    run        the graph
    effects    whatever differs between the interpreted world and the real one
    return     what the frame returns, rebuilt (`rebuild.py`)

At a graph break it does the breaking operation itself (`breaks.py`) and calls the resume function.
Tracebacks and notebooks show its source (`linecache`).
In PyTorch, as bytecode: `torch/_dynamo/codegen.py` (`PyCodegen`), `side_effects.py`,
`bytecode_transformation.py`.
"""

import builtins
import collections
import functools
import keyword
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from course_lib import events, frames
from course_lib.capture import effects, global_state
from course_lib.capture.classes import MISSING, is_a, member_of, own_dict
from course_lib.capture.graph import STATE
from course_lib.capture.guard_tests import AllApart, AnotherObject
from course_lib.capture.known import Known
from course_lib.capture.rebuild import Rebuilder
from course_lib.capture.rebuild_kinds import METHOD_TO_ADD_ITEMS, refuse_own_keys
from course_lib.capture.sources import ALL_OF, FUNCTION, HELPERS, REGISTRIES, Source, variables
from course_lib.capture.stand_ins.iterators import Remaining
from course_lib.capture.stand_ins.kinds import MAPPINGS
from course_lib.capture.stand_ins.slots import in_slots, is_slot
from course_lib.capture.world import Place, Stored, Warned, World
from course_lib.failing import WHILE_COMPILING, draws_numbers, may_fail
from course_lib.frames.resume import in_the_program
from course_lib.written import define, define_within, quiet

GRAPH = "__graph"
MOST_WHOLE_PATHS = 32
"""Inputs of the graph: a head with at most so many shows each one's whole path."""
MOST_GUARDS_OF_PAIRS = 4
"""Guards for single pairs of objects that must be different ones. More pairs have one guard in
common."""
WIDTH = 80
"""Characters of arguments that fit one line of the call of the graph."""
PLAIN_SETATTR = (object.__setattr__, torch.nn.Module.__setattr__)
"""Methods by which `object.name = value` runs no code of the user's."""


@dataclass(frozen=True)
class Break:
    """Where a frame breaks its graph: the line of its code, and the global variables there."""

    code: types.CodeType
    line: int
    globals: dict[str, Any]


@dataclass
class Head:
    """The source, and the objects that its names stand for. `function(graph)` makes the
    callable."""

    name: str
    parameters: tuple[str, ...]
    body: list[str]
    names: dict[str, Any] = field(default_factory=dict)
    # At a graph break it does the work of this line
    at: Break | None = None

    @property
    def source(self) -> str:
        first = f"def head({', '.join((FUNCTION, *self.parameters))}):"
        body = ["    " + line for line in self.body]
        return "\n".join([first, *body, ""])

    def function(self, graph: Callable[..., Any]) -> Callable[..., Any]:
        """The head as a function that calls `graph` on the graph's inputs."""
        names = {**HELPERS, **self.names, GRAPH: graph}
        title = f"head of {self.name}"
        if self.at is None:
            return define("head", self.source, title, names)

        # What it calls sees the frame, file and line of the program above itself.
        names = vars(builtins) | names
        head = define_within("head", self.source, title, names, self.at.globals)
        head.__code__ = in_the_program(head, self.name, self.at.code, self.at.line)
        return head


class FetchedOnce:
    """The expressions of sources, with what several of them begin with looked up once.

    `lines`: such as `__at0 = self._modules['ln']`; the expressions begin with `__at0` then. Where
    there are few sources each one shows its whole path; only what lists all values of a dict is
    always looked up once.
    """

    def __init__(self, sources: Sequence[Source], are_many: bool) -> None:
        self.names: dict[Source, str] = {}
        self.lines: list[str] = []
        uses = collections.Counter(base for source in sources for base in source.bases)
        for base, count in uses.items():
            is_long = are_many or base.before.startswith(ALL_OF)
            if base.base and count > 1 and is_long:
                name = f"__at{len(self.names)}"
                self.lines.append(f"{name} = {self.text(base)}")
                self.names[base] = name

    def text(self, found: Source | str) -> str:
        """The expression of a source, or an expression that names whole paths."""
        if isinstance(found, Source):
            base = self.text(found.base) if found.base else ""
            return self.names.get(found) or found.from_base(base)

        # A formula of sizes has whole paths in its text.
        if ALL_OF in found:
            for source, name in self.names.items():
                if source.before.startswith(ALL_OF):
                    found = found.replace(source.expr, name)
        return found


class HeadBuilder(Rebuilder):
    """Writes a head: statements that make the real world what the interpreted one became."""

    def __init__(self, world: World, name: str, parameters: tuple[str, ...]) -> None:
        super().__init__(world)
        self.head = Head(name, tuple(variables(parameters).values()), [], self.names)
        # What must hold of the graph's results
        self.checks: list[str] = []
        self.has_effects = False
        # Pairs of objects from outside that have a guard to be different ones: the `id`s of their
        # `Known`s
        self.apart: set[frozenset[int]] = set()

    def finish(self) -> Head:
        """The whole: fetch, run the graph, then the rest."""
        sources = [found for _, found in self.fetched if isinstance(found, Source)]
        runs = bool(self.world.builder.operations)
        inputs = []
        if runs:
            inputs = [graph_input.source for graph_input in self.world.builder.inputs]
        once = FetchedOnce([*sources, *inputs], len(inputs) > MOST_WHOLE_PATHS)
        lines = list(once.lines)
        for name, found in self.fetched:
            lines.append(f"{name} = {once.text(found)}")
        if runs:
            lines.append(self.call_of_the_graph(list(map(once.text, inputs))))
        self.start_anew(lines)
        self.head.body = lines + self.body
        return self.head

    # --- fetch the inputs, run the graph

    def call_of_the_graph(self, arguments: list[str]) -> str:
        """`__out = __graph(...)`"""
        # Two spaces are as wide as the ", " between arguments.
        if len("  ".join(arguments)) > WIDTH:
            listed = "".join(f"\n        {argument}," for argument in arguments) + "\n    "
        else:
            listed = ", ".join(arguments)

        # Capture has noted what the operations warn of, and the head shows it itself.
        call = f"__out = {GRAPH}({listed})"
        if self.world.builder.has_warned:
            return f"with {self.name_for(quiet)}(): {call}"
        return call

    # --- where eager must run the frame instead

    def start_anew(self, lines: list[str]) -> None:
        """Where the graph raises, or a condition does not hold, eager runs the frame from its
        start: nothing was written so far."""
        # `lines` holds the call of the graph. What must be asked before it is put at the front: of
        # two such lines the one that is added later runs first.
        nodes = self.world.builder.graph.nodes
        as_it_is = self.name_for(frames.AS_IT_IS, "as_it_is")

        wrong = []
        if any(map(may_fail, nodes)):
            wrong.append("__out is None")
            self.catch_errors(lines, nodes)
        if self.checks:
            wrong.append(f"not ({' and '.join(self.checks)})")

        # A filter may make an error of a warning. Then eager shows it, in its place.
        categories = dict.fromkeys(warned.category for warned in self.world.warned)
        if categories:
            listed = ", ".join(map(self.rebuild, categories))
            lines.insert(0, f"if may_raise({listed}): return {as_it_is}")

            # The head shows warnings at its end. A program that looks at them sooner is eager's.
            known = self.world.known.values()
            lists = ", ".join(one.source.expr for one in known if type(one.real) is list)
            lines.insert(0, f"if may_be_noticed({lists}): return {as_it_is}")

        # Hooks of saved tensors are the user's code: they may do what must not be done twice, nor
        # before an earlier effect.
        if (wrong or self.has_effects) and self.saves_for_backward():
            hooks = self.name_for(torch._C._autograd._top_saved_tensors_default_hooks, "hooks")
            lines.insert(0, f"if {hooks}(True) is not None: return {as_it_is}")

        if wrong:
            undo = self.undo(lines, nodes)
            condition = " or ".join(wrong)
            lines.append(f"if {condition}: {undo}return {as_it_is}")

    def catch_errors(self, lines: list[str], nodes: Iterable[fx.Node]) -> None:
        """Put the call of the graph, which is the last of `lines`, into a `try`.

        An error gives None in place of the results."""
        on_failure = functools.partial(graph_failed, self.head.name, any(map(is_on_gpu, nodes)))
        failed = self.name_for(on_failure, "failed")
        call = lines[-1].replace("\n", "\n    ")
        lines[-1:] = [
            "try:",
            f"    {call}",
            "except Exception as __error:",
            f"    __out = {failed}(__error)",
        ]

    def undo(self, lines: list[str], nodes: Iterable[fx.Node]) -> str:
        """The statements that put switches and random numbers back to what they were before the
        graph ran."""
        undo = ""
        if any(node.target in STATE for node in nodes):
            undo = "".join(f"{switch}({was}); " for switch, was in self.world.at_start)
        if self.checks or any(map(draws_numbers, nodes)):
            lines.insert(0, f"__random = {self.name_for(global_state.random)}()")
            undo += "__random(); "
        for other in self.world.others:
            before, behind = other.undo(self)
            if before:
                lines.insert(0, before)
                undo += behind
        return undo

    def saves_for_backward(self) -> bool:
        """Does autograd keep tensors while the graph runs?

        It does if a gradient flows to an input."""
        inputs = [graph_input.stand_in for graph_input in self.world.builder.inputs]
        return any(is_a(value, torch.Tensor) and value.requires_grad for value in inputs)

    # --- side effects

    def effects(self) -> None:
        """Write the program's changes of what is outside, and before them the checks of what
        capture expected: if one fails, nothing is changed."""
        for tensor, truth in self.world.builder.expected:
            text = self.rebuild(tensor)
            if not truth:
                text = f"not {text}"
            self.checks.append(text)

        for warned in self.world.warned:
            self.warning_effect(warned)

        for known in list(self.world.known.values()):
            length_before = len(self.body)
            self.effects_on(known)
            if len(self.body) > length_before:
                # It is changed. If it were the same object as another one, that would change, too.
                self.assume_apart(known)

        for stored in self.world.stored.values():
            self.stored_effect(stored)

        for other in self.world.others:
            other.write(self)

        self.has_effects = bool(self.body)
        self.body += [f"{switch}({now})" for switch, now in self.world.switched()]

    def effects_on(self, known: Known) -> None:
        """What the program did to one object from outside."""
        if type(known.stand_in) is Remaining and known.stand_in.taken:
            iterator = self.fetch(known)
            self.body.append(f"for _ in range({known.stand_in.taken}): next({iterator}, None)")
        if known.attributes is not None:
            self.attribute_effect(known, known.attributes)
        if known.items_before is not None:
            self.content_effect(known, known.stand_in, known.items_before)

    def stored_effect(self, stored: Stored) -> None:
        """Write what the program stored in an object that has no stand-in: in a global variable, in
        an attribute of a tensor or a class."""
        holder, name = stored.holder, stored.name
        if type(holder) is dict:
            names = self.world.globals[id(holder)].source.expr
            place = f"{names}[{name!r}]"
        else:
            place = f"{self.rebuild(holder)}.{name}"

        if stored.value is MISSING:
            self.body.append(f"del {place}")
        else:
            self.body.append(f"{place} = {self.rebuild(stored.value)}")
        if id(holder) in self.world.known:
            self.assume_apart(self.world.known[id(holder)])

    def warning_effect(self, warned: Warned) -> None:
        """Show a warning, with the place in the program that it names."""
        what = [self.rebuild(warned.message), self.rebuild(warned.category)]
        at = warned.place
        if type(at) is Place:
            function = "show"
            where = [repr(at.filename), str(at.line), self.name_for(at.names)]
        else:
            # The place is outside the captured frame: so many frames above it.
            function = "show_above"
            where = [str(at)]

        arguments = [*what, *where]
        if warned.source is not None:
            arguments.append(self.rebuild(warned.source))

        call = f"{function}({', '.join(arguments)})"
        if warned.calls:
            # The counter gives 0 in the first call of the head.
            calls = self.name_for(warned.calls, "calls")
            call = f"if not next({calls}): {call}"
        self.body.append(call)

    def content_effect(self, known: Known, now: Any, before: Any) -> None:
        """What a container holds: what was added, or, if more than that changed, all of it anew
        (`anew`).

        `base` is the builtin class (list, set, dict, ...) whose methods are called. The container
        may be of a class that inherits from it, and a method of the user's must not run a second
        time."""
        base = next(base for base in METHOD_TO_ADD_ITEMS if is_a(now, base))
        items: Any
        added: Any
        if base in MAPPINGS:
            items = dict(base.items(now))
            added, anew = changes_of_dict(items, before)
        elif base is set:
            # Objects are compared, not values: 1 and True are equal.
            items = list(base.__iter__(now))
            added, anew = [], effects.holds_others(known)
            if anew:
                # The keys are looked up again when the set is filled, and that may run the user's
                # code.
                refuse_own_keys(now)
        else:
            items = list(base.__iter__(now))
            added, anew = items[len(before) :], is_another_list(before, items)

        if anew or added:
            items_to_write = items if anew else added
            is_of_base = type(now) is base
            self.put(self.fetch(known), base, is_of_base, items=items_to_write, anew=anew)

    def attribute_effect(self, known: Known, before: dict[str, Any]) -> None:
        """What an instance, or a cell, has by each name, where it is another object than before."""
        now = own_dict(known.stand_in) | in_slots(known.stand_in)
        for name, value in now.items():
            if before.get(name, MISSING) is not value:
                self.set_attribute(known, name, value)

        for name, value in before.items():
            if value is not MISSING and name not in now:
                self.body.append(f"object.__delattr__({self.fetch(known)}, {name!r})")

    def set_attribute(self, known: Known, name: str, value: Any) -> None:
        """`object.name = value`, without running code of the user's a second time."""
        cls = type(known.stand_in)
        place = self.fetch(known)
        member = member_of(cls, name)

        # The class has a descriptor of this name (a property), which `setattr` would call. What is
        # to be set lies beside it, in the instance's dict.
        if hasattr(type(member), "__set__") and not is_slot(member):
            self.body.append(f"{place}.__dict__[{name!r}] = {self.rebuild(value)}")
            return

        is_plain = cls.__setattr__ in PLAIN_SETATTR
        is_name = name.isidentifier() and not keyword.iskeyword(name)
        # `module.name = value` would put it among the parameters, where there is one of that name.
        registered = any(name in own_dict(known.real).get(r, ()) for r in REGISTRIES)
        if is_plain and is_name and not registered:
            self.body.append(f"{place}.{name} = {self.rebuild(value)}")
        else:
            self.body.append(f"object.__setattr__({place}, {name!r}, {self.rebuild(value)})")

    def assume_apart(self, known: Known) -> None:
        """Guard that an object which the program changes is none of the other objects that it
        met."""
        others = []
        for other in list(self.world.known.values()):
            alike = other is not known and type(other.real) is type(known.real)
            pair = frozenset((id(known), id(other)))
            if alike and pair not in self.apart and not self.world.is_static(other.real):
                self.apart.add(pair)
                others.append(other)

        if len(others) <= MOST_GUARDS_OF_PAIRS:
            for other in others:
                self.world.assume(known.source, "identity", AnotherObject(other.source))
            return

        # one question for all of them: an optimizer changes the state of each of its parameters
        together = [known, *others]
        self.apart |= {frozenset((id(a), id(b))) for a in together for b in together}
        self.world.assume(
            known.source, "identity", AllApart([other_object.source for other_object in others])
        )


def changes_of_dict(items: dict[Any, Any], before: dict[Any, Any]) -> tuple[dict[Any, Any], bool]:
    """The items of a dict that are new or other objects, and whether the old keys no longer come
    first and in order."""
    old = {id(key): item for key, item in before.items()}
    more = {}
    for key, item in items.items():
        if old.get(id(key), MISSING) is not item:
            more[key] = item

    first_keys = list(items)[: len(before)]
    anew = [*map(id, first_keys)] != [*map(id, before)]
    if anew or more:
        refuse_own_keys(items)
    return more, anew


def is_another_list(before: list[Any], items: list[Any]) -> bool:
    """True if something was taken out or replaced, not only added at the end."""
    if len(items) < len(before):
        return True
    return not all(map(operator.is_, items, before))


def is_on_gpu(node: fx.Node) -> bool:
    """Does the operation of this node give a tensor on a GPU?"""
    value = node.meta.get("val")
    return is_a(value, torch.Tensor) and value.device.type == "cuda"


def graph_failed(name: str, on_gpu: bool, error: Exception) -> None:
    """An error of the graph: eager runs the frame, and raises what it raises.

    One of the compiler itself leaves the head.

    So does an index out of range on a GPU. Our kernels survive it and say so; eager's end all work
    of the process on that GPU.
    """
    if getattr(error, WHILE_COMPILING, False) or (on_gpu and is_a(error, IndexError)):
        raise error
    why = f"its graph raised {type(error).__name__}, and eager knows where and what to raise"
    events.emit(events.FellBack(name, why))
