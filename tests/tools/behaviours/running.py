"""Lessons 01, 11 to 14: modes, errors, random numbers, and what is said to the compiler from outside."""

import inspect
import re
import traceback
import warnings

import torch
import torch.nn.functional as F
from kit import NOTHING, Counter, attempt, program, same_bits
from torch import nn

EVAL = "torch/_dynamo/eval_frame.py"
CONVERT = "torch/_dynamo/convert_frame.py"
RANDOM = "torch/_inductor/config.py"
STANCE = "torch/_dynamo/eval_frame.py"
INIT = "torch/__init__.py"
ones = torch.ones


# ---- lesson 01: eager -----------------------------------------------------------------------------------------------


@program(
    "01",
    "which of these share memory with x in eager: view, reshape of a transposed, slice, `x[[0]]`, expand",
    "torch/_refs/__init__.py",
)
def what_shares_memory(engine):
    x = torch.arange(6.0).view(2, 3)
    makes = (
        lambda x: x.view(6),
        lambda x: x.t().reshape(6),
        lambda x: x[1:],
        lambda x: x[[0]],
        lambda x: x.expand(2, 2, 3),
    )
    return [
        engine.compile(f)(x).untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        for f in makes
    ]


@program(
    "01", "`x.add_(1)` in inference mode on a tensor made outside", "torch/autograd/grad_mode.py"
)
def in_place_in_inference_mode(engine):
    x, c = ones(2), engine.compile(lambda x: x.add_(1))
    with torch.inference_mode():
        c(x)
    return x, x.is_inference()


@program(
    "01", "a result made in inference mode: may autograd use it?", "torch/autograd/grad_mode.py"
)
def a_result_of_inference_mode(engine):
    c, w = engine.compile(lambda x: x * 2), ones(2, requires_grad=True)
    with torch.inference_mode():
        y = c(ones(2))
    return y.is_inference(), attempt(lambda: (w * y).sum().backward())


@program(
    "01",
    "a Python number is no tensor: `x * 2` and `x * torch.tensor(2.0, dtype=float64)`",
    "torch/_prims_common/__init__.py",
)
def promotion_with_a_zero_dimensional_tensor(engine):
    x = ones(2)
    f = lambda x, t: (x * 2, x * t, x.int() * 2.5, x.int() / 2)
    return [str(r.dtype) for r in engine.compile(f)(x, torch.tensor(2.0, dtype=torch.float64))]


# ---- lesson 11: modes -----------------------------------------------------------------------------------------------


@program("11", "the modes of `torch.compile`", "torch/_inductor/__init__.py", torch_only=True)
def the_modes(engine):
    return NOTHING if engine.name == "eager" else sorted(torch._inductor.list_mode_options())


def refused(engine, **options):
    """What `compile` says to these options, at once or at the first call."""
    if engine.name == "eager":
        return NOTHING
    return attempt(lambda: engine.compile(lambda x: x + 1, **options)(ones(2)))


@program("11", "an unknown mode", INIT, torch_only=True)
def an_unknown_mode(engine):
    return refused(engine, mode="fastest")


@program("11", "an unknown backend", "torch/_dynamo/backends/registry.py", torch_only=True)
def an_unknown_backend(engine):
    return refused(engine, backend="nothing")


@program("11", "a mode and options together", INIT, torch_only=True)
def a_mode_and_options(engine):
    return refused(engine, mode="default", options={"max_fusion_size": 8})


@program("11", "an unknown option", INIT, torch_only=True)
def an_unknown_option(engine):
    return refused(engine, options={"no_such_option": 1})


@program("11", "a mode together with a backend of one's own", INIT, torch_only=True)
def a_mode_with_an_own_backend(engine):
    return refused(engine, backend=Counter(), mode="reduce-overhead")


@program("11", "`mode='reduce-overhead'` without a GPU: the value", "torch/_inductor/compile_fx.py")
def reduce_overhead_on_a_cpu(engine):
    return engine.compile(lambda x: x * 2 + 1, mode="reduce-overhead")(ones(2))


@program(
    "11",
    "`mode='max-autotune'` of a product on a CPU: eager's value?",
    "torch/_inductor/kernel/mm.py",
)
def max_autotune_on_a_cpu(engine):
    x = torch.arange(16.0).view(4, 4)
    return engine.compile(lambda x: x @ x, mode="max-autotune-no-cudagraphs")(x)


@program("11", "a module with a mode, then `train()`: is a dropout of 1.0 seen?", EVAL)
def a_mode_and_train(engine):
    m = nn.Dropout(1.0).eval()
    c = engine.compile(m, mode="reduce-overhead")
    first = c(ones(2))
    m.train()
    return first, c(ones(2))


