"""The machine under the symbolic interpreter: stack, names, the loop, exceptions, and calls out of
it.

In:  a function, and what stands for its arguments and cells.
Out: what it returns. What each instruction does is written in `opcodes/`.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, `InstructionTranslatorBase.run` and `step`.
"""

import dis
import inspect
import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any, cast

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from course_lib import config, events, frames
from course_lib.capture.calls import dispatch
from course_lib.capture.classes import HEAP_TYPE, MISSING, is_a
from course_lib.capture.of_data import asks_data
from course_lib.capture.opcodes.stack import Stack
from course_lib.capture.sources import Location, Unsupported
from course_lib.capture.symbolic_numbers import is_of_data, statically_known
from course_lib.capture.world import Raised, World
from course_lib.frames import Instruction, instructions
from course_lib.frames.resume import traceback_line

HERE = os.path.dirname(os.path.abspath(__file__))
OWN_FILES = tuple(
    os.path.join(HERE, f"{name}.py")
    for name in """graph recorder operations expected unused values known shapes world places assumptions
    inliner head rebuild rebuild_kinds resuming breaks""".split()
)
OWN_FILES += (os.path.join(HERE, "stand_ins", ""),)
"""Files in which nothing of the program runs: an exception that is raised there is capture's own
failure. All other files (instructions, calls, attributes, corners) run code of the program's, or
raise what Python would raise: an exception from there is the program's."""
RAISE = dis.opmap["RAISE_VARARGS"]
MISTAKES = NameError, AttributeError, TypeError, IndexError
"""What Python raises where a method that a learner has written for the interpreter has a
mistake."""
END_OF_LINE = 10**6
"""A column behind the end of any line."""


class Nothing:
    """The type of NOTHING."""


NOTHING: Any = Nothing()
"""No result yet, nothing yielded, no further item."""


