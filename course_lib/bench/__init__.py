"""`course bench`: eager, course_lib and torch.compile side by side.

    course bench tinyblock    the text's model: results, first call, steady state, what was compiled
    course bench overhead     what one call costs when there is hardly any work
    course bench compile      the whole first call, in fresh processes, by what is on disk already
    course bench kernels      small functions, one kernel each, and the memory bandwidth they reach

    course bench suite        the workloads that the compiler is measured by, each with what it must
                              reach
    course bench memory       does memory stay flat over thousands of compiles?
    course bench peak         how much memory a training step takes at its height

Commands that measure nothing (`course doctor`, `course demo`) are in `course_lib.tools`. For a
notebook: `from course_lib.bench.measure import interleaved`.

Read in this order:

    measure.py, machine.py       how to time, and where a number was measured
    compare.py, models.py        what is compared: ways to run a workload, and the models
    commands.py, command_line.py the commands, and their arguments
    report.py, pictures.py       outcomes as text, JSON and pictures

What is measured, one file each:

    suite.py, gpu_suite.py       the workloads, on a CPU and on a GPU, each with its aim
    first_call.py, child.py      the first call, in a process of its own
    overhead.py                  what a call costs beside its kernels
    eager.py                     what an eager call costs, layer by layer (lesson 01)
    ablation.py                  what each part of the compiler is worth
    library.py, roofline.py      the part of library calls; the limits of the machine
    leaks.py, peak.py            memory over many compiles, and at the height of a step
    overlap.py                   communication behind compute, on several GPUs
    evidence.py                  why compiled code is not faster: what can be counted
"""

from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run `course bench ARGV`; gives the exit status."""
    from course_lib.bench import command_line

    return command_line.main(list(argv))
