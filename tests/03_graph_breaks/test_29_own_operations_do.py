"""What the code of a user's operation does outside happens at each call, in its place: forward, backward, checkpoint, cache.

PYTEST_DONT_REWRITE: the programs are read by their bytecode."""

import functools
import os

import pytest
import torch
from same_as_eager import Cases
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import course_lib as cl

Function = torch.autograd.Function
LOG = []
COUNTS = {}
SEEN = set()
NUMBER = 0


class Box:
    number = 0


box = Box()


def start():
    """Everything outside as it was."""
    global NUMBER
    NUMBER = Box.number = box.number = 0
    for container in (LOG, COUNTS, SEEN):
        container.clear()
    os.environ.pop("COURSE_TEST_COUNT", None)


def outside():
    """What a program may have changed; the random number tells what was drawn."""
    return (
        NUMBER,
        list(map(str, LOG)),
        sorted(COUNTS.items()),
        len(SEEN),
        Box.number,
        box.number,
        os.environ.get("COURSE_TEST_COUNT"),
        torch.rand(1),
    )


def trained(function, calls=3):
    """Results, gradients and inputs of some calls, or the errors, and what is outside in the end."""

    def body(compile):
        start()
        fast, found = compile(function), []
        for _ in range(calls):
            x = torch.ones(2, requires_grad=True)
            try:
                y = fast(x)
                y.sum().backward()
            except Exception as error:
                found.append(f"{type(error).__name__}: {error}")
            else:
                found += [y.detach(), x.grad, x.detach()]
        return found, outside()

    return body


# ---- in the forward or the backward of an autograd.Function ----------------------------------------------------------


def count_global():
    global NUMBER
    NUMBER += 1


def log_with_default(log=LOG):
    log.append("default")


def log_through_alias():
    log = LOG
    log += ["alias"]


def count_environment():
    os.environ["COURSE_TEST_COUNT"] = str(int(os.environ.get("COURSE_TEST_COUNT", "0")) + 1)


def catch():
    try:
        LOG.append(float(torch.ones(1)))
    except Exception:
        LOG.append("caught")


EFFECTS = {
    "appends to a list": lambda: LOG.append("called"),
    "appends in a lambda": lambda: (lambda: LOG.append("inner"))(),
    "appends in a comprehension": lambda: [LOG.append(n) for n in range(2)],
    "appends by map": lambda: list(map(LOG.append, [1, 2])),
    "appends to a default": log_with_default,
    "adds to a list in place": log_through_alias,
    "stores an item": lambda: COUNTS.__setitem__("calls", COUNTS.get("calls", 0) + 1),
    "adds to a set": lambda: SEEN.add(len(SEEN)),
    "sets a global variable": count_global,
    "sets an attribute": lambda: setattr(box, "number", box.number + 1),
    "sets an attribute of a class": lambda: setattr(Box, "number", Box.number + 1),
    "sets the environment": count_environment,
    "prints": lambda: (print(end=""), LOG.append("printed")),
    "catches an error": catch,
    "seeds": lambda: torch.manual_seed(3),
    "draws": lambda: torch.rand(2),
    "draws in place": lambda: torch.empty(2).normal_(),
    "drops out": lambda: F.dropout(torch.ones(2)),
}


def doing(effect, in_forward, in_backward):
    class Does(Function):
        @staticmethod
        def forward(ctx, x):
            if in_forward:
                effect()
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            if in_backward:
                effect()
            return grad * 2

    return Does


