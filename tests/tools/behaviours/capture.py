"""Lesson 02: what capture follows, and what the compiled function gives back."""

import asyncio
import collections
import dataclasses
import enum
import functools
import gc
import inspect
import types
import typing
import weakref

import numpy as np
import torch
from kit import attempt, program
from torch import nn

USER = "torch/_dynamo/variables/user_defined.py"
CONVERT = "torch/_dynamo/symbolic_convert.py"
BUILDER = "torch/_dynamo/variables/builder.py"
MODES = "torch/_dynamo/variables/torch_function.py"
ones = torch.ones


def twice(engine, f, *args, **options):
    """Two calls with the same arguments."""
    watch = engine.watch(f, **options)
    watch(*args)
    watch(*args)
    return watch


# ---- objects that the compiled function makes -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    k: int


@dataclasses.dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    k: int


class Pair(typing.NamedTuple):
    x: torch.Tensor
    k: int


class RichPair(Pair):
    @property
    def both(self):
        return self.k * 2


class Bag(dict):
    pass


class Flags(enum.Flag):
    R = 1
    W = 2


class Whole(int):
    pass


class Fault(Exception):
    kind = "of the module"


class Box:
    kind = "of the module"


def made(engine, make, look):
    """One call that makes an object and gives it back; `look` says what it is."""
    watch = engine.watch(make)
    try:
        result = watch.compiled(ones(2))
        watch.note(
            str((type(result[-1] if type(result) is tuple else result).__name__, look(result)))
        )
    except Exception as error:
        watch.note(f"raises {type(error).__name__}")
    return watch


@program("02", "gives a frozen dataclass", USER)
def gives_a_frozen_dataclass(engine):
    return made(engine, lambda x: Frozen(x + 1, 2), lambda r: (r.x.tolist(), r.k))


@program("02", "gives a dataclass with slots", USER)
def gives_a_dataclass_with_slots(engine):
    return made(engine, lambda x: Slotted(x + 1, 2), lambda r: (r.x.tolist(), r.k))


@program("02", "gives a subclass of a NamedTuple with a property", USER)
def gives_a_named_tuple(engine):
    return made(engine, lambda x: RichPair(x + 1, 2), lambda r: (r.x.tolist(), r.both))


@program("02", "gives a SimpleNamespace", USER)
def gives_a_namespace(engine):
    return made(
        engine, lambda x: types.SimpleNamespace(x=x + 1, k=2), lambda r: (r.x.tolist(), r.k)
    )


@program("02", "gives a subclass of dict with an attribute", USER)
def gives_a_dict_with_an_attribute(engine):
    def f(x):
        bag = Bag(k=x + 1)
        bag.extra = 5
        return bag

    return made(engine, f, lambda r: (r["k"].tolist(), r.extra))


@program("02", "gives a combination of flags", USER)
def gives_flags(engine):
    return made(engine, lambda x: (x + 1, Flags.R | Flags.W), lambda r: r[1].value)


@program("02", "gives a set of an int and a text", USER)
def gives_a_set(engine):
    return made(engine, lambda x: (x + 1, {1, "a"}), lambda r: sorted(map(str, r[1])))


@program("02", "gives a subclass of int", USER)
def gives_a_kind_of_int(engine):
    return made(engine, lambda x: (x + 1, Whole(3)), lambda r: int(r[1]))


@program("02", "gives a range with a step", USER)
def gives_a_range(engine):
    return made(engine, lambda x: (x + 1, range(1, 9, 3)), lambda r: list(r[1]))


@program("02", "gives an exception of a class of the module", USER)
def gives_an_exception(engine):
    return made(engine, lambda x: (x + 1, Fault("a", 2)), lambda r: r[1].args)


@program("02", "gives an exception of a LOCAL class; the module has one of this name", USER)
def gives_an_exception_of_a_local_class(engine):
    class Fault(Exception):
        kind = "local"

    return made(engine, lambda x: (x + 1, Fault("a")), lambda r: r[1].kind)


@program("02", "gives an object of a LOCAL class; the module has one of this name", USER)
def gives_an_object_of_a_local_class(engine):
    class Box:
        kind = "local"

    return made(engine, lambda x: (x + 1, Box()), lambda r: r[1].kind)


