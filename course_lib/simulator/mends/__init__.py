"""What is mended in Triton's interpreter. Importing this package fills the table and changes
nothing; `put_all_in_place` does.

`table.py`: the record, and the table. `arithmetic.py`, `casts.py`, `products.py`, `reductions.py`,
`library.py`, `memory.py`: the mends. `watched.py`: hooks by which the checks hear of each access.
"""

from course_lib.simulator.mends import arithmetic, casts, library, memory, products, reductions
from course_lib.simulator.mends.table import FIRST, LAST, MENDS, Mend, Version


def put_all_in_place(version: Version) -> list[Mend]:
    """Mend the interpreter of this Triton; what was put in place."""
    needed = [mend for mend in MENDS if mend.needed(version)]
    for mend in needed:
        if mend.put_in_place is not None:
            mend.put_in_place()
    return needed
