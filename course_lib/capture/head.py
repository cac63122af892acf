"""The head: what runs in place of a captured frame, as ordinary Python source.

    def head(__func, self, x):
        __out = __graph(x, self._modules['ln']._parameters['weight'], ...)
        self.steps = 3                                   # a side effect
        return __out[0]

It takes the frame's function object and its arguments, fetches the graph's inputs through their sources, does the side effects
(whatever differs between the interpreted world and the real one), and rebuilds what the frame returns. At a graph break it does
the breaking operation itself (`breaks.py`) and calls the resume function. Tracebacks and notebooks show it (`linecache`).
In PyTorch, as bytecode: `torch/_dynamo/codegen.py` (`PyCodegen`), `side_effects.py`, `bytecode_transformation.py`.
"""

import builtins
import collections
import functools
import gc
import itertools
import keyword
import operator
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from course_lib import events, frames
from course_lib.capture import effects, global_state
from course_lib.capture.calls import SAFE_TYPES, Id, call_back
from course_lib.capture.classes import (
    MISSING,
    is_users,
    isinstance,
    makes_bare,
    member_of,
    own_dict,
)
from course_lib.capture.graph import PLAIN, STATE, Known, name_of, storages
from course_lib.capture.machine import Machine
from course_lib.capture.sources import FUNCTION, HELPERS, REGISTRIES, Source, Unsupported, variables
from course_lib.capture.tests import AnotherObject, has_literal
from course_lib.capture.world import (
    MAPPINGS,
    NULL,
    SCALARS,
    SEQUENCES,
    Handled,
    Place,
    Remaining,
    Warned,
    World,
    in_slots,
    is_full,
    is_slot,
)
from course_lib.failing import WHILE_COMPILING, draws_numbers, may_fail
from course_lib.frames.resume import in_the_program, live, resume, resume_at
from course_lib.written import as_tuple, define, define_within, quiet

GRAPH = "__graph"
MANY = 32  # inputs: a head with fewer shows each one's whole path
BOUND_FROM = (types.MethodDescriptorType, types.WrapperDescriptorType)
ADDING: dict[Any, str] = dict.fromkeys((list, collections.deque), "extend") | dict.fromkeys(
    (set, *MAPPINGS[::-1]), "update"
)
"""Containers that can change, and the method that adds items."""
REDUCIBLE = (
    *("itertools", "builtins", "functools", "operator", "collections"),
    *("torch.return_types", "string.templatelib"),
)
"""Modules whose objects may be made from what their `__reduce__` says."""


@dataclass(frozen=True)
class Break:
    """Where a frame breaks its graph: the line of its code, and the global variables there."""

    code: types.CodeType
    line: int
    globals: dict[str, Any]


@dataclass
class Head:
    """The source and the names it uses. `function(graph)` makes the callable."""

    name: str
    parameters: tuple[str, ...]
    body: list[str]
    names: dict[str, Any] = field(default_factory=dict)
    # At a graph break it does the work of this line
    at: Break | None = None

    @property
    def source(self) -> str:
        return "\n".join(
            [
                f"def head({', '.join((FUNCTION, *self.parameters))}):",
                *("    " + line for line in self.body),
                "",
            ]
        )

    def function(self, graph: Callable[..., Any]) -> Callable[..., Any]:
        """The head as a function that calls `graph` on the graph's inputs."""
        names, about = {**HELPERS, **self.names, GRAPH: graph}, f"head of {self.name}"
        if self.at is None:
            return define("head", self.source, about, names)

        # what it calls sees the frame, file and line of the program above itself
        names = vars(builtins) | names
        head = define_within("head", self.source, about, names, self.at.globals)
        head.__code__ = in_the_program(head, self.name, self.at.code, self.at.line)
        return head


