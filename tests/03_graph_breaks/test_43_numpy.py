"""NumPy in a program: what becomes operations of torch gives NumPy's results, and the rest ends the graph."""

import warnings

import numpy as np
import pytest
import torch
from alike import same

import course_lib as cl
from course_lib import versions
from course_lib.capture.corners.numpy_rules import (
    FUNCTIONS_OF_ARRAYS,
    METHODS,
    TORCH_DTYPES,
    UFUNCS,
)

DTYPES = [
    str(dtype)
    if str(dtype) in ("float32", "int64")
    else pytest.param(str(dtype), marks=pytest.mark.slow)
    for dtype in TORCH_DTYPES
]
ODD = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, np.inf, -np.inf, np.nan, 3.0]


def numbers(dtype, turn=0):
    """Numbers of a dtype, with odd ones among floats."""
    rng = np.random.default_rng(turn)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(12) > 0.5
    if kind in "iu":
        return rng.integers(0 if kind == "u" else -5, 6, 12).astype(dtype)
    with np.errstate(invalid="ignore"):
        values = np.roll(np.array(ODD), turn).astype(dtype)
    return values + values * 1j if kind == "c" else values


SIGNLESS = "maximum minimum fmax fmin max min amax amin cumsum sum mean".split()
"""Where the sign of a zero depends on NumPy's vectors."""


def outcome(function, *args):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args)
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def check(function, *args, name=""):
    ours, eagers = outcome(cl.compile(function, backend="eager"), *args), outcome(function, *args)
    same(ours, eagers, name not in SIGNLESS)


# ---- the tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UFUNCS)
def test_a_function_of_elements_gives_what_numpy_gives(name, dtype):
    """Of an array, of two, of an array and numbers of Python's and NumPy's; in whatever dtype NumPy chooses."""
    ufunc = getattr(np, name)
    x, y = numbers(dtype), numbers(dtype, 1)
    if name == "matmul":
        x, y = (
            np.nan_to_num(x.reshape(3, 4), posinf=2, neginf=2),
            np.nan_to_num(y.reshape(4, 3), posinf=2, neginf=2),
        )

    if ufunc.nin == 1:
        check(lambda a: ufunc(a), x, name=name)
        return
    check(lambda a, b: ufunc(a, b), x, y, name=name)
    if name == "matmul":
        return
    check(lambda a: (ufunc(a, 2), ufunc(3, a)), x, name=name)
    check(lambda a: (ufunc(a, 2.5), ufunc(True, a)), x, name=name)
    check(lambda a: (ufunc(a, np.float32(1.5)), ufunc(np.int8(2), a)), x, name=name)


PAIRS = [("int32", "float32"), ("bool", "int8"), ("uint8", "int8"), ("float16", "float32"), ("int64", "float32"),
         ("float32", "complex64"), ("uint8", "float16"), ("float64", "complex64"), ("int16", "uint8")]  # fmt: skip


@pytest.mark.parametrize(
    "name", [name for name in UFUNCS if getattr(np, name).nin == 2 and name != "matmul"]
)
def test_two_dtypes_meet_as_in_numpy(name):
    ufunc = getattr(np, name)
    for first, second in PAIRS:
        check(
            lambda a, b: (ufunc(a, b), ufunc(b, a)), numbers(first), numbers(second, 1), name=name
        )


