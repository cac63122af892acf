"""Lesson 03: where a graph ends, and what runs there."""

import contextlib
import gc
import io
import logging
import os
import random
import time
import warnings

import numpy as np
import torch
from kit import attempt, program

CONVERT = "torch/_dynamo/symbolic_convert.py"
RESUME = "torch/_dynamo/resume_execution.py"
BUILTIN = "torch/_dynamo/variables/builtin.py"
FUNCTIONS = "torch/_dynamo/variables/functions.py"
DECORATORS = "torch/_dynamo/decorators.py"
EVAL = "torch/_dynamo/eval_frame.py"
CONFIG = "torch/_dynamo/config.py"
HIGHER = "torch/_dynamo/variables/higher_order_ops.py"
ones = torch.ones


def once(engine, f, *args, **options):
    watch = engine.watch(f, **options)
    watch(*args)
    return watch


def twice(engine, f, *args, **options):
    watch = engine.watch(f, **options)
    watch(*args)
    watch(*args)
    return watch


# ---- a break in each kind of block ----------------------------------------------------------------------------------


@program("03", "a break between two operations", CONVERT)
def a_break(engine):
    def f(x):
        y = x + 1
        engine.graph_break()
        return y * 2

    return twice(engine, f, ones(2))


@program("03", "a break in `try` with `finally`", RESUME)
def a_break_in_try_finally(engine):
    def f(x):
        try:
            y = x + 1
            engine.graph_break()
            y = y * 2
        finally:
            z = x - 1
        return y + z

    return once(engine, f, ones(2))


@program("03", "a break in `try` with `except`", RESUME)
def a_break_in_try_except(engine):
    def f(x):
        try:
            y = x + 1
            engine.graph_break()
            y = y * 2
        except ValueError:
            y = x
        return y

    return once(engine, f, ones(2))


@program("03", "a break in `except`", RESUME)
def a_break_in_except(engine):
    def f(x):
        try:
            raise ValueError("here")
        except ValueError:
            y = x + 1
            engine.graph_break()
            y = y * 2
        return y

    return once(engine, f, ones(2))


@program("03", "a break in `with nullcontext()`", RESUME)
def a_break_in_a_null_context(engine):
    def f(x):
        with contextlib.nullcontext():
            y = x + 1
            engine.graph_break()
            y = y * 2
        return y

    return once(engine, f, ones(2))


@program("03", "a break in `with torch.no_grad()`", RESUME)
def a_break_in_no_grad(engine):
    def f(x):
        with torch.no_grad():
            y = x + 1
            engine.graph_break()
            y = y * 2
        return y

    return once(engine, f, ones(2))


@contextlib.contextmanager
def three():
    yield 3


@program("03", "a break in a `with` block of a context manager of one's own", RESUME)
def a_break_in_a_context_manager(engine):
    def f(x):
        with three() as k:
            y = x + k
            engine.graph_break()
            y = y * 2
        return y

    return once(engine, f, ones(2))


@program("03", "a break in a `for` loop of three turns", RESUME)
def a_break_in_a_for_loop(engine):
    def f(x):
        for i in range(3):
            x = x + i
            engine.graph_break()
            x = x * 2
        return x

    return once(engine, f, ones(2))


@program("03", "a break in the body of a `while` loop of three turns", RESUME)
def a_break_in_a_while_loop(engine):
    def f(x):
        i = 0
        while i < 3:
            x = x + i
            engine.graph_break()
            i += 1
        return x

    return once(engine, f, ones(2))


@program("03", "a `while` loop whose test reads a tensor", CONVERT)
def a_while_loop_on_data(engine):
    def f(x):
        while x.sum() < 10:
            x = x * 2
        return x

    return twice(engine, f, ones(2))


@program("03", "a break in a function that is called", CONVERT)
def a_break_one_level_down(engine):
    def inner(x):
        y = x + 1
        engine.graph_break()
        return y * 2

    return once(engine, lambda x: inner(x - 1) - 1, ones(2))


@program("03", "a break two levels down", CONVERT)
def a_break_two_levels_down(engine):
    def innermost(x):
        y = x + 1
        engine.graph_break()
        return y * 2

    def inner(x):
        return innermost(x * 3) + 1

    return once(engine, lambda x: inner(x - 1) - 1, ones(2))


