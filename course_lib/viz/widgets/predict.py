"""A question to answer before running:
`guess = viz.Predict("…?", ["…", "…"], answer=1, because="…")`, later `guess.score()`.

In:  a question, its options, the number of the right one (from 0), and one sentence that says why.
Out: `Predict`, shown as radio buttons where widgets live and as a list everywhere else; `score`
     gives a `Picture`.

Choosing happens in the browser: the page sends the choice to the kernel and asks nothing of it, so
a notebook that runs with nobody watching goes on and says "not answered yet". Text between
`backticks` is shown as code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from course_lib.languages import translate
from course_lib.viz.kit.arguments import several, text, whole
from course_lib.viz.kit.style import Picture, escape
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("predict.js")
LETTERS = "abcdef"
"""The options are called so; there are as many at most."""
NOTHING_CHOSEN = -1
"""In the browser, where `choice` is a number in any case."""


class Predict(Live):
    """A multiple-choice question.

    `choice` is the number of the option chosen, None before; without widgets, set it."""

    def __init__(self, question: str, options: Sequence[str], answer: int, because: str) -> None:
        self.question = text(question, "the question of Predict")
        self.options = tuple(
            text(option, "an option of Predict")
            for option in several(options, "options is a list of texts")
        )
        if not 2 <= len(self.options) <= len(LETTERS):
            raise ValueError(f"a question has 2 to 6 options, not {len(self.options)}")
        if len(set(self.options)) < len(self.options):
            raise ValueError(
                "two options of the question read the same: leave one out, or say how they differ"
            )
        if answer in self.options:
            # Its text was given: say the number.
            answer = self.options.index(answer)
            raise TypeError(
                f"answer is the number of the right option, counted from 0: write answer={answer}, not its text"
            )
        last = len(self.options) - 1
        self.answer = whole(answer, "answer is the number of the right option", least=0, most=last)
        self.because = text(because, "because, which says why the answer is right,")
        self._choice: int | None = None

    @property
    def choice(self) -> int | None:
        return self._choice

    @choice.setter
    def choice(self, number: int) -> None:
        last = len(self.options) - 1
        self._choice = whole(number, "choice is the number of an option", least=0, most=last)
        # A widget that is there shows it, too; none is made for that.
        if "widget" in self.__dict__:
            self.widget.choice = self._choice

    def score(self) -> Picture:
        """The choice beside the answer, and why.

        Where nothing was chosen, the answer is folded away."""
        explanation = f"The answer is {self.option(self.answer)}. {self.because}"
        if self.choice is None:
            kind = "open"
            verdict = "Not answered yet."
            hint = "Choose an option above and run this cell again, or look:"
            folded = f"<details><summary>the answer</summary><p>{marked(explanation)}</p></details>"
            body = f"<p>{verdict} {hint}</p>{folded}"
        elif self.choice == self.answer:
            kind = "right"
            verdict = f"You said {self.option(self.choice)}: ✓ right."
            body = f"<p><b>{marked(verdict)}</b></p><p>{marked(self.because)}</p>"
        else:
            kind = "wrong"
            verdict = f"You said {self.option(self.choice)}: ✕ not so."
            body = f"<p><b>{marked(verdict)}</b></p><p>{marked(explanation)}</p>"
        return Picture(
            body=f'<div class="cl-score cl-{kind}">{body}</div>',
            caption="",
            alt=verdict,
            text=f"{verdict} {explanation}",
            sheets=("predict",),
        )

    def option(self, number: int) -> str:
        """'b) the third kernel'"""
        return f"{LETTERS[number]}) {self.options[number]}"

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees."""
        rows = "".join(
            f"<li>{marked(self.option(number))}</li>" for number in range(len(self.options))
        )
        body = f'<div class="cl-ask"><p><b>{marked(self.question)}</b></p><ul>{rows}</ul></div>'
        caption = "Choose before you read on. (Run the cell for buttons.)"
        text = "\n".join(
            [self.question, *(f"  {self.option(i)}" for i in range(len(self.options)))]
        )
        return Picture(body, caption, f"A question: {self.question}", text, sheets=("predict",))

    @cached_property
    def widget(self) -> Any:
        """The live form. Raises ImportError without `anywidget`."""
        import traitlets

        base: Any = widget_class(SCRIPT, "predict")

        class PredictWidget(base):
            """Everything happens in predict.js."""

            question = traitlets.Unicode().tag(sync=True)
            options: Any = traitlets.List().tag(sync=True)
            choice = traitlets.Int(NOTHING_CHOSEN).tag(sync=True)

        widget = PredictWidget(
            question=marked(self.question),
            options=[marked(option) for option in self.options],
            choice=NOTHING_CHOSEN if self.choice is None else self.choice,
        )

        # The choice outlives the widget: `score` is asked in a later cell
        def keep_choice(change: Any) -> None:
            self._choice = change["new"]

        widget.observe(keep_choice, "choice")
        return widget

    def __repr__(self) -> str:
        return self.picture.text


def marked(text: str) -> str:
    """Text in the reader's language as HTML, with what stands between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(translate(text)))
