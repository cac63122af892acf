"""`course bench`: eager, course_lib and torch.compile side by side.

    course bench tinyblock    the text's model: results, first call, steady state, what was compiled
    course bench overhead     what one call costs when there is hardly any work
    course bench compile      the whole first call, in fresh processes, by what is on disk already
    course bench kernels      small functions, one kernel each, and the memory bandwidth they reach

    course bench suite        the workloads that the compiler is measured by, each with what it must
                              reach
    course bench memory       does memory stay flat over thousands of compiles?
    course bench peak         how much memory a training step takes at its height

Commands that measure nothing (`course doctor`, `course demo`) are in `course_lib.tools`.
Read `measure.py` first (how to time), then `compare.py` (what to compare), `commands.py` (the
commands; their arguments are in `command_line.py`). For a notebook:
`from course_lib.bench.measure import interleaved`.
"""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run `course bench ARGV`; gives the exit status."""
    from course_lib.bench import command_line

    return command_line.main(list(argv))
