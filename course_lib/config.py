"""Settings of the compiler, and what it looks up about the machine. Change one with
`cl.config.recompile_limit = 4`.
In PyTorch: `torch/_dynamo/config.py` and `torch/_inductor/config.py`. (No torch here: the frame
hook can be built on its own.)
"""

import contextlib
import functools
import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

# Entries a code object may hold; inputs that fit none run in eager.
# (`torch._dynamo.config.recompile_limit`)
recompile_limit = 8
# Sets of sizes that a graph with symbolic sizes is built for; others run operation by operation
sizes_limit = 64
# Calls followed into calls before capture gives up: endless recursion would never end
inline_depth_limit = 64
# Keep in the graph what only the data says: `.item()`; and `x[mask]`, `nonzero`, `unique`.
# None: only under `fullgraph=True`, where the graph may not end. (`torch._dynamo.config`)
capture_scalar_outputs: bool | None = None
capture_dynamic_output_shape_ops: bool | None = None
# Leave a program to eager whose graph breaks, and which is slower compiled (`racing`)
leave_what_loses = True
# Measure once which library multiplies fastest; else torch's own
measure_products = os.environ.get("COURSE_MEASURE") != "0"


@contextlib.contextmanager
def collector_paused(importing: bool = False) -> Iterator[None]:
    """No garbage collection inside: it takes up to a fifth of the time of imports and compiles.

    importing: the objects made inside are moved to the oldest generation, which is rarely
    collected.
    """
    after = gc.enable if gc.isenabled() else gc.disable
    gc.disable()
    try:
        yield
    finally:
        # Freezing takes all objects out of the collector, unfreezing puts them into its oldest
        # generation. Objects that somebody else has frozen must stay frozen.
        if importing and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        after()


@functools.cache
def cache_dir() -> Path:
    """The folder for built kernels: `$COURSE_CACHE`, else `~/.cache/course_lib`, else a temporary
    one (with a warning)."""
    folder_from_environment = os.environ.get("COURSE_CACHE")
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    wanted = Path(caches) / "course_lib"
    if folder_from_environment:
        wanted = Path(folder_from_environment)

    try:
        wanted = wanted.expanduser()
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except (OSError, RuntimeError) as error:
        # A home folder that cannot be written to never stops a compile.
        instead = Path(tempfile.mkdtemp(prefix="course_lib-"))
        warnings.warn(
            f"cannot write to the cache folder {wanted} ({type(error).__name__}); using {instead} instead. "
            "Set COURSE_CACHE to a folder you own to keep compiled kernels between runs.",
            stacklevel=2,
        )
        return instead


@functools.cache
def find_cxx() -> str | None:
    """The C++ compiler's path: `$CXX`, else `g++`, else `clang++`; None where there is none."""
    for name in (os.environ.get("CXX"), "g++", "clang++", "c++"):
        if name and (path := shutil.which(name)):
            return path
    return None