@program("02", "gives a deque with a length limit", USER)
def gives_a_deque(engine):
    return made(
        engine,
        lambda x: (x + 1, collections.deque([1, 2, 3], maxlen=2)),
        lambda r: (list(r[1]), r[1].maxlen),
    )


@program("02", "gives a defaultdict", USER)
def gives_a_default_dict(engine):
    def f(x):
        d = collections.defaultdict(list)
        d["a"].append(1)
        return x + 1, d

    return made(engine, f, lambda r: (dict(r[1]), r[1].default_factory.__name__))


@program("02", "gives a Counter of a list", USER)
def gives_a_counter(engine):
    return made(engine, lambda x: (x + 1, collections.Counter([1, 1, 2])), lambda r: dict(r[1]))


@program("02", "gives a partial of a function of torch", USER)
def gives_a_partial(engine):
    return made(
        engine,
        lambda x: (x + 1, functools.partial(torch.add, other=2)),
        lambda r: r[1](ones(1)).tolist(),
    )


@program(
    "02",
    "gives a lambda that closes over a tensor made inside",
    "torch/_dynamo/variables/functions.py",
)
def gives_a_lambda(engine):
    def f(x):
        y = x + 1
        return lambda z: z * y

    return made(engine, f, lambda r: r(ones(2) * 3).tolist())


@program("02", "gives a dict that contains itself", BUILDER)
def gives_a_cycle(engine):
    def f(x):
        d = {}
        d["self"] = d
        return x + 1, d

    return made(engine, f, lambda r: r[1]["self"] is r[1])


@program("02", "gives a generator that is half done", "torch/_dynamo/variables/functions.py")
def gives_a_generator(engine):
    def numbers(x):
        yield x + 1
        yield x + 2
        yield x + 3

    def f(x):
        g = numbers(x)
        return next(g), g

    return made(engine, f, lambda r: [t[0].item() for t in r[1]])


@program("02", "gives `[x + 1, x, x]`: is the input itself in it, twice?", BUILDER)
def gives_the_input(engine):
    x = ones(2)
    r = engine.compile(
        lambda x: [x + 1, x, x], **({"backend": "eager"} if engine.name != "eager" else {})
    )(x)
    return r[1] is x, r[1] is r[2]


@program(
    "02",
    "`ys = xs; ys.append(...)`: the argument is longer after the call",
    "torch/_dynamo/side_effects.py",
)
def an_argument_grows(engine):
    def f(xs):
        ys = xs
        ys.append(xs[0] + 1)
        return ys is xs

    watch, xs = engine.watch(f), [ones(2)]
    watch(xs)
    return watch, len(xs)


@program("02", "`y = x; y += 1; return y is x`", CONVERT)
def in_place_on_another_name(engine):
    def f(x):
        y = x
        y += 1
        return y is x

    watch, x = engine.watch(f), ones(2)
    watch(x)
    return watch, x


@program("02", "a weak reference to the input, made inside", "torch/_dynamo/variables/misc.py")
def a_weak_reference(engine):
    def f(x):
        r = weakref.ref(x)
        return x + 1, r() is x

    return twice(engine, f, ones(2))


# ---- classes with a mind of their own -------------------------------------------------------------------------------


class Single(type):
    made: typing.ClassVar[dict] = {}

    def __call__(cls, *args):
        if cls not in Single.made:
            Single.made[cls] = super().__call__(*args)
        return Single.made[cls]


class Settings(metaclass=Single):
    def __init__(self):
        self.k = 2.0


@program(
    "02", "a singleton by a metaclass: 2.0 when it is made, 5.0 when the function is called", USER
)
def a_singleton_by_metaclass(engine):
    Settings().k = 5.0
    return twice(engine, lambda x: x * Settings().k, ones(2))


class OtherSettings:
    def __new__(cls):
        if not hasattr(cls, "it"):
            cls.it = object.__new__(cls)
        return cls.it


@program("02", "a singleton by `__new__`: 5.0 when the function is called", USER)
def a_singleton_by_new(engine):
    OtherSettings().k = 5.0
    return twice(engine, lambda x: x * OtherSettings().k, ones(2))


@program("02", "a class that counts its objects in `__init__`", "torch/_dynamo/side_effects.py")
def a_class_that_counts(engine):
    class Counted:
        count = 0

        def __init__(self):
            type(self).count += 1

    def f(x):
        Counted()
        return x + Counted.count

    return twice(engine, f, ones(2))


seen: list[str] = []


