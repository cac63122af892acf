#!/bin/sh
# One would guess that a change which was taken back within `hold_trait_notifications` is no change, so that nobody is told.
# ipywidgets 8.1.9 (traitlets) keeps one notification for each name, with the first old value and the last new one, and sends it without a
# look whether they are the same: the observer gets a change from 0 to 0. Outside of the block, setting a value to itself tells nobody.
#
# Seen 2026-11-29 with ipywidgets 8.1.9. For our users: an observer that computes for seconds compares `change.old` with `change.new`.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check ipywidgets==8.1.9
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import ipywidgets

told = []
box = ipywidgets.IntText(0)
box.observe(lambda change: told.append((change.old, change.new)), "value")

print("ipywidgets", ipywidgets.__version__)
box.value = 0
plain = list(told)
with box.hold_trait_notifications():
    box.value = 1
    box.value = 2
    box.value = 0
print("set to itself:          ", plain)
print("there and back, on hold:", told)

seen = plain == [] and told == [(0, 0)]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
