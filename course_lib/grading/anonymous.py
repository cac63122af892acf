"""`course grade --anonymous`: marks and feedback under names that say nothing.

In:  the submissions of a class under their real names. Out: the same submissions under names drawn
     at random (`student-7f3a91`), and `names.csv` in the folder of the marks, the one file that
     says whose each is.

Whoever reads `grades.csv`, the feedback or the class's dashboard does not learn whose mark it is. A
name is drawn once and kept, so marks that were made before are found again. `course gradebook` puts
the real names back by itself.
What it cannot hide: a name that a student wrote into the notebook, and the file names in
`collected.csv`.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from .collect import Submission
from .tables import read_table, write_table

COLUMNS = ("called", "student")
"""Of the table: the drawn name, and the real one."""
FILE = "names.csv"


class Names:
    """Real name → drawn name, kept in `names.csv`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        # Real name → drawn name: the table the other way round
        self.drawn = {real: called for called, real in real_names(folder).items()}

    def called(self, student: str) -> str:
        """The name that stands for this student."""
        if student not in self.drawn:
            self.drawn[student] = self.fresh()
        return self.drawn[student]

    def fresh(self) -> str:
        """A name that nobody has yet."""
        used_names = set(self.drawn.values())
        while True:
            name = f"student-{secrets.token_hex(3)}"
            if name not in used_names:
                return name

    def hide(self, items: Iterable[Submission]) -> list[Submission]:
        """The submissions under their drawn names, in the order of these: the order of the class
        would tell."""
        hidden = [dataclasses.replace(item, student=self.called(item.student)) for item in items]
        self.write()
        return sorted(hidden, key=lambda item: item.key)

    def write(self) -> None:
        """Sorted by the drawn names: the order in which names were drawn would tell."""
        rows = [{"called": called, "student": real} for real, called in self.drawn.items()]
        write_table(self.path, COLUMNS, sorted(rows, key=lambda row: row["called"]))


def real_names(folder: Path) -> Mapping[str, str]:
    """Drawn name → real name, as `names.csv` in this folder has it; nothing where there is none."""
    path = folder / FILE
    if not path.is_file():
        return {}
    rows = read_table(path, COLUMNS, "table of names, names.csv")
    return {row["called"]: row["student"] for row in rows}
