"""The machine under the symbolic interpreter: stack, names, the loop, exceptions, and calls out of it.

What each instruction does is written in `interpreter.py`.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, `InstructionTranslatorBase.run` and `step`.
"""

import dis
import os
from collections.abc import Callable, Container, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any, cast

import torch

from course_lib import config, events, frames
from course_lib.capture import calls
from course_lib.capture.classes import HEAP_TYPE, isinstance
from course_lib.capture.sources import Location, Unsupported
from course_lib.capture.world import MISSING, NULL, World
from course_lib.frames import Instruction, instructions
from course_lib.frames.resume import traceback_line

OWN = tuple(f"{name}.py" for name in "graph world shapes head rebuild resuming breaks".split())
HERE = os.path.dirname(os.path.abspath(__file__))
RAISE = dis.opmap["RAISE_VARARGS"]
SLIPS = NameError, AttributeError, TypeError, IndexError
NOTHING: Any = type("Nothing", (), {})()


class Stack:
    """The value stack: of values here, of their texts in `breaks.py`; and what calls take from it."""

    stack: list[Any]
    call: Callable[..., Any]  # (function, *args, **kwargs): what the call gives

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def popn(self, count: int) -> list[Any]:
        """The top `count` values, deepest first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    PUSH_NULL = lambda self, i: self.push(NULL)
    COPY = lambda self, i: self.push(self.stack[-i.arg])
    CALL = lambda self, i: self.call_popped(self.popn(i.arg), {})

    def SWAP(self, i: Instruction) -> None:
        self.stack[-i.arg], self.stack[-1] = self.stack[-1], self.stack[-i.arg]

    def CALL_KW(self, i: Instruction) -> None:
        names, args = self.pop(), self.popn(i.arg)
        split = len(args) - len(names)
        self.call_popped(args[:split], dict(zip(names, args[split:], strict=True)))

    def iterator_at(self, below: int = 0) -> int:
        """Where an iterator is on the stack: the topmost slot under the `below` topmost that is not NULL."""
        at = len(self.stack) - 1 - below
        while self.stack[at] is NULL:
            at -= 1
        return at

    def call_popped(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """The two slots under the arguments are NULL and a callable in either order, or a callable and its first argument."""
        self.push(self.call(*(slot for slot in self.popn(2) if slot is not NULL), *args, **kwargs))


class Machine(Stack):
    """Runs the code of `function`, with these values for parameters."""

    def __init__(self, world: World, function: FunctionType, values: dict[str, Any]) -> None:
        self.world, self.function = world, function
        self.code: CodeType = function.__code__
        self.globals: dict[str, Any] = function.__globals__
        cells = {
            n: new_cell(values.get(n, MISSING))
            for n in self.code.co_cellvars
            if type(values.get(n)) is not CellType
        }
        # Values, or cells: an argument moves into its own, or is one
        self.locals = values | cells | world.closure(function)
        self.names = cast(Any, None)  # Of a class body
        self.stack: list[Any] = []
        # The exception that an `except` block is dealing with
        self.handling: BaseException | None = None
        self.program = instructions(self.code)
        # of those split, the first
        self.index_of = {i.offset: index for index, i in reversed([*enumerate(self.program)])}
        # Instruction; and where the last one was, once it has ended
        self.next, self.last = 0, cast(Any, None)
        self.stops: Container[int] = ()  # Where not to go on, as indices into `program`
        self.result = self.yielded = NOTHING
        # The path of the module whose method this is, or that called this function
        self.module = world.builder.module
        owner = world.of(next(iter(values.values()), None))
        if (
            owner
            and isinstance(owner.real, torch.nn.Module)
            and hasattr(type(owner.real), self.code.co_name)
        ):
            self.module = owner.source.shown

    def run(self) -> Any:
        """Interpret to a return (or, in a generator, to a yield). NOTHING: stopped before an instruction that ends the graph."""
        self.world.stack.append(
            Location(self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname)
        )
        self.world.running.append(self)
        try:
            while (
                self.result is NOTHING and self.yielded is NOTHING and self.next not in self.stops
            ):
                self.step(self.program[self.next])
        finally:
            self.last = self.world.stack.pop()
            self.world.running.pop()
        if self.result is not NOTHING:  # what only this frame held goes: a generator is closed
            for part in (self.locals, self.stack):
                part.clear()
            if self.world.problem is not None:
                raise self.world.problem
        return self.result

    def step(self, instruction: Instruction) -> None:
        """Run one instruction; whatever cannot be followed is told with its place."""
        self.next += 1
        self.world.stack[-1] = self.location(instruction)
        builder, here = self.world.builder, self.world.user_location()
        builder.location, builder.module, builder.last_node = here, self.module, None
        before = events.in_words(self.world, self.stack)
        try:
            if (method := getattr(self, instruction.op, None)) is None:
                raise Unsupported(f"the instruction {instruction.op} is not interpreted")
            method(instruction)
            self.world.shapes.note(here)
            if self.world.problem is not None:
                raise self.world.problem
        except Unsupported as problem:
            self.world.problem = None
            if problem.location is None:
                problem.location, problem.stack = self.world.stack[-1], tuple(self.world.stack)
                problem.instruction, problem.offset = str(instruction), instruction.offset
            raise
        except RecursionError:
            raise Unsupported("calls are nested too deeply") from None
        except BaseException as error:
            check_own_failure(error)
            self.unwind(instruction, error)
        if events.listening():
            self.tell(instruction, before)

    def unwind(self, instruction: Instruction, error: BaseException) -> None:
        """Go on where the exception table says, or let the exception out."""
        _, trace = self.world.raised.get(id(error), (error, None))
        if (instruction.op, instruction.arg) not in (
            ("RAISE_VARARGS", 0),
            ("RERAISE", instruction.arg),
        ):
            trace = traceback_line(trace, self.code, instruction.line or 1)
        self.world.raised[id(error)] = error, trace
        error.__traceback__ = trace
        for entry in frames.exception_table(self.code):
            if entry.start <= instruction.offset < entry.end:
                del self.stack[entry.depth :]
                if entry.lasti:
                    self.push(instruction.offset // 2)
                if (
                    error.__context__ is None
                    and error is not self.handling
                    and instruction.op != "RERAISE"
                ):
                    error.__context__ = self.handling
                self.push(error)
                self.jump(entry.target)
                return
        raise error

    def tell(self, instruction: Instruction, before: tuple[str, ...]) -> None:
        here, node, depth = (
            self.world.stack[-1],
            self.world.builder.last_node,
            len(self.world.stack) - 1,
        )
        after = events.in_words(self.world, self.stack if self.result is NOTHING else [self.result])
        ran = (
            instruction.offset,
            instruction.op,
            "" if instruction.arg is None else str(instruction.arg),
            self.code.co_qualname,
        )
        made = node.name if node else ""
        self.world.told.append(
            events.InstructionRun(*ran, here.filename, here.line, depth, before, after, made)
        )

    def location(self, instruction: Instruction) -> Location:
        at, line = instruction.positions, instruction.line or self.world.stack[-1].line
        column, end = (
            (-1, -1)
            if at is None or at.col_offset is None
            else (at.col_offset, at.end_col_offset or -1)
        )
        if at is not None and at.end_lineno != at.lineno:
            end = 10**6
        return Location(self.code.co_filename, line, self.code.co_qualname, column, end)

    def native(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Let Python itself call a function; frames that it enters come back to the interpreter through the hook."""
        inliner = self.world.inliner
        before, inliner.caller = inliner.caller, self
        try:
            result = frames.call(inliner, function, *args, **kwargs)
        finally:
            inliner.caller = before
        if type(result) is str:
            self.world.check_addresses(result)
        # a guard: `n > 4` may be asked whether it `is True`
        return bool(result) if type(result) is torch.SymBool else result

    def call(self: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return calls.call(self, function, list(args), kwargs)

    def enter(self, function: FunctionType, values: tuple[Any, ...], names: Any = None) -> Any:
        """Interpret a call of `function` with its parameters bound to `values`; of a class body with its `names`."""
        if len(self.world.stack) > config.inline_depth_limit:
            raise Unsupported(
                f"calls are nested more than {config.inline_depth_limit} deep (at {function.__qualname__})"
            )
        callee = type(self)(
            self.world,
            function,
            dict(zip(frames.parameters(function.__code__), values, strict=True)),
        )
        callee.handling, callee.names = self.handling, names
        if not callee.code.co_flags & 0x20:
            return callee.run()
        callee.begin()
        made: Any = callee.generator()
        made.__name__, made.__qualname__ = function.__name__, function.__qualname__
        return made

    @property
    def made(self) -> int:
        """Of a generator's code: the instruction that makes it. Those before it run at once (3.15: `iter()`), the rest later."""
        return next(n for n, i in enumerate(self.program) if i.op == "RETURN_GENERATOR")

    def begin(self) -> None:
        """Run what a generator function does before it gives the generator."""
        if self.made > 0:
            self.stops = {self.made}
            self.run()
            self.stops = ()

    def generator(self) -> Iterator[Any]:
        """A generator whose body is interpreted, step by step, whoever asks it for values."""
        sent: Any = NOTHING
        while True:
            thrown, delegates = (
                isinstance(sent, BaseException),
                self.program[self.next - 2].op == "SEND",
            )
            try:
                if thrown and not delegates:
                    frames.call(None, self.unwind, self.program[self.next - 1], sent)
                elif sent is not NOTHING:
                    self.push(sent)
                    self.next -= 2 if thrown else 0  # `SEND` hands it on
                frames.call(None, self.run)
            except Unsupported as problem:
                self.world.problem = problem
                if isinstance(sent, GeneratorExit):  # Python would only print it
                    return None
                raise
            except GeneratorExit as closing:
                # its traceback and our frames hold each other, and all that was captured
                sent = closing.__traceback__ = None
                raise
            if self.result is not NOTHING:
                return self.result
            value, self.yielded = self.yielded, NOTHING
            try:
                sent = yield value
            except BaseException as error:
                if self.world.finished:  # nobody asked for more
                    return None
                error.__traceback__ = None  # it holds this frame, which holds the error
                sent = error

    def iterate(self, value: Any) -> Any:
        """`iter(value)`"""
        self.look_into(value)
        return self.native(iter, value)

    def look_into(self, *values: Any) -> None:
        """Refuse what is known by its type alone."""
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
        if any(isinstance(arg, torch.Tensor) for arg in args) and not any(
            map(has_own_operators, args)
        ):
            return self.world.builder.call(function, args)
        return self.native(function, *args)

    def truth(self, value: Any) -> bool:
        """`bool(value)`"""
        if isinstance(value, torch.Tensor):
            hint = "use torch.where to compute both sides, torch.cond for a real branch, or move the `if` out of the function"
            raise Unsupported("a branch depends on the data in a tensor", hint)
        self.look_into(value)
        return bool(self.native(bool, value))

    def jump(self, offset: int) -> None:
        self.next = self.index_of[offset]


def check_own_failure(error: BaseException) -> None:
    """Raise `Unsupported` unless an exception is the program's own: neither from the rooms below nor a learner's slip."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    file, name, line, raised, at = "", "", 0, False, error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename.startswith(HERE) or isinstance(
            at.tb_frame.f_locals.get("self"), Machine
        ):
            file, name, line, raised = (
                code.co_filename,
                code.co_name,
                at.tb_lineno,
                code.co_code[at.tb_lasti] == RAISE,
            )
        at = at.tb_next
    if file.endswith(OWN) or not (file.startswith(HERE) or raised or not isinstance(error, SLIPS)):
        reason = f"capture itself fails at {name} ({file}:{line}): {type(error).__name__}: {error}"
        raise Unsupported(
            reason, "report it" if file.startswith(HERE) else "correct that line of the interpreter"
        ) from error


def new_cell(value: Any) -> CellType:
    return CellType() if value is MISSING else CellType(value)


def has_own_operators(value: Any) -> bool:
    """Is this an instance of a class written in Python, which may have an `__add__` of its own?"""
    return type(value).__flags__ & HEAP_TYPE != 0 and not isinstance(
        value, (torch.Tensor, torch.SymInt, torch.SymFloat)
    )
