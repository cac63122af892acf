#!/bin/sh
# torch 2.13.0: the stance "fail_on_recompile" is an error at the first compile, too.
#
# It is documented as an error where a function is compiled *again*. For a function that was never called one would guess that the first
# call compiles. It raises, and the message speaks of a recompile. "eager_on_recompile" is alike: a first call in it runs in eager.
#
# Seen 2026-11-28 with torch 2.13.0 (CPU), the same in 2.15.0. For our users: lesson 04 has the table; a warm-up must come before the stance.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch


def first_call(stance):
    """What the first call of a function does in this stance, and how many graphs were made."""
    graphs = []
    torch.compiler.reset()
    doubled = torch.compile(lambda x: x * 2, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    with torch.compiler.set_stance(stance):
        try:
            doubled(torch.ones(3))
        except RuntimeError as problem:
            return "error: " + str(problem).split(" when ")[0], len(graphs)
    return "runs", len(graphs)


print("torch", torch.__version__)
found = {stance: first_call(stance) for stance in ("default", "eager_on_recompile", "fail_on_recompile")}
for stance, (what, graphs) in found.items():
    print(f"{stance}: {what}, {graphs} graphs")

seen = found == {
    "default": ("runs", 1),
    "eager_on_recompile": ("runs", 0),
    "fail_on_recompile": ("error: Detected recompile", 0),
}
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
