"""From a frame to a graph: the symbolic interpreter.

In:  a `Frame` that is about to run.
Out: `CaptureResult`: an FX graph of torch operations, the guards under which it may be used again,
     and the head, the Python function that runs in the frame's place. Where something has no form
     in a graph, the graph ends (a *graph break*): the head does that one thing in Python and goes
     on in a resume function, which is captured in turn.

Read in this order:

    interpreter.py, machine.py, opcodes/     the loop, and what each instruction does
    graph.py, operations.py                  an operation is recorded
    calls/, attributes/                      what happens at a call, how an attribute is found:
                                             ordered lists of rules
    world.py, stand_ins/                     what the program works on in place of what is outside
    sources.py, places.py                    where an object is found again
    guard_tests.py, assumptions.py           what was assumed: the guards
    shapes.py, strides.py, symbolic_numbers.py, promises.py
                                             sizes that are symbols; what the user said about them
    of_data.py, facts.py                     sizes that only the data says
    head.py, rebuild.py, rebuild_kinds.py, breaks.py
                                             what runs in the frame's place

Beside this path:

    rules.py, values.py                      what all lists of rules share; questions about values
    recorder.py                              hears of each torch operation of the program
    inliner.py                               hears of each function that Python calls by itself
    expected.py, unused.py                   checks in the graph: asserted branches, and operations
                                             that only raise
    known.py, effects.py                     what is known of an object, and what has changed
                                             outside
    classes.py, global_state.py              classes and switches of torch, of which guards ask
    number_types.py                          int or float, of numbers that only the data says
    relations.py                             questions about sizes as a reader expects them
    resuming.py                              the call of a resume function
    user.py                                  what a program says to its compiler

`corners/` has the special cases. Each adds rules to the lists of the ordinary path, which imports
none of them.
In PyTorch: `torch/_dynamo/convert_frame.py` (`_compile`), `symbolic_convert.py`, `variables/`.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
)

from course_lib import events
from course_lib.capture import corners, global_state, sources
from course_lib.capture.breaks import BreakBuilder
from course_lib.capture.guard_tests import Guard, Holds, SameAs, Test, literal
from course_lib.capture.head import Head, HeadBuilder
from course_lib.capture.interpreter import Interpreter
from course_lib.capture.machine import NOTHING, check_own_failure
from course_lib.capture.of_data import asks_data
from course_lib.capture.places import GlobalNames
from course_lib.capture.recorder import TorchRecorder
from course_lib.capture.shapes import History
from course_lib.capture.sources import FRAME, FUNCTION, Local, Location, Source, Unsupported
from course_lib.capture.unused import unused_checks
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
    # Does it show a warning that names a caller? Then even a frame without operations needs its
    # head
    looks_up: bool = False
    # What ended the graph; None: the frame was captured to its end
    problem: Unsupported | None = None
    # What is assumed about symbolic sizes, asked anew once the graph is compiled for all of them
    sizes: Callable[[], list[Guard]] | None = None


@dataclass(frozen=True)
class Ending:
    """Where a graph is to end, found by an attempt that could not go on."""

    # The instruction that broke the attempt (a place in the frame's program), and why
    broken: int
    problem: Unsupported
    # Does the rest of the frame run as it is, uncaptured?
    plain: bool


Endings = dict[int, Ending]
"""By the first instruction that the head does itself."""


def capture(
    frame: Frame,
    interpreter: type[Interpreter] = Interpreter,
    history: History | None = None,
    fullgraph: bool = False,
) -> CaptureResult:
    """Interpret `frame` symbolically. Where that cannot go on, start again, to end the graph there.

    Raises Unsupported where the graph cannot end, or (with `fullgraph`) may not.
    """
    endings: Endings = {}
    while True:
        world = World(history or History(), fullgraph)
        attempt = Attempt(frame, interpreter, world, endings)
        outcome = outcome_of(attempt)

        if isinstance(outcome, CaptureResult):
            attempt.tell()
            world.forget()
            return outcome

        problem, plain = outcome
        if problem.anew:
            # What ended an earlier attempt may not end this one.
            world.forget()
            endings.clear()
            problem.__traceback__ = None  # its frames hold the user's objects
            continue

        try_again = not fullgraph and attempt.note(problem, plain)
        if not try_again:
            attempt.tell()
        world.forget()
        if try_again:
            continue

        complete(problem, attempt)
        try:
            raise problem
        finally:
            del problem, outcome  # its traceback holds this frame


class Obstacle(NamedTuple):
    """Why an attempt could not go on."""

    problem: Unsupported
    # Must the rest of the frame run as it is?
    plain: bool


def outcome_of(attempt: "Attempt") -> CaptureResult | Obstacle:
    """What an attempt gives, or what it stopped at."""
    try:
        return attempt.run()
    except Unsupported as error:
        return Obstacle(error, plain=False)
    except ConstraintViolationError:  # a promise about sizes that the program does not keep
        attempt.world.forget()
        raise
    except BaseException as error:
        if not isinstance(error, GuardOnDataDependentSymNode):
            check_own_failure(error)
        return Obstacle(attempt.raised_by_the_program(error), plain=True)


def complete(problem: Unsupported, attempt: "Attempt") -> None:
    """What a problem says to the user: its line, and no traceback of capture's own frames."""
    # A problem while the head is written has no line: the last one that ran is named.
    problem.location = problem.location or attempt.root.last_line
    if problem.__cause__ is not None:
        problem.__cause__.__traceback__ = None