class HeadBuilder:
    """Writes a head: statements that make the real world what the interpreted one became."""

    def __init__(self, world: World, name: str, parameters: tuple[str, ...]) -> None:
        self.world = world
        self.head = Head(name, tuple(variables(parameters).values()), [])
        self.outputs: list[torch.Tensor] = []
        # Objects from outside, fetched before the side effects may move them
        self.fetched: list[str] = []
        self.body: list[str] = []
        self.checks: list[str] = []  # what must hold of the graph's results
        self.has_effects = False
        self._expr: dict[int, tuple[Any, str]] = {}
        self._making: set[int] = set()
        self._count = itertools.count()

    def finish(self) -> Head:
        """The whole: fetch, run the graph, then the rest."""
        lines = list(self.fetched)
        if self.world.builder.operations:
            args = self.fetched_once([one.source for one in self.world.builder.inputs], lines)
            listed = (
                "".join(f"\n        {arg}," for arg in args) + "\n    "
                if len("  ".join(args)) > 80
                else ", ".join(args)
            )
            within = f"with {self.name_for(quiet)}(): " if self.world.builder.loud else ""
            lines.append(f"{within}__out = {GRAPH}({listed})")
        self.start_anew(lines)
        self.head.body = lines + self.body
        return self.head

    def start_anew(self, lines: list[str]) -> None:
        """Where the graph raises, or a condition does not hold, eager runs the frame from its start: nothing was written so far."""
        nodes = self.world.builder.graph.nodes
        wrong = [f"not ({' and '.join(self.checks)})"] * bool(self.checks)
        if any(map(may_fail, nodes)):
            wrong.insert(0, "__out is None")
            told = functools.partial(graph_failed, self.head.name, any(map(is_on_gpu, nodes)))
            failed = self.name_for(told, "failed")
            lines[-1:] = [
                "try:",
                f"    {lines[-1]}".replace("\n", "\n    "),
                "except Exception as __error:",
                f"    __out = {failed}(__error)",
            ]
        again = self.name_for(frames.AS_IT_IS, "as_it_is")
        if categories := {warned.category: None for warned in self.world.warned}:
            listed = ", ".join(map(self.rebuild, categories))
            lines.insert(0, f"if may_raise({listed}): return {again}")
        if (wrong or self.has_effects) and self.saves_for_backward():
            # These hooks are the user's code: it may do what must not be done twice, nor before an earlier effect.
            hooks = self.name_for(torch._C._autograd._top_saved_tensors_default_hooks, "hooks")
            lines.insert(0, f"if {hooks}(True) is not None: return {again}")
        if not wrong:
            return
        turned = any(node.target in STATE for node in nodes)
        undo = "".join(f"{switch}({was}); " for switch, was in self.world.at_start if turned)
        if self.checks or any(map(draws_numbers, nodes)):
            # to draw the same numbers again
            lines.insert(0, f"__random = {self.name_for(global_state.random)}()")
            undo += "__random(); "
        lines.append(f"if {' or '.join(wrong)}: {undo}return {again}")

    def saves_for_backward(self) -> bool:
        """Does autograd keep tensors while the graph runs? It does if a gradient flows to an input."""
        inputs = [one.stand_in for one in self.world.builder.inputs]
        return any(isinstance(value, torch.Tensor) and value.requires_grad for value in inputs)

    def fetched_once(self, sources: list[Source], lines: list[str]) -> list[str]:
        """The expressions of these. Where there are many, what paths have in common is looked up once, by `lines`."""
        uses = collections.Counter(
            base for source in sources if len(sources) > MANY for base in source.bases
        )
        names: dict[Source, str] = {}

        def text(source: Source) -> str:
            return names.get(source) or source.from_base(text(source.base) if source.base else "")

        for base in (base for base in uses if base.base and uses[base] > 1):
            lines.append(f"__at{len(names)} = {text(base)}")
            names[base] = f"__at{len(names)}"
        return list(map(text, sources))

    def effects(self) -> None:
        """Everything that the interpreted program changed outside, if all is as it expected."""
        self.checks = [
            ("" if truth else "not ") + self.rebuild(tensor)
            for tensor, truth in self.world.builder.expected
        ]
        for warned in self.world.warned:
            self.warning_effect(warned)
        for known in list(self.world.known.values()):
            before = len(self.body)
            if type(known.stand_in) is Remaining and known.stand_in.taken:
                self.body.append(
                    f"for _ in range({known.stand_in.taken}): next({self.fetch(known)}, None)"
                )
            if known.attributes is not None:
                self.attribute_effect(known, known.attributes)
            if known.before is not None:
                self.content_effect(known, known.stand_in, known.before)
            if len(self.body) > before:
                self.assume_apart(known)
        for obj, name, value in self.world.stored.values():
            source = self.world.globals[id(obj)][1] if type(obj) is dict else None
            place = f"{source.expr}[{name!r}]" if source else f"{self.rebuild(obj)}.{name}"
            self.body.append(
                f"{place} = {self.rebuild(value)}" if value is not MISSING else f"del {place}"
            )
            if id(obj) in self.world.known:
                self.assume_apart(self.world.known[id(obj)])
        self.has_effects = bool(self.body)
        self.body += [f"{switch}({now})" for switch, now in self.world.switched()]

    def warning_effect(self, warned: Warned) -> None:
        """Show a warning, with the place in the program that it names."""
        at = warned.place
        what = [self.rebuild(warned.message), self.rebuild(warned.category)]
        if type(at) is Place:
            function, where = "show", [repr(at.filename), str(at.line), self.name_for(at.names)]
        else:
            function, where = "show_above", [str(at)]
        source = [] if warned.source is None else [self.rebuild(warned.source)]
        first = f"if not next({self.name_for(warned.calls, 'calls')}): " if warned.calls else ""
        self.body.append(f"{first}{function}({', '.join([*what, *where, *source])})")

    def content_effect(self, known: Known, now: Any, before: Any) -> None:
        """What a container holds: what was added, or all of it anew. No method of the user's runs again."""
        base = next(base for base in ADDING if isinstance(now, base))
        if base is set and effects.items(now) != effects.kept(known):
            refuse_own_keys(now)
        items: Any = dict(base.items(now)) if base in MAPPINGS else list(base.__iter__(now))
        if base in MAPPINGS:
            old = {id(key): item for key, item in before.items()}
            more: Any = {
                key: item for key, item in items.items() if old.get(id(key), MISSING) is not item
            }
            anew = [*map(id, items)][: len(before)] != [*map(id, before)]
            if anew or more:
                refuse_own_keys(items)
        else:
            anew = (
                set(before) != now
                if base is set
                else len(items) < len(before) or not all(map(operator.is_, items, before))
            )
            more = items[len(before) :]
        if anew or more:
            self.put(self.fetch(known), base, type(now) is base, items if anew else more, anew)

    def put(self, place: str, base: Any, own: bool, items: Any, anew: bool = False) -> None:
        """Add items to the container at `place`, emptied if `anew`, with the methods of `base`; `own`: that is its class."""
        by_key = base in MAPPINGS and not own
        texts = (
            [f"{self.rebuild(k)}, {self.rebuild(item)}" for k, item in items.items()]
            if by_key
            else [self.display(items)]
        )
        method = "__setitem__" if by_key else ADDING[base]
        for name, text in [("clear", "")] * anew + [(method, text) for text in texts if items]:
            self.body.append(
                f"{place}.{name}({text})"
                if own
                else f"{self.name_for(base)}.{name}({place}, {text})"
            )

    def attribute_effect(self, known: Known, before: dict[str, Any]) -> None:
        now = known.stand_in
        own = own_dict(now) | in_slots(now)
        plain = type(now).__setattr__ in (object.__setattr__, torch.nn.Module.__setattr__)
        for name, value in own.items():
            if before.get(name, MISSING) is not value:
                place, member = self.fetch(known), member_of(type(now), name)
                named = name.isidentifier() and not keyword.iskeyword(name)
                if hasattr(type(member), "__set__") and not is_slot(member):
                    self.body.append(f"{place}.__dict__[{name!r}] = {self.rebuild(value)}")
                elif (
                    plain
                    and named
                    and not any(name in own_dict(known.real).get(r, ()) for r in REGISTRIES)
                ):
                    self.body.append(f"{place}.{name} = {self.rebuild(value)}")
                else:
                    self.body.append(
                        f"object.__setattr__({place}, {name!r}, {self.rebuild(value)})"
                    )
        for name in [
            name for name, value in before.items() if value is not MISSING and name not in own
        ]:
            self.body.append(f"object.__delattr__({self.fetch(known)}, {name!r})")

    def assume_apart(self, known: Known) -> None:
        """What was changed here is none of the other objects met: a call where it is one must not come here."""
        for other in list(self.world.known.values()):
            if (
                other is not known
                and type(other.real) is type(known.real)
                and not self.world.is_static(other.real)
            ):
                self.world.assume(known.source, "identity", AnotherObject(other.source))

    def fetch(self, known: Known) -> str:
        """The real object that a stand-in from outside stands for."""
        return (
            known.source.expr
            if known.source.is_variable
            else self.hoist(known.stand_in, known.source.expr)
        )

    def hoist(self, value: Any, expr: str) -> str:
        if id(value) not in self._expr:
            name = f"__in{next(self._count)}"
            self.fetched.append(f"{name} = {expr}")
            self._expr[id(value)] = value, name
        return self._expr[id(value)][1]

    def rebuild(self, value: Any) -> str:
        """The expression that gives `value` in the real world. A value asked for twice is one object both times."""
        known = self.world.of(value)
        named = self.world.is_static(value) and not isinstance(value, types.FunctionType)
        if known is not None and not (named and not known.source.is_variable):
            base = known.source.base
            if known.source.before == "model_of(" and base is not None:  # it knows only the twin
                return base.expr if base.is_variable else self.hoist(base, base.expr)
            return self.fetch(known)
        if type(value) in PLAIN and has_literal(value):
            return repr(value)
        if id(value) in self._expr:
            return self._expr[id(value)][1]
        if id(value) in self._making:
            if type(value) not in (list, dict):
                raise Unsupported(f"a {type(value).__name__} that contains itself is alive here")
            return self.assign(f"{type(value).__name__}()", value)
        self._making.add(id(value))
        text = self.write(value)
        self._making.discard(id(value))
        if id(value) in self._expr and type(value) in (list, dict):  # it contains itself
            self.body.append(
                f"{self._expr[id(value)][1]}.{'extend' if type(value) is list else 'update'}({text})"
            )
        self._expr.setdefault(id(value), (value, text))
        return self._expr[id(value)][1]

    def write(self, value: Any) -> str:
        cls = type(value)
        if isinstance(value, torch.Tensor):
            self.outputs.append(value)
            made = f"__out[{len(self.outputs) - 1}]"
            inference = not self.world.builder.inference.keys().isdisjoint(storages(value))
            return self.assign(f"{self.name_for(as_inference)}({made})") if inference else made
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.hoist(value, self.world.shapes.text(value.node.expr))
        if cls is torch.Size:
            return self.assign(f"torch.Size({self.listed(value)})")
        if cls is object and self.world.of(value) is None:
            return self.assign("object()")
        if cls is types.FunctionType and not self.world.static_source(value):
            return self.write_function(value)
        scalar = isinstance(value, SCALARS) and not getattr(value, "__dict__", None)
        if scalar or cls in PLAIN or isinstance(value, type) or self.world.is_static(value):
            return self.name_for(value)
        if cls in SEQUENCES or cls in MAPPINGS:
            return self.write_container(value)
        if cls.__name__.removeprefix("o") in ("dict_keys", "dict_values", "dict_items"):
            return f"{self.rebuild(gc.get_referents(value)[0])}.{cls.__name__.partition('_')[2]}()"
        if cls is Id:
            return self.assign(f"id({self.rebuild(value.obj)})")
        if cls is functools.partial and value.func is call_back:
            return self.rebuild(value.args[1])
        if cls is types.MethodType:
            target, function = value.__self__, value.__func__
            if isinstance(function, types.FunctionType):
                self.world.adopt(function, [target])
            return self.assign(f"MethodType({self.rebuild(function)}, {self.rebuild(target)})")
        if cls in (types.BuiltinMethodType, types.MethodWrapperType):
            target = value.__self__
            if type(target) in SAFE_TYPES or isinstance(target, torch.Tensor):
                text = self.rebuild(target)
                # (5).bit_length
                return f"{text if text.isidentifier() else f'({text})'}.{value.__name__}"
            owner = next(
                b
                for b in type(target).__mro__
                if isinstance(b.__dict__.get(value.__name__), BOUND_FROM)
            )
            return f"{self.name_for(owner)}.{value.__name__}.__get__({self.rebuild(target)})"
        if cls is super:
            return f"super({self.rebuild(value.__thisclass__)}, {self.rebuild(value.__self__)})"
        if cls is types.CellType:
            name = self.assign("CellType()", value)
            if is_full(value):
                self.body.append(f"{name}.cell_contents = {self.rebuild(value.cell_contents)}")
            return name
        base: Any = next((b for b in cls.__mro__ if b is tuple or b in ADDING), object)
        if isinstance(value, BaseException) or (
            cls.__module__ not in REDUCIBLE and makes_bare(base, cls)
        ):
            return self.write_instance(value, base)
        return (
            self.write_generator(value) if cls is types.GeneratorType else self.write_reduced(value)
        )

    def listed(self, values: Any) -> str:
        return as_tuple([self.rebuild(item) for item in values])

    def write_container(self, value: Any) -> str:
        cls = type(value)
        if cls in (set, frozenset) or cls in MAPPINGS:
            refuse_own_keys(value)
        text = self.display(value) if cls is list or cls in MAPPINGS else self.listed(value)
        if cls in (tuple, list, dict):
            return self.assign(text) if text != "()" else text
        factory = (
            self.rebuild(value.default_factory) + ", " if cls is collections.defaultdict else ""
        )
        return self.assign(
            f"{self.name_for(cls)}({factory}{text}{f', {value.maxlen}' if cls is collections.deque else ''})"
        )

    def display(self, items: Any) -> str:
        """The text of a list or a dict."""
        if isinstance(items, dict):
            return (
                "{"
                + ", ".join(
                    [f"{self.rebuild(key)}: {self.rebuild(item)}" for key, item in items.items()]
                )
                + "}"
            )
        return "[" + ", ".join([self.rebuild(item) for item in items]) + "]"

    def write_function(self, function: types.FunctionType) -> str:
        if id(function) not in self.world.made:
            if function.__closure__:
                raise Unsupported(
                    f"{function.__qualname__}, a function that has no known place, is alive here"
                )
            return self.name_for(function)
        defaults = self.rebuild(function.__defaults__)
        own = [
            c
            for c in function.__closure__ or ()
            if not self.world.of(c) and id(c) not in self._expr
        ]
        for cell in own:  # filled when the function is there, which it may hold
            self.assign("CellType()", cell)
        cells = [self.rebuild(cell) for cell in function.__closure__ or ()]
        closure = as_tuple(cells) if cells else "None"
        code, globals_ = self.name_for(function.__code__), self.name_for(function.__globals__)
        name = self.assign(
            f"FunctionType({code}, {globals_}, {function.__name__!r}, {defaults}, {closure})",
            function,
        )
        for cell in filter(is_full, own):
            self.body.append(
                f"{self.rebuild(cell)}.cell_contents = {self.rebuild(cell.cell_contents)}"
            )
        plain = types.FunctionType(
            function.__code__, function.__globals__, function.__name__, None, function.__closure__
        )
        # Asking for annotations may run `__annotate__`, the user's code (since 3.14)
        lazy = getattr(function, "__annotate__", None) is not None
        annotations = "__annotate__" if lazy else "__annotations__"
        for attribute in (
            "__kwdefaults__",
            "__dict__",
            "__qualname__",
            "__doc__",
            "__module__",
            annotations,
        ):
            if (value := getattr(function, attribute)) != getattr(plain, attribute):
                self.body.append(f"{name}.{attribute} = {self.rebuild(value)}")
        return name

    def write_instance(self, value: Any, base: Any) -> str:
        """An instance of a class written in Python: made without `__init__`, then given its attributes."""
        cls = type(value)
        made = self.name_for(cls)
        if isinstance(value, BaseException):
            name = self.assign(
                f"{made}.__new__({', '.join([made, *[self.rebuild(arg) for arg in value.args]])})",
                value,
            )
            for part in ("__context__", "__cause__", "__suppress_context__"):
                if (linked := getattr(value, part)) is not None and linked is not False:
                    self.body.append(f"{name}.{part} = {self.rebuild(linked)}")
            if trace := self.world.raised.get(id(value), (value, None))[1]:
                self.body.append(f"{name}.__traceback__ = {self.name_for(trace, 'traceback')}")
        elif base is tuple:
            name = self.assign(
                f"tuple.__new__({made}, {self.listed(tuple.__iter__(value))})", value
            )
        else:
            name = self.assign(f"{self.name_for(base)}.__new__({made})", value)
            if base is not object:
                self.put(
                    name,
                    base,
                    False,
                    dict(base.items(value)) if base in MAPPINGS else list(base.__iter__(value)),
                )
        if own := own_dict(value):
            self.body.append(f"{name}.__dict__.update({self.display(own)})")
        for slot, held in in_slots(value).items():
            self.body.append(f"object.__setattr__({name}, {slot!r}, {self.rebuild(held)})")
        return name

    def write_generator(self, value: Any) -> str:
        """A generator of the interpreted program: one that has come as far."""
        if value.gi_frame is None:
            return self.assign("(_ for _ in ())")
        it = value.gi_frame.f_locals.get("self")
        if (
            value.gi_running
            or value.gi_code is not Machine.generator.__code__
            or it.handling is not None
        ):
            raise Unsupported("a generator is alive here, which cannot be made anew")
        started = it.next > it.made
        # a POP_TOP follows the instruction that makes it
        offset = it.program[it.next - 1 if started else it.made + 1].offset
        targets = [
            entry.target
            for entry in frames.exception_table(it.code)
            if entry.start <= offset < entry.end
        ]
        at_break = type(self) is not HeadBuilder  # where the frame goes on, and may drop it
        if at_break and any(
            it.program[it.index_of[target]].op != "STOPITERATION_ERROR" for target in targets
        ):
            raise Unsupported(
                "a generator is alive here, whose `finally` is to run as soon as it is dropped"
            )
        name = self.assign(
            self.resumption(
                it, offset, [*self.stack_of(it), "None"], self.rebuild(it.function), True
            )
        )
        if started:
            self.body.append(f"next({name})  # to the `yield` where it stands")
        return name

    def stack_of(self, it: Any) -> list[Any]:
        return [
            value if value is NULL or type(value) is Handled else self.rebuild(value)
            for value in it.stack
        ]

    def resumption(self, it: Any, offset: int, stack: list[Any], function: str, plain: bool) -> str:
        """The call that goes on with what `it` interprets at `offset`, with this on the stack."""
        code, names = it.code, it.code.co_varnames
        # `super()` looks at the first
        alive = live(code).get(offset, frozenset()) | {*names[: "__class__" in code.co_freevars]}
        cells = {
            name: it.world.open_cell(value)
            for name, value in it.locals.items()
            if type(value) is types.CellType
        }
        held = {
            name: value
            for name, value in it.locals.items()
            if name in alive or type(value) is types.GeneratorType
        }
        values = {name: self.rebuild(value) for name, value in (cells | held).items()}
        unbound = alive.intersection(names) - {*values}
        at = resume_at(
            code,
            offset,
            tuple(None if type(slot) is Handled else slot is NULL for slot in stack),
            unbound,
        )
        closure = as_tuple([values.get(name, "CellType()") for name in at.names])
        listed = as_tuple(
            [
                self.rebuild(slot.error) if type(slot) is Handled else slot
                for slot in stack
                if slot is not NULL
            ]
        )
        args = [self.name_for(at, f"at_{offset}"), str(plain), function, closure, listed]
        return f"{self.name_for(resume, 'resume')}({', '.join([*args, *(values.get(name, 'None') for name in names)])})"

    def write_reduced(self, value: Any) -> str:
        """Iterators and other objects that can tell how to make a copy of them (as for `pickle`)."""
        try:
            with warnings.catch_warnings(action="ignore"):
                make, args, state, *more = (*value.__reduce_ex__(4), None)[:5]
            if any(more) or (
                type(value) not in SAFE_TYPES and type(value).__module__ not in REDUCIBLE
            ):
                raise TypeError("it is more than its parts")
        except (TypeError, ValueError) as error:
            raise Unsupported(
                f"a {type(value).__name__} is alive here, which cannot be made anew: {error}"
            ) from None
        name = self.assign(
            f"{self.name_for(make)}({', '.join([self.rebuild(arg) for arg in args])})", value
        )
        if state is not None:
            how = "__setstate__" if hasattr(value, "__setstate__") else "__dict__.update"
            self.body.append(f"{name}.{how}({self.rebuild(state)})")
        return name

    def assign(self, text: str, value: Any = MISSING) -> str:
        """Give an object a variable, so that it is made once; `value` may be referred to while it is still being filled."""
        name = f"__v{next(self._count)}"
        self.body.append(f"{name} = {text}")
        if value is not MISSING:
            self._expr[id(value)] = value, name
        return name

    def name_for(self, obj: Any, wanted: str = "") -> str:
        """A name bound to an object that has no literal form."""
        if there := [name for name, known in self.head.names.items() if known is obj]:
            return there[0]
        if obj is __build_class__ or (id(obj) in self.world.made and isinstance(obj, type)):
            raise Unsupported(
                "a class is made here, and it or an instance of it outlives the graph",
                "make it outside",
            )
        if HELPERS.get(own := getattr(obj, "__name__", "")) is obj:
            return str(own)
        label = wanted or (name_of(obj) if not isinstance(obj, dict) else "globals")
        name = label = "__" + "".join(c if c.isalnum() else "_" for c in label[:40])
        while name in self.head.names:
            name = f"{label}_{next(self._count)}"
        self.head.names[name] = obj
        return name


