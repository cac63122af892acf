"""A pytest plugin beside nbval: what Python and torch make of a program is compared only on the
versions it was stored on.

CPython's bytecode changes with every minor version, and now and then an error's words: cells that
show either carry the tag `bytecode`. What TorchDynamo, TorchInductor, Triton and torch's
decompositions make of a program carries the tag `torch`. On other versions than the stored ones
such cells still have to run, but their text may differ. Every other cell is compared everywhere.

Used as `pytest --nbval -p course_lib.grading.nbval_versions`.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import platform
import shutil
import tempfile
from typing import Any

# Which library is fastest differs from machine to machine, and so would stored outputs.
os.environ["COURSE_MEASURE"] = "0"
# torch's advice to who has Python 3.13.0, which would stand in each cell
os.environ.setdefault("PYTHONWARNINGS", "ignore:Guards may run slower")
STORED_ON = {"bytecode": "3.11", "torch": "2.13"}  # by tag


def without_a_learners_answers() -> None:
    """The answers in `work/` would make other pictures in the capstone than the stored ones: look
    into an empty folder."""
    if "COURSE_WORK" not in os.environ:
        folder = tempfile.mkdtemp(prefix="course-work-")
        os.environ["COURSE_WORK"] = folder
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def has_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def pytest_configure(config: Any) -> None:
    """Where a CUDA toolkit is and no GPU, torch's CUDA build says so in the first cell that
    compiles: no difference."""
    if not has_gpu():
        # Empty, not missing: then torch does not search.
        os.environ["CUDA_HOME"] = os.environ["CUDA_PATH"] = ""


def pytest_sessionstart() -> None:
    without_a_learners_answers()


def elsewhere() -> set[str]:
    """The tags of what another version makes than the one that its outputs were stored on."""
    here = {"bytecode": platform.python_version(), "torch": importlib.metadata.version("torch")}
    return {
        tag for tag, version in here.items() if ".".join(version.split(".")[:2]) != STORED_ON[tag]
    }


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Turn the comparison off for cells that show what another version of Python or torch makes."""
    other = elsewhere()
    for item in items:
        cell = getattr(item, "cell", None)
        if cell is not None and other.intersection(cell.metadata.get("tags", [])):
            item.options["check"] = False
