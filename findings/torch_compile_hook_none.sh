#!/bin/sh
# torch 2.13.0: a hook on a result of a compiled function is called with None, where eager gives the gradient or does not call it.
#
# The function returns `t.sin()` and `t`. A backward pass from the first result flows through `t`: in eager a hook on `t` gets this
# gradient, and one would guess that it does when compiled. For a function compiled with `backend="aot_eager"`, both results come from one node of autograd. The hook gets the
# gradient that comes from outside of that node: there is none, so it gets None. A hook such as `lambda g: g * 2` then raises TypeError.
# Also for a result that nobody uses: eager does not call its hook, and the compiled function calls it with None.
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: a hook belongs on an input or inside the function.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch


def uses_its_second_result(x):
    t = x * 2
    return t.sin(), t


def two_apart(x):
    return x * 2, x * 3


def told(function):
    """What a hook on the second result is given, in a backward pass from the first."""
    seen = []
    first, second = function(torch.ones(2, requires_grad=True))
    second.register_hook(seen.append)
    first.sum().backward()
    return [None if gradient is None else gradient.tolist() for gradient in seen]


print("torch", torch.__version__)
found = []
for function in (uses_its_second_result, two_apart):
    eager, compiled = told(function), told(torch.compile(function, backend="aot_eager"))
    print(f"{function.__name__}: eager {eager}, compiled {compiled}")
    found.append((len(eager), compiled))

seen = found == [(1, [None]), (0, [None])]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
