"""The value stack, and the instructions that only move what lies on it.

In:  values: of the interpreted program here, texts of expressions where a head is written
     (`breaks.py`).
Out: the same values, in another order.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, `InstructionTranslatorBase` (`push`, `pop`, `popn`,
`COPY`, `SWAP`).
"""

from typing import Any

from course_lib.capture.world import NULL
from course_lib.frames import Instruction


class Stack:
    """A value stack. What a call is, each subclass says for itself (`call_function`)."""

    stack: list[Any]

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def popn(self, count: int) -> list[Any]:
        """The top `count` values, deepest first."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def iterator_at(self, below: int = 0) -> int:
        """Where an iterator is on the stack: the topmost slot under the `below` topmost that is not
        NULL."""
        at = len(self.stack) - 1 - below
        while self.stack[at] is NULL:
            at -= 1
        return at

    def call_popped(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Call what lies in the top two slots, and push what it gives.

        The slots are NULL and a callable, in either order, or a callable and its first argument.
        """
        slots = [slot for slot in self.popn(2) if slot is not NULL]
        function, *first = slots
        self.push(self.call_function(function, [*first, *args], kwargs))

    def call_function(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What `function(*args, **kwargs)` gives."""
        raise NotImplementedError

    # ---- instructions ----------------------------------------------------------------------------

    def LOAD_CONST(self, instruction: Instruction) -> None:
        """Push a constant."""
        self.push(instruction.arg)

    def POP_TOP(self, instruction: Instruction) -> None:
        """Drop the topmost value."""
        self.pop()

    def PUSH_NULL(self, instruction: Instruction) -> None:
        """The empty slot beside a callable."""
        self.push(NULL)

    def COPY(self, instruction: Instruction) -> None:
        """Push the value that lies `arg` deep once more (1: the topmost)."""
        self.push(self.stack[-instruction.arg])

    def SWAP(self, instruction: Instruction) -> None:
        """Exchange the topmost value with the one that lies `arg` deep."""
        depth = instruction.arg
        self.stack[-depth], self.stack[-1] = self.stack[-1], self.stack[-depth]

    def CALL(self, instruction: Instruction) -> None:
        """`f(a, b)`: `arg` arguments above the callable."""
        self.call_popped(self.popn(instruction.arg), {})

    def CALL_KW(self, instruction: Instruction) -> None:
        """`f(a, key=b)`: as CALL, with the names of the last arguments on top."""
        names, args = self.pop(), self.popn(instruction.arg)
        split = len(args) - len(names)
        self.call_popped(args[:split], dict(zip(names, args[split:], strict=True)))
