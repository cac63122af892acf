"""The interpreted program's world: copies of what is outside, so that capture changes nothing outside.

In:  a real object and the `Source` where it was found.
Out: what the interpreted program works on in its place. An immutable object stands for itself, under a guard. A tensor
     becomes a fake one. Anything that can change (a list, a dict, an instance, a cell) becomes a copy, made of such
     stand-ins: the program mutates the copy, and what differs in the end are the side effects that the head performs.

Everything the program makes itself is an ordinary Python object. So builtins need no rules: `sorted`, `zip`, `dict.update` simply
run, and where they call back into Python (a sort key, `__eq__`, a property), the frame hook hands that frame to the interpreter.
In PyTorch: `torch/_dynamo/variables/builder.py` (`VariableBuilder`), `side_effects.py`; a `VariableTracker` models each object.
"""

import builtins
import collections
import contextlib
import dataclasses
import enum
import functools
import keyword
import os
import re
import sys
import types
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensorConverter

from course_lib import frames
from course_lib.capture import classes, global_state
from course_lib.capture.classes import (
    HEAP_TYPE,
    MISSING,
    TRUSTED,
    has_own_lookup,
    is_users,
    isinstance,
    member_of,
    own_dict,
)
from course_lib.capture.graph import PLAIN, GraphBuilder, Known
from course_lib.capture.shapes import SYMBOLIC, History, Shapes, concrete
from course_lib.capture.sources import FRAME, HELPERS, Imported, Location, Source, Unsupported
from course_lib.capture.tests import (
    ClassAsSeen,
    DeviceIs,
    DimensionsAre,
    DtypeIs,
    Equals,
    Guard,
    HasCode,
    Is,
    IsConjugated,
    IsNegated,
    IsOnCpu,
    KeysAre,
    LacksKey,
    LengthIs,
    PrintsAs,
    RequiresGrad,
    SameObject,
    SizeIs,
    SizesAre,
    SlotIsEmpty,
    StridesAre,
    Test,
    TypeIs,
    has_literal,
)
from course_lib.twin import TwinType, model_of

TORCH = re.compile(rf"{re.escape(os.path.dirname(torch.__file__))}|<frozen ")
INSTALLED = re.compile(rf"{TORCH.pattern}|.*[/\\]lib[/\\]python3")
SEQUENCES = (list, tuple, set, frozenset, collections.deque)
MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
APART = ("course_lib.", "torch._tensor.", "torch._ops.", "torch.fx.", "torch._subclasses.", "torch.utils._sympy.", "sympy.",
         "torch.overrides.", "torch._dynamo.", "torch._guards.", "torch._prims", "torch._refs.", "torch._decomp", "torch._meta",
         "torch.utils._python_dispatch.", "torch.utils.weak.", "weakref.", "_weakrefset.", "torch._library.",
         "torch._higher_order_ops.", "copyreg.")  # fmt: skip
"""Python code below torch's own operators and symbolic sizes: part of Python, to the interpreted program."""
COPIES: dict[type, Any] = {}
"""Type → (world, object, source) → what stands for an object of this very type."""
COPIES_OF_ONE: dict[int, Any] = {}
"""The same for single objects, by their `id`."""
BY_PARTS: dict[type, tuple[Any, tuple[str, ...]]] = {
    types.MethodType: (types.MethodType, ("__func__", "__self__")),
    functools.partial: (
        lambda func, args, keywords: functools.partial(func, *args, **keywords),
        ("func", "args", "keywords"),
    ),
    types.BuiltinMethodType: (getattr, ("__self__", "__name__")),
}
"""Types whose instances are made anew from some of their attributes."""
SCALARS = (int, float, complex, str, bytes)
# Such keys are equal to none else
BY_IDENTITY = {object.__eq__, object.__hash__, torch.Tensor.__eq__, torch.Tensor.__hash__}
BY_VALUE = (range, slice, types.MethodDescriptorType, types.WrapperDescriptorType)
HANDLES = set(
    "_io io threading _thread logging random socket multiprocessing asyncio subprocess tempfile weakref".split()
)
"""Modules whose instances are more than their attributes: files, locks, sources of randomness."""
SENTINELS = tuple(
    type(getattr(dataclasses, name))
    for name in "MISSING _FIELD _FIELD_CLASSVAR _HAS_DEFAULT_FACTORY".split()
)
WRAPPING = (property, classmethod, staticmethod, functools.cached_property)
ITERATORS = {enumerate, zip, *map(type, map(iter, ([], (), range(0)))), type(reversed([]))}
STATIC = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type, enum.Enum)
NULL: Any = type("Null", (), {"__repr__": lambda self: "NULL"})()
"""CPython's NULL on the value stack: 'no self here', or a variable without a value."""
# On the stack while `error` is handled: what was so `before`
Handled = collections.namedtuple("Handled", "before error")


