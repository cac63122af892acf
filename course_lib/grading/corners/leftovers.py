"""Files that a Mac, a Windows, an editor or a browser leaves in a folder: nobody handed them in.

In:  the name of one file or folder. Out: what it is, or "".
The PyTorch counterpart: none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Leftover:
    """What a name that matches `pattern` is."""

    pattern: str
    about: str


RULES = (
    Leftover(r"__MACOSX|\._.*|\.DS_Store|\.AppleDouble|\.Spotlight-V100|\.Trashes|\.fseventsd|Icon\r", "a Mac"),
    Leftover(r"Thumbs\.db(:encryptable)?|ehthumbs\.db|desktop\.ini|\$RECYCLE\.BIN|System Volume Information", "Windows"),
    Leftover(r".*:Zone\.Identifier", "Windows"),
    Leftover(r"\.ipynb_checkpoints|\.virtual_documents|.*-checkpoint\.ipynb|\.~.*\.ipynb", "Jupyter"),
    Leftover(r"~\$.*|\.~lock\..*#|.*~|\.?#.*#|\..*\.sw[a-p]|.*\.(tmp|bak|crdownload|part)", "an editor or a browser"),
    Leftover(r"__pycache__|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.venv|venv|node_modules", "Python"),
    Leftover(r"\.git|\.gitignore|\.gitattributes|\.github|\.svn|\.hg", "a version control system"),
    Leftover(r"\.Trash-\d+|lost\+found|\.directory|\.nfs[0-9a-f]+|@eaDir|\.fuse_hidden.*", "Linux"),
    Leftover(r"\.idea|\.vscode|\.cache|\.ipython|\.jupyter|\.local|\.config", "a program"),
    Leftover(r"\.history|\.earlier|collected\.csv", "this course's commands"),
)  # fmt: skip


def leftover(name: str) -> str:
    """A few words about a file or folder that is no part of a submission, or ""."""
    for rule in RULES:
        if re.fullmatch(rule.pattern, name, re.IGNORECASE | re.DOTALL):
            return f"a leftover of {rule.about}"
    if name.startswith("."):
        return "hidden"
    return ""
