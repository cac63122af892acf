"""How each kind of value is made anew: the expression, and the statements that come before it.

In:  the `Rebuilder` that asks (`rebuild.py`), and a value that the program made itself.
Out: an expression that gives such a value in the real world.

Three steps, as `Rebuilder.write` takes them: `WAYS` is the ordered list of the ordinary kinds;
`BY_TYPE` holds the special ones, which `corners/rebuilding.py` fills in; what is left is an
instance of a class, or an object that can tell how to make a copy of it.
In PyTorch: the `reconstruct` methods in `torch/_dynamo/variables/`.
"""

from __future__ import annotations

import collections
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.builtins import SAFE_TYPES
from course_lib.capture.classes import is_a, is_users, makes_bare, member_of, own_dict
from course_lib.capture.sources import Unsupported
from course_lib.capture.stand_ins.kinds import MAPPINGS, SCALARS, SEQUENCES
from course_lib.capture.stand_ins.slots import in_slots, is_full
from course_lib.capture.symbolic_numbers import is_of_data
from course_lib.capture.values import CONSTANT_TYPES
from course_lib.written import as_tuple

if TYPE_CHECKING:
    from course_lib.capture.rebuild import Rebuilder

METHOD_TO_ADD_ITEMS: dict[Any, str] = {
    list: "extend",
    collections.deque: "extend",
    set: "update",
    collections.defaultdict: "update",
    collections.OrderedDict: "update",
    dict: "update",
}
"""Containers that can change, and the method that adds items. A class built on one finds its base
in this order."""

MODULES_WITH_REDUCE = (
    "itertools",
    "builtins",
    "functools",
    "operator",
    "collections",
    "torch.return_types",
    "string.templatelib",
)
"""Modules whose objects may be made from what their `__reduce__` says."""

LINKS = ("__context__", "__cause__", "__suppress_context__")
"""What an exception says about others. (The last comes last: to set `__cause__` sets it, too.)"""


# --- the ordinary kinds of value


@dataclass(frozen=True)
class Way:
    """How one kind of value is written."""

    applies: Callable[[Rebuilder, Any], bool]
    write: Callable[[Rebuilder, Any], str]


def is_tensor(head: Rebuilder, value: Any) -> bool:
    return is_a(value, torch.Tensor)


def write_tensor(head: Rebuilder, tensor: torch.Tensor) -> str:
    """A tensor is one more result of the graph."""
    head.outputs.append(tensor)
    return f"__out[{len(head.outputs) - 1}]"


def is_symbolic(head: Rebuilder, value: Any) -> bool:
    return is_a(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def write_symbolic(head: Rebuilder, number: Any) -> str:
    """A size is computed from the sizes of the inputs; what only the data says, the graph gives."""
    if is_of_data(number):
        head.outputs.append(number)
        return f"__out[{len(head.outputs) - 1}]"
    return head.hoist(number, head.world.shapes.text(number.node.expr))


def is_size(head: Rebuilder, value: Any) -> bool:
    return type(value) is torch.Size


def write_size(head: Rebuilder, size: torch.Size) -> str:
    return head.assign(f"torch.Size({head.listed(size)})")


def is_bare_object(head: Rebuilder, value: Any) -> bool:
    """Is it an `object()` that the program made?"""
    return type(value) is object and head.world.of(value) is None


def write_bare_object(head: Rebuilder, value: Any) -> str:
    return head.assign("object()")


def is_function_without_place(head: Rebuilder, value: Any) -> bool:
    """Is it a function that cannot be imported?"""
    return type(value) is types.FunctionType and head.world.static_source(value) is None


def write_function(head: Rebuilder, function: types.FunctionType) -> str:
    """A function that the program made: a new one of its code, its globals, its defaults and its
    cells."""
    if id(function) not in head.world.made:
        # Code that is not interpreted has made it. Without cells it can be kept as it is.
        if function.__closure__:
            what = f"{function.__qualname__}, a function that has no known place, is alive here"
            raise Unsupported(what)
        return head.name_for(function)

    defaults = head.rebuild(function.__defaults__)

    # Cells of its own come first and empty. They are filled when the function is there, for they
    # may hold it.
    own_cells = []
    for cell in function.__closure__ or ():
        if head.world.of(cell) is None and not head.is_written(cell):
            own_cells.append(cell)
    for cell in own_cells:
        head.assign("CellType()", cell)

    cells = [head.rebuild(cell) for cell in function.__closure__ or ()]
    closure = as_tuple(cells) if cells else "None"
    code, globals_ = head.name_for(function.__code__), head.name_for(function.__globals__)
    name = head.assign(
        f"FunctionType({code}, {globals_}, {function.__name__!r}, {defaults}, {closure})", function
    )

    for cell in filter(is_full, own_cells):
        head.body.append(f"{head.rebuild(cell)}.cell_contents = {head.rebuild(cell.cell_contents)}")
    for attribute in attributes_to_set(function):
        text = head.rebuild(getattr(function, attribute))
        head.body.append(f"{name}.{attribute} = {text}")
    return name


def attributes_to_set(function: types.FunctionType) -> list[str]:
    """The attributes in which a function differs from a new one of the same code."""
    plain = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, function.__closure__
    )
    # To ask for annotations may run `__annotate__`, the user's code (from Python 3.14 on).
    is_lazy = getattr(function, "__annotate__", None) is not None
    annotations = "__annotate__" if is_lazy else "__annotations__"

    names = ("__kwdefaults__", "__dict__", "__qualname__", "__doc__", "__module__", annotations)
    return [name for name in names if getattr(function, name) != getattr(plain, name)]