@dataclasses.dataclass
class Place:
    """A line of the program, and the global variables there."""

    filename: str
    line: int
    names: dict[str, Any]


@dataclasses.dataclass
class Warned:
    """A warning that the program shows. `place`: a number if it lies so many frames above the captured one."""

    message: Any
    category: Any
    place: Place | int
    source: Any = None
    # A counter of the calls, if it is shown at the first one only
    calls: Any = None


# Who is told what operations warn of: (world, function, arguments, keyword arguments, result, warnings)
listeners: list[Any] = []


class World:
    """State shared by a frame's interpreter and those of the calls inlined into it."""

    def __init__(self, history: History, fullgraph: bool = False) -> None:
        self.fullgraph = fullgraph  # May the graph not end before the frame does?
        self.shapes = Shapes(history)
        self.builder = GraphBuilder(self.shapes)
        self.builder.listen = self.tell_listeners
        self.guards: dict[Guard, None] = {}
        self.stack: list[Location] = []
        # The interpreters at those places
        self.running: list[Any] = []
        self.warned: list[Warned] = []
        self.known: dict[int, Known] = {}
        self.stand_ins: dict[int, Known] = {}
        self.globals: dict[int, tuple[dict[str, Any], Source | None]] = {}
        self.stored: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        """What was stored where no copy is: (object, name, value) of global variables and attributes of tensors and classes."""
        # The functions and classes that the interpreted program made
        self.made: dict[int, Any] = {}
        # Exceptions, and what their tracebacks are
        self.raised: dict[int, tuple[BaseException, Any]] = {}
        # What could not be followed where no exception may come out: closing a generator
        self.problem: Unsupported | None = None
        self.finished = False
        self.told: list[Any] = []
        self.classes: dict[type, classes.SeenClass] = {}
        self.inliner = Inliner(self)
        self.numbers: dict[str, Any] = {}
        self.at_start = global_state.turned()
        self.inference = torch.is_inference_mode_enabled()  # which is off while fakes are made
        self.nesting = 0
        self.root: Any = None  # The interpreter of the frame itself
        self.assume(FRAME, "state", *global_state.tests())

    def tell_listeners(self, *told: Any) -> None:
        for listener in listeners:
            listener(self, *told)

    def assume(self, source: Source, kind: str, *tests: Test) -> None:
        """Write a guard down, once, with the line that is interpreted as its cause; of a library, the call that led there."""
        here = self.user_location()
        self.guards.setdefault(
            Guard(source, kind, tests, self.user_location(INSTALLED) or here, here)
        )

    def forget(self) -> None:
        """The user's objects go at once, not when garbage is collected: also those that fakes refer to, weakly."""
        for known in (*self.known.values(), *self.builder.inputs, *self.builder.outside()):
            known.real = None
        self.known.clear()
        self.stand_ins.clear()
        self.raised.clear()
        self.shapes.mode.fake_tensor_converter = FakeTensorConverter()
        # these refer to this world
        self.root = self.inliner.caller = None
        self.inliner.world = self.builder.listen = cast(Any, None)

    def user_location(self, others: re.Pattern[str] = TORCH) -> Location | None:
        """The innermost line that is the user's own, not torch's (or no installed library's)."""
        return next(
            (place for place in reversed(self.stack) if not others.match(place.filename)), None
        )

    def assume_absent(self, source: Source, name: str) -> None:
        self.assume(source, "absent", LacksKey(name))

    def assume_identity(self, obj: Any, source: Source) -> None:
        function = isinstance(obj, types.FunctionType)
        self.assume(
            source,
            "identity",
            HasCode(obj.__code__) if function else Is(obj),
        )

    def see(self, cls: type, source: Source | None, *names: str) -> None:
        """Guard the special methods of a class, and what it has by these names; that it has none counts too."""
        for base in cls.__bases__ if id(cls) in self.made else ():  # what it inherits may change
            self.see(base, self.source_of(base), *names)
        for met, place in ((cls, source), (type(cls), source and source.type())):
            if is_users(met) and id(met) not in self.made:
                if met not in self.classes:
                    seen = self.classes[met] = classes.SeenClass(met)
                    self.assume(
                        place or FRAME,
                        "class",
                        ClassAsSeen(seen, found=place is not None),
                    )
                self.classes[met].see(names)

    def assume_tensor(self, tensor: torch.Tensor, fake: torch.Tensor, source: Source) -> None:
        """What graph and kernels depend on. Sparse tensors fail at `stride()`; the global state keeps wrapped ones (vmap) out."""
        layout: list[Test] = [SizesAre(tuple(tensor.shape)), StridesAre(tensor.stride())]
        if not all(type(size) is int for size in fake.shape):
            fixed = [SizeIs(dim, size) for dim, size in enumerate(fake.shape) if type(size) is int]
            layout = [DimensionsAre(tensor.ndim), *fixed, *self.shapes.stride_tests(fake)]

        tests = [
            TypeIs(type(tensor)),
            DtypeIs(tensor.dtype),
            *layout,
            RequiresGrad(tensor.requires_grad),
            IsNegated(tensor.is_neg()),
            IsOnCpu() if tensor.is_cpu else DeviceIs(tensor.device),
        ]
        if tensor.is_complex():
            tests.append(IsConjugated(tensor.is_conj()))
        self.assume(source, "tensor", *tests)

    def assume_constant(self, value: Any, source: Source) -> None:
        """`value` is this very number, string, ...: 2, 2.0 and True are equal, so are 0.0 and -0.0; NaN is equal to nothing."""
        if type(value) is bool:
            self.assume(source, "value", Is(value))
            return

        tests: list[Test] = [TypeIs(type(value))]
        is_odd_float = isinstance(value, float) and (value == 0 or value != value)
        if is_odd_float or isinstance(value, (complex, slice)):
            tests.append(PrintsAs(repr(value)))
        elif value is not None:
            tests.append(Equals(value))
        self.assume(source, "value", *tests)

    def wrap(self, obj: Any, source: Source | None) -> Any:
        """What stands for the real `obj`: one stand-in, wherever it is found. Without a source: a constant of trusted code."""
        if type(type(obj)) is TwinType:  # what `cl.compile` gave for a module: the module itself
            obj, source = model_of(obj), source and source.model()
        if type(obj) in PLAIN:
            return self._constant(obj, source)
        if (known := self.stand_ins.get(id(obj)) or self.of(obj)) is None:
            return self._first(obj, source)
        if source is not None and source.expr != known.source.expr and not self.is_trusted(source):
            if self.is_static(obj):
                self.assume_identity(obj, source)
            else:
                self.assume(source, "identity", SameObject(known.source))
        return known.stand_in

    def _constant(self, obj: Any, source: Source | None) -> Any:
        if source is None or self.is_trusted(source):
            return obj
        if type(obj) in (int, float):
            if source.expr not in self.numbers:
                self.numbers[source.expr] = size = self.shapes.number(obj, source)
                if size is not obj:
                    self.assume(source, "type", TypeIs(type(obj)))
                    self.builder.add_input(Known(size, obj, source))
            if self.numbers[source.expr] is not obj:
                return self.numbers[source.expr]
        self.assume_constant(obj, source)
        if type(obj) in (float, complex, bytes, torch.Size, str) and len(str(obj)) > 1:
            self._know(obj, obj, source)
        return obj

    def _first(self, obj: Any, source: Source | None) -> Any:
        if source is not None:
            self.see(*((obj, source) if isinstance(obj, type) else (type(obj), source.type())))
        if not self.is_static(obj):
            if (source := source or self.static_source(obj)) is None:
                raise Unsupported(f"reads a {type(obj).__name__} that has no known place")
            return self._copy(obj, source)
        if source is None:
            return obj
        if not self.is_trusted(source):
            self.assume_identity(obj, source)
        return self._know(obj, obj, source).stand_in

    def _know(self, stand_in: Any, real: Any, source: Source, **about: Any) -> Known:
        known = Known(stand_in, real, source, **about)
        self.known[id(stand_in)] = self.stand_ins[id(real)] = known
        return known

    def _copy(self, obj: Any, source: Source) -> Any:
        """The stand-in of an object that is met for the first time, by its type."""
        cls: Any = type(obj)
        base: Any = solid_base(cls)
        if isinstance(obj, torch.Tensor):
            return self._tensor(obj, source)
        if make := COPIES_OF_ONE.get(id(obj)) or COPIES.get(cls):
            return make(self, obj, source)
        if base not in (object, types.SimpleNamespace) and (cls is base or can_copy(cls)):
            return self._container(obj, base, source)
        if cls is types.CellType:
            return self._know(types.CellType(), obj, source, attributes={}).stand_in
        if cls in (set, frozenset) and all(
            type(i) in PLAIN or has_literal(i) or self.is_static(i) for i in obj
        ):
            tests = [TypeIs(cls), Equals(cls(obj))]
            typed = all(type(item) is str for item in obj)  # 1, 1.0 and True are equal
            self.assume(
                source,
                "value",
                *tests,
                *([] if typed else [Test("set(map(repr, {}))", "==", {*map(repr, obj)})]),
            )
            return self._know(
                cls(obj), obj, source, before=list(obj) if cls is set else None
            ).stand_in
        if cls in BY_VALUE or (isinstance(obj, SCALARS) and not getattr(obj, "__dict__", None)):
            self.assume_constant(obj, source)
            return self._know(obj, obj, source).stand_in
        self.assume(source, "type", TypeIs(cls))
        if cls in BY_PARTS and not own_dict(obj):
            make, names = BY_PARTS[cls]
            return self._know(
                make(*(self.wrap(getattr(obj, n), source.attr(n)) for n in names)), obj, source
            ).stand_in
        if cls.__module__ == "torch.return_types":
            return self._know(
                cls([self.wrap(item, source.item(i)) for i, item in enumerate(obj)]), obj, source
            ).stand_in
        if cls in ITERATORS:
            with contextlib.suppress(TypeError):
                return self._know(Remaining(self, obj, source), obj, source).stand_in
        return (
            self._know(base.__new__(cls), obj, source, attributes={}).stand_in
            if can_copy(cls)
            else self._opaque(obj, source)
        )

    def _container(self, obj: Any, base: Any, source: Source) -> Any:
        """A list, tuple, deque or dict, or an instance of a class built on one, filled with what stands for its items."""
        cls, own, keyed = type(obj), type(obj) is base, base in MAPPINGS
        keys = tuple(base.keys(obj)) if keyed else tuple(range(base.__len__(obj)))
        named = all(type(key) in (*PLAIN, tuple, frozenset) or self.is_static(key) for key in keys)
        if not named and not all(
            type(k) in PLAIN or {type(k).__eq__, type(k).__hash__} <= BY_IDENTITY for k in keys
        ):
            return self._opaque(obj, source)
        named_class = (
            "modules['collections'].OrderedDict" if base is collections.OrderedDict else "dict"
        )
        listed = "tuple({})" if own else f"tuple({named_class}.keys({{}}))"
        kind, length = ("keys", listed) if keyed and named else ("length", "len({})")
        tests: list[Test] = [
            TypeIs(cls),
            KeysAre(keys, listed) if kind == "keys" else LengthIs(len(keys)),
        ]
        tests += [Test("{}.maxlen", "==", obj.maxlen)] if base is collections.deque else []
        # 1, 1.0 and True are equal
        typed = kind == "length" or all(type(key) is str for key in keys)
        self.assume(source, kind, *tests, *([] if typed else [PrintsAs(repr(keys), length)]))

        def item(place: int, key: Any) -> Any:
            if not has_literal(key):
                at = Source(f")][{place}]", source, f"[*{named_class}.values(")
            elif own or base is tuple:
                at = source.item(key)
            else:  # the class may say otherwise
                at = Source(
                    f", {key!r})",
                    source,
                    f"{'dict' if keyed else 'list'}.__getitem__(",
                    f"[{key!r}]",
                )
            return self.wrap(base.__getitem__(obj, key), at)

        if base is tuple:
            known = self._know(
                tuple.__new__(cls, [item(*pair) for pair in enumerate(keys)]), obj, source
            )
        else:
            made = cls(maxlen=obj.maxlen) if base is collections.deque else base.__new__(cls)
            if base is collections.defaultdict:
                made.default_factory = self.wrap(
                    obj.default_factory, source.attr("default_factory")
                )
            known = self._know(made, obj, source)  # before its items, which may hold it
            for place, key in enumerate(keys):
                if keyed:
                    kept = (
                        key
                        if named
                        else self.wrap(
                            key, Source(f")][{place}]", source, f"[*{named_class}.keys(")
                        )
                    )
                    base.__setitem__(made, kept, item(place, key))
                else:
                    base.append(made, item(place, key))
            known.before = dict(base.items(made)) if keyed else list(base.__iter__(made))
        known.attributes = None if own else {}
        return known.stand_in

    def _opaque(self, obj: Any, source: Source) -> Any:
        self.assume(source, "type", TypeIs(type(obj)))
        return self._know(obj, obj, source, opaque=True).stand_in

    def _tensor(self, tensor: torch.Tensor, source: Source) -> torch.Tensor:
        with torch._C.DisableTorchFunction():  # what we ask of it is no part of the program
            plain = (
                type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
                and tensor.layout is torch.strided
            )
            if not plain or tensor.is_quantized or tensor.is_nested:
                return self._opaque(tensor, source)
            fake = self.shapes.fake(tensor, source)
            self.builder.untracked |= tensor.is_inference()
            self.assume_tensor(tensor, fake, source)
        return self.builder.add_input(self._know(fake, tensor, source))

    def of(self, value: Any) -> Known | None:
        """What is known of a stand-in from outside."""
        known = self.known.get(id(value))
        return known if known is not None and known.stand_in is value else None

    def check_addresses(self, text: str) -> None:
        """Raise Unsupported for a text that says where a stand-in lies: what it stands for lies elsewhere."""
        for number in re.findall(r"\bat 0x([0-9a-f]+)", text):
            known = self.known.get(int(number, 16))
            if known is not None and known.real is not known.stand_in:
                raise Unsupported(
                    f"shows the address of a {type(known.stand_in).__name__}", "give it a __repr__"
                )

    def is_opaque(self, value: Any) -> bool:
        known = self.of(value)
        return known is not None and known.opaque

    @staticmethod
    def is_static(obj: Any) -> bool:
        """Functions, classes, modules: objects that stand for themselves."""
        return (isinstance(obj, STATIC) and not isinstance(obj, torch.nn.Module) and not is_bound(obj)) or type(obj) in (
            types.CodeType, torch._ops.OpOverload, torch._ops.OpOverloadPacket, type(torch.ops), torch.finfo, torch.iinfo, object,
            torch._library.custom_ops.CustomOpDef, types.GenericAlias, types.UnionType, property, staticmethod, classmethod,
            types.GetSetDescriptorType, type(sys.version_info), torch._C._SDPBackend, *SENTINELS,
        ) or type(obj).__module__ in ("typing", "re")  # fmt: skip

    def is_trusted(self, source: Source) -> bool:
        """Is this an attribute of a module of torch or Python?"""
        return (*source.bases, source)[0].module.split(".")[0] in TRUSTED

    def static_source(self, obj: Any) -> Source | None:
        """Where an object that names its own place (a module, a class, a function) can be imported from."""
        if isinstance(obj, types.ModuleType):
            return Imported(obj.__name__) if obj is sys.modules.get(obj.__name__, MISSING) else None
        module: Any = getattr(obj, "__module__", None)
        path: Any = getattr(obj, "__qualname__", None)
        if (
            not isinstance(module, str)
            or not isinstance(path, str)
            or "<" in path
            or module not in sys.modules
        ):
            return None
        found: Any = sys.modules[module]
        source: Source = Imported(module)
        for name in path.split("."):
            found, source = getattr(found, name, None), source.attr(name)
        return source if found is obj else None

    def source_of(self, obj: Any) -> Source | None:
        """Where to find `obj` again: where it was found, or where it can be imported from."""
        known = self.of(obj)
        return known.source if known else self.static_source(obj)

    def globals_source(self, globals_: dict[str, Any], function: Any = None) -> Source | None:
        """Where this dict of global variables is found."""
        if id(globals_) not in self.globals:
            name, known = str(globals_.get("__name__")), self.of(function)
            source = known.source.attr("__globals__") if known is not None else None
            if getattr(sys.modules.get(name), "__dict__", None) is globals_:
                source = Imported(name).attr("__dict__")
            if source is None:
                return None
            self.globals[id(globals_)] = globals_, source
        return self.globals[id(globals_)][1]

    def read_global(self, globals_: dict[str, Any], name: str, function: Any) -> Any:
        """The value of a global variable or a builtin, MISSING if there is none."""
        if (id(globals_), name) in self.stored:
            return self.stored[id(globals_), name][2]
        base = self.globals_source(globals_, function)
        if name not in globals_:
            if base is not None and not self.is_trusted(base):
                self.assume_absent(base, name)
            return getattr(builtins, name, MISSING)
        if (
            base is None
            and not self.is_static(globals_[name])
            and type(globals_[name]) not in PLAIN
        ):
            raise Unsupported(
                f"reads the global variable '{name}' of a function whose module is not known"
            )
        return self.wrap(globals_[name], base and base.variable(name))

    def written(self, cls: type, name: str) -> Any:
        """What the program has stored under this name in a class, MISSING if nothing."""
        holder = next(
            (
                base
                for base in cls.__mro__
                if name in base.__dict__ or (id(base), name) in self.stored
            ),
            None,
        )
        return self.stored.get((id(holder), name), (None, None, MISSING))[2]

    def open_cell(self, cell: types.CellType) -> types.CellType:
        """Fill the stand-in of a cell from outside with what stands for its content."""
        if (known := self.of(cell)) is not None:
            self.fill(known, "cell_contents")
        return cell

    def adopt(self, function: types.FunctionType, args: Any) -> None:
        """Guard a function that no instruction has read: a special method, a property. Its first argument tells its place."""
        if self.of(function) is not None or id(function) in self.made or not is_users(function):
            return
        cls = args[0] if args and isinstance(args[0], type) else type(args[0]) if args else object
        cls = next(base for base in cls.__mro__ if id(base) not in self.made)
        known = self.of(args[0]) if args else None
        source: Any = (
            known.source.type() if known is not None and cls is not args[0] else self.source_of(cls)
        )
        for base in cls.__mro__ if source is not None else ():
            for name, found in base.__dict__.items():
                if function in functions_of(found).values():
                    for i, above in enumerate(cls.__mro__[: cls.__mro__.index(base) + 1]):
                        self.see(above, source.attr("__mro__").item(i), name)
                    return self.wrap_functions(found, cls, source, name)
        if (
            function.__closure__ or function.__defaults__ or function.__kwdefaults__
        ) and self.source_of(function) is None:
            raise Unsupported(f"calls {function.__qualname__}, a function that has no known place")

    def closure(self, function: types.FunctionType) -> dict[str, types.CellType]:
        """The cells that a function closes over, by name."""
        names, cells, source = (
            function.__code__.co_freevars,
            function.__closure__ or (),
            self.source_of(function),
        )
        if source is not None:  # not made by the interpreted program
            places = [source.variable(name, f".__closure__[{i}]") for i, name in enumerate(names)]
            cells = tuple(
                cell if self.of(cell) else self.wrap(cell, at)
                for cell, at in zip(cells, places, strict=True)
            )
        return dict(zip(names, cells, strict=True))

    def defaults(self, function: types.FunctionType) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What stands for the defaults of a function's parameters. (Places are counted from the last, as Python does.)"""
        source, defaults, more = (
            self.source_of(function),
            function.__defaults__ or (),
            function.__kwdefaults__ or {},
        )
        if source is None:
            return defaults, more
        places, names = source.attr("__defaults__"), source.attr("__kwdefaults__")
        found = tuple(
            self.wrap(obj, places.item(i)) for i, obj in enumerate(defaults, -len(defaults))
        )
        return found, {name: self.wrap(obj, names.item(name)) for name, obj in more.items()}

    def fill(self, known: Known, name: str) -> bool:
        """Give the stand-in of an instance its attribute `name`, if the real one has it. True if it is there now."""
        copy, real, attributes = known.stand_in, known.real, known.attributes
        assert attributes is not None
        own = own_dict(copy)
        if name in attributes:
            return name in own
        found, slot = own_dict(real).get(name, MISSING), member_of(type(real), name)
        if found is MISSING:
            attributes[name] = MISSING
            if is_slot(slot) and is_full(real, name):
                attributes[name] = self.wrap(slot.__get__(real), self.own(known, name))
                slot.__set__(copy, attributes[name])
            elif is_slot(slot):
                self.assume(known.source, "absent", SlotIsEmpty(name))
            elif type(real).__dictoffset__:
                self.assume_absent(self.own(known, "__dict__"), name)
            return attributes[name] is not MISSING
        hidden = hasattr(type(slot), "__set__") or not name.isidentifier()
        source = self.own(known, "__dict__").item(name) if hidden else self.own(known, name)
        attributes[name] = own[name] = self.wrap(found, source)
        return True

    @staticmethod
    def own(known: Known, name: str) -> Source:
        """Where an instance keeps an attribute of its own. Guards ask for it without running the user's code."""
        if has_own_lookup(type(known.real)):
            return Source(f", {name!r})", known.source, "object.__getattribute__(", f".{name}")
        slow = (
            name in own_dict(known.real)
            and member_of(type(known.real), "__getattr__") is not MISSING
        )
        return dataclasses.replace(
            known.source.attr(name), in_dict=slow and not keyword.iskeyword(name)
        )

    def fill_all(self, known: Known) -> None:
        """Give the stand-in every attribute of the real instance."""
        names = tuple(own_dict(known.real))
        if type(known.real).__dictoffset__:
            self.assume(self.own(known, "__dict__"), "keys", KeysAre(names))
        for name in [*names, *slots(type(known.real))]:
            self.fill(known, name)

    def class_attribute(self, known: Known, name: str, found: Any) -> None:
        """Guard what the class of an instance from outside has by a name, as it stands in the class body."""
        cls, source = type(known.real), known.source.type()
        if found is MISSING or hasattr(type(found), "__get__"):
            self.see(cls, source, name)
        self.wrap_functions(found, cls, source, name)

    def wrap_functions(self, found: Any, cls: type, source: Source, name: str) -> None:
        """Guard the functions that a class attribute is made of."""
        body = next(
            (i for i, base in enumerate(cls.__mro__) if base.__dict__.get(name) is found), 0
        )
        owner = source.attr("__mro__").item(body) if body else source
        for part, function in functions_of(found).items():
            if is_users(function):
                self.wrap(
                    function,
                    owner.attr("__dict__").item(name).attr(part) if part else owner.attr(name),
                )

    def switched(self) -> list[tuple[str, str]]:
        """The switches that the program has turned: how to turn them in the real world."""
        nesting = f"torch.autocast_{'increment' if self.nesting > 0 else 'decrement'}_nesting", ""
        return [p for p in global_state.turned() if p not in self.at_start] + [nesting] * abs(
            self.nesting
        )

    def nest(self, by: int) -> int:
        """Enter or leave an autocast region: how deep it is now. (The real count is the head's to change.)"""
        self.nesting += by
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting() + self.nesting


