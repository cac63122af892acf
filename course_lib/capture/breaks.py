"""What a head does at a graph break: the breaking instruction, as Python source, and then the resume function.

In:  the interpreter of the frame, stopped before the instruction.
Out: statements of the head. Each instruction that can break a graph has a text or a method here: it takes expressions off
     the stack, writes the operation, and says what the stack is afterwards.

    x = a / (abs(a) + 1)             __out = __graph(a, b)
    if b.sum() < 0:                  if __out[0]:
        b = b * -1         →             return resume(at_20, ..., __out[1], b)
    return x * b                     return resume(at_28, ..., __out[1], b)
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`break_graph_if_unsupported`, `generic_jump`, `create_call_resume_at`).
"""

import sys
from collections.abc import Sequence
from typing import Any

from course_lib import frames
from course_lib.capture.head import Break, HeadBuilder
from course_lib.capture.interpreter import Interpreter
from course_lib.capture.machine import NOTHING, Stack
from course_lib.capture.sources import Unsupported
from course_lib.capture.world import NULL
from course_lib.frames import JUMPS, Instruction

# Builtins that look at the frame that calls them
FRAME_READERS = ("locals", "globals", "eval", "exec")
BRANCHES = {"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"}
TRUTHS = {"TO_BOOL", "UNARY_NOT", "CONTAINS_OP"}
EXPRESSIONS: dict[str, tuple[Any, ...]] = {
    "LOAD_ATTR": (1, "{0}.{arg}"), "COMPARE_OP": (2, "{0} {arg} {1}"), "UNARY_NEGATIVE": (1, "-{0}"), "UNARY_INVERT": (1, "~{0}"),
    "UNARY_POSITIVE": (1, "+{0}"), "UNARY_NOT": (1, "not {0}"), "TO_BOOL": (1, "bool({0})"), "BINARY_SUBSCR": (2, "{0}[{1}]"),
    "GET_ITER": (1, "iter({0})"), "CONVERT_VALUE": (1, "{arg}({0})"), "FORMAT_SIMPLE": (1, "format({0})"),
    "FORMAT_WITH_SPEC": (2, "format({0}, {1})"), "BEFORE_WITH": (1, "{0}.__exit__", "{0}.__enter__()"),
}  # fmt: skip
"""Instructions that take values and give others: how many, and the texts with {0}, {1}, ... in their places."""
STATEMENTS = {"STORE_ATTR": (2, "{1}.{arg} = {0}"), "DELETE_ATTR": (1, "del {0}.{arg}"), "STORE_SUBSCR": (3, "{1}[{2}] = {0}"),
              "DELETE_SUBSCR": (2, "del {0}[{1}]"), "POP_TOP": (1, "{0}")}  # fmt: skip
"""Instructions that take values and give none."""