def stands_for_itself(head: Rebuilder, value: Any) -> bool:
    """Is it a number, a text, a class, a module: an object that nothing can change?"""
    if type(value) in CONSTANT_TYPES or is_a(value, type) or head.world.is_static(value):
        return True
    return is_a(value, SCALARS) and not getattr(value, "__dict__", None)


def write_name(head: Rebuilder, value: Any) -> str:
    return head.name_for(value)


def is_container(head: Rebuilder, value: Any) -> bool:
    return type(value) in SEQUENCES or type(value) in MAPPINGS


def write_container(head: Rebuilder, value: Any) -> str:
    """A list, tuple, set, deque or dict of Python's own."""
    cls = type(value)
    if cls in (set, frozenset) or cls in MAPPINGS:
        refuse_own_keys(value)

    text = head.display(value) if cls is list or cls in MAPPINGS else head.listed(value)
    if text == "()" and cls is tuple:
        return text  # Python has one empty tuple only
    if cls in (tuple, list, dict):
        return head.assign(text)

    arguments = [text]
    if cls is collections.defaultdict:
        arguments.insert(0, head.rebuild(value.default_factory))
    if cls is collections.deque:
        arguments.append(str(value.maxlen))
    return head.assign(f"{head.name_for(cls)}({', '.join(arguments)})")


WAYS = [
    Way(is_tensor, write_tensor),
    Way(is_symbolic, write_symbolic),
    Way(is_size, write_size),
    Way(is_bare_object, write_bare_object),
    Way(is_function_without_place, write_function),
    Way(stands_for_itself, write_name),
    Way(is_container, write_container),
]
"""The ordinary kinds, in the order in which they are asked."""

BY_TYPE: dict[type, Callable[[Any, Any], str]] = {}
"""Special kinds: type → (head, value) → expression. `corners/rebuilding.py` fills this table."""


# --- the rest: instances, and what can tell how to make a copy of it


def base_of(cls: Any) -> Any:
    """The type written in C that instances of `cls` are built on."""
    for base in cls.__mro__:
        if base is tuple or base in METHOD_TO_ADD_ITEMS:
            return base
    return object


def is_instance_of_python_class(value: Any) -> bool:
    """Is it an exception, or an instance of a class written in Python?"""
    if is_a(value, BaseException):
        return True

    # Classes of these modules may have more in them than attributes. They say themselves how to
    # make a copy.
    cls = type(value)
    if cls.__module__ in MODULES_WITH_REDUCE:
        return False
    return makes_bare(base_of(cls), cls)


