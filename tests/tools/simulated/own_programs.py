"""Kernels of our own, one question each: an operation, a dtype, and values where they matter.

Out: `PROGRAMS`, some 400; each was run on an H200 (`recorded_own.npz`).
"""

# ruff: noqa: E501

from __future__ import annotations

from small_kernels import Input, Program

N = 64
LOAD = "i = tl.arange(0, N)\nx = tl.load(X + i)\n"
LOAD2 = LOAD + "y = tl.load(Y + i)\n"
FLOATS = ["float32", "float16", "bfloat16"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint32"]

PROGRAMS: list[Program] = []


def add(name, body, inputs, output, **more):
    size = more.pop("size", N)
    PROGRAMS.append(Program(name, body, inputs, Input(output, size, "zeros"), N, **more))


def of_one(name, expression, dtype, output, kind="normal", **more):
    add(name, LOAD + f"tl.store(O + i, {expression})", {"X": Input(dtype, N, kind)}, output, **more)


def of_two(name, expression, dtype, output, kinds=("normal", "normal"), **more):
    inputs = {"X": Input(dtype, N, kinds[0]), "Y": Input(dtype, N, kinds[1])}
    add(name, LOAD2 + f"tl.store(O + i, {expression})", inputs, output, **more)


# Functions of one float ------------------------------------------------------------------------------------------------
for function, ulps in {
    "exp": 8, "exp2": 4, "log": 4, "log2": 4, "sin": 8, "cos": 8, "sqrt": 2, "rsqrt": 3, "erf": 4, "sigmoid": 8, "sqrt_rn": 0,
    "floor": 0, "ceil": 0, "abs": 0,
}.items():  # fmt: skip
    kind = "positive" if function in ("log", "log2", "sqrt", "rsqrt", "sqrt_rn") else "normal"
    of_one(f"{function} of float32", f"tl.{function}(x)", "float32", "float32", kind, ulps=ulps)
    of_one(
        f"{function} of special float32",
        f"tl.{function}(x)",
        "float32",
        "float32",
        "special",
        ulps=ulps,
    )
for dtype in ("float16", "bfloat16"):
    of_one(f"abs of {dtype}", "tl.abs(x)", dtype, dtype, "special")
    of_one(f"minus {dtype}", "-x", dtype, dtype, "special")
    of_one(f"exp of {dtype} by float32", "tl.exp(x.to(tl.float32))", dtype, dtype, "normal", ulps=1)
of_one("minus float32", "-x", "float32", "float32", "special")
of_one("softmax", "tl.softmax(x)", "float32", "float32", ulps=16)

# Two floats ------------------------------------------------------------------------------------------------------------
for dtype in [*FLOATS, "float64"]:
    for sign, word in {"+": "plus", "-": "less", "*": "times"}.items():
        of_two(f"{dtype} {word}", f"x {sign} y", dtype, dtype)
        of_two(f"special {dtype} {word}", f"x {sign} y", dtype, dtype, ("special", "special"))
    of_two(
        f"{dtype} by",
        "x / y",
        dtype,
        "float64" if dtype == "float64" else "float32",
        ulps=0 if dtype == "float64" else 3,
    )
    of_two(f"{dtype} times plus", "x * y + x", dtype, dtype)
    of_two(f"{dtype} less times", "x - x * y", dtype, dtype)
    for function in ("maximum", "minimum"):
        of_two(
            f"{function} of {dtype}", f"tl.{function}(x, y)", dtype, dtype, ("special", "special")
        )
        of_two(
            f"{function} of {dtype} with NaN",
            f"tl.{function}(x, y, propagate_nan=tl.PropagateNan.ALL)",
            dtype,
            dtype,
            ("special", "special"),
        )
    for sign, word in {
        "<": "below",
        "<=": "at most",
        "==": "equals",
        "!=": "is not",
        ">": "above",
        ">=": "at least",
    }.items():
        of_two(
            f"{dtype} {word}", f"(x {sign} y).to(tl.int32)", dtype, "int32", ("special", "special")
        )
    of_two(f"where of {dtype}", "tl.where(x > y, x, y)", dtype, dtype, ("special", "special"))
    of_one(f"{dtype} times a literal", "x * 0.1", dtype, dtype)
    of_one(f"{dtype} plus an integer", "x + 3", dtype, dtype)
of_two("fma", "tl.fma(x, y, x)", "float32", "float32")
of_two("two products", "x * x + y * y", "float32", "float32", ulps=2)
of_two("no fusion", "x * y + x", "float32", "float32", options={"enable_fp_fusion": False})
of_two("float32 remainder", "x % y", "float32", "float32", ulps=4)
of_two("div_rn", "tl.div_rn(x, y)", "float32", "float32", ("special", "special"))
of_two("fdiv", "tl.fdiv(x, y)", "float32", "float32", ulps=3)
for low, high in (("-1.0", "1.0"), ("-1.0", "2.0"), ("0.0", "0.5")):
    of_one(f"clamp {low} {high}", f"tl.clamp(x, {low}, {high})", "float32", "float32", "special")
    of_one(
        f"clamp {low} {high} with NaN",
        f"tl.clamp(x, {low}, {high}, propagate_nan=tl.PropagateNan.ALL)",
        "float32",
        "float32",
        "special",
    )
of_two("mixed float16 and float32", "x.to(tl.float16) * y", "float32", "float32")
of_two("mixed bfloat16 and float32", "x.to(tl.bfloat16) + y", "float32", "float32")
of_two(
    "mixed bfloat16 and float16",
    "x.to(tl.bfloat16) * y.to(tl.float16)",
    "float32",
    "float32",
    ulps=0,
)

# Two integers ----------------------------------------------------------------------------------------------------------
for dtype in INTEGERS:
    for sign, word in {
        "+": "plus",
        "-": "less",
        "*": "times",
        "&": "and",
        "|": "or",
        "^": "xor",
    }.items():
        of_two(f"{dtype} {word}", f"x {sign} y", dtype, dtype, ("any", "any"))
    of_two(f"{dtype} // ", "x // tl.where(y == 0, 1, y)", dtype, dtype, ("normal", "whole"))
    of_two(f"{dtype} % ", "x % tl.where(y == 0, 1, y)", dtype, dtype, ("normal", "whole"))
    of_two(f"{dtype} maximum", "tl.maximum(x, y)", dtype, dtype, ("any", "any"))
    of_two(f"{dtype} minimum", "tl.minimum(x, y)", dtype, dtype, ("any", "any"))
    of_two(f"{dtype} below", "(x < y).to(tl.int32)", dtype, "int32", ("any", "any"))
    of_one(f"{dtype} shifted left", "x << 3", dtype, dtype, "any")
    of_one(f"{dtype} shifted right", "x >> 2", dtype, dtype, "any")
    of_one(f"not {dtype}", "~x", dtype, dtype, "any")
    of_two(
        f"{dtype} /", "x / tl.where(y == 0, 1, y)", dtype, "float32", ("normal", "whole"), ulps=3
    )
of_two("int8 and int32", "x.to(tl.int8) * y", "int32", "int32", ("any", "any"))
of_two("uint8 and int8", "x + y.to(tl.int8)", "uint8", "int32", ("any", "any"))
of_two("int32 and uint32", "x.to(tl.uint32) < y", "int32", "int32", ("any", "any"))
of_two("cdiv", "tl.cdiv(x, tl.where(y == 0, 1, y))", "int32", "int32", ("normal", "whole"))
of_two("umulhi", "tl.umulhi(x, y)", "uint32", "uint32", ("any", "any"))
of_two("bools plus", "((x > 0) + (y > 0)).to(tl.int32)", "int32", "int32")
of_two("bools times", "((x > 0) * (y > 0)).to(tl.int32)", "int32", "int32")
of_two("bools below", "((x > 0) < (y > 0)).to(tl.int32)", "int32", "int32")

# Casts -----------------------------------------------------------------------------------------------------------------
for old in ("float32", "float16", "bfloat16", "float64"):
    for new in (
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint32",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "float8e4nv",
        "float8e5",
    ):
        if new.startswith("float8") and old in ("float64",):
            continue
        kind = "normal" if new in ("uint8", "int16") else "special"
        kind = "positive" if new == "uint8" else kind
        of_one(f"{old} to {new}", f"x.to(tl.{new})", old, new, kind)
for old in ("int8", "int32", "int64", "uint8", "uint32"):
    for new in ("int8", "int16", "int64", "float16", "bfloat16", "float32", "float64"):
        of_one(
            f"{old} to {new}", f"x.to(tl.{new})", old, new, "any" if new != "float16" else "normal"
        )
for old in ("float8e4nv", "float8e5"):
    for new in ("float32", "float16", "bfloat16"):
        of_one(f"{old} to {new}", f"x.to(tl.{new})", old, new, "any")
of_one("float32 to int1", "x.to(tl.int1).to(tl.int32)", "float32", "int32", "special")
of_one("bits of float32", "x.to(tl.int32, bitcast=True)", "float32", "int32", "special")
of_one(
    "float32 to bfloat16 toward zero",
    "x.to(tl.bfloat16, fp_downcast_rounding='rtz')",
    "float32",
    "bfloat16",
)
of_one(
    "float32 to float16 toward zero",
    "x.to(tl.float16, fp_downcast_rounding='rtz')",
    "float32",
    "float16",
)
of_one("float32 stored as bfloat16", "x", "float32", "bfloat16", "special")
of_one("float32 stored as int32", "x", "float32", "int32")

# Reductions and scans --------------------------------------------------------------------------------------------------
for dtype in [*FLOATS, *INTEGERS]:
    floating = dtype in FLOATS
    wide = dtype if floating else "int64"
    for function in ("sum", "max", "min"):
        kind = "special" if floating and function != "sum" else "nice" if floating else "any"
        body = LOAD + f"tl.store(O, tl.{function}(x, axis=0).to(tl.{wide}))"
        add(
            f"{function} of {dtype}",
            body,
            {"X": Input(dtype, N, kind)},
            wide,
            size=1,
            ulps=4 if floating and function == "sum" else 0,
        )
    for function in ("argmax", "argmin"):
        body = LOAD + f"tl.store(O, tl.{function}(x, axis=0))"
        add(f"{function} of {dtype}", body, {"X": Input(dtype, N, "whole")}, "int32", size=1)
    for function in ("cumsum", "cumprod"):
        kind = "nice" if function == "cumsum" else "whole"
        kind = kind if floating else "any"
        for reverse in (False, True):
            word = " backwards" if reverse else ""
            body = (
                LOAD
                + f"tl.store(O + i, tl.{function}({'tl.where(i < 6, x, 1.0)' if floating and function == 'cumprod' else 'x'}, axis=0, reverse={reverse}).to(tl.{wide}))"
            )
            add(
                f"{function} of {dtype}{word}",
                body,
                {"X": Input(dtype, N, kind)},
                wide,
                ulps=4 if floating else 0,
            )
for dtype in ("int32", "int64", "uint8"):
    add(
        f"xor_sum of {dtype}",
        LOAD + "tl.store(O, tl.xor_sum(x, axis=0).to(tl.int64))",
        {"X": Input(dtype, N, "any")},
        "int64",
        size=1,
    )
for kind in ("normal", "special"):
    add(
        f"sum of {kind} float32",
        LOAD + "tl.store(O, tl.sum(x, axis=0))",
        {"X": Input("float32", N, kind)},
        "float32",
        size=1,
        ulps=64,
    )
GRID = "r = tl.arange(0, 8)[:, None]\nc = tl.arange(0, 8)[None, :]\nx = tl.load(X + r * 8 + c)\nk = tl.arange(0, 8)\n"
for dtype in ("float32", "int32", "bfloat16"):
    for axis in (0, 1):
        for function in ("sum", "max"):
            body = GRID + f"tl.store(O + k, tl.{function}(x, axis={axis}))"
            add(
                f"{function} of a matrix of {dtype} along {axis}",
                body,
                {"X": Input(dtype, N, "nice")},
                dtype,
                size=8,
                ulps=4 if dtype != "int32" and function == "sum" else 0,
            )
    add(
        f"sum of all of {dtype}",
        GRID + "tl.store(O, tl.sum(x))",
        {"X": Input(dtype, N, "nice")},
        dtype,
        size=1,
        ulps=4 if dtype != "int32" else 0,
    )
    add(
        f"cumsum of a matrix of {dtype}",
        GRID + "tl.store(O + r * 8 + c, tl.cumsum(x, axis=1))",
        {"X": Input(dtype, N, "nice")},
        dtype,
        ulps=4 if dtype != "int32" else 0,
    )
add(
    "keep_dims",
    GRID + "tl.store(O + r * 8 + c, x - tl.max(x, axis=1, keep_dims=True))",
    {"X": Input("float32", N)},
    "float32",
)
add(
    "max with indices",
    LOAD
    + "v, k = tl.max(x, axis=0, return_indices=True)\ntl.store(O, v)\ntl.store(O + 1, k.to(tl.float32))",
    {"X": Input("float32", N, "whole")},
    "float32",
    size=2,
)
HELPER = "@triton.jit\ndef first_and_last(a, b, c, d):\n    return a, d\n\n@triton.jit\ndef product(a, b):\n    return a * b\n\n"
add(
    "reduce of a product",
    LOAD + "tl.store(O, tl.reduce(tl.where(i < 9, x, 1), 0, product))",
    {"X": Input("int32", N, "whole")},
    "int32",
    size=1,
    helpers=HELPER,
)
add(
    "reduce of a pair",
    LOAD + "a, b = tl.reduce((x, x), 0, first_and_last)\ntl.store(O, a)\ntl.store(O + 1, b)",
    {"X": Input("int32", N)},
    "int32",
    size=2,
    helpers=HELPER,
)
add(
    "scan of a product",
    LOAD + "tl.store(O + i, tl.associative_scan(x, 0, product))",
    {"X": Input("int32", N, "whole")},
    "int32",
    helpers=HELPER,
)

# Products --------------------------------------------------------------------------------------------------------------
DOT = """
m = tl.arange(0, 16)
k = tl.arange(0, {k})
a = tl.load(X + m[:, None] * {k} + k[None, :])
b = tl.load(Y + k[:, None] * 16 + m[None, :])
tl.store(O + m[:, None] * 16 + m[None, :], {dot})
"""
for dtype, out in (
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float32", "float32"),
    ("int8", "int32"),
    ("float8e5", "float32"),
):
    for k in (16, 32, 64):
        if dtype in ("int8", "float8e5") and k == 16:
            continue
        for kind in ("nice", "normal"):
            inputs = {"X": Input(dtype, 16 * k, kind), "Y": Input(dtype, 16 * k, kind)}
            for precision in ("tf32", "tf32x3", "ieee") if dtype == "float32" else ("",):
                dot = (
                    f"tl.dot(a, b, input_precision='{precision}')" if precision else "tl.dot(a, b)"
                )
                name = f"dot of {kind} {dtype} over {k} {precision}".strip()
                add(
                    name,
                    DOT.format(k=k, dot=dot),
                    inputs,
                    out,
                    size=256,
                    ulps=0 if out == "int32" else 2000,
                )
for dtype in ("float16", "bfloat16"):
    inputs = {"X": Input(dtype, 256, "nice"), "Y": Input(dtype, 256, "nice")}
    add(
        f"dot of {dtype} in float16",
        DOT.format(k=16, dot="tl.dot(a, b).to(tl.float16)"),
        inputs,
        "float16",
        size=256,
        ulps=2,
    )

# Atomics ---------------------------------------------------------------------------------------------------------------
for dtype in ("int32", "int64", "float32", "uint32"):
    for function in ("add", "max", "min"):
        kind = "nice" if dtype == "float32" else "normal"
        add(
            f"atomic_{function} of {dtype}",
            LOAD + f"tl.atomic_{function}(O + i % 7, x)",
            {"X": Input(dtype, N, kind)},
            dtype,
            size=7,
            grid=(3,),
        )
for dtype in ("float16", "bfloat16"):
    add(
        f"atomic_add of {dtype}",
        LOAD + "tl.atomic_add(O + i % 7, x, mask=i < 50)",
        {"X": Input(dtype, N, "whole")},
        dtype,
        size=7,
    )
for function in ("and", "or", "xor"):
    add(
        f"atomic_{function}",
        LOAD + f"tl.atomic_{function}(O + i % 7, x)",
        {"X": Input("int32", N, "any")},
        "int32",
        size=7,
    )
add(
    "histogram",
    LOAD + "tl.store(O + tl.arange(0, 8), tl.histogram(x, 8))",
    {"X": Input("int32", N, "whole")},
    "int32",
    size=8,
)

# Loops, scalars, words of Python ---------------------------------------------------------------------------------------
for start, end, step in ((0, 5, 1), (-5, 5, 1), (7, -4, -2), (100000, 100003, 1), (-3, 3, 2)):
    body = f"acc = tl.load(X)\nfor j in range({start}, {end}, {step}):\n    acc = acc + j // 2 * 10 + j % 3 + j * 100000\ntl.store(O, acc)"
    add(f"range {start} {end} {step}", body, {"X": Input("int32", 1)}, "int32", size=1)
add(
    "a loop to n",
    "acc = 0.0\nfor j in range(0, n):\n    acc += tl.load(X + j) * j\ntl.store(O, acc)",
    {"X": Input("float32", N, "nice")},
    "float32",
    size=1,
    n=37,
)
add(
    "a loop in a loop",
    "acc = 0\nfor j in range(0, n):\n    for k in tl.range(0, j):\n        acc += j * k - k // 2\ntl.store(O, acc)",
    {"X": Input("int32", 1)},
    "int32",
    size=1,
    n=9,
)
add(
    "while",
    "k = n\nacc = 0\nwhile k > 0:\n    acc += k % 10\n    k = k // 10\ntl.store(O, acc)",
    {"X": Input("int32", 1)},
    "int32",
    size=1,
    n=123456,
)
add(
    "static_range",
    LOAD + "for j in tl.static_range(4):\n    x += j // 2\ntl.store(O + i, x)",
    {"X": Input("int32", N)},
    "int32",
)
add(
    "and, or, not of scalars",
    "x = tl.load(X)\ny = tl.load(X + 1)\nif (x > 0 and y > 0) or not (x == y):\n    tl.store(O, 1)\nelse:\n    tl.store(O, 2)",
    {"X": Input("int32", 2)},
    "int32",
    size=1,
)
add(
    "and of blocks",
    LOAD2 + "tl.store(O + i, ((x > 0) & (y > 0)).to(tl.int32))",
    {"X": Input("int32", N), "Y": Input("int32", N)},
    "int32",
)
add(
    "a if b else c",
    "x = tl.load(X)\ntl.store(O, 3 if x > 0 else 4)",
    {"X": Input("int32", 1)},
    "int32",
    size=1,
)
add("wrap", LOAD + "tl.store(O + i, (x * 2147483647 + 5) * x)", {"X": Input("int32", N)}, "int32")
add(
    "n in floats",
    LOAD + "tl.store(O + i, x * n / 7)",
    {"X": Input("float16", N)},
    "float32",
    n=33,
    ulps=3,
)
add(
    "named literal",
    LOAD + "c = 0.1\nd = 3\ntl.store(O + i, x * c + d)",
    {"X": Input("float16", N)},
    "float32",
)
add(
    "masked",
    LOAD.replace("X + i", "X + i, mask=i < n, other=-2.5")
    + "tl.store(O + i, x * 2, mask=i < n + 3)",
    {"X": Input("float32", 41)},
    "float32",
    n=41,
    size=44,
)
add(
    "programs",
    "p = tl.program_id(0)\nq = tl.program_id(1)\ni = p * N + tl.arange(0, N)\ntl.store(O + i * 2 + q, tl.load(X + i, mask=i < n, other=0) + q * 1000 + tl.num_programs(0))",
    {"X": Input("int32", 150)},
    "int32",
    n=150,
    size=384,
    grid=(3, 2),
)
add(
    "helper",
    LOAD + "a = product(x, 3)\ntl.store(O + i, product(a, a))",
    {"X": Input("int32", N)},
    "int32",
    helpers=HELPER,
)
for function in ("rand", "randn", "randint"):
    dtype = "int32" if function == "randint" else "float32"
    body = f"i = tl.arange(0, N)\ntl.store(O + i, tl.{function}(n, i){'.to(tl.int32)' if function == 'randint' else ''})"
    add(
        f"tl.{function}",
        body,
        {"X": Input("int32", 1)},
        dtype,
        n=42,
        ulps=0 if function != "randn" else 64,
    )

# Shapes ----------------------------------------------------------------------------------------------------------------
of_one("sort", "tl.sort(x)", "float32", "float32")
of_one("sort of int8", "tl.sort(x, descending=True)", "int8", "int8", "any")
of_one("flip", "tl.flip(x, 0)", "int32", "int32")
of_one("reshape and trans", "tl.reshape(tl.trans(tl.reshape(x, (8, 8))), (N,))", "int32", "int32")
add(
    "topk",
    LOAD + "tl.store(O + tl.arange(0, 4), tl.topk(x, 4))",
    {"X": Input("float32", N)},
    "float32",
    size=4,
)
add(
    "join",
    LOAD2 + "tl.store(O + tl.arange(0, 2 * N), tl.reshape(tl.join(x, y), (2 * N,)))",
    {"X": Input("int32", N), "Y": Input("int32", N)},
    "int32",
    size=2 * N,
)
add(
    "interleave",
    LOAD2 + "tl.store(O + tl.arange(0, 2 * N), tl.interleave(x, y))",
    {"X": Input("bfloat16", N), "Y": Input("bfloat16", N)},
    "bfloat16",
    size=2 * N,
)
add(
    "split",
    LOAD
    + "a, b = tl.split(tl.reshape(x, (N // 2, 2)))\ntl.store(O + tl.arange(0, N // 2), a * 10 + b)",
    {"X": Input("int32", N)},
    "int32",
    size=N // 2,
)
of_two("gather", "tl.gather(x, tl.where(y < 0, -y, y) % N, 0)", "int32", "int32")
add(
    "broadcast",
    GRID + "tl.store(O + r * 8 + c, x * tl.load(X + c) + tl.load(X + r))",
    {"X": Input("float32", N, "nice")},
    "float32",
)
add(
    "block pointer",
    "p = tl.make_tensor_descriptor(X, [n, 8], [8, 1], [4, 8])\nx = p.load([2, 0])\nk = tl.arange(0, 32)\ntl.store(O + k, tl.reshape(x, (32,)))",
    {"X": Input("float32", 40)},
    "float32",
    n=5,
    size=32,
)
PROGRAMS.pop()  # descriptors made on the device need an allocator

# libdevice -------------------------------------------------------------------------------------------------------------
for function in """
    tanh sinh cosh asin acos atan asinh acosh atanh exp10 expm1 log10 log1p cbrt rcbrt erfc erfinv lgamma tgamma j0 j1 y0 y1
    cyl_bessel_i0 cyl_bessel_i1 normcdf normcdfinv rint trunc round nearbyint sinpi cospi fast_expf fast_logf fast_sinf
    fast_tanhf rsqrt tan erfcx erfcinv saturatef""".split():
    kind = {"acosh": "positive", "asin": "unit", "acos": "unit", "atanh": "unit", "erfinv": "unit", "log1p": "unit", "log10": "positive",
            "y0": "positive", "y1": "positive", "rsqrt": "positive", "fast_logf": "positive", "tgamma": "positive"}.get(function, "normal")  # fmt: skip
    exact = function in ("rint", "trunc", "round", "nearbyint", "saturatef")
    expression = "x"
    if function in ("normcdfinv", "erfcinv"):
        kind, expression = "unit", "tl.abs(x) + 0.001"
    of_one(
        f"libdevice.{function}",
        f"libdevice.{function}({expression})",
        "float32",
        "float32",
        kind,
        ulps=0 if exact else 5000,
    )
PROGRAMS[:] = [p for p in PROGRAMS if "fast_tanhf" not in p.name]
for function in ("atan2", "pow", "hypot", "fmod", "copysign", "fdim", "nextafter", "remainder"):
    kinds = ("positive", "normal") if function == "pow" else ("normal", "normal")
    exact = function in ("copysign", "nextafter", "fmod", "remainder")
    of_two(
        f"libdevice.{function}",
        f"libdevice.{function}(x, y)",
        "float32",
        "float32",
        kinds,
        ulps=0 if exact else 32,
    )
for function in ("popc", "clz", "ffs", "brev", "abs"):
    of_one(f"libdevice.{function}", f"libdevice.{function}(x)", "int32", "int32", "any")
of_two("libdevice.mulhi", "libdevice.mulhi(x, y)", "int32", "int32", ("any", "any"))
for function in ("isnan", "isinf", "finitef", "signbit"):
    of_one(
        f"libdevice.{function}",
        f"libdevice.{function}(x).to(tl.int32)",
        "float32",
        "int32",
        "special",
    )
for function in ("float2int_rn", "float2int_rz", "float_as_int", "llrint", "ilogb"):
    out = "int64" if function == "llrint" else "int32"
    of_one(f"libdevice.{function}", f"libdevice.{function}(x)", "float32", out, "normal")

assert len({p.name for p in PROGRAMS}) == len(PROGRAMS)
