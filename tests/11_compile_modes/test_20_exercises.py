"""The checks of lesson 11's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

import importlib.util

import pytest
from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

from course_lib import config

LESSON = Mutants("11_compile_modes")
edit, body = LESSON.edit, LESSON.body

pytestmark = [
    *NEEDS_THE_HOOK,
    pytest.mark.skipif(config.find_cxx() is None, reason="the exercises need a C++ compiler"),
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="the exercises need Triton"
    ),
]


REASONS = """    where = {name: buffer.device for name, buffer in graph.buffers.items()}
    gpus = {str(device) for device in where.values() if device.type == "cuda"}
    table = [
        ("on the CPU", sorted(name for name, device in where.items() if device.type != "cuda"), None),
        ("several GPUs", sorted(gpus), len(gpus) > 1),
        ("a number", [n for n in range(len(graph.inputs)) if graph.inputs[n] is None], None),
        ("no kernel", [], len(graph.nodes) == 0),
    ]
    return [(why, found) for why, found, holds in table if (bool(found) if holds is None else holds)]"""

DIAGNOSE = """    base, other = fresh(), fresh()
    recorded(*base), recorded(*base), recorded(*base)
    sees = lambda inputs: torch.allclose(recorded(*inputs), f(*inputs), rtol=1e-3, atol=1e-4)
    swapped = lambda n: [b if m == n else a for m, (a, b) in enumerate(zip(base, other))]
    stale = [n for n in range(len(base)) if not sees(swapped(n))]
    held = recorded(*base)
    numbers, changed = held.tolist(), False
    for n in range(len(base)):
        recorded(*swapped(n))
        changed = changed or held.tolist() != numbers
    return stale, changed"""

PICK = """    path = folder / hashlib.md5((kernel + repr(configs)).encode()).hexdigest()

    def stored():
        lines = [float(line) for line in path.read_text().split()] if path.exists() else []
        return lines if len(lines) == len(configs) else None

    try:
        times = stored()
    except ValueError:
        times = None
    if times is None:
        times = []
        for config in configs:
            try:
                times.append(float(measure(config)))
            except Refused:
                times.append(float("inf"))
        path.write_text(" ".join(map(repr, times)))
    ranked = sorted((time, n) for n, time in enumerate(times) if time != float("inf"))
    if not ranked:
        raise ValueError("all were refused")
    return configs[ranked[0][1]]"""

PRODUCT = '''    more = "".join(f"{name}, " for name in extra)
    after = "".join(f"    {line}\\n" for line in epilogue)
    return f"""@triton.jit
