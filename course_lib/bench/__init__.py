"""`course bench`: eager, course_lib and torch.compile side by side.

    course bench tinyblock    the text's model: results, first call, steady state, what was compiled
    course bench overhead     what one call costs when there is hardly any work
    course bench compile      the whole first call, in fresh processes with empty caches
    course bench kernels      small functions, one kernel each, and the memory bandwidth they reach

Read `measure.py` first (how to time), then `compare.py` (what to compare), `commands.py` (the commands).
For a notebook: `from course_lib.bench.measure import interleaved`.
"""

from course_lib.bench.commands import main

__all__ = ["main"]
