#!/bin/sh
# One would guess that `while test:` and `while True: if not test: break` are captured alike: they are the same loop.
# torch 2.13.0 resumes behind a graph break only where no later jump goes back in front of it. CPython 3.11 to 3.13 writes the test of a
# `while` twice, before the body and at its end, so the break in the first one can be resumed; the other form has the test once, in front
# of the body, and its whole frame runs in eager. (CPython 3.14 writes the test once in both, and torch makes no graph of either.)
#
# Seen 2026-11-29 with torch 2.13.0 (CPU): 2 graphs and 0 on Python 3.11. For our users: lesson 03 says which Python makes what of a loop;
# `course_lib` captures both forms on all of them.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import sys

import torch


def tested(x):
    while x.sum() < 10:
        x = x * 2
    return x


def broken(x):
    while True:
        if not x.sum() < 10:
            break
        x = x * 2
    return x


def graphs_of(function):
    graphs = []
    torch.compiler.reset()
    compiled = torch.compile(function, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    assert compiled(torch.ones(2)).tolist() == function(torch.ones(2)).tolist()
    return len(graphs)


if sys.version_info >= (3, 14):
    raise SystemExit("this is about Python 3.11 to 3.13")
print("torch", torch.__version__, "Python", sys.version.split()[0])
got = graphs_of(tested), graphs_of(broken)
print("while test:                      ", got[0], "graphs")
print("while True: if not test: break   ", got[1], "graphs")

seen = got[0] >= 1 and got[1] == 0
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
