"""`with torch.inference_mode():` inside a function.

In:  the context manager is entered, and operations make tensors.
Out: an ordinary graph without gradients, and a note of the memory that was made meanwhile
     (`GraphBuilder.inference`). The head makes inference tensors of the results that lie in it.

torch.compile gives ordinary tensors there. Then `is_inference()` is wrong, and the errors are lost
that eager raises where autograd meets such a tensor. Here the graph ends where one of these is
asked for.
In PyTorch: `torch/_dynamo/variables/ctx_manager.py` (`InferenceModeVariable`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.classes import is_a
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.operations import CHECKS, Operation
from course_lib.capture.rebuild import Rebuilder
from course_lib.capture.rebuild_kinds import WAYS, Way, write_tensor
from course_lib.capture.sources import Unsupported
from course_lib.capture.values import has_tensor, storages

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


def enter_inference(it: Machine, context: Any) -> None:
    """The beginning of `with torch.inference_mode()`: gradients are off, and the region begins."""
    builder = it.world.builder
    if not context.mode or it.world.inference or it.world.of(context):
        raise Unsupported(
            "switches inference mode in a way that is not followed",
            "write `with torch.inference_mode():`",
        )

    # What held before is kept in an attribute of torch's own context manager, until
    # `leave_inference`.
    context._inference_mode_context = builder.region, torch.is_grad_enabled()

    # A region has the number of the frame's instruction that entered it. A region inside another
    # belongs to the outer one.
    current_instruction = it.world.root.next - 1
    builder.region = builder.region or current_instruction
    it.call(torch._C._set_grad_enabled, False)


def leave_inference(it: Machine, context: Any, *error: Any) -> None:
    """The end of the block: gradients are what they were."""
    if it.world.of(context):
        raise Unsupported("leaves an inference mode that was entered outside")

    # `enter_inference` has put them there.
    region_before, grad_before = context._inference_mode_context
    it.world.builder.region = region_before
    it.call(torch._C._set_grad_enabled, grad_before)


def is_inference_mode_enabled(it: Machine) -> bool:
    """Is inference mode on, entered outside or by the program?"""
    entered_outside = bool(it.world.inference)
    entered_inside = it.world.builder.region > 0
    return entered_outside or entered_inside


def note_inference_memory(builder: GraphBuilder, operation: Operation, result: Any) -> None:
    """Inside a region, remember the memory that is made.

    Outside, refuse what autograd may refuse for such memory."""
    if not (builder.region or builder.inference):
        return

    memory_of_arguments = storages((operation.args, operation.kwargs))
    if builder.region:
        for address, memory in storages(result).items():
            if address not in memory_of_arguments:
                builder.inference[address] = memory
        return

    if builder.inference.keys() & memory_of_arguments and is_seen_by_autograd(operation, result):
        raise Unsupported("does with a tensor made in inference mode what autograd may refuse")


def is_seen_by_autograd(operation: Operation, result: Any) -> bool:
    """Does the operation write in place, or give what may need a gradient?"""
    if result is None or any(result is arg for arg in operation.args):
        return True
    return bool(getattr(result, "requires_grad", has_tensor(result)))


def is_inference_tensor(head: Rebuilder, value: Any) -> bool:
    """Is it a result of the graph in memory that was made inside?"""
    inference = head.world.builder.inference
    if not inference or not is_a(value, torch.Tensor):
        return False
    return not inference.keys().isdisjoint(storages(value))


def write_inference_tensor(head: Rebuilder, tensor: torch.Tensor) -> str:
    """The same memory as an inference tensor."""
    result = write_tensor(head, tensor)
    return head.assign(f"{head.name_for(as_inference, 'as_inference')}({result})")


@torch.inference_mode()
def as_inference(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a tensor that was made in inference mode."""
    inference_tensor = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    inference_tensor.set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )

    # Whether it is conjugated or negated
    torch._utils.set_tensor_metadata(inference_tensor, torch._utils.get_tensor_metadata(tensor))
    return inference_tensor


FUNCTIONS |= {
    torch.inference_mode.__enter__: enter_inference,
    torch.inference_mode.__exit__: leave_inference,
    torch.is_inference_mode_enabled: is_inference_mode_enabled,
}
CHECKS.append(note_inference_memory)
# Before the way of all tensors: the first one that applies is taken.
WAYS.insert(0, Way(is_inference_tensor, write_inference_tensor))
