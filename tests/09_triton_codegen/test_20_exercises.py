"""The checks of lesson 09's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

import os

import pytest
import torch
from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

# Triton asks for it when it is imported: the notebooks of these exercises set it in their first cell
os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

LESSON = Mutants("09_triton_codegen")
edit, body = LESSON.edit, LESSON.body

pytestmark = [
    *NEEDS_THE_HOOK,
    pytest.mark.skipif(
        torch.cuda.is_available(), reason="with a GPU, Triton compiles in this process"
    ),
]


NORMALIZE = """    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, COLUMNS)
    inside = (i < n_rows)[:, None] & (j < n_columns)[None, :]
    value = tl.load(x + stride * i[:, None] + j[None, :], mask=inside, other=0).to(tl.float32)
    mean = tl.sum(value * value, axis=1) / n_columns
    weight = tl.load(w + j, mask=j < n_columns)
    result = value / tl.sqrt(mean + 1e-6)[:, None] * weight[None, :]
    tl.store(out + n_columns * i[:, None] + j[None, :], result, mask=inside)"""

COMPLAINTS = """    x, runs = torch.arange(n, dtype=torch.float32), []
    for seed in (1, 2):
        a, b = torch.rand(2, n + 2 * ZONE, generator=torch.Generator().manual_seed(seed))
        a[ZONE : ZONE + n] = x
        before = b.clone()
        kernel[(triton.cdiv(n, BLOCK),)](a[ZONE:], b[ZONE:], n, BLOCK=BLOCK)
        runs.append((before, b))
    middle = slice(ZONE, ZONE + n)
    kept = [before == after for before, after in runs]
    written = [not (kept[0][k] and kept[1][k]) for k in range(ZONE, ZONE + n)]
    outside = any(not same[k] for same in kept for k in range(n + 2 * ZONE) if not ZONE <= k < ZONE + n)
    one, two = (after[middle][torch.tensor(written)] for _, after in runs)
    result = ["writes outside"] if outside else []
    result += [] if all(written) else ["leaves some out"]
    return result + ([] if torch.allclose(one, two, rtol=0, atol=0, equal_nan=True) else ["reads outside"])"""

SPLIT = """    columns = node.reduced[0]
    sizes = [chunks]
    sizes.extend(node.ranges)
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    new = Buffer(node.buffer.name + "_parts", node.accumulate, tuple(sizes), tuple(strides), node.buffer.device)
    first = Reduction(
        new, tuple(sizes), lambda ops, i, j: node.inner(ops, tuple(i[1:]), (i[0] * (columns // chunks) + j[0],)),
        node.origins, node.label, (columns // chunks,), kind=node.kind, accumulate=node.accumulate, partial=True)
    second = Reduction(
        node.buffer, node.ranges, lambda ops, i, j: new.view().load(ops, [*j, *i]),
        node.origins, node.label, (chunks,), node.kept, kind=node.kind, accumulate=node.accumulate)
    return [first, second]"""

ALTERNATIVES = {
    "cover": body(
        """    down, along = -(-rows // ROWS), -(-columns // COLUMNS)
    lanes = lambda i, j: sum(i + a >= rows or j + b >= columns for a in range(ROWS) for b in range(COLUMNS))
    return [[(p * ROWS, s * COLUMNS, lanes(p * ROWS, s * COLUMNS)) for s in range(along)] for p in range(down)]"""
    ),
    "normalize": body(NORMALIZE),
    "complaints": body(COMPLAINTS),
    "MyKernel": body(
        """        twice = f"2.0 * {self.text(expr.args[0], 14)}"
        return f"(1.0 - 2.0 / (1.0 + tl.exp({twice})))", 100""",
        """        tiling = super().choose_tiling()
        size = max([self.buffers[name].dtype.itemsize for name in self.passed])
        fits = power_of_two(tiling.columns) <= ROW_BYTES // size
        return replace(tiling, persistent=fits) if tiling.columns and not tiling.chunks else tiling""",
    ),
    "split": body(SPLIT),
}
WRONG = {
    "cover": {
        "lanes inside": edit("ROWS * COLUMNS - inside", "inside"),
        "no rest of the columns": edit("range(0, columns, COLUMNS)", "range(0, columns - COLUMNS + 1, COLUMNS)"),
        "no rest of the rows": edit("range(0, rows, ROWS)", "range(0, rows - ROWS + 1, ROWS)"),
        "the corner counts twice": edit(
            "ROWS * COLUMNS - inside",
            "COLUMNS * max(0, first_row + ROWS - rows) + ROWS * max(0, first_column + COLUMNS - columns)",
        ),
    },
    "normalize": {
        "the mean of all lanes": edit("/ n_columns + 1e-6", "/ COLUMNS + 1e-6"),
        "one row for each program": edit("tl.program_id(0) * ROWS", "tl.program_id(0)"),
        "no mask for rows": edit("(i < n_rows) & columns", "columns & (i < n_rows + ROWS)"),
        "no gaps": edit("i * stride", "i * n_columns"),
        "computed as stored": edit(".to(tl.float32)", ""),
        "nothing added": edit(" + 1e-6)", ")"),
        "added outside of the root": edit(
            "value * scale * weight",
            "value / (1e-6 + tl.sqrt(tl.sum(value * value, 1, keep_dims=True) / n_columns)) * weight",
        ),
        "loaded twice": edit(
            "value * scale * weight", "tl.load(x + i * stride + j, mask, other=0.0).to(tl.float32) * scale * weight"
        ),
        "two rows for each program": edit("tl.program_id(0) * ROWS", "tl.program_id(0) * 2"),
        "garbage in masked lanes": edit("mask, other=0.0)", "mask)"),
        "rounded in the middle": edit(
            "value * scale * weight",
            "(value * scale).to(x.dtype.element_ty).to(tl.float32) * weight",
        ),
        "all of w": edit("tl.load(w + j, columns, other=0.0)", "tl.load(w + j)"),
        "a global number": edit("@triton.jit", "SMALL = 1e-6\n\n@triton.jit", " + 1e-6)", " + SMALL)"),
    },
    "complaints": {
        "a set": edit("return [name for name, wrong in found.items() if wrong]", "return {n for n, w in found.items() if w}"),
        "inside only": edit("outside |= bool(", "outside |= False and bool("),
        "once": edit("for fill in (3.0, -5.0)", "for fill in (3.0, 3.0)", "(second == -5.0)", "(second == 3.0)"),
        "looks at all of out": edit("first[~left]", "first", "second[~left]", "second"),
        "not before": edit("(around_out[:ZONE] != fill).any() or ", ""),
        "reads before are missed": edit(
            "x.copy_(numbers)", "x.copy_(numbers)\n        around_x[:ZONE] = 0.0"
        ),
        "roughly equal": edit(
            "not torch.equal(first[~left].view(torch.int32), second[~left].view(torch.int32))",
            "not torch.allclose(first[~left], second[~left], equal_nan=True)",
        ),
        "a tile on either side": edit(
            "around_out[:ZONE]",
            "around_out[ZONE - BLOCK : ZONE]",
            "around_out[ZONE + n :]",
            "around_out[ZONE + n : ZONE + n + BLOCK]",
        ),
        "one look at what is left": edit(" & (second == -5.0)", ""),
        "only the second look outside": edit("outside |= bool(", "outside = bool("),
        "the same number around both": edit("fill + 1)", "fill)"),
        "NaN": edit(".view(torch.int32)", ""),
    },
    "MyKernel": {
        "the library's": body(
            '        return f"libdevice.tanh({self.text(expr.args[0])})", 100', "        return super().choose_tiling()"
        ),
        "of a half": edit("tl.exp(2 * ", "tl.exp("),
        "infinity by infinity": edit(
            'f"1 - 2 / (tl.exp(2 * {self.text(expr.args[0], 100)}) + 1)", 12',
            'f"(tl.exp(2 * {self.text(expr.args[0], 100)}) - 1) / (tl.exp(2 * {self.text(expr.args[0], 100)}) + 1)", 13',
        ),
        "binds like a call": edit("+ 1)\", 12", "+ 1)\", 100"),
        "never held": edit("persistent=power_of_two(tiling.columns) * widest <= ROW_BYTES", "persistent=False"),
        "always held": edit("persistent=power_of_two(tiling.columns) * widest <= ROW_BYTES", "persistent=True"),
        "four bytes": edit("power_of_two(tiling.columns) * widest", "power_of_two(tiling.columns) * 4"),
        "less than": edit("<= ROW_BYTES", "< ROW_BYTES"),
        "what is written": edit("for name in self.passed)", "for name in self.passed[-1:])"),
        "what is read": edit("for name in self.passed)", "for name in self.passed[:-1])"),
        "columns, not lanes": edit("power_of_two(tiling.columns) * widest", "tiling.columns * widest"),
        "the first one's dtype": edit(
            "max(self.buffers[name].dtype.itemsize for name in self.passed)", "self.buffers[self.passed[0]].dtype.itemsize"
        ),
        "pointwise, too": edit("if not tiling.columns or tiling.chunks:", "if tiling.chunks:"),
        "walking, too": edit(" or tiling.chunks:", ":"),
    },
    "split": {
        "one node": edit("return first, replace(node, inner=whole, reduced=(chunks,))", "return (node,)"),
        "the wrong way round": edit("reduced=(length,)", "reduced=(chunks,)", "reduced=(chunks,))", "reduced=(length,))"),
        "every third": edit("chunk * length + rindex[0]", "chunk + chunks * rindex[0]"),
        "rounded in between": edit("node.accumulate", "node.buffer.dtype"),
        "rows first": edit("(chunks, *node.ranges)", "(*node.ranges, chunks)", "chunk, *rest = index", "*rest, chunk = index",
                           "(rindex[0], *index)", "(*index, rindex[0])"),
        "on this machine": edit("node.buffer.device", 'torch.device("cpu")'),
        "a name for all": edit('f"{node.buffer.name}_parts"', '"sum_parts"'),
        "not partial": edit(", partial=True", ""),
        "kept as it was": edit("kept=None, ", ""),
        "a sum of all kinds": edit("inner=whole, reduced=(chunks,)", 'inner=whole, reduced=(chunks,), kind="sum"'),
    },
}  # fmt: skip

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
