"""`cl.compile`, and the compiler behind it: which code runs in a frame's place. (The C++ compiler:
`runtime/compiler.py`.)

In:  a function or module, and a backend.
Out: a callable that watches the frames that run below it, captures them, and runs compiled code
     where the guards hold.

The path of a call: the frame hook has a dictionary of entries for each code object, in C. An entry
is a check and a head. The first check that says yes decides, and its head runs. Only where none
does, the hook asks `Compiler.ask`, which tells why (a recompile), captures, and adds an entry.
In PyTorch: `torch.compile`; `torch/_dynamo/convert_frame.py` (`ConvertFrameAssert`),
`cache_entry.cpp`, `extra_state.cpp`.
"""

import contextlib
import functools
import importlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple

import torch

from course_lib import backends, config, events, racing
from course_lib.apart import apart_from_hooks
from course_lib.callables import compiled_function, compiled_module
from course_lib.capture import CaptureResult, History, Unsupported, global_state
from course_lib.capture.user import NO_DESCRIPTION
from course_lib.frames import AS_IT_IS, SKIP, Answer, Frame, Watcher, call, number
from course_lib.frames.resume import NEVER_CAPTURED
from course_lib.giving_up import HINT, AtLimit, has_work
from course_lib.guards import Check
from course_lib.pipeline import Pipeline
from course_lib.racing import Trial, Way, Ways
from course_lib.trace_rules import CALLS, is_skipped, runs_unwatched

ASK_AGAIN = None
"""An answer to the hook: run this frame as it is, and ask about the next one."""
live: weakref.WeakSet["Compiler"] = weakref.WeakSet()
"""Every compiler that holds compiled code, for `reset`."""


class GuardedCode(NamedTuple):
    """One compiled entry: if `check` holds, its head runs. (`torch/csrc/dynamo/cache_entry.cpp`)"""

    check: Check
    result: CaptureResult


@dataclass
class CodeState:
    """What is known about a code object.

    (`torch/csrc/dynamo/extra_state.cpp`; the hook holds the same checks and heads in C.)"""

    history: History
    entries: list[GuardedCode] = field(default_factory=list)
    warned: bool = False  # Was it said that no more entries are made?
    # How its calls went since no more are made
    at_limit: AtLimit | None = None


