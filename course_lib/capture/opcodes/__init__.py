"""What each instruction does: one method an instruction, named after it, one class a family.

    stack.py         constants, and moves on the stack itself
    names.py         variables (local, in cells, global), attributes, imports
    operators.py     arithmetic, comparison, subscripts, texts
    containers.py    lists, tuples, dicts, sets: built, filled, unpacked
    flow.py          jumps, branches, loops, return
    calls.py         calls; functions and classes that the program makes
    exceptions.py    raise, except, with
    generators.py    yield and `yield from`
    patterns.py      match statements

`interpreter.Interpreter` inherits all of them, so the class is the table of instructions: the
machine looks the method of an instruction up by its name, and a learner's subclass replaces one by
defining it again.

The names are those of `frames.instructions`: one instruction set, whichever CPython compiled the
code.
In PyTorch: `torch/_dynamo/symbolic_convert.py`, the methods of `InstructionTranslatorBase`.
"""
