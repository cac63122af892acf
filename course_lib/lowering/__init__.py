"""Lowering: from an ATen graph to loops (`ir`), whose bodies are written in virtual operations (`ops`)."""

from course_lib.lowering import reductions, rules  # for the rules that they register
from course_lib.lowering.decompositions import DECOMPOSITIONS
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Pointwise, Reduction, View
from course_lib.lowering.lower import LOWERINGS, lower
from course_lib.lowering.operators import may_recompute
from course_lib.lowering.philox import PHILOX
