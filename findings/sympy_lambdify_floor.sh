#!/bin/sh
# One would guess that `lambdify` turns the integer expression `n // 49` into a function that divides integers as Python does.
# sympy 1.14.0 writes `floor((1/49)*n)` instead. 1/49 is rounded, so that 49 * (1/49) lies just below 1: the function gives 0 for 49.
# `subs` gives 1. The same holds for other divisors, and the result has no type int, but whatever `floor` gives.
#
# Seen 2026-11-28 with sympy 1.14.0, with and without NumPy. For our users: a size such as `s0 // 49` is printed with `//` and computed
# on integers. A tool that evaluates sizes or guards through `lambdify` is off by one for some sizes.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check sympy==1.14.0
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import inspect

import sympy

n = sympy.Symbol("n", integer=True, positive=True)
expression = n // 49
function = sympy.lambdify(n, expression, "math")
wrong = [value for value in range(1, 1000) if function(value) != value // 49]

print("sympy", sympy.__version__)
print(inspect.getsource(function).strip())
print("subs    ", expression.subs(n, 49))
print("lambdify", function(49))
print("wrong below 1000:", wrong)

seen = expression.subs(n, 49) == 1 and function(49) == 0 and wrong[:3] == [49, 98, 147]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
