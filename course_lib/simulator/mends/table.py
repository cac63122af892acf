"""What is mended in Triton's interpreter: one record each.

In:  nothing.
Out: `MENDS`, in the order in which they are put in place.
In PyTorch: nothing; Triton's interpreter is `triton/runtime/interpreter.py`.

Each record says for which versions of Triton it is needed. A test runs a small kernel for each,
with the mend and without: a new Triton whose own interpreter passes without one shows that it may
be dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.versions import TRITONS

Version = tuple[int, int]

FIRST: Version = TRITONS[0]
LAST: Version = TRITONS[1]


@dataclass(frozen=True)
class Mend:
    """One difference between Triton's interpreter and a GPU, and what takes it away."""

    name: str
    wrong: str
    put_in_place: Callable[[], None] | None
    first: Version = FIRST
    last: Version = LAST

    def needed(self, version: Version) -> bool:
        """Is it wrong in this version?

        One that is newer than all that are known is taken to be as the last, an older one as the
        first."""
        return self.first <= max(FIRST, min(version, LAST)) <= self.last

    def __str__(self) -> str:
        versions = f"{self.first[0]}.{self.first[1]} to {self.last[0]}.{self.last[1]}"
        return f"{self.name} (Triton {versions}): {self.wrong}"


MENDS: list[Mend] = []


def mend(
    name: str, wrong: str, first: Version = FIRST, last: Version = LAST
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Put a function into the table. `wrong`: what Triton's interpreter does without it."""

    def register(put_in_place: Callable[[], None]) -> Callable[[], None]:
        MENDS.append(Mend(name, wrong, put_in_place, first, last))
        return put_in_place

    return register


def stated(name: str, wrong: str, first: Version = FIRST, last: Version = LAST) -> None:
    """A mend that is part of how the simulator rewrites or starts a kernel, so that nothing is put
    in place for it.

    wrong: what Triton's interpreter does instead. first, last: the versions of Triton that do.
    """
    MENDS.append(Mend(name, wrong, None, first, last))


def override(owner: Any, **methods: Any) -> None:
    """Put methods into a class or module of Triton's."""
    for name, method in methods.items():
        setattr(owner, name, method)
