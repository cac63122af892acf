"""Lowering: from an ATen graph to loops (`ir`), whose bodies are written in virtual operations
(`ops`).

Read in this order: `ir.py` (what loops are), `ops.py` (what stands in their bodies), `lower.py`
(the walk over the graph), `rules.py` and `formulas.py` (how an operator becomes a loop),
`reductions.py` with `reduction_kinds.py`,
`index_rules.py`, `decompositions.py`. All of them use `indexing.py` (where in memory an element
lies) and `operators.py` (what torch says about an operator). `corners/` may be skipped.
"""

from course_lib.lowering import corners  # for what they register
from course_lib.lowering.corners.philox import PHILOX
from course_lib.lowering.decompositions import DECOMPOSITIONS
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Pointwise, Reduction, View
from course_lib.lowering.lower import LOWERINGS, lower
from course_lib.lowering.operators import may_recompute