OPTIONS = {
    "reshape": [((2, 6),), ((-1, 3),)],
    "swapaxes": [(0, 1)],
    "moveaxis": [(0, 1), ((0, 1), (1, 0))],
    "expand_dims": [(0,), (-1,)],
    "broadcast_to": [((2, 3, 4),)],
    "tile": [(2,), ((2, 1),)],
    "repeat": [(2,), (2, 1)],
    "roll": [(1,), (1, 0)],
    "tril": [(), (1,)],
    "triu": [(), (-1,)],
    "transpose": [(), ((1, 0),)],
    "permute_dims": [(), ((1, 0),)],
    "squeeze": [()],
    "stack": [()],
    "concatenate": [(), (1,), (None,)],
    "concat": [(), (1,), (None,)],
}
REDUCING = "sum prod mean var std max amax min amin argmax argmin any all cumsum cumprod".split()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS_OF_ARRAYS)
def test_a_function_of_arrays_gives_what_numpy_gives(name, dtype):
    function, rule = getattr(np, name), FUNCTIONS_OF_ARRAYS[name]
    x = numbers(dtype).reshape(3, 4)
    if (
        np.dtype(dtype).kind in "fc"
        and name in "dot outer sum prod mean var std cumsum cumprod".split()
    ):
        x = np.nan_to_num(x, posinf=2, neginf=-2)

    if rule.array_arguments == 2:
        check(lambda a, b: (function(a, b), function(a[0], b[:, 0])), x, x.T, name=name)
    elif not rule.array_arguments:
        for options in OPTIONS[name]:
            check(lambda a, b: function([a, b], *options), x, x[::-1].copy(), name=name)
    elif name in REDUCING:
        check(lambda a: (function(a), function(a, 0), function(a, axis=-1)), x, name=name)
        if not name.startswith("cum"):
            check(lambda a: function(a, axis=1, keepdims=True), x, name=name)
            check(lambda a: function(a, keepdims=True), x, name=name)
    else:
        for options in OPTIONS.get(name, [()]):
            check(lambda a: function(a, *options), x, name=name)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_is_the_function(name):
    x = numbers("float32").reshape(3, 4)
    arguments = {"reshape": (2, 6), "swapaxes": (0, 1), "repeat": (2,), "dot": (np.ones((4, 2)),)}
    check(lambda a: getattr(a, name)(*arguments.get(name, ())), x, name=name)


def test_most_of_the_tables_needs_no_break():
    """In float32 all of it: the tables say nothing that is not used."""
    x = np.abs(numbers("float32")).reshape(3, 4)
    for name, rule in UFUNCS.items():
        ufunc = getattr(np, name)
        if "f" in rule.kinds and name != "matmul":
            cl.compile(lambda *a: ufunc(*a), backend="eager", fullgraph=True)(*[x] * ufunc.nin)
    for name, rule in FUNCTIONS_OF_ARRAYS.items():
        function = getattr(np, name)
        if "f" in rule.kinds and rule.array_arguments == 1:
            options = OPTIONS.get(name, [()])[0]
            cl.compile(lambda a: function(a, *options), backend="eager", fullgraph=True)(x)


# ---- programs ----------------------------------------------------------------------------------------


def tensor():
    return torch.arange(6.0).reshape(2, 3) - 2


def grid():
    return np.arange(6, dtype=np.float32).reshape(2, 3)


def write_and_look(x):
    a = x.numpy()
    row = a[0]
    row[1] = 7
    element = a[0, 1]
    a += 1
    return x * 1, element, row, a.T[1:] * 2


def write_through_from_numpy(a):
    t = torch.from_numpy(a)
    t.add_(1)
    a[0] = a[1] * 2
    return t.clone(), a.sum()


def constants_that_change(x):
    table = np.zeros((2, 3))
    view = table[1]
    view += 2
    table[0, 0] = -1
    t = torch.from_numpy(table)
    t[0, 1] = 5
    table[1, 2] = x.numpy()[0, 0]
    return t * 2, table


def constants_shared(x):
    table = np.arange(6.0)
    part = table[:3]
    t = torch.from_numpy(part)
    t.add_(1)
    return t + x.sum(), table


def two_arrays_with_one_memory(x):
    table = np.arange(6.0)
    part = table[:3]
    return x + 1, table, part


def made_anew_each_time(x):
    table = np.arange(3.0)
    return x + 1, table, [table, table]


def elements_are_numbers(x):
    a = x.numpy()
    first = a[0, 0]
    a[0, 0] = 9
    return (
        first,
        type(first).__name__,
        isinstance(first, np.floating),
        first.dtype,
        a[0, ...],
        a[0, 0:1],
    )


def types_are_numpys(x):
    a = x.numpy()
    return (
        isinstance(a, np.ndarray),
        type(a) is np.ndarray,
        a.dtype == np.float32,
        a.shape,
        a.ndim,
        a.size,
        len(a),
        type(a.mean()),
    )


def with_rows(x):
    total = 0
    for row in x.numpy():
        total = total + row * 2
    return total