@program("03", "a break in a list comprehension", RESUME)
def a_break_in_a_comprehension(engine):
    def step(x, i):
        engine.graph_break()
        return x + i

    return once(engine, lambda x: sum([step(x, i) for i in range(3)]), ones(2))


@program("03", "a break while a generator is half done", FUNCTIONS)
def a_break_beside_a_generator(engine):
    log = []

    def numbers(x):
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append("end")

    def f(x):
        g = numbers(x)
        a = next(g)
        engine.graph_break()
        return a * next(g)

    watch = once(engine, f, ones(2))
    gc.collect()
    return watch, list(log)


@program("03", "a break in a lambda that is an argument of `map`", BUILTIN)
def a_break_in_map(engine):
    def step(x):
        engine.graph_break()
        return x * 2

    return once(engine, lambda x: sum(map(step, [x, x + 1])), ones(2))


@program(
    "03", "effects around a break: a list and a counter, two calls", "torch/_dynamo/side_effects.py"
)
def effects_around_a_break(engine):
    log, seen, n = [], [], 0
    see = engine.disable(lambda: seen.append(list(log)))

    def f(x):
        nonlocal n
        log.append("a")
        y = x + 1
        n += 1
        log.append(n)
        see()
        log.append("b")
        y = y * 2
        n += 1
        log.pop(0)
        return y + n

    return twice(engine, f, ones(2)), seen, log, n


@program("03", "a break as an argument of a call: `g(x + 1, item())`", CONVERT)
def a_break_with_a_full_stack(engine):
    return twice(engine, lambda x: torch.add(x + 1, x.sum().item()) * 2, ones(2))


@program("03", "two branches on data, one after the other", CONVERT)
def two_branches_on_data(engine):
    def f(x):
        y = x + 1 if x.sum() > 0 else x - 1
        return y * 2 if y.sum() > 0 else y * 3

    watch = engine.watch(f)
    for x in (ones(2), -ones(2), -ones(2) * 5, ones(2)):
        watch(x)
    return watch


@program("03", "`assert` on a tensor that holds, then one that does not", CONVERT)
def an_assert_on_a_tensor(engine):
    def f(x):
        assert x.sum() > 0, "bad"
        return x * 2

    watch = engine.watch(f)
    watch(ones(2))
    watch(-ones(2))
    return watch


# ---- calls that end a graph, or do not ------------------------------------------------------------------------------


def between(get):
    def f(x):
        y = x + 1
        return y * get(x, y)

    return f


def call_between(engine, get):
    """Graphs of two calls; and whether `fullgraph=True` refuses it. What is got is made 1 by the program."""
    watch = twice(engine, between(get), ones(2))
    if engine.name == "eager":
        return watch, "full graph: whole"
    engine.reset()
    full = attempt(engine.watch(between(get), fullgraph=True).compiled, ones(2))
    return watch, f"full graph: {'refused' if isinstance(full, str) else 'whole'}"


@program(
    "03", "`print` between two operations: graphs, and how often it is printed in two calls", CONFIG
)
def a_print(engine):
    def f(x):
        y = x + 1
        print("hi")
        return y * 2

    with contextlib.redirect_stdout(io.StringIO()) as out:
        watch = twice(engine, f, ones(2))
    return watch, out.getvalue().count("hi")


@program("03", "`print` of a tensor in `reorderable_logging_functions`", CONFIG, torch_only=True)
def a_print_that_is_reordered(engine):
    def f(x):
        y = x + 1
        print("hi", y)
        return y * 2

    with contextlib.redirect_stdout(io.StringIO()) as out:
        if engine.name == "torch":
            torch._dynamo.config.reorderable_logging_functions.add(print)
        watch = twice(engine, f, ones(2))
    return watch, out.getvalue().count("hi tensor([2., 2.])")


@program(
    "03", "`warnings.warn` between two operations: how often it is seen in two calls", FUNCTIONS
)
def a_warning(engine):
    def f(x):
        y = x + 1
        warnings.warn("w", stacklevel=2)
        return y * 2

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        watch = twice(engine, f, ones(2))
    return watch, sum(str(w.message) == "w" for w in seen)


