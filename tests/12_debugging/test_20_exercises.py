"""The checks of lesson 12's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("12_debugging")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


def found(stage, line, calls):
    return body(f"    return {stage!r}, {line!r}, {calls}")


LADDER = """    import contextlib
    from torch.utils._pytree import tree_map

    clone = lambda value: value.clone() if isinstance(value, torch.Tensor) else value
    runs = {}
    for backend in (None, "eager", "aot_eager", "inductor"):
        mine = copy.deepcopy(calls)
        function = f if backend is None else cl.compile(f, backend=backend, pipeline=pipeline)
        torch.manual_seed(0)
        runs[backend] = []
        for args in mine:
            result = function(*args)
            told = [clone(result), tree_map(clone, args)]
            if any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
                result.sum().backward()  # what comes in two calls has the sum of both, in eager as well
                told.append([a.grad for a in args if isinstance(a, torch.Tensor) and a.requires_grad])
            runs[backend].append(told)
    said = {}
    for backend in ("eager", "aot_eager", "inductor"):
        said[backend] = "wrong"
        with contextlib.suppress(AssertionError):
            torch.testing.assert_close(runs[backend], runs[None], rtol=1e-4, atol=1e-4)
            said[backend] = "right"
    return said"""

VERDICT = """    alike = got.shape == eager.shape and got.dtype == eager.dtype
    if not alike:
        return "bug"
    pairs = list(zip(got.flatten().tolist(), eager.flatten().tolist(), exact.flatten().tolist()))
    pairs = [(g, e, x) for g, e, x in pairs if math.isfinite(e) and math.isfinite(x)]
    if not all(math.isfinite(g) for g, _, _ in pairs):
        return "bug"
    mean = lambda values: math.sqrt(sum(values) / max(1, len(pairs)))
    ours, theirs = mean([(g - x) ** 2 for g, _, x in pairs]), mean([(e - x) ** 2 for _, e, x in pairs])
    size = mean([x * x for _, _, x in pairs])
    return "bug" if ours > 3 * theirs + torch.finfo(got.dtype).eps * size else "rounding\""""

LAYERS = """    seen, handles = [], []
    for name, layer in model.named_modules():
        if len(list(layer.children())) == 0:
            def hook(layer, args, result, name=name):
                seen.append((name, layer, args, result))
            handles.append(layer.register_forward_hook(hook))
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    for name, layer, args, result in seen:
        with torch.no_grad():
            if not torch.allclose(cl.compile(layer, pipeline=pipeline)(*args), result, rtol=1e-4, atol=1e-4):
                return name"""

BISECT = """    def search(before, suspects):
        if len(suspects) == 1:
            return suspects[0]
        half = len(suspects) // 2
        if is_right(before + suspects[:half]):
            return search(before, suspects[:half])
        return search(before + suspects[:half], suspects[half:])

    return search([], stages)"""

# number → (another right answer; the right stage; a wrong one; a wrong line of the exhibit; calls that fail; calls that pass)
MUSEUM = {
    1: (found("capture", 'worth_testing = [guard for guard in result.guards if guard.kind != "value"]',
              "[(torch.randn(5), 1.5), (torch.randn(5), 3.0), (torch.randn(5), 0.5)]"),
        "capture", "partition", "result = capture.capture(frame, interpreter, history, fullgraph)",
        "[(museum.ramp(2, 3), 2.0), (museum.ramp(2, 3), 1.0)]", "[(museum.ramp(2, 3), 2.0)]"),
    2: (found("capture", "graph.erase_node(node)", "[(torch.randn(5, 2), torch.randn(2), True)]"),
        "capture", "trace", "result.graph.recompile()",
        "[(museum.ramp(2, 3), torch.zeros(3), True)]", "[(museum.ramp(2, 3), torch.zeros(3), False)]"),
    3: (found("trace", "signature.results = tuple(parts)", "[(torch.randn(5, 2), 3)]"),
        "trace", "plan", "row.mul_(2)", "[(museum.ramp(2, 3), 1)]", "[(torch.zeros(2, 3), 1)]"),
    4: (found("partition", "return autograd.partition(joint, cheap)", "[(torch.ones(100).requires_grad_(), 0.3)]"),
        "partition", "joint", "def cheap(node):",
        "[(museum.ramp(8, 8).requires_grad_(), 0.5)]", "[(museum.ramp(8, 8), 0.5)]"),
    5: (found("trace", "if same is not node:", "[(torch.zeros(4), 5)]"),
        "trace", "lower", "traced.graph.eliminate_dead_code()", "[(museum.ramp(2, 3), 2)]", "[(museum.ramp(2, 3), 1)]"),
    6: (found("lower", "return  ops.masked(inside, lambda: node.inner(ops, index, rindex), 0)", "[(-torch.rand(5) - 1,)]"),
        "lower", "build", "lane = ops.index_expr(rindex[0], torch.int64)",
        "[(-museum.ramp(2, 3) - 1,)]", "[(-museum.ramp(2, 4) - 1,)]"),
    7: (found("lower", 'node.meta["val"] = torch.empty(fake.shape, dtype=fake.dtype)',
              "[(torch.randn(4, 4), torch.randn(4, 4).t())]"),
        "lower", "schedule", "with fake.fake_mode:",
        "[(museum.ramp(3, 2).t(), museum.ramp(2, 3))]", "[(museum.ramp(2, 3), museum.ramp(2, 3))]"),
    8: (found("schedule", "place = producer.place(self.index)", "[(torch.rand(5, 5),)]"),
        "schedule", "fuse", "super().__init__(ops)", "[(museum.ramp(2, 2) / 4,)]", "[(torch.eye(4),)]"),
    9: (found("build", "if x.data_ptr() != self.filled_from[n]:", "[(torch.ones(4), torch.ones(4))] * 3"),
        "build", "plan", "self.copies[n].copy_(x)",
        "[(weight := torch.zeros(3), museum.ramp(3)), (weight, museum.ramp(3))]", "[(torch.zeros(3), museum.ramp(3))]"),
    10: (found("build", "return self.ops.load(buffer, Mod(place, 2**16))", "[(torch.randn(2**16 + 1),)]"),
         "build", "lower", "for node in loops.nodes:",
         "[(museum.ramp(300, 300),)]", "[(museum.ramp(2**8, 2**8),)]"),
}  # fmt: skip

