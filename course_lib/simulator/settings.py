"""What the simulator does besides computing: one record, changed for a while with `using(...)`.

In PyTorch: nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any


@dataclass
class Settings:
    """How kernels are run from now on."""

    # Ask the compiler first, and refuse what it refuses
    refusals: bool = True
    # Watch each access: races, accesses outside, values that nobody wrote
    checks: bool = True
    # Collect what is found instead of raising it: see `faults_of_last_launch`
    collect: bool = False
    # None: programs run in the order of their numbers; else shuffled with this seed
    seed: int | None = None
    # `a * b + c` in one rounding, as the compiler does unless `enable_fp_fusion=False`
    fusion: bool = True
    # Denormal float32 are 0 for the fast functions, as for the compiler unless
    # `enable_reflect_ftz=False`
    flush: bool = True
    # `assert` and `tl.device_assert` count (TRITON_DEBUG=1, or `debug=True` for a launch)
    debug: bool = False


settings = Settings()
"""The record that is in force."""


@contextlib.contextmanager
def using(**changes: Any) -> Iterator[Settings]:
    """Other settings inside: `with simulator.using(checks=False, seed=3): ...`"""
    before = replace(settings)
    put(replace(settings, **changes))
    try:
        yield settings
    finally:
        put(before)


def put(new: Settings) -> None:
    """Everything that holds the record sees the change."""
    vars(settings).update(vars(new))