@dataclass(eq=False)
class Compiler:
    """Answers the frame hook for one `compile`: which code runs in a frame's place."""

    backend: backends.Backend
    pipeline: Pipeline
    fullgraph: bool = False
    dynamic: bool | None = None
    # Entries that one code object may hold; None: `config.recompile_limit`, as it is at that moment
    own_limit: int | None = None
    name: str | None = None  # What the user calls this compile: messages say it
    # May it be left to eager where it is slower? (`racing`)
    may_race: bool = False

    def __post_init__(self) -> None:
        with config.collector_paused(importing=True):
            # Symbolic sizes need it. It is imported now, so that no import happens while a frame is
            # captured.
            call(None, importlib.import_module, "torch._dynamo")
        self.codes: dict[int, CodeState] = {}  # By the code's number (`frames.number` says why)
        # What is left to eager, and why (`giving_up`)
        self.left: dict[str, str] = {}
        # The ways to call what is compiled, if its calls can be timed
        self.ways: weakref.ref[Ways] | None = None
        # How a program that broke its graph is tried out; None if nothing is on trial.
        # Weak, as are the ways: what the compiler holds is freed late, and a trial holds a program
        self.trial: weakref.ref[Trial] | None = None
        self.watcher = Watcher(self.ask)
        live.add(self)

    def ask(self, frame: Frame) -> Answer:
        """The hook's question: `frame` is about to run and no entry fits."""
        state = self.codes.get(number(frame.code))
        if state and state.at_limit and state.at_limit.passes():
            return ASK_AGAIN
        return self.convert(frame)

    @apart_from_hooks()
    def convert(self, frame: Frame) -> Answer:
        """Compile the frame, or say why not."""
        code = frame.code
        # An entry for every call, which lets the frame run and watches nothing below it
        if runs_unwatched(code):
            return always, as_it_is
        if is_skipped(code) or number(code) in NEVER_CAPTURED:
            return SKIP
        # A mode of torch's is on now, which need not be so at the next call
        if not global_state.is_ordinary():
            return ASK_AGAIN

        state = self.state_of(code)
        events.emit(events.FrameSeen(code.co_qualname, frame.where, code))
        tell_failures(frame, state)

        try:
            if state.entries and len(state.entries) >= self.recompile_limit:
                return self.at_limit(frame, state)
            result = self.capture(frame, state)
        except Unsupported as problem:
            events.emit(events.GraphBroke(problem, self.fullgraph))
            if self.fullgraph:
                raise
            return SKIP

        if is_not_worth_it(result):
            return SKIP
        return self.add_entry(frame, state, result)

    def capture(self, frame: Frame, state: CodeState) -> CaptureResult:
        """The stages of the pipeline that read the frame: its graph, its guards, and where the
        graph ends."""
        stages = self.pipeline
        return events.stage(
            "capture",
            None,
            stages.capture,
            frame,
            stages.interpreter,
            state.history,
            self.fullgraph,
        )

    def add_entry(self, frame: Frame, state: CodeState, result: CaptureResult) -> Answer:
        """Compile what was captured: a check and a head for this call and all like it."""
        name = frame.code.co_qualname
        # For an empty graph: called without inputs, it gives no results, ()
        compiled: Callable[..., Any] = tuple
        if result.operations:
            events.emit(events.GraphCaptured(result))
            compiled = self.backend(result.graph, result.example_inputs)
            result = with_guards_of_backend(result)
        if result.problem is not None:
            events.emit(events.GraphBroke(result.problem))
            self.begin_trial()

        parameters = list(frame.locals)
        check = events.stage("guards", events.GuardsMade, Check, result.guards, parameters, name)
        if failure := check.first_failure(frame.func, *frame.locals.values()):
            return leave_to_eager(frame, failure)

        head = result.head.function(functools.partial(call, None, compiled))
        # An entry keeps neither the user's tensors nor the capture (`sizes` leads to it), which
        # holds what the program made
        slim_result = replace(result, example_inputs=[], sizes=None)
        state.entries.append(GuardedCode(check, slim_result))
        if len(state.entries) > 1:
            events.emit(events.Recompiled(name, len(state.entries)))
        return check.function, head

    @property
    def recompile_limit(self) -> int:
        """How many entries a code object may hold: this compile's own limit, else the one for
        all."""
        if self.own_limit is None:
            return config.recompile_limit
        return self.own_limit

    def at_limit(self, frame: Frame, state: CodeState) -> Answer:
        """No more entries for this code: calls that fit none run in eager. The old entries stay."""
        code = frame.code
        last = state.entries[-1].check.first_failure(frame.func, *frame.locals.values())
        of_which_compile = ""
        if self.name:
            of_which_compile = f" of the compile named {self.name!r}"
        why = (
            f"{code.co_qualname} ({frame.where}) reached the recompile limit{of_which_compile} "
            f"({self.recompile_limit}); last failure: {last}"
        )
        if self.fullgraph:
            where = "cl.config.recompile_limit" if self.own_limit is None else "recompile_limit="
            hint = f"make the changing value a tensor, or raise {where}"
            raise Unsupported(why, hint)

        events.emit(events.FellBack(code.co_qualname, why))
        if not state.warned:
            warn_at(code, f"{why}. Calls that fit no entry run in eager from now on.")
        state.warned = True
        return self.give_up_or_go_on(frame, state)

    def give_up_or_go_on(self, frame: Frame, state: CodeState) -> Answer:
        """Leave the code to eager for good if its entries are of no use (`giving_up`)."""
        code = frame.code
        operations = [entry.result.operations for entry in state.entries]
        # A listener is told of each call, so nothing is given up while there is one (`giving_up`).
        if not has_work(operations) and not events.listening():
            self.left[code.co_qualname] = "there is nothing to compile in it"
            return SKIP

        # The count begins here, and anew for another limit.
        if state.at_limit is None or state.at_limit.limit != config.recompile_limit:
            state.at_limit = AtLimit()
            self.count_fits(code, state.at_limit)
        if not state.at_limit.is_due:
            return ASK_AGAIN

        if state.at_limit.serves:
            state.at_limit.again()
            return ASK_AGAIN

        why = state.at_limit.why(len(state.entries))
        self.left[code.co_qualname] = why
        warn_at(code, f"{code.co_qualname} ({frame.where}) is left to eager: {why}. {HINT}.")
        return SKIP

    def count_fits(self, code: CodeType, at_limit: AtLimit) -> None:
        """From now on the checks of the entries note when they hold."""
        entries = self.watcher.entries(code) or ()
        counting_entries = [(at_limit.counting(check), head) for check, head in entries]
        self.watcher[number(code)] = counting_entries

    def begin_trial(self) -> None:
        """The graph broke: find out whether this program gains from being compiled (`racing`)."""
        ways = self.ways and self.ways()
        if not (ways and self.may_race and config.leave_what_loses):
            return
        if self.trial is None or self.trial() is None:
            trial = Trial(weakref.ref(ways), self.parts, self.leave)
            self.trial = weakref.ref(trial)
            ways.choose(trial.call)

    def parts(self) -> list[int]:
        """How many operations each entry has in its graph: the pieces of the program on trial."""
        states = [*self.codes.values()]
        return [entry.result.operations for state in states for entry in state.entries]

    def leave(self, ways: Ways, why: str) -> Way:
        """Leave the whole program to eager: say so once, and give the way to call it."""
        code = code_of(ways.target)
        name, where = code.co_qualname, f"{code.co_filename}:{code.co_firstlineno}"
        self.left[name] = why
        warn_at(code, f"{name} ({where}) is left to eager: {why}. {racing.HINT}.")
        return racing.left_to_eager(ways.eager, name, why)

    def state_of(self, code: CodeType) -> CodeState:
        """What is known about this code: its entries, and how its sizes have changed."""
        return self.codes.setdefault(number(code), CodeState(History(self.dynamic)))

    def reset(self) -> None:
        """Forget all compiled code."""
        self.codes.clear()
        self.left.clear()
        self.watcher.forget_all()
        self.trial = None
        if self.ways and (ways := self.ways()):
            ways.choose(ways.compiled)


