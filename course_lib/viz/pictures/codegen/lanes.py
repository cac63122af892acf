"""A loop cut for threads and lanes.

In:  how many iterations, how many lanes a register has, how many threads there are.
Out: a `Picture`: a row for each thread, a frame for each vector instruction, a cell for each
     iteration. The last frame is dashed where it is not full: the tail.
"""

from __future__ import annotations

from course_lib.viz.kit.arguments import COUNT, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg

CELL, GAP, ROW, NAME = 26, 10, 50, 84
"""px: the width of an iteration; between two vectors; the height of a thread; the room for its
name."""
VECTOR, INSIDE = 36, 24
"""px: the height of a vector's frame, and of the cells in it."""
MOST_VECTORS = 64
"""More cannot be told apart."""


@takes(iterations=COUNT, width=COUNT, threads=COUNT)
def lanes(iterations: int, width: int, threads: int = 1) -> Picture:
    """The iterations of a loop in vectors of `width`, neighbouring vectors to one thread."""
    if iterations > MOST_VECTORS * width:
        raise ValueError(
            f"lanes draws 1 to 64 vectors, not {iterations} iterations in vectors of {width}"
        )
    # As OpenMP shares a loop: each thread has neighbours, the first ones one vector more
    firsts = list(range(0, iterations, width))  # the first iteration of each vector
    vectors_per_thread, threads_with_one_more = divmod(len(firsts), threads)
    starts = [
        thread * vectors_per_thread + min(thread, threads_with_one_more)
        for thread in range(threads + 1)
    ]
    # The rows are as wide as the longest of them
    longest = vectors_per_thread + (threads_with_one_more > 0)
    svg = Svg(NAME + longest * (CELL * width + GAP), threads * ROW)
    lines = []
    for thread in range(threads):
        firsts_of_thread = firsts[starts[thread] : starts[thread + 1]]
        y = thread * ROW + 6
        name = "one thread"
        if threads > 1:
            name = f"thread {thread}"
        svg.text(0, y + 23, name, SMALL, dim=True)
        vectors = []
        for place, first in enumerate(firsts_of_thread):
            iterations_of_vector = range(first, min(first + width, iterations))
            x = NAME + place * (CELL * width + GAP)
            tail = len(iterations_of_vector) < width
            svg.box(
                x,
                y,
                CELL * width,
                VECTOR,
                "codegen",
                radius=5,
                strength=0.12,
                line=2.6,
                dashed=tail,
            )
            for lane, i in enumerate(iterations_of_vector):
                cell_left = x + 4 + lane * (CELL - 1)
                cell_width = CELL - 4
                svg.box(
                    cell_left, y + 6, cell_width, INSIDE, "codegen", radius=3, strength=0.3, line=1
                )
                svg.text(cell_left + cell_width / 2, y + 22, str(i), SMALL, anchor="middle")
            vectors.append(f"[{' '.join(map(str, iterations_of_vector))}]{' tail' if tail else ''}")
        lines.append(f"{name}: {' '.join(vectors) or 'nothing'}")
    alt = (
        f"{plural(iterations, 'iteration')} in {plural(len(firsts), 'vector')}. {'; '.join(lines)}."
    )
    caption = "Each frame is one instruction for all iterations in it; the dashed one is not full: the tail."
    return Picture(svg.render(alt), caption, alt, "\n".join(lines))
