"""Special cases of lowering: each module adds to the tables of the spine, which knows none of them.

`as_eager.py`: decompositions that do what eager does where torch's own differ.
`philox.py`: random numbers as a formula.
`products_of_elements.py`: the gradient of `prod`.
A reader of lesson 07 may skip this folder. In PyTorch: `torch/_inductor/decomposition.py`,
`fx_passes/replace_random.py`.
"""

from course_lib.lowering.corners import as_eager, philox, products_of_elements

__all__ = ["as_eager", "philox", "products_of_elements"]