# ---- lesson 12: errors ----------------------------------------------------------------------------------------------


def error_of(engine, f, *args, **options):
    """The type of the error of the first call, and of its cause."""
    try:
        engine.compile(f, **options)(*args)
    except Exception as error:
        return type(error).__name__, isinstance(error, RuntimeError)
    return "no error", False


@program("12", "two shapes that do not fit: which error?", "torch/_dynamo/utils.py")
def an_error_of_shapes(engine):
    return error_of(engine, lambda x, y: x + y, ones(2), ones(3))


@program("12", "a product that does not fit: which error?", "torch/_dynamo/utils.py")
def an_error_of_a_product(engine):
    return error_of(engine, lambda x, y: x @ y, ones(2, 3), ones(2, 3))


@program("12", "a wrong dtype for `torch.bmm`: which error?", "torch/_dynamo/utils.py")
def an_error_of_dtypes(engine):
    return error_of(
        engine, lambda x, y: torch.bmm(x, y), ones(1, 2, 2), ones(1, 2, 2, dtype=torch.int64)
    )


@program("12", "an attribute that is not there: which error?", "torch/_dynamo/symbolic_convert.py")
def an_error_of_an_attribute(engine):
    return error_of(engine, lambda x: x.no_such_thing, ones(2))


@program("12", "a name that is not there: which error?", "torch/_dynamo/symbolic_convert.py")
def an_error_of_a_name(engine):
    return error_of(engine, lambda x: x + no_such_name, ones(2))  # noqa: F821


@program(
    "12", "`raise ValueError` in the function: which error?", "torch/_dynamo/symbolic_convert.py"
)
def an_error_of_the_program(engine):
    def f(x):
        raise ValueError("mine")

    return error_of(engine, f, ones(2))


@program("12", "an argument too few: which error?", EVAL)
def an_argument_too_few(engine):
    return error_of(engine, lambda x, y: x + y, ones(2))


@program(
    "12", "a backend that raises: which error?", "torch/_dynamo/output_graph.py", torch_only=True
)
def a_backend_that_raises(engine):
    def broken(graph, example_inputs):
        raise ValueError("broken")

    return (
        NOTHING
        if engine.name == "eager"
        else error_of(engine, lambda x: x + 1, ones(2), backend=broken)
    )


@program(
    "12", "a break under `fullgraph=True`: is its error a RuntimeError?", "torch/_dynamo/exc.py"
)
def the_error_of_fullgraph(engine):
    def f(x):
        engine.graph_break()
        return x + 1

    if engine.name == "eager":
        return NOTHING
    return error_of(engine, f, ones(2), fullgraph=True)[1]


def names_of(f, *args):
    """The functions in the traceback of an error, from `f` on."""
    try:
        f(*args)
    except Exception as error:
        rows = [
            row.name
            for row in traceback.extract_tb(error.__traceback__)
            if row.filename == __file__
        ]
        return type(error).__name__, [
            re.sub(r"_at_\d+(_\w+)?$", "_at_N", name) for name in rows if name != "names_of"
        ]
    return "nothing", []


@program(
    "12",
    "a KeyError three levels down: the functions in its traceback",
    "torch/_dynamo/symbolic_convert.py",
)
def a_traceback(engine):
    def h(x):
        y = x + 1
        raise KeyError("k")
        return y

    def g(x):
        return h(x * 2)

    def f(x):
        return g(x - 1)

    return names_of(engine.compile(f), ones(2))


@program(
    "12",
    "a KeyError three levels down, behind a graph break: the functions in its traceback",
    "torch/_dynamo/resume_execution.py",
)
def a_traceback_behind_a_break(engine):
    def h(x):
        y = x + 1
        engine.graph_break()
        raise KeyError("k")
        return y

    def g(x):
        return h(x * 2)

    def f(x):
        return g(x - 1)

    return names_of(engine.compile(f), ones(2))


@program("12", "`explain` of a function with one break: graphs and breaks", EVAL, torch_only=True)
def explain(engine):
    def f(x):
        y = x + 1
        print("", end="")
        return y * 2

    if engine.name == "eager":
        return NOTHING
    out = torch._dynamo.explain(f)(ones(2))
    return out.graph_count, out.graph_break_count


@program("12", "a warning raised as an error (`simplefilter('error')`) around a compile", CONVERT)
def warnings_as_errors(engine):
    def f(x):
        warnings.warn("w", stacklevel=2)
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return error_of(engine, f, ones(2))[0]


