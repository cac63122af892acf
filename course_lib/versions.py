"""Which versions of Python, torch and Triton this release was run with.

In:  the versions of what is installed.
Out: one line of warning where torch is newer than any that was tried. It runs all the same.

`pyproject.toml` says the same ranges for pip; `course doctor` says them to a person.
In PyTorch: `setup.py` and `torch/_dynamo/__init__.py` refuse; here nothing is refused.
"""

import importlib.metadata
import sys
import warnings

# The oldest and the newest
PYTHONS = ((3, 11), (3, 15))
TORCHES = ((2, 11), (2, 15))
TRITON_FOR = {(2, 11): (3, 6), (2, 12): (3, 7), (2, 13): (3, 7), (2, 14): (3, 8), (2, 15): (3, 9)}
"""The Triton that each torch pairs with."""
TRITONS = (min(TRITON_FOR.values()), max(TRITON_FOR.values()))
"""The versions of Triton that the simulator was tried with."""


def minor(version: str) -> tuple[int, int]:
    """`2.13.0+cpu` → (2, 13). (0, 0) for a text that begins with no two numbers."""
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return 0, 0


def warn_of_a_newer_torch(version: str) -> None:
    """Say in one line that this torch was never tried. `version`: `torch.__version__`."""
    newest = TORCHES[1]
    if minor(version) > newest:
        warnings.warn(
            f"course_lib was tried with torch up to {newest[0]}.{newest[1]}, and this is {version}: "
            "it may work as well, or find operations that it does not know",
            RuntimeWarning,
            stacklevel=4,  # the line that asks `course_lib` for a name of the compiler
        )


def triton_for_this_torch() -> str:
    """What to tell pip: `triton==3.7.*` for an installed torch 2.13; nothing where no pair is
    known, or Triton has no build."""
    try:
        pair = TRITON_FOR.get(minor(importlib.metadata.version("torch")))
    except importlib.metadata.PackageNotFoundError:
        pair = None
    if pair is None or sys.platform != "linux":
        return ""
    return f"triton=={pair[0]}.{pair[1]}.*"


# the Makefile asks: a CPU build of torch brings no Triton, and the newest fits the newest torch
# only
if __name__ == "__main__":
    print(triton_for_this_torch())
