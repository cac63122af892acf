"""The symbolic interpreter: CPython's evaluation loop, in a world where tensors have no data.

In:  the code of a frame (or of a call that is followed into), its arguments and cells.
Out: the value it returns; on the way, operations are recorded in `world.builder` and assumptions in `world.guards`.

The values on the stack are ordinary Python objects, except that tensors are fake and what comes from outside is a copy
(`world.py`). One method per canonical instruction (`frames.instructions`), named after it; a subclass may override it.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, `InstructionTranslatorBase`.
"""

import builtins
import contextlib
import importlib.util
import itertools
import operator
import sys
from types import CellType, FunctionType
from typing import Any

import torch

from course_lib import frames
from course_lib.capture import attributes
from course_lib.capture.classes import is_users, isinstance, member_of
from course_lib.capture.graph import name_of
from course_lib.capture.machine import NOTHING, Machine, new_cell
from course_lib.capture.shapes import COMPARISONS, IN_PLACE, OPERATORS, concrete
from course_lib.capture.sources import Imported, Unsupported
from course_lib.capture.tests import AnotherObject
from course_lib.capture.world import MISSING, NULL, Handled
from course_lib.frames import JUMPS, Instruction, newer

BINARY_OPERATORS = OPERATORS | IN_PLACE
ENDS = {*JUMPS, "RAISE_VARARGS", "RETURN_VALUE"}


def pushing(value: Any) -> Any:  # the method of an instruction that pushes one value
    return lambda it, i: it.push(value(it, i))


def jump_if(holds: Any) -> Any:  # the method of an instruction that pops a value and may jump
    return lambda it, i: it.jump(i.arg) if holds(it, it.pop()) else None


