#!/bin/sh
# One would guess that two widgets that are linked have the same value, or that a value which one of them cannot take is refused.
# ipywidgets 8.1.9 (`link` of traitlets) sets the second widget to the first one's value; a slider cuts it to its own range, and says
# nothing. The first widget is not told, since it is the one that changes: they stay apart.
#
# Seen 2026-11-29 with ipywidgets 8.1.9. For our users: a picture with a slider and a box for the same number gives both the same range.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check ipywidgets==8.1.9
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import ipywidgets

wide = ipywidgets.IntSlider(value=5, min=0, max=100)
narrow = ipywidgets.IntSlider(value=5, min=0, max=10)
ipywidgets.link((wide, "value"), (narrow, "value"))

print("ipywidgets", ipywidgets.__version__)
wide.value = 50
apart = wide.value, narrow.value
print("set wide to 50:  wide and narrow are", *apart)
narrow.value = 7
together = wide.value, narrow.value
print("set narrow to 7: wide and narrow are", *together)

seen = apart == (50, 10) and together == (7, 7)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
