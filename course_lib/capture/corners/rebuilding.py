"""Special kinds of values that are alive when a frame ends or breaks, and how each is written.

In:  a bound method, a view of a dict, `super()`, a cell, a generator, ...
Out: an expression that gives such a value in the real world (`capture/rebuild_kinds.py` has the
     ordinary kinds).
In PyTorch: `reconstruct` of `UserMethodVariable`, `DictViewVariable`, `SuperVariable` and
`CellVariable`. A generator that has started is more than TorchDynamo rebuilds.
"""

from __future__ import annotations

import collections
import functools
import gc
import inspect
import types
from typing import Any

import torch

from course_lib import frames
from course_lib.capture.breaks import BreakBuilder
from course_lib.capture.calls.builtins import SAFE_TYPES
from course_lib.capture.calls.callbacks import call_back
from course_lib.capture.calls.known_functions import Id
from course_lib.capture.classes import is_a, is_users
from course_lib.capture.machine import Machine
from course_lib.capture.rebuild import Rebuilder
from course_lib.capture.rebuild_kinds import BY_TYPE, write_reduced
from course_lib.capture.resuming import resumption, stack_of
from course_lib.capture.sources import Unsupported
from course_lib.capture.stand_ins.slots import is_full

METHODS_OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType)


def write_view(head: Rebuilder, view: Any) -> str:
    """`keys()`, `values()` or `items()` of the dict that it looks at."""
    # `dict_keys` or `odict_keys` → `keys`
    method = type(view).__name__.partition("_")[2]
    return f"{head.rebuild(gc.get_referents(view)[0])}.{method}()"


def write_id(head: Rebuilder, number: Id) -> str:
    """What `id` gave for an object that the program made: it has another address in the real
    world."""
    return head.assign(f"id({head.rebuild(number.obj)})")


def write_partial(head: Rebuilder, value: functools.partial[Any]) -> str:
    """A `partial`, made anew. But where C code has got one in place of a function of the program
    (`call_back`), it is the function."""
    # Its arguments: the world, the function
    if value.func is call_back:
        return head.rebuild(value.args[1])
    return write_reduced(head, value)


def is_torchs_class_method(cls: type, method: types.MethodType) -> bool:
    """True for `cls.apply` of an `autograd.Function`: torch wrote the method, and `cls.apply` finds
    it again. (No source is known for the function alone.)"""
    # With a `__getattr__` of its own, `cls.name` need not be what lies in the class.
    if is_users(method.__func__) or getattr(cls, "__getattr__", None) is not None:
        return False
    member = inspect.getattr_static(cls, method.__name__, None)
    return getattr(member, "__func__", None) is method.__func__


def write_method(head: Rebuilder, method: types.MethodType) -> str:
    """A method written in Python, bound to its object."""
    target: Any = method.__self__
    function: Any = method.__func__
    if is_a(target, type) and is_torchs_class_method(target, method):
        return head.assign(f"{head.rebuild(target)}.{method.__name__}")
    # The object's class tells where the function is, if no instruction has read it by itself
    if is_a(function, types.FunctionType):
        head.world.adopt(function, [target])
    return head.assign(f"MethodType({head.rebuild(function)}, {head.rebuild(target)})")


def write_method_of_c(head: Rebuilder, method: Any) -> str:
    """A method written in C, bound to its object.

    `object.name` finds it again. A class of the user's may have a method of its own by that name:
    there the method is taken from the type written in C, and bound.
    """
    target, name = method.__self__, method.__name__
    if type(target) in SAFE_TYPES or is_a(target, torch.Tensor):
        text = head.rebuild(target)
        if not text.isidentifier():
            text = f"({text})"  # `(5).bit_length`
        return f"{text}.{name}"

    for owner in type(target).__mro__:
        if is_a(owner.__dict__.get(name), METHODS_OF_C):
            return f"{head.name_for(owner)}.{name}.__get__({head.rebuild(target)})"
    raise Unsupported(f"{name}, a method of a {type(target).__name__}, is alive here")


def write_super(head: Rebuilder, value: Any) -> str:
    return f"super({head.rebuild(value.__thisclass__)}, {head.rebuild(value.__self__)})"


def write_cell(head: Rebuilder, cell: types.CellType) -> str:
    """A variable that functions share: first empty, for what it holds may hold the cell."""
    name = head.assign("CellType()", cell)
    if is_full(cell):
        head.body.append(f"{name}.cell_contents = {head.rebuild(cell.cell_contents)}")
    return name


def write_generator(head: Rebuilder, generator: Any) -> str:
    """A generator of the interpreted program: the head makes a new one and runs it to the same
    `yield`."""
    has_ended = generator.gi_frame is None
    if has_ended:
        # a generator that gives nothing
        return head.assign("(_ for _ in ())")

    # It is really a generator of the interpreter's own method `Machine.generator`, whose `self`
    # interprets the program's.
    it = generator.gi_frame.f_locals.get("self")
    is_ours = generator.gi_code is Machine.generator.__code__
    # One that stands in an `except` could not get its exception back.
    if generator.gi_running or not is_ours or it.handling is not None:
        raise Unsupported("a generator is alive here, which cannot be made anew")

    has_started = it.next > it.place_of_generator
    # Where it goes on. The instruction that makes a generator is followed by a POP_TOP.
    place = it.next - 1 if has_started else it.place_of_generator + 1
    offset = it.program[place].offset
    refuse_early_end(head, it, offset)

    # On top of the stack: what `next` sends into a generator, None
    stack = [*stack_of(head, it), "None"]
    # True: it goes on without being compiled
    name = head.assign(resumption(head, it, offset, stack, head.rebuild(it.function), True))
    if has_started:
        head.body.append(f"next({name})  # to the `yield` where it stands")
    return name


def refuse_early_end(head: Rebuilder, it: Any, offset: int) -> None:
    """Raise Unsupported if a frame goes on after a break with a generator that is inside `try` or
    `with`.

    The frame may drop it, and then its `finally` must run at once. The head would keep it alive for
    longer.
    """
    if not is_a(head, BreakBuilder):
        return

    for entry in frames.exception_table(it.code):
        if entry.start <= offset < entry.end:
            handler = it.program[it.index_of[entry.target]]
            # Each generator has this one: it makes a RuntimeError of StopIteration.
            if handler.op != "STOPITERATION_ERROR":
                what = (
                    "a generator is alive here, whose `finally` is to run as soon as it is dropped"
                )
                raise Unsupported(what)


# One of each kind, for the types of their views
PLAIN_DICT: dict[Any, Any] = {}
ORDERED_DICT: collections.OrderedDict[Any, Any] = collections.OrderedDict()
VIEWS = [
    view
    for made in (PLAIN_DICT, ORDERED_DICT)
    for view in (made.keys(), made.values(), made.items())
]
BY_TYPE |= dict.fromkeys(map(type, VIEWS), write_view)
BY_TYPE |= {
    Id: write_id,
    functools.partial: write_partial,
    types.MethodType: write_method,
    types.BuiltinMethodType: write_method_of_c,
    types.MethodWrapperType: write_method_of_c,
    super: write_super,
    types.CellType: write_cell,
    types.GeneratorType: write_generator,
}
