"""The checks of lesson 16's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_A_COMPILER, Mutants, exercise_tests

LESSON = Mutants("16_attention")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_A_COMPILER

BEGIN = """    m = x.max(-1).values
    shifted = torch.where((m == -torch.inf)[..., None], x, x - m[..., None])
    return m, shifted.exp().sum(-1)"""
MERGE = """    m, first = torch.maximum(a[0], b[0]), a[0] >= b[0]
    apart = torch.where(a[0] == b[0], 0.0, -(a[0] - b[0]).abs())
    larger, smaller = torch.where(first, a[1], b[1]), torch.where(first, b[1], a[1])
    return m, larger + smaller * apart.exp()"""

ALTERNATIVES = {
    "merge": body(BEGIN, MERGE),
    "merge_variance": body(
        """    n = a[0] + b[0]
    mean = a[1] + (b[1] - a[1]) / n * b[0]
    return n, mean, a[2] + a[0] * (a[1] - mean) ** 2 + b[2] + b[0] * (b[1] - mean) ** 2"""
    ),
    "take_apart": body(
        """    if tree.args[0].op != "sub" or not (m := maximum_of(*tree.args[0].args)):
        return None
    x, y = tree.args[0].args
    make = builder.make
    core = make("exp", (make("sub", (x, m), x.dtype),), tree.dtype)
    return Apart(core, make("truediv", (builder.constant(1.0, tree.dtype), builder.exp(builder.sub(y, m))), tree.dtype))"""
    ),
    "roots": body(
        """    h = (q * 0.5) @ k.mT
    e = torch.exp(h - h.amax(-1, keepdim=True))
    return (e * torch.rsqrt(e.square().sum(-1, keepdim=True))) @ v""",
        """    s = (q @ k.mT) * 2
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)) @ v""",
        """    s = q @ k.mT
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e / (e * e).sum(-1, keepdim=True).sqrt()) @ v""",
    ),
    "shown": body(
        "    ends = [x - y for x in (a.low, a.high) for y in (b.low, b.high)]\n    return Interval(min(ends), max(ends))",
        "    if a.high < 0:\n        return Interval(-a.high, -a.low)\n    return a if a.low > 0 else Interval(0, max(-a.low, a.high))",
        "    if a.low >= b.high:\n        return Interval(1, 1)\n    return Interval(0, 0) if a.high < b.low else Interval(0, 1)",
        "    return Interval(a.low * b.low, a.high * b.high)",
        "    return Interval(1 - (1 - a.low) * (1 - b.low), 1 - (1 - a.high) * (1 - b.high))",
        """    pairs = []
    for top in range(0, rows, tall):
        i, first, last = Interval(top, min(top + tall, rows) - 1), None, 0
        for left in range(0, columns, wide):
            truth = mask(i, Interval(left, min(left + wide, columns) - 1))
            if (truth.low, truth.high) != (0, 0):
                first, last = left if first is None else first, left + wide
        pairs.append((first or 0, last))
    return pairs""",
    ),
}
WRONG = {
    "merge": {
        "sums are added as they are": edit(
            "a[1] * torch.exp(a[0] - finite) + b[1] * torch.exp(b[0] - finite)", "a[1] + b[1]"
        ),
        "the maximum of the first block stays": edit("torch.maximum(a[0], b[0])", "a[0]"),
        "exp of the numbers themselves": edit(
            "return m, torch.exp(x - finite[..., None]).sum(-1)",
            "return m, torch.exp(x).sum(-1) * torch.exp(-finite)",
        ),
        "a block of nothing but -inf is NaN": edit(
            "    finite = torch.where(m == -torch.inf, 0.0, m)\n    return m, torch.exp(x - finite",
            "    finite = m\n    return m, torch.exp(x - finite",
        ),
        "two blocks of nothing but -inf are NaN": edit(
            "    finite = torch.where(m == -torch.inf, 0.0, m)\n    return m, a[1]",
            "    finite = m\n    return m, a[1]",
        ),
        "all rows have one maximum": edit("m = x.amax(-1)\n", "m = x.amax().expand(x.shape[:-1])\n"),
        "the block is spoiled": edit("    m = x.amax(-1)\n", "    m = x.amax(-1)\n    x.sub_(m[..., None])\n    x.add_(1)\n"),
        "a list": edit("return m, a[1]", "return [m, a[1]", "torch.exp(b[0] - finite)", "torch.exp(b[0] - finite)]"),
    },
    "merge_variance": {
        "squares are added as they are": edit(" + apart * apart * (n_a * n_b / n)", ""),
        "the mean of the means": edit("mean_a + apart * (n_b / n)", "(mean_a + mean_b) / 2"),
        "by sums of squares": body(
            """    (n_a, mean_a, squares_a), (n_b, mean_b, squares_b) = a, b
    n = n_a + n_b
    mean = (n_a * mean_a + n_b * mean_b) / n
    raw = squares_a + n_a * mean_a * mean_a + squares_b + n_b * mean_b * mean_b
    return n, mean, raw - n * mean * mean"""
        ),
        "n of the second part": edit("return n, mean", "return n_b, mean"),
        "two of three": edit("return n, mean, ", "return mean, "),
    },
    "take_apart": {
        "no maximum at all": edit(
            "Apart(builder.exp(builder.sub(x, m)), builder.exp(builder.sub(m, y)))",
            "Apart(builder.exp(x), builder.exp(builder.sub(builder.sub(m, m), y)))",
        ),
        "never": body("    return None"),
        "the wrong sign": edit("builder.exp(builder.sub(m, y))", "builder.exp(builder.sub(y, m))"),
        "the whole value waits": edit("builder.exp(builder.sub(m, y))", "tree"),
        "whatever is a difference": edit(
            "maximum_of(x, y)", "next((leaf for leaf in y.walk() if leaf.op == RUNNING), None)"
        ),
        "always a difference": edit('    if difference.op != "sub":\n        return None\n', ""),
        "a pair": edit("return Apart(", "return ("),
    },
    "roots": {
        "as they were": body(
            "    return roots_refused(q, k, v)", "    return sharpened_refused(q, k, v)", "    return of_length_one_refused(q, k, v)"
        ),
        "sharpened: the result is divided": body(
            """    h = (q @ k.mT) * 0.5
    e = torch.exp(h - h.amax(-1, keepdim=True))
    return (e / torch.sqrt((e * e).sum(-1, keepdim=True))) @ v""",
            """    s = (q @ k.mT) * 2
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)""",
            "    return of_length_one_refused(q, k, v)",
        ),
        "roots: no maximum": edit("torch.exp(h - h.amax(-1, keepdim=True))", "torch.exp(h)"),
        "roots: the root of a sum of roots": edit(
            "torch.sqrt((e * e).sum(-1, keepdim=True))) @ v\n    ### END SOLUTION\n\ndef sharpened",
            "torch.sqrt(e.sum(-1, keepdim=True))) @ v\n    ### END SOLUTION\n\ndef sharpened",
        ),
        "sharpened: not sharpened": edit("torch.softmax(2 * (q @ k.mT), -1)", "torch.softmax(q @ k.mT, -1)"),
        "of_length_one: of sum one": edit(
            "    s = q @ k.mT\n    e = torch.exp(s - s.amax(-1, keepdim=True))\n    return (e / torch.sqrt((e * e).sum(-1, keepdim=True)))",
            "    s = q @ k.mT\n    e = torch.exp(s - s.amax(-1, keepdim=True))\n    return (e / e.sum(-1, keepdim=True))",
        ),
        "of_length_one: no maximum": edit(
            "    s = q @ k.mT\n    e = torch.exp(s - s.amax(-1, keepdim=True))", "    s = q @ k.mT\n    e = torch.exp(s)"
        ),
    },
    "shown": {
        "minus end by end": edit("Interval(a.low - b.high, a.high - b.low)", "Interval(a.low - b.low, a.high - b.high)"),
        "abs of both ends": edit("0 if a.low <= 0 <= a.high else min(ends)", "min(ends)"),
        "abs begins at 0": edit("0 if a.low <= 0 <= a.high else min(ends)", "0"),
        "greater, not at least": edit("a.low >= b.high", "a.low > b.high", "a.high >= b.low", "a.high > b.low"),
        "true where it may be": edit("int(a.low >= b.high)", "int(a.high >= b.low)"),
        "and is or": edit("min(a.low, b.low), min(a.high, b.high)", "max(a.low, b.low), max(a.high, b.high)"),
        "or is and": edit("max(a.low, b.low), max(a.high, b.high)", "min(a.low, b.low), min(a.high, b.high)"),
        "only blocks that are true throughout": edit(".high == 1", ".low == 1"),
        "from the first column on": edit("(counting[0], ", "(0, "),
        "hidden rows are left out": edit(
            "pairs.append((counting[0], counting[-1] + wide) if counting else (0, 0))",
            "pairs += [(counting[0], counting[-1] + wide)] if counting else []",
        ),
        "positions outside": edit("min(top + tall, rows) - 1", "top + tall - 1"),
        "one behind the last": edit("min(left + wide, columns) - 1", "min(left + wide, columns)"),
        "plain numbers": edit("return Interval(a.low - b.high, a.high - b.low)", "return a.low - b.high, a.high - b.low"),
    },
}  # fmt: skip

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
