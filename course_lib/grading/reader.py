"""One reader for every notebook: what can be repaired is repaired, what cannot is named.

In:  a path, or the bytes of a file. Out: a `Notebook` of format 4.5 that is safe to run, or
     `NotReadable`.

    nb = read_notebook(path)                  # for marking: without outputs
    nb = read_notebook(path, outputs=True)    # for files that are written again: with the outputs
                                              # that are well formed
    nb = notebook_from(data, "ann.ipynb")     # the same from bytes; the name is for the message

Every command reads through here, so that they agree about every file. Editors and services write
notebooks in many ways. A cell's code, its type, its id and its metadata are taken from whatever is
there; nothing is validated that marking does not need.
PyTorch has no counterpart. nbformat's own reader (`nbformat.reads`) refuses or warns where this one
repairs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat

from .errors import NotReadable
from .other_files import what_it_is

Notebook = Any  # nbformat.NotebookNode: a dict with attributes

LARGEST = 20 << 20  # letters of a notebook without its outputs
LARGEST_FILE = 256 << 20  # bytes of a file that is opened at all

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KNOWN_TYPES = ("code", "markdown", "raw")

# What format 4 says of entries of the metadata; others may be anything.
_METADATA: dict[str, type] = {
    "kernelspec": dict,
    "language_info": dict,
    "title": str,
    "authors": list,
    "orig_nbformat": int,
}
_CELL_METADATA: dict[str, type] = {
    "collapsed": bool,
    "tags": list,
    "name": str,
    "format": str,
    "jupyter": dict,
    "execution": dict,
}

# what a byte order mark at the start of a file says; the longer ones first
_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


def read_notebook(path: Path, outputs: bool = False) -> Notebook:
    """The notebook at `path`."""
    try:
        if path.is_dir():
            raise NotReadable(str(path), "folder", "it is a folder. Name the notebook in it.")
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise NotReadable(str(path), "large", too_large(size, LARGEST_FILE))
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotReadable(str(path), "missing", "it does not exist.") from None
    except OSError as error:
        why = f"it cannot be opened ({error.strerror}). Look at the rights of the file."
        raise NotReadable(str(path), "closed", why) from None

    return notebook_from(data, str(path), outputs)


def notebook_from(data: bytes, name: str, outputs: bool = False) -> Notebook:
    """The notebook in a file's bytes. `name` is what a message calls the file."""
    if other := what_it_is(data, ""):
        raise NotReadable(name, *other)

    text = text_of(data)
    content = content_of(text, data, name)
    nb = notebook_of(content, outputs)

    letters = sum(len(cell.source) for cell in nb.cells)
    letters += len(json.dumps([cell.metadata for cell in nb.cells], default=str))
    if letters > LARGEST:
        raise NotReadable(name, "large", too_large(letters, LARGEST))
    return nb


def too_large(size: int, limit: int) -> str:
    """Why a notebook of this size is not read, and what to do."""
    if limit == LARGEST:
        return (
            f"without its outputs it is larger than {limit >> 20} MiB ({size >> 20} MiB). "
            "Take large data out of its cells."
        )
    return f"the file is larger than {limit >> 20} MiB ({size >> 20} MiB). Clear its outputs."


# ---- bytes → text --------------------------------------------------------------------------------