class Machine(Stack):
    """Runs the code of `function`, with these values for parameters."""

    def __init__(self, world: World, function: FunctionType, values: dict[str, Any]) -> None:
        self.world, self.function = world, function
        self.code: CodeType = function.__code__
        self.globals: dict[str, Any] = function.__globals__

        # A variable that an inner function reads lies in a cell. An argument moves into a new one,
        # unless it is the cell itself: a frame that goes on after a graph break keeps its cells.
        cells = {
            name: new_cell(values.get(name, MISSING))
            for name in self.code.co_cellvars
            if type(values.get(name)) is not CellType
        }
        self.locals = values | cells | world.closure(function)
        # Of a class body: the dict in which it binds its names
        self.names = cast(Any, None)
        self.stack: list[Any] = []

        # The exception that an `except` block is dealing with
        self.handling: BaseException | None = None

        # The instructions, and the index of each by its offset in the bytecode. An instruction of
        # CPython that became several has one offset: the index of the first of them.
        self.program = instructions(self.code)
        self.index_of = {i.offset: index for index, i in reversed([*enumerate(self.program)])}

        # The place of the next instruction in `program`
        self.next = 0
        # Places in `program` before which the interpreter stops
        self.stops: Container[int] = ()
        # Once it has stopped: the line of the instruction that ran last
        self.last_line = cast(Any, None)

        # What a `return`, and what a `yield`, has left. Each of them ends `run`.
        self.result = self.yielded = NOTHING
        # The path of the `nn.Module` whose method this is, for the nodes of the graph
        self.module = path_of_module(world, self.code, values)

    def run(self) -> Any:
        """Interpret to a return (or, in a generator, to a yield).

        NOTHING: stopped before an instruction that ends the graph."""
        self.world.lines.append(
            Location(self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname)
        )
        self.world.running.append(self)
        try:
            while (
                self.result is NOTHING and self.yielded is NOTHING and self.next not in self.stops
            ):
                self.step(self.program[self.next])
        finally:
            self.last_line = self.world.lines.pop()
            self.world.running.pop()

        if self.result is not NOTHING:
            # The frame has returned. What only it held is freed now: a generator is closed. That
            # may run code of the program's, which may be what cannot be followed.
            self.locals.clear()
            self.stack.clear()
            if self.world.problem is not None:
                raise self.world.problem
        return self.result

    def step(self, instruction: Instruction) -> None:
        """Run one instruction; whatever cannot be followed is told with its place."""
        self.next += 1
        self.world.lines[-1] = self.location(instruction)

        # What is recorded from here on comes from this line of the program.
        builder, here = self.world.builder, self.world.user_location()
        builder.location, builder.module, builder.last_node = here, self.module, None

        stack_before = self.in_words(self.stack)
        try:
            if (method := getattr(self, instruction.op, None)) is None:
                raise Unsupported(f"the instruction {instruction.op} is not interpreted")
            method(instruction)
            self.world.shapes.note(here)

            # Something that the instruction called could not be followed, and code in between has
            # caught that (`World.problem`).
            if self.world.problem is not None:
                raise self.world.problem

        except Unsupported as problem:
            self.world.problem = None
            # It comes through each call around this one, too: the innermost names the place.
            if problem.location is None:
                problem.location, problem.stack = self.world.lines[-1], tuple(self.world.lines)
                problem.instruction, problem.offset = str(instruction), instruction.offset
            raise

        except RecursionError:
            raise Unsupported("calls are nested too deeply") from None

        except BaseException as error:
            if is_a(error, GuardOnDataDependentSymNode):
                # torch asks for a size that only the data says. No `except` of the program's may
                # see that.
                question = asks_data(self.world.shapes, error)
                question.location, question.stack = here, tuple(self.world.lines)
                raise question from None
            # It is the program's own exception, or capture itself has failed.
            check_own_failure(error)
            self.unwind(instruction, error)

        if events.listening():
            self.tell(instruction, stack_before)

    def unwind(self, instruction: Instruction, error: BaseException) -> None:
        """Go on where the exception table says, or let the exception out."""
        self.add_traceback_line(instruction, error)
        for entry in frames.exception_table(self.code):
            if not entry.start <= instruction.offset < entry.end:
                continue

            del self.stack[entry.depth :]
            if entry.lasti:
                # CPython's own count: an instruction has two bytes
                self.push(instruction.offset // 2)

            # "During handling of the above exception, another exception occurred": CPython links
            # the new one to the old.
            is_new = error.__context__ is None and error is not self.handling
            if is_new and instruction.op != "RERAISE":
                error.__context__ = self.handling
            self.push(error)
            self.jump(entry.target)
            return
        raise error

    def add_traceback_line(self, instruction: Instruction, error: BaseException) -> None:
        """Each frame that an exception comes through adds a line; one that raises it again adds
        none."""
        raised = self.world.raised.get(id(error))
        trace = raised.trace if raised is not None else None

        bare_raise = instruction.op == "RAISE_VARARGS" and instruction.arg == 0
        if not bare_raise and instruction.op != "RERAISE":
            trace = traceback_line(trace, self.code, instruction.line or 1)
        self.world.raised[id(error)] = Raised(error, trace)
        error.__traceback__ = trace

    def tell(self, instruction: Instruction, before: tuple[str, ...]) -> None:
        """An event for whoever watches the interpreter, kept until the attempt is over."""
        world, here = self.world, self.world.lines[-1]
        node = world.builder.last_node
        node_name = node.name if node else ""
        arg = "" if instruction.arg is None else str(instruction.arg)
        after = self.stack if self.result is NOTHING else [self.result]

        event = events.InstructionRun(
            instruction.offset,
            instruction.op,
            arg,
            self.code.co_qualname,
            here.filename,
            here.line,
            len(world.lines) - 1,
            before,
            self.in_words(after),
            node_name,
        )
        world.told.append(event)

    def in_words(self, values: Iterable[Any]) -> tuple[str, ...]:
        """Values for an event. What a listener asks of a tensor is no part of the program."""
        with torch._C.DisableTorchFunction():
            return events.in_words(self.world, values)

    def location(self, instruction: Instruction) -> Location:
        """The place of an instruction; one that spans lines reaches to the end of its first
        line."""
        line = instruction.line or self.world.lines[-1].line
        at = instruction.positions
        column = end = -1
        if at is not None and at.col_offset is not None:
            column, end = at.col_offset, at.end_col_offset or -1
        if at is not None and at.end_lineno != at.lineno:
            end = END_OF_LINE
        return Location(self.code.co_filename, line, self.code.co_qualname, column, end)

    # ---- calls out of the machine ----------------------------------------------------------------

    def native(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Let Python itself call a builtin, such as `sorted` or `operator.add`.

        A builtin is C and has no bytecode to interpret, but it may call back: `sorted` calls its
        `key`, `operator.add` an `__add__` of the user's. Such a frame comes to the hook, and the
        hook gives it to the interpreter (`inliner`), so what the builtin calls is captured as
        well."""
        inliner = self.world.inliner
        caller_before = inliner.caller
        inliner.caller = self
        try:
            result = frames.call(inliner, function, *args, **kwargs)
        finally:
            inliner.caller = caller_before

        if type(result) is str:
            self.world.check_addresses(result)

        # The program may ask whether `n > 4` `is True`, so it gets a bool. To ask for it makes a
        # guard. A condition that only the data says stays as it is: `torch._check` can take it.
        if type(result) is torch.SymBool and not is_unknown(result):
            return bool(result)
        return result

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`function(*args, **kwargs)` in the interpreted world."""
        return self.call_function(function, list(args), kwargs)

    def call_function(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The same, with the arguments as a list and a dict."""
        return dispatch.call(self, function, args, kwargs)

    def enter(self, function: FunctionType, values: tuple[Any, ...], names: Any = None) -> Any:
        """Interpret a call of `function` with its parameters bound to `values`; of a class body
        with its `names`."""
        if len(self.world.lines) > config.inline_depth_limit:
            raise Unsupported(
                f"calls are nested more than {config.inline_depth_limit} deep (at {function.__qualname__})"
            )
        callee = type(self)(
            self.world,
            function,
            dict(zip(frames.parameters(function.__code__), values, strict=True)),
        )
        callee.handling, callee.names = self.handling, names

        if not callee.code.co_flags & inspect.CO_GENERATOR:
            return callee.run()

        callee.begin()
        generator: Any = callee.generator()
        generator.__name__, generator.__qualname__ = function.__name__, function.__qualname__
        return generator

    @property
    def place_of_generator(self) -> int:
        """Where in the program of a generator function the instruction is that makes the generator.

        The instructions before it run at once (3.15: `iter()`), the rest later."""
        return next(n for n, i in enumerate(self.program) if i.op == "RETURN_GENERATOR")

    def begin(self) -> None:
        """Run what a generator function does before it gives the generator."""
        if self.place_of_generator > 0:
            self.stops = {self.place_of_generator}
            self.run()
            self.stops = ()

    def generator(self) -> Iterator[Any]:
        """A generator whose body is interpreted, step by step, whoever asks it for values.

        `self.run` stops at each `yield`, and leaves the value in `self.yielded`; at the end it
        leaves `self.result`.
        """
        sent: Any = NOTHING
        while True:
            # Up to the next `yield`
            try:
                self.take(sent)
                frames.call(None, self.run)
            except Unsupported as problem:
                self.world.problem = problem
                # Python swallows and prints what leaves a generator that it closes. So the
                # instruction that had it closed finds the problem in `World.problem`.
                if is_a(sent, GeneratorExit):
                    return None
                raise
            except GeneratorExit as closing:
                # The body lets itself be closed. The traceback and the interpreter's frames hold
                # each other: without this, all that was captured would stay.
                sent = closing.__traceback__ = None
                raise
            if self.result is not NOTHING:
                return self.result

            # What is sent, or thrown in (an exception), is for the body.
            value, self.yielded = self.yielded, NOTHING
            try:
                sent = yield value
            except BaseException as error:
                if self.world.finished:  # capture is over, and the generator is only being closed
                    return None
                error.__traceback__ = None  # it holds this frame, which holds the error
                sent = error

    def take(self, sent: Any) -> None:
        """What was sent or thrown into the generator, where it stands. NOTHING: it begins."""
        if sent is NOTHING:
            return

        # The machine stands behind a YIELD_VALUE. That of a `yield from` follows a SEND.
        delegates = self.program[self.next - 2].op == "SEND"
        if not is_a(sent, BaseException):
            self.push(sent)
        elif delegates:
            self.push(sent)
            self.next -= 2  # The SEND runs again, and throws it into the inner generator.
        else:
            # None: nobody watches the frames of this call
            frames.call(None, self.unwind, self.program[self.next - 1], sent)

    def iterate(self, value: Any) -> Any:
        """`iter(value)`"""
        self.look_into(value)
        return self.native(iter, value)

    def look_into(self, *values: Any) -> None:
        """Raise Unsupported for an object of which capture knows nothing but its type."""
        for value in values:
            if self.world.is_opaque(value):
                raise Unsupported(
                    f"looks into a {type(value).__name__}, of which capture knows nothing",
                    "use it in eager code",
                )

    def operate(self, function: Any, *args: Any) -> Any:
        """An operator: recorded if a tensor takes part, else computed now."""
        self.look_into(*args)
        if (number := self.world.shapes.compute(function, args)) is not None:
            return number
        if any(is_a(arg, torch.Tensor) for arg in args) and not any(map(has_own_operators, args)):
            return self.world.builder.call(function, args)
        return self.native(function, *args)

    def truth(self, value: Any) -> bool:
        """`bool(value)`"""
        if is_a(value, torch.Tensor):
            hint = "use torch.where to compute both sides, torch.cond for a real branch, or move the `if` out of the function"
            raise Unsupported("a branch depends on the data in a tensor", hint)
        self.look_into(value)
        return bool(self.native(bool, value))

    def jump(self, offset: int) -> None:
        """Go on at this offset of the bytecode."""
        self.next = self.index_of[offset]


@dataclass(frozen=True)
class Raiser:
    """The innermost frame of the library, or of a learner's interpreter, that an exception came
    through."""

    file: str = ""
    function: str = ""
    line: int = 0
    by_statement: bool = False  # Did it raise the exception itself, by `raise`?

    @property
    def is_of_capture(self) -> bool:
        return self.file.startswith(HERE)


def check_own_failure(error: BaseException) -> None:
    """Raise `Unsupported` unless an exception is the program's own: not one of this library's, nor
    a mistake of a learner's.

    A learner may write methods of the interpreter. A NameError there, that no `raise` raised, is a
    mistake in the method. (An instruction that does what Python does raises by `raise`.)
    """
    if is_a(error, KeyboardInterrupt):
        raise error  # the user stops the process

    at = raiser_of(error)
    is_mistake = is_a(error, MISTAKES) and not at.is_of_capture and not at.by_statement
    if at.file.startswith(OWN_FILES) or is_mistake:
        what = f"{type(error).__name__}: {error}"
        hint = "report it" if at.is_of_capture else "correct that line of the interpreter"
        raise Unsupported(
            f"capture itself fails at {at.function} ({at.file}:{at.line}): {what}", hint
        ) from error


def raiser_of(error: BaseException) -> Raiser:
    """Where in capture, or in a method of an interpreter, an exception was raised last."""
    raiser = Raiser()
    trace = error.__traceback__
    while trace is not None:
        frame, code = trace.tb_frame, trace.tb_frame.f_code
        # A learner's interpreter lies in a file, or a cell, of its own.
        if code.co_filename.startswith(HERE) or is_a(frame.f_locals.get("self"), Machine):
            by_statement = code.co_code[trace.tb_lasti] == RAISE
            raiser = Raiser(code.co_filename, code.co_name, trace.tb_lineno, by_statement)
        trace = trace.tb_next
    return raiser


def path_of_module(world: World, code: CodeType, values: dict[str, Any]) -> str:
    """The path of the `nn.Module` whose method this is (`self.ln`), or else of the one that called
    this function; "" outside of all."""
    owner = world.of(next(iter(values.values()), None))
    if owner and is_a(owner.real, torch.nn.Module) and hasattr(type(owner.real), code.co_name):
        return owner.source.shown
    return world.builder.module


def is_unknown(condition: torch.SymBool) -> bool:
    """Can only the data say whether it is true?"""
    return is_of_data(condition) and statically_known(condition) is None


def new_cell(value: Any) -> CellType:
    """A cell that holds `value`; MISSING: an empty one."""
    if value is MISSING:
        return CellType()
    return CellType(value)


def has_own_operators(value: Any) -> bool:
    """Is this an instance of a class written in Python, which may have an `__add__` of its own?

    `tensor + instance` may be decided by the instance: then Python asks both."""
    return type(value).__flags__ & HEAP_TYPE != 0 and not is_a(
        value, (torch.Tensor, torch.SymInt, torch.SymFloat)
    )
