"""What is known about each code object: its compiled entries, in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from course_lib.capture import CaptureResult
from course_lib.frames import number
from course_lib.guards.check import Check


@dataclass(frozen=True)
class GuardedCode:
    """One entry: if `check` holds, call `head`."""

    check: Check
    head: Callable[..., Any]
    result: CaptureResult


@dataclass
class CodeCache:
    """The entries of every code object that one `compile` has seen. (The hook holds the same checks and heads in C.)"""

    entries: dict[int, list[GuardedCode]] = field(default_factory=dict)
    """By the code's number: code objects themselves are equal when they read the same, wherever they come from."""

    def of(self, code: CodeType) -> list[GuardedCode]:
        return self.entries.setdefault(number(code), [])
