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
from course_lib.simulator.settings import Settings, settings


def has_gpu() -> bool:
    """Is there a GPU that torch can use?"""
    torch = importlib.import_module("torch")
    return bool(torch.cuda.is_available())


class Simulation:
    """What `cl.simulate_gpu(...)` gives. The simulator is on already; as a `with` block it also
    takes the settings back at the end. Triton stays mended."""

    def __init__(self, changes: dict[str, Any]) -> None:
        self.changes = changes
        self.before = {name: getattr(settings, name) for name in changes}
        self.put(changes)

    def put(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(settings, name, value)

    def __enter__(self) -> Settings:
        self.put(self.changes)
        return settings

    def __exit__(self, *error: Any) -> None:
        self.put(self.before)

    def __repr__(self) -> str:
        if has_gpu():
            return "There is a GPU: nothing is simulated."
        checks = "with checks" if settings.checks else "without checks"
        return f"Triton's kernels run in the simulated GPU, {checks}."


def simulate_gpu(**changes: Any) -> Simulation:
    """Run Triton's kernels as a GPU would, from now on. Where there is a GPU, this changes nothing.

    `changes`: fields of `course_lib.simulator.settings.Settings`, for example `checks=False` or
    `seed=3`. In `with cl.simulate_gpu(seed=3): ...` they hold inside only.
    Raises `RuntimeError` if Triton was imported before for a GPU; `ImportError` if there is no
    Triton."""
    known = vars(settings)
    for name in changes:
        if name not in known:
            raise TypeError(f"the simulator has no setting `{name}`; it has {', '.join(known)}")

    if not has_gpu():
        if "triton" not in sys.modules:
            choose_interpreter()
        mend_triton()
    return Simulation(changes)


@functools.cache
def mend_triton() -> None:
    """Put everything in place, once."""
    triton = importlib.import_module("triton")
    if not is_interpreting():
        raise RuntimeError(why_not_interpreting())
    # the compiler notes what `max` is when it is loaded: before a launch has exchanged the language
    # for the interpreter's
    importlib.import_module("triton.compiler.code_generator")
    version = versions.minor(triton.__version__)
    if versions.TRITONS[0] <= version <= versions.TRITONS[1]:
        put_in_place(version)
        return

    # A version that is not known: it may do, or lack what is mended.
    try:
        put_in_place(version)
    except (AttributeError, ImportError, TypeError) as error:
        raise UnknownTriton(unknown_version(triton.__version__, error)) from error
    warnings.warn(unknown_version(triton.__version__), RuntimeWarning, stacklevel=2)


def put_in_place(version: tuple[int, int]) -> None:
    """The mends, the checks and the launch."""
    importlib.import_module("course_lib.simulator.mends").put_all_in_place(version)
    importlib.import_module("course_lib.simulator.mends.watched").put_in_place()
    importlib.import_module("course_lib.simulator.launching").put_in_place()


class UnknownTriton(RuntimeError):
    """A Triton that is so new, or so old, that it could not be mended."""


def unknown_version(version: str, error: Exception | None = None) -> str:
    """One line about a Triton that nobody has tried. `error`: why it could not be mended."""
    first, last = (".".join(map(str, v)) for v in versions.TRITONS)
    tried = f"the simulator was tried with Triton {first} to {last}, and this is {version}"
    if error is not None:
        return f"{tried}, which cannot be mended ({error}): kernels do not run as on a GPU"
    return f"{tried}: what it computes may differ from a GPU"


def why_not_interpreting() -> str:
    if os.environ.get("TRITON_INTERPRET") == "0":
        return (
            "TRITON_INTERPRET=0 switches the simulator off: unset it before Python starts "
            "(in a notebook: before the kernel is started)"
        )
    return (
        "Triton was imported for a GPU before: `import course_lib` first, or set "
        "TRITON_INTERPRET=1 before Python starts (in a notebook: restart the kernel)"
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
        # Is it itself asking Python's other finders for Triton?
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
            try:
                mend_triton()
            except UnknownTriton as error:
                # Whoever imports Triton gets Triton.
                warnings.warn(str(error), RuntimeWarning, stacklevel=2)

        return loaded


def wait_for_triton() -> None:
    """Called by `import course_lib`."""
    if "triton" not in sys.modules:
        sys.meta_path.insert(0, WhenTritonComes())
