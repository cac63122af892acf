"""Python source that the library writes (heads, guard checks, wrappers), known to tracebacks as
long as its function lives."""

import ast
import contextlib
import linecache
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from types import FunctionType
from typing import Any

from torch import fx

from course_lib.graph_text import make_readable
from course_lib.syntax import parse

_serial = count(1)


def define(name: str, source: str, about: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` that `source` defines, with these globals; its file is called
    `<course_lib about #1>`."""
    filename = remember(source, about)
    exec(compile(source, filename, "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function


def define_within(
    name: str, source: str, about: str, names: dict[str, Any], namespace: dict[str, Any]
) -> FunctionType:
    """The function `name` that `source` defines, with `names` as its closure.

    Nothing is added to its globals, `namespace`."""
    filename = remember(source, about)
    tree = parse(source, filename)

    # def made(names...): def name(...): ...; return name
    used_names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & {*names}
    around = parse(f"def made({', '.join(sorted(used_names))}):\n    return {name}", filename)
    maker: Any = around.body[0]
    maker.body[:0] = tree.body

    made: dict[str, Any] = {}
    exec(compile(around, filename, "exec"), made)
    # `made` is called for the closure that it makes; the function then gets the globals that it
    # should have.
    inner = made["made"](**{used_name: names[used_name] for used_name in used_names})
    function = FunctionType(inner.__code__, namespace, name, None, inner.__closure__)
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function


def remember(source: str, about: str) -> str:
    """A new file name, under which tracebacks find this source."""
    filename = f"<course_lib {about} #{next(_serial)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return filename


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Show no warnings inside.

    (After `warnings.catch_warnings` Python forgets which ones were shown before.)"""
    # A filter: action, message, category, module, line. This one ignores all.
    before = warnings.filters
    warnings.filters = [("ignore", None, Warning, None, 0)]
    try:
        yield
    finally:
        warnings.filters = before


def as_tuple(items: Iterable[Any]) -> str:
    """The text of a tuple of these."""
    listed = [str(item) for item in items]
    if len(listed) == 1:
        return f"({listed[0]},)"
    return f"({', '.join(listed)})"


def traceable(gm: fx.GraphModule) -> fx.GraphModule:
    """The same graph module.

    Its printed Python is right (`make_readable`), and is let go together with it.

    torch.fx itself keeps the source of every `forward` that it writes, for ever."""
    if make_readable(gm.graph):
        # a new `forward` is written, and the first one is not needed any more
        forget(type(gm))
        gm.recompile()

    # torch.fx makes a class for each graph module
    weakref.finalize(gm, forget, type(gm))
    return gm


def forget(written: type[fx.GraphModule]) -> None:
    """Let go of the source of this class's `forward`."""
    for cache in (linecache.cache, fx.graph_module._loader.eval_cache):
        cache.pop(written.forward.__code__.co_filename, None)
