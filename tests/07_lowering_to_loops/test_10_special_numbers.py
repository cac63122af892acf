"""Operations on numbers for which two ways to compute differ: infinities, -0.0, numbers that a dtype cannot hold."""

import math

import pytest
import torch
from same_as_eager import Cases

inf, nan = math.inf, math.nan
case = Cases()

# A number 0.5 is a root; a tensor of 0.5 is a power, also where all of it is known.
x = torch.tensor([-inf, -0.0, 0.0, inf, nan, 2.0, 4.0, -1.0] * 3)
case("half power: a number", lambda compile: compile(lambda x: x**0.5)(x))
case("half power: full", lambda compile: compile(lambda x: x ** torch.full((24,), 0.5))(x))
case("half power: one tensor", lambda compile: compile(lambda x: x ** torch.tensor(0.5))(x))
case("its sign", lambda compile: compile(lambda x: (x ** torch.tensor(0.5)).signbit())(x[:3]))
case("half power: double", lambda compile: compile(lambda x: x ** torch.tensor(0.5))(x.double()))
case("half power: an input", lambda compile: compile(lambda x, y: x**y)(x, torch.full((24,), 0.5)))
case("half power: float16", lambda compile: compile(lambda x: x**0.5)(x.half()))

# Division that rounds down takes the rest first.
divisor = torch.tensor([1.0, 0.1, inf, -inf, 0.0, 0.3] * 4)
case("floor division", lambda compile: compile(lambda x, y: x // y)(x, divisor))
case("floor division: by 1", lambda compile: compile(lambda x: x // 1)(x))
case("floor division: by 0.1", lambda compile: compile(lambda x: x // 0.1)(x))

# A number is brought to the dtype before it is compared.
byte, small = torch.tensor([1, 255], dtype=torch.uint8), torch.tensor([1, -56], dtype=torch.int8)
case("bytes", lambda compile: compile(lambda x: (x == 257, x < -1, x >= 256))(byte))
case("int8", lambda compile: compile(lambda x: (x == 200, x > 200, x < -300))(small))

# Integers to the powers of a tensor: no error, and whole numbers.
powers = torch.tensor([-1, -2, 3])
case("2 to negative powers", lambda compile: compile(lambda y: 2**y)(powers))
case("-1 to negative powers", lambda compile: compile(lambda y: (-1) ** y)(powers))
case("integers to negative powers", lambda compile: compile(lambda y: y**-y)(powers))

# No dimensions at all: some reductions take them for all, and some for none.
ones = torch.ones(2, 3)
for name in ("sum", "mean", "amax", "all", "any", "nansum", "var"):
    reduce = getattr(torch, name)
    case(f"{name} over ()", lambda compile, reduce=reduce: compile(lambda x: reduce(x, ()))(ones))


# An index without dimensions gives a view.
def written(compile, index):
    def write(x, i):
        x[i].add_(100)
        return x * 2

    x = torch.zeros(3)
    return compile(write)(x, torch.tensor(index)), x


case("written by an index without dimensions", lambda compile: written(compile, 1))
case("written by a list of indices", lambda compile: written(compile, [1]))


# On a CPU each step of a half is rounded, and so is a bound: 1 - 1e-6 is 1.
probabilities = torch.tensor([0.0, 1.0, 0.5, 0.3, 1e-4, 2.0, -1.0, torch.nan, 0.999])
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    for eps in (None, 1e-6, 1e-3):
        case(
            f"logit of {dtype} within {eps}",
            lambda compile, dtype=dtype, eps=eps: compile(lambda x: torch.logit(x, eps))(
                probabilities.to(dtype)
            ),
        )


# Random integers with no upper bound reach to the largest of the dtype.
for dtype in (
    torch.uint8,
    torch.int32,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
):
    for backend in ("aot_eager", "inductor"):
        case(
            f"random {dtype} from 2 on, {backend}",
            lambda compile, dtype=dtype: compile(lambda x: x.clone().random_(2, None))(
                torch.zeros(9, dtype=dtype)
            ),
            backend=backend,
        )


@pytest.mark.parametrize("name", case.names)
def test_special_numbers_are_as_in_eager(name):
    case.check(name)
