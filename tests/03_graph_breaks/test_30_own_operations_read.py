"""What the code of a user's operation reads outside may change: from call to call, and between forward and backward.

PYTEST_DONT_REWRITE: the programs are read by their bytecode."""

import functools
import os
import sys
import types

import pytest
import torch
from same_as_eager import Cases

import course_lib as cl

Function = torch.autograd.Function
NUMBER = 2.0
LIST = [2.0]
TENSOR = torch.tensor([2.0])
SETTINGS = types.ModuleType("course_test_settings")
sys.modules[SETTINGS.__name__] = SETTINGS


class Config:
    scale = 2.0


config = Config()


def by_list(x):
    return x * LIST[0]


def by_helper(x):
    return by_list(x)


def by_default(x, scales=LIST):
    return x * scales[0]


def change(scale):
    """Everything that the operations below read becomes `scale`."""
    global NUMBER
    NUMBER = LIST[0] = Config.scale = config.own = SETTINGS.SCALE = by_list.scale = scale
    TENSOR.fill_(scale)
    os.environ["COURSE_TEST_SCALE"] = str(scale)
    for operation in (ByClassAttribute, ByClassMethod):
        operation.scale = scale


READ = {
    "a global number": lambda: NUMBER,
    "a list": lambda: LIST[0],
    "a list in a lambda": lambda: (lambda: LIST[0])(),
    "a list in a comprehension": lambda: [scale * 1 for scale in LIST].pop(),
    "a tensor": lambda: TENSOR,
    "a class": lambda: Config.scale,
    "a class, by getattr": lambda: getattr(Config, "scale"),  # noqa: B009
    "a class, by its dict": lambda: vars(Config)["scale"],
    "an instance": lambda: config.own,
    "a module": lambda: SETTINGS.SCALE,
    "the global variables": lambda: globals()["NUMBER"],
    "an attribute of a function": lambda: by_list.scale,
    "the environment": lambda: float(os.environ["COURSE_TEST_SCALE"]),
    "the environment, by getenv": lambda: float(os.getenv("COURSE_TEST_SCALE")),
}


def reading_in_both(read):
    class Reads(Function):
        @staticmethod
        def forward(ctx, x):
            return x * read()

        @staticmethod
        def backward(ctx, grad):
            return grad * read()

    return Reads


class ByClassAttribute(Function):
    scale = 2.0

    @staticmethod
    def forward(ctx, x):
        return x * ByClassAttribute.scale

    @staticmethod
    def backward(ctx, grad):
        return grad * ByClassAttribute.scale


class ByClassMethod(Function):
    scale = 2.0

    @classmethod
    def forward(cls, ctx, x):
        return x * cls.scale

    @classmethod
    def backward(cls, ctx, grad):
        return grad * cls.scale


class ByImport(Function):
    @staticmethod
    def forward(ctx, x):
        from course_test_settings import SCALE

        return x * SCALE

    @staticmethod
    def backward(ctx, grad):
        import course_test_settings

        return grad * course_test_settings.SCALE


class ByHelpers(Function):
    @staticmethod
    def forward(ctx, x):
        return by_helper(x)

    @staticmethod
    def backward(ctx, grad):
        return by_default(grad)


class ByContext(Function):
    @staticmethod
    def forward(x):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = LIST[0]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale


class ByDefault(Function):
    @staticmethod
    def forward(ctx, x, scales=LIST):
        return x * scales[0]

    @staticmethod
    def backward(ctx, grad):
        return grad


class ByPartial(Function):
    forward = staticmethod(functools.partial(lambda scales, ctx, x: x * scales[0], LIST))

    @staticmethod
    def backward(ctx, grad):
        return grad


class ByWrapper(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * LIST[0]


class ByOwnApply(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad

    @classmethod
    def apply(cls, x):
        return super().apply(x * LIST[0])


class ByArgument(Function):
    @staticmethod
    def forward(ctx, x, function):
        ctx.function = function
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.function(grad), None


class ByMark(Function):
    """An attribute of the tensor itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.mark

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].mark


class OnlyComputes(Function):
    """As in torch's tutorial: a write to its own tensor is no effect."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        own = grad.clone()
        own[x < 0] = 0
        return own


@torch.library.custom_op("course_test::reads_in_both", mutates_args=())
def reads_in_both(x: torch.Tensor) -> torch.Tensor:
    return x * LIST[0]


reads_in_both.register_fake(torch.empty_like)
reads_in_both.register_autograd(lambda ctx, grad: grad * LIST[0])


@torch.library.custom_op("course_test::reads_in_context", mutates_args=())
def reads_in_context(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def keep_number(ctx, inputs, output):
    ctx.scale = NUMBER


reads_in_context.register_fake(torch.empty_like)
reads_in_context.register_autograd(lambda ctx, grad: grad * ctx.scale, setup_context=keep_number)

LIBRARY = torch.library.Library("course_test_read", "DEF")
LIBRARY.define("reads(Tensor x) -> Tensor")
LIBRARY.impl("reads", lambda x: x * LIST[0], "CPU")
LIBRARY.impl("reads", torch.empty_like, "Meta")
torch.library.register_autograd(
    "course_test_read::reads", lambda ctx, grad: grad * LIST[0], lib=LIBRARY
)


def writes_before(x):
    LIST[0] = 9.0
    return reads_in_both(x) + ByHelpers.apply(x)


def writes_a_number_before(x):
    global NUMBER
    NUMBER = 9.0
    return reading_in_both(lambda: NUMBER).apply(x)


def several_calls(function, between):
    """Value and gradient of each call, with the outside at another number; `between`: it changes before backward, too."""

    def body(compile):
        change(2.0)
        fast, found = compile(function), []
        for scale in (2.0, 5.0, 2.0, 7.0):
            change(scale)
            x = torch.ones(1, requires_grad=True)
            x.mark = scale
            y = fast(x)
            if between:
                change(scale + 1)
                x.mark += 1
            y.sum().backward()
            found.append((y.item(), x.grad.item()))
        return found

    return body


PROGRAMS = {name: reading_in_both(read).apply for name, read in READ.items()}
PROGRAMS |= {
    operation.__name__: operation.apply
    for operation in (
        ByClassAttribute,
        ByClassMethod,
        ByImport,
        ByHelpers,
        ByContext,
        ByDefault,
        ByPartial,
        ByWrapper,
        ByOwnApply,
        ByMark,
        OnlyComputes,
    )
}
PROGRAMS |= {
    "a function as an argument": lambda x: ByArgument.apply(x, by_helper),
    "a lambda as an argument": lambda x: ByArgument.apply(x, lambda y: y * NUMBER),
    "an operator": lambda x: reads_in_both(x),
    "an operator's context": lambda x: reads_in_context(x),
    "an operator of a library": lambda x: torch.ops.course_test_read.reads(x),
    "the program writes before": writes_before,
    "the program writes a number before": writes_a_number_before,
}

case = Cases(backend="aot_eager")
for name, apply in PROGRAMS.items():
    for between in (False, True):
        # the program itself has a name to read
        case(
            f"{name}{', changed before backward' if between else ''}",
            several_calls(lambda x, apply=apply: apply(x) + 1, between),
        )


@pytest.mark.parametrize("name", case.names)
def test_an_operation_sees_what_is_outside_now(name):
    case.check(name)


def test_what_only_computes_is_in_the_graph():
    x = torch.ones(3, requires_grad=True)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    cl.compile(lambda x: OnlyComputes.apply(x * 2) + 1, backend=backend, fullgraph=True)(x)
    assert len(graphs) == 1
    assert len([n for n in graphs[0].graph.nodes if n.op == "call_function"]) == 3
