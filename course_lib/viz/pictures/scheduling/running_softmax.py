"""The softmax of a row that is read in blocks: the maximum grows, and what was summed is scaled
down to it.

In:  the numbers of a row, and how many a block has.
Out: a `Picture`: the numbers as bars with the running maximum over them; below each block its
     maximum, factor and sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.viz.kit.arguments import COUNT, NUMBER, each, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns as table_text

STAGE = "scheduling"
BAR, BETWEEN, APART = 34.0, 8.0, 26.0
"""px: a bar's width, the gap to the next one, and to the next block."""
TALL, TOP, LINE = 130.0, 28.0, 24.0
"""px: the tallest bar, the room above it, and a line of text below."""
TO_TEXT, UP = 26, 8
"""px: from the bars down to the lines of text, and from the end of such a line up to its base
line."""
NUMBER_LINE = 14
"""px: from the end of a bar to the base line of its number."""
NAMES = ("largest so far", "factor", "sum of exp")
MOST = 32
"""Numbers that can still be told apart."""


@dataclass(frozen=True)
class Step:
    """What is known when a block has been read."""

    numbers: tuple[float, ...]
    maximum: float
    factor: float
    """By which the sum of the earlier blocks is multiplied."""
    total: float

    @property
    def words(self) -> tuple[str, str, str]:
        """For each of `NAMES`."""
        return f"{self.maximum:g}", f"× {self.factor:.3g}", f"{self.total:.4g}"


@takes(numbers=each(NUMBER, "a list of numbers"), size=COUNT)
def running_softmax(numbers: Sequence[float], size: int) -> Picture:
    """Draw how a row of `numbers` is summed, `size` at a time.

    Raises ValueError for no numbers, more than 32, and infinite ones."""
    numbers = tuple(numbers)
    if not 1 <= len(numbers) <= MOST or not all(map(math.isfinite, numbers)):
        raise ValueError(f"numbers are 1 to {MOST} finite numbers, those of one row")

    steps = steps_of(numbers, size)
    label = max(text_width(name) for name in NAMES) + 44
    width = label + len(numbers) * (BAR + BETWEEN) + (len(steps) - 1) * APART + 40
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    # 0 is always on the scale; a row of zeros has no height
    scale = TALL / ((high - low) or 1.0)
    zero = TOP + high * scale
    below = TOP + TALL + TO_TEXT
    svg = Svg(width, below + LINE * len(NAMES) + 4)
    for place, name in enumerate(NAMES):
        svg.text(4, below + LINE * (place + 1) - UP, name, bold=True)

    x = label
    for step in steps:
        wide = len(step.numbers) * (BAR + BETWEEN) - BETWEEN
        draw_bars(svg, x, step.numbers, zero, scale)
        draw_maximum(svg, x - 6, wide + 12, zero - step.maximum * scale, step)
        for place, words in enumerate(step.words):
            y = below + LINE * (place + 1) - UP
            # The factor stands out where it is one that changes the sum.
            is_bold = NAMES[place] == "factor" and step.factor != 1
            svg.text(x + wide / 2, y, words, anchor="middle", bold=is_bold)
        x += wide + BETWEEN + APART

    header = ("block", *NAMES)
    rows = [(" ".join(f"{each:g}" for each in step.numbers), *step.words) for step in steps]
    said = "; ".join(
        f"block {place}: largest {step.words[0]}, earlier sum {step.words[1]}, sum {step.words[2]}"
        for place, step in enumerate(steps, 1)
    )
    alt = (
        f"The softmax of {plural(len(numbers), 'number')} in {plural(len(steps), 'block')}. {said}."
    )
    caption = "Where the line steps up, all that was summed so far is multiplied by one factor."
    return Picture(svg.framed(alt), caption, alt, table_text(rows, header))


def steps_of(numbers: Sequence[float], size: int) -> list[Step]:
    """Block by block: the maximum, the factor for what was summed before, and the sum."""
    steps: list[Step] = []
    maximum = -math.inf
    total = 0.0
    for start in range(0, len(numbers), size):
        block = tuple(numbers[start : start + size])
        larger = max(maximum, *block)
        # Of the first block there is nothing to scale down.
        factor = math.exp(maximum - larger) if start else 1.0
        total = total * factor + sum(math.exp(each - larger) for each in block)
        maximum = larger
        steps.append(Step(block, maximum, factor, total))
    return steps


def draw_bars(svg: Svg, x: float, numbers: Sequence[float], zero: float, scale: float) -> None:
    """The numbers of a block, from the line of zero up or down."""
    for number in numbers:
        tall = abs(number) * scale
        top = zero - tall if number >= 0 else zero
        svg.box(x, top, BAR, max(tall, 1.0), "lowering", radius=2, strength=0.3, line=1.2)
        # Below the line of zero, or below the bar if that reaches down from it
        y = top + tall + NUMBER_LINE if number < 0 else zero + NUMBER_LINE
        svg.text(x + BAR / 2, y, f"{number:g}", SMALL, anchor="middle")
        x += BAR + BETWEEN


def draw_maximum(svg: Svg, x: float, wide: float, y: float, step: Step) -> None:
    """The largest number so far as a line over the block; where it has just grown, with the
    factor."""
    svg.path(f"M{x:.1f} {y:.1f} h{wide:.1f}", stage=STAGE, line=3, opacity=1)
    # `words` of a step: the maximum, the factor, the sum
    if step.factor != 1:
        svg.text(x, y - 8, step.words[1], SMALL, bold=True, stage=STAGE, rim=True)
