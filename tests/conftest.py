"""What every test shares: the repository's root, a cache folder of its own, and no leftovers between tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before course_lib is imported anywhere: tests share one cache of built kernels, apart from the user's own.
os.environ.setdefault("COURSE_CACHE", str(Path(__file__).parents[1] / ".pytest_cache" / "course_cache"))

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where torch can use none."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="torch can use no GPU here"))
