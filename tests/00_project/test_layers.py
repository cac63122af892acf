"""A room imports only from the rooms before it; the compiler knows no pictures (contracts in pyproject.toml)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import networkx

ROOMS = [
    "frames",
    "capture",
    "guards",
    "autograd",
    "lowering",
    "scheduling",
    "codegen",
    "runtime",
    "viz",
    "grading",
    "bench",
    "lessons",
    "tools",
]


def lint_imports(folder: Path) -> subprocess.CompletedProcess:
    program = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )


def test_the_rooms_keep_their_order(root):
    done = lint_imports(root)
    assert done.returncode == 0, done.stdout + done.stderr


def a_house(folder: Path, contracts: str, **modules: str) -> Path:
    """A package of empty rooms but for `modules` (file name → source; `__` for the slash)."""
    for room in ROOMS:
        (folder / "course_lib" / room).mkdir(parents=True)
        (folder / "course_lib" / room / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(contracts)
    for name in ("__init__", "events", "config"):
        (folder / "course_lib" / f"{name}.py").touch()
    for name, source in modules.items():
        (folder / "course_lib" / (name.replace("__", "/") + ".py")).write_text(source)
    return folder


def test_a_room_may_import_an_earlier_one_but_not_a_later_one(root, tmp_path):
    contracts = (root / "pyproject.toml").read_text()
    good = a_house(
        tmp_path / "good",
        contracts,
        codegen__cpp="from course_lib.lowering import ir",
        lowering__ir="",
    )
    assert lint_imports(good).returncode == 0, lint_imports(good).stdout
    bad = a_house(
        tmp_path / "bad",
        contracts,
        lowering__ir="from course_lib.codegen import cpp",
        codegen__cpp="",
    )
    done = lint_imports(bad)
    assert done.returncode != 0 and "course_lib.lowering.ir" in done.stdout


def test_the_compiler_cannot_draw_not_even_lazily_or_through_another_file(root, tmp_path):
    contracts = (root / "pyproject.toml").read_text()
    for where in ("frames__hook", "events", "runtime__run"):
        house = a_house(
            tmp_path / where, contracts, **{where: "def show():\n    from course_lib import viz"}
        )
        assert lint_imports(house).returncode != 0, where


def imports_of(path: Path, package: Path) -> set[str]:
    """The modules of course_lib that a file imports, anywhere in it; also by `import_module("...")`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(node, path, package)
            found.add(source)
            found.update(f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and is_module_name(node.value):
            found.add(node.value)
    return found


def is_module_name(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"course_lib(\.\w+)+", value) is not None


def absolute(node: ast.ImportFrom, path: Path, package: Path) -> str:
    """The module that `from X import ...` names, where X may start with dots."""
    if not node.level:
        return node.module or ""

    parents = path.relative_to(package.parent).with_suffix("").parts[: -node.level]
    return ".".join([*parents, *([node.module] if node.module else [])])


def import_graph(package: Path) -> networkx.DiGraph:
    """Module → the modules that it imports, within one package."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = path

    graph = networkx.DiGraph()
    graph.add_nodes_from(files)
    for module, path in files.items():
        for imported in imports_of(path, package):
            if imported in files and imported != module:
                graph.add_edge(module, imported)
    return graph


def runtime_imports(path: Path, package: Path, modules: set[str]) -> set[str]:
    """The modules of course_lib that a file imports when it runs: not those of `if TYPE_CHECKING`."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        waiting += ast.iter_child_nodes(node)

        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = absolute(node, path, package)
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                found.add(whole if whole in modules else source)
    return found & modules


def all_circles(package: Path) -> list[set[str]]:
    """Groups of modules that import each other in a circle, also within a room."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts).removesuffix(".__init__")] = path

    graph = networkx.DiGraph()
    for module, path in files.items():
        for imported in runtime_imports(path, package, set(files)) - {module}:
            graph.add_edge(module, imported)
    return [group for group in networkx.strongly_connected_components(graph) if len(group) > 1]


FRONT_PAGES = {"course_lib", "course_lib.__main__", "course_lib.viz"}
"""They lead everywhere: the library's front page, the command `python -m course_lib`, and that of the pictures."""


def circles(package: Path, room_of: Callable[[str], str]) -> list[set[str]]:
    """Groups of modules that import each other in a circle and do not all lie in one room."""
    graph = import_graph(package)
    graph.remove_nodes_from(FRONT_PAGES)
    groups = networkx.strongly_connected_components(graph)
    return [group for group in groups if len({room_of(module) for module in group}) > 1]


def room(module: str) -> str:
    """`course_lib.viz.kit.svg` → `viz`."""
    return module.split(".")[1]


def room_of_viz(module: str) -> str:
    """`course_lib.viz.kit.svg` → `viz.kit`."""
    return ".".join(module.split(".")[1:3])


def test_no_circle_of_imports_goes_through_two_rooms(root):
    assert circles(root / "course_lib", room) == []


def test_no_circle_of_imports_goes_through_two_rooms_of_the_pictures(root):
    assert [
        group
        for group in circles(root / "course_lib", room_of_viz)
        if any(".viz." in m for m in group)
    ] == []


def test_a_circle_is_found_even_inside_a_function_or_by_a_string(tmp_path):
    lazy = 'def draw():\n    import importlib\n    return importlib.import_module("course_lib.viz.page")'
    house = tmp_path / "course_lib"
    for name, source in {
        "backends": lazy,
        "viz/page": "def draw():\n    from course_lib import compiler",
        "compiler": "from . import backends",
        "events": "",
    }.items():
        (house / name).parent.mkdir(parents=True, exist_ok=True)
        (house / f"{name}.py").write_text(source)

    found = circles(house, room)

    assert found == [{"course_lib.backends", "course_lib.viz.page", "course_lib.compiler"}]


def test_there_is_no_circle_of_imports_within_a_room(root):
    assert all_circles(root / "course_lib") == []


def test_a_circle_within_a_room_is_found_and_annotations_are_none(tmp_path):
    house = tmp_path / "course_lib"
    (house / "capture").mkdir(parents=True)
    (house / "capture" / "calls.py").write_text(
        "def f():\n    from course_lib.capture import machine"
    )
    (house / "capture" / "machine.py").write_text("from course_lib.capture.calls import f")
    for_types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from course_lib.capture import machine"
    (house / "capture" / "world.py").write_text(for_types)

    assert all_circles(house) == [{"course_lib.capture.calls", "course_lib.capture.machine"}]

    (house / "capture" / "calls.py").write_text(for_types)
    assert all_circles(house) == []