def by_indices(x):
    a = x.numpy()
    return (
        a[[1, 0]],
        a[a > 0 if False else np.array([True, False])],
        a[:, np.array([2, 0])],
        a[..., None],
        a[1:, ::2],
        a[-1, -2],
    )


def stepped_back(x):
    return x.numpy()[::-1] + 1


def by_mask(x):
    a = x.numpy()
    a[a < 0] = 0
    return a


def into_python(x):
    a = x.numpy()
    return float(a[0, 0]) + 1, a.tolist(), int(a.argmax()), a[0, 1].item()


def branches(x):
    a = x.numpy()
    return a + 1 if a.sum() > 0 else a - 1


def casts(x):
    a = x.numpy()
    return (
        a.astype(np.int64),
        a.astype("float64"),
        (a > 0).astype(np.float32),
        a.astype(np.float32, copy=False) is a,
        np.asarray(a) is a,
    )


def makes_arrays(x):
    a = x.numpy()
    return (
        np.array([a[0], a[1]]),
        np.asarray([a[0].sum(), 1.0]),
        np.array(a, dtype=np.float64),
        np.zeros_like(a),
        np.full((2, 2), 7),
        np.ones(3) + a,
    )


def by_where(x):
    a = x.numpy()
    return (
        np.where(a > 0, a, 0),
        np.where(a > 0, 1, 2.5),
        np.clip(a, 0, 1),
        np.clip(a, np.float64(0), None),
        np.round(a / 3),
        np.round(a, 1),
    )


def unknown_functions(x):
    a = x.numpy()
    return (
        np.median(a),
        np.percentile(a, 30),
        np.sort(a),
        np.unique(a),
        np.linalg.norm(a),
        np.histogram(a)[0],
    )


def names_that_are_not_there(x):
    try:
        x.numpy().nothing
    except AttributeError as error:
        return str(error)


def errors(x):
    found = []
    for wrong in (
        lambda a: a @ a,
        lambda a: a.reshape(5),
        lambda a: a[5],
        lambda a: a + "text",
        lambda a: np.bool_(True) - (a > 0),
    ):
        try:
            found.append(wrong(x.numpy()))
        except Exception as error:
            found.append(type(error).__name__)
    return found


def of_a_tensor(x):
    return np.asarray(x), np.array(x), np.stack([x.numpy(), x.numpy()])


WEIGHT = torch.ones(3, requires_grad=True)


def with_a_gradient(x):
    return (x * WEIGHT).detach().numpy() * 2


def gradient_is_refused(x):
    w = x.clone().requires_grad_()
    try:
        return w.numpy()
    except RuntimeError as error:
        return str(error)


def beside_tensors(x):
    a = x.numpy()
    return x * a.sum(), a.mean() * x, x + np.float64(2), x * a


def texts(x):
    a = x.numpy()
    return f"{a.shape} {a.dtype}", str(np.arange(3)), f"{a.sum():.2f}", repr(a)


def loud(x):
    return x + np.log(np.zeros(1))[0], x


def limits(x):
    return x * np.finfo(np.float32).eps + np.iinfo(np.int8).max + np.dtype("float64").itemsize


PROGRAMS = {f.__name__: (f, tensor) for f in (
    write_and_look, constants_that_change, constants_shared, two_arrays_with_one_memory, made_anew_each_time,
    elements_are_numbers, types_are_numpys, with_rows, by_indices, stepped_back, by_mask, into_python, branches, casts,
    makes_arrays, by_where, unknown_functions, names_that_are_not_there, errors, of_a_tensor, with_a_gradient,
    gradient_is_refused, beside_tensors, texts, loud, limits,
)}  # fmt: skip
PROGRAMS["write_through_from_numpy"] = write_through_from_numpy, grid


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_eager_gives(name, backend):
    function, make = PROGRAMS[name]
    compiled = cl.compile(function, backend=backend)
    for turn in range(3):
        ours, theirs = make() + turn, make() + turn
        same(outcome(compiled, ours), outcome(function, theirs))
        same(ours, theirs)


ONE_GRAPH = """write_and_look made_anew_each_time elements_are_numbers types_are_numpys with_rows casts makes_arrays
limits of_a_tensor with_a_gradient names_that_are_not_there write_through_from_numpy""".split()


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_a_program_is_one_graph(name):
    function, make = PROGRAMS[name]
    with np.errstate(all="ignore"):
        cl.compile(function, backend="eager", fullgraph=True)(make())


