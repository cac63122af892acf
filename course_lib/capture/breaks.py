"""What a head does at a graph break: the breaking instruction, as Python source, and then the
resume function.

In:  the interpreter of the frame, stopped before the instruction.
Out: statements of the head. Each instruction that can break a graph has a text or a method here: it
     takes expressions off the stack, writes the operation, and says what the stack is afterwards.

    x = a / (abs(a) + 1)             __out = __graph(a, b)
    if b.sum() < 0:                  if __out[0]:
        b = b * -1         →             return resume(at_20, ..., __out[1], b)
    return x * b                     return resume(at_28, ..., __out[1], b)
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`break_graph_if_unsupported`, `generic_jump`,
`create_call_resume_at`).
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib import frames
from course_lib.capture.head import Break, HeadBuilder
from course_lib.capture.interpreter import Interpreter
from course_lib.capture.machine import NOTHING
from course_lib.capture.opcodes.stack import Stack
from course_lib.capture.resuming import resumption, stack_of
from course_lib.capture.sources import Unsupported
from course_lib.capture.world import NULL
from course_lib.frames import JUMPS, Instruction

FRAME_READERS = ("locals", "globals", "eval", "exec")
"""Builtins that look at the frame that calls them."""
BRANCHES = {"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"}
TRUTHS = {"TO_BOOL", "UNARY_NOT", "CONTAINS_OP"}
"""Instructions that give True or False, for a branch that may follow."""


@dataclass(frozen=True)
class Expression:
    """An instruction that takes `takes` values off the stack, and gives one for each of `gives`.

    In the texts {0}, {1}, ... are the values, the deepest first, and {arg} is the instruction's
    argument.
    """

    takes: int
    gives: tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """An instruction that takes `takes` values off the stack, and gives none.

    Its text is written as for an `Expression`."""

    takes: int
    text: str


EXPRESSIONS: dict[str, Expression] = {
    "LOAD_ATTR": Expression(1, ("{0}.{arg}",)),
    "COMPARE_OP": Expression(2, ("{0} {arg} {1}",)),
    "UNARY_NEGATIVE": Expression(1, ("-{0}",)),
    "UNARY_INVERT": Expression(1, ("~{0}",)),
    "UNARY_POSITIVE": Expression(1, ("+{0}",)),
    "UNARY_NOT": Expression(1, ("not {0}",)),
    "TO_BOOL": Expression(1, ("bool({0})",)),
    "BINARY_SUBSCR": Expression(2, ("{0}[{1}]",)),
    "GET_ITER": Expression(1, ("iter({0})",)),
    "CONVERT_VALUE": Expression(1, ("{arg}({0})",)),
    "FORMAT_SIMPLE": Expression(1, ("format({0})",)),
    "FORMAT_WITH_SPEC": Expression(2, ("format({0}, {1})",)),
    "BEFORE_WITH": Expression(1, ("{0}.__exit__", "{0}.__enter__()")),
}
STATEMENTS: dict[str, Statement] = {
    "STORE_ATTR": Statement(2, "{1}.{arg} = {0}"),
    "DELETE_ATTR": Statement(1, "del {0}.{arg}"),
    "STORE_SUBSCR": Statement(3, "{1}[{2}] = {0}"),
    "DELETE_SUBSCR": Statement(2, "del {0}[{1}]"),
    "POP_TOP": Statement(1, "{0}"),
}


@dataclass(frozen=True)
class Side:
    """One side of a branch: the offset at which the frame goes on, and the stack that it has
    there."""

    offset: int
    stack: list[str]


def indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line for line in lines]


class BreakBuilder(HeadBuilder, Stack):
    """Writes the head of a frame that stops before instruction `first` of its program."""

    it: Interpreter
    """The interpreter of the frame. (`stack` holds, as text, what is on its stack.)"""
    lines: list[str]
    """The operation itself."""
    tail: list[str]
    """The calls of resume functions."""
    handler: Any
    """The entry of the exception table that is in force at the broken instruction, or None."""

    def stop(self, it: Interpreter, first: int, broken: int, plain: bool) -> None:
        """Write the side effects, then instructions `first` to `broken`, then the calls of resume
        functions.

        `plain`: no instruction is written. The rest of the frame, from `first` on, runs as it
        is."""
        refuse_frame_readers(it)
        self.it = it
        self.head.at = Break(it.code, it.program[broken].line or 1, it.globals)

        self.effects()
        self.stack = stack_of(self, it)
        self.lines = []
        self.tail = []
        self.handler = None

        if plain or not self.knows(it.program[first : broken + 1]):
            self.go_on(it.program[first].offset, plain=True)
        else:
            self.write_steps(it.program[first:], broken - first)
        self.body += [*self.while_handling(self.lines), *self.tail]

    def knows(self, program: Sequence[Instruction]) -> bool:
        """Can each of these instructions be written as source?"""
        # `dir`: an instruction may be a method here, or one of `Stack`.
        known = {*EXPRESSIONS, *STATEMENTS, *BRANCHES, *dir(self)}
        return all(instruction.op in known for instruction in program)

    def while_handling(self, lines: list[str]) -> list[str]:
        """The operation, done while the exception is handled that the program was handling.

        (A bare `raise` asks for it.)"""
        if self.it.handling is None or not lines:
            return lines

        error = self.rebuild(self.it.handling)
        return [
            "try:",
            f"    raise {error}",
            "except BaseException:",
            # The line above is no line of the program.
            f"    {error}.__traceback__ = {error}.__traceback__.tb_next",
            *indented(lines),
        ]

    # --- from instruction to instruction

    def write_steps(self, program: Sequence[Instruction], count: int) -> None:
        """Write `count` instructions and the broken one after them, then go on with the frame.

        `program`: the instructions from the first of these on, to the end of the frame."""
        offset = program[count].offset
        self.handler = handler_at(self.it, offset)
        stack_of_handler = self.stack[: self.handler.depth] if self.handler else []

        place = 0
        while not self.tail:
            instruction = program[place]
            # A branch on a truth value is written with it: `if x in y:`.
            asks_for_truth = instruction.op in {*BRANCHES, "UNARY_NOT"}
            belongs_to_last = program[place - 1].op in TRUTHS and asks_for_truth

            # One instruction of CPython may be several here: all of them have its offset.
            broken_one_is_done = place > count and instruction.offset != offset
            if broken_one_is_done and not belongs_to_last:
                self.go_on(instruction.offset)
                break

            place += 1
            # `if` asks for the truth by itself. (In a `try` of the program's, which may have to
            # catch what that raises, it is asked before.)
            asked_by_if = instruction.op == "TO_BOOL" and program[place].op in JUMPS
            if not asked_by_if or self.handler is not None:
                self.write_step(instruction, program[place : place + 1])

        if self.handler is not None and self.lines:
            self.catch(stack_of_handler, offset)

    def catch(self, kept: list[str], offset: int) -> None:
        """Where the operation raises inside a `try` of the program, the frame goes on at the
        handler.

        `kept`: what is on the stack there, below what CPython adds."""
        tail_without_error = self.tail
        # Some handlers want the place where it was raised, in units of two bytes.
        last_instruction = [str(offset // 2)] if self.handler.lasti else []

        # The resume function is called outside of the head's own `except`: the program decides how
        # long it handles the exception.
        self.tail = []
        self.stack = [*kept, *last_instruction, "__error"]
        self.go_on(self.handler.target)

        self.lines = [
            "try:",
            *indented(self.lines),
            "    __error = None",
            "except BaseException as __caught:",
            "    __error = __caught",
        ]
        self.tail = ["if __error is None:", *indented(tail_without_error), *self.tail]

    def write_step(self, i: Instruction, after: Sequence[Instruction]) -> None:
        """One instruction. `after` holds the next one, if there is one."""
        if i.op in EXPRESSIONS:
            expression = EXPRESSIONS[i.op]
            operands = self.popn(expression.takes)
            self.stack += [self.do(text.format(*operands, arg=i.arg)) for text in expression.gives]
        elif i.op in STATEMENTS:
            statement = STATEMENTS[i.op]
            operands = self.popn(statement.takes)
            self.lines.append(statement.text.format(*operands, arg=i.arg))
        elif i.op in BRANCHES:
            self.write_branch(i, after)
        else:
            getattr(self, i.op)(i)

    def write_branch(self, i: Instruction, after: Sequence[Instruction]) -> None:
        """`if condition:` with a resume function for each side."""
        condition = self.pop()

        jump = Side(i.arg, self.stack)
        stay = Side(i.next_offset, self.stack)

        # Python 3.11's JUMP_IF_TRUE_OR_POP is two instructions here, of one offset: the jump, and a
        # POP_TOP after it. So the side that does not jump pops what the other keeps.
        is_jump_or_pop = bool(after) and after[0].offset == i.offset
        if is_jump_or_pop:
            stay = Side(i.next_offset, self.stack[:-1])

        jumps_if_true = "TRUE" in i.op
        if jumps_if_true:
            self.branch(condition, yes=jump, no=stay)
        else:
            self.branch(condition, yes=stay, no=jump)

    def do(self, text: str) -> str:
        """Compute something, once."""
        name = f"__r{next(self._count)}"
        self.lines.append(f"{name} = {text}")
        return name

    def go_on(self, offset: int, plain: bool = False, indent: str = "") -> None:
        """`return resume(...)`: the rest of the frame from `offset`; `plain`: without compiling."""
        rest = resumption(self, self.it, offset, self.stack, "__func", plain)
        self.tail.append(f"{indent}return {rest}")

    def branch(self, condition: str, yes: Side, no: Side) -> None:
        """A two-way `if`."""
        # The truth of a value may raise. In a `try` of the program's it is asked among `lines`,
        # which `catch` puts into a `try` of the head.
        if self.handler is not None:
            condition = self.do(f"bool({condition})")

        self.tail.append(f"if {condition}:")
        self.stack = yes.stack
        self.go_on(yes.offset, indent="    ")
        self.stack = no.stack
        self.go_on(no.offset)

    # --- instructions that are more than a text

    def BINARY_OP(self, i: Instruction) -> None:
        """`a + b`, or `a += b`, which may change `a` itself. The argument is the sign."""
        left, right = self.popn(2)
        if not i.arg.endswith("="):
            self.push(self.do(f"{left} {i.arg} {right}"))
            return

        name = self.do(left)
        self.push(name)
        self.lines.append(f"{name} {i.arg} {right}")

    def CONTAINS_OP(self, i: Instruction) -> None:
        item, container = self.popn(2)
        operator = "not in" if i.arg else "in"
        self.stack.append(self.do(f"{item} {operator} {container}"))

    def CALL_FUNCTION_EX(self, i: Instruction) -> None:
        """`f(*args, **kwargs)`"""
        # Since Python 3.14 NULL may lie in the place of the dict.
        kwargs = self.pop() if i.arg else NULL
        args = self.pop()

        # With their stars the texts are written as they are, so they may pass for arguments by
        # position.
        starred = [f"*{args}"]
        if kwargs is not NULL:
            starred.append(f"**{kwargs}")
        self.call_popped(starred, {})

    def call_function(self, function: str, args: list[str], kwargs: dict[str, str]) -> str:
        """The variable that gets what a call gives. All arguments are texts."""
        keyword_texts = [f"{name}={text}" for name, text in kwargs.items()]
        return self.do(f"{function}({', '.join([*args, *keyword_texts])})")

    def UNPACK_SEQUENCE(self, i: Instruction) -> None:
        names = [f"__r{next(self._count)}" for _ in range(i.arg)]
        self.lines.append(f"[{', '.join(names)}] = {self.pop()}")
        self.stack.extend(reversed(names))

    def WITH_EXCEPT_START(self, i: Instruction) -> None:
        """Call `__exit__` with the exception that was raised in a `with`."""
        error = self.stack[-1]
        slots = self.stack[-3 - i.arg : -3]
        exit_method, *instance = [slot for slot in slots if slot is not NULL]
        arguments = [*instance, f"type({error})", error, f"{error}.__traceback__"]
        self.push(self.call_function(exit_method, arguments, {}))

    def FOR_ITER(self, i: Instruction) -> None:
        """Take the next item; without one, go on behind the loop."""
        at, end = self.iterator_at(), self.name_for(NOTHING)
        item = self.do(f"next({self.stack[at]}, {end})")
        behind = Side(i.arg, self.stack[:at])
        loop_side = Side(i.next_offset, [*self.stack, item])
        self.branch(f"{item} is {end}", yes=behind, no=loop_side)


def refuse_frame_readers(it: Interpreter) -> None:
    """Raise Unsupported for a frame that looks at itself: the resume function is another frame."""
    frame_readers = []
    for instruction in it.program:
        if instruction.op == "LOAD_GLOBAL" and instruction.arg in FRAME_READERS:
            frame_readers.append(instruction.arg)
    if any(value is sys._getframe for value in it.stack):
        frame_readers.append("sys._getframe")
    if frame_readers:
        raise Unsupported(f"a function that calls {frame_readers[0]}() cannot be split")


def handler_at(it: Interpreter, offset: int) -> Any:
    """The entry of the exception table for the instruction at `offset`, None if there is none."""
    for entry in frames.exception_table(it.code):
        if entry.start <= offset < entry.end:
            return entry
    return None
