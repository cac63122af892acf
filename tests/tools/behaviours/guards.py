"""Lesson 04: what makes a function compile again, and the limit."""

import contextlib
import enum
import functools
import threading

import torch
from kit import Counter, Watch, program
from torch import nn

GUARDS = "torch/_dynamo/guards.py"
STATE = "torch/csrc/dynamo/guards.cpp"
BUILDER = "torch/_dynamo/variables/builder.py"
CACHE = "torch/_dynamo/convert_frame.py"
ones = torch.ones


def called_with(engine, f, values, **options):
    watch = engine.watch(f, **options)
    for value in values:
        watch(ones(2), value)
    return watch


def called_under(engine, f, contexts, x):
    watch = engine.watch(f)
    for context in contexts:
        with context():
            watch(x)
    return watch


# ---- types and values -----------------------------------------------------------------------------------------------


@program("04", "an argument None, 2, 2.0, True, None, 3, 4, 2", GUARDS)
def four_types_of_an_argument(engine):
    def f(x, a):
        return x + 1 if a is None else x * a

    return called_with(engine, f, (None, 2, 2.0, True, None, 3, 4, 2))


class Kind(enum.Enum):
    A = 1
    B = 2


@program("04", "a member of an Enum: A, B, A, then the texts 'A', 'B', then B", GUARDS)
def members_of_an_enum(engine):
    f = lambda x, m: x + 1 if m == Kind.A else x - 1
    return called_with(engine, f, (Kind.A, Kind.B, Kind.A, "A", "B", Kind.B))


@program("04", "a text 'a', 'b', 'a'", GUARDS)
def a_text(engine):
    return called_with(engine, lambda x, s: x + len(s + s), ("a", "b", "a"))


@program("04", "a text that is not read: 'a', 'b', 'c'", GUARDS)
def a_text_that_is_not_read(engine):
    return called_with(engine, lambda x, s: x + 1, ("a", "b", "c"))


@program("04", "an int that is not read: 1, 2, 3", BUILDER)
def an_int_that_is_not_read(engine):
    return called_with(engine, lambda x, n: x + 1, (1, 2, 3))


@program("04", "a complex number 1j, 2j, 3j", BUILDER)
def a_complex_number(engine):
    return called_with(engine, lambda x, z: (x * z).real, (1j, 2j, 3j))


@program("04", "a dtype argument: float32, float64, float32", GUARDS)
def a_dtype(engine):
    return called_with(engine, lambda x, d: x.to(d), (torch.float32, torch.float64, torch.float32))


@program("04", "the dtype of the tensor: float32, float64, int64, bool", GUARDS)
def the_dtype_of_a_tensor(engine):
    watch = engine.watch(lambda x: x + 1)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bool):
        watch(ones(2, dtype=dtype))
    return watch


@program("04", "`requires_grad`: no, yes, no, yes under `no_grad`", GUARDS)
def requires_grad(engine):
    watch = engine.watch(lambda x: x * 2)
    watch(ones(2))
    watch(ones(2, requires_grad=True))
    watch(ones(2))
    with torch.no_grad():
        watch(ones(2, requires_grad=True))
    return watch


@program("04", "a Parameter in the place of a tensor that needs a gradient", GUARDS)
def a_parameter_for_a_tensor(engine):
    watch = engine.watch(lambda x: x * 2)
    watch(ones(2, requires_grad=True))
    watch(nn.Parameter(ones(2)))
    return watch


@program("04", "a tuple, a list, a tuple of the same tensors", GUARDS)
def a_tuple_and_a_list(engine):
    watch = engine.watch(lambda xs: xs[0] + xs[1])
    for xs in ((ones(2), ones(2)), [ones(2), ones(2)], (ones(2), ones(2))):
        watch(xs)
    return watch


@program("04", "a dict iterated: keys a, b; b, a; a, b", "torch/_dynamo/variables/dicts.py")
def the_order_of_keys_iterated(engine):
    def f(d):
        total = 0
        for value in d.values():
            total = total * 2 + value
        return total

    watch = engine.watch(f)
    one, zero = ones(2), torch.zeros(2)
    for d in ({"a": one, "b": zero}, {"b": zero, "a": one}, {"a": one, "b": zero}):
        watch(d)
    return watch


