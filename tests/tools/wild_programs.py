"""Small programs after what packages in the wild do, each with the number of graph breaks that torch.compile 2.13 makes of it.

A program is a function of `(x, ...)`. Its `make(i)` gives the arguments of call `i`, and changes what the program reads outside.

    python tests/tools/wild_programs.py            prints our breaks and torch.compile's, program by program

`tests/03_graph_breaks/test_42_breaks_as_torch.py` compares values with eager's, and the numbers of breaks with this table.
"""

# The oddities are the point.
# ruff: noqa

import functools
import inspect
import logging
import math
import pickle
import random
import sys
import threading
import types
from collections import OrderedDict

import numpy as np
import torch
from torch import nn

PROGRAMS = {}
randn = torch.randn
STATE = types.SimpleNamespace(count=0, scale=2.0, log=[])
LOG = logging.getLogger("course_lib.tests.wild")


def one(i):
    return (randn(3) + 2,)


def program(breaks, make=one):
    """Register a program. `breaks`: how many torch.compile has in the first call."""

    def register(function):
        assert function.__name__ not in PROGRAMS, function.__name__
        PROGRAMS[function.__name__] = (function, make, breaks)
        return function

    return register


# ---- NumPy: constants ------------------------------------------------------------------------------


@program(0)
def numpy_functions_of_numbers(x):
    return x / np.sqrt(8) + np.log2(x.shape[0]) + np.pi * int(np.ceil(2.5))


@program(0)
def numpy_array_made_inside(x):
    return (
        x + torch.from_numpy(np.arange(3)) + torch.as_tensor(np.linspace(0, 1, 3, dtype=np.float32))
    )


@program(0)
def numpy_array_made_inside_is_looped_over(x):
    for scale in np.arange(1, 4):
        x = x * int(scale)
    return x


@program(0)
def numpy_array_made_and_changed_inside(x):
    table = np.zeros((3, 3), dtype=np.float32)
    table[0, 1] = 5
    table[:, 2] += 1
    rows = table[1:]
    rows *= 3
    return x @ torch.from_numpy(table)


@program(0)
def numpy_in_positions(x):
    angles = np.power(10000, -np.arange(0, 4, 2) / 4)
    return x[:2] * torch.tensor(np.sin(angles), dtype=torch.float32)


@program(0)
def numpy_products_of_sizes(x):
    return x.reshape(int(np.prod(x.shape)), 1) * np.cumsum([1, 2, 3])[-1].item()


@program(0)
def numpy_array_to_list(x):
    sizes = np.array([1, 2]).tolist()
    return torch.split(x, sizes)[1] + sum(sizes)


@program(0)
def numpy_searches(x):
    return x + np.argmax([3, 7, 2]) + np.max([1, 2]) + np.clip(5, 0, 3) + np.isclose(1.0, 1.0)


# ---- NumPy: numbers from outside -------------------------------------------------------------------


def numpy_float(i):
    return randn(3), (np.float32(0.5), np.float32(0.25), np.float32(2.5))[i % 3]


def numpy_double(i):
    return randn(3), (np.float64(0.5), np.float64(0.25), np.float64(2.5))[i % 3]


def numpy_integer(i):
    return randn(3), (np.int64(3), np.int64(4), np.int64(7))[i % 3]


@program(0, numpy_float)
def numpy_float_argument(x, scale):
    return x * scale + 1


@program(0, numpy_double)
def numpy_double_argument(x, scale):
    return x * scale, scale * 2, np.sqrt(scale)


@program(0, numpy_integer)
def numpy_integer_argument(x, n):
    return x * n, n


# ---- NumPy: data of tensors ------------------------------------------------------------------------


@program(0)
def numpy_of_tensor(x):
    return torch.from_numpy(np.sin(x.numpy())) + 1


@program(0)
def numpy_operators(x):
    a = x.numpy()
    b = (a * 2 - a / 3) ** 2
    return torch.from_numpy(b[1:] + (-b)[:2])


@program(0)
def numpy_array_is_returned(x):
    return np.exp(x.numpy()) * 2


@program(0)
def numpy_reductions(x):
    a = x.numpy()
    return a.sum(), a.mean(), np.max(a), a.std(), np.argmax(a), (a > 0).any()


