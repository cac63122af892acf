"""Random kernels: dtypes, masks, loops, reductions, scans, products, atomics, odd sizes.

Out: `random_program(seed)`, the same kernel on every machine; `planted(seed)`, one with a fault in it.

What a float goes through is kept so that rounding stays rounding: a number that was rounded is not compared, not cast to an integer
and not subtracted from one like it.
"""

# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from small_kernels import Input, Program

FLOATS = ["float32", "float16", "bfloat16"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
TYPES = [*FLOATS, *FLOATS, *INTEGERS]
WIDTH = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8}


@dataclass
class Variable:
    """A block: its dtype, and whether it holds exactly what it holds on every machine."""

    name: str
    dtype: str
    exact: bool = True
    # Largest size that it may have, so that float16 does not overflow and sums stay exact
    size: float = 8.0

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS


@dataclass
class Maker:
    """Writes a kernel line by line."""

    rng: Random
    lines: list[str] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    count: int = 0

    def new(self, expression: str, dtype: str, exact: bool = True, size: float = 8.0) -> Variable:
        self.count += 1
        variable = Variable(f"v{self.count}", dtype, exact, size)
        self.lines.append(f"{variable.name} = {expression}")
        self.variables.append(variable)
        return variable

    def pick(self, *wanted: str, exact: bool = False) -> Variable | None:
        found = [
            v
            for v in self.variables
            if (not wanted or v.dtype in wanted) and (v.exact or not exact)
        ]
        return self.rng.choice(found) if found else None

    def step(self) -> None:
        self.rng.choice(STEPS)(self)


def integer_arithmetic(make: Maker) -> None:
    x = make.pick(*INTEGERS)
    if x is None:
        return
    y = make.pick(x.dtype)
    sign = make.rng.choice("+ - * & | ^".split())
    other = make.rng.choice([y.name, str(make.rng.randrange(1, 60))])
    make.new(f"{x.name} {sign} {other}", x.dtype)


def division(make: Maker) -> None:
    x = make.pick(*INTEGERS)
    if x is None:
        return
    by = make.rng.choice([str(make.rng.randrange(2, 9)), f"({make.pick(x.dtype).name} | 1)"])
    make.new(f"{x.name} {make.rng.choice(['//', '%'])} {by}", x.dtype)


def shift(make: Maker) -> None:
    x = make.pick(*INTEGERS)
    if x is not None:
        make.new(f"{x.name} {make.rng.choice(['<<', '>>'])} {make.rng.randrange(1, 7)}", x.dtype)


def float_arithmetic(make: Maker) -> None:
    x = make.pick(*FLOATS)
    if x is None:
        return
    y = make.pick(x.dtype)
    sign = make.rng.choice("+ - *".split())
    size = x.size * y.size if sign == "*" else x.size + y.size
    if size > 3000 or (sign == "-" and not (x.exact and y.exact)):
        return
    # Multiples of an eighth stay exact in float32 for a while; the short dtypes round
    exact = x.exact and y.exact and x.dtype == "float32" and size < 1000
    make.new(f"{x.name} {sign} {y.name}", x.dtype, exact, size)


def contraction(make: Maker) -> None:
    x = make.pick(*FLOATS, exact=True)
    if x is None or x.size > 30:
        return
    make.new(
        f"{x.name} * {make.rng.choice(['0.5', '1.25', '3.0'])} + {x.name}",
        x.dtype,
        x.dtype == "float32" and x.size < 10,
        x.size * 5,
    )


def inexact(make: Maker) -> None:
    x = make.pick(*FLOATS)
    if x is None:
        return
    value = f"{x.name}.to(tl.float32)"
    text = make.rng.choice(
        [
            "tl.exp(-tl.abs({}) * 0.25)",
            "tl.sqrt(tl.abs({}))",
            "tl.sigmoid({})",
            "tl.log(tl.abs({}) + 1.0)",
            "{} / 3.0",
            "tl.sin({} * 0.1)",
        ]
    )
    make.new(text.format(value), "float32", False, max(2.0, x.size))