@program("03", "a logger's `warning`: how often its handler runs in two calls", FUNCTIONS)
def a_logger(engine):
    log, records = logging.getLogger("behaviours"), []
    log.propagate = False

    class Handler(logging.Handler):
        def emit(self, record):
            records.append(record)

    log.addHandler(Handler())

    def f(x):
        y = x + 1
        log.warning("w")
        return y * 2

    return twice(engine, f, ones(2)), len(records)


@program("03", "`time.time()`", BUILTIN)
def the_time(engine):
    return call_between(engine, lambda x, y: float(time.time() > 0))


@program("03", "`random.random()`", "torch/_dynamo/variables/builder.py")
def a_random_number(engine):
    return call_between(engine, lambda x, y: float(random.random() >= 0))


@program("03", "`random.randint(1, 1)`", "torch/_dynamo/variables/builder.py")
def a_random_int(engine):
    return call_between(engine, lambda x, y: random.randint(1, 1))


@program("03", "`np.random.rand()`", "torch/_dynamo/variables/misc.py")
def a_random_number_of_numpy(engine):
    return call_between(engine, lambda x, y: float(np.random.rand() >= 0))


@program("03", "`os.environ.get('NO_SUCH_NAME') is None`", BUILTIN)
def the_environment(engine):
    return call_between(engine, lambda x, y: float(os.environ.get("NO_SUCH_NAME") is None))


@program("03", "`id(y) > 0` of a tensor made inside", BUILTIN)
def the_id_of_an_intermediate(engine):
    return call_between(engine, lambda x, y: float(id(y) > 0))


@program("03", "`hash('a') is not None`", BUILTIN)
def a_hash(engine):
    return call_between(engine, lambda x, y: float(hash("a") is not None))


@program("03", "`len(str(x.shape))`", BUILTIN)
def a_shape_as_text(engine):
    return call_between(engine, lambda x, y: len(str(x.shape)))


@program("03", "`y.tolist()`", "torch/_dynamo/variables/tensor.py")
def a_list_of_a_tensor(engine):
    return call_between(engine, lambda x, y: y.tolist()[0])


@program("03", "`y.data_ptr() != 0`", "torch/_dynamo/variables/tensor.py")
def an_address(engine):
    return call_between(engine, lambda x, y: float(y.data_ptr() != 0))


@program("03", "`y.numpy()`", "torch/_dynamo/variables/tensor.py")
def a_numpy_array(engine):
    return call_between(engine, lambda x, y: torch.from_numpy(y.numpy() * 2))


@program("03", "`torch.nonzero(y)`", CONFIG)
def nonzero(engine):
    return call_between(engine, lambda x, y: torch.nonzero(y).shape[0])


@program("03", "`torch.unique(y)`", CONFIG)
def unique(engine):
    return call_between(engine, lambda x, y: torch.unique(y).shape[0])


@program("03", "`bool(y.is_contiguous())`", "torch/_dynamo/variables/tensor.py")
def is_contiguous(engine):
    return call_between(engine, lambda x, y: float(y.is_contiguous()))


@program("03", "`torch.equal(x, y)`", "torch/_dynamo/variables/torch.py")
def torch_equal(engine):
    return call_between(engine, lambda x, y: float(torch.equal(x, y)))


@program("03", "`torch.allclose(x, y)`", "torch/_dynamo/variables/torch.py")
def torch_allclose(engine):
    return call_between(engine, lambda x, y: float(torch.allclose(x, y)))


@program("03", "`open(os.devnull).read()`", BUILTIN)
def a_file(engine):
    def get(x, y):
        with open(os.devnull) as f:
            return len(f.read()) + 1

    return call_between(engine, get)


@program("03", "`breakpoint` replaced by a function that counts", BUILTIN)
def sys_call_counts(engine):
    ran = []

    def get(x, y):
        ran.append(1)
        return len(ran) > 0

    return twice(engine, between(get), ones(2)), len(ran)


