"""From torch operations to ATen operations, forward and backward. In PyTorch: `torch/_functorch/aot_autograd.py`."""

from course_lib.autograd.buckets import active_module, in_pieces
from course_lib.autograd.numbers import lift_numbers
from course_lib.autograd.partition import Partition, partition
from course_lib.autograd.runtime import (
    Program,
    differentiable,
    finished,
    hooks_for_saved_tensors,
    op_by_op,
    restoring,
    with_numbers_for_sizes,
)
from course_lib.autograd.signature import Result, Signature, Update
from course_lib.autograd.trace import joint, trace