@program("04", "a dict looked up: keys a, b; b, a", "torch/_dynamo/variables/dicts.py")
def the_order_of_keys_looked_up(engine):
    watch = engine.watch(lambda d: d["a"] - d["b"])
    one, zero = ones(2), torch.zeros(2)
    for d in ({"a": one, "b": zero}, {"b": zero, "a": one}):
        watch(d)
    return watch


@program("04", "a dict with a key more that is not read", "torch/_dynamo/variables/dicts.py")
def a_key_more(engine):
    watch = engine.watch(lambda d: d["a"] * 2)
    for d in ({"a": ones(2)}, {"a": ones(2), "b": 1}, {"a": ones(2), "c": 5}):
        watch(d)
    return watch


@program("04", "`**kwargs` in another order", GUARDS)
def keyword_arguments_in_another_order(engine):
    watch = engine.watch(lambda **kw: kw["a"] - kw["b"])
    watch(a=ones(2), b=ones(2) * 2)
    watch(b=ones(2) * 2, a=ones(2))
    return watch


# ---- functions and objects ------------------------------------------------------------------------------------------


def called_with_functions(engine, make):
    watch = engine.watch(lambda x, g: g(x))
    for k in range(4):
        watch(ones(2), make(k))
    return watch


@program("04", "a new lambda of one line in each of 4 calls", GUARDS)
def new_lambdas(engine):
    return called_with_functions(engine, lambda k: lambda y: y + 1)


@program("04", "a new lambda with another closure in each of 4 calls", GUARDS)
def new_closures(engine):
    return called_with_functions(engine, lambda k: lambda y: y + k)


@program("04", "a new partial with the same keyword in each of 4 calls", GUARDS)
def new_partials(engine):
    return called_with_functions(engine, lambda k: functools.partial(torch.add, other=1))


@program("04", "a new partial with another keyword in each of 4 calls", GUARDS)
def new_partials_with_other_numbers(engine):
    return called_with_functions(engine, lambda k: functools.partial(torch.add, other=k))


class Scale:
    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        return x * self.k


@program("04", "another object of one class with the same float, three times", GUARDS)
def other_objects_of_one_class(engine):
    watch = engine.watch(lambda x, o: o(x))
    for _ in range(3):
        watch(ones(2), Scale(2.0))
    return watch


@program("04", "a method is replaced on the class between two calls", GUARDS)
def a_method_is_replaced(engine):
    class Local:
        def run(self, x):
            return x + 1

    watch, o = engine.watch(lambda x, o: o.run(x)), Local()
    watch(ones(2), o)
    Local.run = lambda self, x: x + 5
    watch(ones(2), o)
    return watch


def helper(x):
    return x + 1


@program("04", "a global function is replaced between two calls", GUARDS)
def a_global_function_is_replaced(engine):
    global helper
    before = helper
    watch = engine.watch(lambda x: helper(x))
    watch(ones(2))
    helper = lambda x: x + 5
    watch(ones(2))
    helper = before
    watch(ones(2))
    return watch


@program("04", "a function's `__code__` is replaced between two calls", GUARDS)
def the_code_is_replaced(engine):
    def inner(x):
        return x + 1

    def other(x):
        return x + 5

    watch = engine.watch(lambda x: inner(x))
    watch(ones(2))
    inner.__code__ = other.__code__
    watch(ones(2))
    return watch


@program("04", "a function's default is replaced between two calls", GUARDS)
def a_default_is_replaced(engine):
    def inner(x, k=1.0):
        return x + k

    watch = engine.watch(lambda x: inner(x))
    watch(ones(2))
    inner.__defaults__ = (5.0,)
    watch(ones(2))
    return watch


@program("04", "the same tensor twice, then two tensors, then the same twice: `x is y`", GUARDS)
def two_names_of_one_tensor(engine):
    def f(x, y):
        return x + 1, x is y

    watch, p, q = engine.watch(f), ones(2), ones(2)
    for args in ((p, p), (p, q), (p, p)):
        watch(*args)
    return watch


