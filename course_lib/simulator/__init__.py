"""A simulated GPU: Triton's kernels on a machine without one, with the values, the refusals and the
faults of a real one.

In:  kernels of `@triton.jit`, of this library or of a learner.
Out: what an H100 would give; or the compiler's own refusal; or a `GPUFault` that names line,
program, lane and `tensor[index]`.
In PyTorch: nothing. Triton's own interpreter (`TRITON_INTERPRET=1`) is mended; triton-viz's
sanitizer is near (docs/design/simulator.md).

The spine, front to back: `switch.py` (when), `launching.py` (a launch), `rewriting.py` and
`language.py` (Python's words), `judging.py` (refusals), `watching.py` and `races.py` (faults),
`formats.py` (numbers). Its switches are in `settings.py`, its errors in `refused.py`. What is
mended in Triton's interpreter, and for which of its versions, is the table in `mends/`.
"""

from importlib import import_module
from typing import Any

from course_lib.simulator.refused import GPUFault, NotSimulated
from course_lib.simulator.settings import Settings, settings, using
from course_lib.simulator.switch import has_gpu, mend_triton, simulate_gpu, wait_for_triton


def faults_of_last_launch() -> list[str]:
    """The sentences that the last launch left, in `using(collect=True)`."""
    import_module("triton")  # first: it mends itself by the files of this room
    from course_lib.simulator import launching

    return launching.sentences_of_last_launch


def never_written(tensor: Any) -> Any:
    """The same tensor, marked: whoever reads an element of it before a kernel wrote it is told.

    For `torch.empty`."""
    import weakref

    import numpy as np

    import_module("triton")  # first: it mends itself by the files of this room
    from course_lib.simulator import watching

    region = watching.Region("", tensor)
    elements = (region.end - region.base) // tensor.element_size()
    watching.unwritten_tensors[region.base] = (weakref.ref(tensor), np.ones(elements, bool))
    return tensor