def cast(make: Maker) -> None:
    x = make.pick(exact=True)
    if x is None:
        return
    if x.floating:
        dtype = make.rng.choice([*FLOATS, "int32", "int64"])
        make.new(f"{x.name}.to(tl.{dtype})", dtype, dtype in INTEGERS or dtype == "float32", x.size)
    else:
        dtype = make.rng.choice([*INTEGERS, "float32"])
        if dtype == "float32":
            make.new(f"({x.name} & 7).to(tl.float32)", dtype, True, 8.0)
        else:
            make.new(f"{x.name}.to(tl.{dtype})", dtype)


def choice(make: Maker) -> None:
    x = make.pick(exact=True)
    if x is None:
        return
    y = make.pick(x.dtype, exact=True)
    a = make.pick()
    b = make.pick(a.dtype)
    sign = make.rng.choice("< <= == != > >=".split())
    make.new(
        f"tl.where({x.name} {sign} {y.name}, {a.name}, {b.name})",
        a.dtype,
        a.exact and b.exact,
        max(a.size, b.size),
    )


def extremes(make: Maker) -> None:
    x = make.pick()
    y = make.pick(x.dtype)
    make.new(
        f"tl.{make.rng.choice(['maximum', 'minimum'])}({x.name}, {y.name})",
        x.dtype,
        x.exact and y.exact,
        max(x.size, y.size),
    )


def loop(make: Maker) -> None:
    x = make.pick("int32", "int64")
    start, end, step = make.rng.choice([(0, 3, 1), (-4, 4, 2), (3, -3, -1)])
    variable = f"j{make.count}"
    if x is None:
        return
    total = make.new(f"{x.name} + 0", x.dtype)
    body = make.rng.choice(
        [
            f"{total.name} * 3 + {variable} // 2",
            f"{total.name} + {variable} % 3 * 7",
            f"({total.name} ^ {variable}) + n",
        ]
    )
    make.lines += [
        f"for {variable} in range({start}, {end}, {step}):",
        f"    {total.name} = {body}",
    ]


def float_loop(make: Maker) -> None:
    x = make.pick("float32", exact=True)
    if x is None or x.size > 20:
        return
    total = make.new(f"{x.name} * 0.0", "float32", True, x.size * 12)
    make.lines += [
        f"for j{make.count} in range(0, 4):",
        f"    {total.name} += {x.name} * j{make.count}",
    ]


def reduction(make: Maker) -> None:
    x = make.pick()
    function = make.rng.choice(["sum", "max", "min"])
    if x.dtype == "bool" or (function == "sum" and (not x.exact or x.size > 60)):
        return
    dtype = x.dtype if x.floating or x.dtype == "int64" else "int32"
    if function != "sum" and x.dtype == "bfloat16":
        dtype = "float32"
    if function == "sum" and x.dtype in ("float16", "bfloat16"):
        return
    if x.dtype == "uint8":
        return
    make.new(
        f"tl.{function}({x.name}, axis=0) + tl.zeros((N,), tl.{dtype})",
        dtype,
        x.exact,
        x.size * 64 if function == "sum" else x.size,
    )


def scan(make: Maker) -> None:
    x = make.pick("int32", "int64", "float32", exact=True)
    if x is None or (x.floating and x.size > 15):
        return
    reverse = make.rng.choice(["", ", reverse=True"])
    make.new(f"tl.cumsum({x.name}, axis=0{reverse})", x.dtype, x.exact, x.size * 64)


def place_of_the_largest(make: Maker) -> None:
    x = make.pick("int32", "float32", exact=True)
    if x is not None:
        make.new(
            f"tl.arg{make.rng.choice(['max', 'min'])}({x.name}, axis=0) + tl.zeros((N,), tl.int32)",
            "int32",
        )


def matrix(make: Maker) -> None:
    x = make.pick("int32", "float32", exact=True)
    if x is not None and (not x.floating or x.size < 60):
        make.new(
            f"tl.reshape(tl.trans(tl.reshape({x.name}, (N // 8, 8))), (N,))",
            x.dtype,
            x.exact,
            x.size,
        )


