"""Python source that the library writes: heads, guard checks, wrappers. Compiled, and known to tracebacks and debuggers
(through `linecache`) as long as the function lives."""

import linecache
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

_serial = count(1)


def define(name: str, source: str, about: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function `name` that `source` defines, with these globals; its file is called `<course_lib about #1>`."""
    filename = f"<course_lib {about} #{next(_serial)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    function: Callable[..., Any] = namespace[name]
    weakref.finalize(function, linecache.cache.pop, filename, None)
    return function