@program("03", "`y.backward()` inside", "torch/_dynamo/variables/tensor.py")
def backward_inside(engine):
    def f(x):
        y = (x * x).sum()
        y.backward()
        return x.grad + 1

    watch = engine.watch(f)
    watch(ones(2, requires_grad=True))
    return watch


@program("03", "`torch.autograd.grad` inside", "torch/_dynamo/variables/torch.py")
def autograd_grad_inside(engine):
    def f(x):
        y = (x * x).sum()
        (g,) = torch.autograd.grad(y, x)
        return g + 1

    watch = engine.watch(f)
    watch(ones(2, requires_grad=True))
    return watch


# ---- a random generator in step -------------------------------------------------------------------------------------


@program(
    "03",
    "`random.random()` and `random.randint` in three calls: the numbers, and the next one after",
    "torch/_dynamo/variables/builder.py",
)
def python_random_in_step(engine):
    random.seed(0)
    watch = engine.watch(lambda x: x * random.random() + random.randint(0, 9))
    for _ in range(3):
        watch(ones(1))
    return watch, random.random()


@program(
    "03",
    "`np.random.rand()` in three calls: the numbers, and the next one after",
    "torch/_dynamo/variables/misc.py",
)
def numpy_random_in_step(engine):
    np.random.seed(0)
    watch = engine.watch(lambda x: x * np.random.rand())
    for _ in range(3):
        watch(ones(1))
    return watch, float(np.random.rand())


# ---- disable and its relatives --------------------------------------------------------------------------------------


def disabled(engine, **options):
    def helper(x):
        return x * 3

    def g(x):
        y = x + 1
        return helper(y)

    g = engine.disable(g, **options)
    watch = once(engine, lambda x: g(x - 1) - 2, ones(2))
    return watch


@program("03", "`disable(g)`, where g calls a helper", DECORATORS)
def disable_with_all_it_calls(engine):
    return disabled(engine, recursive=True)


@program("03", "`disable(g, recursive=False)`: is the helper compiled?", DECORATORS)
def disable_one_function(engine):
    return disabled(engine, recursive=False)


@program("03", "`compile(disable(f))`: is f compiled?", EVAL)
def compile_what_is_disabled(engine):
    return once(engine, engine.disable(lambda x: x + 1), ones(2))


@program("03", "`disable(compile(f))`: is f compiled?", EVAL)
def disable_what_is_compiled(engine):
    watch = engine.watch(lambda x: x + 1)
    watch.note(str(engine.disable(watch.compiled)(ones(2)).tolist()))
    return watch


@program(
    "03",
    "a compiled function calls a compiled function: graphs of the outer, then of the inner",
    EVAL,
)
def compiled_inside_compiled(engine):
    inner = engine.watch(lambda x: x * 2)
    outer = engine.watch(lambda x: inner.compiled(x + 1) - 1)
    outer(ones(2))
    inner(ones(2))
    return outer, inner


@program("03", "the inner one has `fullgraph=True` and a break, the outer one has not", EVAL)
def fullgraph_inside(engine):
    def broken(x):
        y = x + 1
        engine.graph_break()
        return y * 2

    inner = engine.watch(broken, fullgraph=True)
    return once(engine, lambda x: inner.compiled(x + 1) - 1, ones(2))


@program(
    "03",
    "`allow_in_graph` on a function that counts its calls: values and count of three calls",
    DECORATORS,
)
def allow_in_graph(engine):
    calls = []

    def g(x):
        calls.append(1)
        return x + len(calls)

    allowed = engine.allow_in_graph(g)
    watch = engine.watch(lambda x: allowed(x) * 2)
    for _ in range(3):
        watch(ones(2))
    return watch, len(calls)


@program("03", "`torch.compiler.is_compiling()` in a branch", "torch/compiler/__init__.py")
def is_compiling(engine):
    return once(engine, lambda x: x + 10 if torch.compiler.is_compiling() else x, ones(2))


@program("03", "`fullgraph=True` and `.item()` as a factor", CONFIG)
def fullgraph_with_item(engine):
    return once(engine, lambda x: x * x.sum().item(), ones(2), fullgraph=True)


@program("03", "`fullgraph=True` and `x[x > 0]`", CONFIG)
def fullgraph_with_a_mask(engine):
    return once(engine, lambda x: x[x > 0] * 2, ones(2), fullgraph=True)


