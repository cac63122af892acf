"""How the code is written, where ruff has no rule for it (CONTRIBUTING.md, "How a room reads")."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = ["frames", "capture", "guards", "autograd", "runtime"]
"""Rooms in which a name of a module has one meaning."""
ANYWHERE = {"__all__", "aten", "F"}
"""Names that mean the same wherever they stand."""


def modules(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


def names_of(module: ast.Module) -> set[str]:
    """The classes and tables that a module defines."""
    found = set()
    for statement in module.body:
        if isinstance(statement, ast.ClassDef):
            found.add(statement.name)
        elif isinstance(statement, ast.Assign):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.add(statement.target.id)
    return {name for name in found if not name.startswith("_")} - ANYWHERE


def defined_twice(folder: Path) -> dict[str, list[str]]:
    """Name → the modules that define it, where these are several."""
    places = defaultdict(list)
    for path, module in modules(folder):
        for name in names_of(module):
            places[name].append(str(path.relative_to(folder)))
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def lambdas_of_classes(module: ast.Module) -> list[int]:
    """Lines of classes that give an attribute a lambda: a traceback would say `<lambda>`."""
    found = []
    for cls in ast.walk(module):
        for statement in cls.body if isinstance(cls, ast.ClassDef) else ():
            value = getattr(statement, "value", None)
            if isinstance(value, ast.Lambda):
                found.append(statement.lineno)
    return found


def hides_builtins(module: ast.Module) -> list[int]:
    """Lines of a module that give a builtin function another meaning for the whole file."""
    found = []
    for statement in module.body:
        names = []
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name for alias in statement.names]
        elif isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if "isinstance" in names or "callable" in names:
            found.append(statement.lineno)
    return found


SORT_KEYS = {"newness"}
"""Functions that give a key to sort by: nobody takes it apart."""


def wide_tuples(module: ast.Module) -> list[int]:
    """Lines of functions that return a tuple of four or more things of several types, where a record would name them."""
    found = []
    for function in ast.walk(module):
        if isinstance(function, ast.FunctionDef) and function.name not in SORT_KEYS:
            kinds = parts_of_tuple(function.returns)
            if len(kinds) > 3 and len(set(kinds)) > 1:
                found.append(function.lineno)
    return found


def parts_of_tuple(annotation: ast.expr | None) -> list[str]:
    """`tuple[int, str]` → int, str; nothing for any other annotation."""
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "tuple":
        return []
    inside = annotation.slice
    return [ast.unparse(part) for part in inside.elts] if isinstance(inside, ast.Tuple) else []


def numbers_for_flags(path: Path) -> list[int]:
    """Lines that test a bit by its number, as `flags & 0x20`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [n for n, line in enumerate(lines, 1) if re.search(r"flags\s*[&|]\s*~?(0x)?\d", line)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_has_one_meaning_in_a_room(root, room):
    assert defined_twice(root / "course_lib" / room) == {}


def test_a_name_that_is_defined_twice_is_found(tmp_path):
    (tmp_path / "one.py").write_text("RULES = {}\nclass Rule: ...\n")
    (tmp_path / "two.py").write_text("RULES: list = []\ndef f():\n    Rule = 1\n")

    assert defined_twice(tmp_path) == {"RULES": ["one.py", "two.py"]}


@pytest.mark.parametrize("find", [lambdas_of_classes, hides_builtins, wide_tuples])
def test_no_module_breaks_the_convention(root, find):
    found = {
        str(path.relative_to(root)): lines
        for path, module in modules(root / "course_lib")
        if (lines := find(module))
    }
    assert found == {}


def test_only_frames_knows_how_versions_of_python_differ(root):
    package = root / "course_lib"
    asking = [
        str(path.relative_to(package))
        for room in (*ROOMS, "lowering", "scheduling", "codegen")
        for path in (package / room).rglob("*.py")
        if re.search(r"version_info\s*[<>=]", path.read_text(encoding="utf-8"))
    ]
    assert [path for path in asking if not path.startswith("frames/")] == []


def test_flags_are_named(root):
    found = {
        path.name: lines
        for path in (root / "course_lib").rglob("*.py")
        if (lines := numbers_for_flags(path))
    }
    assert found == {}


@pytest.mark.parametrize(
    "find, source",
    [
        (lambdas_of_classes, "class A:\n    f = lambda self: 1\n"),
        (hides_builtins, "from x import is_a as isinstance\n"),
        (wide_tuples, "def f() -> tuple[int, str, int, int]: ...\n"),
    ],
    ids=["lambda", "isinstance", "tuple"],
)
def test_what_breaks_a_convention_is_found(find, source):
    assert find(ast.parse(source)) != []


def files_without_a_word(room: Path) -> list[str]:
    """The files and folders of a room that its docstring does not name."""
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    names = []
    for path in sorted(room.iterdir()):
        if path.suffix in (".py", ".c", ".h") and not path.name.startswith("__"):
            names.append(path.name)
        elif (path / "__init__.py").exists():
            names.append(f"{path.name}/")
    words = re.findall(r"[\w.]+/?", docstring or "")
    return [name for name in names if name not in words]


def test_the_docstring_of_each_room_names_all_its_files(root):
    package = root / "course_lib"
    rooms = [path.parent for path in sorted(package.rglob("__init__.py"))]
    left_out = {}
    for room in rooms:
        if room != package and (files := files_without_a_word(room)):
            left_out[str(room.relative_to(package))] = files
    assert not left_out, "name them where a reader looks for them: in the order of reading"


def test_a_room_that_leaves_a_file_out_is_found(tmp_path):
    (tmp_path / "corners").mkdir()
    for name in ("loops.py", "more_loops.py", "_fast.c", "corners/__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "__init__.py").write_text('"""Read `more_loops.py`, then `corners/`."""')
    assert files_without_a_word(tmp_path) == ["_fast.c", "loops.py"]


def test_the_front_page_names_what_stands_beside_the_rooms(root):
    text = (root / "docs" / "index.md").read_text(encoding="utf-8")
    names = [path.name for path in sorted((root / "course_lib").glob("*.py"))]
    left_out = [f"`{name}`" for name in names if f"`{name}`" not in text]
    assert left_out in ([], ["`__main__.py`"])


def test_the_front_page_has_a_row_for_each_room(root):
    text = (root / "docs" / "index.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in sorted((root / "course_lib").glob("*/__init__.py"))]
    assert "capture" in rooms and "sizes" in rooms
    assert [room for room in rooms if f"`{room}/`" not in text] == []


def test_the_front_page_names_no_file_that_is_gone(root):
    text = (root / "docs" / "index.md").read_text(encoding="utf-8")
    paragraph = text[text.index("Beside the rooms:") :].split("\n\n")[0]
    names = re.findall(r"`([\w/]+\.py)`", paragraph)
    assert len(names) > 15
    assert [name for name in names if not (root / "course_lib" / name).is_file()] == []


TORN = re.compile(r"^\s*# .*[\w.,;:)`'\"] # [A-Za-z(`]|^\s*# .* #$")
"""A comment that was filled together with the sign of its second line."""


def test_no_comment_is_torn(root):
    torn = []
    for path in sorted((root / "course_lib").rglob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            # Lines that are indented further show code, which may have comments of its own
            is_prose = re.match(r"\s*# \S", line)
            if is_prose and TORN.search(line):
                torn.append(f"{path.name}:{number}")
    assert not torn


@pytest.mark.parametrize("line", ["# as many # lines", "    # the end of #", "# the `id` # of it"])
def test_a_torn_comment_is_found(line):
    assert TORN.search(line)
