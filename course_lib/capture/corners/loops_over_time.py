"""`nn.RNN` and `nn.GRU` of many steps: torch writes them out step by step, so their graph grows
with the sequence.

In:  a recurrent operation and its arguments, before it runs.
Out: `Unsupported` where it would be too many steps, or a number of steps that changes from call to
     call: it then runs in eager.

A few steps are worth compiling: kernels join what eager does in a dozen calls a step. Hundreds take
minutes to compile. `nn.LSTM` in float32 is one call of oneDNN, and on a GPU all are one call of
cuDNN, so they stay in the graph. With sizes that are symbols torch has an LSTM in Python, which
calls oneDNN for inference only: it writes the steps of an input with a gradient out.
In PyTorch: `torch/_dynamo/config.py`, `allow_rnn`: TorchDynamo breaks the graph at each of these
modules.
"""

from typing import Any

import torch

from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.machine import Machine
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported

MOST_STEPS = 128
"""Steps of all layers and directions together. Sixty-four of a GRU take a minute to compile."""

# What `nn.GRU`, `nn.RNN` and `nn.LSTM` call
STEP_BY_STEP = (torch.gru, torch.rnn_tanh, torch.rnn_relu, torch.lstm)


def is_step_by_step(interpreter: Machine, function: Any) -> bool:
    """Is this one of torch's recurrent operations?"""
    return any(function is known for known in STEP_BY_STEP)


def refuse_many_steps(
    interpreter: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """GO_ON for a few steps.

    Raises Unsupported for what would be unrolled into a graph that is too long."""
    if is_one_call(function, args):
        return GO_ON

    # Asked before the operation runs: its loop would make a number of a size that is a symbol
    steps = steps_of(args)
    if isinstance(steps, torch.SymInt):
        raise Unsupported(
            f"{function.__name__} is a loop over time, and the number of its steps changes",
            "it runs in eager, as it does under torch.compile",
        )
    if steps > MOST_STEPS:
        raise Unsupported(
            f"{function.__name__} is a loop over {steps} steps, and each would be in the graph",
            "it runs in eager, as it does under torch.compile",
        )
    return GO_ON


def is_one_call(function: Any, args: Any) -> bool:
    """Is it one operation of a library?

    In PyTorch: `use_mkldnn` in `aten/src/ATen/native/RNN.cpp`, and for sizes that are symbols
    `select_one_layer_lstm_function` in `torch/_decomp/decompositions.py`."""
    data = args[0]
    if data.device.type != "cpu":
        return True
    if function is not torch.lstm or data.dtype is not torch.float32 or is_packed(args):
        return False

    hidden, cell = args[1]
    has_projections = hidden.shape[2] != cell.shape[2]
    has_symbols = any(isinstance(size, torch.SymInt) for size in data.shape)
    return not has_projections and not (has_symbols and data.requires_grad)


def is_packed(args: Any) -> bool:
    """Are the sequences of different length, behind one another?

    `args` has one of two forms: (data, hx, params, ...) and, packed, (data, batch_sizes, hx,
    params, ...)."""
    return isinstance(args[3], (list, tuple))


def steps_of(args: Any) -> Any:
    """How many steps a network over time takes, in all its layers and directions together.

    Behind the parameters, torch's functions take: has_biases, num_layers, dropout, train,
    bidirectional, and (not if the sequences are packed) batch_first."""
    data, second, *_ = args
    if is_packed(args):
        _, layers, _, _, bidirectional = args[4:9]
        # `second` is batch_sizes: how many sequences go on, for each step
        length = second.shape[0]
    else:
        _, layers, _, _, bidirectional, batch_first = args[3:9]
        dim_of_time = 1 if batch_first else 0
        length = data.shape[dim_of_time]

    directions = 2 if bidirectional else 1
    return length * layers * directions


register(CallRule("a loop over time", is_step_by_step, refuse_many_steps), before="torch operation")
