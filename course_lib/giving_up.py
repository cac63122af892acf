"""Which code is left to eager, since its compiled entries cost more than they save.

In:  a code object that has as many entries as it may have, and how its calls go on.
Out: may the next call pass at once (`AtLimit.passes`)? Is the code better left to eager for good
     (`AtLimit.serves`)?

At the recompile limit a call that fits no entry runs in eager. But first each entry is checked, and
then the compiler is asked, which says why. That costs more than many a function's own work. So
three things are done, in this order:

    nothing to compile   no entry has an operation in it: the code is left to eager at once
    passing              the compiler is asked no more than it takes to see that the limit is
                         reached (some µs, not hundreds)
    leaving              after `PATIENCE` such calls the entries must have served at least one call
                         in `SHARE`, or the code is left to eager: nothing is checked any more.
                         Entries that serve enough are judged again after `LATER` calls

Calls are counted, not timed. Compiled and eager results may differ in the last bit, so a busy
machine must not change which code runs. While somebody listens (a recording, a log) each call is
told in full, and nothing is given up.
In PyTorch: `torch/_dynamo/convert_frame.py`, `RecompileLimitExceeded`; `eval_frame.py`,
`FrameAction.RUN_ONLY`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_lib import config, events

PATIENCE = 64
SHARE = 4
LATER = 4096
"""The three numbers of "leaving" above. `PATIENCE` and `LATER` are calls that fitted no entry;
`SHARE`: one call must have fitted for so many that did not."""

# What the warning tells the user to do about it
HINT = "Make what changes a tensor, or raise cl.config.recompile_limit and call cl.reset()"


@dataclass
class AtLimit:
    """How the calls of one code object went since it reached the limit."""

    # The limit that it reached. If it is raised, the code may have more entries
    limit: int = field(default_factory=lambda: config.recompile_limit)
    fitted: int = 0
    fitted_none: int = 0
    # So many calls that fit no entry, then it is judged
    until: int = PATIENCE

    def passes(self) -> bool:
        """May a call that fits no entry run in eager unasked? It is counted."""
        if self.limit != config.recompile_limit or self.fitted_none >= self.until:
            return False
        if events.listening():
            return False

        self.fitted_none += 1
        return True

    @property
    def is_due(self) -> bool:
        """Is it time to judge?"""
        return self.fitted_none >= self.until and not events.listening()

    @property
    def serves(self) -> bool:
        """Did the entries serve often enough?"""
        return self.fitted * SHARE >= self.fitted_none

    def again(self) -> None:
        """The entries stay, and are judged anew later."""
        self.fitted = self.fitted_none = 0
        self.until = LATER

    def counting(self, check: Callable[..., bool]) -> Callable[..., bool]:
        """`check`, wrapped so that it notes how often it holds."""

        def count(func: Any, *args: Any) -> bool:
            holds = check(func, *args)
            self.fitted += holds
            return holds

        return count

    def why(self, entries: int) -> str:
        """Why the code is left to eager."""
        return (
            f"at the recompile limit {self.fitted_none} calls fitted none of its {entries} entries, "
            f"and {self.fitted} fitted one"
        )


def has_work(operations: Sequence[int]) -> bool:
    """Is there anything to compile? `operations`: how many each entry has in its graph."""
    return any(operations)