@program(0)
def numpy_shapes(x):
    a = x.numpy().reshape(1, 3)
    b = np.concatenate([a, a + 1], axis=0).T
    return (
        np.stack([b, b]).transpose(0, 2, 1),
        np.expand_dims(b, 0),
        b.astype(np.float64),
        np.where(b > 0, b, 0),
    )


@program(0)
def numpy_writes_to_the_tensor(x):
    a = x.numpy()
    a[0] = 7
    a += 1
    return x * 2


def array(i):
    return randn(3), np.arange(3, dtype=np.float32) + i


@program(0, array)
def numpy_array_argument(x, a):
    return x + torch.from_numpy(np.cos(a)), a * 2, a.shape[0]


@program(0, array)
def numpy_array_argument_is_changed(x, a):
    a[1:] = a[1:] * 3
    return x + torch.from_numpy(a)


@program(0)
def numpy_matrix_products(x):
    a = x.numpy()
    return np.outer(a, a), a @ np.ones((3, 2), dtype=np.float32), np.dot(a, a)


# ---- looking at what is known ----------------------------------------------------------------------

CONFIG = {"heads": 2, "names": ("a", "b")}


@program(0)
def pickles_constants(x):
    return x + len(pickle.dumps(("key", 3, 2.5)))


@program(0)
def unpickles_constants(x):
    return x + pickle.loads(pickle.dumps({"a": 1, "b": (2, 3)}))["b"][1]


@program(0)
def pickles_what_is_outside(x):
    return x + len(pickle.dumps(CONFIG))


def scaled(x, *, scale=2, power: int = 1):
    return x * scale**power


SIGNATURE = inspect.signature(scaled)


@program(0)
def signature_parameters(x):
    return scaled(x, **{name: 3 for name in SIGNATURE.parameters if name != "x"})


@program(0)
def signature_made_inside(x):
    names = inspect.signature(scaled).parameters
    return x * len(names) if "power" in names else x


@program(0)
def signature_values(x):
    return x + sum(p.default for p in SIGNATURE.parameters.values() if p.default is not p.empty)


@program(0)
def signature_bind(x):
    bound = SIGNATURE.bind(x, scale=3)
    bound.apply_defaults()
    return scaled(*bound.args, **bound.kwargs)


@program(0)
def signature_bind_made_inside(x):
    bound = inspect.signature(scaled).bind(x, power=2)
    return scaled(**bound.arguments)


@program(0)
def argument_specification(x):
    return x + len(inspect.getfullargspec(scaled).kwonlyargs)


@program(0)
def class_dict(x):
    return x + ("first" in vars(Named)) + len([n for n in Named.__dict__ if not n.startswith("_")])


class Named:
    first = 1
    second = 2

    def __init__(self, n=1):
        self.n = n

    @property
    def doubled(self):
        return self.n * 2


NAMED = Named(3)


@program(0)
def dir_of_instance(x):
    return x + len([n for n in dir(NAMED) if not n.startswith("_")])


@program(0)
def dir_of_instance_made_inside(x):
    made = Named(2)
    made.extra = 1
    return x + ("extra" in dir(made)) + ("doubled" in dir(made))


@program(0)
def locals_of_the_frame(x):
    a = 2
    b = x * a
    return sorted(locals()), locals()["b"] + locals()["a"]


def uses_locals(x, scale=2, **options):
    values = {k: v for k, v in locals().items() if k != "options"}
    return values["x"] * values["scale"]


@program(0)
def locals_of_a_callee(x):
    return uses_locals(x, scale=3)


def name_of_caller():
    return sys._getframe(1).f_code.co_name


@program(0)
def frame_of_caller(x):
    return x + len(name_of_caller())


@program(0)
def frame_line(x):
    return x + sys._getframe().f_lineno * 0


@program(0)
def frame_globals(x):
    return x + len(sys._getframe().f_globals["CONFIG"])


@program(0)
def current_thread(x):
    return x + (threading.current_thread() is threading.main_thread())


@program(0)
def current_thread_name(x):
    return x + len(threading.current_thread().name)


@program(0)
def thread_ident(x):
    return x + (threading.get_ident() == threading.main_thread().ident)


LOCAL = threading.local()
LOCAL.scale = 2


@program(0)
def thread_local(x):
    return x * getattr(LOCAL, "scale", 1) * getattr(LOCAL, "absent", 1)


@program(0)
def thread_local_written(x):
    before = getattr(LOCAL, "mode", None)
    LOCAL.mode = 3
    y = x * LOCAL.mode
    LOCAL.mode = before
    return y


