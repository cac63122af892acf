"""From a frame to a graph: the symbolic interpreter.

In:  a `Frame` that is about to run.
Out: `CaptureResult`: an FX graph of torch operations, the guards under which it may be used again, and the head, the
     Python function
     that runs in the frame's place. What cannot be expressed raises `Unsupported`.

Read in this order: `values.py` (what is on the stack), `interpreter.py` (the loop), `calls.py`, `containers.py`,
`attributes.py`, `graph.py` (recording), `context.py` (from real objects to values), `head.py`.
In PyTorch: `torch/_dynamo/convert_frame.py` (`_compile`), `symbolic_convert.py`, `variables/`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import fx

from course_lib.capture import calls, global_state
from course_lib.capture.context import Context, SameAs
from course_lib.capture.head import Head, HeadBuilder
from course_lib.capture.interpreter import Interpreter
from course_lib.capture.sources import FUNCTION, Guard, Local, Location, Source, Test, literal
from course_lib.capture.sources import Function as FunctionSource
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import Function, Tensor
from course_lib.frames import Frame


@dataclass
class CaptureResult:
    """What one capture gave. `example_inputs` are the real tensors of this call, in placeholder order."""

    name: str
    where: str
    graph: fx.GraphModule
    guards: list[Guard]
    head: Head
    example_inputs: list[torch.Tensor]
    operations: int

    def __str__(self) -> str:
        return f"{self.name} ({self.where}): {self.operations} operations, {len(self.guards)} guards"


def capture(frame: Frame, interpreter: type[Interpreter] = Interpreter) -> CaptureResult:
    """Interpret `frame` symbolically. Raises `Unsupported` with the place where it cannot go on."""
    context = Context()
    source = FunctionSource()
    function = context.wrap_function(frame.func, source)
    locals_ = {name: context.wrap(value, Local(name)) for name, value in frame.locals.items()}
    cells = calls.make_cells(frame.code, locals_, function.cells)
    with recording_mode():
        result = interpreter(context, frame.code, frame.func.__globals__, locals_, cells, source).run()
    builder = context.builder
    heads = HeadBuilder(frame.code.co_qualname, tuple(frame.locals))
    head = heads.build(result, builder)
    return CaptureResult(
        frame.code.co_qualname,
        f"{frame.code.co_filename}:{frame.code.co_firstlineno}",
        builder.finish(heads.outputs),
        list(context.guards),
        head,
        [tensor.real for tensor in builder.inputs if tensor.real is not None],
        builder.operations,
    )


@contextlib.contextmanager
def recording_mode() -> Iterator[None]:
    """The user's grad mode, without inference mode: fake tensors must be ordinary ones."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    with (
        torch.inference_mode(False) if inference else contextlib.nullcontext(),
        torch.set_grad_enabled(grad and not inference),
    ):
        yield


__all__ = [
    "FUNCTION", "CaptureResult", "Context", "Function", "FunctionSource", "Guard", "Head", "Interpreter", "Local",
    "Location", "SameAs",
    "Source", "Tensor", "Test", "Unsupported", "capture", "global_state", "literal",
]  # fmt: skip
