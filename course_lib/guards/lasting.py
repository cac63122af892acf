"""Which guards hold as long as no dictionary changes: those on a module's parameters, buffers, settings and hooks.

A model of 300 modules has thousands of them. `_tensors.c` notes the dictionaries on their paths, and asks whether one of these
has changed, in place of the guards; a tensor, which may change in place, it asks for its looks. Not in Python 3.13, where a
dictionary has no new version when an attribute is stored in its object, nor are watchers told: there each guard is asked.
In PyTorch: `torch/csrc/dynamo/guards.cpp` (dict tags); `guard_nn_modules_using_dict_tags` in `torch/_dynamo/config.py`.
"""

import sys
from collections.abc import Mapping, Sequence

import torch

from course_lib.capture import Guard, SameAs, Source
from course_lib.capture.sources import REGISTRIES

DICTS = *REGISTRIES, "__dict__"
OF_DICTS = "absent", "hooks", "keys"
CONSTANTS = bool, int, float, str, bytes, tuple, type(None), torch.dtype, torch.device, torch.memory_format
"""What does not change: of such a thing all is known once it is known to be there."""


class Lasting:
    """Of `guards`: which of them last, and what to note for them."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.types = {guard.source: test.right for guard in guards if (test := guard.tests[0]).left == "type({})"}
        self.asked = {guard.source for guard in guards if guard.kind in OF_DICTS}

    def lasts(self, guard: Guard) -> bool:
        """Does it hold until a dictionary on its path changes? (Of tensors: is it there until then?)"""
        test, *more = guard.tests
        sources = guard.source, *(test.right.source for test in guard.tests if isinstance(test.right, SameAs))
        if not all(map(self.stays, sources)) or sys.version_info >= (3, 13):
            return False
        if guard.kind in OF_DICTS:
            return self.is_dict(guard.source)
        noted = guard.source.attr("__dict__") in self.asked and not more
        is_type = test.left == "type({})" and (test.right in CONSTANTS or noted)
        return guard.kind == "tensor" or (test.op != "holds" and (test.left == "{}" or is_type))

    def stays(self, path: Source) -> bool:
        """Is one object there until a dictionary changes that is found on the way?"""
        if path.base is None or path.base.module or path.before:
            return False
        inside = self.is_dict(path.base) or self.types.get(path.base) is tuple
        found = path.in_dict or path.after == ".__dict__"  # in the `__dict__` of an object, or that itself
        return found or (path.after[0] == "[" and inside and self.stays(path.base))

    def is_dict(self, path: Source) -> bool:
        return path.after[1:] in DICTS or self.types.get(path) is dict

    def noted(self, found: Mapping[Source, str]) -> tuple[list[Source], list[tuple[str, str]]]:
        """The roots: objects that each call has to look up. And what to note, theirs first: an object and its `__dict__`; another
        dictionary twice. `found`: the names of all looked up."""
        dicts = [path for path in found if self.is_dict(path) and self.stays(path)]
        holders = {path: path.base if path.base and path.after == ".__dict__" else path for path in dicts}
        roots_first = sorted(holders.items(), key=lambda pair: self.stays(pair[1]))
        pairs = [(found.get(holder, holder.expr), found[path]) for path, holder in roots_first]
        return [holder for holder in holders.values() if not self.stays(holder)], pairs