def is_on_gpu(node: fx.Node) -> bool:
    """Does the operation of this node give a tensor on a GPU?"""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.device.type == "cuda"


def graph_failed(name: str, on_gpu: bool, error: Exception) -> None:
    """An error of the graph: eager runs the frame, and raises what it raises. One of the compiler itself leaves the head.

    So does an index out of range on a GPU. Our kernels survive it and say so; eager's end all work of the process on that GPU.
    """
    if getattr(error, WHILE_COMPILING, False) or (on_gpu and isinstance(error, IndexError)):
        raise error
    why = f"its graph raised {type(error).__name__}, and eager knows where and what to raise"
    events.emit(events.FellBack(name, why))


def refuse_own_keys(keys: Any) -> None:
    """Raise Unsupported if a dict or set of these would ask them: their `__eq__` and `__hash__` have run once already."""
    for key in list(keys):
        if has_own_comparison(key):
            raise Unsupported(
                f"puts a {type(key).__name__} into a dict or set, which runs its own __eq__ or __hash__",
                "do it outside the compiled function",
            )


def has_own_comparison(key: Any) -> bool:
    """Does a dict run code of the user's to find this key? What `dataclasses` writes compares fields, and nothing else."""
    if type(key) is tuple:
        return any(map(has_own_comparison, key))
    methods = [member_of(type(key), name) for name in ("__eq__", "__hash__")]
    return any(
        isinstance(method, types.FunctionType)
        and is_users(method)
        and method.__code__.co_filename != "<string>"
        for method in methods
    )


@torch.inference_mode()
def as_inference(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that was made in inference mode."""
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    # conjugated, negated
    torch._utils.set_tensor_metadata(made, torch._utils.get_tensor_metadata(tensor))
    return made