ODICT = OrderedDict(a=1, b=2)


@program(0)
def views_of_ordered_dicts(x):
    for key, value in ODICT.items():
        x = x + value + len(key)
    return x * len(ODICT.keys()) + sum(ODICT.values()) + (1 if "a" in ODICT.keys() else 0)


PROXY = types.MappingProxyType({"a": 1, "b": 2})


@program(0)
def mapping_proxy(x):
    return x + PROXY["a"] + len(PROXY) + sum(PROXY.values()) + PROXY.get("c", 5)


# ---- logging ---------------------------------------------------------------------------------------


@program(0)
def log_below_level(x):
    LOG.debug("value %s", x.shape)
    LOG.info("still")
    return x + 1


@functools.lru_cache(None)
def warning_once(text):
    LOG.debug(text)


@program(0)
def log_once(x):
    warning_once("hello")
    return x + 1


@program(0)
def logger_disabled(x):
    if not LOG.disabled and LOG.isEnabledFor(logging.ERROR):
        x = x + 1
    return x + LOG.getEffectiveLevel()


@program(0)
def logger_is_made_inside(x):
    logging.getLogger("course_lib.tests.wild").debug("hello")
    return x + 1


class Adapter(logging.LoggerAdapter):
    def process(self, message, kwargs):
        return message, kwargs


ADAPTER = Adapter(LOG, {})


@program(0)
def logger_adapter(x):
    ADAPTER.debug("hello")
    return x + 1


# ---- autograd.Function -----------------------------------------------------------------------------


def with_gradient(i):
    return (torch.randn(3, requires_grad=True),)


class WithFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, function):
        ctx.save_for_backward(x)
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos(), None


@program(0, with_gradient)
def function_given_to_apply(x):
    return WithFunction.apply(x, torch.sin) * 2


@program(0, with_gradient)
def lambda_given_to_apply(x):
    return WithFunction.apply(x, lambda t: t.sin()) * 2


class WithObject(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, config):
        ctx.config = config
        return x * config.n

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.config.n, None


@program(0, with_gradient)
def object_given_to_apply(x):
    return WithObject.apply(x, NAMED) + 1


@program(0, with_gradient)
def object_made_inside_given_to_apply(x):
    return WithObject.apply(x, Named(4)) + 1


