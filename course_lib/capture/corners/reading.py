"""What the code of a function reads outside of it and what it does there, told by its bytecode
alone.

In:  a function of the user's that torch will call (`forward` of an `autograd.Function`, the kernel
     of a custom operator).
Out: an `Outside`: the constants that it reads, the changeable things that it reads, and whatever it
     may do beyond computing.

The function is not run and not followed. An instruction or a name that is not known to be harmless
counts as an effect. So an empty `Outside` is a promise: each call gives the same for the same
arguments, and changes nothing but its arguments.
In PyTorch: nothing of this kind; TorchDynamo interprets `forward` and `backward`
(`variables/higher_order_ops.py`).
"""

import builtins
import inspect
import os
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy
import torch

from course_lib import frames
from course_lib.capture.calls.builtins import SAFE_MODULES
from course_lib.capture.calls.operations import is_operation
from course_lib.capture.classes import MISSING, is_users
from course_lib.capture.operations import REACH_AROUND
from course_lib.capture.stand_ins.slots import is_full
from course_lib.capture.values import CONSTANT_TYPES

DRAWS_NUMBERS = set(
    """rand randn randint randperm rand_like randn_like randint_like bernoulli bernoulli_ normal normal_ multinomial poisson
    uniform_ random_ exponential_ geometric_ cauchy_ log_normal_ dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout
    feature_dropout feature_alpha_dropout rrelu rrelu_ gumbel_softmax fractional_max_pool2d fractional_max_pool3d
    scaled_dot_product_attention multi_head_attention_forward binomial native_dropout""".split()
)
"""Functions and methods of torch that draw random numbers."""
HARMLESS = {
    getattr(builtins, name)
    for name in """abs all any bool complex dict divmod enumerate filter float frozenset int isinstance issubclass len list map
    max min pow range reversed round set slice sorted str sum tuple zip""".split()
}
"""Builtins that only look at their arguments."""
HARMLESS |= {torch.no_grad, torch.enable_grad, torch.from_numpy, torch.is_tensor, torch.is_complex}
HARMLESS |= {torch.is_floating_point, torch.finfo, torch.iinfo}
OF_CONTEXT = "save_for_backward", "saved_tensors", "needs_input_grad", "mark_non_differentiable"
"""What a function may do with its `ctx`, besides keeping values in it."""
STATE_OF_TENSORS = {"grad", "grad_fn", "data_ptr", *REACH_AROUND}
"""Attributes of a tensor that lead to more than its data."""
LEADING_OUT = set("numpy from_numpy storage_offset".split())
"""Those of `STATE_OF_TENSORS` that a kernel may use all the same: it has real tensors."""
CHANGING = set(
    """append extend insert remove pop clear add discard update setdefault popitem sort reverse put fill itemset""".split()
)
"""Methods that change a list, a set, a dict or an array."""
OF_VALUES = {
    name
    for cls in (list, tuple, dict, set, str, int, float, complex, slice, range, numpy.ndarray)
    for name in dir(cls)
}
"""Names of attributes and methods of Python's own values, and of NumPy's arrays."""
OUTWARD = set(
    """STORE_GLOBAL DELETE_GLOBAL STORE_NAME DELETE_NAME LOAD_NAME LOAD_LOCALS DELETE_ATTR IMPORT_NAME IMPORT_FROM
    LOAD_BUILD_CLASS LOAD_SUPER_ATTR LOAD_FROM_DICT_OR_GLOBALS GET_AWAITABLE GET_AITER GET_ANEXT BEFORE_ASYNC_WITH""".split()
)
"""Instructions that reach out of the function."""
TORCHS_FOLDER = os.path.join(os.path.dirname(torch.__file__), "")
CONSTANTS_OF = "torch", "math", "cmath", "numpy"
"""Modules whose numbers and dtypes nobody rebinds."""


def is_known_attribute(name: str) -> bool:
    """Is this an attribute of a tensor, or of one of Python's own types?"""
    return hasattr(torch.Tensor, name) or name in OF_VALUES


@dataclass(frozen=True)
class Name:
    """A name that a function reads: of a variable outside, or of an attribute of a class or module
    (`owner`)."""

    function: types.FunctionType
    name: str
    owner: Any = None


@dataclass
class Outside:
    """What a function has to do with the world outside. Each text names one thing."""

    # The names of constants, and of functions of the user's, that it reads
    constants: list[Name] = field(default_factory=list)
    functions: list[Name] = field(default_factory=list)
    # What it reads that may change, what it does besides computing, and what it draws
    reads: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    random: list[str] = field(default_factory=list)
    # Is anything changed in place, be it the function's own?
    changes: bool = False
    # The `id`s of functions that were read
    seen: set[Any] = field(default_factory=set)

    @property
    def effect(self) -> str:
        """The first thing that the function may do besides computing, "" if there is none."""
        if self.reads and self.changes:
            return f"{self.reads[0]}, and may change it"
        return next(iter(self.effects), "")


