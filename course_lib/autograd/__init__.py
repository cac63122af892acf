"""From torch operations to ATen operations, forward and backward.

In:  a captured graph. Out: graphs of ATen operators that write to nothing, and a node of autograd's
     around them.

Read in this order:

    trace.py                        the graph is run once more and recorded: first forward, then
                                    autograd
    decomposing.py, tagging.py      while it is recorded: operators fall apart; which line each came
                                    from
    signature.py                    which results are views, and which inputs are written to
    partition.py                    forward and backward, and what is kept in between
    runtime.py, gradients.py        the compiled halves as a part of the program
    numbers.py                      numbers that change from call to call

The other files have one special case each:

    tidying.py, effects.py          nodes that only the recording needed, and nodes with an effect
    sizes_as_nodes.py, forms.py     symbolic sizes in a graph, and the shapes that they give
    absent.py                       backward when some results were not used
    again.py                        backward by eager's own rules: twice, or after a write
    around_data.py                  a graph in pieces, around sizes that only the data says
    result_hooks.py                 hooks on results
    buckets.py                      a graph in pieces, under `DistributedDataParallel`

In PyTorch: `torch/_functorch/aot_autograd.py`, `torch/_functorch/partitioners.py`.
"""

from course_lib.autograd.around_data import around_data, has_sizes_of_data
from course_lib.autograd.buckets import active_module, in_pieces
from course_lib.autograd.numbers import Lifted, lift_numbers
from course_lib.autograd.partition import Partition, partition
from course_lib.autograd.runtime import (
    Program,
    differentiable,
    fall_back,
    finished,
    hooks_for_saved_tensors,
    op_by_op,
    restoring,
    with_numbers_for_sizes,
)
from course_lib.autograd.signature import Result, Signature, Update
from course_lib.autograd.trace import joint, trace
