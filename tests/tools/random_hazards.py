"""Random programs of what goes wrong, warns, hooks in and keeps state, each held against eager, forward and backward.

    python tests/tools/random_hazards.py --start 0 --count 2000 --backend inductor
    python tests/tools/random_hazards.py --show-program 17

`random_programs.py` writes ordinary Python: loops, containers, closures. This generator writes what it leaves out:

- operations that data make fail, inside a `try` and outside of one, with writes before and behind them;
- `assert` and `raise` that depend on data;
- custom `autograd.Function`s that read and change what lies outside of them;
- warnings, with their place;
- hooks of tensors, modules and saved tensors;
- modes (grad, autocast) around part of the program;
- operations nobody uses that have an effect (random numbers);
- zeros with a sign;
- hooks of modules: before forward, with `always_call`, of the whole backward pass;
- checkpoints, also of code with effects;
- generators that are left, closed, or thrown into, with `try` and `with` inside;
- chained exceptions: `raise ... from`, the context of an error, errors raised again;
- global variables and cells of closures that change between calls;
- numbers of NumPy, `lru_cache`, pickling of what is compiled;
- from seed 200,000,000 on: modes around the calls, another one around each.

A seed is a program. It is called four times in eager and four times compiled, with the same fresh arguments; those of
the third call make risky operations fail. Compared are: the result or the error's class, gradients, the log, warnings
(class, text, file, line), the state outside, what was written to arguments, and the state of the random numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import linecache
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import course_lib as cl

MODES_FROM = 200_000_000
"""From this seed on there are modes around the calls, another one around each."""
CALLS = 4
FAILING_CALL = 2

# What stands above each program: state, and code that reads and changes it.
PRELUDE = """
import contextlib
import copy
import functools
import pickle
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

LOG = []
FACTOR = 2.0
NUMBER = np.float32(1.5)
SETTINGS = {"scale": 2.0, "calls": 0}


class Box:
    def __init__(self, t):
        self.t, self.n, self.items = t, 0, []


