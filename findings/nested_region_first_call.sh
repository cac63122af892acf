#!/bin/sh
# torch 2.13.0: of six equal layers marked with `nested_compile_region`, only five are regions when gradients are on.
#
# The decorator says that a region is compiled once and used in each place. For a chain of six equal layers one would guess six
# nodes `invoke_subgraph` of one subgraph; so it is below `no_grad`. With gradients on the first layer's input needs no gradient and
# those of the others do: that makes two regions, and the one that is used once is put into the graph as it is.
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: lesson 14 shows both; who counts on six regions gives the first layer an input
# that needs a gradient.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return x + self.linear(x).relu()


def regions(x):
    """How often the graph of six layers calls a region, and how many regions there are to call."""
    graphs = []
    torch.compiler.reset()
    model = torch.nn.Sequential(*(Layer() for _ in range(6)))
    torch.compile(model, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(x)
    calls = [node for node in graphs[0].graph.nodes if "invoke_subgraph" in str(node.target)]
    return len(calls), len({call.args[0].target for call in calls})


print("torch", torch.__version__)
with torch.no_grad():
    without = regions(torch.randn(2, 8))
plain = regions(torch.randn(2, 8))
needs_one = regions(torch.randn(2, 8, requires_grad=True))
print("calls and regions: no_grad", without, "| gradients on", plain, "| the input needs a gradient, too", needs_one)

seen = (without, plain, needs_one) == ((6, 1), (5, 1), (6, 1))
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