@dataclass(frozen=True)
class Role:
    """How torch calls a function."""

    context: bool = False  # Is its first argument the `ctx` of an `autograd.Function`?
    kernel: bool = False  # Does it run at each call, on real tensors?
    # Does it run at its place? (A backward runs later, when what forward had may have changed.)
    at_once: bool = True


def read(function: Any, role: Role, outside: Outside) -> Outside:
    """Add what `function`, and the functions that it calls, read and do."""
    if id(function) in outside.seen:
        return outside
    outside.seen.add(id(function))
    owner = None
    if isinstance(function, types.MethodType) and isinstance(function.__self__, type):
        # a classmethod: its first parameter is the class
        function, owner = function.__func__, function.__self__
    if not isinstance(function, types.FunctionType):
        outside.effects.append(f"is a {type(function).__name__}, whose code is not known")
        return outside
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if not is_constant(value):
            outside.reads.append(f"has a {type(value).__name__} as a default")
    Reader(function, function.__code__, role, outside, owner).run()
    return outside


def changes_in_place(i: frames.Instruction) -> bool:
    """`x[i] = y`, `del x[i]`, `x += y`: does it change the object that it is given?"""
    if i.op == "BINARY_OP":
        return i.arg.endswith("=")
    return i.op in ("STORE_SUBSCR", "DELETE_SUBSCR")


def is_constant(value: Any) -> bool:
    """Is this a value that cannot change?"""
    if type(value) is tuple:
        return all(map(is_constant, value))
    return type(value) in CONSTANT_TYPES