@program("04", "`x.add_(1); x + y`: the same tensor twice, then two", GUARDS)
def two_names_of_one_tensor_that_is_written(engine):
    def f(x, y):
        x.add_(1)
        return x + y

    watch = engine.watch(f)
    z = ones(2)
    watch(z, z)
    watch(ones(2), ones(2))
    return watch


@program("04", "two tensors first, then the same tensor twice", GUARDS)
def two_tensors_become_one(engine):
    def f(x, y):
        x.add_(1)
        return x + y

    watch = engine.watch(f)
    watch(ones(2), ones(2))
    z = ones(2)
    watch(z, z)
    return watch


@program("04", "an int is the same object and equal: `a is b` for 1000 and 1000", GUARDS)
def two_equal_ints(engine):
    watch = engine.watch(lambda x, a, b: x + (1 if a == b else 2))
    for a, b in ((1000, 1000), (1000, 1001), (1001, 1001)):
        watch(ones(2), a, b)
    return watch


# ---- modules --------------------------------------------------------------------------------------------------------


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = [nn.Linear(3, 3), nn.Linear(3, 3)]

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def after(engine, module, *changes):
    watch = engine.watch(module)
    watch(ones(2, 3))
    for change in changes:
        change()
        watch(ones(2, 3))
    return watch


@program("04", "a plain list of layers gets a third", GUARDS)
def a_layer_is_appended(engine):
    m = Layers()
    return after(engine, m, lambda: m.blocks.append(nn.Linear(3, 3)))


@program("04", "a weight is replaced by another Parameter", GUARDS)
def a_weight_is_replaced(engine):
    m = nn.Linear(3, 3)
    return after(engine, m, lambda: setattr(m, "weight", nn.Parameter(ones(3, 3))))


@program("04", "a weight's numbers are changed in place", GUARDS)
def a_weight_is_changed(engine):
    m = nn.Linear(3, 3)
    return after(engine, m, lambda: m.weight.data.zero_())


@program("04", "`eval()` of a model in which nothing asks for it", GUARDS)
def eval_that_nobody_asks_for(engine):
    m = nn.Linear(3, 3)
    return after(engine, m, m.eval, m.train)


@program("04", "`eval()` and `train()` of a model with dropout of 0.0", GUARDS)
def eval_with_dropout(engine):
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
    return after(engine, m, m.eval, m.train)


@program("04", "a weight's `requires_grad` is switched off", GUARDS)
def a_weight_is_frozen(engine):
    m = nn.Linear(3, 3)
    return after(engine, m, lambda: m.weight.requires_grad_(False))


@program("04", "an attribute is added that nobody reads", GUARDS)
def an_attribute_that_nobody_reads(engine):
    m = nn.Linear(3, 3)
    return after(engine, m, lambda: setattr(m, "note", "new"))


@program("04", "`forward` is replaced on the object", "torch/_dynamo/eval_frame.py")
def forward_is_replaced(engine):
    m = nn.Linear(3, 3)
    return after(engine, m, lambda: setattr(m, "forward", lambda x: x + 5))


def hooked(engine, compile_it):
    """The calls of a compiled layer before a hook, with one (twice), and after it."""
    m, log = nn.Linear(3, 3), []
    with torch.no_grad():
        m.weight.fill_(1.0), m.bias.fill_(0.0)

    def hook(module, args, result):
        log.append(1)
        return result * 2

    watch = compile_it(m)
    x = ones(1, 3)
    watch(x)
    handle = m.register_forward_hook(hook)
    watch(x)
    watch(x)
    handle.remove()
    watch(x)
    return watch, len(log)


@program(
    "04", "`compile(m)`: a forward hook is added after the first call", "torch/_dynamo/config.py"
)
def a_hook_after_compile(engine):
    return hooked(engine, engine.watch)


@program(
    "04",
    "`m.compile()`: a forward hook is added after the first call",
    "torch/_dynamo/eval_frame.py",
    torch_only=True,
)
def a_hook_after_compile_in_place(engine):
    def in_place(m):
        counter = Counter()
        if engine.name == "torch":
            m.compile(backend=counter)
        return Watch(m, counter if engine.name == "torch" else None, m)

    return hooked(engine, in_place)