@program(
    "12",
    "`suppress_errors = True` and a backend that raises: the value",
    "torch/_dynamo/config.py",
    torch_only=True,
)
def errors_suppressed(engine):
    def broken(graph, example_inputs):
        raise ValueError("broken")

    with torch._dynamo.config.patch(suppress_errors=True):
        options = {"backend": broken} if engine.name == "torch" else {}
        return attempt(engine.compile(lambda x: x + 1, **options), ones(2))


# ---- lesson 13: random numbers and measuring ------------------------------------------------------------------------


def random_beside_eager(engine, f):
    """Are the numbers eager's for the same seed? And the generator's next number?"""
    x = ones(8)
    torch.manual_seed(0)
    want, after = f(x), torch.rand(1)
    torch.manual_seed(0)
    got = attempt(engine.compile(f), x)
    if isinstance(got, str):
        return got
    numbers = "eager's numbers" if same_bits(want, got) else "other numbers"
    return numbers, "generator as in eager" if same_bits(
        after, torch.rand(1)
    ) else "generator elsewhere"


def random_functions():
    cases = {
        "dropout": lambda x: F.dropout(x, 0.5),
        "rand_like": lambda x: torch.rand_like(x),
        "randn": lambda x: torch.randn(8) + x,
        "randint": lambda x: torch.randint(0, 9, (8,)) + x,
        "bernoulli": lambda x: torch.bernoulli(x / 2),
        "randperm": lambda x: torch.randperm(8) + x,
        "normal_in_place": lambda x: torch.empty(8).normal_() + x,
        "multinomial": lambda x: torch.multinomial(x, 3).float(),
    }
    for name, f in cases.items():
        play = lambda engine, f=f: random_beside_eager(engine, f)
        play.__name__ = f"random_{name}"
        program("13", f"`{name}` with a seed: eager's numbers? The generator afterwards?", RANDOM)(
            play
        )


random_functions()


@program("13", "the same seed, two calls of a compiled dropout: the same mask?", RANDOM)
def a_seed_repeats(engine):
    c, x, masks = engine.compile(lambda x: F.dropout(x, 0.5)), ones(64), []
    for _ in range(2):
        torch.manual_seed(0)
        masks.append(c(x))
    return torch.equal(*masks)


@program("13", "no seed, two calls of a compiled `rand`: other numbers?", RANDOM)
def two_calls_differ(engine):
    c = engine.compile(lambda x: torch.rand(8) + x)
    return torch.equal(c(ones(8)), c(ones(8)))


@program(
    "13",
    "`torch.manual_seed(0)` inside the function: two calls alike?",
    "torch/_dynamo/variables/torch.py",
)
def a_seed_inside(engine):
    def f(x):
        torch.manual_seed(0)
        return torch.rand(8) + x

    c = engine.compile(f)
    return attempt(lambda: torch.equal(c(ones(8)), c(ones(8))))


@program("13", "a Generator as an argument", "torch/_dynamo/variables/builder.py")
def a_generator_argument(engine):
    g = torch.Generator().manual_seed(0)
    watch = engine.watch(lambda x, g: x + torch.rand(2, generator=g))
    watch(ones(2), g)
    watch(ones(2), g)
    return watch


# ---- lesson 14: from outside ----------------------------------------------------------------------------------------


def under_stance(engine, stance):
    """One plain call, then float32, float64, float64 under a stance."""
    watch = engine.watch(lambda x: x * 2)
    watch(ones(2))
    if engine.name != "torch":
        for dtype in (torch.float32, torch.float64, torch.float64):
            watch(ones(2, dtype=dtype))
        return watch
    with torch.compiler.set_stance(stance):
        for dtype in (torch.float32, torch.float64, torch.float64):
            watch(ones(2, dtype=dtype))
    return watch


def stances():
    for stance in (
        "force_eager",
        "eager_on_recompile",
        "fail_on_recompile",
        "eager_then_compile",
        "aot_eager_then_compile",
    ):
        play = lambda engine, stance=stance: under_stance(engine, stance)
        play.__name__ = f"stance_{stance}"
        said = f"one plain call, then float32, float64, float64 under the stance `{stance}`"
        program("14", said, STANCE, torch_only=True)(play)


stances()


@program("14", "`fail_on_recompile` before anything was compiled", STANCE, torch_only=True)
def fail_on_recompile_at_first(engine):
    watch = engine.watch(lambda x: x * 2)
    if engine.name != "torch":
        watch(ones(2))
        return watch
    with torch.compiler.set_stance("fail_on_recompile"):
        watch(ones(2))
    return watch


@program("14", "the parameters of `torch.compile`", INIT, torch_only=True)
def parameters_of_compile(engine):
    return list(inspect.signature(torch.compile).parameters) if engine.name == "torch" else NOTHING