@functools.lru_cache(256)
def can_copy(cls: Any) -> bool:
    """May an instance be copied attribute by attribute? Classes written in Python, whose copies nobody notices."""
    handles = any(base.__module__.split(".")[0] in HANDLES for base in cls.__mro__)
    # its own code, which runs natively, would meet the copy
    handles |= f"{cls.__module__}.".startswith(APART[1:]) and not issubclass(cls, torch.nn.Module)
    noticed = (
        handles
        or hasattr(cls, "__del__")
        or issubclass(cls, (BaseException, types.ModuleType, type))
    )
    return not noticed and (
        cls is types.SimpleNamespace or classes.makes_bare(solid_base(cls), cls)
    )


def solid_base(cls: type) -> type:
    """The builtin type that instances of `cls` are built on."""
    return next(
        (
            b
            for b in cls.__mro__
            if b in (tuple, list, collections.deque, types.SimpleNamespace, *MAPPINGS)
        ),
        object,
    )


def functions_of(found: Any) -> dict[str, types.FunctionType]:
    """The functions that a class attribute is made of, and by which name it keeps each: of a property, `fget`."""
    parts = ("fget", "fset", "fdel", "__func__", "func") if type(found) in WRAPPING else ()
    members = {"": found, **{part: getattr(found, part, None) for part in parts}}
    return {
        part: function
        for part, function in members.items()
        if isinstance(function, types.FunctionType)
    }


