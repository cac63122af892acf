"""Every torch operation of the program goes into the graph.

In:  calls of torch, whoever makes them: an instruction, a builtin, or torch's own Python code.
Out: for each a call of `GraphBuilder.call`, under the name that a user would give the operation.
In PyTorch: `torch/fx/experimental/proxy_tensor.py` (`PreDispatchTorchFunctionMode`), which listens
in the same way.
"""

import operator
import types
from collections.abc import Callable
from typing import Any, cast

from torch.overrides import TorchFunctionMode

from course_lib import frames
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.sources import Unsupported

REFLECTED = "sub pow truediv floordiv mod matmul lshift rshift".split()
OPERATOR_OF: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__rdiv__": operator.truediv,
}
OPERATOR_OF |= {f"__r{name}__": getattr(operator, f"__{name}__") for name in REFLECTED}
"""Special methods: the operator that a graph says instead (with the operands swapped, if it begins
with r)."""


class TorchRecorder(TorchFunctionMode):
    """While it is active, every torch operation goes into the graph of `builder`."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__()
        self.builder = builder

    def __torch_function__(
        self, function: Any, types_: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        # None: while capture itself runs, the frame hook hands no frame to anybody
        return frames.call(None, self.record, function, args, kwargs or {})

    def record(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Record the operation under the name that a user would give it."""
        name = getattr(function, "__name__", "")

        # an attribute: `tensor.shape` is `shape.__get__(tensor)`
        if isinstance(function, types.MethodWrapperType):
            attribute = getattr(function.__self__, "__name__", "")
            if name != "__get__":
                raise Unsupported(f"changes the attribute '{attribute}' of a tensor")
            return self.builder.call(cast(Any, getattr), [args[0], attribute])

        if name in OPERATOR_OF:
            operands = args[::-1] if name.startswith("__r") else args
            return self.builder.call(OPERATOR_OF[name], operands)

        is_method = getattr(function, "__qualname__", "").startswith(("Tensor.", "TensorBase."))
        target = name if is_method else function
        return self.builder.call(target, args, kwargs)
