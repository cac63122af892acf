"""Functions that only look: at the frame's own variables, its callers, this thread, the names in an
object; `pickle` of constants.

In:  `locals()`, `sys._getframe(1).f_code.co_name`, `globals()["x"]`, `threading.current_thread()`,
     `pickle.dumps((1, "a"))`.
Out: what eager would see. What lies outside the captured frame is guarded.
In PyTorch: `torch/_dynamo/variables/builtin.py` (`call_locals`, `call_dir`), `variables/misc.py`
(`FrameSummaryVariable`); the rest are polyfills or run as constants.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

from course_lib import frames
from course_lib.capture.attributes import lookup as lookups
from course_lib.capture.attributes.change import OPAQUE_CHANGES
from course_lib.capture.attributes.lookup import OPAQUE_ATTRIBUTES, Lookup
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.classes import MISSING, is_a, own_dict
from course_lib.capture.corners.names_one_by_one import NamesOneByOne
from course_lib.capture.guard_tests import Is, KeysAre, LacksAttribute
from course_lib.capture.known import Known
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Imported, Source, Unsupported, lists_variables
from course_lib.capture.stand_ins.slots import is_full
from course_lib.capture.symbolic_numbers import concrete
from course_lib.capture.values import CONSTANT_TYPES
from course_lib.frames.newer import LOCALS_ARE_ONE_DICT

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

# ---- the frame's own variables -------------------------------------------------------------------


def local_variables(it: Machine) -> dict[str, Any]:
    """`locals()`: the variables that have a value."""
    if it.names is not None:  # a class body
        return it.names

    # The captured frame has only those arguments that its code reads, unless the code itself names
    # `locals` or `dir`
    code = it.code
    unread_parameters = set(frames.parameters(code)) - it.locals.keys()
    if it is it.world.root and unread_parameters and not lists_variables(code):
        raise Unsupported(
            f"lists the variables of a frame that does not read {min(unread_parameters)}"
        )

    variables = {}
    names = dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    for name in names:
        value = it.locals.get(name, MISSING)
        if type(value) is types.CellType:
            value = it.world.open_cell(value)
            value = value.cell_contents if is_full(value) else MISSING
        if value is not MISSING:
            variables[name] = value

    if not LOCALS_ARE_ONE_DICT:
        return variables

    # Up to Python 3.12 all calls give one dict, and each call brings it up to date.
    one_dict: dict[str, Any] = vars(it).setdefault("kept_locals", {})
    for name in names.keys() - variables.keys():
        one_dict.pop(name, None)
    one_dict.update(variables)
    return one_dict


class GlobalVariables(NamesOneByOne):
    """Stands for a dict of global variables."""

    refused = "asks for all global variables, or changes them"

    def __init__(self, it: Machine) -> None:
        super().__init__()
        self.world, self.variables, self.function = it.world, it.globals, it.function

    def find(self, name: Any) -> Any:
        """The variable's value; MISSING if the module has no such variable."""
        stored = self.world.stored.get((id(self.variables), name))
        if type(name) is not str or (stored is None and name not in self.variables):
            # This leaves the guard that the name is absent. The answer is not used: it may be a
            # builtin, which `globals()` does not have.
            self.world.read_global(self.variables, str(name), self.function)
            return MISSING
        return self.world.read_global(self.variables, name, self.function)


def global_variables(it: Machine) -> GlobalVariables:
    """`globals()`"""
    if it.world.globals_source(it.globals, it.function) is None:
        raise Unsupported("asks for the global variables of a function whose module is not known")
    return GlobalVariables(it)


# ---- the callers ---------------------------------------------------------------------------------


class InterpretedFrame:
    """Stands for the frame of interpreted code.

    `depth`: how many frames lie around it, up to the captured one."""

    def __init__(self, machine: Machine, depth: int) -> None:
        self.machine, self.depth = machine, depth


def frame_above(it: Machine, depth: Any = 0) -> InterpretedFrame:
    """`sys._getframe(depth)`"""
    return frame_at(it, len(it.world.running) - 1 - depth)


def frame_at(it: Machine, place: int) -> InterpretedFrame:
    """The frame at this place, counted from the captured one. It is the same object at each ask."""
    if place < 0:
        raise Unsupported("looks at the frames of its callers, which are not captured")
    # Eager has more frames in between, where capture has called a module without torch's code
    if any(place < left_out.depth for left_out in it.world.left_out):
        raise Unsupported("looks at the frames of `nn.Module.__call__`, which are not interpreted")
    machine = it.world.running[place]
    machine_attributes: dict[str, Any] = vars(machine)
    if "kept_frame" not in machine_attributes:
        machine_attributes["kept_frame"] = InterpretedFrame(machine, place)
    frame: InterpretedFrame = machine_attributes["kept_frame"]
    return frame


def of_frame(lookup: Lookup) -> Any:
    """`frame.f_code`"""
    frame, name, it = lookup.value, lookup.name, lookup.it
    if type(frame) is not InterpretedFrame:
        return GO_ON
    running = it.world.running
    if frame.depth >= len(running) or running[frame.depth] is not frame.machine:
        raise Unsupported("looks at a frame that has ended")

    if name == "f_code":
        return frame.machine.code
    if name == "f_lineno":
        return it.world.lines[frame.depth].line
    if name == "f_globals":
        return global_variables(frame.machine)
    if name == "f_locals":
        return local_variables(frame.machine)
    if name == "f_back":
        return frame_at(it, frame.depth - 1)
    raise Unsupported(f"reads {name} of a frame")


# ---- this thread ---------------------------------------------------------------------------------

