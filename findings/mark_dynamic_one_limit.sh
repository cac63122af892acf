#!/bin/sh
# One would guess that `mark_dynamic(x, 0, min=2)` means "two or more": `min` and `max` are optional, each by itself.
# torch 2.13.0 takes both or none. With one of them the first call of a compiled function raises an AssertionError about sympy types;
# `mark_dynamic` itself says nothing.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: `cl.mark_dynamic` takes one limit alone.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import logging

import torch

logging.disable(logging.CRITICAL)


def first_call(**limits):
    torch.compiler.reset()
    x = torch.ones(4)
    torch._dynamo.mark_dynamic(x, 0, **limits)
    try:
        return torch.compile(lambda x: x * 2, backend="eager")(x).tolist()
    except AssertionError as error:
        return f"AssertionError: {str(error).splitlines()[0]}"


print("torch", torch.__version__)
got = [first_call(**limits) for limits in ({}, {"min": 2, "max": 10}, {"min": 2}, {"max": 10})]
for name, answer in zip(("no limit", "both    ", "min=2   ", "max=10  "), got):
    print(name, answer)

seen = got[0] == got[1] == [2.0] * 4 and all("AssertionError" in str(answer) for answer in got[2:])
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
