"""What only looks: at the frame's own variables, at its callers, at this thread, at the names in an object; and `pickle` of constants.

In:  `locals()`, `sys._getframe(1).f_code.co_name`, `globals()["x"]`, `threading.current_thread()`, `pickle.dumps((1, "a"))`.
Out: what eager would see: of the interpreted frames, of constants now, of all else under a guard.
In PyTorch: `torch/_dynamo/variables/builtin.py` (`call_locals`, `call_dir`), `variables/misc.py` (`FrameSummaryVariable`); the rest
are polyfills or run as constants.
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
from course_lib.capture.guard_tests import Is, KeysAre, LacksAttribute
from course_lib.capture.known import Known
from course_lib.capture.rules import GO_ON
from course_lib.capture.shapes import concrete
from course_lib.capture.sources import Imported, Source, Unsupported
from course_lib.capture.stand_ins.slots import is_full
from course_lib.capture.values import CONSTANT_TYPES

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

# ---- the frame's own variables -----------------------------------------------------------------------


LISTING = {"locals", "dir"}
"""Where its code calls one of these, the captured frame keeps all its parameters (`capture/__init__.py`)."""


def local_variables(it: Machine) -> dict[str, Any]:
    """`locals()`: the variables that have a value. Until Python 3.13 a frame has one such dict."""
    if it.names is not None:  # of a class body
        return it.names
    found = {}
    code = it.code
    given = set(frames.parameters(code)) - it.locals.keys()
    if it is it.world.root and given and LISTING.isdisjoint(code.co_names):
        raise Unsupported(f"lists the variables of a frame that does not read {min(given)}")
    names = dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
    for name in names:
        value = it.locals.get(name, MISSING)
        if type(value) is types.CellType:
            value = it.world.open_cell(value)
            value = value.cell_contents if is_full(value) else MISSING
        if value is not MISSING:
            found[name] = value

    if sys.version_info >= (3, 13):
        return found
    kept: dict[str, Any] = vars(it).setdefault("kept_locals", {})
    for name in names.keys() - found.keys():
        kept.pop(name, None)
    kept.update(found)
    return kept


class GlobalVariables(dict[str, Any]):
    """Stands for a dict of global variables. It holds nothing: each look-up reads the variable, and leaves a guard."""

    def __init__(self, it: Machine) -> None:
        super().__init__()
        self.world, self.variables, self.function = it.world, it.globals, it.function

    def find(self, name: Any) -> Any:
        stored = self.world.stored.get((id(self.variables), name))
        if type(name) is not str or (stored is None and name not in self.variables):
            self.world.read_global(self.variables, str(name), self.function)  # a guard: not there
            return MISSING
        return self.world.read_global(self.variables, name, self.function)

    def get(self, name: Any, default: Any = None) -> Any:
        found = self.find(name)
        return default if found is MISSING else found

    def __getitem__(self, name: Any) -> Any:
        found = self.find(name)
        if found is MISSING:
            raise KeyError(name)
        return found

    def __contains__(self, name: Any) -> bool:
        return self.find(name) is not MISSING

    def refuse(self, *args: Any, **kwargs: Any) -> Any:
        """Everything else needs all the names, or changes them."""
        raise Unsupported("asks for all global variables, or changes them")

    __iter__ = __len__ = __reversed__ = __eq__ = __or__ = __ior__ = refuse
    __setitem__ = __delitem__ = keys = values = items = copy = refuse
    pop = popitem = setdefault = update = clear = __reduce_ex__ = __repr__ = refuse
    __hash__ = None


def get_variable(it: Machine, variables: GlobalVariables, name: Any, default: Any = None) -> Any:
    """`globals().get(name, default)`"""
    return GlobalVariables.get(variables, name, default)


def global_variables(it: Machine) -> GlobalVariables:
    """`globals()`"""
    if it.world.globals_source(it.globals, it.function) is None:
        raise Unsupported("asks for the global variables of a function whose module is not known")
    return GlobalVariables(it)


# ---- the callers -------------------------------------------------------------------------------------


class Frame:
    """Stands for the frame of interpreted code. `depth`: how many frames lie around it, up to the captured one."""

    def __init__(self, machine: Machine, depth: int) -> None:
        self.machine, self.depth = machine, depth


def frame_above(it: Machine, depth: Any = 0) -> Frame:
    """`sys._getframe(depth)`"""
    return frame_at(it, len(it.world.running) - 1 - depth)


def frame_at(it: Machine, place: int) -> Frame:
    if place < 0:
        raise Unsupported("looks at the frames of its callers, which are not captured")
    machine = it.world.running[place]
    kept: dict[str, Any] = vars(machine)
    if "kept_frame" not in kept:
        kept["kept_frame"] = Frame(machine, place)
    frame: Frame = kept["kept_frame"]
    return frame


def of_frame(lookup: Lookup) -> Any:
    """`frame.f_code`"""
    frame, name, it = lookup.value, lookup.name, lookup.it
    if type(frame) is not Frame:
        return GO_ON
    running = it.world.running
    if frame.depth >= len(running) or running[frame.depth] is not frame.machine:
        raise Unsupported("looks at a frame that has ended")

    if name == "f_code":
        return frame.machine.code
    if name == "f_lineno":
        return it.world.stack[frame.depth].line
    if name == "f_globals":
        return global_variables(frame.machine)
    if name == "f_locals":
        return local_variables(frame.machine)
    if name == "f_back":
        return frame_at(it, frame.depth - 1)
    raise Unsupported(f"reads {name} of a frame")


# ---- this thread -------------------------------------------------------------------------------------

THREADS = Imported("threading")


def thread_ident(it: Machine) -> int:
    """`threading.get_ident()`"""
    found = threading.get_ident()
    it.world.assume_constant(found, Source("()", THREADS.attr("get_ident")))
    return found


def current_thread(it: Machine) -> Any:
    return this_thread(it, "current_thread")


def main_thread(it: Machine) -> Any:
    return this_thread(it, "main_thread")


def this_thread(it: Machine, name: str) -> Any:
    """A thread that a function of `threading` gives; guarded to be this one."""
    found = getattr(threading, name)()
    source = Source("()", THREADS.attr(name))
    it.world.assume(source, "identity", Is(found))
    return it.world.wrap(found, source)


def attribute_of_thread(it: Machine, known: Known, name: str) -> Any:
    """`threading.current_thread().name`"""
    if name not in ("name", "ident", "daemon", "native_id"):
        raise Unsupported(f"reads {name} of a thread")
    found = getattr(known.real, name)
    it.world.assume_constant(found, known.source.attr(name))
    return found


def attribute_of_thread_local(it: Machine, known: Known, name: str) -> Any:
    """An attribute of this thread's data. (Guards ask in the thread that calls.)"""
    stored = it.world.stored.get((id(known.stand_in), name))
    found = getattr(known.real, name, MISSING) if stored is None else stored.value
    if found is MISSING:
        if stored is None:
            it.world.assume(known.source, "absent", LacksAttribute(name))
        raise AttributeError(f"'_thread._local' object has no attribute '{name}'")
    return it.world.wrap(found, known.source.attr(name)) if stored is None else found


def change_thread_local(it: Machine, known: Known, name: str, new: Any = MISSING) -> None:
    """`local.name = new`: the head does it."""
    if new is MISSING:
        attribute_of_thread_local(it, known, name)  # which may raise
    it.world.store(known.stand_in, name, new)


# ---- names in an object ------------------------------------------------------------------------------


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

    # the program may have given it a name, or taken one away
    if own_dict(value).keys() - own_dict(known.real).keys():
        raise Unsupported("calls dir of an object that it has changed")
    for name, was in known.attributes.items():
        if was is not MISSING and name not in own_dict(value) and not is_full(value, name):
            raise Unsupported("calls dir of an object that it has changed")
    return names_outside(it, known.real, known.source)


def names_outside(it: Machine, value: Any, source: Source) -> list[str]:
    names = dir(value)
    it.world.assume(source, "names", KeysAre(names, "dir({})"))
    return list(names)


# ---- pickle ------------------------------------------------------------------------------------------

NESTS = (list, tuple, dict, set, frozenset)


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
    GlobalVariables.get: get_variable,
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
