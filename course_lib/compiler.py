"""`cl.compile` and what a user meets around it.

In:  a function or module, and a backend.
Out: a callable that watches the frames that run below it, captures them, and runs compiled code where the guards hold.
In PyTorch: `torch.compile`, `torch/_dynamo/eval_frame.py` (`OptimizedModule`), `convert_frame.py` (`ConvertFrameAssert`).
"""

import contextlib
import functools
import importlib
import inspect
import os
import sysconfig
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch._C import _get_tracing_state as is_tracing
from torch.autograd import forward_ad  # where tangents are asked for: kernels know of none
from torch.compiler import is_dynamo_compiling  # true to torch.compile alone
from torch.fx import _symbolic_trace as fx_tracer

from course_lib import backends, config, events
from course_lib.capture import CaptureResult, History, Unsupported, global_state
from course_lib.frames import AS_IT_IS, SKIP, Answer, Frame, Watcher, call, number, wrapper
from course_lib.frames.resume import PLAIN
from course_lib.guards import Check
from course_lib.pipeline import Pipeline, apart_from_hooks
from course_lib.twin import twin_of, untwinned

F = TypeVar("F", bound=Callable[..., Any])
# Run below a user's call (a `print` in a notebook): no tensor code
TOOLS = {"_pytest", "pluggy", "typing_extensions.py"}
TOOLS |= set(
    "IPython ipykernel ipywidgets traitlets zmq tornado jupyter_client dateutil matplotlib".split()
)
TORCH_COMPILE = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "_dynamo", "")
LIBRARIES = tuple(
    os.path.dirname(os.path.abspath(str(path))) + os.sep
    for path in (torch.__file__, np.__file__, __file__)
)
STEPS = frozenset(
    f"_single_tensor_{name}" for name in "sgd adam rmsprop adagrad adadelta adamax nadam".split()
)
"""What optimizers do to all parameters (`torch.optim`), without a look at data: the rest of a `step` runs in eager."""
# Every compiler that holds compiled code, for `reset`
live: weakref.WeakSet["Compiler"] = weakref.WeakSet()


class GuardedCode(NamedTuple):
    """One compiled entry: if `check` holds, its head runs. (`torch/csrc/dynamo/cache_entry.cpp`)"""

    check: Check
    result: CaptureResult


@dataclass
class CodeState:
    """What is known about a code object. (`torch/csrc/dynamo/extra_state.cpp`; the hook holds the same checks and heads in C.)"""

    history: History
    entries: list[GuardedCode] = field(default_factory=list)
    warned: bool = False  # Was it said that no more entries are made?