@program(
    "14",
    "the parameters of `torch.compiler.set_stance`",
    "torch/compiler/__init__.py",
    torch_only=True,
)
def parameters_of_set_stance(engine):
    return (
        list(inspect.signature(torch.compiler.set_stance).parameters)
        if engine.name == "torch"
        else NOTHING
    )


@program("14", "the names in `torch.compiler.config`", "torch/compiler/config.py", torch_only=True)
def names_of_the_config(engine):
    return sorted(torch.compiler.config._config) if engine.name == "torch" else NOTHING


@program(
    "14",
    "the recompile limits: of one code object, and in all",
    "torch/_dynamo/config.py",
    torch_only=True,
)
def the_recompile_limits(engine):
    if engine.name != "torch":
        return NOTHING
    return torch._dynamo.config.recompile_limit, torch._dynamo.config.accumulated_recompile_limit


def exported(f, *args, **options):
    from torch.export import export

    class Wrapped(nn.Module):
        def forward(self, *args):
            return f(*args)

    return export(Wrapped(), args, **options)


@program(
    "14",
    "`torch.export` of a function that prints: how often in exporting and one call",
    "torch/export/_trace.py",
    torch_only=True,
)
def export_of_a_print(engine):
    printed = []

    def f(x):
        printed.append(1)
        return x * 2

    if engine.name == "eager":
        return NOTHING
    made = attempt(exported, f, ones(2))
    if isinstance(made, str):
        return made
    before = len(printed)
    made.module()(ones(2))
    return before, len(printed)


@program("14", "`torch.export` of a branch on data", "torch/export/_trace.py", torch_only=True)
def export_of_a_branch(engine):
    f = lambda x: x + 1 if x.sum() > 0 else x - 1
    return NOTHING if engine.name == "eager" else str(attempt(exported, f, ones(2)))[:40]


@program("14", "`torch.export`, then another size", "torch/export/_unlift.py", torch_only=True)
def export_and_another_size(engine):
    if engine.name == "eager":
        return NOTHING
    made = exported(lambda x: x * 2, ones(2))
    return attempt(made.module(), ones(3))


@program(
    "14",
    "`torch.export` with a size marked dynamic, then sizes 3, 1, 0",
    "torch/export/dynamic_shapes.py",
    torch_only=True,
)
def export_with_a_dynamic_size(engine):
    if engine.name == "eager":
        return NOTHING
    made = attempt(
        exported, lambda x: x * 2, ones(4), dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),)
    )
    if isinstance(made, str):
        return made
    return [attempt(made.module(), ones(n)) for n in (3, 1, 0)]


@program(
    "14",
    "an exported module called with a float64 tensor",
    "torch/export/_unlift.py",
    torch_only=True,
)
def export_and_another_dtype(engine):
    if engine.name == "eager":
        return NOTHING
    made = exported(lambda x: x * 2, ones(2))
    return attempt(made.module(), ones(2, dtype=torch.float64))


@program("14", "`torch.load` of a state dict that a compiled module saved: which keys?", EVAL)
def a_saved_state_dict(engine):
    import io

    buffer = io.BytesIO()
    torch.save(engine.compile(nn.Linear(2, 2)).state_dict(), buffer)
    buffer.seek(0)
    return attempt(lambda: str(nn.Linear(2, 2).load_state_dict(torch.load(buffer))))


@program("14", "`copy.deepcopy` of a compiled module: are the weights apart?", EVAL)
def weights_of_a_deep_copy(engine):
    import copy

    c = engine.compile(nn.Linear(2, 2))
    d = copy.deepcopy(c)
    with torch.no_grad():
        d.weight.zero_()
    return bool(c.weight.abs().sum() > 0)


@program("14", "`disable=True` as an argument: is the function given back?", INIT)
def disable_as_an_argument(engine):
    f = lambda x: x + 1
    return engine.compile(f, disable=True) is f


@program("14", "`torch.compile` as a decorator with arguments", INIT)
def a_decorator_with_arguments(engine):
    if engine.name == "eager":
        return ones(2) + 1

    @engine.compile(None, dynamic=True)
    def f(x):
        return x + 1

    return f(ones(2))


@program("14", "`compile` of something that is no function", INIT)
def compile_of_a_number(engine):
    if engine.name == "eager":
        return NOTHING
    return attempt(engine.compile, 5)


@program("14", "a compiled function in a list of workers: threads that call at once", CONVERT)
def threads_at_once(engine):
    import threading

    watch = engine.watch(lambda x, n: x * n)
    results = []

    def work(n):
        results.append(float(watch.compiled(ones(2), n)[0]))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(results)
