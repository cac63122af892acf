"""The interpreted program's world: copies of what is outside, so that capture changes nothing
outside.

In:  a real object and the `Source` where it was found (`World.wrap`).
Out: what the interpreted program works on in its place. An immutable object stands for itself,
     under a guard. A tensor becomes a fake one. Anything that can change (a list, a dict, an
     instance, a cell) becomes a copy, made of such stand-ins (`stand_ins/`): the program mutates
     the copy, and what differs in the end are the side effects that the head performs.

Everything the program makes itself is an ordinary Python object. So builtins need no rules:
`sorted`, `zip`, `dict.update` simply run, and where they call back into Python (a sort key,
`__eq__`, a property), the frame hook hands that frame to the interpreter (`inliner.py`).
In PyTorch: `torch/_dynamo/variables/builder.py` (`VariableBuilder`), `side_effects.py`; a
`VariableTracker` models each object.
"""

import builtins
import re
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorConverter

from course_lib import config
from course_lib.capture import classes, global_state
from course_lib.capture.classes import MISSING, is_a
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.guard_tests import Guard, SameObject
from course_lib.capture.inliner import Inliner
from course_lib.capture.known import Known
from course_lib.capture.places import GlobalNames
from course_lib.capture.shapes import History, Shapes, Texts
from course_lib.capture.sources import FRAME, Location, Source, Unsupported
from course_lib.capture.stand_ins.functions import Functions
from course_lib.capture.stand_ins.make import make_stand_in
from course_lib.capture.values import CONSTANT_TYPES
from course_lib.twin import TwinType, model_of


class Null:
    """The type of NULL."""

    def __repr__(self) -> str:
        return "NULL"


NULL: Any = Null()
"""CPython's NULL on the value stack: 'no self here', or a variable without a value."""


class Handled(NamedTuple):
    """On the stack while `error` is handled: what was handled `before`."""

    before: BaseException | None
    error: BaseException


@dataclass
class Place:
    """A line of the program, and the global variables there."""

    filename: str
    line: int
    names: dict[str, Any]


@dataclass
class Warned:
    """A warning that the program shows.

    `place`: a number if it lies so many frames above the captured one."""

    message: Any
    category: Any
    place: Place | int
    source: Any = None
    # A counter of the calls, if it is shown at the first one only
    calls: Any = None


@dataclass(frozen=True)
class LeftOut:
    """A frame of torch's own Python that is not interpreted, for what it does is known.

    `depth`: how many machines run around it, so that it is counted only below the right call.
    `place`: the line in it that calls on; a warning may name this line."""

    depth: int
    place: Place


@dataclass(frozen=True)
class Stored:
    """What the program has stored where no copy is.

    MISSING as the value: it has deleted what was there."""

    holder: Any  # A dict of global variables, a tensor, a class
    name: str
    value: Any


@dataclass(frozen=True)
class Raised:
    """An exception that the interpreted program raised, and the traceback that it would have."""

    error: BaseException
    trace: Any


listeners: list[Any] = []
"""Functions that are told what operations warn of: (world, function, arguments, keyword arguments,
result, warnings)."""


def chosen(setting: bool | None, otherwise: bool) -> bool:
    """A setting that may be left open (None): then `otherwise`."""
    if setting is None:
        return otherwise
    return setting