class WithModule(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return module(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


MODULE = nn.ReLU()


@program(0, with_gradient)
def module_given_to_apply(x):
    return WithModule.apply(x, MODULE) + 1


class KeepsDict(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, options):
        ctx.options = dict(options, more=3)
        return x * options["scale"]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.options["scale"] * ctx.options["more"], None


@program(0, with_gradient)
def dict_given_to_apply(x):
    return KeepsDict.apply(x, {"scale": 2}) + 1


class TwoNumbers(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha, mode):
        ctx.alpha = alpha
        if mode == "heaviside":
            return (x > alpha).to(x)
        return x * alpha

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.alpha, None, None


@program(0, with_gradient)
def function_stored_as_attribute(x):
    spike = TwoNumbers.apply
    return spike(x, 0.5, "heaviside") + x


# ---- tensor subclasses -----------------------------------------------------------------------------


class MetaTensor(torch.Tensor):
    @staticmethod
    def __new__(cls, data, meta=None):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, meta=None):
        self.meta = {} if meta is None else meta

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        if isinstance(result, MetaTensor):
            for arg in args:
                if isinstance(arg, MetaTensor) and hasattr(arg, "meta"):
                    result.meta = dict(arg.meta)
                    break
        return result


def meta_tensor(i):
    return (MetaTensor(randn(3), {"scale": 2 + i}),)


@program(0, meta_tensor)
def tensor_with_attributes(x):
    y = x * 2 + 1
    return y * y.meta["scale"]


@program(0, meta_tensor)
def tensor_with_attributes_as_plain(x):
    return x.as_subclass(torch.Tensor) + x.meta["scale"]


# ---- optimizers ------------------------------------------------------------------------------------


class OwnSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["average"] = torch.zeros_like(p)
                state["step"] += 1
                state["average"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.add_(state["average"], alpha=-group["lr"] / state["step"])


def own_optimizer(i):
    if i == 0:
        own_optimizer.weight = nn.Parameter(torch.ones(3))
        own_optimizer.optimizer = OwnSGD([own_optimizer.weight])
    own_optimizer.weight.grad = torch.full((3,), 1.0 + i)
    return own_optimizer.optimizer, own_optimizer.weight


@program(0, own_optimizer)
def step_of_own_optimizer(optimizer, weight):
    optimizer.step()
    return weight * 2


@program(0, own_optimizer)
def zero_grad_of_own_optimizer(optimizer, weight):
    optimizer.zero_grad()
    return weight * 2


@program(0, own_optimizer)
def zero_grad_to_zero_of_own_optimizer(optimizer, weight):
    optimizer.zero_grad(set_to_none=False)
    return weight * 2, weight.grad


# ---- operations that ask for data ------------------------------------------------------------------


@program(0)
def max_of_tensor_and_number(x):
    return max(x.sum(), 0) if False else torch.clamp(x, min=max(1, 0)), min(x.shape[0], 5)


@program(1)
def max_of_a_tensor_and_a_number(x):
    return max(x.abs().sum(), 0) + min(x.abs().sum() + 7, 100)


@program(1)
def equal_tensors(x):
    return x + 1 if torch.equal(x, x + 1) else x


def index_of_no_dimensions(i):
    return randn(5), torch.tensor(i), [10, 20, 30]


@program(0, index_of_no_dimensions)
def indexed_by_a_tensor_from_outside(x, i, values):
    return x[i] * 2 + x[i : i + 1] * 0 if False else x[i] * 2


@program(0)
def sizes_of_arange(x):
    return x.sum(torch.arange(0, x.dim()).tolist()) + x.permute(torch.arange(x.dim()).tolist())


@program(0)
def checks_of_distributions(x):
    return torch.distributions.Normal(x, x.abs() + 1).log_prob(x)


@program(0)
def categorical(x):
    return torch.distributions.Categorical(logits=x).entropy()


@program(0)
def sample_of_distribution(x):
    return torch.distributions.Normal(x, 1.0).rsample().shape[0] + x


@program(0)
def kl_of_distributions(x):
    normal = torch.distributions.Normal
    return torch.distributions.kl_divergence(normal(x, 1.0), normal(0.0, 1.0))


# ---- the rest --------------------------------------------------------------------------------------


@program(0)
def detached_in_place(x):
    y = x * 2
    y.detach_()
    return y + x


@program(0)
def python_random(x):
    return x * random.random() + random.randint(1, 5) + random.uniform(1, 2)


def own_random(i):
    return randn(3), random.Random(i)


@program(0, own_random)
def random_object(x, source):
    return x * source.random() + source.choice([1, 2, 3])


@program(0)
def generator_made_inside(x):
    return x + torch.randn(3, generator=torch.Generator().manual_seed(3))


def torch_generator(i):
    return randn(3), torch.Generator().manual_seed(i)


@program(0, torch_generator)
def generator_from_outside(x, generator):
    return x + torch.randn(3, generator=generator)


def numbers_from(n):
    for i in range(n):
        yield i


@program(1)
def generator_alive_at_a_break(x):
    values = numbers_from(3)
    x = x + next(values)
    torch._dynamo.graph_break()
    return x + next(values)


class Context:
    def __enter__(self):
        STATE.count += 1
        return self

    def __exit__(self, *args):
        STATE.count -= 1


@program(1)
def context_alive_at_a_break(x):
    with Context():
        x = x + STATE.count
        torch._dynamo.graph_break()
        x = x * 2
    return x + STATE.count


class lazy_property:
    def __init__(self, function):
        self.function = function
        functools.update_wrapper(self, function)

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        value = self.function(instance)
        setattr(instance, self.function.__name__, value)
        return value


class Lazily:
    def __init__(self, n):
        self.n = n

    @lazy_property
    def doubled(self):
        return self.n * 2


class own_property(property):
    pass


class WithOwnProperty:
    def __init__(self, n):
        self.n = n

    @own_property
    def doubled(self):
        return self.n * 2

    @doubled.setter
    def doubled(self, value):
        self.n = value // 2


@program(0)
def lazy_property_of_an_object(x):
    lazily = Lazily(3)
    return x * lazily.doubled + lazily.doubled


def with_own_property(i):
    return randn(3), WithOwnProperty(i + 2), Lazily(i + 3)


@program(0, with_own_property)
def property_subclass(x, thing, lazily):
    thing.doubled = thing.doubled + 2
    return x * thing.doubled + lazily.doubled, thing.n


TRACED = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


@program(0)
def fx_module(x):
    return TRACED(x) + 1


def wrapped_forward(i):
    module = nn.Linear(3, 3)
    module.forward = functools.update_wrapper(functools.partial(module.forward), module.forward)
    return module, randn(3)


@program(0, wrapped_forward)
def forward_is_a_partial(module, x):
    return module(x) + 1


MODULES = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})


