"""Which names a cell binds and which it reads, seen from its text alone.

In:  the source of a cell, also with IPython's magics. Out: sets of names, statements, and a cell as
     plain Python.

Nothing is run. A cell that Python cannot read has no names.
PyTorch has no counterpart; the rules are Python's own (the reference's chapter "Naming and
binding").
"""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from course_lib.syntax import parse

# Magics whose body is ordinary code of the notebook
RUN_BODY = frozenset({"time", "capture", "prun", "timeit", "memit"})

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPE = (*_FUNCTION, ast.ClassDef)
_BLOCK = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try)


@functools.lru_cache(maxsize=4096)
def tree_of(source: str) -> ast.Module | None:
    """The cell's syntax tree, magics translated; None if it is no Python."""
    try:
        return parse(as_python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_whole(source: str) -> bool:
    """Whether the cell runs alone: no half of a function, which begins indented or returns outside
    of one."""
    lines = [line for line in source.split("\n") if line.strip()]
    if lines and lines[0][0].isspace():
        return False
    try:
        compile(as_python(source), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return True
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def as_python(source: str) -> str:
    """The cell as plain Python: a body below `%%time` as it is, other magics as IPython translates
    them."""
    body = without_cell_magic(source)
    try:
        parse(body)
        return body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass

    from IPython.core.inputtransformer2 import TransformerManager

    try:
        return str(TransformerManager().transform_cell(body))
    except Exception:  # a magic that even IPython cannot read
        return body


def without_cell_magic(source: str) -> str:
    """The body of a cell that begins with `%%time` or the like; another cell as it is.

    Lines keep their numbers."""
    lines = source.split("\n")
    first = next((n for n, line in enumerate(lines) if line.strip()), 0)
    word = lines[first].strip().split(" ")[0]
    if word.startswith("%%") and word[2:] in RUN_BODY:
        lines[first] = ""
        return without_cell_magic("\n".join(lines))  # one may stand below another
    return source


@dataclass
class Bound:
    """The names that a cell binds at its top level, by how.

    `star`: modules of `from module import *`."""

    defined: set[str] = field(default_factory=set)  # def, class, import, `f = lambda`
    assigned: set[str] = field(default_factory=set)
    star: list[str] = field(default_factory=list)
    lines: dict[str, str] = field(default_factory=dict)  # name → the line that binds it

    @property
    def names(self) -> set[str]:
        return self.defined | self.assigned


@functools.lru_cache(maxsize=4096)
def bound(source: str) -> Bound:
    """What the cell binds at its top level, also inside of `if`, `for`, `try` and `with`."""
    bound_names = Bound()
    tree = tree_of(source)
    for statement in tree.body if tree else ():
        for node in (statement, *_inside(statement)):
            _note(node, bound_names)
        for name in bound_names.names - bound_names.lines.keys():
            bound_names.lines[name] = ast.unparse(statement).split("\n")[0]
    return bound_names


def _inside(statement: ast.stmt) -> list[ast.AST]:
    """Every node below a statement that is not inside of a function or a class (those are in it
    themselves)."""
    nodes: list[ast.AST] = []
    if isinstance(statement, _SCOPE):
        waiting = []
    else:
        waiting = list(ast.iter_child_nodes(statement))
    while waiting:
        node = waiting.pop(0)
        nodes.append(node)
        if not isinstance(node, _SCOPE):
            waiting += ast.iter_child_nodes(node)
    return nodes


def _note(node: ast.AST, bound_names: Bound) -> None:
    """Add the names that one node binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        bound_names.defined.add(node.name)
    elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        bound_names.star.append(node.module or "")
    elif isinstance(node, ast.Import | ast.ImportFrom):
        bound_names.defined |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
        bound_names.defined |= {
            target.id for target in node.targets if isinstance(target, ast.Name)
        }
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        bound_names.assigned.add(node.id)


@functools.lru_cache(maxsize=4096)
def reads(source: str) -> frozenset[str]:
    """The global names that this code reads, in its functions too; arguments and locals are not
    among them."""
    try:
        waiting = [symtable.symtable(as_python(source), "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()

    names_read: set[str] = set()

    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        top = table.get_type() == "module"
        symbols = [symbol for symbol in table.get_symbols() if symbol.is_referenced()]
        names_read |= {symbol.get_name() for symbol in symbols if top or symbol.is_global()}

    return frozenset(names_read)


@functools.lru_cache(maxsize=4096)
def needed(source: str) -> frozenset[str]:
    """The global names that a cell reads before it binds them itself."""
    tree = tree_of(source)
    needed_names: set[str] = set()
    so_far: set[str] = set()

    for node in tree.body if tree else ():
        text = ast.unparse(node)
        names_it_binds = bound(text).names
        # `for n in ...: use(n)` binds and reads in one statement.
        names_of_block = names_it_binds if isinstance(node, _BLOCK) else set()
        needed_names |= reads(text) - so_far - names_of_block
        so_far |= names_it_binds

    return frozenset(needed_names)


def meanings(sources: list[str]) -> dict[str, set[str]]:
    """Name → the global names that the statements which bind it read, over all these cells."""
    names_read_for: dict[str, set[str]] = {}
    for source in sources:
        tree = tree_of(source)
        for node in tree.body if tree else ():
            text = ast.unparse(node)
            for name in bound(text).names:
                names_read_for.setdefault(name, set()).update(reads(text))
    return names_read_for


def closure(names: frozenset[str], meaning: dict[str, set[str]]) -> set[str]:
    """These names, and all that what they are bound to reads, and so on."""
    all_names: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in all_names:
            all_names.add(name)
            waiting += meaning.get(name, ())
    return all_names


@functools.lru_cache(maxsize=4096)
def read_as_data(source: str) -> frozenset[str]:
    """Global names that functions of the cell read otherwise than by calling them: `sizes[0]`, not
    `list(x)`."""
    tree = tree_of(source)
    names_of_data: set[str] = set()
    for scope in ast.walk(tree) if tree else ():
        if isinstance(scope, _FUNCTION):
            names_of_data |= _data_of(scope)
    return frozenset(names_of_data)


def _data_of(scope: ast.AST) -> set[str]:
    """For one function: names that it reads as data and does not bind itself."""
    nodes = list(ast.walk(scope))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    local_names = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    local_names |= {node.arg for node in nodes if isinstance(node, ast.arg)}

    no_data = {id(inner) for node in nodes for outer in _no_data(node) for inner in outer}
    reads = [node for node in names if isinstance(node.ctx, ast.Load) and id(node) not in no_data]
    return {node.id for node in reads} - local_names


def _no_data(node: ast.AST) -> Iterator[Iterable[ast.AST]]:
    """The nodes inside this one that are called, handed on, or stand for a type: a builtin is used
    so, data is not."""
    if isinstance(node, ast.Call):
        # `list(x)`, and a type or function that is handed on: `map(list, x)`, `isinstance(x, list)`
        yield [node.func, *(word.value for word in node.keywords)]
        yield from map(ast.walk, node.args)
    if isinstance(node, ast.Compare):  # `type(x) is list`
        yield [node.left, *node.comparators]

    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    if annotation:
        yield ast.walk(annotation)


def statements(source: str) -> dict[str, str]:
    """The cell's top-level statements: what each says to Python → its text.

    Layout and comments do not count."""
    tree = tree_of(source)
    if tree:
        return {ast.dump(node): ast.unparse(node) for node in tree.body}
    return {}
