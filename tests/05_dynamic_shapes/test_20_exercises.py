"""The checks of lesson 05's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("05_dynamic_shapes")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


SERVE = """    results = []
    for x in requests:
        n = x.shape[1]
        room = torch.zeros(1, bucket(n), x.shape[2])
        room[:, :n] = x
        results += [model(room).narrow(1, 0, n)]
    return results"""

ALTERNATIVES = {
    "entry_for": body(
        """    def symbolic(dim):
        return dynamic is not False and (dynamic or dim in {*changed, *marked})
    return [None if n > 1 and symbolic(dim) else n for dim, n in enumerate(shape)]"""
    ),
    "symbolic_size": body(
        """        texts = [value.expr if isinstance(value, SymbolicSize) else repr(value) for value in (left, right)]
        hint = eval(f"a {sign} b", {"a": hint_of(left), "b": hint_of(right)})
        return SymbolicSize(hint, "(({}) {} ({}))".format(texts[0], sign, texts[1]), self.guards)""",
        """        opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
        holds = QUESTIONS[sign](hint_of(left), hint_of(right))
        self.guards.append(f"{text_of(left)} {sign if holds else opposite[sign]} {text_of(right)}")
        return holds""",
        """        self.ask(self, "==", self.hint)
        return self.hint""",
    ),
    "fade": body(
        """    n = x.shape[0]
    position = torch.ones(n).cumsum(0) - 1
    gain = GAIN_TABLE.narrow(0, n, 1)
    odd_last = torch.arange(n)[-1:] % 2  # 1 for an even length
    return x * (position / n).unsqueeze(1) * gain + (odd_last * 2 - 1)"""
    ),
    "serve": body(
        """    borders = sorted({max(2, round(512 * 0.74**i)) for i in range(most)})
    def bucket(n):
        for border in borders:
            if n <= border:
                return border
    return bucket""",
        SERVE,
    ),
}
WRONG = {
    "entry_for": {
        "1 may be symbolic": edit(
            "if size in (0, 1) or dynamic is False:", "if size == 0 or dynamic is False:"
        ),
        "0 may be symbolic": edit(
            "if size in (0, 1) or dynamic is False:", "if size == 1 or dynamic is False:"
        ),
        "None means True": edit("dynamic is True or", "dynamic is not False or"),
        "True means None": edit("dynamic is True or", ""),
        "changes are forgotten": edit("dim in changed or ", ""),
        "marks are forgotten": edit(" or dim in marked", ""),
        "False holds for nothing": edit(" or dynamic is False:", ":"),
        "a mark beats everything": edit(
            "entry.append(",
            "symbolic = symbolic or (dim in marked and dynamic is None)\n        entry.append(",
        ),
        "a mark beats False": edit(
            "entry.append(",
            "symbolic = symbolic or (dim in marked and size > 1)\n        entry.append(",
        ),
    },
    "symbolic_size": {
        "no parentheses": edit(
            'f"({text_of(left)} {sign} {text_of(right)})"',
            'f"{text_of(left)} {sign} {text_of(right)}"',
        ),
        "the hint for the expression": edit(
            'f"({text_of(left)} {sign} {text_of(right)})"', "str(hint)"
        ),
        "plain numbers": edit(
            'return SymbolicSize(hint, f"({text_of(left)} {sign} {text_of(right)})", self.guards)',
            "return hint",
        ),
        "the question, whatever the answer": edit(
            "question if answer else", "question if True else"
        ),
        "no guard": edit('self.guards.append(question if answer else f"not ({question})")', "pass"),
        "a list of its own": edit('{text_of(right)})", self.guards)', '{text_of(right)})", [])'),
        "the right side is its hint": edit(
            'question = f"{text_of(left)} {sign} {text_of(right)}"',
            'question = f"{text_of(left)} {sign} {hint_of(right)}"',
        ),
        "an index without a guard": edit(
            '        self.guards.append(f"{self.expr} == {self.hint}")\n', ""
        ),
        "an index of the size alone": edit('f"{self.expr} == {self.hint}"', 'f"s0 == {self.hint}"'),
        "sides exchanged": edit(
            "ARITHMETIC[sign](hint_of(left), hint_of(right))",
            "ARITHMETIC[sign](hint_of(self), hint_of(right if left is self else left))",
            'f"({text_of(left)} {sign} {text_of(right)})"',
            'f"({text_of(self)} {sign} {text_of(right if left is self else left)})"',
        ),
    },
    "fade": {
        "the loop stays": edit(
            "torch.arange(n) / n", "torch.tensor([float(i) for i in range(n)]) / n"
        ),
        "the dict stays, in another form": edit(
            "parity = 1 - n % 2 * 2", "parity = 1.0 if n % 2 == 0 else -1.0"
        ),
        "the ramp starts at one": edit("torch.arange(n) / n", "(torch.arange(n) + 1) / n"),
        "only short lengths": edit(
            "    ramp = torch",
            "    if n > 100:\n        return x * torch.arange(n)[:, None]\n    ramp = torch",
        ),
        "the gain of a neighbour": edit("GAIN_TABLE[n : n + 1]", "GAIN_TABLE[n - 1 : n]"),
    },
    "serve": {
        "powers of two": edit(
            "return lambda n: min(b for b in borders if b >= n)",
            "return lambda n: 1 << (n - 1).bit_length()",
        ),
        "the nearest border": edit(
            "return lambda n: min(b for b in borders if b >= n)",
            "return lambda n: min(borders, key=lambda b: abs(b - n))",
        ),
        "one size": edit(
            "return lambda n: min(b for b in borders if b >= n)", "return lambda n: 512"
        ),
        "floats": edit(
            "return lambda n: min(b for b in borders if b >= n)",
            "return lambda n: float(min(b for b in borders if b >= n))",
        ),
        "nothing is cut off": edit("model(padded)[:, :n]", "model(padded)"),
        "nothing is padded": edit("model(padded)[:, :n]", "model(x)"),
        "padded in front": edit(
            "(0, 0, 0, bucket(n) - n)", "(0, 0, bucket(n) - n, 0)", "[:, :n]", "[:, -n:]"
        ),
        "sorted by length": edit(
            "for x in requests:", "for x in sorted(requests, key=lambda x: x.shape[1]):"
        ),
        "only what was in the sample": edit(
            "return lambda n: min(b for b in borders if b >= n)",
            "return lambda n: min(b for b in borders if b >= n) if n in sample else 512",
        ),
        "always eight": edit("range(most - 1)", "range(7)"),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)


def test_a_power_of_minus_one_is_a_right_answer_too():
    """Its graph runs as text: `-1 ** n` would be -(1 ** n)."""
    answer = LESSON.written(
        "fade",
        """    n = x.shape[0]
    return x * (torch.arange(n) / n)[:, None] * GAIN_TABLE[n : n + 1] + (-1.0) ** n""",
    )
    other = LESSON.written(
        "fade",
        """    n = x.shape[0]
    return x * (torch.arange(n) / n)[:, None] * GAIN_TABLE[n : n + 1] + (-1) ** n""",
    )
    assert LESSON.verdict("fade", answer).passed
    assert LESSON.verdict("fade", other).passed