def is_slot(found: Any) -> bool:
    """Is this class attribute a fixed place in each instance? So is what a cell holds."""
    return isinstance(found, types.MemberDescriptorType) or found is types.CellType.cell_contents


def slots(cls: type) -> list[str]:
    """The attributes that instances have a fixed place for."""
    written = [
        base
        for base in cls.__mro__
        if base.__flags__ & HEAP_TYPE or issubclass(base, (Exception, types.CellType))
    ]
    return [name for base in written for name, found in base.__dict__.items() if is_slot(found)]


def in_slots(value: Any) -> dict[str, Any]:
    """What an instance holds in those places."""
    return {
        name: object.__getattribute__(value, name)
        for name in slots(type(value))
        if is_full(value, name)
    }


def is_bound(obj: Any) -> bool:
    """Is this a method of a builtin type, bound to an object that may change (`values.append`)?"""
    method = type(obj) is types.BuiltinMethodType and not isinstance(
        obj.__self__, (types.NoneType, types.ModuleType, type)
    )
    return method and hasattr(type(obj.__self__), obj.__name__)  # False: of pybind11


def is_full(holder: Any, name: str = "cell_contents") -> bool:
    """Has a cell its content, an instance something in a slot?"""
    try:
        return object.__getattribute__(holder, name) is not MISSING
    except (AttributeError, ValueError):
        return False