STEPS = [
    integer_arithmetic, integer_arithmetic, division, shift, float_arithmetic, float_arithmetic, contraction, inexact, cast, cast, choice,
    choice, extremes, loop, float_loop, reduction, scan, place_of_the_largest, matrix,
]  # fmt: skip


def random_program(seed: int) -> Program:
    """One of four kinds: blocks with masks (most), a product, atomics, rows of a matrix."""
    rng = Random(seed)
    kind = rng.choices(["blocks", "product", "atomics", "rows"], [8, 1, 1, 2])[0]
    return {"blocks": blocks, "product": product, "atomics": atomics, "rows": rows}[kind](seed, rng)


def blocks(seed: int, rng: Random) -> Program:
    lanes = rng.choice([16, 32, 64])
    programs = rng.randrange(1, 4)
    n = rng.randrange(max(1, lanes * (programs - 1) + 1), lanes * programs + 1)
    make = Maker(rng)
    make.lines = ["i = tl.program_id(0) * N + tl.arange(0, N)", "mask = i < n"]
    inputs = {}
    for name in ("X", "Y", "Z")[: rng.randrange(1, 4)]:
        dtype = rng.choice(TYPES)
        inputs[name] = Input(dtype, n, "nice" if dtype in FLOATS else "any")
        other = rng.choice(["0", "1", "3"])
        make.new(f"tl.load({name} + i, mask=mask, other={other})", dtype)
    for _ in range(rng.randrange(2, 9)):
        make.step()
    result = make.variables[-1] if rng.random() < 0.7 else make.pick()
    make.lines.append(f"tl.store(O + i, {result.name}, mask=mask)")
    return Program(
        f"random {seed}", "\n".join(make.lines), inputs, Input(result.dtype, n, "zeros"), lanes, n, (programs,),
        ulps=0.0 if result.exact else 40.0, seed=seed,
    )  # fmt: skip


def product(seed: int, rng: Random) -> Program:
    m, n, k = (rng.choice([16, 32]) for _ in range(3))
    dtype = rng.choice(["float16", "bfloat16", "float32"])
    precision = f", input_precision='{rng.choice(['tf32', 'ieee'])}'" if dtype == "float32" else ""
    body = f"""
a = tl.load(X + tl.arange(0, {m})[:, None] * {k} + tl.arange(0, {k})[None, :])
b = tl.load(Y + tl.arange(0, {k})[:, None] * {n} + tl.arange(0, {n})[None, :])
c = tl.dot(a, b{precision}) {rng.choice(["", "+ 1.5", "* 2"])}
tl.store(O + tl.arange(0, {m})[:, None] * {n} + tl.arange(0, {n})[None, :], c)
"""
    inputs = {"X": Input(dtype, m * k, "nice"), "Y": Input(dtype, k * n, "nice")}
    return Program(
        f"random {seed}", body, inputs, Input("float32", m * n, "zeros"), n, ulps=500.0, seed=seed
    )


def atomics(seed: int, rng: Random) -> Program:
    dtype = rng.choice(["int32", "int64", "float32"])
    bins = rng.choice([1, 5, 8, 13])
    function = rng.choice(
        ["add", "max", "min"] if dtype == "float32" else ["add", "max", "min", "and", "or", "xor"]
    )
    lanes, programs = 32, rng.randrange(1, 4)
    n = rng.randrange(lanes * (programs - 1) + 1, lanes * programs + 1)
    body = f"""
i = tl.program_id(0) * N + tl.arange(0, N)
x = tl.load(X + i, mask=i < n, other=0)
tl.atomic_{function}(O + i % {bins}, x * {rng.randrange(1, 5)}, mask=i < n)
"""
    inputs = {"X": Input(dtype, n, "nice" if dtype == "float32" else "normal")}
    return Program(
        f"random {seed}",
        body,
        inputs,
        Input(dtype, bins, "zeros"),
        lanes,
        n,
        (programs,),
        seed=seed,
    )


