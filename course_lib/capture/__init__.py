"""From a frame to a graph: the symbolic interpreter.

In:  a `Frame` that is about to run.
Out: `CaptureResult`: an FX graph of torch operations, the guards under which it may be used again, and the head, the
     Python function that runs in the frame's place. Where something has no form in a graph, the graph ends (a *graph
     break*): the head does that one thing in Python and goes on in a resume function, which is captured in turn.

Read in this order: `world.py` (what the program works on), `interpreter.py` (the loop), `calls.py`, `attributes.py`,
`graph.py` (recording), `shapes.py` (symbolic sizes), `head.py` and `breaks.py` (what runs in the frame's place).
In PyTorch: `torch/_dynamo/convert_frame.py` (`_compile`), `symbolic_convert.py`, `variables/`.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

from course_lib import events
from course_lib.capture import calls, corners, global_state, sources
from course_lib.capture.breaks import BreakBuilder
from course_lib.capture.graph import Recorder
from course_lib.capture.head import Head, HeadBuilder
from course_lib.capture.interpreter import Interpreter
from course_lib.capture.machine import NOTHING, check_own_failure
from course_lib.capture.shapes import History
from course_lib.capture.sources import FRAME, FUNCTION, Local, Location, Source, Unsupported
from course_lib.capture.tests import Guard, Holds, SameAs, Test, literal
from course_lib.capture.world import World
from course_lib.frames import Frame, instructions
from course_lib.frames.resume import live


@dataclass
class CaptureResult:
    """What one capture gave."""

    name: str
    where: str
    graph: fx.GraphModule
    guards: list[Guard]
    head: Head
    # The tensors (and symbolic numbers) of this call, in placeholder order
    example_inputs: list[Any]
    operations: int
    # Does it show a warning that names a caller? Then even a frame without operations needs its head
    looks_up: bool = False
    # What ended the graph; None: the frame was captured to its end
    problem: Unsupported | None = None


def capture(frame: Frame, interpreter: type[Interpreter] = Interpreter, history: History | None = None,
            fullgraph: bool = False) -> CaptureResult:  # fmt: skip
    """Interpret `frame` symbolically; it ends before what is unsupported, which is raised if it cannot, or by `fullgraph`."""
    breaks: dict[int, tuple[int, Unsupported, bool]] = {}
    while True:
        world = World(history or History(), fullgraph)
        attempt = Attempt(frame, interpreter, world, breaks)
        problem, plain = None, False
        try:
            result = attempt.run()
        except Unsupported as error:
            problem = error
        except ConstraintViolationError:  # a promise about sizes that the program does not keep
            attempt.world.forget()
            raise
        except BaseException as error:
            check_own_failure(error)
            plain, place = True, attempt.root.program[attempt.root.next - 1]
            why = f"raises {type(error).__name__}: {error}"
            problem = Unsupported(
                why, "it raises in eager too", attempt.root.last, offset=place.offset
            )
            problem.__cause__ = error
        again = problem is not None and not fullgraph and attempt.note(problem, plain)
        # what was interpreted, to whoever listens
        for event in attempt.world.told if not again else ():
            events.emit(event)
        attempt.world.forget()
        if problem is None:
            return result
        if not again:
            # of what no head can do: the last line
            problem.location = problem.location or attempt.root.last
            if problem.__cause__ is not None:
                problem.__cause__.__traceback__ = None
            try:
                raise problem
            finally:
                del problem  # whose traceback holds this frame


class Attempt:
    """One interpretation of a frame. `breaks`: the first instruction of the head → the breaking one, why, is the rest plain?"""

    def __init__(
        self, frame: Frame, interpreter: type[Interpreter], world: World, breaks: dict[int, Any]
    ) -> None:
        self.frame, self.breaks, self.world = frame, breaks, world
        code = frame.code
        world.globals[id(frame.func.__globals__)] = (
            frame.func.__globals__,
            FRAME.attr("__globals__"),
        )
        world._know(frame.func, frame.func, FRAME)
        # `super()` reads the first
        read = {*live(code)[instructions(code)[0].offset], *code.co_cellvars, *code.co_varnames[:1]}
        wanted = {
            name: value
            for name, value in frame.locals.items()
            if name in read or isinstance(value, CellType)
        }
        called = sources.variables(frame.locals)
        locals_ = {
            name: world.wrap(value, Local(name, called[name])) for name, value in wanted.items()
        }
        self.root = world.root = interpreter(world, frame.func, locals_)
        self.root.stops = breaks

    def run(self) -> CaptureResult:
        frame, world = self.frame, self.world
        with recording_mode(), Recorder(world.builder):
            try:
                result = self.root.run()
            finally:
                world.finished = True  # generators that are closed now do nothing
            if world.builder.region:
                raise Unsupported("leaves inference mode on")
            broken, problem, plain = (
                self.breaks[self.root.next] if result is NOTHING else (0, None, False)
            )
            if problem is None:
                builder = HeadBuilder(world, frame.code.co_qualname, tuple(frame.locals))
                answer = builder.rebuild(result)
                builder.effects()
                builder.body.append(f"return {answer}")
            else:
                builder = BreakBuilder(world, frame.code.co_qualname, tuple(frame.locals))
                builder.stop(self.root, self.root.next, broken, plain)
                if problem.as_eager:
                    for node in world.builder.graph.nodes:
                        node.meta["as_it_is"] = problem.as_eager
            # what a call sees of its caller
            builder.head.names["__name__"] = frame.func.__globals__.get("__name__", "")
            outputs = [*builder.outputs, *world.builder.unused_checks(builder.outputs)]
            graph = world.builder.finish(outputs)
            head = builder.finish()
        start = Location(frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_qualname)
        for test, cause in world.shapes.tests().items():
            world.guards.setdefault(Guard(FRAME, "sizes", (test,), cause or start))
        name, examples = frame.code.co_qualname, [one.real for one in world.builder.inputs]
        return CaptureResult(
            name,
            frame.where,
            graph,
            list(world.guards),
            head,
            examples,
            world.builder.operations,
            any(type(warned.place) is int for warned in world.warned),
            problem,
        )

    def note(self, problem: Unsupported, plain: bool) -> bool:
        """Remember to end the graph before the instruction that the frame is at. False if that was tried already."""
        # not inside inference mode
        program, broken = self.root.program, self.world.builder.region or self.root.next - 1
        # before the start, or while the head is written
        if self.root.next == 0 or problem.location is None:
            return False
        # the names of its arguments, loaded just before, belong to it
        first = broken - (program[broken].op == "CALL_KW")
        # the bytecode can only be entered where an instruction of CPython begins
        if plain or first in self.breaks:
            plain = True
            while first > 0 and program[first - 1].offset == program[first].offset:
                first -= 1
            if first in self.breaks and self.breaks[first][2]:
                return False
        problem.__traceback__ = problem.__context__ = None  # whose frames hold the user's objects
        if problem.__cause__ is not None:
            problem.__cause__.__traceback__ = None
        self.breaks[first] = broken, problem, plain
        return True


@contextlib.contextmanager
def recording_mode() -> Iterator[None]:
    """The user's grad mode, without inference mode (fakes are ordinary tensors). What a program switches is switched back."""
    grad, inference, dual = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._is_fwd_grad_enabled(),
    )
    before, dual_mode = global_state.turned(), global_state.forward_ad._set_fwd_grad_enabled
    try:
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(grad and not inference),
            dual_mode(dual),
        ):
            yield
    finally:
        while torch._C._functorch.peek_interpreter_stack() is not None:
            torch._C._functorch.pop_dynamic_layer_stack()
        with contextlib.suppress(RuntimeError):  # there is none (`is_ordinary`)
            torch._C._exit_dual_level(level=0)
        for switch, arguments in before:
            eval(f"{switch}({arguments})", {"torch": torch})
        torch.clear_autocast_cache()  # of casts of fakes
