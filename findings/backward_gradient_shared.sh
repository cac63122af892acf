#!/bin/sh
# One would guess that `y.backward(gradient)` reads the gradient that it is given, and that `x.grad` is memory of its own.
# In torch 2.13.0 `x.grad` has the memory of that very tensor where y is a view of x (`x.view_as(x)`).
# `x.grad.zero_()` then empties the caller's tensor, and a second backward adds into it. For `x * 1` it is a tensor of its own.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: a gradient that is kept for a second use, or for a comparison, is handed over as
# `gradient.clone()`. A function of `cl.compile` gives memory of its own.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch


def after_two(function):
    """The gradient that was handed over, after a second backward with another one."""
    x = torch.ones(2, requires_grad=True)
    handed_over = torch.ones(2)
    function(x).backward(handed_over)
    function(x).backward(torch.ones(2))
    return handed_over.tolist()


print("torch", torch.__version__)
viewed, multiplied = after_two(lambda x: x.view_as(x)), after_two(lambda x: x * 1)
print("handed over: [1.0, 1.0]")
print("after two times backward through x.view_as(x):", viewed)
print("after two times backward through x * 1:         ", multiplied)

seen = viewed == [2.0, 2.0] and multiplied == [1.0, 1.0]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
