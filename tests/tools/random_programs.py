# ruff: noqa: E501  (programs are written in tables)
"""Random Python functions over tensors, each held against eager: results, side effects and exceptions.

    python tests/tools/random_programs.py --start 0 --count 20000      (says the first seeds that differ)

A seed is a program: branches (also on data), loops, containers, closures, exceptions, context managers, generators,
mutation, calls that break the graph, sizes. Each runs three times in eager and compiled, on the same fresh arguments."""

from __future__ import annotations

import argparse
import copy
import linecache
import random
import sys
import time
import warnings

import torch

import course_lib as cl

LOG: list = []
COUNT = 0


class Box:
    def __init__(self, t):
        self.t, self.n, self.items = t, 0, []

    def bump(self, k=1):
        self.n += k
        return self.n

    @property
    def double(self):
        return self.t * 2

    def __len__(self):
        return len(self.items)


class Note:
    """A context manager that writes down what happens; `swallow` hides a ValueError."""

    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, trace):
        LOG.append(("exit", self.name, kind and kind.__name__))
        return self.swallow and kind is ValueError


@cl.disable
def outside(*values):
    """Python that no graph holds."""
    LOG.append(tuple(v if isinstance(v, (int, str, bool)) else "tensor" for v in values))
    return values[0]


def helper(t, k=2, *rest, scale=1.0, **more):
    return torch.tanh(t * k * scale) + sum(rest) + len(more)


class Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.tensors, self.ints = ["x", "y"], ["n"]
        self.names = 0
        self.in_loop = 0
        self.functions: list[str] = []

    def fresh(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def pick(self, *choices):
        return self.r.choice(choices)

    def t(self, depth: int = 0) -> str:
        """A tensor expression of shape (3,)."""
        a = self.r.choice(self.tensors)
        if depth > 2 or self.r.random() < 0.25:
            return a
        b = self.t(depth + 1)
        return self.pick(
            f"torch.tanh({b})", f"({a} + {b})", f"({a} * {self.r.randint(-2, 3)})", f"({b} - {self.i()})", f"{b}.sin()",
            f"torch.where({a} > 0, {a}, {b})", f"helper({b}, {self.r.randint(1, 3)})", f"helper({b}, scale=0.5, p=1)",
            f"torch.stack([{a}, {b}])[{self.pick(0, 1, -1)}]", f"torch.cat([{a}[:1], {b}[1:]])", "box.double", f"(-{b})",
            f"({a} if {self.cond()} else {b})", f"torch.zeros({a}.shape[0]) + {b}", f"{b}.clone()", f"torch.maximum({a}, {b})",
            f"(lambda v, k={self.r.randint(1, 3)}: v * k)({b})", f"xs[{self.r.randint(-1, 1)}]", f"d.get('k{self.r.randint(0, 2)}', {b})",
        )  # fmt: skip

    def i(self) -> str:
        """An int expression."""
        a = self.r.choice(self.ints)
        return self.pick(
            a, str(self.r.randint(-2, 4)), f"({a} + {self.r.randint(1, 2)})", "len(xs)", "len(d)", "x.shape[0]", "box.n",
            f"({a} % 3)", f"min({a}, 3)", f"max(len(box), {self.r.randint(0, 2)})", f"sum(i for i in range({self.r.randint(0, 3)}))",
            f"int({a} > 1)", f"abs({a}) // 2", "len([v for v in xs if v is not x])", "x.dim()",
        )  # fmt: skip

    def cond(self, data: bool | None = None) -> str:
        data = self.r.random() < 0.12 if data is None else data
        if data:
            return f"({self.r.choice(self.tensors)}.sum() > {self.r.randint(-1, 1)})"
        return self.pick(
            f"({self.i()} > {self.r.randint(-1, 3)})", f"('k{self.r.randint(0, 2)}' in d)", "bool(xs)", f"({self.i()} == {self.i()})",
            f"(0 < {self.i()} < 4)", f"any(k > 1 for k in range({self.r.randint(0, 3)}))", f"isinstance({self.r.choice(self.tensors)}, torch.Tensor)",
            f"(not {self.r.choice(self.ints)})", "(x is y)", "(box.items and box.items[0] is x)",
        )  # fmt: skip

    def block(self, depth: int, indent: str, count: int | None = None) -> None:
        kept = list(self.tensors), list(self.ints), list(self.functions)
        for _ in range(count or self.r.randint(1, 3)):
            self.statement(depth, indent)
        self.tensors, self.ints, self.functions = kept

    def say(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)

    def statement(self, depth: int, indent: str) -> None:
        inner, kind = indent + "    ", self.r.random()
        if depth >= 3 or kind < 0.45:
            return self.simple(indent)
        if kind < 0.60:
            self.say(indent, f"if {self.cond()}:")
            self.block(depth + 1, inner)
            if self.r.random() < 0.6:
                self.say(indent, "else:")
                self.block(depth + 1, inner)
        elif kind < 0.75:
            name = self.fresh("i")
            what = self.pick(
                f"range({self.r.randint(0, 3)})",
                "list(xs)",
                "list(d.items())",
                "enumerate(xs[:2])",
                "x[:2]",
                "zip(xs, range(2))",
            )
            target = {
                "l": name if "items" not in what else f"_, {name}",
                "e": f"{name}, _",
                "r": name,
                "x": "_",
                "z": f"_, {name}",
            }[what[0]]
            self.say(indent, f"for {target} in {what}:")
            kept = list(self.ints), list(self.tensors)
            if what[0] in "rez":
                self.ints.append(name)
            elif what == "list(xs)":
                self.tensors.append(name)
            self.in_loop += 1
            self.block(depth + 1, inner)
            if self.r.random() < 0.25:
                self.say(inner, f"if {self.cond()}: {self.pick('break', 'continue')}")
            self.in_loop -= 1
            self.ints, self.tensors = kept
        elif kind < 0.83:
            self.say(indent, "try:")
            self.block(depth + 1, inner)
            if self.r.random() < 0.5:
                self.say(
                    inner,
                    f"if {self.cond()}: raise {self.pick('ValueError', 'KeyError')}({self.i()})",
                )
            self.say(
                indent,
                f"except {self.pick('ValueError', '(ValueError, KeyError)', 'Exception')} as error:",
            )
            self.say(inner, "LOG.append(type(error).__name__)")
            self.block(depth + 1, inner)
            if self.r.random() < 0.4:
                self.say(indent, "finally:")
                self.block(depth + 1, inner)
        elif kind < 0.90:
            own = "Note(1)", "Note(2, swallow=True)", "contextlib.suppress(KeyError)"
            self.say(
                indent, f"with {self.pick('torch.no_grad()', 'torch.inference_mode()', *own)}:"
            )
            self.block(depth + 1, inner)
            if self.r.random() < 0.3:
                self.say(
                    inner,
                    f"if {self.cond()}: raise {self.pick('ValueError', 'KeyError')}({self.i()})",
                )
        else:
            name, k = self.fresh("g"), self.fresh("c")
            self.say(indent, f"{k} = {self.i()}")
            self.say(indent, f"def {name}(v, w={self.r.randint(0, 2)}):")
            if self.r.random() < 0.6:
                self.say(inner, f"nonlocal {k}")
                self.say(inner, f"{k} += w + 1")
            kept = list(self.tensors), list(self.ints), self.in_loop
            self.tensors, self.ints, self.in_loop = [*self.tensors, "v"], [*self.ints, "w"], 0
            if self.r.random() < 0.4:
                self.say(inner, f"if {self.cond()}: return v")
            self.say(inner, f"return v + {k} + {self.t(1)}")
            self.tensors, self.ints, self.in_loop = kept
            self.ints.append(k)
            self.functions.append(name)

    def simple(self, indent: str) -> None:
        kind = self.r.random()
        if kind < 0.40:
            expr = self.t()
            if self.functions and self.r.random() < 0.4:
                expr = f"{self.r.choice(self.functions)}({expr}{self.pick('', ', 1', ', w=2')})"
            name = self.fresh("t")
            self.say(indent, f"{name} = {expr}")
            self.tensors.append(name)
        elif kind < 0.55:
            name = self.fresh("m")
            self.say(indent, f"{name} = {self.i()}")
            self.ints.append(name)
        elif kind < 0.62:
            own = [t for t in self.tensors if t[0] == "t"]
            if own:
                self.say(
                    indent,
                    f"{self.r.choice(own)} {self.pick('+=', '*=', '-=')} {self.pick(self.i(), self.t(2))}",
                )
            else:
                self.say(indent, "n = n + 1")
        elif kind < 0.90:
            self.say(
                indent,
                self.pick(
                    f"xs.append({self.t()})", f"xs[{self.r.randint(0, 1)}] = {self.t()}", f"d['k{self.r.randint(0, 2)}'] = {self.t()}",
                    f"box.t = {self.t()}", f"box.bump({self.i()})", f"box.items.append({self.pick('x', self.t())})", "n += 1",
                    f"LOG.append({self.i()})", f"COUNT = {self.i()}", f"xs = [v * {self.r.randint(1, 2)} for v in xs]",
                    "d = {k: v + 1 for k, v in d.items()}", "xs.insert(0, xs.pop())", f"d.pop('k{self.r.randint(0, 2)}', None)",
                    f"a, *xs = [{self.t()}, *xs]", "assert n > -100, 'never'", "box.n -= 1",
                ),
            )  # fmt: skip
        elif kind < 0.97:
            name = self.fresh("b")
            self.say(
                indent,
                self.pick(
                    f"{name} = outside({self.i()})", f"{name} = int({self.t(1)}.sum().abs().item()) % 4", "print('', end='')",
                    f"{name} = outside({self.i()}, {self.t(1)})", "cl.graph_break()", f"{name} = len({self.t(1)}.tolist())",
                ),
            )  # fmt: skip
            if self.lines[-1].strip().startswith(name):
                self.ints.append(name)
        elif self.in_loop and self.r.random() < 0.3:
            self.say(indent, f"if {self.cond()}: break")
        else:
            self.say(indent, f"if {self.cond()}: return ({self.t()}, {self.i()})")

    def source(self) -> str:
        for _ in range(self.r.randint(3, 8)):
            self.statement(0, "    ")
        returned = self.pick(
            self.t(),
            f"({self.t()}, {self.i()}, xs)",
            f"{{'a': {self.t()}, 'd': d}}",
            f"[{self.t()}, x, box.t, {self.i()}]",
        )
        head = "def f(x, y, n, xs, d, box):\n    global COUNT\n    a = x\n"
        return head + "\n".join(self.lines) + f"\n    return {returned}\n"


def make(seed: int):
    """The program of a seed, as a function and as text."""
    text = Writer(seed).source()
    filename = f"<random program {seed}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace = {**globals()}
    import contextlib

    namespace.update(contextlib=contextlib, LOG=LOG, COUNT=0, __name__=f"random_program_{seed}")
    module = type(sys)(namespace["__name__"])
    module.__dict__.update(namespace)
    sys.modules[namespace["__name__"]] = module
    exec(compile(text, filename, "exec"), module.__dict__)
    return module.f, text


def arguments(seed: int, call: int):
    g = torch.Generator().manual_seed(seed * 10 + call)
    x, y, z = (torch.randn(3, generator=g) for _ in range(3))
    return [x, y, call % 2 + 1, [x, z], {"k0": y, "k1": z}, Box(z)]


def outcome(f, args):
    LOG.clear()
    f.__globals__["COUNT"] = 0
    try:
        result = ("returned", f(*args))
    except Exception as error:
        result = ("raised", type(error).__name__, str(error))
    return result, args, list(LOG), f.__globals__["COUNT"]


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.shape == b.shape
            and (a.dtype, a.is_inference()) == (b.dtype, b.is_inference())
            and torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True)
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, Box):
        return same(vars(a), vars(b))
    return a == b


