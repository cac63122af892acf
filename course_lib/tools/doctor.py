"""`course doctor`: what this machine has, which tier it gets, what is missing and how to get it.

In:  the machine, through `doctor_looks`. Out: `Finding`s (item, found, status, advice), a `Tier`,
     and a `Report` that prints both.

In a terminal `course doctor` speaks the chosen language; a cell prints English in every edition.

A broken install is what one calls a doctor for, so a look that raises becomes a finding of its own
and never a traceback.
"""

from __future__ import annotations

import html
import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from course_lib.grading.terminal import filled, wrapped
from course_lib.languages import phrase, translate_message
from course_lib.tools import doctor_looks as looks
from course_lib.tools.doctor_looks import Finding


@dataclass(frozen=True)
class Tier:
    """How the course's kernels run here.

    Every lesson runs on each tier, with the same assertions."""

    name: Literal["CPU", "simulated GPU", "GPU"]
    meaning: str

    def __str__(self) -> str:
        return f"Tier: {self.name}. {self.meaning}"


@dataclass(frozen=True)
class Report:
    """All findings and the tier; prints as a table, and shows as one in a notebook."""

    findings: tuple[Finding, ...]
    tier: Tier

    @property
    def ok(self) -> bool:
        """Nothing required is missing."""
        return not any(finding.blocks for finding in self.findings)

    def __str__(self) -> str:
        return f"{as_text(self.findings)}\n\n{self.tier}"

    __repr__ = __str__

    def translated(self) -> str:
        """The text in the chosen language. What no catalog has stays English."""
        tier = phrase(
            "Tier: {name}. {meaning}",
            name=translate_message(self.tier.name),
            meaning=translate_message(self.tier.meaning),
        )
        head = (phrase("item"), phrase("found"), phrase("status"), phrase("how to get it"))
        return f"{as_text(self.findings, head=head, say=translate_message)}\n\n{tier}"

    def _repr_html_(self) -> str:
        return as_html(self.findings, self.tier)


def checkup() -> list[Finding]:
    """Look at everything the course uses on this machine."""
    findings = []
    for look in looks.LOOKS:
        findings += carefully(look)
    return findings


def carefully(look: Callable[[], list[Finding]]) -> list[Finding]:
    """A look that raises is a finding too."""
    try:
        return look()
    except Exception as error:  # whatever is broken on this machine
        item = look.__name__.removeprefix("look_at_").replace("_", " ")
        error_text = f"{error.__class__.__name__}: {error}".splitlines()[0][:200]
        return [Finding(item, "could not look", "note", error_text)]


def tier() -> Tier:
    """GPU where torch and Triton can use one; simulated GPU where Triton is; else CPU."""
    from course_lib.config import find_cxx

    triton = looks.version_of("triton") is not None
    cpp = "C++ kernels run on the CPU"
    if find_cxx() is None:
        cpp = "There is no C++ compiler, so programs on the CPU run operation by operation"

    if triton and looks.gpu_name():
        return Tier("GPU", f"{cpp}; Triton kernels run on the GPU.")
    if triton:
        meaning = f"{cpp}; Triton kernels run in Triton's interpreter, on the CPU."
        return Tier("simulated GPU", meaning)
    return Tier("CPU", f"{cpp}. Triton is not here, so Triton kernels are shown and not run.")


def report() -> Report:
    """Findings and tier together: what `course doctor` prints."""
    return Report(tuple(checkup()), tier())


def main() -> int:
    """Print the report; 1 if something required is missing."""
    full_report = report()
    print(full_report.translated())
    return 0 if full_report.ok else 1


# ---- the table -----------------------------------------------------------------------------------


HEAD = ("item", "found", "status", "how to get it")
WIDEST, NARROWEST = 120, 60
"""The table's characters: what a wide terminal gets, and what it needs at least."""
ITEM, STATUS = 17, 9
"""The characters of the two columns whose texts are short."""


def widths_in(columns: int) -> tuple[int, int, int, int]:
    """The characters of each column in a terminal that is so wide.

    What was found gets two parts, advice three."""
    for_texts = min(max(columns, NARROWEST), WIDEST) - ITEM - STATUS
    width_of_finding = for_texts * 2 // 5
    return ITEM, width_of_finding, STATUS, for_texts - width_of_finding


def as_text(
    findings: tuple[Finding, ...],
    columns: int | None = None,
    head: tuple[str, str, str, str] = HEAD,
    say: Callable[[str], str] = str,
) -> str:
    """The table for a terminal, as wide as that is (or as `columns` says). `say` translates."""
    if columns is None:
        columns = shutil.get_terminal_size(fallback=(WIDEST, 24)).columns
    widths = widths_in(columns)
    lines = [*text_row(widths, *head), "─" * sum(widths)]
    for finding in findings:
        row = (finding.item, finding.found, finding.status, finding.advice)
        lines += text_row(widths, *map(say, row))
    return "\n".join(lines)


def text_row(widths: tuple[int, ...], *columns: str) -> list[str]:
    """The lines of one row: a long text goes on in the next line of its column."""
    columns_of_lines = []
    for text, width in zip(columns, widths, strict=True):
        columns_of_lines.append(wrapped(text, width - 2) or [""])

    rows = []
    for cells in itertools.zip_longest(*columns_of_lines, fillvalue=""):
        padded = [filled(cell, width) for cell, width in zip(cells, widths, strict=True)]
        rows.append("".join(padded).rstrip())
    return rows


def as_html(findings: tuple[Finding, ...], where: Tier) -> str:
    """A table in the notebook's own colours; the status is a word, so that it needs no colour."""
    mark = {"ok": "✓ ok", "note": "• note", "missing": "✗ missing"}
    rows = [
        html_row("td", finding.item, finding.found, mark[finding.status], finding.advice)
        for finding in findings
    ]
    body = "\n".join(rows)
    caption = f"<b>Tier: {html.escape(where.name)}.</b> {html.escape(where.meaning)}"
    head = html_row("th", *HEAD)
    return f"<table>\n<caption>{caption}</caption>\n{head}\n{body}\n</table>"


def html_row(tag: str, *columns: str) -> str:
    cells = [f'<{tag} style="text-align:left">{html.escape(text)}</{tag}>' for text in columns]
    return f"<tr>{''.join(cells)}</tr>"


__all__ = ["Finding", "Report", "Tier", "checkup", "main", "report", "tier"]
