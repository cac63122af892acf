"""What every test shares: the repository's root, a cache folder of its own, and no leftovers between tests."""

from __future__ import annotations

import os
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before course_lib is imported anywhere: tests share one cache of built kernels, apart from the user's own.
os.environ.setdefault(
    "COURSE_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "course_cache")
)

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """The random numbers of a test depend on its name, not on the tests that ran before it in the same process."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@pytest.fixture(autouse=True)
def simulator_as_it_was() -> Iterator[None]:
    """Exercises run in this process and may switch checks of the simulator off. Other tests find them on."""
    yield
    simulator = sys.modules.get("course_lib.simulator.settings")
    if simulator is not None:
        simulator.put(simulator.Settings())


@pytest.fixture(autouse=True)
def without_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is timed against eager: a test's result must not depend on a clock.

    The tests of that (`test_22_racing.py`) switch it on."""
    from course_lib import config

    monkeypatch.setattr(config, "leave_what_loses", False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long modules come first, and tests marked `gpu` are skipped where torch can use none."""
    items[:] = long_modules_first(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch can use no GPU here"))


def long_modules_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests, module by module: those with slow tests first, then those with many.

    Workers take whole modules in this order (`--dist loadscope --no-loadscope-reorder`). By itself xdist begins with the modules
    of most tests, so that a few tests of minutes come last and one worker waits for the other."""
    modules: dict[str, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.nodeid.split("::")[0], []).append(item)
    is_quick = lambda module: not any(item.get_closest_marker("slow") for item in module)
    ordered = sorted(modules.values(), key=lambda module: (is_quick(module), -len(module)))
    return [item for module in ordered for item in module]
