#!/bin/sh
# nbgrader 0.9.6: `nbgrader export` writes names with a comma without quotes, so that all later columns of the row move.
#
# A gradebook has one assignment and one student, whose last name is "King, Jr.". One would guess that a CSV reader gets this name back
# from the exported file. It gets " Jr." as the first name, and a column too many.
#
# Seen 2026-11-28 with nbgrader 0.9.6. For our users: `course grade` writes its own CSV file, with quotes.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check nbgrader==0.9.6
PATH="$place/venv/bin:$PATH"  # nbgrader runs `alembic`
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import csv
import importlib.metadata
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins.export import CsvExportPlugin

with Gradebook(f"sqlite:///{Path('gradebook.db').resolve()}") as gradebook:
    gradebook.add_assignment("week1")
    gradebook.add_student("mlk", first_name="Martin Luther", last_name="King, Jr.")
    exporter = CsvExportPlugin()
    exporter.to = "grades.csv"
    exporter.export(gradebook)

row = next(csv.DictReader(open("grades.csv", newline="")))
print("nbgrader", importlib.metadata.version("nbgrader"))
print(Path("grades.csv").read_text().strip())
print("last_name ", repr(row["last_name"]))
print("first_name", repr(row["first_name"]))
print("expected   'King, Jr.' and 'Martin Luther'")
seen = row["last_name"] == "King" and row["first_name"] == " Jr."
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