@program("04", "a hook on an inner layer is added after the first call", "torch/_dynamo/config.py")
def a_hook_on_an_inner_layer(engine):
    inner = nn.Linear(3, 3)
    with torch.no_grad():
        inner.weight.fill_(1.0), inner.bias.fill_(0.0)
    m = nn.Sequential(inner)
    watch = engine.watch(m)
    watch(ones(1, 3))
    inner.register_forward_hook(lambda module, args, result: result * 2)
    watch(ones(1, 3))
    return watch


# ---- torch's settings -----------------------------------------------------------------------------------------------


@program("04", "plain, `no_grad`, `inference_mode`, plain, `no_grad`, `detect_anomaly`", STATE)
def gradient_modes(engine):
    anomaly = lambda: torch.autograd.set_detect_anomaly(True)
    contexts = (
        contextlib.nullcontext,
        torch.no_grad,
        torch.inference_mode,
        contextlib.nullcontext,
        torch.no_grad,
        anomaly,
    )
    return called_under(engine, lambda x: x * 2, contexts, ones(2))


@program("04", "`x @ x` under autocast: none, bfloat16, none, float16, switched off", STATE)
def autocast(engine):
    contexts = (
        contextlib.nullcontext,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        contextlib.nullcontext,
        lambda: torch.autocast("cpu", dtype=torch.float16),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16, enabled=False),
    )
    return called_under(engine, lambda x: x @ x, contexts, ones(2, 2))


def called_after(engine, *switches):
    """Calls with a switch turned before each; all are turned back by the end of the process."""
    watch = engine.watch(lambda x: x * 2)
    for switch in switches:
        switch()
        watch(ones(2))
    return watch


def nothing():
    pass


@program("04", "the default dtype: float32, float64, float32; `x + torch.ones(2)`", STATE)
def the_default_dtype(engine):
    watch = engine.watch(lambda x: x + torch.ones(2))
    x = ones(2)
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        watch(x)
    return watch


@program("04", "deterministic algorithms: off, on, off", STATE)
def deterministic_algorithms(engine):
    switch = torch.use_deterministic_algorithms
    return called_after(engine, nothing, lambda: switch(True), lambda: switch(False))


@program("04", "the default device: cpu, meta, none", STATE)
def the_default_device(engine):
    watch = engine.watch(lambda x: x * 2)
    x = ones(2)
    for device in (None, "meta", None):
        torch.set_default_device(device)
        watch(x)
    return watch


@program("04", "the number of threads: 1, 2, 1", STATE)
def the_number_of_threads(engine):
    switch = torch.set_num_threads
    return called_after(engine, nothing, lambda: switch(2), lambda: switch(1))


@program("04", "the precision of products: highest, high, highest", STATE)
def the_precision_of_products(engine):
    switch = torch.set_float32_matmul_precision
    return called_after(engine, nothing, lambda: switch("high"), lambda: switch("highest"))


@program("04", "`cudnn.benchmark`: off, on", STATE)
def cudnn_benchmark(engine):
    return called_after(engine, nothing, lambda: setattr(torch.backends.cudnn, "benchmark", True))


@program("04", "a call in another thread, then again in the first", CACHE)
def another_thread(engine):
    watch = engine.watch(lambda x: x * 2)
    watch(ones(2))
    thread = threading.Thread(target=watch, args=(ones(2),))
    thread.start()
    thread.join()
    watch(ones(2))
    return watch


@program("04", "`no_grad` in the main thread around a call in another thread", STATE)
def no_grad_and_another_thread(engine):
    watch = engine.watch(lambda x: (x * 2).requires_grad)
    x = ones(2, requires_grad=True)
    watch(x)
    with torch.no_grad():
        thread = threading.Thread(target=watch, args=(x,))
        thread.start()
        thread.join()
    return watch


# ---- the limit ------------------------------------------------------------------------------------------------------


@program("04", "limit 3, five texts, then the first again", CACHE)
def the_limit(engine):
    with engine.limit(3):
        return called_with(engine, lambda x, s: x + len(s + s), "abcdea")


@program("04", "limit 3 and `fullgraph=True`, five texts, then the first again", CACHE)
def the_limit_with_fullgraph(engine):
    with engine.limit(3):
        return called_with(engine, lambda x, s: x + len(s + s), "abcdea", fullgraph=True)