def write_instance(head: Rebuilder, value: Any) -> str:
    """An instance of a class written in Python: made without `__init__`, then given its
    attributes."""
    if is_a(value, BaseException):
        name = write_exception(head, value)
    else:
        name = write_bare_instance(head, value)

    own_attributes = own_dict(value)
    if own_attributes:
        head.body.append(f"{name}.__dict__.update({head.display(own_attributes)})")
    for slot, held in in_slots(value).items():
        head.body.append(f"object.__setattr__({name}, {slot!r}, {head.rebuild(held)})")
    return name


def write_exception(head: Rebuilder, error: BaseException) -> str:
    """An exception with its arguments, the exceptions that it names, and its traceback."""
    class_name = head.name_for(type(error))
    arguments = [class_name, *[head.rebuild(arg) for arg in error.args]]
    name = head.assign(f"{class_name}.__new__({', '.join(arguments)})", error)

    for part in LINKS:
        linked = getattr(error, part)
        if linked is not None and linked is not False:
            head.body.append(f"{name}.{part} = {head.rebuild(linked)}")

    raised = head.world.raised.get(id(error))
    if raised is not None and raised.trace:
        trace = head.name_for(raised.trace, "traceback")
        head.body.append(f"{name}.__traceback__ = {trace}")
    return name


def write_bare_instance(head: Rebuilder, value: Any) -> str:
    """An instance without attributes; one that is built on a container has its items."""
    base: Any = base_of(type(value))
    class_name = head.name_for(type(value))
    if base is tuple:
        return head.assign(
            f"tuple.__new__({class_name}, {head.listed(tuple.__iter__(value))})", value
        )

    name = head.assign(f"{head.name_for(base)}.__new__({class_name})", value)
    if base in MAPPINGS:
        head.put(name, base, is_of_base=False, items=dict(base.items(value)))
    elif base is not object:
        head.put(name, base, is_of_base=False, items=list(base.__iter__(value)))
    return name


def write_reduced(head: Rebuilder, value: Any) -> str:
    """Iterators and other objects that can tell how to make a copy of them (as for `pickle`)."""
    try:
        with warnings.catch_warnings(action="ignore"):
            reduced = value.__reduce_ex__(4)
        if is_a(reduced, str):
            # The name of a thing that lives in a module: its copy is itself.
            if head.world.static_source(value) is None:
                raise TypeError("no module has it")
            return head.name_for(value)

        # `reduced` has two to six parts. Those behind the state say what else a copy is to be
        # given.
        make, args, state, *more = (*reduced, None)[:5]
        is_known = type(value) in SAFE_TYPES or type(value).__module__ in MODULES_WITH_REDUCE
        if any(more) or not is_known:
            raise TypeError("it is more than its parts")
    except (TypeError, ValueError) as error:
        what = f"a {type(value).__name__} is alive here, which cannot be made anew: {error}"
        raise Unsupported(what) from None

    arguments = ", ".join([head.rebuild(arg) for arg in args])
    name = head.assign(f"{head.name_for(make)}({arguments})", value)
    if state is not None:
        how = "__setstate__" if hasattr(value, "__setstate__") else "__dict__.update"
        head.body.append(f"{name}.{how}({head.rebuild(state)})")
    return name


# --- what must not run twice


def refuse_own_keys(keys: Iterable[Any]) -> None:
    """Raise Unsupported if a dict or set of these would ask them: their `__eq__` and `__hash__`
    have run once already."""
    for key in list(keys):
        if has_own_comparison(key):
            what = f"puts a {type(key).__name__} into a dict or set, which runs its own __eq__ or __hash__"
            raise Unsupported(what, "do it outside the compiled function")


def has_own_comparison(key: Any) -> bool:
    """Does a dict run code of the user's to find this key?

    What `dataclasses` writes compares fields, and nothing else."""
    if type(key) is tuple:
        return any(map(has_own_comparison, key))

    for name in ("__eq__", "__hash__"):
        method = member_of(type(key), name)
        is_python = is_a(method, types.FunctionType) and is_users(method)
        # The code that `dataclasses` writes has no file.
        if is_python and method.__code__.co_filename != "<string>":
            return True
    return False