class Attempt:
    """One interpretation of a frame. It stops before the instructions in `endings`."""

    def __init__(
        self, frame: Frame, interpreter: type[Interpreter], world: World, endings: Endings
    ) -> None:
        self.frame = frame
        self.endings = endings
        self.world = world

        names = frame.func.__globals__
        world.globals[id(names)] = GlobalNames(names, FRAME.attr("__globals__"))
        world.know(frame.func, frame.func, FRAME)
        self.root = world.root = interpreter(world, frame.func, self.variables())
        self.root.stops = endings

    def variables(self) -> dict[str, Any]:
        """What stands for the arguments that the code reads, and for its cells."""
        frame, code = self.frame, self.frame.code
        first = instructions(code)[0]
        read = {*live(code)[first.offset], *code.co_cellvars}
        read.update(code.co_varnames[:1])  # `super()` reads it
        if sources.lists_variables(code):
            read.update(code.co_varnames)

        called = sources.variables(frame.locals)
        stand_ins = {}
        for name, value in frame.locals.items():
            if name in read or isinstance(value, CellType):
                stand_ins[name] = self.world.wrap(value, Local(name, called[name]))
        return stand_ins

    def run(self) -> CaptureResult:
        """Interpret the frame, and write its head.

        Raises Unsupported, or what the program raises."""
        world = self.world
        with recording_mode(), TorchRecorder(world.builder):
            try:
                result = self.root.run()
            finally:
                world.finished = True  # generators that are closed now do nothing
            if world.builder.region:
                raise Unsupported("leaves inference mode on")

            # Without a result the interpreter has stopped, before an instruction of which an
            # earlier attempt says why.
            ending: Ending | None = None
            builder: HeadBuilder
            if result is NOTHING:
                ending = self.endings[self.root.next]
                builder = self.head_to(ending)
            else:
                builder = self.head_to_the_end(result)

            # A function that the head calls may ask for its caller's `__name__`.
            names = self.frame.func.__globals__
            builder.head.names["__name__"] = names.get("__name__", "")
            outputs = [*builder.outputs, *unused_checks(world.builder, builder.outputs)]
            graph = world.builder.finish(outputs)
            head = builder.finish()

        self.guard_sizes()
        problem = None
        if ending is not None:
            problem = ending.problem
        return CaptureResult(
            self.frame.code.co_qualname,
            self.frame.where,
            graph,
            list(world.guards),
            head,
            example_inputs=[graph_input.real for graph_input in world.builder.inputs],
            operations=world.builder.operations,
            looks_up=any(type(warned.place) is int for warned in world.warned),
            problem=problem,
            sizes=self.guards_of_sizes,
        )

    def tell(self) -> None:
        """The last attempt: whoever listens hears what was interpreted."""
        for event in self.world.told:
            events.emit(event)

    def head_to_the_end(self, result: Any) -> HeadBuilder:
        """The head of a frame that was interpreted to its end."""
        frame = self.frame
        builder = HeadBuilder(self.world, frame.code.co_qualname, tuple(frame.locals))
        answer = builder.rebuild(result)
        builder.effects()
        builder.body.append(f"return {answer}")
        return builder

    def head_to(self, ending: Ending) -> BreakBuilder:
        """The head of a frame whose graph ends before its end."""
        frame = self.frame
        builder = BreakBuilder(self.world, frame.code.co_qualname, tuple(frame.locals))
        builder.stop(self.root, self.root.next, ending.broken, ending.plain)
        if ending.problem.as_eager:
            for node in self.world.builder.graph.nodes:
                node.meta["as_it_is"] = ending.problem.as_eager
        return builder

    def guard_sizes(self) -> None:
        """Guard what was assumed about symbolic sizes."""
        for guard in self.guards_of_sizes():
            self.world.guards.setdefault(guard)

    def guards_of_sizes(self) -> list[Guard]:
        """What has been assumed about symbolic sizes so far.

        (A backend may ask more about them.)"""
        code = self.frame.code
        start = Location(code.co_filename, code.co_firstlineno, code.co_qualname)
        guards = []
        for test, cause in self.world.shapes.tests().items():
            guards.append(Guard(FRAME, "sizes", (test,), cause or start))
        return guards

    def raised_by_the_program(self, error: BaseException) -> Unsupported:
        """The program itself raises: the graph ends there, and eager raises what it raises.

        (Or torch raises, because Python asks for a size that only the data says.)"""
        place = self.root.program[self.root.next - 1]
        if isinstance(error, GuardOnDataDependentSymNode):
            problem = asks_data(self.world.shapes, error)
            problem.location, problem.offset = self.root.last_line, place.offset
            return problem
        why = f"raises {type(error).__name__}: {error}"
        line = self.root.last_line
        problem = Unsupported(why, "it raises in eager too", line, offset=place.offset)
        problem.__cause__ = error
        return problem

    def note(self, problem: Unsupported, plain: bool) -> bool:
        """Remember to end the graph before the instruction that the frame is at.

        False if that was tried already."""
        # It was raised before the first instruction, or while the head was written.
        if self.root.next == 0 or problem.location is None:
            return False

        # In inference mode the graph ends before the `with`, whose instruction is the region's
        # number.
        program = self.root.program
        broken = self.world.builder.region or self.root.next - 1
        # A CALL_KW and the instruction before it, which loads the names of its arguments, are not
        # parted.
        first = broken - (program[broken].op == "CALL_KW")

        # the bytecode can only be entered where an instruction of CPython begins
        if plain or first in self.endings:
            plain = True
            while first > 0 and program[first - 1].offset == program[first].offset:
                first -= 1
            if first in self.endings and self.endings[first].plain:
                return False

        # The frames of its traceback would keep the user's objects alive.
        problem.__traceback__ = problem.__context__ = None
        if problem.__cause__ is not None:
            problem.__cause__.__traceback__ = None
        self.endings[first] = Ending(broken, problem, plain)
        return True


@contextlib.contextmanager
def recording_mode() -> Iterator[None]:
    """The user's grad mode, without inference mode, for fakes are ordinary tensors.

    All that a program switches is switched back."""
    needs_grad = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    dual = torch._C._is_fwd_grad_enabled()
    dual_mode = global_state.forward_ad._set_fwd_grad_enabled
    switches_before = global_state.turned()
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(needs_grad), dual_mode(dual):
            yield
    finally:
        # levels of `vmap` and `grad`, and of forward-mode AD, that the program has left open
        while torch._C._functorch.peek_interpreter_stack() is not None:
            torch._C._functorch.pop_dynamic_layer_stack()
        with contextlib.suppress(RuntimeError):  # no such level is open
            torch._C._exit_dual_level(level=0)
        for switch, arguments in switches_before:
            eval(f"{switch}({arguments})", {"torch": torch})
        # autocast may have kept casts of fake tensors
        torch.clear_autocast_cache()