HELPERS |= {"is_full": is_full, "upcoming": lambda iterator: upcoming(iterator, [])}


def upcoming(iterator: Any, parts: list[Any]) -> list[Any]:
    """What an iterator is going to give; guards ask, so nothing is taken from it. `parts` gets what it takes its items from."""
    make, args, *state = iterator.__reduce__()
    parts += args
    if any(hasattr(arg, "__next__") and type(arg) not in ITERATORS for arg in args):
        raise TypeError("a look ahead would take something")
    again = make(*[iter(upcoming(arg, parts)) if type(arg) in ITERATORS else arg for arg in args])
    if state and state[0] is not None:
        again.__setstate__(state[0])
    return list(again)


class Remaining:
    """Stands for an iterator from outside: gives what stands for the items to come; the head takes as many from the real one."""

    def __init__(self, world: World, real: Any, source: Source) -> None:
        self.world, self.source, self.taken = world, Source(")", source, "upcoming("), 0
        self.parts: list[Any] = []
        self.items = upcoming(real, self.parts)

    def __iter__(self) -> "Remaining":
        return self

    def __next__(self) -> Any:
        for part in self.parts:
            known = self.world.stand_ins.get(id(part))
            if known and (
                type(known.stand_in) is Remaining
                or [*map(id, known.before or ())] != [*map(id, known.stand_in)]
            ):
                raise Unsupported(
                    f"a {type(part).__name__} is used or changed while a loop takes items from it"
                )
        at = self.taken
        self.taken = min(at, len(self.items)) + 1
        if at < len(self.items):
            return self.world.wrap(self.items[at], self.source.item(at))
        self.world.assume(self.source, "length", LengthIs(len(self.items)))
        raise StopIteration