ALTERNATIVES = {
    "ladder": body(LADDER),
    "verdict": body("    import math\n" + VERDICT),
    "first_wrong_layer": body(LAYERS),
    "bisect_stage": body(BISECT),
    **{f"exhibit_{n}": about[0] for n, about in MUSEUM.items()},
}


def wrong_finds(n):
    """The same four mistakes for each exhibit."""
    _, stage, other_stage, other_line, calls, passing = MUSEUM[n]
    line = LESSON.reference(f"exhibit_{n}").split("line = ")[1].split("\n")[0]
    say = lambda *parts: body(f"    return {', '.join(parts)}")
    return {
        "another stage": say(repr(other_stage), line, calls),
        "another line": say(repr(stage), repr(other_line), calls),
        "calls that agree": say(repr(stage), line, passing),
        "a line that is not there": say(repr(stage), repr("return 42"), calls),
        "no stage": say(repr("fusion"), line, calls),
        "calls that are none": say(repr(stage), line, "None"),
    }


WRONG = {
    "ladder": {
        "another seed": edit("        torch.manual_seed(12)\n", ""),
        "no copies": edit("copy.deepcopy(calls)", "calls"),
        "each call for itself": edit("copy.deepcopy(calls)", "map(copy.deepcopy, calls)"),
        "only the result": edit(", *(t.clone() for t in tensors)", ""),
        "no gradients": edit(", *gradients]", "]"),
        "one gradient": edit("if t.requires_grad]", "if t.requires_grad][:1]"),
        "only the first call": edit("copy.deepcopy(calls)", "copy.deepcopy(calls[:1])"),
        "without the pipeline": edit(", pipeline=pipeline", ""),
    },
    "verdict": {
        "a tolerance for bfloat16": body('    return "rounding" if torch.allclose(got.double(), exact, rtol=0.016) else "bug"'),
        "no floor": edit(" + torch.finfo(got.dtype).eps * reference.square().mean().sqrt()", ""),
        "an absolute floor": edit(" * reference.square().mean().sqrt()", " * 10"),
        "the floor of float32": edit("torch.finfo(got.dtype).eps", "1.2e-7"),
        "not a bit worse than eager": edit("3 * rms(eager)", "1 * rms(eager)"),
        "any dtype": edit(" or got.dtype != eager.dtype", ""),
        "in the dtype of the result": edit(
            "(t[sound].double() - reference)", "(t[sound] - reference.to(t.dtype)).double()"
        ),
        "infinite is always a bug": edit("got.isfinite()[sound].all()", "got.isfinite().all()"),
        "where two are finite": edit("sound = exact.isfinite() & eager.isfinite()", "sound = eager.isfinite()"),
        "nan is nothing": edit('    if not got.isfinite()[sound].all():\n        return "bug"\n', ""),
    },
    "first_wrong_layer": {
        "as written in __init__": edit("for layer, args, result in ran:",
                                       "for layer, args, result in sorted(ran, key=lambda r: list(names).index(r[0])):"),
        "hooks stay": edit("            handle.remove()\n", "            pass\n", "in ran:", "in list(ran):"),
        "only the last time": edit(
            "ran.append((layer, args, result))", "last.update({layer: (layer, args, result)})",
            "ran = []", "last = {}\n    ran = last.values()",
        ),
        "the model's own input": edit("(*args)\n", "(*args) if len(args) > 1 else cl.compile(layer, pipeline=pipeline)(x)\n",
                                      "allclose(got, result", "allclose(got, layer(x) if len(args) == 1 else result"),
        "only children": edit("return names[layer]", 'return names[layer].split(".")[0]'),
        "one argument": edit("(*args)", "(args[0])"),
    },
    "bisect_stage": {
        "one after the other": body(
            "    for n in range(len(stages)):\n        if is_right(stages[: n + 1]):\n            return stages[n]"
        ),
        "the neighbour": edit("return stages[low]", "return stages[min(low + 1, len(stages) - 1)]"),
        "only what is left": edit("stages[:middle]", "stages[low:middle]"),
        "stops too early": edit("while high - low > 1:", "while high - low > 2:"),
    },
    **{f"exhibit_{n}": wrong_finds(n) for n in MUSEUM},
}  # fmt: skip

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
