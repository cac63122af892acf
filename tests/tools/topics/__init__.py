"""Programs by topic, in the manner of the suites that torch.compile itself is held to: errors, warnings, objects, ...

In:  a file for each topic, whose small functions register themselves with makers of arguments.
Out: `PROGRAMS`. `python tests/tools/topics` runs them beside eager and says in what ours differs; `--torch` writes the number of graphs
that torch.compile makes into `graphs.json`. `tests/03_graph_breaks/test_48_topics.py` holds them.
"""

import importlib

# Before the programs: some import parts of torch that import Triton, and course_lib chooses Triton's interpreter.
import course_lib  # noqa: F401

# isort: split
from topics.kit import PROGRAMS

__all__ = ["PROGRAMS", "TOPICS"]

TOPICS = ("errors", "warned", "identity", "in_place", "objects", "flow", "parts_of_torch")

for topic in TOPICS:
    importlib.import_module(f"topics.{topic}")
