"""What a file is that is no notebook: one sentence for each kind.

In:  the bytes of a file, and its text once that is decoded. Out: a kind and a sentence, or None if
     it may be a notebook.

`RULES` is an ordered table: the first rule that knows the file names it. `reader` asks twice.
Before it decodes it gives the bytes alone; where the JSON is broken it gives the text as well.
PyTorch has no counterpart. `file` (libmagic) knows more kinds; these are the ones that learners
hand in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from course_lib.syntax import parse

_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})(\s|$)")
"""A line with which git marks one side of a conflict."""
_TAG = re.compile(
    r"\s*(<\?xml[^>]*\?>)?\s*(<!--.*?-->)?\s*<(!doctype html|html|head|body)\b", re.I | re.S
)


@dataclass(frozen=True)
class Rule:
    """`of_bytes` looks at the file as it is, `of_text` at its text.

    Each gives the sentence, or "" for another kind of file."""

    kind: str
    of_bytes: Callable[[bytes], str] | None = None
    of_text: Callable[[str], str] | None = None


def what_it_is(data: bytes, text: str) -> tuple[str, str] | None:
    """The kind and the sentence of the first rule that knows the file.

    With no text, only the bytes are looked at."""
    for rule in RULES:
        sentence = rule.of_bytes(data) if rule.of_bytes else ""
        if not sentence and text and rule.of_text:
            sentence = rule.of_text(text)
        if sentence:
            return rule.kind, sentence
    return None


# ---- by the bytes --------------------------------------------------------------------------------


def empty(data: bytes) -> str:
    """No bytes, or none that say anything: zeros, blanks, and the marks of UTF-8 and UTF-16."""
    if not data:
        return "the file is empty. Save the notebook again and look at its size."
    if not data.strip(b"\0 \t\r\n\xef\xbb\xbf\xff\xfe"):
        return "the file is empty: it holds only blanks or zeros. Restore an earlier version."
    return ""


def packed(data: bytes) -> str:
    """An archive, by the bytes that each kind begins with."""
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        # Word's and LibreOffice's documents are zips, too. The name of a file at the front tells.
        if b"word/" in data[:4000] or b"opendocument" in data[:4000]:
            return "it is a document of a word processor. Hand in the .ipynb file itself."
        return "it is a zip file. Unpack it and take the .ipynb file in it."

    names = {b"\x1f\x8b": "gzip", b"7z\xbc\xaf": "7z", b"Rar!": "rar", b"BZh": "bzip2"}
    names |= {b"\xfd7zXZ": "xz"}
    for start, name in names.items():
        if data.startswith(start):
            return f"it is a {name} file. Unpack it and take the .ipynb file in it."

    # (In a tar file it is the header of the first file that has a mark.)
    if data[257:262] == b"ustar":
        return "it is a tar file. Unpack it and take the .ipynb file in it."

    return ""


def picture_or_pdf(data: bytes) -> str:
    """A print or a screenshot, by the bytes that each kind begins with."""
    names = {b"%PDF": "PDF", b"\x89PNG": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF"}
    for start, name in names.items():
        if data.startswith(start):
            return f"it is a {name} file. Hand in the .ipynb file, not a print or a picture of it."
    return ""


def mac_leftover(data: bytes) -> str:
    """The beginnings of AppleDouble and AppleSingle files."""
    if data.startswith((b"\x00\x05\x16\x07", b"\x00\x05\x16\x00")):
        return "it is a file that a Mac leaves beside another one (`._NAME`). Take the one without `._`."
    return ""


# ---- by the text ---------------------------------------------------------------------------------


def conflict(text: str) -> str:
    """The marks that a merge of git leaves in a file."""
    # (A line of `=======` alone may be a heading's.)
    marked_lines = [n for n, line in enumerate(text.splitlines(), 1) if _CONFLICT.match(line)]
    if not marked_lines or not re.search(r"^(<{7}|>{7})(\s|$)", text, re.M):
        return ""
    return (
        f"it has merge-conflict marks at line {marked_lines[0]} (`<<<<<<<`, `=======`, `>>>>>>>`). "
        "Choose one side of each conflict, or take the file of one side whole "
        "(`git checkout --ours FILE`)."
    )


def web_page(text: str) -> str:
    """What a browser saves of a page that shows a notebook."""
    if _TAG.match(text):
        return "it is a web page. Download the notebook itself (on GitHub: the button Raw)."
    if text.startswith("<?xml"):
        return "it is XML or HTML. Hand in the .ipynb file itself."
    return ""


def git_pointer(text: str) -> str:
    """What lies in a clone in place of a large file, until Git LFS has fetched that."""
    if text.startswith("version https://git-lfs"):
        return "it is a pointer of Git LFS. Run `git lfs pull`."
    return ""


def shortcut(text: str) -> str:
    """A link file of Windows, a Mac or a cloud drive."""
    link = text.startswith(("[InternetShortcut]", "[Desktop Entry]"))
    if link or (text.startswith("{") and '"doc_id"' in text[:400]):
        return "it is a link to a file, not the file. Download the notebook itself."
    return ""


def rich_text(text: str) -> str:
    if text.startswith(r"{\rtf"):
        return "it is an RTF document. Hand in the .ipynb file itself."
    return ""


def error_message(text: str) -> str:
    """What a server answers in place of a file."""
    if text.startswith("{") and re.search(r'^\{\s*"(message|error|errors|detail)"\s*:', text):
        return "it is an error message of a server, not the file. Download the notebook again."
    return ""


def script(text: str) -> str:
    """Python code that does not stand in a notebook."""
    if text.startswith(("{", "[", '"')):
        return ""
    sign = r"(?m)^(import |from \w+ import|def |class |@|# %%|#!.*python|%%?\w+)"
    code = bool(re.search(sign, text))

    # A single word is Python, too: an assignment is asked for.
    try:
        code = code or ("=" in text and bool(parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass

    if not code:
        return ""

    return "it is a Python script. Hand in the notebook (.ipynb) in which the cells are."


def table(text: str) -> str:
    """Its first three lines have as many commas each."""
    lines = text.splitlines()[:3]
    if len(lines) == 3 and len({line.count(",") for line in lines}) == 1 and lines[0].count(","):
        return "it is a table (CSV). Hand in the .ipynb file."
    return ""


def no_text(data: bytes) -> str:
    """Bytes that are no text in any encoding."""
    # Control characters, but for tabs and ends of lines: a tenth of them is no text. In UTF-16
    # every other byte of English is 0.
    start = data[:2000]
    odd = sum(byte < 9 or 13 < byte < 32 for byte in start)
    utf_16 = start.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")) or (
        start.count(0) * 3 >= len(start)
    )
    if odd * 10 > len(start) and not utf_16:
        return "it is not text (UTF-8) at all. Hand in the .ipynb file."
    return ""


def plain_text(text: str) -> str:
    if not text.startswith(("{", "[", '"')):
        return "it is text, but not JSON: a notebook begins with `{`. Hand in the .ipynb file."
    return ""


# The surer a sign is, the earlier it is looked for: "it is text" comes last.
RULES = (
    Rule("empty", of_bytes=empty),
    Rule("zip", of_bytes=packed),
    Rule("picture", of_bytes=picture_or_pdf),
    Rule("mac", of_bytes=mac_leftover),
    Rule("binary", of_bytes=no_text),
    Rule("conflict", of_text=conflict),
    Rule("page", of_text=web_page),
    Rule("pointer", of_text=git_pointer),
    Rule("link", of_text=shortcut),
    Rule("document", of_text=rich_text),
    Rule("server", of_text=error_message),
    Rule("script", of_text=script),
    Rule("table", of_text=table),
    Rule("text", of_text=plain_text),
)