class Meta(type):
    def __call__(cls, *args):
        seen.append("call")
        return super().__call__(*args)


class ByMeta(metaclass=Meta):
    def __init__(self, x):
        self.x = x


@program("02", "a metaclass whose `__call__` counts: the count after two calls", USER)
def a_metaclass_that_counts(engine):
    seen.clear()
    watch = twice(engine, lambda x: ByMeta(x).x * 2, ones(2))
    return watch, len(seen)


class Anything:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        seen.append(name)
        return 2.0


@program("02", "`__getattr__` that notes each name: how many after two calls", USER)
def a_getattr_that_notes(engine):
    seen.clear()
    watch = twice(engine, lambda x, o: x * o.k * o.k, ones(2), Anything())
    return watch, len(seen)


class Property:
    @property
    def k(self):
        seen.append("k")
        return 2.0


@program("02", "a property that notes each reading: how many after two calls", USER)
def a_property_that_notes(engine):
    seen.clear()
    watch = twice(engine, lambda x, o: x * o.k * o.k, ones(2), Property())
    return watch, len(seen)


@program("02", "a descriptor made in a function: how many readings after two calls", USER)
def a_descriptor_that_notes(engine):
    notes = []

    class Descriptor:
        def __get__(self, obj, owner=None):
            notes.append("k")
            return 2.0

    class Holder:
        k = Descriptor()

    watch = twice(engine, lambda x, o: x * o.k * o.k, ones(2), Holder())
    return watch, len(notes)


class Thing:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return self.k == other.k

    def __hash__(self):
        return hash(self.k)

    def __bool__(self):
        return self.k > 1

    def __len__(self):
        return self.k

    def __lt__(self, other):
        return self.k < other.k

    def __contains__(self, item):
        return item == self.k

    def __getitem__(self, key):
        return self.k * key

    def __radd__(self, other):
        return other + self.k


@program("02", "`==`, `bool`, `len`, `in`, `[]` and `+` of a class of one's own", USER)
def operators_of_a_class(engine):
    def f(x, a, b):
        answers = (a == b, bool(a), len(b), 3 in b, a[4])
        return x + a, answers

    return twice(engine, f, ones(2), Thing(1), Thing(3))


@program("02", "`sorted` of objects with `__lt__`", USER)
def sorted_objects(engine):
    return twice(
        engine,
        lambda x, things: (x + 1, [t.k for t in sorted(things)]),
        ones(2),
        [Thing(3), Thing(1), Thing(2)],
    )


@program("02", "objects as keys of a dict", "torch/_dynamo/variables/dicts.py")
def objects_as_keys(engine):
    return twice(engine, lambda x, d: x * d[Thing(3)], ones(2), {Thing(3): 5.0, Thing(4): 6.0})


# ---- functions that are no plain functions --------------------------------------------------------------------------


@program("02", "a coroutine with an `await`, run twice", "torch/_dynamo/resume_execution.py")
def a_coroutine(engine):
    async def f(x):
        y = x + 1
        await asyncio.sleep(0)
        return y * 2

    watch = engine.watch(f)
    for _ in range(2):
        try:
            watch.note(str(asyncio.run(watch.compiled(ones(2))).tolist()))
        except Exception as error:
            watch.note(f"raises {type(error).__name__}")
    return watch


@program(
    "02", "is the compiled coroutine function one, by `inspect`?", "torch/_dynamo/eval_frame.py"
)
def is_it_a_coroutine_function(engine):
    async def f(x):
        return x + 1

    return inspect.iscoroutinefunction(engine.compile(f))


@program(
    "02", "is the compiled generator function one, by `inspect`?", "torch/_dynamo/eval_frame.py"
)
def is_it_a_generator_function(engine):
    def f(x):
        yield x + 1

    return inspect.isgeneratorfunction(engine.compile(f))


@program("02", "a generator function that is compiled itself", CONVERT)
def a_generator_function(engine):
    def f(x):
        yield x + 1
        yield x * 2

    watch = engine.watch(f)
    watch.note(str(attempt(lambda: [t.tolist() for t in watch.compiled(ones(2))])))
    return watch


@program("02", "a generator that is used up inside", "torch/_dynamo/variables/functions.py")
def a_generator_inside(engine):
    def numbers(x):
        for i in range(3):
            yield x + i

    return twice(engine, lambda x: sum(numbers(x)), ones(2))


