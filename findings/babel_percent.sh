#!/bin/sh
# One would guess that "5% faster" is plain text for a message catalogue.
# Babel 2.18.0 marks it `python-format`: a blank is a flag of a format, so `% f` is one. Its check then refuses a right translation that
# moves the sign ("schneller um 5 %"). A text that the program never formats needs no escape, and `%%` would be shown as it stands.
#
# Seen 2026-11-28 with Babel 2.18.0. For our users: messages that state a share of time ("100% sure", "5% faster") write "percent", or
# put the number into a placeholder.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check babel==2.18.0
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import babel
from babel.messages.catalog import Catalog

catalog = Catalog(locale="de")
catalog.add("5% faster", "schneller um 5 %")
catalog.add("5 percent faster", "schneller um 5 Prozent")

print("babel", babel.__version__)
flags = {message.id: sorted(message.flags) for message in catalog if message.id}
refused = {message.id: [str(error) for error in errors] for message, errors in catalog.check()}
print("flags  ", flags)
print("refused", refused)

seen = flags == {"5% faster": ["python-format"], "5 percent faster": []} and list(refused) == ["5% faster"]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
