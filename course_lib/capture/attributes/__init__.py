"""`value.name`, `value.name = x` and `del value.name` in the interpreted world.

    lookup.py     `get`: the ordered list of rules by which an attribute is found
    classes.py    attributes of classes, and descriptors that the user wrote
    tensors.py    attributes of tensors: read and changed
    change.py     `change`: what is stored or deleted

An instance from outside has a copy whose attributes are filled in when they are first read; then
Python itself does the rest (properties, `__getattr__`, methods, slots), and the frame hook hands
whatever Python code that runs to the interpreter.
In PyTorch: `var_getattr` in `torch/_dynamo/variables/` (`TensorVariable`, `NNModuleVariable`,
`UserDefinedObjectVariable`).
"""

from course_lib.capture.attributes.change import change, set_module_attribute
from course_lib.capture.attributes.lookup import get
from course_lib.capture.attributes.tensors import type_of

__all__ = ["change", "get", "set_module_attribute", "type_of"]
