"""Branches on data: capture goes on as if it knew the answer, and the answer is checked before
anything is written.

In:  `assert x.sum() > 0`: a tensor and the truth that it must have (`GraphBuilder.expect`).
Out: ordinarily a check in the head, behind the graph. Where the program writes to an input, a check
in the graph, before the write.
In PyTorch: `torch._assert_async` in the graph, wherever the program asserts
(`torch/_dynamo/symbolic_convert.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder


def assert_expected(builder: GraphBuilder) -> None:
    """Add an assertion to the graph for each tensor in `builder.expected`: an input is about to be
    written to.

    An assertion that fails raises before the write. Then the head lets eager run the frame from its
    start, as after any error of a graph.
    """
    # an assertion that fails on a GPU ends all work there
    if any(tensor.device.type != "cpu" for tensor, _ in builder.expected):
        raise Unsupported("writes to an input after an assertion about data, which must come first")

    graph = builder.graph
    for tensor, truth in builder.expected:
        is_true = graph.call_function(torch.ne, (builder.node_of(tensor), 0))
        is_true.meta["val"] = builder.run_fake(torch.ne, (tensor, 0), {})

        holds = is_true
        if not truth:
            holds = graph.call_function(torch.logical_not, (is_true,))
            holds.meta["val"] = builder.run_fake(torch.logical_not, (is_true.meta["val"],), {})

        check = graph.call_function(torch._assert_async, (holds,))
        for node in (is_true, holds, check):
            node.meta.update(location=builder.location, module=builder.module)
    builder.expected.clear()