class Interpreter(Machine):
    """What each instruction does to the stack, the names and the graph."""

    LOAD_CONST = pushing(lambda it, i: i.arg)
    RETURN_GENERATOR = pushing(lambda it, i: None)
    LOAD_CLOSURE = pushing(lambda it, i: it.locals[i.arg])
    LOAD_BUILD_CLASS = pushing(lambda it, i: builtins.__build_class__)
    LOAD_LOCALS = pushing(lambda it, i: it.names)
    LOAD_FAST_AND_CLEAR = pushing(lambda it, i: it.locals.pop(i.arg, NULL))
    LOAD_ATTR = pushing(lambda it, i: attributes.get(it, it.pop(), i.arg))
    LOAD_SUPER_ATTR = pushing(lambda it, i: attributes.get(it, super(*it.popn(3)[1:]), i.arg[0]))
    IMPORT_FROM = pushing(lambda it, i: attributes.get(it, it.stack[-1], i.arg))
    COMPARE_OP = pushing(lambda it, i: it.operate(COMPARISONS[i.arg], *it.popn(2)))
    UNARY_NEGATIVE = pushing(lambda it, i: it.operate(operator.neg, it.pop()))
    UNARY_POSITIVE = pushing(lambda it, i: it.operate(operator.pos, it.pop()))
    UNARY_INVERT = pushing(lambda it, i: it.operate(operator.invert, it.pop()))
    UNARY_NOT = pushing(lambda it, i: not it.truth(it.pop()))
    TO_BOOL = pushing(lambda it, i: it.decide(it.pop(), it.next))
    GET_ITER = GET_YIELD_FROM_ITER = pushing(lambda it, i: it.iterate(it.pop()))
    GET_LEN = pushing(lambda it, i: it.operate(len, it.stack[-1]))
    CHECK_EXC_MATCH = pushing(lambda it, i: isinstance(it.stack[-2], it.pop()))
    BUILD_LIST = pushing(lambda it, i: it.popn(i.arg))
    BUILD_MAP = pushing(
        lambda it, i: it.native(
            dict, [(concrete(k), v) for k, v in [it.popn(2) for _ in range(i.arg)][::-1]]
        )
    )
    BUILD_SET = pushing(lambda it, i: it.native(set, it.popn(i.arg)))
    LIST_TO_TUPLE = pushing(lambda it, i: tuple(it.pop()))
    BUILD_CONST_KEY_MAP = pushing(lambda it, i: dict(zip(it.pop(), it.popn(i.arg), strict=True)))
    BUILD_SLICE = pushing(lambda it, i: slice(*it.popn(i.arg)))
    BUILD_STRING = pushing(lambda it, i: "".join(it.popn(i.arg)))
    CONVERT_VALUE = pushing(lambda it, i: it.call(getattr(builtins, i.arg), concrete(it.pop())))
    FORMAT_SIMPLE = pushing(lambda it, i: it.call(format, concrete(it.pop())))
    FORMAT_WITH_SPEC = pushing(lambda it, i: it.call(format, *map(concrete, it.popn(2))))
    # a flag that CPython has for `match`
    MATCH_SEQUENCE = pushing(lambda it, i: type(it.stack[-1]).__flags__ & 1 << 5 != 0)
    MATCH_MAPPING = pushing(lambda it, i: type(it.stack[-1]).__flags__ & 1 << 6 != 0)

    POP_TOP = lambda it, i: it.pop()
    STORE_ATTR = lambda it, i: attributes.change(it, it.pop(), i.arg, it.pop())
    DELETE_ATTR = lambda it, i: attributes.change(it, it.pop(), i.arg)
    DELETE_SUBSCR = lambda it, i: it.operate(operator.delitem, it.stack.pop(-2), concrete(it.pop()))
    STORE_DEREF = lambda it, i: setattr(
        it.world.open_cell(it.locals[i.arg]), "cell_contents", it.pop()
    )
    DELETE_FAST = lambda it, i: (it.LOAD_FAST(i), it.pop(), it.locals.pop(i.arg))
    DELETE_DEREF = lambda it, i: delattr(it.world.open_cell(it.locals[i.arg]), "cell_contents")
    MAKE_CELL = lambda it, i: operator.setitem(
        it.locals, i.arg, new_cell(it.locals.pop(i.arg, MISSING))
    )
    LIST_APPEND = lambda it, i: it.stack[-i.arg - 1].append(it.pop())
    SET_ADD = lambda it, i: it.native(it.stack[-i.arg - 1].add, it.pop())
    SET_UPDATE = lambda it, i: it.native(it.stack[-i.arg - 1].update, it.iterate(it.pop()))
    DICT_UPDATE = lambda it, i: (
        it.look_into(it.stack[-1]),
        it.native(it.stack[-i.arg - 1].update, it.pop()),
    )
    MAP_ADD = lambda it, i: it.native(
        operator.setitem, it.stack[-i.arg - 2], concrete(it.stack.pop(-2)), it.pop()
    )
    RETURN_VALUE = lambda it, i: setattr(it, "result", it.pop())
    STORE_NAME = lambda it, i: it.native(operator.setitem, it.names, i.arg, it.pop())
    DELETE_NAME = lambda it, i: it.native(operator.delitem, it.names, i.arg)
    SETUP_ANNOTATIONS = lambda it, i: it.names.setdefault("__annotations__", {})
    LOAD_NAME = lambda it, i: it.push(it.names[i.arg]) if i.arg in it.names else it.LOAD_GLOBAL(i)
    LOAD_FROM_DICT_OR_DEREF = lambda it, i: (
        it.push(names[i.arg]) if i.arg in (names := it.pop()) else it.LOAD_DEREF(i)
    )
    LOAD_FROM_DICT_OR_GLOBALS = lambda it, i: (
        it.push(names[i.arg]) if i.arg in (names := it.pop()) else it.LOAD_GLOBAL(i)
    )
    YIELD_VALUE = lambda it, i: setattr(it, "yielded", it.pop())
    JUMP = lambda it, i: it.jump(i.arg)
    END_SEND = lambda it, i: operator.delitem(it.stack, slice(it.iterator_at(below=1), -1))
    # the generator that runs this code does it (`Machine.generator`)
    STOPITERATION_ERROR = lambda it, i: None

    def LOAD_FAST(self, i: Instruction) -> None:
        if i.arg not in self.locals:
            raise UnboundLocalError(
                f"cannot access local variable '{i.arg}' where it is not associated with a value"
            )
        self.push(self.locals[i.arg])

    def STORE_FAST(self, i: Instruction) -> None:
        if (value := self.pop()) is NULL:  # the name had no value before the comprehension
            self.locals.pop(i.arg, None)
        else:
            self.locals[i.arg] = value

    def LOAD_DEREF(self, i: Instruction) -> None:
        try:
            self.push(self.world.open_cell(self.locals[i.arg]).cell_contents)
        except ValueError:
            free = i.arg in self.code.co_freevars
            said = f"cannot access {'free' if free else 'local'} variable '{i.arg}' where it is not associated with a value"
            raise (
                NameError(f"{said} in enclosing scope", name=i.arg)
                if free
                else UnboundLocalError(said)
            ) from None

    def LOAD_GLOBAL(self, i: Instruction) -> None:
        if newer.is_lazy_import(self.globals, i.arg):
            with torch._C.DisableTorchFunction():  # what the module does is no part of the program
                frames.call(None, newer.import_now, self.globals, i.arg)
        if (value := self.world.read_global(self.globals, i.arg, self.function)) is MISSING:
            raise NameError(f"name '{i.arg}' is not defined", name=i.arg)
        self.push(value)

    def STORE_GLOBAL(self, i: Instruction) -> None:
        if self.world.globals_source(self.globals, self.function) is None:
            raise Unsupported(
                f"stores the global variable '{i.arg}' of a function whose module is not known"
            )
        self.world.stored[id(self.globals), i.arg] = self.globals, i.arg, self.pop()

    def IMPORT_NAME(self, i: Instruction) -> None:
        level, names = self.popn(2)
        package = self.globals.get("__package__") or self.globals.get("__name__", "")
        name = importlib.util.resolve_name("." * level + i.arg, package)
        # which may be another part of torch that is wanted for the first time
        if name.startswith("torch."):
            frames.call(None, __import__, name, None, None, names or ())
        if name not in sys.modules or not all(
            hasattr(sys.modules[name], part) for part in names or ()
        ):
            raise Unsupported(
                f"imports {name}, or a part of it, for the first time",
                "import it at the top of the file",
            )
        name = name if names or level else name.split(".")[0]
        self.push(self.world.wrap(sys.modules[name], Imported(name)))

    def BINARY_OP(self, i: Instruction) -> None:
        left, right = self.popn(2)
        self.push(self.operate(BINARY_OPERATORS[i.arg], left, right))

    def IS_OP(self, i: Instruction) -> None:
        left, right = self.popn(2)
        one, two = self.world.of(left), self.world.of(right)
        if (
            one
            and two
            and one is not two
            and not (self.world.is_static(left) or self.world.is_static(right))
        ):
            self.world.assume(one.source, "identity", AnotherObject(two.source))
        self.push((left is right) != i.arg)

    def CONTAINS_OP(self, i: Instruction) -> None:
        item, container = self.popn(2)
        self.look_into(item, container)
        if isinstance(container, torch.Tensor):
            raise Unsupported("`in` a tensor depends on its data")
        self.push(self.native(operator.contains, container, concrete(item)) != i.arg)

    POP_JUMP_IF_TRUE = jump_if(lambda it, value: it.decide(value, it.next - 1))
    POP_JUMP_IF_FALSE = jump_if(lambda it, value: not it.decide(value, it.next - 1))
    POP_JUMP_IF_NONE = jump_if(lambda it, value: value is None)
    POP_JUMP_IF_NOT_NONE = jump_if(lambda it, value: value is not None)

    def decide(self, value: Any, place: int) -> bool:
        """`bool(value)`, for the jump at `place`. Where one side raises (`assert`), the other is taken; the head asks again."""
        jump = self.program[place]
        sides = {
            jump.op == "POP_JUMP_IF_TRUE": place + 1,
            jump.op == "POP_JUMP_IF_FALSE": self.index_of.get(jump.arg, place),
        }
        for expected, start in sides.items() if len(sides) == 2 else ():
            end = next((i.op for i in self.program[start:] if i.op in ENDS), "")
            if end == "RAISE_VARARGS" and self.world.builder.expect(value, expected):
                return expected
        return self.truth(value)

    def FOR_ITER(self, i: Instruction) -> None:
        at = self.iterator_at()
        self.look_into(self.stack[at])
        item = self.native(next, self.stack[at], NOTHING)
        if item is NOTHING:
            del self.stack[at:]
            self.jump(i.arg)
        else:
            self.push(item)

    def RAISE_VARARGS(self, i: Instruction) -> None:
        error, cause = [*self.popn(i.arg), MISSING, MISSING][:2]
        if error is MISSING and ((error := self.handling) is None or self.world.is_opaque(error)):
            raise Unsupported("raises again an exception from outside")
        error = self.call(error) if isinstance(error, type) else error
        if not isinstance(error, BaseException):
            raise TypeError("exceptions must derive from BaseException")
        self.look_into(error)
        if isinstance(error, KeyboardInterrupt):
            raise Unsupported(f"raises {type(error).__name__}, which would end the capture too")
        if cause is not MISSING:
            error.__cause__ = self.call(cause) if isinstance(cause, type) else cause
        try:
            raise (
                error
                if self.handling is None or self.world.is_opaque(self.handling)
                else self.handling
            )
        except BaseException:
            raise error  # noqa: B904  (so CPython links the two, and ties no ring)

    def RERAISE(self, i: Instruction) -> None:
        self.look_into(self.stack[-1])
        raise self.pop()

    def PUSH_EXC_INFO(self, i: Instruction) -> None:
        error = self.pop()
        self.stack += [Handled(self.handling, error), error]
        self.handling = error

    def POP_EXCEPT(self, i: Instruction) -> None:
        handled = self.pop()
        self.handling = handled.before
        self.stack = [self.handling if value is handled else value for value in self.stack]

    def BEFORE_WITH(self, i: Instruction) -> None:
        manager = self.pop()
        self.look_into(manager)
        self.push(attributes.get(self, manager, "__exit__"))
        self.push(self.call(attributes.get(self, manager, "__enter__")))

    def WITH_EXCEPT_START(self, i: Instruction) -> None:
        exit_method = self.stack[-3 - i.arg : -3]
        error = self.stack[-1]
        called = [slot for slot in exit_method if slot is not NULL]
        self.push(self.call(*called, type(error), error, error.__traceback__))

    def BUILD_INTERPOLATION(self, i: Instruction) -> None:
        conversion, has_format = i.arg
        format_spec = self.pop() if has_format else ""
        value, text = self.popn(2)
        self.push(newer.make_interpolation(value, text, conversion, format_spec))

    def BUILD_TEMPLATE(self, i: Instruction) -> None:
        strings, interpolations = self.popn(2)
        self.push(newer.make_template(strings, interpolations))

    def BUILD_TUPLE(self, i: Instruction) -> None:
        self.push(tuple(self.popn(i.arg)))

    def DICT_MERGE(self, i: Instruction) -> None:
        update = self.pop()
        self.look_into(update)
        merged, function = (
            self.stack[-i.arg],
            next(value for value in self.stack[-i.arg - 3 :] if value is not NULL),
        )
        if not hasattr(type(update), "keys"):
            name = name_of(function, exact=True)
            raise TypeError(newer.NO_MAPPING.format(function=name, type=type(update).__name__))
        more = self.native(dict, update)
        if twice := [key for key in more if key in merged]:
            raise TypeError(
                f"{name_of(function, exact=True)}() got multiple values for keyword argument '{twice[0]}'"
            )
        merged.update(more)

    def UNPACK_SEQUENCE(self, i: Instruction) -> None:
        """One value off, its `i.arg` items on, the first on top."""
        value = self.pop()

        # one item more than is wanted tells that there are too many
        items = list(itertools.islice(self.unpacked(value), i.arg + 1))
        if len(items) > i.arg:
            raise ValueError(newer.too_many_to_unpack(i.arg, value))
        if len(items) < i.arg:
            raise ValueError(f"not enough values to unpack (expected {i.arg}, got {len(items)})")

        self.stack.extend(reversed(items))

    def UNPACK_EX(self, i: Instruction) -> None:
        before, after = i.arg
        if len(values := list(self.unpacked(self.pop()))) < before + after:
            raise ValueError(
                f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
            )
        last = len(values) - after
        self.stack.extend(reversed([*values[:before], values[before:last], *values[last:]]))

    def unpacked(self, value: Any, otherwise: str = "cannot unpack non-iterable {} object") -> Any:
        if not any(hasattr(type(value), method) for method in ("__iter__", "__getitem__")):
            raise TypeError(otherwise.format(attributes.type_of(self, value).__name__))
        iterator = self.iterate(value)
        while (item := self.native(next, iterator, NOTHING)) is not NOTHING:
            yield item

    def LIST_EXTEND(self, i: Instruction) -> None:
        target, value = self.stack[-i.arg - 1], self.pop()
        lengths = [member_of(type(value), name) for name in ("__len__", "__length_hint__")]
        if any(isinstance(length, FunctionType) for length in lengths) and is_users(type(value)):
            self.look_into(value)
            self.native(target.extend, value)  # which asks the object how long it is
        else:
            target.extend(self.unpacked(value, "Value after * must be an iterable, not {}"))

    def BINARY_SUBSCR(self, i: Instruction) -> None:
        container, index = self.popn(2)
        if type(container).__module__ == "typing":  # `Optional[int]`
            return self.push(frames.call(None, operator.getitem, container, index))
        found = self.operate(
            operator.getitem,
            container,
            index if isinstance(container, torch.Tensor) else concrete(index),
        )
        # `list[int]`, `Color["RED"]`
        of_class = isinstance(container, type) and self.world.is_static(found)
        self.push(self.world.wrap(found, None) if of_class else found)

    def STORE_SUBSCR(self, i: Instruction) -> None:
        value, container, index = self.popn(3)
        self.look_into(container)
        self.native(
            operator.setitem,
            container,
            index if isinstance(container, torch.Tensor) else concrete(index),
            value,
        )

    def MAKE_FUNCTION(self, i: Instruction) -> None:
        code = self.pop()
        function = FunctionType(
            code, self.globals, None, None, tuple(CellType() for _ in code.co_freevars)
        )
        self.world.made[id(function)] = function
        self.push(function)

    def SET_FUNCTION_ATTRIBUTE(self, i: Instruction) -> None:
        new, function = self.popn(2)
        if i.arg == "closure":
            # before it gets anything else
            function = FunctionType(function.__code__, self.globals, None, None, new)
            self.world.made[id(function)] = function
        elif i.arg == "annotations":
            function.__annotations__ = dict(zip(new[::2], new[1::2], strict=True))
        else:
            setattr(function, f"__{i.arg}__", new)
        self.push(function)

    def CALL_FUNCTION_EX(self, i: Instruction) -> None:
        kwargs = self.pop() if i.arg else NULL
        kwargs = {} if kwargs is NULL else kwargs
        args = self.pop()
        function = next(value for value in self.stack[-2:] if value is not NULL)
        said = newer.NOT_ITERABLE.format(function=name_of(function, exact=True), type="{}")
        self.call_popped(list(self.unpacked(args, said)), dict(kwargs))

    def SEND(self, i: Instruction) -> None:
        """What is sent or thrown into a `yield from` goes to what that takes its values from. (PEP 380)"""
        value = self.pop()
        at = self.iterator_at()
        receiver = self.stack[at]
        way = (
            "close"
            if isinstance(value, GeneratorExit)
            else "throw"
            if isinstance(value, BaseException)
            else "send"
        )
        try:
            if value is None:
                return self.push(self.native(next, receiver))
            if way == "send":
                return self.push(self.native(newer.method_to_send(receiver), value))
            if way == "throw" and hasattr(receiver, way):
                return self.push(self.native(receiver.throw, value))
            if hasattr(receiver, way):
                self.native(receiver.close)
        except StopIteration as stop:
            self.jump(i.arg)
            if self.program[self.next].op != "END_SEND":  # 3.11: the receiver goes at once
                del self.stack[at:]
            return self.push(stop.value)
        raise value

    def MATCH_KEYS(self, i: Instruction) -> None:
        keys, subject = self.stack[-1], self.stack[-2]
        there = all(key in subject for key in keys)
        self.push(
            tuple(self.operate(operator.getitem, subject, key) for key in keys) if there else None
        )

    def MATCH_CLASS(self, i: Instruction) -> None:
        subject, cls, names = self.popn(3)
        found = None
        if self.call(builtins.isinstance, subject, cls):
            by_position = getattr(cls, "__match_args__", ())[: i.arg]
            # another such flag: of `int`, `list`, ...
            itself = not hasattr(cls, "__match_args__") and cls.__flags__ & 1 << 22
            if i.arg > (n := 1 if itself else len(by_position)):
                raise TypeError(
                    f"{cls.__name__}() accepts {n} positional sub-pattern{'s' * (n != 1)} ({i.arg} given)"
                )
            with contextlib.suppress(AttributeError):
                parts = [attributes.get(self, subject, name) for name in (*by_position, *names)]
                found = (subject, *parts) if itself and i.arg else tuple(parts)
        self.push(found)
