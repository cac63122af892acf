"""Special cases of the runtime: each module adds to the tables of the spine, which knows none of
them.

`interpreter.py`: what Triton's interpreter lacks. A reader of lessons 09 and 11 may skip this
folder.
"""

from course_lib.runtime.corners import interpreter

__all__ = ["interpreter"]
