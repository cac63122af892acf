#!/bin/sh
# One would guess that the extraction of messages leaves out `_("yes" if ok else "no")`, or takes both words.
# Babel 2.18.0 joins all pieces of text between the brackets: the catalogue gets the one message "yesno". The program asks for "yes" or
# "no", which no translator ever saw, so both stay untranslated. `_("row: " + name)` becomes "row: ", and `_(names["key"])` "key".
#
# Seen 2026-11-28 with Babel 2.18.0 on Python 3.11. For our users: whoever translates the course's messages writes one call a text, and
# a check compares the catalogue with the texts that the program asks for.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check babel==2.18.0
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import io

import babel
from babel.messages.extract import extract

PROGRAM = b"""
_("yes" if ok else "no")
_("row: " + name)
_(names["key"])
"""
print("babel", babel.__version__)
found = [message for _, message, _, _ in extract("python", io.BytesIO(PROGRAM))]
print("messages", found)

seen = found == ["yesno", "row: ", "key"]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