@program(0)
def members_of_a_module_dict(x):
    for name in MODULES:
        x = MODULES[name](x)
    if "a" in MODULES and "c" not in MODULES:
        x = x + len(MODULES)
    return x + len(MODULES.keys()) + ("b" in MODULES.keys())


PARAMETERS = nn.ParameterDict({"a": torch.ones(3), "b": torch.zeros(3)})


@program(0)
def members_of_a_parameter_dict(x):
    return (
        x
        + PARAMETERS["a"]
        + ("b" in PARAMETERS)
        + len(PARAMETERS)
        + sum(p.sum() for p in PARAMETERS.values())
    )


def lazy_module(i):
    torch.manual_seed(0)
    return nn.LazyLinear(2), randn(2, 3)


@program(0, lazy_module)
def lazy_module_is_filled(module, x):
    return module(x) + 1


class OwnList(list):
    def __len__(self):
        return 2

    def __iter__(self):
        return iter([1, 2])


ITEMS = OwnList([5])


@program(0)
def list_with_its_own_length(x):
    return x * len(ITEMS) + sum(ITEMS)


@functools.lru_cache(None)
def cached_table(n):
    return torch.arange(n).float()


@program(0)
def cached_function_makes_a_tensor(x):
    return x + cached_table(3)


LINEAR = nn.Linear(3, 3)


@program(0)
def data_is_assigned(x):
    LINEAR.weight.data = LINEAR.weight.data * 1
    return LINEAR(x)


@program(0)
def version_of_torch(x):
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return x + (1 if (major, minor) >= (2, 0) else 0)


@program(0)
def dataclass_fields(x):
    import dataclasses

    @dataclasses.dataclass
    class Options:
        scale: int = 2

    return x * Options().scale


@program(0)
def typing_checks(x):
    import typing

    return (
        x
        + (typing.get_origin(typing.List[int]) is list)
        + len(typing.get_args(typing.Dict[str, int]))
    )


@program(0)
def type_hints(x):
    return x + len(scaled.__annotations__)


def breaks_of_torch(function, make):
    """Why torch.compile ends graphs in the first call, or the error that it raises."""
    import torch._dynamo as dynamo

    dynamo.reset()
    torch.manual_seed(0)
    random.seed(0)
    try:
        found = dynamo.explain(function)(*make(0))
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return [str(one.reason).splitlines()[0] for one in found.break_reasons]


def breaks_of_ours(function, make):
    """The same for `cl.compile`."""
    import course_lib as cl

    torch.manual_seed(0)
    random.seed(0)
    try:
        return [one.reason for one in cl.explain(function)(*make(0)).breaks]
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def main():
    for name, (function, make, expected) in PROGRAMS.items():
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        theirs, ours = breaks_of_torch(function, make), breaks_of_ours(function, make)
        more = isinstance(ours, str) or len(ours) > expected
        counted = theirs if isinstance(theirs, str) else len(theirs)
        print(
            f"{'MORE ' if more else '     '}{name:45} ours {len(ours)} torch {counted} table {expected}"
        )
        for reason in [ours] if isinstance(ours, str) else ours:
            print(f"          ours: {reason[:150]}")
        for reason in [] if isinstance(theirs, str) else theirs:
            print(f"          torch: {reason[:150]}")


if __name__ == "__main__":
    main()


# ---- what other packages' programs do (`tests/tools/wild/`) ------------------------------------------


class KeepsViews:
    """linear_operator keeps the keys of its arguments."""

    def __init__(self, n):
        self.options = OrderedDict(a=1, b=n)
        self.names = self.options.keys()
        self.numbers = self.options.values()
        self.weights = {"w": torch.ones(3)}
        self.named_weights = self.weights.items()


def keeps_views(i):
    return randn(3), KeepsViews(i % 2)