def text_of(data: bytes) -> str:
    """The file's text, in whichever encoding an editor saved it.

    A letter that cannot be read becomes �."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")

    # UTF-16 without a mark: each second byte of ASCII text is 0
    start = data[:64]
    if start[1:2] == b"\0" and start[0:1].strip():
        return data.decode("utf-16-le", errors="replace")
    if start[0:1] == b"\0" and start[1:2].strip(b"\0 \n"):
        return data.decode("utf-16-be", errors="replace")

    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass

    # some letters are UTF-8: a few bytes are spoilt. None is: it is the code page of a Western
    # Windows.
    spoilt = data.decode("utf-8", errors="replace")
    if any(ord(letter) > 127 and letter != "\ufffd" for letter in spoilt):
        return spoilt
    return data.decode("cp1252", errors="replace")


# ---- text → JSON ---------------------------------------------------------------------------------


def content_of(text: str, data: bytes, name: str) -> dict[str, Any]:
    """The JSON object of the file, which has a list of cells; else `NotReadable` says what the file
    is."""
    text = text.lstrip("\ufeff \t\r\n").rstrip("\0")
    try:
        # a shorter notebook may have been written over a longer one: the rest behind its end is
        # left out
        content, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except json.JSONDecodeError as error:
        kind, why = what_it_is(data, text) or broken_at(error)
        raise NotReadable(name, kind, why) from None
    except RecursionError:
        why = "its JSON is nested too deeply. Restore an earlier version of the file."
        raise NotReadable(name, "json", why) from None
    except ValueError as error:  # a number with thousands of digits
        raise NotReadable(
            name, "json", f"its JSON holds a value that is not usable ({error})."
        ) from None

    # what Jupyter's server sends has the notebook inside
    if isinstance(content, dict) and content.get("type") == "notebook":
        content = content.get("content")
    if isinstance(content, dict) and (isinstance(content.get("cells"), list) or sheets(content)):
        return content
    kind, why = what_it_is(data, text) or ("json", "it is JSON, but it has no list of cells.")
    raise NotReadable(name, kind, why)


def broken_at(error: json.JSONDecodeError) -> tuple[str, str]:
    """Where the JSON ends too early or goes wrong."""
    end = len(error.doc.rstrip())
    lines = error.doc.count("\n", 0, end) + 1
    # An error in the last letters (a `true` that is not whole, a comma) is the end that is missing.
    if error.msg.startswith("Unterminated string") or end - error.pos <= 6:
        why = (
            f"it is cut short at line {lines}: the end of the file is not there. "
            "Restore an earlier version, or save it again."
        )
        return "cut", why

    why = (
        f"its JSON is broken at line {error.lineno} ({error.msg}). "
        "Restore an earlier version, or mend that line in a text editor."
    )

    return "json", why


def sheets(content: dict[str, Any]) -> list[dict[str, Any]]:
    """The sheets of a notebook of format 3 (there is one, but the format allows more)."""
    worksheets = content.get("worksheets")
    worksheets = worksheets if isinstance(worksheets, list) else []
    return [s for s in worksheets if isinstance(s, dict) and isinstance(s.get("cells"), list)]


# ---- JSON → notebook -----------------------------------------------------------------------------


def notebook_of(content: dict[str, Any], outputs: bool) -> Notebook:
    """A notebook of format 4.5 with the cells of `content`, each id once."""
    raw = content.get("cells")
    if not isinstance(raw, list):
        raw = [cell for sheet in sheets(content) for cell in sheet["cells"]]

    cells = [cell_of(cell, outputs) for cell in raw if isinstance(cell, dict)]
    give_ids(cells)
    return nbformat.from_dict(
        {
            "cells": cells,
            "metadata": metadata_of(content.get("metadata"), _METADATA),
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )


def cell_of(raw: dict[str, Any], outputs: bool) -> dict[str, Any]:
    """One cell as format 4.5 has it, from whatever an editor wrote."""
    metadata = metadata_of(raw.get("metadata"), _CELL_METADATA)
    # format 3 calls the source of a code cell `input`
    source = source_of(raw["source"] if "source" in raw else raw.get("input"))
    kind = type_of(raw, metadata)
    cell = {"cell_type": kind, "id": raw.get("id"), "metadata": metadata, "source": source}

    if raw.get("cell_type") == "heading":
        level = raw.get("level")
        cell["source"] = "#" * (level if type(level) is int and 0 < level < 7 else 1) + " " + source
    if kind == "code":
        count = raw.get("execution_count")
        cell["execution_count"] = count if outputs and type(count) is int else None
        cell["outputs"] = outputs_of(raw.get("outputs")) if outputs else []
    elif isinstance(raw.get("attachments"), dict):
        cell["attachments"] = whole(raw["attachments"])
    return cell


def metadata_of(value: Any, known: dict[str, type]) -> dict[str, Any]:
    """The metadata without entries that format 4 allows in another form only."""
    value = whole(value) if isinstance(value, dict) else {}
    metadata: dict[str, Any] = {
        k: v for k, v in value.items() if isinstance(v, known.get(k, object))
    }
    if isinstance(tags := metadata.get("tags"), list):
        metadata["tags"] = list(dict.fromkeys(tag for tag in tags if isinstance(tag, str)))

    for key in ("kernelspec", "language_info"):
        entry = metadata.get(key)
        if known is _METADATA and entry is not None and not isinstance(entry.get("name"), str):
            del metadata[key]

    if known is _METADATA and "kernelspec" in metadata:
        metadata["kernelspec"].setdefault("display_name", metadata["kernelspec"]["name"])

    return metadata


def type_of(raw: dict[str, Any], metadata: dict[str, Any]) -> str:
    """The cell's type.

    One that format 4 does not know is code if the cell has what only code has. `heading` and `html`
    are types of format 3. What nbgrader marks may be graded, and would be lost in a `raw` cell."""
    kind = str(raw.get("cell_type")).strip().lower()
    if kind in _KNOWN_TYPES:
        return kind
    if kind in ("heading", "html"):
        return "markdown"
    only_code = "outputs" in raw or "execution_count" in raw or "input" in raw
    if only_code or isinstance(metadata.get("nbgrader"), dict):
        return "code"
    return "raw"


def source_of(value: Any) -> str:
    """A cell's text, which is a string or a list of lines."""
    if isinstance(value, list):
        lines = [line for line in value if isinstance(line, str)]
        # a tool that splits a text into lines may have dropped the line ends
        bare = len(lines) > 1 and not any(line.endswith(("\n", "\r")) for line in lines[:-1])
        value = ("\n" if bare else "").join(lines)
    if not isinstance(value, str):
        return ""
    value = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return whole(value.lstrip("\ufeff"))


