"""The symbolic interpreter: CPython's evaluation loop, in a world where tensors have no data.

In:  the code of a frame (or of a call that is followed into), its arguments and cells.
Out: the value it returns; on the way, operations are recorded in `world.builder` and assumptions in
     `world.guards`.

The values on the stack are ordinary Python objects, except that tensors are fake and what comes
from outside is a copy (`world.py`). The loop is in `machine.py`; what each instruction does is in
`opcodes/`, one method an instruction.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, `InstructionTranslatorBase`.
"""

from course_lib.capture.opcodes.calls import Calls
from course_lib.capture.opcodes.containers import Containers
from course_lib.capture.opcodes.exceptions import Exceptions
from course_lib.capture.opcodes.flow import Flow
from course_lib.capture.opcodes.generators import Generators
from course_lib.capture.opcodes.names import Names
from course_lib.capture.opcodes.operators import BINARY_OPERATORS, Operators
from course_lib.capture.opcodes.patterns import Patterns

__all__ = ["BINARY_OPERATORS", "Interpreter"]


class Interpreter(Names, Operators, Calls, Containers, Flow, Exceptions, Generators, Patterns):
    """All instructions.

    A subclass that defines one of them again replaces it:
    `cl.Pipeline().replace(interpreter=...)`."""