@program(
    "02",
    "`functools.lru_cache` on a helper: how often it runs in two calls",
    "torch/_dynamo/variables/functions.py",
)
def a_cached_helper(engine):
    ran = []

    @functools.lru_cache
    def helper(n):
        ran.append(n)
        return n * 2

    return twice(engine, lambda x: x * helper(3), ones(2)), len(ran)


@program("02", "`functools.singledispatch` on a tensor", "torch/_dynamo/variables/functions.py")
def single_dispatch(engine):
    @functools.singledispatch
    def kind(x):
        return 1

    @kind.register
    def _(x: torch.Tensor):
        return 2

    return twice(engine, lambda x: x * kind(x), ones(2))


@program("02", "recursion 50 deep", CONVERT)
def recursion_of_fifty(engine):
    def f(x, n):
        return x if n == 0 else f(x + 1, n - 1)

    watch = engine.watch(f)
    watch(ones(2), 50)
    return watch


@program("02", "recursion 200 deep", CONVERT)
def recursion_of_two_hundred(engine):
    def f(x, n):
        return x if n == 0 else f(x + 1, n - 1)

    watch = engine.watch(f)
    result = watch(ones(2), 200)
    return (str(result[0].item()) if result is not None else watch.values[-1],)


@program("02", "`locals()` inside", CONVERT)
def locals_inside(engine):
    def f(x):
        k = 3
        return x * locals()["k"]

    return twice(engine, f, ones(2))


@program("02", "`eval('x + 1')` inside", CONVERT)
def eval_inside(engine):
    return twice(engine, lambda x: eval("x + 1"), ones(2))


@program("02", "`match` on a tuple and a class", CONVERT)
def match_statement(engine):
    def f(x, what):
        match what:
            case (a, b):
                return x * a + b
            case Thing():
                return x * what.k
            case _:
                return x

    watch = engine.watch(f)
    for what in ((2, 3), Thing(4), None):
        watch(ones(2), what)
    return watch


@program("02", "`try`, a KeyError, `except`, `finally`", "torch/_dynamo/symbolic_convert.py")
def an_exception_that_is_caught(engine):
    log = []

    def f(x, d):
        try:
            return x * d["missing"]
        except KeyError as error:
            return x + len(error.args)
        finally:
            log.append("end")

    return twice(engine, f, ones(2), {}), list(log)


@program(
    "02",
    "an exception that leaves the function: is the list that was changed before it as in eager?",
    CONVERT,
)
def an_exception_that_leaves(engine):
    log = []

    def f(x):
        log.append("before")
        y = x + 1
        raise ValueError("left")
        return y

    return twice(engine, f, ones(2)), list(log)


@program("02", "an exception group and `except*`", CONVERT)
def an_exception_group(engine):
    def f(x):
        try:
            raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
        except* ValueError:
            x = x + 1
        except* KeyError:
            x = x * 3
        return x

    return twice(engine, f, ones(2))


@program(
    "02",
    "a nested function changes a variable of the function around it",
    "torch/_dynamo/side_effects.py",
)
def a_nonlocal(engine):
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x + count

    return twice(engine, f, ones(2)), count


@program("02", "a list in a global grows in each call", "torch/_dynamo/side_effects.py")
def a_global_list(engine):
    seen.clear()

    def f(x):
        seen.append("x")
        return x + len(seen)

    watch = engine.watch(f)
    for _ in range(4):
        watch(ones(2))
    return watch, len(seen)


@program(
    "02", "`x.note = 5` on the input: is it there after the call?", "torch/_dynamo/side_effects.py"
)
def an_attribute_on_a_tensor(engine):
    def f(x):
        x.note = 5
        return x + 1

    x = ones(2)
    watch = engine.watch(f)
    watch(x)
    return watch, getattr(x, "note", None)


@program("02", "`del` of a key and `pop` of an argument's dict", "torch/_dynamo/side_effects.py")
def a_dict_shrinks(engine):
    def f(x, d):
        del d["a"]
        return x * d.pop("b")

    watch = engine.watch(f)
    d = {"a": 1, "b": 2.0, "c": 3}
    watch(ones(2), d)
    return watch, d


# ---- torch's own modes ----------------------------------------------------------------------------------------------


