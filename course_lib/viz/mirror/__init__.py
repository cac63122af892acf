"""`cl.mirror`: one call through both compilers, side by side.

`front.py` compares graphs, breaks and guards; `back.py` kernels, bytes moved and times, which
`timing.py` measures.
"""

from course_lib.viz.mirror.back import ablation
from course_lib.viz.mirror.front import course, mirror

__all__ = ["ablation", "course", "mirror"]
