"""The checks of lesson 15's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_A_COMPILER, Mutants, exercise_tests

LESSON = Mutants("15_capstone")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_A_COMPILER


CHAIN = """    types = "Frame CaptureResult GraphModule GraphModule Partition".split()
    front = [("capture", *types[:2]), ("joint", *types[2:4]), ("partition", *types[3:])]
    back = {"lower": ("GraphModule", "LoopGraph"), "schedule": ("LoopGraph", "Schedule"), "plan": ("Schedule", "MemoryPlan")}
    links = front + [(name, *both) for name, both in back.items()] + [("build", "LoopGraph", "CompiledGraph")]
    who = ["TorchDynamo"] + ["AOTAutograd"] * 2 + ["TorchInductor"] * 4
    return [(*link, name) for link, name in zip(links, who)]"""

PROBLEMS = """    words, results = [], []
    for _ in range(calls):
        given = fresh()
        own = [x.clone() for x in given]
        expected, got = model(*[x.clone() for x in given]), compiled(*own)
        results.append([got, got.detach().clone()])
        if [x for x, y in zip(own, given) if not bool(((x == y) | (x.isnan() & y.isnan())).all())]:
            words.append("inputs")
        try:
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        except AssertionError:
            words.append("values")
        else:
            weights = torch.rand_like(expected)
            for p in model.parameters():
                if p.requires_grad:
                    kwargs = {"allow_unused": True, "retain_graph": True, "materialize_grads": True}
                    one, two = (
                        torch.autograd.grad((out * weights).sum(), p, **kwargs)[0] if out.requires_grad else torch.zeros_like(p)
                        for out in (got, expected)
                    )
                    if not torch.allclose(one, two, rtol=1e-4, atol=1e-4):
                        words.append("gradients")
    if [now for now, then in results if not torch.equal(now.nan_to_num(), then.nan_to_num())]:
        words.append("memory")
    return set(words)"""

PASS = """    def up(node, *names):
        found = []
        for name in names:
            if kind(node) != name or node.kwargs or (found and len(node.users) > 1):
                return None
            found.append(node)
            node = node.args[0]
        return found

    count = 0
    for out in reversed(list(gm.graph.nodes)):
        found = up(out, "matmul", "softmax", "masked_fill", "mul", "matmul")
        if not found:
            continue
        _, weights, masked, scaled, scores = found
        turned = scores.args[1]
        plain = kind(turned) == "transpose" and len(turned.users) == 1 and sorted(d % 4 for d in turned.args[1:]) == [2, 3]
        numbers = not isinstance(scaled.args[1], fx.Node) and masked.args[2] == float("-inf") and weights.args[1:] == (-1,)
        if not (plain and numbers):
            continue
        with gm.graph.inserting_after(out):
            new = gm.graph.call_function(F.scaled_dot_product_attention, (scores.args[0], turned.args[0], out.args[1]))
        with gm.graph.inserting_before(new):
            seen = gm.graph.call_method("logical_not", (masked.args[1],))
        new.kwargs, new.meta = {"attn_mask": seen, "scale": scaled.args[1]}, dict(out.meta)
        out.replace_all_uses_with(new)
        count += 1
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return count"""

BACKEND = """    p, rest = pipeline, pipeline.decompositions
    values = [node.meta["example_value"] for node in gm.graph.nodes if node.op == "placeholder"]
    if any(not torch.is_tensor(v) or any(isinstance(n, torch.SymInt) for n in v.shape) for v in values):
        return gm.forward
    for node, value in zip(gm.graph.nodes, values):
        node.meta["val"] = value
    graph = (p.joint if wants_gradients(example_inputs) else p.trace)(gm, rest)
    parts = p.partition(graph, lowering.may_recompute) if wants_gradients(example_inputs) else None
    programs = []
    for half in (parts.forward, parts.backward) if parts else (graph,):
        loops = p.lower(half)
        kernels = p.schedule(loops, p.fuse)
        programs.append(p.build(loops, kernels, p.plan(kernels, loops), "auto"))
    if parts:
        return autograd.differentiable(*programs, graph.meta["signature"], parts, gm.forward)
    return autograd.finished(programs[0], graph.meta["signature"], gm.forward)"""

ALTERNATIVES = {
    "chain": body(CHAIN),
    "problems": body(PROBLEMS),
    "fuse_attention": body(PASS),
    "my_backend": body(BACKEND),
}
CAPTURE = '        ("capture", "Frame", "CaptureResult", "TorchDynamo"),\n'
JOINT = '        ("joint", "GraphModule", "GraphModule", "AOTAutograd"),\n'
CUT = '        ("partition", "GraphModule", "Partition", "AOTAutograd"),\n'
LOWER = '        ("lower", "GraphModule", "LoopGraph", "TorchInductor"),\n'
SCHEDULE = '        ("schedule", "LoopGraph", "Schedule", "TorchInductor"),\n'
PLAN = '        ("plan", "Schedule", "MemoryPlan", "TorchInductor"),\n'
FINISHED = 'autograd.finished(program(aten), aten.meta["signature"], gm.forward)'
WANTS = "if wants_gradients(example_inputs):"
UNCHANGED = "torch.allclose(x, before, rtol=0, atol=0, equal_nan=True)"
HALVES = "program(parts.forward), program(parts.backward)"
WRONG = {
    "chain": {
        "one is missing": edit(PLAN, ""),
        "a tuple": edit("return [", "return (", "    ]", "    )"),
        "capture last": edit(CAPTURE, "", "    ]", CAPTURE + "    ]"),
        "fused before there are loops": edit(LOWER, "", PLAN, LOWER + PLAN),
        "planned before it is fused": edit(SCHEDULE, "", PLAN, PLAN + SCHEDULE),
        "cut before it is joined": edit(JOINT + CUT, CUT + JOINT),
        "capture gives the graph": edit('"Frame", "CaptureResult"', '"Frame", "GraphModule"'),
        "joint takes the capture": edit('"joint", "GraphModule"', '"joint", "CaptureResult"'),
        "lower takes both halves": edit('"lower", "GraphModule"', '"lower", "Partition"'),
        "build takes the plan": edit('"build", "LoopGraph"', '"build", "MemoryPlan"'),
        "the cut is Inductor's": edit('"Partition", "AOTAutograd"', '"Partition", "TorchInductor"'),
        "the joint graph is Dynamo's": edit('"GraphModule", "AOTAutograd"', '"GraphModule", "TorchDynamo"'),
    },
    "problems": {
        "a list": edit("return found", "return sorted(found)"),
        "inputs are not looked at": edit('found.add("inputs")', "pass"),
        "the first input": edit("zip(mine, inputs)", "zip(mine[:1], inputs)"),
        "four calls": edit("range(calls)", "range(4)"),
        "gradients of the first call": edit(
            "        tangent = torch.randn_like(expected)\n",
            "        if len(kept) > 1:\n            continue\n        tangent = torch.randn_like(expected)\n",
        ),
        "wrong values end it": edit('found.add("values")\n            continue', 'found.add("values")\n            break'),
        "absolute or relative": edit(
            "torch.allclose(one, other, rtol=1e-4, atol=1e-4)",
            "bool(((one - other).abs() <= torch.clamp(1e-4 * other.abs(), min=1e-4)).all())",
        ),
        "inputs are nearly the same": edit("before, rtol=0, atol=0, e", "before, atol=1e-4, e"),
        "inputs with a NaN are changed": edit(UNCHANGED, "torch.equal(x, before)"),
        "NaN in an input counts as 0": edit(UNCHANGED, "torch.equal(x.nan_to_num(), before.nan_to_num())"),
        "inputs with a NaN are not looked at": edit(UNCHANGED, "torch.equal(x, before) or bool(x.isnan().any())"),
        "results are not kept": edit('found.add("memory")', "pass"),
        "exactly equal": edit("torch.allclose(one, other, rtol=1e-4, atol=1e-4)", "torch.equal(one, other)"),
        "gradients exactly equal": edit(
            "all(same(g, e) for g, e in pairs)", "all(g is e or (g is not None and torch.equal(g, e)) for g, e in pairs)"
        ),
        "absolute only": edit("rtol=1e-4, atol=1e-4)", "rtol=0, atol=1e-4)"),
        "any dtype": edit(
            " or one.dtype != other.dtype", "",
            "torch.allclose(one, other, r", "torch.allclose(one.float(), other.float(), r",
        ),
        "shapes broadcast": edit("one.shape != other.shape or ", ""),
        "NaN is no difference": edit(
            "torch.allclose(one, other, rtol=1e-4, atol=1e-4)",
            "not bool(((one - other).abs() > 1e-4 + 1e-4 * other.abs()).any())",
        ),
        "no gradients": edit('found.add("gradients")', "pass"),
        "a tangent of ones": edit("torch.randn_like(expected)", "torch.ones_like(expected)"),
        "three calls": edit("range(calls)", "range(calls - 1)"),
        "one copy for both": edit(
            "theirs, mine = ([x.clone() for x in inputs] for _ in range(2))", "theirs = mine = [x.clone() for x in inputs]",
            "expected, got = model(*theirs), compiled(*mine)", "got = compiled(*mine); expected = model(*theirs)",
        ),
        "frozen ones too": edit("[p for p in model.parameters() if p.requires_grad]", "list(model.parameters())"),
        "a result without gradients": edit(" if out.requires_grad else [None] * len(wanted)", ""),
        "only the first parameter": edit("[p for p in model.parameters() if p.requires_grad]", "[*model.parameters()][:1]"),
    },
    "fuse_attention": {
        "nothing": body("    return 0"),
        "the mask as it is": edit("torch.logical_not, (mask,)", "torch.clone, (mask,)"),
        "the default scale": edit(', "scale": scale', ""),
        "causal": edit('options = {"attn_mask": seen, "scale": scale}', 'options = {"is_causal": True, "scale": scale}'),
        "only negative dimensions": edit("{d % 4 for d in turned.args[1:]} == {2, 3}", "set(turned.args[1:]) == {-1, -2}"),
        "any transpose": edit("{d % 4 for d in turned.args[1:]} == {2, 3}", "True"),
        "any softmax": edit("weights.args[1] == -1", "True"),
        "no meta": edit("        new.meta = dict(out.meta)\n", ""),
        "the old code": edit("    gm.recompile()\n", ""),
        "floats only": edit("isinstance(scaled.args[1], (int, float))", "isinstance(scaled.args[1], float)"),
        "either infinity": edit("masked.args[2] == -torch.inf", "abs(masked.args[2]) == torch.inf"),
        "very small numbers": edit("masked.args[2] == -torch.inf", "-torch.inf <= masked.args[2] < -100"),
        "any filling": edit("masked.args[2] == -torch.inf", "True"),
        "keyword arguments": edit(" and not node.kwargs", ""),
        "other users": edit(" and len(node.users) == 1", ""),
        "other users of the scaled scores": edit(
            'step(scaled, "mul", 2)', 'kind(scaled) == "mul" and len(scaled.args) == 2 and not scaled.kwargs'
        ),
        "other users of the masked scores": edit(
            'step(masked, "masked_fill", 3)', 'kind(masked) == "masked_fill" and len(masked.args) == 3 and not masked.kwargs'
        ),
        "a tensor as the scale": edit("isinstance(scaled.args[1], (int, float))", "True"),
        "once only": edit("        count += 1\n", "        count += 1\n        break\n"),
        "the old nodes stay": edit("    gm.graph.eliminate_dead_code()\n", ""),
    },
    "my_backend": {
        "the graph as it is": body("    return gm.forward"),
        "the answer": body(
            "    for node in gm.graph.find_nodes(op='placeholder'):\n        node.meta['val'] = node.meta['example_value']\n"
            "    return pipeline.run_compile(gm, 'auto', wants_gradients(example_inputs))"
        ),
        "no val": edit('value = node.meta["val"] = node.meta["example_value"]', 'value = node.meta["example_value"]'),
        "not finished": edit(FINISHED, "lambda *args: program(aten)(*args)[0]"),
        "without the signature": edit(FINISHED, "program(aten)"),
        "the default fuse": edit("pipeline.fuse", "cl.Pipeline().fuse"),
        "the default decompositions": edit("pipeline.trace(gm, pipeline.d", "pipeline.trace(gm, cl.Pipeline().d"),
        "the default decompositions, with gradients": edit(
            "pipeline.joint(gm, pipeline.d", "pipeline.joint(gm, cl.Pipeline().d"
        ),
        "always C++": edit('"auto"', '"cpp"'),
        "another rule": edit("lowering.may_recompute", "lambda node: False"),
        "symbols in the example inputs": edit(
            'for node in gm.graph.find_nodes(op="placeholder"):',
            'for node, value in zip(gm.graph.find_nodes(op="placeholder"), example_inputs):',
            'value = node.meta["val"] = node.meta["example_value"]', 'node.meta["val"] = node.meta["example_value"]',
        ),
        "never gradients": edit(WANTS, "if False:"),
        "gradients whenever a parameter has some": edit(
            WANTS, "if any(torch.is_tensor(x) and x.requires_grad for x in example_inputs):"
        ),
        "gradients whenever they are on": edit(WANTS, "if torch.is_grad_enabled():"),
        "numbers are compiled": edit("not isinstance(value, torch.Tensor) or not", "isinstance(value, torch.Tensor) and not"),
        "forward twice": edit(HALVES, "program(parts.forward), program(parts.forward)"),
        "backward in eager": edit(HALVES, "program(parts.forward), parts.backward.forward"),
    },
}  # fmt: skip

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
