"""Names: local variables, cells, global variables, the names of a class body, attributes, imports.

In:  a name (the instruction's argument), and the frame's variables.
Out: the value under that name; reading one from outside leaves a guard (`world.py`,
`attributes.py`).
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`LOAD_FAST`, `LOAD_GLOBAL`, `LOAD_ATTR`,
`IMPORT_NAME`, ...).
"""

import contextlib
import importlib.util
import operator
import sys
from typing import Any

import torch

from course_lib import frames
from course_lib.capture import attributes
from course_lib.capture.assumptions import INSTALLED
from course_lib.capture.classes import MISSING
from course_lib.capture.machine import Machine, new_cell
from course_lib.capture.sources import Imported, Unsupported
from course_lib.capture.world import NULL
from course_lib.frames import Instruction, newer

UNBOUND = "cannot access {kind} variable '{name}' where it is not associated with a value"


class Names(Machine):
    """Instructions that read, bind and delete names."""

    # ---- local variables -------------------------------------------------------------------------

    def LOAD_FAST(self, instruction: Instruction) -> None:
        """Push a local variable; an unbound name raises, as in CPython."""
        name = instruction.arg
        if name not in self.locals:
            raise UnboundLocalError(UNBOUND.format(kind="local", name=name))

        self.push(self.locals[name])

    def LOAD_FAST_AND_CLEAR(self, instruction: Instruction) -> None:
        """Push a local variable, or NULL if it has no value, and unbind it (for an inlined
        comprehension)."""
        self.push(self.locals.pop(instruction.arg, NULL))

    def STORE_FAST(self, instruction: Instruction) -> None:
        """Bind a local variable."""
        value = self.pop()

        # NULL: the name had no value before the comprehension
        if value is NULL:
            self.locals.pop(instruction.arg, None)
        else:
            self.locals[instruction.arg] = value

    def DELETE_FAST(self, instruction: Instruction) -> None:
        """`del name`: an unbound name raises, as in CPython."""
        self.LOAD_FAST(instruction)
        self.pop()
        self.locals.pop(instruction.arg)

    # ---- cells: variables shared with functions inside or around ---------------------------------

    def MAKE_CELL(self, instruction: Instruction) -> None:
        """Put a cell around a local variable, bound or not."""
        value = self.locals.pop(instruction.arg, MISSING)
        self.locals[instruction.arg] = new_cell(value)

    def LOAD_CLOSURE(self, instruction: Instruction) -> None:
        """Push the cell itself, for a function that is being made."""
        self.push(self.locals[instruction.arg])

    def LOAD_DEREF(self, instruction: Instruction) -> None:
        """Push what a cell holds; an empty one raises, as in CPython."""
        name = instruction.arg
        try:
            self.push(self.world.open_cell(self.locals[name]).cell_contents)
        except ValueError:
            raise self.unbound_cell(name) from None

    def unbound_cell(self, name: str) -> NameError:
        """What CPython raises where a cell is empty."""
        if name in self.code.co_freevars:
            message = f"{UNBOUND.format(kind='free', name=name)} in enclosing scope"
            return NameError(message, name=name)
        return UnboundLocalError(UNBOUND.format(kind="local", name=name))

    def STORE_DEREF(self, instruction: Instruction) -> None:
        """Put a value into a cell. (One from outside has a stand-in; the head writes to the real
        one.)"""
        cell = self.world.open_cell(self.locals[instruction.arg])
        cell.cell_contents = self.pop()

    def DELETE_DEREF(self, instruction: Instruction) -> None:
        """Empty a cell."""
        cell = self.world.open_cell(self.locals[instruction.arg])
        del cell.cell_contents

    # ---- global variables ------------------------------------------------------------------------

    def LOAD_GLOBAL(self, instruction: Instruction) -> None:
        """Push a global variable or a builtin."""
        name = instruction.arg
        if newer.is_lazy_import(self.globals, name):
            # The code of the imported module is no part of the program: nobody records what it does
            # with tensors, and its frames run as they are.
            with torch._C.DisableTorchFunction():
                frames.call(None, newer.import_now, self.globals, name)

        value = self.world.read_global(self.globals, name, self.function)
        if value is MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        self.push(value)

    def STORE_GLOBAL(self, instruction: Instruction) -> None:
        """Note what a global variable is to become: the head binds it."""
        name = instruction.arg
        if self.world.globals_source(self.globals, self.function) is None:
            raise Unsupported(
                f"stores the global variable '{name}' of a function whose module is not known"
            )
        self.world.store(self.globals, name, self.pop())

    # ---- the names of a class body ---------------------------------------------------------------

    def LOAD_LOCALS(self, instruction: Instruction) -> None:
        """Push the names of the class body themselves."""
        self.push(self.names)

    def LOAD_NAME(self, instruction: Instruction) -> None:
        """Push a name of the class body, or else a global variable."""
        if instruction.arg in self.names:
            self.push(self.names[instruction.arg])
        else:
            self.LOAD_GLOBAL(instruction)

    def LOAD_FROM_DICT_OR_DEREF(self, instruction: Instruction) -> None:
        """Pop the names of a class body; push one of them, or else what a cell holds."""
        names = self.pop()
        if instruction.arg in names:
            self.push(names[instruction.arg])
        else:
            self.LOAD_DEREF(instruction)

    def LOAD_FROM_DICT_OR_GLOBALS(self, instruction: Instruction) -> None:
        """Pop the names of a class body; push one of them, or else a global variable."""
        names = self.pop()
        if instruction.arg in names:
            self.push(names[instruction.arg])
        else:
            self.LOAD_GLOBAL(instruction)

    # The metaclass may have given a dict of the user's own class, hence `native`.

    def STORE_NAME(self, instruction: Instruction) -> None:
        """Bind a name of the class body."""
        self.native(operator.setitem, self.names, instruction.arg, self.pop())

    def DELETE_NAME(self, instruction: Instruction) -> None:
        """Delete a name of the class body."""
        self.native(operator.delitem, self.names, instruction.arg)

    def SETUP_ANNOTATIONS(self, instruction: Instruction) -> None:
        """See that the class body has a dict for annotations."""
        self.names.setdefault("__annotations__", {})

    # ---- attributes ------------------------------------------------------------------------------

    def LOAD_ATTR(self, instruction: Instruction) -> None:
        """`value.name`"""
        self.push(attributes.get(self, self.pop(), instruction.arg))

    def LOAD_SUPER_ATTR(self, instruction: Instruction) -> None:
        """`super().name`: the class and the object lie above the global name `super`.

        The argument: the name, and whether the program gave `super` its two arguments."""
        _, cls, value = self.popn(3)
        self.push(attributes.get(self, super(cls, value), instruction.arg[0]))

    def STORE_ATTR(self, instruction: Instruction) -> None:
        """`value.name = new`"""
        value = self.pop()
        attributes.change(self, value, instruction.arg, self.pop())

    def DELETE_ATTR(self, instruction: Instruction) -> None:
        """`del value.name`"""
        attributes.change(self, self.pop(), instruction.arg)

    # ---- imports ---------------------------------------------------------------------------------

    def IMPORT_NAME(self, instruction: Instruction) -> None:
        """`import name`, inside a function: of a module that is loaded already, for a first import
        runs code."""
        level, parts = self.popn(2)
        package = self.globals.get("__package__") or self.globals.get("__name__", "")
        name = importlib.util.resolve_name("." * level + instruction.arg, package)

        # torch, or an installed library, may load a part of its own late. That has no effect on the
        # program.
        is_own_part = name.split(".")[0] == package.split(".")[0]
        if name.startswith("torch.") or (is_own_part and INSTALLED.match(self.code.co_filename)):
            with contextlib.suppress(ImportError):
                frames.call(None, __import__, name, None, None, parts or ())
        if not is_imported(name, parts or ()):
            raise Unsupported(
                f"imports {name}, or a part of it, for the first time",
                "import it at the top of the file",
            )

        # `import a.b` binds `a`
        if not parts and not level:
            name = name.split(".")[0]
        self.push(self.world.wrap(sys.modules[name], Imported(name)))

    def IMPORT_FROM(self, instruction: Instruction) -> None:
        """`from module import name`: the module stays on the stack."""
        self.push(attributes.get(self, self.stack[-1], instruction.arg))


def is_imported(name: str, parts: Any) -> bool:
    """Is the module loaded, and has it these parts?"""
    return name in sys.modules and all(hasattr(sys.modules[name], part) for part in parts)