class Reader:
    """Goes through one code object and writes down what leads outside."""

    def __init__(
        self,
        function: types.FunctionType,
        code: types.CodeType,
        role: Role,
        outside: Outside,
        owner: type | None = None,
    ) -> None:
        self.function, self.role, self.found = function, role, outside
        self.program = frames.instructions(code)

        # For a classmethod: the class, and the parameter that stands for it. `ctx` is the next one.
        parameters = list(code.co_varnames[: code.co_argcount])
        self.owner = owner
        self.owner_parameter = None
        if owner is not None and parameters:
            self.owner_parameter = parameters.pop(0)

        self.context_parameter = None
        if role.context and parameters:
            self.context_parameter = parameters[0]
        self.followed: set[int] = set()  # Places of attributes that were looked up

    def run(self) -> None:
        if self.function.__code__.co_filename.startswith(TORCHS_FOLDER):
            # a wrapper of torch's own, `once_differentiable`: what it wraps is the user's
            for cell in filter(is_full, self.function.__closure__ or ()):
                if isinstance(cell.cell_contents, types.FunctionType):
                    read(cell.cell_contents, self.role, self.found)
            return
        ops = [i.op for i in self.program]
        if ops.count("PUSH_EXC_INFO") > ops.count("WITH_EXCEPT_START"):
            # Capture runs the code on tensors without data, and that may raise. Here the code might
            # catch the error and go another way. (A `with` pushes an error, too: no matter.)
            self.found.effects.append("catches exceptions")
        for place in range(len(self.program)):
            self.instruction(place)

    def instruction(self, place: int) -> None:
        """One instruction: what it says about the world outside."""
        i = self.program[place]
        if isinstance(i.arg, types.CodeType):
            # The code of a function that is made here. It has no `ctx` of its own.
            inner = replace(self.role, context=False)
            Reader(self.function, i.arg, inner, self.found).run()
        elif i.op in ("LOAD_GLOBAL", "LOAD_DEREF"):
            self.name(place)
        elif i.op in ("LOAD_ATTR", "STORE_ATTR"):
            if place not in self.followed:
                self.attribute(place)
        else:
            self.effect_of(i)

    def effect_of(self, i: frames.Instruction) -> None:
        """What an instruction does that looks nothing up."""
        free = self.function.__code__.co_freevars
        writes_outside = i.op in ("STORE_DEREF", "DELETE_DEREF") and i.arg in free
        if i.op in OUTWARD or writes_outside:
            self.found.effects.append(f"runs {i}")
        elif i.op == "STORE_FAST":
            if i.arg in (self.context_parameter, self.owner_parameter) and i.arg is not None:
                self.found.effects.append(f"stores another value in {i.arg}")
        elif changes_in_place(i):
            self.found.changes = True

    def attribute(self, place: int) -> None:
        """An attribute of some value: of the context, of a tensor, or of a value of Python's own
        types."""
        instruction, instruction_before = self.program[place], self.program[place - 1]
        if (
            self.context_parameter
            and instruction_before.op == "LOAD_FAST"
            and instruction_before.arg == self.context_parameter
        ):
            self.attribute_of_context(instruction.arg)
        elif (
            self.owner_parameter
            and instruction_before.op == "LOAD_FAST"
            and instruction_before.arg == self.owner_parameter
        ):
            self.attribute_of_owner(place)
        elif instruction.op == "STORE_ATTR":
            self.found.effects.append(f"changes the attribute '{instruction.arg}' of something")
        else:
            self.attribute_read(instruction.arg)

    def attribute_of_context(self, name: str) -> None:
        """`ctx.name`: any name of the user's own keeps a value there."""
        if hasattr(torch.autograd.Function, name) and name not in OF_CONTEXT:
            self.found.effects.append(f"uses {self.context_parameter}.{name}")

    def attribute_of_owner(self, place: int) -> None:
        """`cls.name` in a classmethod: it is looked up in the class."""
        i = self.program[place]
        value = inspect.getattr_static(self.owner, i.arg, MISSING)
        if isinstance(value, staticmethod):
            value = value.__func__
        if i.op == "STORE_ATTR" or value is MISSING or isinstance(value, classmethod):
            self.found.effects.append(f"uses {self.owner_parameter}.{i.arg}")
        else:
            self.use(value, Name(self.function, i.arg, self.owner))

    def attribute_read(self, name: str) -> None:
        """`value.name`, of a value of which nothing is known but that a tensor or Python's own
        types may have such a name."""
        if name == "data" and not self.role.at_once:
            self.found.effects.append("uses .data, by which it may change a tensor of forward")
        elif name in DRAWS_NUMBERS:
            self.found.random.append(f"draws random numbers ({name})")
        elif name in STATE_OF_TENSORS and not (self.role.kernel and name in LEADING_OUT):
            self.found.effects.append(f"uses .{name}")
        elif name.startswith("_") or not is_known_attribute(name):
            self.found.effects.append(f"uses .{name}, which may be anything")
        elif name in CHANGING:
            self.found.changes = True

    def name(self, place: int) -> None:
        """A name from outside, and the attributes that are read from it:
        `torch.nn.functional.relu`."""
        i = self.program[place]
        value = self.variable(i.arg, i.op == "LOAD_GLOBAL")
        place_of_value = Name(self.function, i.arg)
        for step, attribute in self.attributes_from(place + 1):
            if not isinstance(value, (types.ModuleType, type)):
                break
            self.followed.add(step)
            place_of_value = Name(self.function, attribute, value)
            # `getattr` may run the user's code (a property of a metaclass). But modules of torch
            # make some of their attributes when they are asked.
            look = getattr if is_torchs(value) else inspect.getattr_static
            value = look(value, attribute, MISSING)
            if isinstance(value, staticmethod):
                value = value.__func__
            if value is MISSING:
                self.found.effects.append(f"looks for {i.arg}.{attribute}")
        if value is not MISSING:
            self.use(value, place_of_value)

    def attributes_from(self, place: int) -> Iterator[tuple[int, str]]:
        """The attributes that are read one from the other: their places and names."""
        while self.program[place].op in ("LOAD_ATTR", "PUSH_NULL", "SWAP"):
            if self.program[place].op == "LOAD_ATTR":
                yield place, self.program[place].arg
            place += 1

    def variable(self, name: str, is_global: bool) -> Any:
        """The value of a name; MISSING if it is a local variable of this function, or if there is
        none."""
        if is_global:
            return self.function.__globals__.get(name, getattr(builtins, name, MISSING))
        free = self.function.__code__.co_freevars
        if name not in free:
            return MISSING

        cells = self.function.__closure__ or ()
        cell = cells[free.index(name)]
        if is_full(cell):
            return cell.cell_contents
        return MISSING

    def use(self, value: Any, name: Name) -> None:
        """Something from outside is used."""
        kind = type(value).__name__
        owner = name.owner
        # A constant of a library, as `math.pi`, stays what it is.
        is_fixed = isinstance(owner, types.ModuleType) and owner.__name__ in CONSTANTS_OF
        if is_constant(value):
            if not is_fixed:
                self.found.constants.append(name)
        elif isinstance(value, types.FunctionType) and is_users(value):
            self.found.functions.append(name)
            # It is an ordinary function: its first argument is no `ctx`.
            inner = replace(self.role, context=False)
            read(value, inner, self.found)
        elif getattr(value, "__name__", "") in DRAWS_NUMBERS and is_operation(value):
            self.found.random.append(f"draws random numbers ({name.name})")
        elif is_harmless(value):
            pass
        elif type(value) in (list, dict, set, tuple, frozenset):
            self.found.reads.append(f"reads {name.name}, a {kind} from outside")
        else:
            self.found.effects.append(f"uses {name.name}, a {kind} from outside")


def is_torchs(value: Any) -> bool:
    """Is this a module of torch? (Some make their attributes when they are asked: `torch.ops`.)"""
    return isinstance(value, types.ModuleType) and value.__name__.split(".")[0] == "torch"


def is_harmless(value: Any) -> bool:
    """Does it compute something of its arguments, and nothing else?"""
    module = str(getattr(value, "__module__", ""))
    if isinstance(value, type) and issubclass(value, (BaseException, torch.Tensor)):
        return True
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(value).split(".")[0] in ("aten", "prims")
    if module.startswith("numpy") and not module.startswith("numpy.random") and callable(value):
        owner = getattr(value, "__self__", None)
        return owner is None or isinstance(owner, types.ModuleType)
    try:
        known = value in HARMLESS
    except TypeError:  # not hashable
        return False
    return (
        known
        or module in SAFE_MODULES
        or (is_operation(value) and value.__name__ not in REACH_AROUND)
    )
