"""Control flow: jumps, branches, loops, and the end of a call.

In:  a value that decides, and the offset to go to.
Out: another place in the program. Capture follows one path: a branch is decided while capturing,
and guarded.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`generic_jump`, `FOR_ITER`, `RETURN_VALUE`).
"""

from typing import Any

from course_lib.capture.machine import NOTHING, Machine
from course_lib.frames import JUMPS, Instruction

# Where a straight piece of code ends
ENDS = {*JUMPS, "RAISE_VARARGS", "RETURN_VALUE"}


class Flow(Machine):
    """Instructions that say what runs next."""

    def JUMP(self, instruction: Instruction) -> None:
        """Go to the offset."""
        self.jump(instruction.arg)

    def POP_JUMP_IF_TRUE(self, instruction: Instruction) -> None:
        """Go to the offset if the topmost value is true."""
        if self.decide(self.pop(), self.next - 1):
            self.jump(instruction.arg)

    def POP_JUMP_IF_FALSE(self, instruction: Instruction) -> None:
        """Go to the offset if the topmost value is false."""
        if not self.decide(self.pop(), self.next - 1):
            self.jump(instruction.arg)

    def POP_JUMP_IF_NONE(self, instruction: Instruction) -> None:
        """Go to the offset if the topmost value is None."""
        if self.pop() is None:
            self.jump(instruction.arg)

    def POP_JUMP_IF_NOT_NONE(self, instruction: Instruction) -> None:
        """Go to the offset if the topmost value is not None."""
        if self.pop() is not None:
            self.jump(instruction.arg)

    def TO_BOOL(self, instruction: Instruction) -> None:
        """`bool(value)`, for the jump that comes next."""
        self.push(self.decide(self.pop(), self.next))

    def decide(self, value: Any, place: int) -> bool:
        """`bool(value)`, for the jump at `place`.

        The truth of a tensor is not known before the graph runs. But where one side of the branch
        only raises, as in `assert`, capture goes on with the other side. The graph checks the
        tensor at each call (`expect`), and if the check fails, eager runs the frame and raises.
        """
        for expected, start in self.sides_of(place).items():
            end = next((i.op for i in self.program[start:] if i.op in ENDS), "")
            if end == "RAISE_VARARGS" and self.world.builder.expect(value, expected):
                return expected
        return self.truth(value)

    def sides_of(self, place: int) -> dict[bool, int]:
        """The two sides of a branch: the truth with which a side is *not* taken → where that side
        begins."""
        jump = self.program[place]
        if jump.op not in ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE"):
            return {}

        jumps_if = jump.op == "POP_JUMP_IF_TRUE"
        target = self.index_of.get(jump.arg, place)
        return {jumps_if: place + 1, not jumps_if: target}

    def GET_ITER(self, instruction: Instruction) -> None:
        """`iter(value)`"""
        self.push(self.iterate(self.pop()))

    def FOR_ITER(self, instruction: Instruction) -> None:
        """Push the next item; at the end pop the iterator and leave the loop.

        So a loop is unrolled."""
        at = self.iterator_at()
        self.look_into(self.stack[at])

        item = self.native(next, self.stack[at], NOTHING)
        if item is NOTHING:
            del self.stack[at:]
            self.jump(instruction.arg)
        else:
            self.push(item)

    def RETURN_VALUE(self, instruction: Instruction) -> None:
        """The topmost value is the result: the machine stops."""
        self.result = self.pop()