THREADS = Imported("threading")


def thread_ident(it: Machine) -> int:
    """`threading.get_ident()`"""
    ident = threading.get_ident()
    it.world.assume_constant(ident, Source("()", THREADS.attr("get_ident")))
    return ident


def current_thread(it: Machine) -> Any:
    return this_thread(it, "current_thread")


def main_thread(it: Machine) -> Any:
    return this_thread(it, "main_thread")


def this_thread(it: Machine, name: str) -> Any:
    """A thread that a function of `threading` gives; guarded to be this one."""
    thread = getattr(threading, name)()
    source = Source("()", THREADS.attr(name))
    it.world.assume(source, "identity", Is(thread))
    return it.world.wrap(thread, source)


def attribute_of_thread(it: Machine, known: Known, name: str) -> Any:
    """`threading.current_thread().name`"""
    if name not in ("name", "ident", "daemon", "native_id"):
        raise Unsupported(f"reads {name} of a thread")
    attribute = getattr(known.real, name)
    it.world.assume_constant(attribute, known.source.attr(name))
    return attribute


def attribute_of_thread_local(it: Machine, known: Known, name: str) -> Any:
    """An attribute of this thread's data. (Guards ask in the thread that calls.)"""
    stored = it.world.stored.get((id(known.stand_in), name))
    attribute = getattr(known.real, name, MISSING) if stored is None else stored.value
    if attribute is MISSING:
        if stored is None:
            it.world.assume(known.source, "absent", LacksAttribute(name))
        raise AttributeError(f"'_thread._local' object has no attribute '{name}'")
    if stored is None:
        return it.world.wrap(attribute, known.source.attr(name))
    return attribute


def change_thread_local(it: Machine, known: Known, name: str, new: Any = MISSING) -> None:
    """`local.name = new`, or `del local.name` if `new` is MISSING: the head does it."""
    if new is MISSING:
        attribute_of_thread_local(it, known, name)  # raises if there is none
    it.world.store(known.stand_in, name, new)


# ---- names in an object --------------------------------------------------------------------------


def names_of(it: Machine, *values: Any) -> Any:
    """`dir(value)`; without a value, the names of the local variables."""
    if not values:
        return sorted(local_variables(it))
    value = values[0]
    known = it.world.of(value)
    source = it.world.source_of(value)
    if is_a(value, (type, types.ModuleType)) and source is not None:
        return names_outside(it, value, source)
    if known is None:
        return it.native(dir, value)
    if known.attributes is None or type(known.real).__dir__ is not object.__dir__:
        raise Unsupported(f"calls dir of a {type(value).__name__}, which looks at all of it")

    if has_other_names(value, known):
        raise Unsupported("calls dir of an object that it has changed")
    return names_outside(it, known.real, known.source)


def has_other_names(value: Any, known: Known) -> bool:
    """Has the program given a name to an object from outside, or taken one away?"""
    if own_dict(value).keys() - own_dict(known.real).keys():
        return True

    # Names that it had when they were read, and that it has no longer: neither in its dict nor in a
    # slot
    attributes = known.attributes or {}
    read = [name for name, was in attributes.items() if was is not MISSING]
    return any(name not in own_dict(value) and not is_full(value, name) for name in read)


def names_outside(it: Machine, value: Any, source: Source) -> list[str]:
    """`dir` of an object as it is outside, and a guard that it will be the same."""
    names = dir(value)
    it.world.assume(source, "names", KeysAre(names, "dir({})"))
    return list(names)


# ---- pickle --------------------------------------------------------------------------------------

NESTS = (list, tuple, dict, set, frozenset)
"""Containers of Python's own, which may be nested in each other."""


def is_plain(value: Any) -> bool:
    """Is this a constant, or a nest of Python's own containers of constants?"""
    if type(value) is dict:
        return all(map(is_plain, (*value, *value.values())))
    return type(value) in CONSTANT_TYPES or (type(value) in NESTS and all(map(is_plain, value)))


def dumps(it: Machine, value: Any, *args: Any, **kwargs: Any) -> bytes:
    """`pickle.dumps(value)` of constants: their guards say that it gives the same again."""
    value = concrete(value)
    if not is_plain(value) or not is_plain([args, kwargs]):
        raise Unsupported("pickles something that is no constant", "do it outside the function")
    return pickle.dumps(value, *args, **kwargs)


class PlainUnpickler(pickle.Unpickler):
    """Makes constants and Python's own containers only."""

    def find_class(self, module: str, name: str) -> Any:
        raise Unsupported(f"unpickles a {name}", "do it outside the compiled function")


def loads(it: Machine, data: Any, **options: Any) -> Any:
    """`pickle.loads(data)`, of what holds constants only."""
    if type(data) is not bytes or options:
        raise Unsupported("unpickles something that is no constant", "do it outside the function")
    return PlainUnpickler(io.BytesIO(data)).load()


FUNCTIONS |= {
    locals: local_variables,
    globals: global_variables,
    dir: names_of,
    sys._getframe: frame_above,
    threading.get_ident: thread_ident,
    threading.current_thread: current_thread,
    threading.main_thread: main_thread,
    pickle.dumps: dumps,
    pickle.loads: loads,
}
for kind in (threading.Thread, type(threading.main_thread()), threading._DummyThread):
    OPAQUE_ATTRIBUTES[kind] = attribute_of_thread
OPAQUE_ATTRIBUTES[threading.local] = attribute_of_thread_local
OPAQUE_CHANGES[threading.local] = change_thread_local
lookups.register(of_frame, before=lookups.of_tensor)