@dataclass(eq=False)
class Compiler:
    """Answers the frame hook for one `compile`: which code runs in a frame's place."""

    backend: backends.Backend
    pipeline: Pipeline
    fullgraph: bool = False
    dynamic: bool | None = None

    def __post_init__(self) -> None:
        with config.collector_paused(importing=True):
            # sizes need it: whole, and not when a frame is half captured
            call(None, importlib.import_module, "torch._dynamo")
        self.codes: dict[int, CodeState] = {}  # By the code's number (`frames.number` says why)
        self.watcher = Watcher(self.convert)
        live.add(self)

    @apart_from_hooks()
    def convert(self, frame: Frame) -> Answer:
        """The hook's question: `frame` is about to run and no entry fits."""
        code = frame.code
        if code.co_filename.startswith(TORCH_COMPILE):  # what it compiles is its own matter
            return (lambda func, *args: True), (lambda func, *args: AS_IT_IS)
        if is_skipped(code) or number(code) in PLAIN:
            return SKIP
        if not global_state.is_ordinary():
            return None
        state, stages = self.state_of(code), self.pipeline
        entries, args = state.entries, tuple(frame.locals.values())
        events.emit(events.FrameSeen(code.co_qualname, frame.where, code))
        for entry in entries if events.listening() else ():  # which guard kept it from being used
            if failure := entry.check.first_failure(frame.func, *args):
                events.emit(events.GuardFailed(code.co_qualname, failure.guard, str(failure)))
        try:
            if entries and len(entries) >= config.recompile_limit:
                return self.at_limit(frame, code, state)
            result = events.stage(
                "capture",
                None,
                stages.capture,
                frame,
                stages.interpreter,
                state.history,
                self.fullgraph,
            )
        except Unsupported as problem:
            events.emit(events.GraphBroke(problem, self.fullgraph))
            if self.fullgraph:
                raise
            return SKIP
        if result.problem is None and result.operations == 0 and not result.looks_up:
            return SKIP
        # a graph and a head at each level of a deep recursion would take twice the stack that the program takes
        if result.problem is not None and is_deep_recursion(result.problem):
            events.emit(events.FellBack(code.co_qualname, result.problem.reason))
            return SKIP
        compiled: Callable[..., Any] = tuple  # the program of an empty graph
        if result.operations:
            events.emit(events.GraphCaptured(result))
            compiled = self.backend(result.graph, result.example_inputs)
        if result.problem is not None:
            events.emit(events.GraphBroke(result.problem))
        check = events.stage(
            "guards", events.GuardsMade, Check, result.guards, list(frame.locals), code.co_qualname
        )
        if failure := check.first_failure(frame.func, *args):
            why = f"a guard does not hold for the call it was made from: {failure}"
            events.emit(events.FellBack(code.co_qualname, why))
            warnings.warn_explicit(
                f"{code.co_qualname} runs in eager: {why}",
                UserWarning,
                code.co_filename,
                code.co_firstlineno,
            )
            return SKIP
        head = result.head.function(functools.partial(call, None, compiled))
        # the user's tensors are not kept
        entries.append(GuardedCode(check, replace(result, example_inputs=[])))
        if len(entries) > 1:
            events.emit(events.Recompiled(code.co_qualname, len(entries)))
        return check.function, head

    def state_of(self, code: types.CodeType) -> CodeState:
        return self.codes.setdefault(number(code), CodeState(History(self.dynamic)))

    def at_limit(self, frame: Frame, code: types.CodeType, state: CodeState) -> Answer:
        """No more entries for this code: calls that fit none run in eager. The old entries stay."""
        last = state.entries[-1].check.first_failure(frame.func, *frame.locals.values())
        why = f"{code.co_qualname} ({frame.where}) reached the recompile limit ({config.recompile_limit}); last failure: {last}"
        if self.fullgraph:
            raise Unsupported(
                why, "make the changing value a tensor, or raise cl.config.recompile_limit"
            )
        events.emit(events.FellBack(code.co_qualname, why))
        if not state.warned:
            said = f"{why}. Calls that fit no entry run in eager from now on."
            warnings.warn_explicit(said, UserWarning, code.co_filename, code.co_firstlineno)
        state.warned = True
        return None

    def reset(self) -> None:
        """Forget all compiled code."""
        self.codes.clear()
        self.watcher.forget_all()


def is_deep_recursion(problem: Unsupported) -> bool:
    """Did capture follow a function into itself until it gave up?"""
    calls = [call.function for call in problem.stack]
    return len(calls) > config.inline_depth_limit and calls.count(calls[-1]) > len(calls) // 4


def is_skipped(code: types.CodeType) -> bool:
    """Is this code none of the user's and no optimizer's step, or a comprehension's (whose argument has no name)?"""
    none = (
        is_library(code.co_filename)
        and code is not called(len).__code__
        and code.co_name not in STEPS
    )
    return none or not all(name.isidentifier() for name in code.co_varnames)


