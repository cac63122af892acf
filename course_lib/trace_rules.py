"""Whose code is this? The user's is captured; a library's runs as it is.

In:  a code object that is about to run.
Out: `is_skipped`: true where capture leaves it to Python, with all frames of this code from now on.

Two kinds of library code are captured all the same: torch's layers, which are Python around
operations, and the steps of its optimizers. In PyTorch: `torch/_dynamo/trace_rules.py`
(`SKIP_DIRS`, `LEGACY_MOD_INLINELIST`, `MOD_INLINELIST`).
"""

import functools
import os
import sysconfig
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import torch

from course_lib.frames import wrapper


def folder_of(file: Any) -> str:
    """The folder of a module's file, with a separator at its end: what names of files below it
    begin with."""
    return os.path.dirname(os.path.abspath(str(file))) + os.sep


TOOLS = {
    "IPython",
    "_pytest",
    "dateutil",
    "ipykernel",
    "ipywidgets",
    "jupyter_client",
    "matplotlib",
    "pluggy",
    "tornado",
    "traitlets",
    "typing_extensions.py",
    "zmq",
}
"""Installed packages that run below a user's call (a `print` in a notebook does) and have no tensor
code."""
TORCH_COMPILE = os.path.join(folder_of(torch.__file__), "_dynamo", "")
"""The folder of torch.compile, which may compile functions of the same program."""
IMPORT = "<frozen importlib._bootstrap>", "_find_and_load"
"""The file and the name of Python's function below which a module is imported: it runs the module's
code."""
LIBRARIES = tuple(folder_of(path) for path in (torch.__file__, np.__file__, __file__))
"""Folders whose code is not captured, but for `FOLLOWED`."""
WRITTEN = ("<frozen ", "<course_lib ")
"""Code that has no file bears a made-up file name, which begins so: modules that are built into
Python (`<frozen os>`), and source that this library writes while it runs (`<course_lib head …`)."""
FOLLOWED = tuple(
    os.path.join(*parts, "")
    for parts in (
        ("torch", "nn", "modules"),
        # these rooms have programs that stand for a user's code
        ("course_lib", "bench"),
        ("course_lib", "lessons"),
        ("course_lib", "tools"),
    )
)
"""Folders of libraries whose code is captured."""
NOT_FOLLOWED = os.path.join("modules", "module.py")
"""A file of such a folder whose code is not captured: capture itself knows how a module calls its
`forward` (`capture/calls`)."""

OPTIMIZERS = ("sgd", "adam", "rmsprop", "adagrad", "adadelta", "adamax", "nadam")
STEPS = frozenset(f"_single_tensor_{name}" for name in OPTIMIZERS)
"""Functions of `torch.optim` that update all parameters, and look at no data. The rest of a `step`
runs in eager."""

METHODS_OF_MODES = {"__torch_function__", "__torch_dispatch__"}
"""What torch calls for each operation while a mode of the user's is on: one frame of this code for
each of torch's functions."""


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """A frame that calls what has none to capture: a function of torch, or one written in C."""

    @wrapper
    def calls(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return calls


CALLS = called(len).__code__
"""The one function of this library that is captured."""


def runs_unwatched(code: CodeType) -> bool:
    """Is this frame left alone, with all frames that it calls?

    That is so for torch.compile, which compiles its own functions. And for an import: what a module
    calls while it is imported runs only once, so compiling it would not pay.
    """
    if (code.co_filename, code.co_name) == IMPORT:
        return True
    return code.co_filename.startswith(TORCH_COMPILE)


def is_skipped(code: CodeType) -> bool:
    """Does capture leave frames of this code to Python?"""
    # CPython calls the argument of a comprehension `.0`. Heads are written as source, and no source
    # can use that name.
    if not all(name.isidentifier() for name in code.co_varnames):
        return True

    # single functions of torch and of this library that are captured
    if code is CALLS or code.co_name in STEPS:
        return False

    # the program of a mode: it runs once for each operation
    if code.co_name in METHODS_OF_MODES:
        return True
    return is_library(code.co_filename)


@functools.cache
def is_library(filename: str) -> bool:
    """Is this a file of Python, NumPy, torch or this library, or of one of `TOOLS`, which run below
    a user's call?"""
    # A user's own package may be installed, too: in `site-packages`, or Debian's `dist-packages`.
    # So of what is installed only `TOOLS` and `LIBRARIES` are libraries.
    _, is_installed, package = filename.partition("-packages" + os.sep)
    if is_installed and package.split(os.sep)[0] in TOOLS:
        return True

    # Python's own modules, with a file or without, and the source that this library writes
    standard = sysconfig.get_path("stdlib") + os.sep
    if filename.startswith(WRITTEN) or (filename.startswith(standard) and not is_installed):
        return True

    is_followed = any(folder in filename for folder in FOLLOWED)
    if is_followed and not filename.endswith(NOT_FOLLOWED):
        return False
    return filename.startswith(LIBRARIES)
