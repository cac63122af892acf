"""How much memory a compiled graph holds while it runs, with its memory plan and without.

In:  a `Schedule` and its `MemoryPlan`.
Out: `MemoryUse`: bytes held while each kernel runs, the peak, and the peak if each node ran alone, as in eager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from course_lib.lowering.ir import Size
from course_lib.scheduling import MemoryPlan, Schedule
from course_lib.scheduling.fusion import human_bytes, int_or


@dataclass(frozen=True)
class MemoryUse:
    """Bytes held, inputs not counted."""

    schedule: Schedule
    plan: MemoryPlan

    @property
    def live_bytes(self) -> list[Size]:
        """Bytes held while each kernel runs."""
        count = len(self.plan.free_after)
        last = {storage: n for n, freed in enumerate(self.plan.free_after) for storage in freed}
        new = [a for a in self.plan.allocations if a.how == "new"]
        return held([(a.kernel, last.get(a.storage, count), a.buffer.nbytes) for a in new], count)

    @property
    def peak_bytes(self) -> Size:
        """The most bytes held at once."""
        return max(self.live_bytes, key=int_or, default=0)

    @property
    def unplanned_peak(self) -> Size:
        """The peak if each node ran alone: its result in memory of its own, freed after its last use."""
        alone = self.schedule.alone
        last = {buffer.name: n for n, group in enumerate(alone) for buffer in (*group.reads, *group.writes)}
        for group in alone:
            last |= dict.fromkeys(group.usage.outputs, len(alone))
        spans = [(n, last[buffer.name], buffer.nbytes) for n, group in enumerate(alone) for buffer in group.writes]
        return max(held(spans, len(alone)), key=int_or, default=0)

    def __str__(self) -> str:
        lines = []
        for n, (kernel, bytes_held) in enumerate(zip(self.schedule.kernels, self.live_bytes, strict=True)):
            made = "; ".join(str(a) for a in self.plan.allocations if a.kernel == n)
            freed = f"   frees {', '.join(self.plan.free_after[n])}" if self.plan.free_after[n] else ""
            lines.append(f"{human_bytes(bytes_held):>10}  {kernel}: {made}{freed}")
        return "\n".join([*lines, f"peak {human_bytes(self.peak_bytes)}, unfused {human_bytes(self.unplanned_peak)}"])


def held(spans: Sequence[tuple[int, int, Size]], count: int) -> list[Size]:
    """Bytes held while each of `count` kernels runs. A span is the first and the last that need some bytes, and how many."""
    change: list[Size] = [0] * (count + 2)
    for first, last, size in spans:
        change[first] += size
        change[last + 1] -= size
    return list(accumulate(change))[:count]
