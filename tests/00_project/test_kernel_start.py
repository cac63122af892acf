"""A kernel that ends before a cell has run is started again: that is no fault of a learner's."""

import sys
from pathlib import Path
from typing import Any

import pytest

from course_lib.grading import kernel
from course_lib.grading.kernel import Kernel, Limits

ENDS_AT_ONCE = [sys.executable, "-c", "pass"]


class Kernels:
    """Stands for `this_python`: the first `broken` kernels that it names end at once."""

    def __init__(self, broken: int) -> None:
        self.broken = broken
        self.asked = 0
        self._this_python = kernel.this_python

    def __call__(self, sandbox: Any = None, program: Any = None) -> Any:
        self.asked += 1
        manager = self._this_python(sandbox, program)
        if self.asked > self.broken:
            return manager

        find = manager.get_kernel_spec

        def broken_spec(kernel_name: str) -> Any:
            spec = find(kernel_name)
            spec.argv = ENDS_AT_ONCE
            return spec

        manager.get_kernel_spec = broken_spec
        return manager


def test_a_kernel_that_ends_at_its_start_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels(broken=2)
    monkeypatch.setattr(kernel, "this_python", kernels)
    with Kernel(tmp_path, Limits()) as started:
        run = started.run(0, "print(1 + 1)", deadline=float("inf"))
    assert run.ok and kernels.asked == 3


def test_a_kernel_that_never_starts_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels(broken=100)
    monkeypatch.setattr(kernel, "this_python", kernels)
    with pytest.raises(RuntimeError, match="died"), Kernel(tmp_path, Limits()):
        pass
    assert kernels.asked == 3