@program(0, keeps_views)
def views_kept_by_an_object(x, thing):
    for name in thing.names:
        x = x + len(name)
    thing.options["c"] = 7
    for name, weight in thing.named_weights:
        x = x * weight
    return x + len(thing.names) + sum(thing.numbers), "c" in thing.names, list(thing.names)


@program(1)
def view_alive_at_a_break(x):
    options = {"a": 1}
    names = options.keys()
    torch._dynamo.graph_break()
    options["b"] = 2
    return x + len(names)


class Spread(torch.distributions.Distribution):
    """gpytorch's distributions have torch's own kind of lazy property."""

    arg_constraints = {}

    def __init__(self, scale):
        self.scale = scale
        super().__init__(validate_args=False)

    @torch.distributions.utils.lazy_property
    def variance(self):
        return self.scale * self.scale


def spread(i):
    return randn(3), Spread(torch.full((3,), 1.0 + i))


@program(0, spread)
def lazy_property_of_a_distribution(x, spread):
    own = Spread(x)
    return own.variance + spread.variance * own.variance, "variance" in vars(spread)


class Kernel(nn.Module):
    """gpytorch gives a function of the module to its autograd.Function."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.calls = 0

    def distance(self, a, b):
        self.calls += 1
        return (a - b) ** 2

    def forward(self, a, b):
        return Covariance.apply(a, b, self.scale, lambda x, y: self.distance(x, y))


class Covariance(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, scale, distance):
        if any(ctx.needs_input_grad[:2]):
            raise RuntimeError("only the scale has a gradient")
        result = distance(a, b).div_(scale).exp_()
        ctx.save_for_backward(result, a)
        ctx.distance, ctx.factor, ctx.kept = distance, 3, [a, result]
        if ctx.needs_input_grad[2]:
            result = result * scale
        return result, result.sum() * 2, 5

    @staticmethod
    def backward(ctx, grad, grad_of_sum, _):
        result, a = ctx.saved_tensors
        _, _, needs_scale, _ = ctx.needs_input_grad
        whole = grad * result * ctx.factor + grad_of_sum * ctx.kept[1] + a
        return None, None, whole.sum().reshape(1) if needs_scale else None, None


def kernel(i):
    return Kernel(), randn(3 + i), randn(3 + i)


@program(0, kernel)
def apply_with_a_method_of_a_module(kernel, a, b):
    result, total, number = kernel(a, b)
    return result * number + total, kernel.calls


class KeepsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, options):
        print(end="") if options.loud else None
        result = x.exp()
        ctx.save_for_backward(result)
        ctx.mark_non_differentiable(other := x > 0)
        return result, other

    @staticmethod
    def backward(ctx, grad, _):
        (result,) = ctx.saved_tensors
        return grad * result * 2, None


QUIET = types.SimpleNamespace(loud=False)


@program(0, with_gradient)
def apply_keeps_its_result(x):
    result, positive = KeepsResult.apply(x, QUIET)
    return result * positive


@program(0, one)
def apply_without_a_gradient(x):
    return KeepsResult.apply(x, QUIET)[0]


class GivesItsArgument(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, options):
        return x.view_as(x) if options.loud else x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3, None


@program(0, with_gradient)
def apply_gives_its_argument(x):
    return GivesItsArgument.apply(x, QUIET) * 2


# ---- functions with a cache: einops parses its patterns in such --------------------------------------


class Pattern:
    def __init__(self, text):
        self.axes = []
        for letter in text.split():
            if not letter.isidentifier():
                raise ValueError(f"no axis: {letter}")
            self.axes.append(letter)


class Recipe:
    def __init__(self, axes):
        self.axes = axes


SEPARATOR = "->"
CALLS = []


@functools.lru_cache(8)
def parsed(text):
    left, right = text.split(SEPARATOR)
    order = [Pattern(left).axes.index(axis) for axis in Pattern(right).axes]
    return Recipe(order)


def shape_of_uncached(recipe, shape):
    return tuple(shape[axis] for axis in recipe.axes)


shape_of = functools.lru_cache(8)(shape_of_uncached)


def matrix(i):
    parsed.cache_clear()
    shape_of.cache_clear()
    return (randn(2, 3),)


@program(0, matrix)
def cached_function_parses_a_text(x):
    return x.permute(parsed("a b -> b a").axes)


@program(0, matrix)
def cached_function_gets_what_another_gave(x):
    return x.reshape(shape_of(parsed("a b -> b a"), tuple(x.shape)))


@program(0, matrix)
def cached_function_after_a_change(x):
    STATE.mode = 3
    return x.permute(parsed("a b -> b a").axes) + STATE.mode


@program(0, matrix)
def cached_function_gets_what_has_no_hash(x):
    try:
        return x.reshape(shape_of(parsed("a b -> b a"), list(x.shape)))
    except TypeError:
        return x.reshape(shape_of_uncached(parsed("a b -> b a"), list(x.shape))) + 1


@program(0, matrix)
def cached_function_raises(x):
    try:
        return x.permute(parsed("a ! -> ! a").axes)
    except ValueError as error:
        return x + len(str(error))


@functools.lru_cache(None)
def scaled_by_state(text):
    return STATE.scale * len(text)


def changed_scale(i):
    STATE.scale = 2.0 + i
    if i == 0:
        scaled_by_state.cache_clear()
    return (randn(3),)


@program(0, changed_scale)
def cached_function_answers_what_it_saw_first(x):
    return x * scaled_by_state("ab")


def cleared_scale(i):
    scaled_by_state.cache_clear()
    STATE.scale = 1.0
    return (randn(3),)


@program(0, cleared_scale)
def cached_function_reads_what_the_program_changed(x):
    STATE.scale = STATE.scale + 3
    return x * scaled_by_state("ab"), STATE.scale


@functools.lru_cache(None)
def noted(text):
    CALLS.append(text)
    return len(text)


def unnoted(i):
    if i == 0:
        noted.cache_clear()
        CALLS.clear()
    return (randn(3),)


@program(0, unnoted)
def cached_function_has_an_effect(x):
    before = len(CALLS)
    return x * noted("abc"), before, len(CALLS)


half_of = functools.lru_cache(None)(functools.partial(lambda factor, n: n * factor, 0.5))


@program(0)
def cached_function_is_a_partial(x):
    return x * half_of(3)


class NamesAnything:
    def __getattr__(self, name):
        return lambda: name


ANYTHING = NamesAnything()


@program(0)
def object_with_any_attribute(x):
    return x + (ANYTHING is ANYTHING) + len(ANYTHING.shape())


# ---- Python's random numbers ---------------------------------------------------------------------------


@program(0)
def random_choice(x):
    return x * random.choice([1, 2, 3])


@program(0)
def random_shuffle(x):
    values = [1, 2, 3, 4]
    random.shuffle(values)
    return x * values[0], values


@program(0)
def random_sample(x):
    return x * random.sample(range(10), 2)[0] + random.choices([1, 2], k=1)[0]


@program(0)
def random_laws(x):
    return x * random.gauss(0, 1) + random.normalvariate(1, 2), random.expovariate(2.0)


@program(0)
def random_numbers_are_returned(x):
    return x + 1, random.random(), random.randint(1, 3), random.getrandbits(5)


@program(0)
def random_seeded_inside(x):
    random.seed(4)
    return x * random.random()


@program(0)
def random_decides(x):
    return x * 2 if random.random() < 0.5 else x * 3


@program(0)
def random_number_of_arithmetic(x):
    return x * (2 * random.random() - 1) + random.uniform(-1, 1) ** 2


@program(0)
def random_source_made_inside(x):
    source = random.Random(3)
    return x * source.random() + source.randint(0, 5), source.choice("abc")


@program(0)
def random_source_is_returned(x):
    source = random.Random(3)
    return x * source.random(), source, source.gauss(0, 1)


@program(1)
def random_source_behind_a_break(x):
    source = random.Random(3)
    x = x * source.random() * random.random()
    torch._dynamo.graph_break()
    return x * source.random() * random.random()


@program(0, own_random)
def random_source_is_shuffled_with(x, source):
    values = [1, 2, 3]
    source.shuffle(values)
    return x * values[1] + source.random(), source.random()


@program(0)
def random_before_an_error_of_data(x):
    return x[torch.tensor([0, 2])] * random.random() + 1


# ---- generators of torch from outside ------------------------------------------------------------------

GENERATOR = torch.Generator()


def seeded_generator(i):
    GENERATOR.manual_seed(i)
    return (randn(3),)


class Sampler:
    def __init__(self, i):
        self.generator = torch.Generator().manual_seed(i)


def sampler(i):
    return randn(3), Sampler(i)


@program(0, torch_generator)
def generator_from_outside_is_seeded(x, generator):
    generator.manual_seed(5)
    return x + torch.rand(3, generator=generator), generator.initial_seed()


@program(0, seeded_generator)
def generator_in_a_global(x):
    first = torch.randn(3, generator=GENERATOR)
    return x + first, torch.randn(3, generator=GENERATOR)


@program(0, sampler)
def generator_in_an_object(x, sampler):
    return x + torch.empty(3).normal_(generator=sampler.generator), sampler.generator is None


@program(0, torch_generator)
def generator_for_a_law(x, generator):
    return torch.bernoulli(x.sigmoid(), generator=generator), torch.multinomial(
        x.softmax(0), 2, generator=generator
    )


@program(0, torch_generator)
def generator_is_looked_at(x, generator):
    return x + generator.initial_seed() % 3, generator.device.type


@program(0, torch_generator)
def generator_is_returned(x, generator):
    return x + torch.rand(3, generator=generator), generator


@program(1, torch_generator)
def generator_of_torch_at_a_break(x, generator):
    x = x + torch.rand(3, generator=generator)
    torch._dynamo.graph_break()
    return x + torch.rand(3, generator=generator)


# ---- lazy modules --------------------------------------------------------------------------------------


class LazyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LazyLinear(4)
        self.second = nn.LazyConv1d(2, 1)

    def forward(self, x):
        return self.second(self.first(x)[:, None])


def lazy_net(i):
    torch.manual_seed(0)
    return LazyNet(), randn(2, 3)


def lazy_sequence(i):
    torch.manual_seed(0)
    return nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d()).eval(), randn(2, 3 + i)


@program(0, lazy_net)
def lazy_modules_in_a_module(module, x):
    return module(x), type(module.first)


@program(0, lazy_sequence)
def lazy_modules_in_a_sequence(module, x):
    return module(x), module[1].running_mean


# ---- autograd.Function: what entmax and spikingjelly do ------------------------------------------------


class Sparsemax(torch.autograd.Function):
    @classmethod
    def forward(cls, ctx, x, dim=-1):
        ctx.dim = dim
        x = x - x.max(dim=dim, keepdim=True)[0]
        support, tau = cls.threshold(x, dim)
        output = torch.clamp(x - tau, min=0)
        ctx.save_for_backward(support, output)
        return output

    @staticmethod
    def threshold(x, dim):
        ordered, _ = torch.sort(x, dim=dim, descending=True)
        sums = ordered.cumsum(dim) - 1
        places = torch.arange(1, x.size(dim) + 1, dtype=x.dtype)
        support = (places * ordered > sums).sum(dim=dim).unsqueeze(dim)
        return support, sums.gather(dim, support - 1) / support.to(x.dtype)

    @classmethod
    def backward(cls, ctx, grad):
        support, output = ctx.saved_tensors
        inside = grad.clone()
        inside[output == 0] = 0
        mean = inside.sum(dim=ctx.dim) / support.to(output.dtype).squeeze(ctx.dim)
        return torch.where(output != 0, inside - mean.unsqueeze(ctx.dim), inside), None


@program(0, with_gradient)
def apply_of_classmethods(x):
    return Sparsemax.apply(x, -1) * 2


@program(0, with_gradient)
def apply_of_classmethods_by_default(x):
    return Sparsemax.apply(x)


def slope(grad, x, alpha):
    if alpha is None:
        raise ValueError("no alpha")
    return alpha / 2 / (1 + (math.pi / 2 * alpha * x).pow(2)) * grad


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        if x.requires_grad:
            ctx.save_for_backward(x)
            ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad):
        assert ctx.alpha != 7, "seven"
        return slope(grad, ctx.saved_tensors[0], ctx.alpha), None


@program(0, with_gradient)
def backward_may_raise(x):
    return Spike.apply(x, 2.0) + x


@program(0, with_gradient)
def backward_does_raise(x):
    return Spike.apply(x, None) + x


@program(0, with_gradient)
def backward_asserts_in_vain(x):
    return Spike.apply(x, 7) + x


# ---- numbers of tensors --------------------------------------------------------------------------------


@program(0)
def tensor_for_a_scale(x):
    y = x * 1
    y.add_(x, alpha=-x.sum()).sub_(x.sin(), alpha=x.double().mean())
    return y, torch.add(y, x, alpha=torch.tensor(3))