def with_guards_of_backend(result: CaptureResult) -> CaptureResult:
    """The result with guards for what was asked about symbolic sizes while its graph was compiled
    for all of them."""
    if result.sizes is None or "sizes" not in result.graph.meta:
        return replace(result, sizes=None)
    guards = dict.fromkeys([*result.guards, *result.sizes()])
    return replace(result, guards=list(guards), sizes=None)


def always(func: Any, *args: Any) -> bool:
    """The check of an entry for every call."""
    return True


def as_it_is(func: Any, *args: Any) -> object:
    """The head of an entry that lets the frame run, with nobody watching what it calls."""
    return AS_IT_IS


def tell_failures(frame: Frame, state: CodeState) -> None:
    """Say to who listens which guard kept each entry from being used: the reason of a recompile."""
    if not events.listening():
        return
    name, args = frame.code.co_qualname, tuple(frame.locals.values())
    for entry in state.entries:
        if failure := entry.check.first_failure(frame.func, *args):
            events.emit(events.GuardFailed(name, failure.guard, str(failure)))


def is_not_worth_it(result: CaptureResult) -> bool:
    """Would running the frame in Python do as well?"""
    # Without operations nothing is gained, but a head may have a warning to show (`looks_up`)
    problem = result.problem
    if problem is None:
        return result.operations == 0 and not result.looks_up

    # a graph and a head at each level of a deep recursion would take twice the stack that the
    # program takes
    if is_deep_recursion(problem):
        events.emit(events.FellBack(result.name, problem.reason))
        return True
    return False


def is_deep_recursion(problem: Unsupported) -> bool:
    """Did capture follow a function into itself until it gave up?"""
    calls = [call.function for call in problem.stack]
    if len(calls) <= config.inline_depth_limit:
        return False
    # One function is at more than a quarter of the levels: alone, or with a few others in turn.
    return calls.count(calls[-1]) > len(calls) // 4


def leave_to_eager(frame: Frame, failure: Any) -> Answer:
    """A guard that does not hold for the very call it was made from: such an entry would never be
    used."""
    name = frame.code.co_qualname
    why = f"a guard does not hold for the call it was made from: {failure}"
    events.emit(events.FellBack(name, why))
    warn_at(frame.code, f"{name} runs in eager: {why}")
    return SKIP


def code_of(target: Any) -> CodeType:
    """The code that a user would name: of a function, of what a `partial` calls, of a module's
    `forward`."""
    inner = getattr(target, "func", target)
    if isinstance(inner, torch.nn.Module):
        inner = type(inner).forward
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return code or CALLS  # written in C: the frame that calls it