def with_backward(backward):
    class Own(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.box = box
            ctx.x = x
            return x * 2

    Own.backward = staticmethod(backward)
    return Own


def writes_to_what_was_saved(ctx, grad):
    (x,) = ctx.saved_tensors
    x.data.add_(1)
    return grad


def marks_what_was_saved(ctx, grad):
    LOG.append(getattr(ctx.x, "mark", None))
    ctx.x.mark = "seen"
    return grad


def writes_to_its_gradient(ctx, grad):
    grad.mul_(3)
    return grad


def raises(ctx, grad):
    raise KeyError("backward")


def asserts(ctx, grad):
    assert grad.sum() < 0, "negative"
    return grad


def counts_in_its_context(ctx, grad):
    ctx.box.number += 1
    ctx.count = getattr(ctx, "count", 0) + 1
    return grad * ctx.count


def takes_a_number(ctx, grad):
    return grad * grad.sum().item()


def draws_for_its_gradient(ctx, grad):
    return grad + torch.rand(grad.shape)


BACKWARDS = (
    writes_to_what_was_saved,
    marks_what_was_saved,
    writes_to_its_gradient,
    raises,
    asserts,
    counts_in_its_context,
    takes_a_number,
    draws_for_its_gradient,
)

logs = doing(lambda: LOG.append("operation"), True, True)


def around(x):
    LOG.append("before")
    y = logs.apply(x)
    LOG.append(f"after {len(LOG)}")
    return y + len(LOG)


def in_a_with(x):
    with torch.enable_grad():
        for _ in range(2):
            x = logs.apply(x)
    return x


class AddsToArgument(Function):
    @staticmethod
    def forward(ctx, x, total, counts):
        ctx.total, ctx.counts = total, counts
        counts["forward"] = counts.get("forward", 0) + 1
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        ctx.total.add_(grad)
        ctx.counts["backward"] = ctx.counts.get("backward", 0) + 1
        return grad * 2, None, None


def adds_to_arguments(compile):
    total, counts = torch.zeros(2), {}
    fast = compile(lambda x: AddsToArgument.apply(x, total, counts))
    for _ in range(3):
        fast(torch.ones(2, requires_grad=True)).sum().backward()
    return total, counts


operations = Cases(backend="aot_eager")
for name, effect in EFFECTS.items():
    for place, where in (("forward", (1, 0)), ("backward", (0, 1)), ("both", (1, 1))):
        own = doing(effect, *where)
        operations(f"{name} in {place}", trained(lambda x, own=own: own.apply(x) + 1))
for backward in BACKWARDS:
    own = with_backward(backward)
    operations(backward.__name__, trained(lambda x, own=own: own.apply(x) + 1))
operations("between effects of the program", trained(around))
operations("in a with", trained(in_a_with))
operations("adds to its arguments", adds_to_arguments)
operations("without gradients", trained(lambda x: logs.apply(x.detach()) + x))


@pytest.mark.parametrize("name", operations.names)
def test_an_operation_does_outside_what_eager_does(name):
    operations.check(name)


# ---- in a custom operator --------------------------------------------------------------------------------------------


def kernel_plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def kernel_logs(x: torch.Tensor) -> torch.Tensor:
    LOG.append("kernel")
    return x * 2


def kernel_counts(x: torch.Tensor) -> torch.Tensor:
    box.number += 1
    return x * box.number


def kernel_draws(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand(x.shape)


def kernel_raises(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 1:
        raise ValueError("too large")
    return x * 2


def kernel_of_numpy(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() * 2)


def backward_logs(ctx, grad):
    LOG.append("backward")
    return grad * 2


def backward_plain(ctx, grad):
    return grad * 2


def context_logs(ctx, inputs, output):
    LOG.append("context")


def operator(kernel, backward, context=None):
    name = f"course_test_do::{kernel.__name__}_{backward.__name__}{'_context' * bool(context)}"
    made = torch.library.custom_op(name, kernel, mutates_args=())
    made.register_fake(torch.empty_like)
    made.register_autograd(backward, setup_context=context)
    return made


KERNELS = kernel_plain, kernel_logs, kernel_counts, kernel_draws, kernel_raises, kernel_of_numpy
OPERATORS = {kernel.__name__: operator(kernel, backward_plain) for kernel in KERNELS}
OPERATORS["a backward that logs"] = operator(kernel_plain, backward_logs)
OPERATORS["a backward that draws"] = operator(kernel_plain, draws_for_its_gradient)
OPERATORS["a backward that raises"] = operator(kernel_plain, raises)
own_operators = Cases(backend="aot_eager")
for name, own in OPERATORS.items():
    for options in ({}, {"fullgraph": True}):
        often = trained(lambda x, own=own: own(x) + own(x) + 1)
        own_operators(f"{name} twice {options}", often, **options)
        unused = trained(lambda x, own=own: (own(x), x + torch.rand(2))[1])
        own_operators(f"{name} unused {options}", unused, **options)
with_context = operator(kernel_plain, backward_plain, context_logs)
own_operators("a context that logs", trained(lambda x: with_context(x) + 1))


@pytest.mark.parametrize("name", own_operators.names)
def test_an_operator_does_outside_what_eager_does(name):
    own_operators.check(name)


# ---- in a checkpoint, which runs again in backward -------------------------------------------------------------------


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.calls = 0
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        self.count.add_(1)
        return self.norm(self.linear(x.expand(3, 2))).tanh().sum(0)


def layer_with(effect):
    def layer(x):
        effect()
        return x.cos()

    return layer


def checkpointed(layer, **options):
    return trained(lambda x: checkpoint(layer, x * 1, **{"use_reentrant": False} | options) + 1)


def checkpointed_module(compile):
    torch.manual_seed(0)
    layer = Layer()
    fast = compile(lambda x: checkpoint(layer, x, use_reentrant=False))
    fast(torch.ones(2, requires_grad=True)).sum().backward()
    return layer.calls, list(layer.buffers())


checkpoints = Cases(backend="aot_eager")
for name, effect in EFFECTS.items():
    checkpoints(name, checkpointed(layer_with(effect)))
checkpoints("reentrant", checkpointed(layer_with(EFFECTS["appends to a list"]), use_reentrant=True))
checkpoints("a module", checkpointed_module)
checkpoints("nothing", checkpointed(torch.cos))


@pytest.mark.parametrize("name", checkpoints.names)
def test_a_checkpoint_does_it_again_in_backward(name):
    checkpoints.check(name)


# What is put into a list in place of an equal kind of object that has just died: it may get its address.
MADE = {
    "float": "n + 0.5",
    "tuple": "(n,)",
    "frozenset": "frozenset([n])",
    "bytes": "b'%d' % n",
    "list": "[n]",
    "dict": "{n: n}",
}
DROPPED = ["HELD.pop()", "HELD.clear()", "del HELD[0]", "HELD[0] = None; HELD.pop()"]
BETWEEN = ["", "w = [n]; "]
HELD = []

PUT_ANOTHER = """
def f(x):
    n = 1000
    HELD.clear(); HELD.append({made})

    def inner(x):
        n = 2000
        {dropped}
        {between}HELD.append({made})
        return x.sin()

    return checkpoint(inner, x, use_reentrant=False)
"""


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_checkpoint_that_puts_another_object_in_the_place_is_noticed(made):
    for dropped in DROPPED:
        for between in BETWEEN:
            names = {"checkpoint": checkpoint, "HELD": HELD}
            exec(PUT_ANOTHER.format(made=made, dropped=dropped, between=between), names)
            HELD[:] = [None]
            said = cl.explain(names["f"])(torch.ones(2, requires_grad=True))
            assert "changes something outside" in str(said), (dropped, between)


GENERATOR = torch.Generator()


def scaled_by(generator):
    return lambda x: x * torch.rand(2, generator=generator)


def draws_from_one_outside(x):
    return checkpoint(scaled_by(GENERATOR), x, use_reentrant=False)


def draws_from_one_before(x):
    mine = torch.Generator()
    mine.manual_seed(3)
    return checkpoint(scaled_by(mine), x, use_reentrant=False)


def seeds_and_draws(x):
    def inner(x):
        mine = torch.Generator()
        mine.manual_seed(3)
        return scaled_by(mine)(x)

    return checkpoint(inner, x, use_reentrant=False)


def drew_before(x):
    scale = torch.rand(2, generator=GENERATOR)
    return checkpoint(lambda x: (x * scale).sin(), x, use_reentrant=False)


DRAWS = [draws_from_one_outside, draws_from_one_before, seeds_and_draws, drew_before]


@pytest.mark.parametrize("function", DRAWS)
def test_a_checkpoint_draws_again_from_a_generator_that_has_gone_on(function):
    found = []
    for called in (function, cl.compile(function, backend="aot_eager")):
        GENERATOR.manual_seed(0)
        x = torch.ones(2, requires_grad=True)
        y = called(x)
        y.sum().backward()
        found.append([y.tolist(), x.grad.tolist(), torch.rand(1, generator=GENERATOR).item()])
    assert found[1] == found[0]


class Listed(list):
    """A list with attributes."""


@pytest.mark.parametrize("name", ["items", "taken", "state", "stored", "other"])
def test_an_attribute_and_the_items_of_a_list_are_told_apart(name):
    held = Listed([1])

    def f(x):
        held.append(2)
        setattr(held, name, object())

        def inner(x):
            held.append(3)
            return x.sin()

        return checkpoint(inner, x, use_reentrant=False)

    cl.compile(f, backend="aot_eager")(torch.ones(2, requires_grad=True)).sum().backward()
    # Backward runs `inner` again.
    assert held == [1, 2, 3, 3]


# ---- in a function with a cache --------------------------------------------------------------------------------------


def cached_positions(compile):
    positions = functools.lru_cache(None)(lambda n: torch.arange(n) * 1.0)
    fast = compile(lambda x: x + positions(x.shape[0]))
    return [fast(torch.ones(n)) for n in (3, 4, 3)], positions(3), positions.cache_info().misses


def cached_pair(compile):
    tables = functools.cache(lambda n: (torch.ones(n), torch.zeros(n)))
    fast = compile(lambda x: x * tables(2)[0] + tables(2)[1])
    return fast(torch.ones(2)), fast(torch.ones(2)), type(tables(2)[0])


def cached_noise(compile):
    noise = functools.cache(lambda: torch.rand(3))
    fast = compile(lambda x: x + torch.rand(3) + noise())
    return [fast(torch.zeros(3)) for _ in range(2)], torch.rand(1)


def cached_log(compile):
    start()

    @functools.cache
    def logged(n):
        LOG.append(n)
        return n * 2

    fast = compile(lambda x: (LOG.append("call"), x + logged(2) + logged(3))[1])
    return [fast(torch.zeros(1)) for _ in range(2)], outside()


def cached_old_value(compile):
    """The cache keeps what was computed of the old number."""
    start()
    scaled = functools.cache(lambda n: n * (NUMBER + 1))
    fast = compile(lambda x: x + scaled(2))
    found = [fast(torch.zeros(1))]
    count_global()
    found.append(fast(torch.zeros(1)))
    scaled.cache_clear()
    return found, fast(torch.zeros(1))


def cached_by_tensor(compile):
    start()
    known = functools.cache(lambda x: (LOG.append("miss"), x * 2)[1])
    x = torch.ones(2)
    fast = compile(lambda x: known(x) + 1)
    return fast(x), fast(x), fast(torch.ones(2)), outside()


def cached_in_place(compile):
    table = functools.cache(lambda n: torch.zeros(n))
    fast = compile(lambda x: table(2).add_(x) * 1)
    return fast(torch.ones(2)), fast(torch.ones(2)), table(2)


CACHES = (
    cached_positions,
    cached_pair,
    cached_noise,
    cached_log,
    cached_old_value,
    cached_by_tensor,
    cached_in_place,
)
caches = Cases(backend="aot_eager")
for body in CACHES:
    caches(body.__name__, body)


@pytest.mark.parametrize("name", caches.names)
def test_a_cache_holds_what_eager_would_keep(name):
    caches.check(name)
