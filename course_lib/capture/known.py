"""What capture knows of an object from outside: what stands for it, and where it was found.

In PyTorch: a `VariableTracker` with its `source` (`torch/_dynamo/variables/base.py`).
"""

from dataclasses import dataclass
from typing import Any

from course_lib.capture.sources import Source


@dataclass
class Known:
    """An object of the interpreted world, the `stand_in`, that stands for `real`, found at
    `source`."""

    stand_in: Any
    real: Any
    source: Source

    # For a container that can change: the items that its stand-in held when it was made, as a list
    # or a dict
    items_before: Any = None

    # For an instance or a cell: the attributes that its stand-in was given so far. MISSING: the
    # real one has none of the name
    attributes: dict[str, Any] | None = None

    # An object that capture knows nothing about: it can be passed on, and that is all
    opaque: bool = False