def product(a, b, {more}out, M, N, K, AM, AK, BK, BN, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    i = tl.expand_dims(rows, 1)
    j = tl.expand_dims(columns, 0)
    inside = (i < M) & (j < N)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    k = tl.arange(0, STEP)
    left_at = a + rows[:, None] * AM + k[None, :] * AK
    right_at = b + k[:, None] * BK + columns[None, :] * BN
    left_over = K
    while left_over > 0:
        left = tl.load(left_at, mask=(i < M) & (k[None, :] < left_over), other=0.0)
        right = tl.load(right_at, mask=(k[:, None] < left_over) & (j < N), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
        left_at += STEP * AK
        right_at += STEP * BK
        left_over -= STEP
{after}    tl.store(out + i * N + j, acc, mask=inside)
"""'''

ALTERNATIVES = {
    "reasons": body(REASONS),
    "diagnose": body(DIAGNOSE),
    "StaticProgram": body(
        """        same = lambda x: torch.empty_like(x).as_strided(x.shape, x.stride()).copy_(x)
        self.copies = {n: same(inputs[n]) for n in moving}
        self.replay, self.results = capture(program, [self.copies.get(n, x) for n, x in enumerate(inputs)])""",
        """        for n, copy in self.copies.items():
            copy[...] = inputs[n]
        self.replay()
        keep = lambda result: result + 0 if isinstance(result, torch.Tensor) else result
        return tuple(map(keep, self.results))""",
    ),
    "pick": body(PICK),
    "product_source": body(PRODUCT),
}
COPY = "torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)"
REPLAYED = """        for n in self.moving:
            self.given[n].copy_(inputs[n])
        self.replay()
"""
WRONG = {
    "reasons": {
        "only inputs": edit(
            "    buffers = graph.buffers.values()",
            "    buffers = [buffer for buffer in graph.inputs if buffer is not None]",
        ),
        "only the CPU": edit('buffer.device.type != "cuda")', 'buffer.device.type == "cpu")'),
        "no constants": edit(
            "    buffers = graph.buffers.values()",
            "    buffers = [buffer for name, buffer in graph.buffers.items() if name not in graph.constants]",
        ),
        "one is enough": edit(
            'if buffer.device.type != "cuda"):',
            'if not any(b.device.type == "cuda" for b in buffers)):',
        ),
        "kinds of devices": edit("str(buffer.device) for", "buffer.device.type for"),
        "how many numbers": edit(
            "[n for n, buffer in enumerate(graph.inputs) if buffer is None]",
            "graph.inputs.count(None)",
        ),
        "never empty": edit("if not graph.nodes:", "if False:"),
        "in the order of the program": edit(
            'sorted(buffer.name for buffer in buffers if buffer.device.type != "cuda")',
            '[buffer.name for buffer in buffers if buffer.device.type != "cuda"]',
        ),
        "the first only": edit("    return found", "    return found[:1]"),
        "the library's own": body("    return cudagraphs.why_not(graph)"),
    },
    "diagnose": {
        "all at once": edit(
            "changed = list(base)\n        changed[n] = fresh()[n]", "changed = fresh()"
        ),
        "in place": edit("changed[n] = fresh()[n]", "changed[n].copy_(fresh()[n])"),
        "without three calls": edit("    for _ in range(3):\n        recorded(*base)\n", ""),
        "two calls": edit("range(3)", "range(2)"),
        "not cloned": edit("held.clone()", "held"),
        "the same memory is overwritten": edit(
            "    recorded(*fresh())\n    return stale, not torch.equal(held, before)",
            "    return stale, recorded(*fresh()).data_ptr() == held.data_ptr()",
        ),
        "only input 0 is changed": edit(
            "    recorded(*fresh())\n    return", "    recorded(fresh()[0], *base[1:])\n    return"
        ),
        "the first stale one": edit("stale.append(n)", "stale.append(n)\n            break"),
        "how many": edit("    return stale, not", "    return len(stale), not"),
    },
    "StaticProgram": {
        "stale": edit("            self.given[n].copy_(inputs[n])\n", "            pass\n"),
        "the caller's memory": edit(COPY, "x"),
        "another recording in each call": edit(
            "        self.replay()\n",
            "        self.replay, self.results = capture(self.program, self.given)\n",
            "        self.moving = list(moving)\n",
            "        self.moving = list(moving)\n        self.program = program\n",
        ),
        "copies all": edit("self.moving = list(moving)", "self.moving = list(range(len(inputs)))"),
        "an empty buffer": edit(COPY, "torch.empty_strided(x.shape, x.stride(), dtype=x.dtype)"),
        "static results": edit("r.clone() if isinstance(r, torch.Tensor) else r", "r"),
        "contiguous": edit(COPY, "torch.empty(x.shape, dtype=x.dtype).copy_(x)"),
        "floats": edit(COPY, "torch.empty_strided(x.shape, x.stride()).copy_(x)"),
        "copied when it moves": edit(
            "            self.given[n].copy_(inputs[n])\n",
            "            if getattr(self, 'at', {}).get(n) != inputs[n].data_ptr():\n"
            "                self.given[n].copy_(inputs[n])\n"
            "            self.at = {**getattr(self, 'at', {}), n: inputs[n].data_ptr()}\n",
        ),
        "the first that moves": edit(
            "        for n in self.moving:\n            self.given[n].copy_",
            "        for n in self.moving[:1]:\n            self.given[n].copy_",
        ),
        "only tensors": edit(
            "tuple(r.clone() if isinstance(r, torch.Tensor) else r for r in self.results)",
            "tuple(r.clone() for r in self.results if isinstance(r, torch.Tensor))",
        ),
        "the caller's tensor": edit(
            REPLAYED, REPLAYED + "        for n in self.moving:\n            inputs[n].zero_()\n"
        ),
    },
    "pick": {
        "the slowest": edit("best = min(", "best = max("),
        "never remembered": edit("        path.write_text(json.dumps(times))\n", ""),
        "one file for all kernels": edit("json.dumps([kernel, configs])", "json.dumps(configs)"),
        "one file for all configurations": edit(
            "json.dumps([kernel, configs])",
            "kernel",
            "type(times) is not list or len(times) != len(configs)",
            "type(times) is not list",
        ),
        "a set of configurations": edit(
            "json.dumps([kernel, configs])", "(kernel + str(sorted(map(str, configs))))"
        ),
        "the last of equals": edit(
            "min(range(len(configs)), key", "min(reversed(range(len(configs))), key"
        ),
        "how long the kernel is": edit(
            "json.dumps([kernel, configs])", "json.dumps([len(kernel), configs])"
        ),
        "how the kernel begins": edit(
            "json.dumps([kernel, configs])", "json.dumps([kernel[:200], configs])"
        ),
        "numbers without names": edit(
            "json.dumps([kernel, configs])",
            "json.dumps([kernel, [list(config.values()) for config in configs]])",
        ),
        "a hash of this process": edit(
            "hashlib.sha256(json.dumps([kernel, configs]).encode()).hexdigest()",
            "str(hash(json.dumps([kernel, configs])))",
        ),
        "every error is a refusal": edit("except Refused:", "except Exception:"),
        "refusals are slow": edit('float("inf"))', "1e9)"),
        "zero is a refusal": edit(
            "times.append(measure(config))", 'times.append(measure(config) or float("inf"))'
        ),
        "nonsense is read": edit(
            "        if type(times) is not list or len(times) != len(configs) "
            "or not all(type(t) in (int, float) for t in times):\n"
            "            raise ValueError\n",
            "        times = times or [0.0] * len(configs)\n",
        ),
    },
    "product_source": {
        "inside the loop": edit(
            '*(f"    {line}" for line in epilogue)', '*(f"        {line}" for line in epilogue)'
        ),
        "no epilogue": edit('        *(f"    {line}" for line in epilogue),\n', ""),
        "two of three pointers": edit('*extra, "out"', '*extra[:2], "out"'),
        "each line once": edit("for line in epilogue", "for line in dict.fromkeys(epilogue)"),
        "sums in float64": edit("tl.float32", "tl.float64"),
        "no rows masked in the load": edit(
            "(i < M) & (k[None, :] < K), 0.0", "(i > -1) & (k[None, :] < K), 0.0"
        ),
        "no columns masked in the load": edit(
            "(k[:, None] < K) & (j < N), 0.0", "(k[:, None] < K) & (j > -1), 0.0"
        ),
        "garbage beyond K": edit("(k[None, :] < K), 0.0)", "(k[None, :] < K))"),
        "changes its lists": edit(
            '    return "\\n"', '    epilogue.append("acc = acc + 0")\n    return "\\n"'
        ),
        "ieee in a comment": edit(', input_precision="ieee")', ")  # ieee"),
        "inside is said of rows": edit(
            "inside = (i < M) & (j < N)",
            "inside = (i < M) & (j > -1)",
            "acc, inside)",
            "acc, inside & (j < N))",
        ),
        "no rest of K": edit(
            "& (k[None, :] < K)", "& (k[None, :] > -1)", "(k[:, None] < K) &", "(k[:, None] > -1) &"
        ),
        "contiguous": edit(
            "AM * i + AK * k", "K * i + k", "BK * k[:, None] + BN * j", "N * k[:, None] + j"
        ),
        "one STEP only": edit("range(0, K, STEP)", "range(0, STEP, STEP)"),
        "ROWS for both": edit("tl.program_id(1) * COLUMNS", "tl.program_id(1) * ROWS"),
        "extra behind out": edit('["a", "b", *extra, "out"]', '["a", "b", "out", *extra]'),
        "stored twice": edit(
            '        *(f"    {line}" for line in epilogue),\n',
            '        "    tl.store(out + N * i + j, acc, inside)",\n        *(f"    {line}" for line in epilogue),\n',
        ),
        "only the last line": edit("for line in epilogue)", "for line in epilogue[-1:])"),
        "nothing": body("    return None"),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
