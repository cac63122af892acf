"""Scheduling: which loops run together, in which order, and where buffers live.

In:  a `LoopGraph`. Out: a `Schedule` of kernels, and a `MemoryPlan`.

Read in this order:

    fusion.py                          the rules: may two groups be one kernel, and is it worth it?
    schedule.py, merging.py, order.py  the search: the pair that saves most is fused first
    inlining.py                        what could not be fused, and is cheap, is computed again by
                                       its readers
    groups.py, fitting.py              groups of loops, and how the loops of two of them fit
    kernel.py, expressions.py          a kernel's steps, and the body of a loop as a tree
    dependencies.py                    what a loop reads and writes, and where
    memory.py                          which buffer lives where, and how long
    overwriting.py                     which operand a kernel may write its result over

`split.py` cuts reductions in two. `products.py` makes loops of matrix products. Attention is a
*stream*, one kernel that walks along rows of scores in blocks and stores no scores: `streams.py`
finds streams, `attempts.py` tries one, `stream_nodes.py` has its records, `stream_trees.py` its
formulas, `rescaling.py` the law that allows it, and `blocks.py` the blocks that a mask rules out.
`training.py` and `row_sums.py` make streams of its backward pass.
In PyTorch: `torch/_inductor/scheduler.py`, `torch/_inductor/codegen/simd.py` (which loops fit),
`codegen/memory_planning.py`.
"""

from course_lib.scheduling.fusion import RULES, Fuse, No, can_fuse
from course_lib.scheduling.kernel import FusedKernel, Kernel, Loop, Step
from course_lib.scheduling.memory import MemoryPlan, plan
from course_lib.scheduling.schedule import Decision, Schedule, schedule
from course_lib.scheduling.split import split_reductions
from course_lib.scheduling.stream_nodes import Streamed
from course_lib.scheduling.streams import stream_products
from course_lib.scheduling.training import streamed_loops, without_scores