class World(Functions):
    """State shared by a frame's interpreter and those of the calls inlined into it."""

    def __init__(self, history: History, fullgraph: bool = False) -> None:
        # May the graph not end before the frame does?
        self.fullgraph = fullgraph

        # The graph, the sizes, the guards. (Where the graph may not end, what only the data says
        # stays in it.)
        self.shapes = Shapes(
            history,
            numbers_of_data=chosen(config.capture_scalar_outputs, fullgraph),
            sizes_of_data=chosen(config.capture_dynamic_output_shape_ops, fullgraph),
        )
        self.builder = GraphBuilder(self.shapes)
        self.builder.tell_warnings = self.tell_listeners
        self.guards: dict[Guard, None] = {}
        self.classes: dict[type, classes.SeenClass] = {}

        # Where the program is: lines, and the interpreters at those lines, outermost call first
        self.lines: list[Location] = []
        self.running: list[Any] = []
        # Frames that eager has and the interpreter leaves out, outermost first
        self.left_out: list[LeftOut] = []
        self.root: Any = None  # The interpreter of the frame itself
        self.inliner = Inliner(self)

        # Objects from outside, by the `id` of what stands for them, and by their own
        self.known: dict[int, Known] = {}
        self.stand_ins: dict[int, Known] = {}
        # Dicts of global variables, by `id`
        self.globals: dict[int, GlobalNames] = {}
        # Numbers from outside, or the symbols for them, by the expression of their source
        self.numbers: dict[str, Any] = {}

        # Functions and classes that the program made, by `id`
        self.made: dict[int, Any] = {}
        # What it stored where no copy is, by the `id` of the holder and the name
        self.stored: dict[tuple[int, str], Stored] = {}
        # Exceptions that it raised, by `id`
        self.raised: dict[int, Raised] = {}
        self.warned: list[Warned] = []
        # Effects of kinds that only a corner knows: each has `state()`, `write(head)` and
        # `undo(head)`
        self.others: list[Any] = []

        # What could not be followed inside of a generator that is being closed. Python swallows
        # what is raised there, so `Machine.generator` keeps it here, and `Machine.step` raises it
        # behind the instruction that had the generator closed.
        self.problem: Unsupported | None = None

        # Is the frame interpreted to its end, or to a break?
        self.finished = False

        # Events, for whoever listens once the attempt is over
        self.told: list[Any] = []

        # Switches as they were when the frame began, inference mode (off while fakes are made), and
        # how deep autocast is nested
        self.at_start = global_state.turned()
        self.inference = torch.is_inference_mode_enabled()
        self.nesting = 0
        self.assume(FRAME, "state", *global_state.tests())

    def tell_listeners(self, *told: Any) -> None:
        for listener in listeners:
            listener(self, *told)

    def forget(self) -> None:
        """Let go of the user's objects at once, not when garbage is collected."""
        for known in (*self.known.values(), *self.builder.inputs, *self.builder.outside()):
            known.real = None
        self.known.clear()
        self.stand_ins.clear()
        self.raised.clear()
        # the old one holds weak references to real tensors
        self.shapes.mode.fake_tensor_converter = FakeTensorConverter()

        # These refer to this world. Without them there is no circle of references.
        self.root = self.inliner.caller = None
        self.inliner.world = self.builder.tell_warnings = cast(Any, None)

    # ---- from outside ----------------------------------------------------------------------------

    def wrap(self, obj: Any, source: Source | None) -> Any:
        """What stands for the real `obj`: one stand-in, wherever it is found.

        Without a source: a constant of trusted code."""
        # what `cl.compile` gave for a module stands for the module itself
        if type(type(obj)) is TwinType:
            obj, source = model_of(obj), source.model() if source else None

        if type(obj) in CONSTANT_TYPES:
            return self._constant(obj, source)
        known = self.stand_ins.get(id(obj)) or self.of(obj)
        if known is None:
            return self._first(obj, source)

        # found at a second place: it must be one object at both
        if source is not None and source.expr != known.source.expr and not self.is_trusted(source):
            if self.is_static(obj):
                self.assume_identity(obj, source)
            else:
                self.assume(source, "identity", SameObject(known.source))
        return known.stand_in

    def _constant(self, obj: Any, source: Source | None) -> Any:
        """A number, a string, ...: itself, under a guard; or a symbolic number."""
        if source is None or self.is_trusted(source):
            return obj
        if type(obj) in (int, float):
            number = self.number(obj, source)
            if number is not obj:
                return number

        self.assume_constant(obj, source)
        # Of these types two equal ones may be two objects, and the program may ask `is`, or give
        # the very object back. (A text of one character, or an empty one, exists once.)
        if type(obj) in (float, complex, bytes, torch.Size, str) and len(str(obj)) > 1:
            self.know(obj, obj, source)
        return obj

    def number(self, obj: int | float, source: Source, at_once: bool = False) -> Any:
        """A symbolic number, if this one has changed between two captures (or `at_once`); else the
        number itself."""
        if source.expr not in self.numbers:
            size = self.shapes.number(obj, source, at_once)
            self.numbers[source.expr] = size
            if size is not obj:
                self.assume_type(obj, source)
                self.builder.add_input(Known(size, obj, source))
        return self.numbers[source.expr]

    def drawn_number(self, value: int | float, source: Source, texts: Texts) -> Any:
        """A symbolic number that is another one in each call, and finite in all of them."""
        number = self.shapes.drawn(value, texts)
        self.builder.add_input(Known(number, value, source))
        return number

    def _first(self, obj: Any, source: Source | None) -> Any:
        """An object that is met for the first time."""
        # What its class is now will be guarded, also where the program asks nothing of it.
        if source is not None:
            if is_a(obj, type):
                self.see(obj, source)
            else:
                self.see(type(obj), source.type())

        # A function, a class, a module: it stands for itself.
        if self.is_static(obj):
            if source is None:
                return obj
            if not self.is_trusted(source):
                self.assume_identity(obj, source)
            return self.know(obj, obj, source).stand_in

        source = source or self.static_source(obj)
        if source is None:
            raise Unsupported(f"reads a {type(obj).__name__} that has no known place")
        return make_stand_in(self, obj, source)

    def know(self, stand_in: Any, real: Any, source: Source, **about: Any) -> Known:
        """Remember what stands for a real object."""
        known = Known(stand_in, real, source, **about)
        self.known[id(stand_in)] = self.stand_ins[id(real)] = known
        return known

    def opaque(self, obj: Any, source: Source) -> Any:
        """An object that can be passed on, and that is all: itself, under a guard on its type."""
        self.assume_type(obj, source)
        return self.know(obj, obj, source, opaque=True).stand_in

    def check_addresses(self, text: str) -> None:
        """Raise Unsupported for a text that says where a stand-in lies: what it stands for lies
        elsewhere."""
        for number in re.findall(r"\bat 0x([0-9a-f]+)", text):
            known = self.known.get(int(number, 16))
            if known is not None and known.real is not known.stand_in:
                raise Unsupported(
                    f"shows the address of a {type(known.stand_in).__name__}", "give it a __repr__"
                )

    def read_global(self, names: dict[str, Any], name: str, function: Any) -> Any:
        """The value of a global variable or a builtin, MISSING if there is none."""
        if (id(names), name) in self.stored:
            return self.stored[id(names), name].value

        base = self.globals_source(names, function)
        if name not in names:
            if base is not None and not self.is_trusted(base):
                self.assume_absent(base, name)
            return getattr(builtins, name, MISSING)

        value = names[name]
        if base is None and not self.is_static(value) and type(value) not in CONSTANT_TYPES:
            raise Unsupported(
                f"reads the global variable '{name}' of a function whose module is not known"
            )
        return self.wrap(value, base.variable(name) if base else None)

    # ---- what the program stores outside, where no copy is ---------------------------------------

    def store(self, holder: Any, name: str, value: Any) -> None:
        """The program stores a value, or (MISSING) deletes one; the head will do it."""
        self.stored[id(holder), name] = Stored(holder, name, value)

    def written(self, cls: type, name: str) -> Any:
        """What the program has stored under this name in a class, MISSING if nothing."""
        if not self.stored:
            return MISSING
        for base in cls.__mro__:
            if (id(base), name) in self.stored:
                return self.stored[id(base), name].value
            if name in base.__dict__:
                return MISSING
        return MISSING

    # ---- switches --------------------------------------------------------------------------------

    def switched(self) -> list[tuple[str, str]]:
        """The switches that the program has turned: how to turn them in the real world."""
        turned = [pair for pair in global_state.turned() if pair not in self.at_start]
        way = "increment" if self.nesting > 0 else "decrement"
        return turned + [(f"torch.autocast_{way}_nesting", "")] * abs(self.nesting)

    def nest(self, by: int) -> int:
        """Enter or leave an autocast region: how deep it is now.

        (The real count is the head's to change.)"""
        self.nesting += by
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting() + self.nesting
