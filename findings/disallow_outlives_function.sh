#!/bin/sh
# One would guess that a mark of a function goes when the function is freed: `torch.compiler.allow_in_graph(f)`, taken back by
# `torch._dynamo.disallow_in_graph(f)`. torch 2.13.0 keeps addresses in two sets. The first mark goes with its function, the second stays:
# a new function that Python puts at the same address is refused under `fullgraph=True`, though nobody marked it.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: a test of ours failed in one order of tests only; the rule's docstring says so now.
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


def new_function():
    def own(x):
        return x * 2

    return own


def refused_at_an_old_address(mark):
    """Is a new function, at the address of one that was marked and is gone, refused?"""
    first = new_function()
    address = id(first)
    mark(first)
    del first

    # Others are kept, so that Python does not hand out the same few addresses again
    kept = []
    for _ in range(10_000):
        second = new_function()
        if id(second) == address:
            break
        kept.append(second)
    else:
        return "no new function at that address"

    torch.compiler.reset()
    try:
        torch.compile(lambda x: second(x) + 1, backend="eager", fullgraph=True)(torch.ones(2))
    except torch._dynamo.exc.Unsupported as error:
        return f"refused: {str(error).splitlines()[0]}"
    return "taken"


def allow_and_take_back(function):
    torch._dynamo.disallow_in_graph(torch.compiler.allow_in_graph(function))


print("torch", torch.__version__)
allowed = refused_at_an_old_address(torch.compiler.allow_in_graph)
taken_back = refused_at_an_old_address(allow_and_take_back)
print("allow_in_graph, then freed                   ", allowed)
print("allow_in_graph, disallow_in_graph, then freed", taken_back)

seen = allowed == "taken" and taken_back.startswith("refused")
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
