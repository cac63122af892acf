"""Kernels without a GPU: Triton's interpreter computes what a GPU would.

In:  the module `triton`, just imported.
Out: the same; its interpreter mended by the simulator, where it is the interpreter that runs
kernels.
In PyTorch: nothing, for there kernels run on a GPU only.
"""

from typing import Any

from course_lib import simulator
from course_lib.runtime.triton_runner import AFTER_IMPORT


def mend_interpreter(triton: Any) -> None:
    """With a GPU beside it, too: whoever sets TRITON_INTERPRET=1 there gets the library's kernels
    right."""
    if simulator.switch.is_interpreting():
        simulator.mend_triton()


AFTER_IMPORT.append(mend_interpreter)
