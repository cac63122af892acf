"""Python's syntax trees, read by one thread at a time.

CPython 3.11 and 3.12 count the depth of the tree that `ast.parse` builds in one number for all
threads. A thread that is switched away from while it builds (the collector may run Python code
there) finds a changed number, and `ast.parse` raises SystemError for source that is right.
The grader reads the cells of several learners at a time, one thread for each. Here they wait for
each other.
"""

import ast
import threading
from typing import Any

# one thread may come in twice: a finalizer that runs while a tree is built may read source, too
_ONE_THREAD = threading.RLock()


def parse(source: str, filename: str = "<unknown>", mode: str = "exec") -> Any:
    """What `ast.parse` returns and raises; safe in any thread."""
    with _ONE_THREAD:
        return ast.parse(source, filename, mode)