def give_ids(cells: list[dict[str, Any]]) -> None:
    """An id that is missing, odd or there already is replaced by one that nobody has."""
    used_ids: set[str] = set()
    for cell in cells:
        name = cell["id"]
        if isinstance(name, str) and _ID.fullmatch(name) and name not in used_ids:
            used_ids.add(name)
        else:
            cell["id"] = None

    for index, cell in enumerate(cells):
        if cell["id"] is None:
            new = f"given-id-{index}"
            tries = 0
            while new in used_ids:
                new = f"given-id-{index}-{tries}"
                tries += 1
            cell["id"] = new
            used_ids.add(new)


def whole(value: Any) -> Any:
    """`value` without halves of letters (lone surrogates), which cannot be written to a file or
    sent to a kernel."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


# ---- outputs, for files that are written again ---------------------------------------------------


def outputs_of(value: Any) -> list[dict[str, Any]]:
    """The outputs that are well formed; the others are left out."""
    outputs = value if isinstance(value, list) else []
    return [joined(whole(output)) for output in outputs if well_formed(output)]


def well_formed(output: Any) -> bool:
    """Whether format 4 allows this output."""
    if not isinstance(output, dict):
        return False
    kind = output.get("output_type")
    if kind == "stream":
        return isinstance(output.get("name"), str) and isinstance(output.get("text"), str | list)
    if kind in ("display_data", "execute_result"):
        return isinstance(output.get("data"), dict) and isinstance(output.get("metadata"), dict)
    if kind == "error":
        texts = isinstance(output.get("ename"), str) and isinstance(output.get("evalue"), str)
        return texts and isinstance(output.get("traceback"), list)

    return False


def joined(output: dict[str, Any]) -> dict[str, Any]:
    """The output with its lists of lines as texts, as `nbformat.reads` gives it."""
    cell = {"cell_type": "code", "source": "", "outputs": [output]}
    nb = nbformat.from_dict({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]})
    return dict(nbformat.v4.rwbase.rejoin_lines(nb).cells[0].outputs[0])