class BreakBuilder(HeadBuilder, Stack):
    """Writes the head of a frame that stops before instruction `first` of its program."""

    def stop(self, it: Interpreter, first: int, broken: int, plain: bool) -> None:
        """Side effects, instructions `first` to `broken`, calls of resume functions. `plain`: from `first` on as it is."""
        self.it = it
        readers = [i.arg for i in it.program if i.op == "LOAD_GLOBAL" and i.arg in FRAME_READERS]
        if readers or any(value is sys._getframe for value in it.stack):
            raise Unsupported(
                f"a function that calls {(*readers, 'sys._getframe')[0]}() cannot be split"
            )
        self.head.at = Break(it.code, it.program[broken].line or 1, it.globals)
        self.effects()
        self.stack = self.stack_of(it)
        known = {*EXPRESSIONS, *STATEMENTS, *BRANCHES, *dir(self)}
        self.lines: list[str] = []  # the operation itself
        self.tail: list[str] = []  # the calls of resume functions
        self.handler: Any = None
        if plain or not all(i.op in known for i in it.program[first : broken + 1]):
            self.go_on(it.program[first].offset, plain=True)
        else:
            self.write_steps(it.program[first:], broken - first)
        lines = self.lines
        if it.handling is not None and lines:
            lines, error = ["    " + line for line in lines], self.rebuild(it.handling)
            unseen = f"    {error}.__traceback__ = {error}.__traceback__.tb_next"
            lines = ["try:", f"    raise {error}", "except BaseException:", unseen, *lines]
        self.body += [*lines, *self.tail]

    def write_steps(self, program: Sequence[Instruction], count: int) -> None:
        offset = program[count].offset
        handler = self.handler = next(
            (e for e in frames.exception_table(self.it.code) if e.start <= offset < e.end), None
        )
        kept = self.stack[: handler.depth] if handler else []
        place = 0
        while not self.tail:
            i = program[place]
            joined = program[place - 1].op in TRUTHS and i.op in {*BRANCHES, "UNARY_NOT"}
            if place > count and i.offset != offset and not joined:
                self.go_on(i.offset)
                break
            place += 1
            # `if` asks by itself
            if i.op != "TO_BOOL" or program[place].op not in JUMPS or handler is not None:
                self.write_step(i, program[place : place + 1])
        if handler is not None and self.lines:
            tail, self.tail = self.tail, []
            self.stack = [*kept, *([str(offset // 2)] if handler.lasti else []), "__error"]
            # outside of `except`: the program decides how long it handles the exception
            self.go_on(handler.target)
            done, went_well = (["    " + line for line in lines] for lines in (self.lines, tail))
            self.lines = [
                "try:",
                *done,
                "    __error = None",
                "except BaseException as __caught:",
                "    __error = __caught",
            ]
            self.tail = ["if __error is None:", *went_well, *self.tail]

    def write_step(self, i: Instruction, after: Sequence[Instruction]) -> None:
        if i.op in EXPRESSIONS:
            count, *texts = EXPRESSIONS[i.op]
            taken = self.popn(count)
            self.stack += [self.do(text.format(*taken, arg=i.arg)) for text in texts]
        elif i.op in STATEMENTS:
            count, text = STATEMENTS[i.op]
            self.lines.append(text.format(*self.popn(count), arg=i.arg))
        elif i.op in BRANCHES:
            condition = self.pop()
            pops = bool(after) and after[0].offset == i.offset  # 3.11: JUMP_IF_..._OR_POP
            there, here = (i.arg, self.stack), (i.next_offset, self.stack[: len(self.stack) - pops])
            self.branch(condition, *((there, here) if "TRUE" in i.op else (here, there)))
        else:
            getattr(self, i.op)(i)

    def do(self, text: str) -> str:
        """Compute something, once."""
        name = f"__r{next(self._count)}"
        self.lines.append(f"{name} = {text}")
        return name

    def go_on(self, offset: int, plain: bool = False, indent: str = "") -> None:
        """`return resume(...)`: the rest of the frame from `offset`."""
        self.tail.append(
            f"{indent}return {self.resumption(self.it, offset, self.stack, '__func', plain)}"
        )

    def branch(self, condition: str, yes: tuple[int, list[str]], no: tuple[int, list[str]]) -> None:
        """A two-way `if`: where each side goes on, with what on the stack."""
        if self.handler is not None:
            condition = self.do(f"bool({condition})")
        self.tail.append(f"if {condition}:")
        for (offset, self.stack), indent in ((yes, "    "), (no, "")):
            self.go_on(offset, indent=indent)

    # names of arguments, for the CALL_KW that comes next
    LOAD_CONST = lambda self, i: self.push(i.arg)

    def BINARY_OP(self, i: Instruction) -> None:
        left, right = self.popn(2)
        in_place = i.arg.endswith("=")
        self.push(name := self.do(left if in_place else f"{left} {i.arg} {right}"))
        if in_place:
            self.lines.append(f"{name} {i.arg} {right}")

    def CONTAINS_OP(self, i: Instruction) -> None:
        item, container = self.popn(2)
        self.stack.append(self.do(f"{item} {'not in' if i.arg else 'in'} {container}"))

    def CALL_FUNCTION_EX(self, i: Instruction) -> None:
        kwargs = self.pop() if i.arg else NULL
        keywords = [] if kwargs is NULL else [f"**{kwargs}"]
        self.call_popped([f"*{self.pop()}", *keywords], {})

    def call(self, function: str, /, *args: str, **kwargs: str) -> str:
        return self.do(
            f"{function}({', '.join([*args, *(f'{name}={text}' for name, text in kwargs.items())])})"
        )

    def UNPACK_SEQUENCE(self, i: Instruction) -> None:
        names = [f"__r{next(self._count)}" for _ in range(i.arg)]
        self.lines.append(f"[{', '.join(names)}] = {self.pop()}")
        self.stack.extend(reversed(names))

    def WITH_EXCEPT_START(self, i: Instruction) -> None:
        error = self.stack[-1]
        called = [slot for slot in self.stack[-3 - i.arg : -3] if slot is not NULL]
        self.push(self.call(*called, f"type({error})", error, f"{error}.__traceback__"))

    def FOR_ITER(self, i: Instruction) -> None:
        at, end = self.iterator_at(), self.name_for(NOTHING)
        item = self.do(f"next({self.stack[at]}, {end})")
        self.branch(
            f"{item} is {end}", (i.arg, self.stack[:at]), (i.next_offset, [*self.stack, item])
        )
