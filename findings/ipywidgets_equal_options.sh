#!/bin/sh
# One would guess that a Dropdown with the options ("zero", 0) and ("no", False) has the value False when "no" is chosen.
# ipywidgets 8.1.9 (traitlets) changes `value` only if the new one is not equal to the old one, and 0 == False. Label and index move, the value
# is still 0, and no observer of `value` hears of the choice. The same with 1 and True, and 1 and 1.0.
#
# Seen 2026-11-29 with ipywidgets 8.1.9. For our users: options whose values may be equal are strings, or an observer watches `index`. No
# picture of `course_lib` mixes numbers with True or False.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check ipywidgets==8.1.9
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import ipywidgets

chosen = ipywidgets.Dropdown(options=[("zero", 0), ("no", False)])
heard = []
chosen.observe(heard.append, "value")
chosen.label = "no"
print("ipywidgets", ipywidgets.__version__)
print("label", chosen.label, "index", chosen.index, "value", repr(chosen.value), "heard", len(heard))

seen = chosen.label == "no" and chosen.index == 1 and chosen.value is not False and not heard
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