@program("03", "`fullgraph=True` and a break in a branch that is not taken", CONVERT)
def fullgraph_with_a_break_not_taken(engine):
    def f(x, flag):
        if flag:
            engine.graph_break()
        return x + 1

    watch = engine.watch(f, fullgraph=True)
    watch(ones(2), False)
    return watch


@program("03", "`error_on_graph_break()` as a block, a break in it", DECORATORS, torch_only=True)
def error_on_graph_break(engine):
    def f(x):
        with (
            torch._dynamo.error_on_graph_break(True)
            if engine.name == "torch"
            else contextlib.nullcontext()
        ):
            y = x + 1
            engine.graph_break()
        return y * 2

    return once(engine, f, ones(2))


@program("03", "`torch.compiler.disable` as a `with` block", DECORATORS, torch_only=True)
def disable_as_a_block(engine):
    def f(x):
        with torch.compiler.disable() if engine.name == "torch" else contextlib.nullcontext():
            return x + 1

    return once(engine, f, ones(2))


# ---- torch.cond -----------------------------------------------------------------------------------------------------


def with_cond(engine, yes, no):
    def f(x):
        return torch.cond(x.sum() > 0, yes, no, (x,))

    watch = engine.watch(f)
    watch(ones(2))
    watch(-ones(2))
    return watch


@program("03", "`torch.cond` with two plain branches", HIGHER)
def cond(engine):
    return with_cond(engine, lambda x: x + 1, lambda x: x - 1)


@program("03", "`torch.cond`, branches that append to a list", HIGHER)
def cond_with_an_effect(engine):
    log = []

    def yes(x):
        log.append(1)
        return x + 1

    return with_cond(engine, yes, lambda x: x - 1)


@program("03", "`torch.cond`, a branch that writes to its input", HIGHER)
def cond_that_writes(engine):
    def yes(x):
        x.add_(1)
        return x.clone()

    return with_cond(engine, yes, lambda x: x - 1)


@program("03", "`torch.cond`, branches of two dtypes", HIGHER)
def cond_with_two_dtypes(engine):
    return with_cond(engine, lambda x: x.double(), lambda x: x - 1)


@program("03", "`torch.cond`, branches that give their input", HIGHER)
def cond_that_gives_its_input(engine):
    return with_cond(engine, lambda x: x, lambda x: x)


@program("03", "`torch.cond` on a Python bool", HIGHER)
def cond_on_a_bool(engine):
    return once(
        engine,
        lambda x: torch.cond(x.shape[0] > 1, lambda x: x + 1, lambda x: x - 1, (x,)),
        ones(2),
    )


@program("03", "`torch.cond`, branches with different sizes", HIGHER)
def cond_with_two_sizes(engine):
    return with_cond(engine, lambda x: x + 1, lambda x: x[:1].clone())


# ---- training -------------------------------------------------------------------------------------------------------


def training(engine, make):
    model = torch.nn.Linear(3, 3)
    optimizer = make(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    watch = engine.watch(step)
    for _ in range(4):
        # Three digits: the step's sums may be added in another order
        watch.note(str(attempt(lambda: f"{watch.compiled(ones(2, 3)).item():.3g}")))
    return watch


@program(
    "03",
    "a whole training step with SGD and momentum, four calls",
    "torch/_dynamo/variables/optimizer.py",
)
def a_training_step_with_sgd(engine):
    return training(engine, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))


@program(
    "03", "a whole training step with Adam, four calls", "torch/_dynamo/variables/optimizer.py"
)
def a_training_step_with_adam(engine):
    return training(engine, lambda p: torch.optim.Adam(p, lr=0.1))


@program(
    "03",
    "`optimizer.step()` alone, with an `lr` that changes",
    "torch/_dynamo/variables/optimizer.py",
)
def an_optimizer_with_another_rate(engine):
    weight = torch.nn.Parameter(ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    watch = engine.watch(lambda: optimizer.step())
    for lr in (0.1, 0.2, 0.3, 0.4):
        optimizer.param_groups[0]["lr"] = lr
        weight.grad = ones(2)
        watch()
    return watch, weight