def warn_at(code: CodeType, message: str) -> None:
    """A warning at the first line of the user's function."""
    warnings.warn_explicit(message, UserWarning, code.co_filename, code.co_firstlineno)


# ---- what a user calls ---------------------------------------------------------------------------


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | backends.Backend | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    dynamic_shapes: Any = None,
    shapes_spec: Any = None,
    pipeline: Pipeline | None = None,
) -> Any:
    """Compile a function, method or `nn.Module`; without a model, a decorator.

    Arguments as in `torch.compile`:

    fullgraph: raise `Unsupported` where the graph would have to end, instead of going on behind it.
    dynamic: None: a size that changes becomes symbolic; True: every size is, from the start; False:
        each size compiles anew.
    backend: "eager", "aot_eager", "inductor", "torch_inductor", or a callable
        (graph, example_inputs) → callable. None: what `set_default_backend` chose, at first
        "inductor".
    mode: one of `list_mode_options()`. options: see `list_options()`. Not both.
    name: what messages about this compile call it.
    disable: give the model back as it is.
    recompile_limit: how many entries a code object may hold here. None:
        `cl.config.recompile_limit`.
    isolate_recompiles: torch shares entries and their limit among all compiles of one function,
        unless this is True. Here each `compile` always has entries and a limit of its own, so both
        values mean the same.
    dynamic_shapes: torch's description of sizes by parameter (2.14 and later), for sizes that are
        not known while compiling. Here each size is known then: anything but None is refused.
    shapes_spec: its name in 2.13.
    pipeline: your own stages (backend "inductor").

    Raises ValueError for an unknown backend, mode or option, for a limit below 1 and for
    `dynamic_shapes`, and TypeError for what cannot be called. Nothing is compiled before the first
    call. In PyTorch: `torch/__init__.py`, `compile`.
    """
    if model is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            name=name,
            disable=disable,
            recompile_limit=recompile_limit,
            isolate_recompiles=isolate_recompiles,
            dynamic_shapes=dynamic_shapes,
            shapes_spec=shapes_spec,
            pipeline=pipeline,
        )
    if not callable(model):
        raise TypeError(f"compile expects a function or an nn.Module, got {type(model).__name__}")
    if dynamic not in (None, True, False):
        raise ValueError(f"dynamic must be None, True or False, got {dynamic!r}")
    check_limit(recompile_limit)
    refuse_described("dynamic_shapes", dynamic_shapes)
    refuse_described("shapes_spec", shapes_spec)

    # a stage or a backend of the user's own is called for its own sake, however long it takes
    may_race = pipeline is None and backends.may_be_left(backend, options)
    pipeline = pipeline or Pipeline()
    chosen = backends.find(backend, mode, options, pipeline)
    # (Behind the checks: what torch refuses is refused all the same.)
    if disable:
        return model

    compiler = Compiler(chosen, pipeline, fullgraph, dynamic, recompile_limit, name, may_race)
    if isinstance(model, torch.nn.Module):
        return compiled_module(model, compiler)
    return compiled_function(model, compiler)


def check_limit(limit: int | None) -> None:
    """Raise ValueError where `limit` is no number of entries."""
    if limit is None:
        return
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ValueError(f"recompile_limit must be None or a whole number from 1 on, got {limit!r}")


def refuse_described(argument: str, shapes: Any) -> None:
    """Raise ValueError where sizes are described by parameter, as torch's `dynamic_shapes` (in
    2.13: `shapes_spec`) does it."""
    if shapes is not None:
        raise ValueError(f"{argument} is not supported: {NO_DESCRIPTION}")


@contextlib.contextmanager
def capturing(
    backend: str | backends.Backend = "eager",
    *,
    fullgraph: bool = False,
    pipeline: Pipeline | None = None,
) -> Iterator[Compiler]:
    """Capture every frame that starts within the block on this thread: the frame hook itself,
    without `compile` around it."""
    stages = pipeline or Pipeline()
    compiler = Compiler(backends.find(backend, None, None, stages), stages, fullgraph)
    with compiler.watcher:
        yield compiler


def reset() -> None:
    """Forget everything compiled so far. (The kernels on disk stay.)"""
    for compiler in list(live):
        compiler.reset()
