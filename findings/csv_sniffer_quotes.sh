#!/bin/sh
# One would guess that the dialect which `csv.Sniffer` finds in the beginning of a table reads the rest of it as well as the default does.
# CPython 3.11.7 sets `doublequote=False` in it unless two quotes in a row stand in the sample. A quote within a cell further down, written
# as two quotes like every spreadsheet writes it, then ends the cell's quoting: a comma behind it begins a new column.
#
# Seen 2026-11-29 with CPython 3.11.7 and 3.14.10. It needs `python3`. For our users: `course_lib` reads class lists with the dialect that
# it names itself, and does not sniff.
set -eu

python3 - <<'PYTHON'
import csv
import io
import sys

people = [["name", "points"], ["Lovelace, Ada", "3"]]
people += [['Hopper, "Grace", Rear Admiral', "4"]]
text = io.StringIO(newline="")
csv.writer(text, quoting=csv.QUOTE_ALL).writerows(people)
lines = text.getvalue().splitlines()

dialect = csv.Sniffer().sniff("\n".join(lines[:2]))
default, sniffed = (list(csv.reader(lines, chosen)) for chosen in ("excel", dialect))
print("CPython", sys.version.split()[0], "| delimiter", repr(dialect.delimiter), "doublequote", dialect.doublequote)
print("default:", default[2])
print("sniffed:", sniffed[2])

seen = default == people and dialect.delimiter == "," and len(sniffed[2]) > 2
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