def rows(seed: int, rng: Random) -> Program:
    height, width = rng.randrange(1, 9), rng.randrange(3, 17)
    dtype = rng.choice(["float32", "float16", "int32", "bfloat16"])
    function = rng.choice(["sum", "max", "softmax"] if dtype == "float32" else ["sum", "max"])
    result = {
        "sum": "tl.sum(x.to(tl.float32), axis=1, keep_dims=True)", "max": "x - tl.max(x, axis=1, keep_dims=True)",
        "softmax": "tl.exp(x - tl.max(x, axis=1, keep_dims=True)) / tl.sum(tl.exp(x - tl.max(x, axis=1, keep_dims=True)), axis=1, keep_dims=True)",
    }[function]  # fmt: skip
    body = f"""
r = (tl.program_id(0) * 4 + tl.arange(0, 4))[:, None]
c = tl.arange(0, N)[None, :]
mask = (r < n) & (c < {width})
x = tl.load(X + r * {width} + c, mask=mask, other={"0" if function == "sum" else "-30000" if dtype != "bfloat16" else "-1024"})
tl.store(O + r * {width} + c, {result} + tl.zeros((4, N), tl.float32), mask=mask)
"""
    inputs = {"X": Input(dtype, height * width, "nice" if dtype in FLOATS else "normal")}
    return Program(
        f"random {seed}", body, inputs, Input("float32", height * width, "zeros"), 16, height, (-(-height // 4),),
        ulps=16.0 if function == "softmax" else 0.0, seed=seed,
    )  # fmt: skip


def planted(seed: int) -> tuple[Program, str]:
    """A random kernel of blocks with one fault: the kernel, and a word of the sentence that must be found."""
    rng = Random(seed)
    program = blocks(seed, Random(seed * 7 + 1))
    fault = rng.choice(
        [
            "race",
            "write outside",
            "read outside",
            "no value",
            "behind the loop",
            "lanes race",
            "offset",
        ]
    )
    lines = program.body.splitlines()
    last = lines[-1]
    programs, n, lanes = program.grid[0], program.n, program.lanes
    # One element of room behind the end, so that the fault harms nobody: the tensor is a view of it
    if fault == "write outside":
        n = n - 1 if n % lanes == 0 else n
        program = resized(program, n)
        programs = program.grid[0]
        lines[-1] = last.replace("mask=mask", "mask=i <= n")
        word = "writes O["
    elif fault == "read outside":
        lines.insert(2, "w0 = tl.load(X + i + 1, mask=mask, other=0)")
        word = "reads X["
    elif fault == "race":
        lines.append(
            "tl.store(O + n - 1, tl.program_id(0).to(tl.int32))"
            if rng.random() < 0.5
            else "tl.store(O, tl.load(O) + 1)"
        )
        programs = max(programs, 2)
        word = "a race at O["
    elif fault == "lanes race":
        lines.append("tl.store(O + tl.arange(0, N) * 0, tl.arange(0, N))")
        word = "a race at O["
    elif fault == "no value":
        n = n - 1 if n % lanes == 0 else n
        program = resized(program, max(n, 1))
        programs = program.grid[0]
        lines += [
            "w1 = tl.load(X + i, mask=mask)",
            f"tl.store(O + n - 1, tl.sum(w1.to(tl.int32), axis=0), mask=tl.program_id(0) == {programs - 1})",
        ]
        word = "without a value"
    elif fault == "behind the loop":
        lines += ["for j9 in range(0, 3):", "    w2 = j9", "tl.store(O, j9)"]
        word = "behind its loop"
    else:
        lines += ["w3 = (i + 70000) * 40000", "w4 = tl.load(X + w3, mask=mask, other=0)"]
        word = "beyond int32"
    return replace(
        program, name=f"planted {fault} {seed}", body="\n".join(lines), grid=(programs,)
    ), word


def resized(program: Program, n: int) -> Program:
    """The same kernel for n elements."""
    n = max(n, 1)
    inputs = {name: replace(given, size=n) for name, given in program.inputs.items()}
    return replace(
        program,
        inputs=inputs,
        output=replace(program.output, size=n),
        n=n,
        grid=(-(-n // program.lanes),),
    )
