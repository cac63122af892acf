"""Sizes that are formulas: what the compiler computes with where a graph is compiled once for many
sizes.

In:  the sizes of fake tensors (`torch.SymInt`s of capture's `ShapeEnv`).
Out: `Size`s: formulas over `s0`, `s1`, ..., each with a hint, its value in the call that is being
     compiled.

A `Size` adds and multiplies like an int, so most of the compiler does not know the difference.
Where code *looks* at a size, it asks in one of three ways:

    surely(ge, size, 2)      known for all sizes, or not: nothing is assumed
    hint(size)               the number of this call, for a decision that is right either way
                             (how many threads, what to keep)
    size >= 2                an answer for this call; if it is not so for all sizes it becomes a
                             guard, which capture's check holds

A size never becomes a number in silence: `int(size)` and whatever else asks for one raises
`NeedsNumbers`, and the graph is then compiled for each set of sizes by itself
(`Pipeline.specialize`).

- `size.py`: one size, and how it computes.
- `graph_sizes.py`: all sizes of one graph; they find values, and answer questions.
- `questions.py`: what code asks about one or two sizes.
- `current.py`: the sizes of the graph that is being compiled.
- `formulas.py`: how a formula is written.
- `decisions.py`: a record of what was decided about sizes, and who asked.

In PyTorch: `torch/_inductor/sizevars.py` (`SizeVarAllocator`),
`torch/fx/experimental/symbolic_shapes.py`.
"""

from course_lib.sizes.current import (
    compiling_for,
    current,
    from_formula,
    shape,
    shape_or_size,
    size,
)
from course_lib.sizes.formulas import ROUNDED, SIGNS, SizeSymbol, name_of_size
from course_lib.sizes.graph_sizes import Place, Sizes
from course_lib.sizes.questions import (
    contiguous,
    expanded,
    is_size,
    is_symbolic,
    quotient,
    same,
    sizes_of,
    surely,
)
from course_lib.sizes.size import NeedsNumbers, Real, Size, formula_of, hint, text_of