def identities(result, args):
    """Which tensors and lists in the result are those of the arguments, or each other."""
    found: list = []

    def walk(value):
        if isinstance(value, (torch.Tensor, list, dict)):
            found.append(value)
        if isinstance(value, (list, tuple)):
            [walk(v) for v in value]
        elif isinstance(value, dict):
            [walk(v) for v in value.values()]
        elif isinstance(value, Box):
            walk(vars(value))

    walk([result, args])
    first: dict[int, int] = {}
    return [first.setdefault(id(v), n) for n, v in enumerate(found)]


def differs(seed: int, backend: str = "eager") -> str:
    """'' if the program of this seed agrees with eager, else what differs."""
    f, text = make(seed)
    cl.reset()
    try:
        compiled = cl.compile(f, backend=backend)
        for call in range(3):
            args = arguments(seed, call)
            memo: dict = {}
            ours = copy.deepcopy(args, memo)
            want, got = outcome(f, args), None
            state = torch.is_grad_enabled()
            LOG.clear()
            f.__globals__["COUNT"] = 0
            try:
                result = ("returned", compiled(*ours))
            except Exception as error:
                result = ("raised", type(error).__name__, str(error))
            got = (result, ours, list(LOG), f.__globals__["COUNT"])
            if torch.is_grad_enabled() != state:
                torch.set_grad_enabled(state)
                return f"call {call}: grad mode is left changed\n{text}"
            if not same(got, want):
                return f"call {call}: {got}\n   eager: {want}\n{text}"
            if identities(got[0], ours) != identities(want[0], args):
                return f"call {call}: other objects are one: {identities(got[0], ours)} eager {identities(want[0], args)}\n{text}"
        return ""
    finally:
        sys.modules.pop(f.__globals__["__name__"], None)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--show", type=int, default=3)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    bad, start = 0, time.time()
    for seed in range(args.start, args.start + args.count):
        if said := differs(seed, args.backend):
            bad += 1
            if bad <= args.show:
                print(f"seed {seed}: {said}", flush=True)
    print(
        f"{args.count} programs from seed {args.start}: {bad} differ, {time.time() - start:.0f} s, Python {sys.version.split()[0]}"
    )
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