def test_results_that_share_memory_do_so():
    x = tensor()
    a, b = cl.compile(lambda x: (x.numpy(), x.numpy()[1:]), fullgraph=True)(x)
    x[1, 1] = 50
    assert a[1, 1] == 50
    assert b[0, 1] == 50
    a[0, 0] = 70
    assert x[0, 0] == 70


def test_an_array_of_constants_is_another_one_at_each_call():
    compiled = cl.compile(lambda x: (x + 1, np.arange(3)), fullgraph=True)
    first = compiled(tensor())[1]
    first += 10
    assert compiled(tensor())[1].tolist() == [0, 1, 2]


# ---- numbers from outside ----------------------------------------------------------------------------


def in_arithmetic(x, s):
    return x * s, s * x, x + s, x / s, s - x, x**s, x > s, x.clamp(max=s)


def of_numbers_alone(x, s):
    return s * 2, s + s, 1 / s, np.sqrt(s), -s, abs(s), s**2, s > 1, x * (s * 2)


def in_python(x, s):
    return (
        x + float(s),
        x * s.item(),
        int(s),
        bool(s),
        f"{s}",
        repr(s),
        round(float(s), 1),
        max(s, 1),
        s == 3,
        hash(s),
    )


def as_a_tensor(x, s):
    return torch.tensor(s), torch.as_tensor(s), x.numpy() * s, torch.full((2,), s), np.array([s, s])


def what_it_is(x, s):
    return (
        type(s),
        isinstance(s, float),
        isinstance(s, np.generic),
        s,
        s.dtype,
        s.ndim,
        np.ndim(s),
        np.isscalar(s),
    )


def as_a_size(x, s):
    return x.reshape(-1)[: int(s)], torch.zeros(int(s)), list(range(int(s)))


NUMBER_PROGRAMS = [in_arithmetic, of_numbers_alone, in_python, as_a_tensor, what_it_is, as_a_size]
NUMBERS = [np.float32, np.float64, np.int64, np.int32, np.float16, np.uint8, np.bool_]


@pytest.mark.parametrize("cls", NUMBERS)
@pytest.mark.parametrize("function", NUMBER_PROGRAMS)
def test_a_number_is_what_it_is_in_eager(function, cls):
    compiled = cl.compile(function, backend="eager")
    for value in (3, 2, 0, 1, 5, 3, 7, 2.5):
        same(
            outcome(compiled, tensor() + 3, cls(value)), outcome(function, tensor() + 3, cls(value))
        )


@pytest.mark.parametrize("cls", NUMBERS)
def test_another_type_is_another_number(cls):
    compiled = cl.compile(in_arithmetic, backend="eager")
    for other in NUMBERS:
        same(outcome(compiled, tensor() + 3, cls(3)), outcome(in_arithmetic, tensor() + 3, cls(3)))
        same(
            outcome(compiled, tensor() + 3, other(2)),
            outcome(in_arithmetic, tensor() + 3, other(2)),
        )


@pytest.mark.parametrize("cls", [np.float32, np.float64, np.int64, np.float16])
@pytest.mark.parametrize("function", [in_arithmetic, of_numbers_alone, as_a_tensor])
def test_another_number_compiles_nothing(function, cls):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    # the fake tensors of torch 2.11 and 2.12 ask whether an exponent is 2
    asked_by_torch = 2 if versions.minor(torch.__version__) >= (2, 13) else 4

    compiled = cl.compile(lambda x, s: function(x, s)[:1], backend=backend)
    for value in (3, asked_by_torch, 5, 7, 11):
        compiled(tensor(), cls(value))
    assert len(graphs) <= 2 if function is of_numbers_alone else len(graphs) == 1


def test_a_number_that_is_no_argument_changes_once(monkeypatch):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = cl.compile(lambda x: x * SCALE[0], backend=backend)
    for value in (0.5, 0.25, 4, 8, 16):
        SCALE[0] = np.float32(value)
        same(compiled(tensor()), tensor() * np.float32(value))
    assert len(graphs) == 2


SCALE = [np.float32(0.5)]
