"""The symbolic interpreter: CPython's evaluation loop, on `Value`s instead of objects.

In:  the code of a frame (or of a call that is followed into) and its arguments as values.
Out: the value it returns; on the way, operations are recorded in `context.builder` and assumptions in `context.guards`.

One method per canonical instruction (`frames.instructions`), named after it, so that the class reads like CPython's
`bytecodes.c`. To change how one instruction is understood, subclass and override its method.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, `InstructionTranslatorBase`.
"""

from __future__ import annotations

import builtins
import operator
from types import CodeType
from typing import Any

from course_lib import events
from course_lib.capture import attributes, calls, containers
from course_lib.capture.context import Context
from course_lib.capture.sources import Global, Location, Source
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import (
    NULL,
    Cell,
    Constant,
    Dict,
    Function,
    Iterator,
    Sequence,
    Value,
)
from course_lib.frames import Instruction, instructions

BINARY_OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv, "//=": operator.ifloordiv,
    "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul, "&=": operator.iand, "|=": operator.ior,
    "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
}  # fmt: skip
COMPARISONS = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Interpreter:
    """Runs one code object. `source` is where a function with these globals is found (None: trusted, needs no
    guards)."""

    def __init__(
        self,
        context: Context,
        code: CodeType,
        globals_: dict[str, Any],
        locals_: dict[str, Value],
        cells: dict[str, Cell],
        source: Source | None,
        depth: int = 0,
    ) -> None:
        self.context = context
        self.code = code
        self.globals = globals_
        self.locals = locals_
        self.cells = cells
        self.source = source
        self.depth = depth
        self.stack: list[Value] = []
        self.program = instructions(code)
        self.index_of: dict[int, int] = {}
        for index, instruction in enumerate(self.program):
            self.index_of.setdefault(instruction.offset, index)
        self.next = 0
        self.result: Value | None = None

    def run(self) -> Value:
        """Interpret from the first instruction to a return."""
        self.context.stack.append(Location(self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname))
        while self.result is None:
            instruction = self.program[self.next]
            self.next += 1
            self.step(instruction)
        self.context.stack.pop()
        return self.result

    def step(self, instruction: Instruction) -> None:
        """Run one instruction; whatever cannot be followed is told with its place."""
        self.context.stack[-1] = self.location(instruction)
        self.context.builder.location = self.context.user_location()
        before = tuple(map(str, self.stack)) if events.listening() else ()
        self.context.builder.last_node = None
        method = getattr(self, instruction.op, None)
        try:
            if method is None:
                raise Unsupported(f"the instruction {instruction.op} is not interpreted")
            method(instruction)
        except Unsupported as problem:
            if problem.location is None:
                problem.location, problem.stack = self.context.stack[-1], tuple(self.context.stack)
                problem.instruction, problem.offset = str(instruction), instruction.offset
            raise
        if events.listening():
            self.tell(instruction, before)

    def tell(self, instruction: Instruction, before: tuple[str, ...]) -> None:
        here, node = self.context.stack[-1], self.context.builder.last_node
        arg = "" if instruction.arg is None else str(instruction.arg)
        after = tuple(map(str, self.stack)) if self.result is None else (str(self.result),)
        events.emit(
            events.InstructionRun(
                instruction.offset, instruction.op, arg, self.code.co_qualname, here.filename, here.line,
                self.depth, before, after, node.name if node else "",
            )
        )  # fmt: skip

    def location(self, instruction: Instruction) -> Location:
        at = instruction.positions
        line = instruction.line or self.code.co_firstlineno
        column, end = (-1, -1) if at is None or at.col_offset is None else (at.col_offset, at.end_col_offset or -1)
        if at is not None and at.end_lineno != at.lineno:
            end = 10**6
        return Location(self.code.co_filename, line, self.code.co_qualname, column, end)

    # ---- the stack --------------------------------------------------------------------------------------------------

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def popn(self, count: int) -> list[Value]:
        """The top `count` values, deepest first."""
        if count == 0:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def jump(self, offset: int) -> None:
        self.next = self.index_of[offset]

    def NOP(self, i: Instruction) -> None:
        pass

    def POP_TOP(self, i: Instruction) -> None:
        self.pop()

    def PUSH_NULL(self, i: Instruction) -> None:
        self.push(NULL)

    def COPY(self, i: Instruction) -> None:
        self.push(self.stack[-i.arg])

    def SWAP(self, i: Instruction) -> None:
        self.stack[-i.arg], self.stack[-1] = self.stack[-1], self.stack[-i.arg]

    # ---- names ------------------------------------------------------------------------------------------------------

    def LOAD_CONST(self, i: Instruction) -> None:
        self.push(Constant(i.arg))

    def LOAD_FAST(self, i: Instruction) -> None:
        if i.arg not in self.locals:
            raise Unsupported(f"local variable '{i.arg}' is used before it has a value")
        self.push(self.locals[i.arg])

    def LOAD_FAST_AND_CLEAR(self, i: Instruction) -> None:
        """Around an inlined comprehension: put the name's value (or its cell) aside. `STORE_FAST` puts it back."""
        self.push(self.cells.pop(i.arg) if i.arg in self.cells else self.locals.pop(i.arg, NULL))

    def MAKE_CELL(self, i: Instruction) -> None:
        self.cells[i.arg] = Cell(self.locals.pop(i.arg, None))

    def STORE_FAST(self, i: Instruction) -> None:
        value = self.pop()
        if value is NULL:  # the name had no value before the comprehension
            self.locals.pop(i.arg, None)
            self.cells.pop(i.arg, None)
        elif isinstance(value, Cell):
            self.cells[i.arg] = value
        else:
            self.locals[i.arg] = value

    def DELETE_FAST(self, i: Instruction) -> None:
        if self.locals.pop(i.arg, None) is None:
            raise Unsupported(f"local variable '{i.arg}' is deleted before it has a value")

    def LOAD_CLOSURE(self, i: Instruction) -> None:
        self.push(self.cells[i.arg])

    def LOAD_DEREF(self, i: Instruction) -> None:
        content = self.context.content(self.cells[i.arg])
        if content is None:
            raise Unsupported(f"variable '{i.arg}' of an enclosing function has no value yet")
        self.push(content)

    def STORE_DEREF(self, i: Instruction) -> None:
        if i.arg not in self.code.co_cellvars:
            raise Unsupported(
                f"assigns to '{i.arg}' of an enclosing function", "return the new value instead of using nonlocal"
            )
        self.cells[i.arg].content = self.pop()

    def LOAD_GLOBAL(self, i: Instruction) -> None:
        if i.arg in self.globals:
            obj = self.globals[i.arg]
            source = self.source and Global(i.arg, base=self.source)
            self.push(self.context.wrap(obj, source) if source else self.context.wrap_static(obj))
        elif hasattr(builtins, i.arg):
            self.push(self.context.wrap_static(getattr(builtins, i.arg)))
        else:
            raise Unsupported(f"the name '{i.arg}' is not defined")

    def LOAD_ATTR(self, i: Instruction) -> None:
        self.push(attributes.get(self, self.pop(), i.arg))

    def STORE_ATTR(self, i: Instruction) -> None:
        raise Unsupported(
            f"assigns to the attribute '{i.arg}', which is visible outside the function",
            "return the new value and let the caller store it",
        )

    def LOAD_SUPER_ATTR(self, i: Instruction) -> None:
        _, cls, self_ = self.popn(3)
        self.push(attributes.get_super(self, cls, self_, i.arg[0]))

    def LOAD_ASSERTION_ERROR(self, i: Instruction) -> None:
        self.push(self.context.wrap_static(AssertionError))

    # ---- operators --------------------------------------------------------------------------------------------------

    def BINARY_OP(self, i: Instruction) -> None:
        left, right = self.popn(2)
        self.push(containers.operate(self, BINARY_OPERATORS[i.arg], [left, right], i.arg))

    def COMPARE_OP(self, i: Instruction) -> None:
        left, right = self.popn(2)
        self.push(containers.operate(self, COMPARISONS[i.arg], [left, right], i.arg))

    def UNARY_NEGATIVE(self, i: Instruction) -> None:
        self.push(containers.operate(self, operator.neg, [self.pop()], "-"))

    def UNARY_POSITIVE(self, i: Instruction) -> None:
        self.push(containers.operate(self, operator.pos, [self.pop()], "+"))

    def UNARY_INVERT(self, i: Instruction) -> None:
        self.push(containers.operate(self, operator.invert, [self.pop()], "~"))

    def UNARY_NOT(self, i: Instruction) -> None:
        self.push(Constant(not containers.truth(self.pop())))

    def TO_BOOL(self, i: Instruction) -> None:
        self.push(Constant(containers.truth(self.pop())))

    def IS_OP(self, i: Instruction) -> None:
        left, right = self.popn(2)
        self.push(Constant(containers.same_object(left, right) != i.arg))

    def CONTAINS_OP(self, i: Instruction) -> None:
        item, container = self.popn(2)
        self.push(Constant(containers.contains(container, item) != i.arg))

    # ---- jumps: decided now, because capture follows one path -------------------------------------------------------

    def JUMP(self, i: Instruction) -> None:
        self.jump(i.arg)

    def POP_JUMP_IF_TRUE(self, i: Instruction) -> None:
        if containers.truth(self.pop()):
            self.jump(i.arg)

    def POP_JUMP_IF_FALSE(self, i: Instruction) -> None:
        if not containers.truth(self.pop()):
            self.jump(i.arg)

    def POP_JUMP_IF_NONE(self, i: Instruction) -> None:
        if containers.is_none(self.pop()):
            self.jump(i.arg)

    def POP_JUMP_IF_NOT_NONE(self, i: Instruction) -> None:
        if not containers.is_none(self.pop()):
            self.jump(i.arg)

    def JUMP_IF_TRUE_OR_POP(self, i: Instruction) -> None:
        if containers.truth(self.stack[-1]):
            self.jump(i.arg)
        else:
            self.pop()

    def JUMP_IF_FALSE_OR_POP(self, i: Instruction) -> None:
        if containers.truth(self.stack[-1]):
            self.pop()
        else:
            self.jump(i.arg)

    def RETURN_VALUE(self, i: Instruction) -> None:
        self.result = self.pop()

    def RAISE_VARARGS(self, i: Instruction) -> None:
        raise Unsupported("an exception is raised", "the frame runs in eager, so that the exception is the real one")

    # ---- loops ------------------------------------------------------------------------------------------------------

    def GET_ITER(self, i: Instruction) -> None:
        self.push(containers.iterate(self, self.pop()))

    def FOR_ITER(self, i: Instruction) -> None:
        iterator = self.stack[-1]
        if not isinstance(iterator, Iterator):
            raise Unsupported(f"a loop over {iterator}, whose items are not known while capturing")
        if iterator.position < len(iterator.items):
            self.push(iterator.items[iterator.position])
            iterator.position += 1
        else:
            self.pop()
            self.jump(i.arg)

    # ---- containers -------------------------------------------------------------------------------------------------

    def BUILD_TUPLE(self, i: Instruction) -> None:
        self.push(Sequence(tuple, self.popn(i.arg)))

    def BUILD_LIST(self, i: Instruction) -> None:
        self.push(Sequence(list, self.popn(i.arg)))

    def BUILD_MAP(self, i: Instruction) -> None:
        values = self.popn(2 * i.arg)
        self.push(Dict({containers.key(k): v for k, v in zip(values[::2], values[1::2], strict=True)}))

    def BUILD_CONST_KEY_MAP(self, i: Instruction) -> None:
        keys = containers.key(self.pop())
        self.push(Dict(dict(zip(keys, self.popn(i.arg), strict=True))))

    def BUILD_SLICE(self, i: Instruction) -> None:
        self.push(calls.call(self, self.context.wrap_static(slice), self.popn(i.arg), {}))

    def BUILD_STRING(self, i: Instruction) -> None:
        self.push(Constant("".join(containers.constant(part) for part in self.popn(i.arg))))

    def CONVERT_VALUE(self, i: Instruction) -> None:
        self.push(calls.call(self, self.context.wrap_static(getattr(builtins, i.arg)), [self.pop()], {}))

    def FORMAT_SIMPLE(self, i: Instruction) -> None:
        self.push(Constant(format(containers.constant(self.pop()))))

    def FORMAT_WITH_SPEC(self, i: Instruction) -> None:
        value, spec = self.popn(2)
        self.push(Constant(format(containers.constant(value), containers.constant(spec))))

    def LIST_APPEND(self, i: Instruction) -> None:
        value = self.pop()
        containers.own(self.stack[-i.arg], Sequence).items.append(value)

    def MAP_ADD(self, i: Instruction) -> None:
        key, value = self.popn(2)
        containers.own(self.stack[-i.arg], Dict).items[containers.key(key)] = value

    def LIST_EXTEND(self, i: Instruction) -> None:
        values = containers.items(self, self.pop())
        containers.own(self.stack[-i.arg], Sequence).items.extend(values)

    def DICT_UPDATE(self, i: Instruction) -> None:
        update = self.pop()
        if not isinstance(update, Dict):
            raise Unsupported(f"a dict is updated with {update}")
        containers.own(self.stack[-i.arg], Dict).items.update(update.items)

    DICT_MERGE = DICT_UPDATE

    def CALL_INTRINSIC_1(self, i: Instruction) -> None:
        if i.arg != "LIST_TO_TUPLE":
            raise Unsupported(f"the instruction CALL_INTRINSIC_1 {i.arg} is not interpreted")
        self.push(Sequence(tuple, containers.items(self, self.pop())))

    def UNPACK_SEQUENCE(self, i: Instruction) -> None:
        values = containers.items(self, self.pop())
        if len(values) != i.arg:
            raise Unsupported(f"{len(values)} values are unpacked into {i.arg} names")
        self.stack.extend(reversed(values))

    def UNPACK_EX(self, i: Instruction) -> None:
        before, after = i.arg
        values = containers.items(self, self.pop())
        if len(values) < before + after:
            raise Unsupported(f"{len(values)} values are too few to unpack")
        tail = values[len(values) - after :]
        middle = Sequence(list, values[before : len(values) - after])
        self.stack.extend(reversed([*values[:before], middle, *tail]))

    def BINARY_SUBSCR(self, i: Instruction) -> None:
        container, index = self.popn(2)
        self.push(containers.get_item(self, container, index))

    def BINARY_SLICE(self, i: Instruction) -> None:
        container, start, stop = self.popn(3)
        index = calls.call(self, self.context.wrap_static(slice), [start, stop], {})
        self.push(containers.get_item(self, container, index))

    def STORE_SUBSCR(self, i: Instruction) -> None:
        value, container, index = self.popn(3)
        containers.set_item(self, container, index, value)

    def STORE_SLICE(self, i: Instruction) -> None:
        value, container, start, stop = self.popn(4)
        index = calls.call(self, self.context.wrap_static(slice), [start, stop], {})
        containers.set_item(self, container, index, value)

    # ---- functions --------------------------------------------------------------------------------------------------

    def MAKE_FUNCTION(self, i: Instruction) -> None:
        code = containers.constant(self.pop())
        function = Function(code, self.globals, home=self.source)
        for kind in reversed(i.arg or ()):
            self.set_function_attribute(function, kind, self.pop())
        self.push(function)

    def SET_FUNCTION_ATTRIBUTE(self, i: Instruction) -> None:
        value, function = self.popn(2)
        assert isinstance(function, Function)
        self.set_function_attribute(function, i.arg, value)
        self.push(function)

    def set_function_attribute(self, function: Function, kind: str, value: Value) -> None:
        if kind == "closure":
            assert isinstance(value, Sequence)
            function.cells = tuple(cell for cell in value.items if isinstance(cell, Cell))
        elif kind == "defaults":
            function.defaults = tuple(containers.items(self, value))
        elif kind == "kwdefaults":
            assert isinstance(value, Dict)
            function.kwdefaults = dict(value.items)

    def CALL(self, i: Instruction) -> None:
        args = self.popn(i.arg)
        self.call_popped(args, {})

    def CALL_KW(self, i: Instruction) -> None:
        names = containers.constant(self.pop())
        args = self.popn(i.arg)
        split = len(args) - len(names)
        self.call_popped(args[:split], dict(zip(names, args[split:], strict=True)))

    def call_popped(self, args: list[Value], kwargs: dict[str, Value]) -> None:
        """The two slots under the arguments are NULL and a callable in either order, or a callable and its first
        argument."""
        first, second = self.popn(2)
        if first is NULL:
            first, second = second, first
        if second is not NULL:
            args = [second, *args]
        self.push(calls.call(self, first, args, kwargs))

    def CALL_FUNCTION_EX(self, i: Instruction) -> None:
        kwargs = self.pop() if i.arg else Dict({})
        args = containers.items(self, self.pop())
        if not isinstance(kwargs, Dict):
            raise Unsupported(f"the keyword arguments {kwargs} are not a plain dict")
        self.call_popped(args, {str(k): v for k, v in kwargs.items.items()})

    def inline(self, function: Function, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Follow a call: interpret the callee's code with the same graph and guards."""
        locals_, cells = calls.bind(self, function, args, kwargs)
        home = function.source or function.home
        callee = type(self)(self.context, function.code, function.globals, locals_, cells, home, self.depth + 1)
        return callee.run()