def in_a_mode(engine, mode_of, f=None, plain_calls=3):
    """Graphs of a first call under a mode, and of calls without it."""
    watch = engine.watch(f or (lambda x: x * 2))
    with mode_of():
        watch(ones(2))
    for _ in range(plain_calls):
        watch(ones(2))
    return watch


@program(
    "02",
    "the first call under a TorchDispatchMode, then three plain ones",
    "torch/_dynamo/convert_frame.py",
)
def first_under_a_dispatch_mode(engine):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return in_a_mode(engine, Passing)


@program(
    "02",
    "the first call under FlopCounterMode, then three plain ones",
    "torch/_dynamo/convert_frame.py",
)
def first_under_a_flop_counter(engine):
    from torch.utils.flop_counter import FlopCounterMode

    return in_a_mode(engine, lambda: FlopCounterMode(display=False))


@program(
    "02",
    "the first call under the profiler, then three plain ones",
    "torch/_dynamo/convert_frame.py",
)
def first_under_the_profiler(engine):
    return in_a_mode(engine, torch.autograd.profiler.profile)


@program(
    "02",
    "the first call under hooks on saved tensors, then three plain ones",
    "torch/_dynamo/convert_frame.py",
)
def first_under_saved_tensors_hooks(engine):
    same = lambda t: t
    return in_a_mode(engine, lambda: torch.autograd.graph.saved_tensors_hooks(same, same))


@program(
    "02",
    "the first call by `vmap` of the compiled function, then three plain ones",
    "torch/_dynamo/eval_frame.py",
)
def first_under_vmap(engine):
    watch = engine.watch(lambda x: x * 2)
    watch.note(str(attempt(lambda: torch.func.vmap(watch.compiled)(ones(2, 3)).tolist())))
    for _ in range(3):
        watch(ones(3))
    return watch


