"""One program for each set of sizes, around kernels that take numbers as arguments.

In:  a captured graph with symbolic sizes for which no single program can be compiled, and a
     function that compiles a graph whose sizes are numbers.
Out: a program that looks at the sizes of its inputs, and compiles once for each new set of them.

A Python number that meets a tensor (`x * scale`) is no size: it becomes an input of the graph (it
is *lifted*), so another number needs no other program.
In PyTorch: none. There a guard fails, and `torch/_dynamo/convert_frame.py` captures once more.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from course_lib import autograd, capture, config
from course_lib.apart import apart_from_hooks
from course_lib.autograd import Lifted, Program
from course_lib.failing import WHILE_COMPILING
from course_lib.written import forget, quiet, traceable

BuildForSizes = Callable[[fx.GraphModule, list[Any]], Program]
"""(a graph whose sizes are numbers, examples of its inputs) → a program."""


def specialized(gm: fx.GraphModule, build: BuildForSizes) -> Program:
    """A program for each of the first `config.sizes_limit` sets of sizes.

    Where nothing depends on a size, one program for all calls."""
    lifted = autograd.lift_numbers(gm)
    if lifted is None:
        inputs = gm.graph.find_nodes(op="placeholder")
        return for_each_size(gm, gm, [True] * len(inputs), build)
    if lifted.depends_on_sizes:
        program = for_each_size(gm, lifted.graph, lifted.depends_on, build)
    else:
        # From call to call nothing but the lifted numbers differs, and they are inputs now
        program = for_all_calls(lifted.graph, build)
    return with_numbers(program, lifted, gm)


def for_each_size(
    gm: fx.GraphModule, graph: fx.GraphModule, depends_on: Sequence[bool], build: BuildForSizes
) -> Program:
    """A program that compiles `graph` for each set of sizes, strides and numbers that it meets.

    gm: the graph as it was captured. `graph` may have lifted numbers as further inputs.
    depends_on: for each input of `gm`, whether another value of it needs another program."""
    built: dict[Any, Program] = {}

    def run(*args: Any) -> tuple[Any, ...]:
        key = tuple(map(sizes_of_argument, compress(args, depends_on)))
        if key in built:
            return built[key](*args)

        if len(built) >= config.sizes_limit:
            # The captured graph has no inputs for lifted numbers.
            captured_args = args[: len(depends_on)]
            why = f"it met more than {config.sizes_limit} sets of sizes"
            return autograd.fall_back(gm, why)(*captured_args)

        built[key] = build_for(graph, list(args), build)
        return built[key](*args)

    return run


def for_all_calls(graph: fx.GraphModule, build: BuildForSizes) -> Program:
    """One program, built in the first call, which has examples of the inputs."""
    built: list[Program] = []

    def run(*args: Any) -> tuple[Any, ...]:
        if not built:
            built.append(build_for(graph, list(args), build))
        return built[0](*args)

    return run


def with_numbers(program: Program, lifted: Lifted, gm: fx.GraphModule) -> Program:
    """A program that is given the lifted numbers as tensors, behind its inputs."""

    def run(*args: Any) -> tuple[Any, ...]:
        if autograd.hooks_for_saved_tensors():
            # The hooks would see tensors that stand for numbers, which eager does not have
            return autograd.fall_back(gm, autograd.runtime.HOOKS)(*args)
        numbers = lifted.values(args)
        if numbers is None:
            return autograd.fall_back(gm, "a number is too large for the kernels")(*args)
        return program(*args, *numbers)

    return run


def sizes_of_argument(value: Any) -> Any:
    """What of an argument a program depends on: sizes and strides of a tensor; a number itself."""
    if isinstance(value, torch.Tensor):
        return (*value.shape, *value.stride())
    return value


def build_for(gm: fx.GraphModule, inputs: list[Any], build: BuildForSizes) -> Program:
    """A program for inputs of just these sizes, compiled in the middle of a run."""
    try:
        with apart_from_hooks(), capture.recording_mode():
            return build(with_sizes(gm, inputs), inputs)
    except Exception as error:
        # The head must not take it for an error of the program's data (`failing.py`)
        setattr(error, WHILE_COMPILING, True)
        raise


@capture.recording_mode()  # the graph may switch autocast
def with_sizes(gm: fx.GraphModule, args: Sequence[Any]) -> fx.GraphModule:
    """The graph for inputs of just these sizes; numbers among the inputs become constants."""
    static, mode = copy.deepcopy(gm), FakeTensorMode()
    interpreter = fx.Interpreter(static, garbage_collect_values=False)
    with mode, quiet():
        fakes = []
        for arg in args:
            if isinstance(arg, torch.Tensor):
                arg = mode.from_tensor(arg)
            fakes.append(arg)
        interpreter.run(*fakes)

    for node, value in interpreter.env.items():
        node.meta["val"] = value
        # A number made of sizes is a constant here
        if node.op == "call_function" and isinstance(value, (int, float)):
            node.replace_all_uses_with(value)

    for node, arg in zip(static.graph.find_nodes(op="placeholder"), args, strict=True):
        node.meta["requires_grad"] = getattr(arg, "requires_grad", False)
        if not isinstance(arg, torch.Tensor):
            node.replace_all_uses_with(arg)

    forget(type(static))  # the copy's first `forward`; it gets another
    static.recompile()
    return traceable(static)
