"""When the simulator is switched on.

In:  `import course_lib` before Triton, or `cl.simulate_gpu()`.
Out: Triton's interpreter, mended; nothing at all where there is a GPU.
In PyTorch: nothing.

`import course_lib` loads no Triton: it leaves a note with Python's import system, which is looked
at when Triton is imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from course_lib import versions


def has_gpu() -> bool:
    """Is there a GPU that torch can use?"""
    torch = importlib.import_module("torch")
    return bool(torch.cuda.is_available())


def simulate_gpu(**changes: Any) -> None:
    """Run Triton's kernels as a GPU would, from now on. Where there is a GPU, this does nothing.

    `changes`: fields of `course_lib.simulator.settings.Settings`, for example `checks=False` or
    `seed=3`.
    Raises `RuntimeError` if Triton was imported before for a GPU; `ImportError` if there is no
    Triton."""
    if has_gpu():
        return
    if "triton" not in sys.modules:
        choose_interpreter()
    mend_triton()

    settings = importlib.import_module("course_lib.simulator.settings")
    for name, value in changes.items():
        if name not in vars(settings.settings):
            known = ", ".join(vars(settings.settings))
            raise TypeError(f"the simulator has no setting `{name}`; it has {known}")
        setattr(settings.settings, name, value)


@functools.cache
def mend_triton() -> None:
    """Put everything in place, once."""
    triton = importlib.import_module("triton")
    if not is_interpreting():
        raise RuntimeError(
            "Triton was imported for a GPU before: `import course_lib` first, or set TRITON_INTERPRET=1 before Python starts"
        )
    # the compiler notes what `max` is when it is loaded: before a launch has exchanged the language
    # for the interpreter's
    importlib.import_module("triton.compiler.code_generator")
    mends = importlib.import_module("course_lib.simulator.mends")
    version = versions.minor(triton.__version__)
    if not mends.FIRST <= version <= mends.LAST:
        warnings.warn(unknown_version(triton.__version__, mends), RuntimeWarning, stacklevel=2)

    mends.put_all_in_place(version)
    importlib.import_module("course_lib.simulator.mends.watched").put_in_place()
    importlib.import_module("course_lib.simulator.launching").put_in_place()


def unknown_version(version: str, mends: Any) -> str:
    first, last = (".".join(map(str, v)) for v in (mends.FIRST, mends.LAST))
    return (
        f"the simulator was tried with Triton {first} to {last}, and this is {version}: "
        "what it computes may differ from a GPU"
    )


def choose_interpreter() -> None:
    """Triton reads this while it is imported. What somebody has set stays."""
    if not os.environ.get("TRITON_INTERPRET"):
        os.environ["TRITON_INTERPRET"] = "1"
    # Triton 3.9 warns at the first kernel where nobody says this. It is what Triton does anyhow.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


def is_interpreting() -> bool:
    """Was Triton imported for its interpreter?"""
    standard = importlib.import_module("triton.language.standard")
    return type(standard.sum).__name__ == "InterpretedFunction"


class WhenTritonComes(importlib.abc.MetaPathFinder):
    """Waits until Triton is loaded: then it chooses the interpreter where there is no GPU, and
    mends it.

    Many libraries only ask whether Triton is installed (`importlib.util.find_spec`; torch 2.15
    does so while it is imported). That changes nothing, and does not end the waiting.
    """

    def __init__(self) -> None:
        self.asking_others = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "triton" or self.asking_others:
            return None
        self.asking_others = True
        try:
            spec = importlib.util.find_spec("triton")
        finally:
            self.asking_others = False

        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        loader.exec_module = self.instead_of(loader.exec_module)
        return spec

    def instead_of(self, load: Callable[[Any], None]) -> Callable[[Any], None]:
        """A function that loads Triton, and prepares it where there is no GPU."""

        def loaded(module: Any) -> None:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            if has_gpu() or os.environ.get("TRITON_INTERPRET") == "0":
                load(module)
                return
            choose_interpreter()
            load(module)
            mend_triton()

        return loaded


def wait_for_triton() -> None:
    """Called by `import course_lib`."""
    if "triton" not in sys.modules:
        sys.meta_path.insert(0, WhenTritonComes())
