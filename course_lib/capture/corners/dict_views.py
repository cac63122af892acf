"""A view of a dict from outside: `keys()`, `values()` or `items()` that an object keeps, or that is
alive at a break.

In:  the view, and where it was found.
Out: the same view of the dict's stand-in, under the guards of that dict.
In PyTorch: `torch/_dynamo/variables/dicts.py` (`DictViewVariable`), for views that the program
makes itself.
"""

from __future__ import annotations

import collections
import gc
from typing import TYPE_CHECKING, Any

from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import HELPERS, Source
from course_lib.capture.stand_ins.make import OF_TYPE

if TYPE_CHECKING:
    from course_lib.capture.world import World

# One of each kind, to ask for the types of their views
PLAIN: dict[Any, Any] = {}
ORDERED: collections.OrderedDict[Any, Any] = collections.OrderedDict()
VIEW_METHODS: dict[type, str] = {
    type(getattr(made, method)()): method
    for made in (PLAIN, ORDERED)
    for method in ("keys", "values", "items")
}
"""Type of a view → the method that gives one."""


def viewed(view: Any) -> Any:
    """The dict that a view looks at. (`view.mapping` would be a proxy of it.)"""
    return gc.get_referents(view)[0]


def view_of_dict(world: World, view: Any, source: Source) -> Any:
    """The stand-in of a view."""
    mapping = world.wrap(viewed(view), source.inside("viewed"))
    # A dict of which capture knows only that it is there has no view that could be read.
    if world.is_opaque(mapping):
        return GO_ON
    world.assume_type(view, source)
    own_view = getattr(mapping, VIEW_METHODS[type(view)])()
    return world.know(own_view, view, source).stand_in


HELPERS["viewed"] = viewed
OF_TYPE |= dict.fromkeys(VIEW_METHODS, view_of_dict)
