"""One reader for every notebook: what editors and services write is accepted, and what is no notebook is named."""

from __future__ import annotations

import copy
import json

import nbformat
import pytest
from tiny_course import solution

from course_lib.grading.errors import CourseError
from course_lib.grading.notebooks import read, to_text
from course_lib.grading.reader import LARGEST, NotReadable, notebook_from, read_notebook


def plain() -> dict:
    """A notebook as a dict of JSON, with an accent, a picture sign and an output."""
    nb = json.loads(to_text(solution()))
    for cell in nb["cells"]:
        cell["source"] = "".join(cell["source"])
    nb["cells"][0]["source"] = "# Größe → 😀"
    nb["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "hello"}]
    return nb


def as_bytes(nb: dict) -> bytes:
    return json.dumps(nb, indent=1, ensure_ascii=False).encode()


def code_of(nb) -> list[str]:
    return [cell.source for cell in nb.cells if cell.cell_type == "code"]


WANTED = code_of(nbformat.from_dict(plain()))


# ---- repaired -------------------------------------------------------------------------------------------------------


def each_cell(change):
    """A repair case that changes every cell."""

    def changed(nb: dict) -> None:
        for number, cell in enumerate(nb["cells"]):
            change(cell, number)

    return changed


def set_id(value):
    def change(cell, number):
        cell["id"] = value(number)

    return each_cell(change)


def drop(key):
    def change(cell, number):
        cell.pop(key, None)

    return each_cell(change)


def set_outputs(*outputs):
    def change(nb):
        nb["cells"][1]["outputs"] = list(outputs)

    return change


def to_format_3(nb: dict) -> None:
    old = nbformat.convert(nbformat.from_dict(copy.deepcopy(nb)), 3)
    nb.clear()
    nb.update(json.loads(json.dumps(old)))


def lines_of_source(keepends: bool):
    def change(cell, number):
        cell["source"] = cell["source"].splitlines(keepends=keepends)

    return each_cell(change)


def windows_lines(cell, number):
    cell["source"] = cell["source"].replace("\n", "\r\n")


def wrapped(nb: dict) -> None:
    inside = dict(nb)
    nb.clear()
    nb.update({"type": "notebook", "name": "x.ipynb", "content": inside})


def update(**values):
    def change(nb):
        nb.update(values)

    return change


CHANGES = {
    "ids in format 4.2": update(nbformat_minor=2),
    "format 4.0": update(nbformat_minor=0),
    "format 4.99": update(nbformat_minor=99),
    "format 5": update(nbformat=5),
    "format as text": update(nbformat="4"),
    "no format": lambda nb: (nb.pop("nbformat"), nb.pop("nbformat_minor")),
    "format 3": to_format_3,
    "ids missing": drop("id"),
    "ids doubled": set_id(lambda n: "same"),
    "ids null": set_id(lambda n: None),
    "ids with blanks": set_id(lambda n: f"a b/{n}"),
    "ids too long": set_id(lambda n: f"{n}" * 65),
    "ids numbers": set_id(lambda n: n),
    "ids a list": set_id(lambda n: [n]),
    "no metadata of the notebook": lambda nb: nb.pop("metadata"),
    "metadata null": update(metadata=None),
    "metadata of a cell missing": lambda nb: nb["cells"][1].pop("metadata"),
    "another kernel": update(metadata={"kernelspec": {"name": "julia-1.9", "language": "julia"}}),
    "a kernel without a name": update(metadata={"kernelspec": {}}),
    "tags null": lambda nb: nb["cells"][1]["metadata"].update(tags=None, collapsed="no", name=3),
    "output without name": set_outputs({"output_type": "stream", "text": "hello"}),
    "output of unknown kind": set_outputs({"output_type": "sixel", "x": 1}),
    "output a text": set_outputs("hello"),
    "output without data": set_outputs({"output_type": "execute_result"}),
    "outputs null": lambda nb: nb["cells"][1].update(outputs=None),
    "outputs missing": drop("outputs"),
    "output of 25 MiB": set_outputs(
        {"output_type": "stream", "name": "stdout", "text": "x" * (25 << 20)}
    ),
    "count a text": lambda nb: nb["cells"][1].update(execution_count="*"),
    "source a list of lines": lines_of_source(True),
    "source a list without line ends": lines_of_source(False),
    "source with windows lines": each_cell(windows_lines),
    "a cell of unknown type": lambda nb: nb["cells"].append(
        {"cell_type": "sql", "metadata": {}, "source": "select 1"}
    ),
    "code in capitals": lambda nb: nb["cells"][1].update(cell_type="Code"),
    "a cell that is a text": lambda nb: nb["cells"].append("x"),
    "the answer of Jupyter's server": wrapped,
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_an_editor_or_a_service_writes_is_repaired(name):
    nb = plain()
    CHANGES[name](nb)
    got = notebook_from(as_bytes(nb), "a.ipynb")

    assert code_of(got) == WANTED
    nbformat.validate(got)
    assert all(cell.outputs == [] for cell in got.cells if cell.cell_type == "code")
    if name not in ("format 3", "metadata of a cell missing"):  # which have less of it
        graded = [c.metadata.nbgrader.grade_id for c in got.cells if "nbgrader" in c.metadata]
        assert graded == ["double", "test_double", "biggest", "test_biggest"]


TEXT = as_bytes(plain()).decode()
ENCODINGS = {
    "utf-8": TEXT.encode(),
    "utf-8 with a mark": TEXT.encode("utf-8-sig"),
    "utf-16 little with a mark": b"\xff\xfe" + TEXT.encode("utf-16-le"),
    "utf-16 big with a mark": b"\xfe\xff" + TEXT.encode("utf-16-be"),
    "utf-16 little": TEXT.encode("utf-16-le"),
    "utf-16 big": TEXT.encode("utf-16-be"),
    "utf-32": TEXT.encode("utf-32"),
    "windows line ends": TEXT.replace("\n", "\r\n").encode(),
    "mac line ends": TEXT.replace("\n", "\r").encode(),
    "blank lines before": b"\n \n" + TEXT.encode(),
    "zeros after": TEXT.encode() + b"\0" * 500,
    "the rest of a longer file after": TEXT.encode() + b'lt": 1}\n ]\n}\n',
    "ascii escapes": json.dumps(plain()).encode(),
    "one line": json.dumps(plain(), ensure_ascii=False).encode(),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_gives_the_same_text(name):
    got = notebook_from(ENCODINGS[name], "a.ipynb")
    assert code_of(got) == WANTED
    assert got.cells[0].source == "# Größe → 😀"


def test_a_western_windows_page_and_a_spoilt_byte_are_read_too():
    nb = plain()
    nb["cells"][0]["source"] = "# Größe"
    text = json.dumps(nb, ensure_ascii=False)
    got = notebook_from(text.encode("cp1252"), "a.ipynb")
    assert got.cells[0].source == "# Größe"

    spoilt = TEXT.encode().replace("ö".encode(), b"\xf6")
    got = notebook_from(spoilt, "a.ipynb")
    assert got.cells[0].source == "# Gr�ße → 😀"


def test_half_a_letter_becomes_a_sign_and_two_halves_become_their_letter():
    nb = plain()
    nb["cells"][1]["source"] = "'HALF' + 'PAIR'"
    data = as_bytes(nb).replace(b"HALF", rb"\ud800").replace(b"PAIR", rb"\ud83d\ude00")
    assert code_of(notebook_from(data, "a.ipynb"))[0] == "'�' + '😀'"


def test_a_heading_of_format_3_is_a_heading():
    old = {"worksheets": [{"cells": [{"cell_type": "heading", "level": 2, "source": ["A"]}]}]}
    got = notebook_from(as_bytes(old | {"nbformat": 3}), "a.ipynb")
    assert (got.cells[0].cell_type, got.cells[0].source) == ("markdown", "## A")


# ---- outputs, where a file is written again -------------------------------------------------------------------------


def test_who_writes_a_notebook_again_keeps_its_outputs_that_are_well_formed(tmp_path):
    nb = plain()
    good = {"output_type": "stream", "name": "stdout", "text": "a\nb"}
    bad = {"output_type": "stream", "text": "no name"}
    nb["cells"][1]["outputs"] = [good, bad]
    path = tmp_path / "a.ipynb"
    path.write_bytes(as_bytes(nb))

    assert [dict(output) for output in read(path).cells[1].outputs] == [good]
    assert read_notebook(path).cells[1].outputs == []


def test_a_stored_notebook_comes_back_to_the_byte(root):
    for path in sorted((root / "solutions").glob("*/*.ipynb"))[:3]:
        assert to_text(read(path)) == path.read_text(encoding="utf-8")


# ---- named ----------------------------------------------------------------------------------------------------------


def conflict() -> bytes:
    lines = TEXT.splitlines()
    lines[9:10] = ["<<<<<<< HEAD", lines[9], "=======", ' "x"', ">>>>>>> theirs"]
    return "\n".join(lines).encode()


BROKEN = {
    "nothing": (b"", "empty", "empty"),
    "blank lines": (b"\n\n  \n", "empty", "empty"),
    "zeros": (b"\0" * 4096, "empty", "empty"),
    "a mark alone": (b"\xef\xbb\xbf", "empty", "empty"),
    "cut in a string": (TEXT.encode()[:900], "cut", "cut short at line "),
    "cut after a comma": (TEXT[: TEXT.index(",", 800) + 1].encode(), "cut", "cut short at line "),
    "cut in a word": (b'{\n "cells": [\n  {\n   "x": nul', "cut", "cut short at line 4"),
    "cut, in utf-16": (TEXT[:900].encode("utf-16"), "cut", "cut short at line "),
    "conflict": (conflict(), "conflict", "conflict marks at line 10"),
    "conflict, windows lines": (
        conflict().replace(b"\n", b"\r\n"), "conflict", "conflict marks at line 10"),
    "a quote left out": (
        TEXT.replace('"cell_type"', '"cell_type', 1).encode(), "json", "broken at line "),
    "a comma too many": (TEXT.replace("],", "],,", 1).encode(), "json", "broken at line "),
    "a web page": (b"<!DOCTYPE html>\n<html><body>Log in</body></html>", "page", "web page"),
    "a web page after blanks": (b"\n\n  <html lang='de'>", "page", "web page"),
    "xml": (b"<?xml version='1.0'?><a/>", "page", "XML"),
    "a script": (b"import torch\n\ndef f(x):\n    return x\n", "script", "Python script"),
    "a script with cells": (b"# %%\nx = 3\n", "script", "Python script"),
    "one line of code": (b"x = 3\n", "script", "Python script"),
    "a zip": (b"PK\x03\x04" + b"\0" * 60, "zip", "zip file"),
    "a word document": (b"PK\x03\x04..word/document.xml", "zip", "word processor"),
    "gzip": (b"\x1f\x8b\x08" + bytes(range(60)), "zip", "gzip"),
    "pdf": (b"%PDF-1.7\n...", "picture", "PDF"),
    "png": (b"\x89PNG\r\n\x1a\n", "picture", "PNG"),
    "a mac's leftover": (b"\0\5\x16\7" + b"\0" * 60, "mac", "Mac"),
    "a pickle": (bytes(range(256)), "binary", "not text (UTF-8)"),
    "a pointer of git lfs": (b"version https://git-lfs.github.com/spec/v1\n", "pointer", "LFS"),
    "a link": (b"[InternetShortcut]\nURL=https://x\n", "link", "link to a file"),
    "a link to a cloud": (b'{"url": "https://x", "doc_id": "1"}', "link", "link to a file"),
    "rtf": (rb"{\rtf1\ansi x}", "document", "RTF"),
    "a server's answer": (b'{"message": "Not Found"}', "server", "error message"),
    "a table": (b"a,b\n1,2\n3,4\n", "table", "CSV"),
    "prose": (b"Dear teacher, here is my work.\n", "text", "not JSON"),
    "a list": (b"[]", "json", "no list of cells"),
    "an object": (b'{"cells": 3}', "json", "no list of cells"),
    "a number of many digits": (b'{"x": ' + b"1" * 5000 + b"}", "json", "not usable"),
    "nested deeply": (b'{"cells": ' + b"[" * 100_000, "json", "nested"),
    "too much code": (
        as_bytes({"cells": [{"cell_type": "code", "source": "x" * (LARGEST + 1)}]}),
        "large", "larger than 20 MiB"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_notebook_is_named_in_one_sentence(name):
    data, kind, words = BROKEN[name]
    with pytest.raises(NotReadable) as caught:
        notebook_from(data, "ann.ipynb")
    said = str(caught.value)
    assert (caught.value.kind, caught.value.name) == (kind, "ann.ipynb")
    assert words in said and said.startswith("ann.ipynb is not a readable notebook: ")
    assert "\n" not in said and isinstance(caught.value, CourseError)


def test_a_folder_and_a_file_that_is_not_there_are_named(tmp_path):
    with pytest.raises(NotReadable, match="it is a folder"):
        read_notebook(tmp_path)
    with pytest.raises(NotReadable, match=r"b\.ipynb does not exist\."):
        read_notebook(tmp_path / "b.ipynb")