@program(
    "04",
    "limit 2, four texts; the function calls another one, which is then compiled alone or not",
    CACHE,
)
def a_function_called_over_the_limit(engine):
    def inner(x):
        return x * 3

    def f(x, s):
        return inner(x) + len(s + s)

    with engine.limit(2):
        return called_with(engine, f, "abcd")


class Times(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        return x * self.k


@program(
    "04", "limit 2, four objects of one class, each with its own `compile`: graphs of each", CACHE
)
def four_compiled_modules_share_a_limit(engine):
    with engine.limit(2):
        watches = [engine.watch(Times(float(k))) for k in range(1, 5)]
        for watch in watches:
            watch(ones(2))
    return tuple(watches)


@program(
    "04",
    "limit 2, one function compiled twice: a, b, c with the first, a, d with the second",
    CACHE,
)
def two_compiles_of_one_function(engine):
    def f(x, s):
        return x + len(s + s)

    with engine.limit(2):
        first, second = engine.watch(f), engine.watch(f)
        for watch, s in ((first, "a"), (first, "b"), (first, "c"), (second, "a"), (second, "d")):
            watch(ones(2), s)
    return first, second


@program(
    "04",
    "limit 2, one function compiled twice with `isolate_recompiles=True`: a, b, c, then a, d",
    CACHE,
)
def two_compiles_that_are_isolated(engine):
    def f(x, s):
        return x + len(s + s)

    with engine.limit(2):
        first, second = (engine.watch(f, isolate_recompiles=True) for _ in range(2))
        for watch, s in ((first, "a"), (first, "b"), (first, "c"), (second, "a"), (second, "d")):
            watch(ones(2), s)
    return first, second


@program("04", "`recompile_limit=1` as an argument, three texts", CACHE)
def a_limit_as_an_argument(engine):
    return called_with(engine, lambda x, s: x + len(s + s), "abc", recompile_limit=1)


@program("04", "12 texts with the usual limit", CACHE)
def the_usual_limit(engine):
    return called_with(engine, lambda x, s: x + len(s), ["a" * n for n in range(12)])


@program("04", "`reset()` between two calls", "torch/_dynamo/__init__.py")
def reset_between_calls(engine):
    watch = engine.watch(lambda x: x * 2)
    watch(ones(2))
    engine.reset()
    watch(ones(2))
    return watch


@program("04", "`id(x) == k` with the right k, then another tensor", BUILDER)
def the_id_of_a_tensor(engine):
    watch, x = engine.watch(lambda x, k: (x + 1, id(x) == k)), ones(2)
    watch(x, id(x))
    watch(ones(2), id(x))
    return watch


@program(
    "04",
    "`os.environ.get('BEHAVIOUR')`: unset, then set",
    "torch/_dynamo/variables/user_defined.py",
)
def an_environment_variable(engine):
    import os

    f = lambda x: x + (0 if os.environ.get("BEHAVIOUR") is None else 5)
    watch = engine.watch(f)
    watch(ones(2))
    os.environ["BEHAVIOUR"] = "set"
    watch(ones(2))
    del os.environ["BEHAVIOUR"]
    return watch


@program(
    "04",
    "an attribute of torch is read: `torch.get_num_threads()`",
    "torch/_dynamo/variables/torch.py",
)
def a_setting_that_is_read(engine):
    watch = engine.watch(lambda x: x * torch.get_num_threads())
    watch(ones(2))
    torch.set_num_threads(2)
    watch(ones(2))
    torch.set_num_threads(1)
    return watch


@program("04", "the recursion `f(x, n)` with n = 5, 6, 7", "torch/_dynamo/symbolic_convert.py")
def recursion_by_an_argument(engine):
    def f(x, n):
        return x if n == 0 else f(x + 1, n - 1)

    watch = engine.watch(f)
    for n in (5, 6, 7):
        watch(ones(2), n)
    return watch


@program("04", "a set argument {1, 2}, {2, 1}, {1, 3}", GUARDS)
def a_set_argument(engine):
    watch = engine.watch(lambda x, s: x * sum(s))
    for s in ({1, 2}, {2, 1}, {1, 3}):
        watch(ones(2), s)
    return watch