class Inliner(frames.Watcher):
    """Watches what Python calls by itself while a capture runs: frames of Python code come back to the interpreter."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda frame: None)
        self.world = world
        self.caller: Any = None  # The interpreter that has called Python

    def __call__(self, code: types.CodeType, function: types.FunctionType, *args: Any) -> Any:
        if function.__name__ == "__repr__" and type(args[0]) in SYMBOLIC:
            return lambda function, number: repr(concrete(number))
        apart = f"{function.__module__}.".startswith(APART) or function.__module__ == "torch"
        return functools.partial(frames.call, None, self.natively if apart else self.inline)

    def natively(self, function: types.FunctionType, *args: Any) -> Any:
        """Run the frame as it is. It must not meet the stand-in of an instance, whose attributes nobody would fill in."""
        ours = f"{function.__module__}.".startswith(
            ("course_lib.", "copyreg.")
        )  # which know of them
        for value in () if ours else args:
            if (bare := self.bare_stand_in(value)) is not None:
                raise Unsupported(
                    f"gives a {type(bare).__name__} to {function.__qualname__}, which is a part of Python or torch",
                    "use it outside the compiled function",
                )
        return frames.run_apart(function, *args)

    def bare_stand_in(self, value: Any) -> Any:
        """The stand-in of an instance from outside in a value, or in a nest of plain containers; None if there is none."""
        known = self.world.of(value)
        if known is not None and known.attributes is not None and type(value) is not types.CellType:
            return value
        if type(value) in (tuple, list, dict):
            parts = value.values() if type(value) is dict else value
            return next((b for b in map(self.bare_stand_in, parts) if b is not None), None)
        return None

    def inline(self, function: types.FunctionType, *args: Any) -> Any:
        """Interpret the frame. (Defaults are the function's own: what stands for them is put in their place.)"""
        self.world.adopt(function, args)
        defaults, more = self.world.defaults(function)
        real = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
        stand_ins = dict(zip(map(id, real), (*defaults, *more.values()), strict=True))
        return self.caller.enter(function, tuple(stand_ins.get(id(arg), arg) for arg in args))