class ReadsSettings(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.scale = SETTINGS["scale"]
        return t * ctx.scale

    @staticmethod
    def backward(ctx, gradient):
        LOG.append(("backward", ctx.scale))
        return gradient * ctx.scale


class CountsCalls(torch.autograd.Function):
    seen = 0

    @staticmethod
    def forward(ctx, t, k):
        CountsCalls.seen += 1
        SETTINGS["calls"] += 1
        ctx.save_for_backward(t)
        return t * k

    @staticmethod
    def backward(ctx, gradient):
        (t,) = ctx.saved_tensors
        LOG.append(("counted", len(t)))
        return gradient * 2, None


def warns(text, level=1):
    warnings.warn(text, stacklevel=level)


def doubled(gradient):
    LOG.append("hook")
    return gradient * 2


def packed(t):
    LOG.append(("pack", tuple(t.shape)))
    return t


def unpacked(t):
    LOG.append(("unpack", tuple(t.shape)))
    return t


layer = torch.nn.Linear(3, 3)
with torch.no_grad():
    layer.weight.copy_(torch.arange(9.0).reshape(3, 3) / 9)
    layer.bias.fill_(0.5)


def after_forward(module, args, result):
    LOG.append(("after", type(module).__name__))
    return result + 1


def before_forward(module, args):
    LOG.append("before")
    return (args[0] * 2,)


def after_always(module, args, result):
    LOG.append(("always", result is None))


def after_backward(module, gradients, given):
    LOG.append(("backward", [g is None for g in gradients]))


class Fragile(torch.nn.Module):
    def forward(self, t, i):
        return t[i]


fragile = Fragile()


def squared(t):
    LOG.append("squared")
    return t * t.sin()


def quietly(t):
    return t.cos() * 2


def numbers(t, n):
    try:
        for k in range(n):
            yield t * k
    finally:
        LOG.append("numbers end")


def echoes(t):
    while True:
        try:
            t = t + (yield t)
        except ValueError as error:
            LOG.append(str(error))
            t = -t


@contextlib.contextmanager
def scaled(t):
    LOG.append("enter")
    try:
        yield t * FACTOR
    except IndexError as error:
        LOG.append(("inside", type(error).__name__))
        raise KeyError("from a context") from error
    finally:
        LOG.append("leave")


@functools.lru_cache
def table(n):
    LOG.append(("table", n))
    return torch.arange(float(n)) + 1


@functools.lru_cache(maxsize=2)
def number_of(n):
    LOG.append(("number", n))
    return n * 0.5


def counter():
    count = 1.0

    def step():
        nonlocal count
        count += 1.0
        return count

    def look():
        return count

    return step, look


step, look = counter()


def change_globals():
    # what happens outside between two calls
    global FACTOR, NUMBER
    FACTOR += 0.5
    NUMBER = NUMBER + np.float32(1)
    step()


def story(error):
    # an error and what stands behind it
    told = []
    while error is not None and len(told) < 5:
        cause = error.__cause__ or error.__context__
        told.append((type(error).__name__, error.__cause__ is None, error.__suppress_context__))
        error = cause
    return told
"""

# Operations that fail for the arguments of the third call. `{a}` is a tensor of 3 numbers, the result has 3, too.
RISKY = (
    "torch.linalg.cholesky(m)[0] + {a}",
    "torch.linalg.inv(m)[0] * {a}",
    "torch.linalg.solve(m, {a})",
    "{a}[i]",
    "{a}.index_select(0, i)",
    "torch.gather({a}, 0, i)",
    "torch.take({a}, i)",
    "F.embedding(i, m).sum(1) + {a}",
    "F.nll_loss(m, i) + {a}",
    "F.cross_entropy(m, i) * {a}",
    "F.one_hot(i, 3).sum(0) + {a}",
    "{a}.scatter_add(0, i, {b})",
    "{a}.index_add(0, i, {b})",
    "{a} + torch.bincount(i, minlength=3)[:3]",
    "{a}.reshape(1 + int(i.max()) // 3, -1)[0]",
    "{a} + torch.ones(3 + int(i.max()) // 3)",
    "{a} * (6 // (2 - int(i.max())) if int(i.max()) != 3 else int('x'))",
)

# Where the sign of a zero, an infinity or a nan shows. (Not `maximum` and `minimum` of two zeros: eager's vectors take the second,
# its scalars the first.)
SIGNED = (
    "(1 / {a}.relu()).sign() + {b}",
    "torch.copysign(torch.ones(3), {a} * 0.0)",
    "torch.copysign(torch.ones(3), {a} // 2)",
    "torch.copysign(torch.ones(3), {a}.clamp(min=0.0))",
    "torch.copysign(torch.ones(3), {a}.round())",
    "torch.copysign(torch.ones(3), {a}.trunc())",
    "torch.copysign(torch.ones(3), torch.fmod({a}, 1.0))",
    "torch.atan2({a} * 0.0, -torch.ones(3))",
    "torch.copysign(torch.ones(3), F.hardtanh({a}, 0.0, 1.0))",
    "torch.copysign(torch.ones(3), {a}.abs().neg())",
)

ORDINARY = (
    "({a} + {b})",
    "({a} * 0.5 - {b})",
    "torch.tanh({a})",
    "({a} * w)",
    "layer({a})",
    "torch.where({a} > 0, {a}, {b})",
    "({a}.detach() + {b})",
)

WRITES = (
    "box.n += 1",
    "box.t = {a}",
    "box.items.append({a}.detach())",
    "LOG.append(box.n)",
    "out.add_({a}.detach())",
    "out[0] = {a}[0].detach()",
    'SETTINGS["scale"] += 0.5',
)

CONDITIONS = (
    "assert int(i.max()) < 3, 'index'",
    "assert (i < 3).all(), 'all of them'",
    "if i.max() > 2: raise ValueError('too large')",
    "if {a}.sum() > 1e6: raise KeyError('sum')",
    "torch._assert(bool((i < 3).all()), 'asserted')",
)

WARNINGS = (
    "warnings.warn('plain')",
    "warnings.warn('old', DeprecationWarning)",
    "warns('from a helper')",
    "warns('at the caller', 2)",
    "warnings.warn(f'number {box.n}', UserWarning)",
)

CONTEXTS = (
    "torch.no_grad()",
    "torch.enable_grad()",
    "torch.set_grad_enabled(box.n % 2 == 0)",
    "torch.autograd.graph.saved_tensors_hooks(packed, unpacked)",
    "contextlib.suppress(IndexError, RuntimeError)",
    "warnings.catch_warnings()",
)

NUMPY = (
    "{a} * NUMBER",
    "{a} / np.sqrt(8)",
    "{a} + np.float64(0.1) * box.n",
    "{a} * np.int64(3)",
    "{a} * float(NUMBER)",
    "{a} + int(np.prod((2, 3)))",
    "{a} * np.float32(box.n + 1)",
)

CHANGING = (
    "{a} * FACTOR",
    "{a} + look()",
    "{a} * step()",
    "{a} * (FACTOR if look() > 3 else -FACTOR)",
    "globals()['FACTOR'] * {a}",
)

CACHED = (
    "{a} + table(3)",
    "{a} * number_of(3)",
    "{a} * number_of(box.n)",
    "{a} + table(3).sum() * number_of(box.n % 3)",
)

CHECKPOINTS = (
    "checkpoint(quietly, {a}, use_reentrant=False)",
    "checkpoint(squared, {a}, use_reentrant=False)",
    "checkpoint(lambda t: torch.tanh(t) * {b}, {a}, use_reentrant=False)",
    "checkpoint(lambda t: F.dropout(t, 0.5), {a}, use_reentrant=False)",
    "checkpoint(layer, {a}, use_reentrant=False)",
)

PICKLED = (
    "pickle.loads(pickle.dumps((1, 'a', box.n)))[2] + {a}",
    "{a} * len(pickle.dumps([1, 2, 3])) * 0.1",
    "copy.deepcopy({'k': [box.n, 2]})['k'][1] * {a}",
    "copy.copy(SETTINGS)['scale'] * {a}",
)

UNUSED = ("torch.rand(2)", "F.dropout({a}, 0.5)", "torch.randperm(3)", "{a}.bernoulli(0.5)")


NEW_KINDS = "module hook, checkpoint, generator, chained, changing, numpy, cached, pickled".split(
    ", "
)
NESTED = ("tried", "context", "generator", "chained")
NEW_KINDS_FROM = 100_000_000  # Seeds from here on have them


@dataclass
class Writer:
    """Writes one program. `kinds` are the sorts of statement in it."""

    seed: int
    lines: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=lambda: ["x", "y"])
    kinds: list[str] = field(default_factory=list)
    names: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.statements: dict[str, Callable[[str], None]] = {
            "ordinary": self.ordinary,
            "risky": self.risky,
            "tried": self.tried,
            "signed": self.signed,
            "write": self.write,
            "condition": self.condition,
            "custom": self.custom,
            "warning": self.warning,
            "hook": self.hook,
            "context": self.context,
            "unused": self.unused,
            "module hook": self.module_hook,
            "checkpoint": self.checkpoint,
            "generator": self.generator,
            "chained": self.chained,
            "changing": self.changing,
            "numpy": self.numpy,
            "cached": self.cached,
            "pickled": self.pickled,
        }
        if self.seed < NEW_KINDS_FROM:
            # a seed is a program: those that were run before stay as they were
            for kind in NEW_KINDS:
                del self.statements[kind]

    def source(self) -> str:
        for _ in range(self.random.randint(3, 7)):
            self.statement("    ", depth=0)

        body = "\n".join(self.lines)
        last = f"    return {self.random.choice(self.tensors)}, {self.random.choice(self.tensors)}, box.n\n"
        return f"{PRELUDE}\n\ndef f(x, y, w, m, i, out, box):\n{body}\n{last}"

    def statement(self, indent: str, depth: int) -> None:
        names = [n for n in self.statements if depth < 2 or n not in NESTED]
        often = ("ordinary", "tried", *NEW_KINDS)
        weights = [3 if name in often else 1 for name in names]
        name = self.random.choices(names, weights)[0]

        self.kinds.append(name)
        self.depth = depth
        self.statements[name](indent)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def filled(self, templates: tuple[str, ...]) -> str:
        """One of the templates, with tensors of the program in its places."""
        chosen = self.random.choice(templates)
        a, b = self.random.choice(self.tensors), self.random.choice(self.tensors)
        return chosen.replace("{a}", a).replace("{b}", b)

    def name(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def assign(self, indent: str, value: str) -> None:
        name = self.name()
        self.say(f"{indent}{name} = {value}")
        self.tensors.append(name)

    def inside(self, indent: str) -> None:
        """A few statements one level deeper. What they name is not used behind them."""
        depth, known = self.depth + 1, list(self.tensors)
        for _ in range(self.random.randint(1, 3)):
            self.statement(indent + "    ", depth)
        self.tensors = known

    # ---- one method for each sort of statement

    def ordinary(self, indent: str) -> None:
        self.assign(indent, self.filled(ORDINARY))

    def risky(self, indent: str) -> None:
        self.assign(indent, self.filled(RISKY))

    def signed(self, indent: str) -> None:
        self.assign(indent, self.filled(SIGNED))

    def write(self, indent: str) -> None:
        self.say(indent + self.filled(WRITES))

    def condition(self, indent: str) -> None:
        self.say(indent + self.filled(CONDITIONS))

    def warning(self, indent: str) -> None:
        self.say(indent + self.filled(WARNINGS))

    def unused(self, indent: str) -> None:
        self.say(indent + self.filled(UNUSED))

    def custom(self, indent: str) -> None:
        tensor = self.random.choice(self.tensors)
        k = self.random.randint(1, 3)
        self.assign(
            indent,
            self.random.choice(
                (f"ReadsSettings.apply({tensor})", f"CountsCalls.apply({tensor}, {k})")
            ),
        )

    def hook(self, indent: str) -> None:
        tensor = self.random.choice(self.tensors)
        if self.random.random() < 0.5:
            self.say(f"{indent}if {tensor}.requires_grad: {tensor}.register_hook(doubled)")
            return

        self.say(f"{indent}handle = layer.register_forward_hook(after_forward)")
        self.assign(indent, f"layer({tensor})")
        self.say(f"{indent}handle.remove()")

    def module_hook(self, indent: str) -> None:
        """A hook that a module has while it is called once."""
        a, name = self.random.choice(self.tensors), self.name()
        kind = self.random.randint(0, 3)
        if kind == 0:
            self.say(f"{indent}handle = layer.register_forward_pre_hook(before_forward)")
            self.say(f"{indent}{name} = layer({a})")
        elif kind == 1:
            self.say(f"{indent}handle = layer.register_full_backward_hook(after_backward)")
            self.say(f"{indent}{name} = layer({a})")
        elif kind == 2:
            self.say(f"{indent}handle = layer.register_forward_hook(lambda m, a, r: None)")
            self.say(f"{indent}{name} = layer({a}) * len(layer._forward_hooks)")
        else:
            self.say(
                f"{indent}handle = fragile.register_forward_hook(after_always, always_call=True)"
            )
            self.say(f"{indent}{name} = {a}")
            self.say(f"{indent}try:")
            self.say(f"{indent}    {name} = fragile({a}, i)")
            self.say(f"{indent}except IndexError as error:")
            self.say(f"{indent}    LOG.append(story(error))")
        self.say(f"{indent}handle.remove()")
        self.tensors.append(name)

    def checkpoint(self, indent: str) -> None:
        self.assign(indent, self.filled(CHECKPOINTS))

    def changing(self, indent: str) -> None:
        self.assign(indent, self.filled(CHANGING))

    def numpy(self, indent: str) -> None:
        self.assign(indent, self.filled(NUMPY))

    def cached(self, indent: str) -> None:
        self.assign(indent, self.filled(CACHED))

    def pickled(self, indent: str) -> None:
        self.assign(indent, self.filled(PICKLED))

    def generator(self, indent: str) -> None:
        a, name = self.random.choice(self.tensors), self.name()
        kind = self.random.randint(0, 5)
        if kind == 0:
            self.say(f"{indent}{name} = sum(numbers({a}, 3))")
        elif kind == 1:  # one that is left
            self.say(f"{indent}g{name} = numbers({a}, 4)")
            self.say(f"{indent}{name} = next(g{name}) + next(g{name})")
        elif kind == 2:
            self.say(f"{indent}g{name} = echoes({a})")
            self.say(f"{indent}next(g{name})")
            self.say(
                f"{indent}{name} = g{name}.send({a} * 2) + g{name}.throw(ValueError('thrown'))"
            )
            self.say(f"{indent}g{name}.close()")
        elif kind == 3:
            self.say(f"{indent}{name} = {a}")
            self.say(f"{indent}for each in numbers({a}, 4):")
            self.say(f"{indent}    {name} = {name} + each")
            self.say(f"{indent}    {self.filled(WRITES)}")
            self.say(f"{indent}    if box.n > 1: break")
        elif kind == 4:
            self.say(f"{indent}with scaled({a}) as {name}:")
            self.inside(indent)
        else:
            self.say(f"{indent}{name} = {a}")
            self.say(f"{indent}with contextlib.suppress(KeyError):")
            self.say(f"{indent}    with scaled({a}) as {name}:")
            self.say(f"{indent}        {name} = {self.filled(RISKY)}")
        self.tensors.append(name)

    def chained(self, indent: str) -> None:
        """Errors behind errors."""
        name = self.name()
        self.say(f"{indent}{name} = {self.random.choice(self.tensors)}")
        self.say(f"{indent}try:")
        self.say(f"{indent}    try:")
        self.say(f"{indent}        {name} = {self.filled(RISKY)}")
        if self.random.random() < 0.5:
            self.say(f"{indent}        {self.filled(CONDITIONS)}")
        if self.random.random() < 0.3:
            self.say(f"{indent}        raise LookupError('always')")
        self.say(f"{indent}    except (RuntimeError, LookupError, ValueError) as error:")
        if self.random.random() < 0.5:
            self.say(f"{indent}        {self.filled(WRITES)}")
        again = (
            "raise ArithmeticError('again') from error",
            "raise ArithmeticError('again')",
            "raise",
            "raise ArithmeticError('again') from None",
            "raise error",
            "raise KeyError(str(type(error))) from ValueError('cause')",
        )
        self.say(f"{indent}        {self.random.choice(again)}")
        if self.random.random() < 0.3:
            self.say(f"{indent}    else:")
            self.say(f"{indent}        LOG.append('else')")
        if self.random.random() < 0.3:
            self.say(f"{indent}    finally:")
            self.say(f"{indent}        LOG.append('inner finally')")
        self.say(f"{indent}except Exception as error:")
        self.say(f"{indent}    LOG.append(story(error))")
        self.tensors.append(name)

    def context(self, indent: str) -> None:
        self.say(f"{indent}with {self.random.choice(CONTEXTS)}:")
        self.inside(indent)

    def tried(self, indent: str) -> None:
        """`try` around a risky operation, with a write before it and one behind it."""
        name = self.name()
        self.say(f"{indent}{name} = {self.random.choice(self.tensors)}")
        self.say(f"{indent}try:")
        if self.random.random() < 0.5:
            self.say(f"{indent}    {self.filled(WRITES)}")
        self.say(f"{indent}    {name} = {self.filled(RISKY)}")
        if self.random.random() < 0.5:
            self.say(f"{indent}    {self.filled(WRITES)}")
        if self.random.random() < 0.3:
            self.inside(indent)

        caught = self.random.choice(("Exception", "(RuntimeError, IndexError)", "RuntimeError"))
        self.say(f"{indent}except {caught} as error:")
        self.say(f"{indent}    LOG.append(type(error).__name__)")
        if self.random.random() < 0.3:
            self.say(f"{indent}finally:")
            self.say(f"{indent}    LOG.append('finally')")
        self.tensors.append(name)


@dataclass(frozen=True)
class Arguments:
    """What one call is given."""

    x: torch.Tensor
    y: torch.Tensor
    w: torch.Tensor
    m: torch.Tensor
    i: torch.Tensor
    out: torch.Tensor
    box: Any

    def __iter__(self):
        return iter((self.x, self.y, self.w, self.m, self.i, self.out, self.box))


def arguments(seed: int, call: int, module: ModuleType) -> Arguments:
    """Fresh arguments. Those of the failing call have an index out of range and a singular matrix."""
    numbers = torch.Generator().manual_seed(seed * 10 + call)
    x, y, w = (torch.randn(3, generator=numbers) for _ in range(3))
    x[call % 3] = -0.0

    half = torch.randn(3, 3, generator=numbers)
    m = half @ half.T + torch.eye(3)
    i = torch.tensor([2, 0, 1])
    if call == FAILING_CALL:
        m, i = torch.zeros(3, 3), torch.tensor([0, 3, 1])

    wants_gradients = seed % 3 > 0
    return Arguments(
        x.requires_grad_(wants_gradients),
        y,
        w.requires_grad_(wants_gradients),
        m,
        i,
        torch.zeros(3),
        module.Box(y * 2),
    )


def make(seed: int, copy: int) -> tuple[ModuleType, Writer]:
    """The program of a seed as a module of its own, so that eager and compiled code share no state.

    Both copies have the same file name and lines: the place of a warning is compared.
    """
    writer = Writer(seed)
    text = writer.source()
    filename = f"<random hazard {seed}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)

    module = ModuleType(f"random_hazard_{seed}_{copy}")
    sys.modules[module.__name__] = module
    exec(compile(text, filename, "exec"), module.__dict__)
    return module, writer


class Functions(TorchFunctionMode):
    """Counts torch's functions."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(getattr(function, "__name__", "?"))
        return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """Sees torch's operators."""

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        return operator(*args, **(kwargs or {}))


@contextlib.contextmanager
def in_doubles() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def around(seed: int, call: int, seen: list[Any]) -> contextlib.AbstractContextManager[Any]:
    """The mode around one call. Two calls of a program often have the same one."""
    makers: list[Callable[[], Any]] = [
        contextlib.nullcontext,
        torch.no_grad,
        torch.enable_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone),
        lambda: Functions(seen),
        Operators,
        in_doubles,
        deterministic,
        lambda: torch.device("cpu"),
    ]
    chosen = random.Random(seed).sample(makers, 2)
    return chosen[call % 2 if seed % 2 else call // 2]()


def outcome(module: ModuleType, function: Callable[..., Any], seed: int, call: int) -> list[Any]:
    """Everything that one call shows."""
    given = arguments(seed, call, module)
    if seed >= NEW_KINDS_FROM:
        # an error and its traceback may hold each other and a generator: what ends late, ends here
        gc.collect()
    module.LOG.clear()
    torch.manual_seed(seed + call)
    grad_mode = torch.is_grad_enabled()
    seen: list[Any] = []
    mode = around(seed, call, seen) if seed >= MODES_FROM else contextlib.nullcontext()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with mode:
                result = ["returned", *function(*given)]
        except Exception as error:
            result = ["raised", type(error).__name__]
        gradients = differentiated(result, given)

    told = [(w.category.__name__, str(w.message), w.filename, w.lineno) for w in caught]
    mode_kept = torch.is_grad_enabled() == grad_mode
    torch.set_grad_enabled(grad_mode)

    return [
        result,
        gradients,
        [*module.LOG, *seen],
        told,
        dict(module.SETTINGS),
        module.CountsCalls.seen,
        [given.out, given.box.n, given.box.t, list(given.box.items)],
        [bool(getattr(value, "requires_grad", False)) for value in result],
        torch.random.get_rng_state(),
        mode_kept,
    ]


PARTS = (
    "result",
    "gradients",
    "log",
    "warnings",
    "settings",
    "calls of the custom function",
    "what was written",
    "requires_grad",
    "random state",
    "grad mode",
)


def differentiated(result: list[Any], given: Arguments) -> list[Any]:
    """The gradients after a backward pass from all results that have one, or the error's class."""
    ends = [v for v in result if isinstance(v, torch.Tensor) and v.requires_grad]
    if not ends:
        return []
    try:
        sum(v.double().nan_to_num(0.0, 0.0, 0.0).sum() for v in ends).backward()
    except Exception as error:
        return [type(error).__name__]
    return [given.x.grad, given.w.grad]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def differs(seed: int, backend: str = "inductor") -> str:
    """'' if the program of this seed agrees with eager, else which part differs, and the program."""
    eager, writer = make(seed, 0)
    ours, _ = make(seed, 1)
    cl.reset()

    try:
        # eager's random numbers: the state of the generator is compared
        options = {"fallback_random": True} if backend == "inductor" else None
        compiled = cl.compile(ours.f, backend=backend, options=options)
        for call in range(CALLS):
            want = outcome(eager, eager.f, seed, call)
            got = outcome(ours, compiled, seed, call)
            for module in (eager, ours):
                if call > 0:
                    module.change_globals()

            for part, w, g in zip(PARTS, want, got, strict=True):
                if not same(w, g):
                    shown = f"call {call}: {part}\n    eager: {w}\n    ours:  {g}"
                    program = "\n".join(writer.lines)
                    return f"{shown}\n  kinds: {', '.join(sorted(set(writer.kinds)))}\n{program}"
        return ""
    finally:
        for module in (eager, ours):
            sys.modules.pop(module.__name__, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--show", type=int, default=3, help="how many that differ are shown")
    parser.add_argument("--show-program", type=int, metavar="SEED")
    args = parser.parse_args()

    if args.show_program is not None:
        print(Writer(args.show_program).source())
        return 0

    bad, started = [], time.time()
    for seed in range(args.start, args.start + args.count):
        if said := differs(seed, args.backend):
            bad.append(seed)
            if len(bad) <= args.show:
                print(f"seed {seed}: {said}\n", flush=True)

    took = time.time() - started
    print(f"{args.count} programs from seed {args.start}: {len(bad)} differ, {took:.0f} s")
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, backend {args.backend}")
    if bad:
        print("seeds:", *bad)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