@functools.cache
def is_library(filename: str) -> bool:
    """Is this a file of Python, torch or this library? (`torch/_dynamo/trace_rules.py`)"""
    # `site-packages`, Debian's `dist-packages`
    _, installed, package = filename.partition("-packages" + os.sep)
    of_python = filename.startswith(sysconfig.get_path("stdlib") + os.sep) and not installed
    if (
        of_python
        or filename.startswith(("<frozen ", "<course_lib "))
        or (installed and package.split(os.sep)[0] in TOOLS)
    ):
        return True
    followed = (
        os.path.join("torch", "nn", "modules") + os.sep,
        # these rooms have programs that stand for a user's code
        os.path.join("course_lib", "bench") + os.sep,
        os.path.join("course_lib", "lessons") + os.sep,
        os.path.join("course_lib", "tools") + os.sep,
    )
    layers = any(folder in filename for folder in followed) and not filename.endswith(
        os.path.join("modules", "module.py")
    )
    return not layers and filename.startswith(LIBRARIES)


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | backends.Backend = "inductor", mode: str | None = None, options: dict[str, Any] | None = None,
            disable: bool = False, pipeline: Pipeline | None = None) -> Any:  # fmt: skip
    """Compile a function, method or `nn.Module`; without a model, a decorator. Arguments as in `torch.compile`:

    fullgraph: raise `Unsupported` where the graph would have to end, instead of going on behind it. dynamic: None: a size that
    changes becomes symbolic; True: every size is, from the start; False: each size compiles anew. backend: "eager", "aot_eager",
    "inductor", "torch_inductor", or a callable (graph, example_inputs) → callable. mode: one of `list_mode_options()`; options:
    see `list_options()`. Not both. disable: give the model back as it is. pipeline: your own stages (backend "inductor").

    Raises ValueError for an unknown backend, mode or option. Nothing is compiled before the first call.
    In PyTorch: `torch/__init__.py`, `compile`.
    """
    if model is None:
        later = functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode
        )
        return functools.partial(later, options=options, disable=disable, pipeline=pipeline)
    if not callable(model):
        raise TypeError(f"compile expects a function or an nn.Module, got {type(model).__name__}")
    if dynamic not in (None, True, False):
        raise ValueError(f"dynamic must be None, True or False, got {dynamic!r}")
    pipeline = pipeline or Pipeline()
    chosen = backends.find(backend, mode, options, pipeline)
    if disable:
        return model
    compiler = Compiler(chosen, pipeline, fullgraph, dynamic)
    return (
        compiled_module(model, compiler)
        if isinstance(model, torch.nn.Module)
        else compiled_function(model, compiler)
    )


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """A frame that calls what has none to capture: a function of torch, or one written in C."""

    @wrapper
    def calls(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return calls


FX_ASKS_THE_THREAD = hasattr(fx_tracer, "_get_is_fx_tracing")


def others_trace() -> bool:
    """Is this call another tracer's matter: torch.compile's, `torch.jit.trace`'s, `torch.fx`'s, or forward-mode derivatives'?"""
    return (
        is_dynamo_compiling()
        or forward_ad._current_level >= 0
        or is_tracing() is not None
        # from torch 2.15 on, each thread has its answer
        or (fx_tracer._get_is_fx_tracing() if FX_ASKS_THE_THREAD else fx_tracer._is_fx_tracing_flag)
    )


def of_its_kind(function: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, as a coroutine function or a generator function if `function` is one: `asyncio` and web servers ask for that."""
    if inspect.iscoroutinefunction(function):

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            return await run(*args, **kwargs)

        return coroutine

    if inspect.isgeneratorfunction(function):

        def generator(*args: Any, **kwargs: Any) -> Any:
            return (yield from run(*args, **kwargs))

        return generator

    if inspect.isasyncgenfunction(function):

        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            made = run(*args, **kwargs)
            with contextlib.suppress(StopAsyncIteration):
                item = await made.__anext__()
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await made.aclose()
                        raise
                    except BaseException as error:
                        item = await made.athrow(error)
                    else:
                        item = await made.asend(sent)

        return async_generator
    return run


def compiled_function(function: F, compiler: Compiler) -> F:
    """`function`, with the frames below it watched by `compiler`."""
    function = getattr(function, "_course_original", function)
    inner = getattr(function, "func", function)  # of a `functools.partial`
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    own = code is not None and not is_library(code.co_filename)
    watched = functools.partial(call, compiler.watcher, function if own else called(function))

    @wrapper
    def run(*args: Any, **kwargs: Any) -> Any:
        if others_trace():
            return function(*args, **kwargs)
        return watched(*args, **kwargs)

    compiled = functools.wraps(function)(of_its_kind(function, run))
    vars(compiled).update(_course_original=function, _course_compiler=compiler)
    return compiled  # type: ignore[return-value]


def compiled_module(model: torch.nn.Module, compiler: Compiler) -> torch.nn.Module:
    """A twin of `model`, with all that it has. Only the call differs."""
    model = untwinned(model)
    watched = functools.partial(call, compiler.watcher, model)

    @wrapper
    def run(twin: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if others_trace():  # who look for this object among the submodules of others
            return type(model).__call__(twin, *args, **kwargs)
        return watched(*args, **kwargs)

    def remade(copied: torch.nn.Module) -> torch.nn.Module:
        return compiled_module(copied, replace(compiler))

    return twin_of(model, run, compiler, remade)


@contextlib.contextmanager
def capturing(
    backend: str | backends.Backend = "eager",
    *,
    fullgraph: bool = False,
    pipeline: Pipeline | None = None,
) -> Iterator[Compiler]:
    """Capture every frame that starts within the block on this thread: the frame hook itself, without `compile` around it."""
    compiler = Compiler(
        backends.find(backend, None, None, pipeline or Pipeline()),
        pipeline or Pipeline(),
        fullgraph,
    )
    with compiler.watcher:
        yield compiler


def reset() -> None:
    """Forget everything compiled so far. (The kernels on disk stay.)"""
    for compiler in list(live):
        compiler.reset()