@program(
    "02", "a TorchFunctionMode that counts, two calls inside and one outside; the count", MODES
)
def a_function_mode_that_counts(engine):
    from torch.overrides import TorchFunctionMode

    count = 0

    class Counting(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            nonlocal count
            count += 1
            return func(*args, **(kwargs or {}))

    watch, counts = engine.watch(lambda x: (x + 1) * 2), []
    x = ones(2)
    with Counting():
        for _ in range(2):
            attempt(watch.compiled, x)
            counts.append(count)
    watch(x)
    return watch, counts


@program("02", "a TorchFunctionMode that doubles each result, around `(x + 1) * 2`", MODES)
def a_function_mode_that_doubles(engine):
    from torch.overrides import TorchFunctionMode

    class Twice(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            r = func(*args, **(kwargs or {}))
            return r * 2 if isinstance(r, torch.Tensor) and r.is_floating_point() else r

    f, x, results = lambda x: (x + 1) * 2, ones(2), []
    compiled = engine.compile(f, **({"backend": "eager"} if engine.name != "eager" else {}))
    with Twice():
        results = [attempt(compiled, x) for _ in range(2)]
    return [r if isinstance(r, str) else r[0].item() for r in results]


@program(
    "02",
    "a tensor subclass with `__torch_function__` that adds a note",
    "torch/_dynamo/variables/tensor.py",
)
def a_tensor_subclass(engine):
    class Noted(torch.Tensor):
        pass

    x = ones(2).as_subclass(Noted)
    result = attempt(engine.compile(lambda x: x + 1), x)
    return result if isinstance(result, str) else type(result).__name__


# ---- NumPy ----------------------------------------------------------------------------------------------------------


@program("02", "`np.sin(x.numpy())` inside", "torch/_dynamo/variables/misc.py")
def numpy_of_a_tensor(engine):
    return twice(engine, lambda x: torch.from_numpy(np.sin(x.numpy())) * 2, ones(2))


@program(
    "02",
    "a NumPy array as the argument: what type is the result?",
    "torch/_dynamo/variables/builder.py",
)
def numpy_as_an_argument(engine):
    watch = engine.watch(lambda a: a * 2 + 1)
    result = watch(np.ones(2, dtype=np.float32))
    return watch, type(result).__name__, str(result.dtype)


@program("02", "`np.float32(2) * 3.0` inside: which dtype?", "torch/_numpy/_dtypes_impl.py")
def numpy_promotion(engine):
    def f(x):
        a = np.ones(2, dtype=np.float32) * np.float64(3.0)
        return x + 1, a

    watch = engine.watch(f)
    result = watch(ones(2))
    return str(result[1].dtype) if result is not None else "no result"


@program("02", "a NumPy scalar `np.int64(3)` as an argument: 3, 4, 5", BUILDER)
def a_numpy_scalar(engine):
    watch = engine.watch(lambda x, n: x * n)
    for n in (3, 4, 5):
        watch(ones(2), np.int64(n))
    return watch


# ---- the wrapper (lesson 00) ----------------------------------------------------------------------------------------


def compiled_linear(engine):
    return engine.compile(
        nn.Linear(3, 3), **({"backend": "eager"} if engine.name != "eager" else {})
    )


@program("00", "is a compiled Linear an `nn.Linear`?", "torch/_dynamo/eval_frame.py")
def is_it_a_linear(engine):
    return isinstance(compiled_linear(engine), nn.Linear)


@program("00", "the keys of a compiled Linear's `state_dict`", "torch/_dynamo/eval_frame.py")
def keys_of_the_state_dict(engine):
    return list(compiled_linear(engine).state_dict())


@program("00", "can a compiled Linear be pickled and loaded?", "torch/_dynamo/eval_frame.py")
def pickled(engine):
    import pickle

    loaded = attempt(lambda: pickle.loads(pickle.dumps(compiled_linear(engine))))
    return loaded if isinstance(loaded, str) else loaded(ones(1, 3)).shape


@program("00", "does a deep copy of a compiled layer compile again?", "torch/_dynamo/eval_frame.py")
def a_deep_copy(engine):
    import copy

    watch = engine.watch(nn.Linear(3, 3))
    watch.compiled(ones(2, 3))
    watch.note("first")
    copy.deepcopy(watch.compiled)(ones(2, 3))
    watch.note("copy")
    return watch


@program("00", "name, doc and signature of a compiled function", "torch/_dynamo/eval_frame.py")
def name_and_signature(engine):
    def f(x, *, k: int = 2):
        "doc"
        return x * k

    c = engine.compile(f)
    return c.__name__, c.__doc__, str(inspect.signature(c)), inspect.isfunction(c)


@program(
    "00",
    "an attribute that is set on the compiled module: does the original have it?",
    "torch/_dynamo/eval_frame.py",
)
def an_attribute_set_on_the_wrapper(engine):
    m = nn.Linear(3, 3)
    c = engine.compile(m)
    c.note = 5
    return getattr(m, "note", None)


@program("00", "`c.train(False)`: is the original in eval mode?", "torch/_dynamo/eval_frame.py")
def eval_of_the_wrapper(engine):
    m = nn.Linear(3, 3)
    engine.compile(m).eval()
    return m.training


@program("00", "`len()` and `[0]` of a compiled Sequential", "torch/_dynamo/eval_frame.py")
def length_of_a_compiled_sequential(engine):
    c = engine.compile(nn.Sequential(nn.ReLU(), nn.ReLU()))
    return attempt(lambda: len(c)), attempt(lambda: type(c[0]).__name__)


@program(
    "00",
    "another method than `forward` of a compiled module: is it compiled?",
    "torch/_dynamo/eval_frame.py",
)
def another_method(engine):
    class Two(nn.Module):
        def forward(self, x):
            return x + 1

        def other(self, x):
            return x * 3

    watch = engine.watch(Two())
    watch.note(str(watch.compiled.other(ones(2)).tolist()))
    return watch


@program(
    "00",
    "a compiled function is compiled again with another backend: who runs?",
    "torch/_dynamo/eval_frame.py",
)
def compiled_twice(engine):
    inner = engine.watch(lambda x: x * 2)
    outer = engine.watch(inner.compiled)
    outer(ones(2))
    inner(ones(2))
    return outer, inner


@program("00", "a compiled method of a class: two objects", "torch/_dynamo/eval_frame.py")
def a_compiled_method(engine):
    class Holder:
        def __init__(self, k):
            self.k = k

        def run(self, x):
            return x * self.k

    watch = engine.watch(Holder.run)
    watch(Holder(2.0), ones(2))
    watch(Holder(3.0), ones(2))
    return watch


@program(
    "00",
    "`gc`: is the input of a call kept alive by the compiled function?",
    "torch/_dynamo/guards.py",
)
def is_the_input_kept_alive(engine):
    watch = engine.watch(lambda x: x * 2)
    x = ones(2)
    watch(x)
    ref = weakref.ref(x)
    del x
    gc.collect()
    return watch, ref() is None
