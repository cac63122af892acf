#!/bin/sh
# One would guess that a Dropdown keeps its choice when its new list of options still holds it.
# ipywidgets 8.1.9 takes the first of the new options, and calls the observers of `value` with it. So a picture that lists "all, slow" and
# then "all, fast, slow" jumps back from "slow" to "all". Give the choice again after the options.
#
# Seen 2026-11-28 with ipywidgets 8.1.9; Select, RadioButtons and SelectionSlider do the same. For our users: a widget whose options grow
# (steps of a run, say) keeps the old choice by hand, or the reader loses the place.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check ipywidgets==8.1.9
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import ipywidgets

found = {}
for kind in (ipywidgets.Dropdown, ipywidgets.Select, ipywidgets.RadioButtons, ipywidgets.SelectionSlider):
    widget = kind(options=["all", "slow"], value="slow")
    told = []
    widget.observe(lambda change, told=told: told.append(change["new"]), "value")
    widget.options = ["all", "fast", "slow"]
    found[kind.__name__] = widget.value, told

print("ipywidgets", ipywidgets.__version__)
for name, (value, told) in found.items():
    print(f"{name:15} value {value!r}, observers told {told}")

seen = all(got == ("all", ["all"]) for got in found.values())
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
