"""The checks of lesson 06's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("06_aot_autograd")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


STEP = "    after = 0.9 * running + 0.1 * x.mean(0)\n    return x - after, after"
MASKED = """    first = torch.arange(x.shape[1]) == 0
    later = (torch.arange(x.shape[0]) > 0)[:, None]
    return torch.where(first, 0.0, x * 2) + later"""
LATE = "    first = (x + y)[0]\n    return first * 10, first + 1"

SOFTMAX = """    e = torch.exp(x.to(torch.float32 if x.dtype.itemsize == 2 else x.dtype) - x.max(dim, keepdim=True)[0])
    return (e * (1 / e.sum(dim).unsqueeze(dim))).to(x.dtype)"""
BACKWARD = "    return output * (grad - (output * grad).sum(dim, keepdim=True))"
NORM = """    over = tuple(-1 - n for n in range(len(shape)))
    mean = x.mean(over, keepdim=True)
    rstd = 1 / ((x * x).mean(over, keepdim=True) - mean * mean + eps).sqrt()
    return (x - mean) * rstd * (1 if weight is None else weight) + (0 if bias is None else bias), mean, rstd"""

FEWEST = """    forward, needed = [], set(gradients)
    late = set(tangents)
    for node in joint.graph.nodes:
        (late.add if late & {node, *node.all_input_nodes} else forward.append)(node)
    for node in list(joint.graph.nodes)[::-1]:
        needed |= set(node.all_input_nodes) if node in needed else set()
    forward = [node for node in forward if node in needed]
    network = networkx.DiGraph()
    network.add_edge("source", "sink", capacity=0)
    for node in forward:
        size = (math.inf if node in overwritten(joint) else 0) if node.op == "placeholder" else nbytes(node)
        network.add_edge(f"{node.name} in", f"{node.name} out", capacity=size)
        if node.op == "placeholder" or not may_recompute(node):
            network.add_edge("source", f"{node.name} in")
        for user in node.users:
            if user in needed:
                network.add_edge(f"{node.name} out", f"{user.name} in" if user in forward else "sink")
    left, right = networkx.minimum_cut(network, "source", "sink")[1]
    return [node for node in forward if f"{node.name} in" in left and f"{node.name} out" in right]"""
"""An edge without a capacity has an infinite one."""

CHAIN = """    x, y = args[0], args[1] if len(args) > 1 else None
    one = not torch.is_tensor(y)
    match op:
        case aten.add.Tensor: return (g,) if one else (g, alpha * g)
        case aten.sub.Tensor: return (g,) if one else (g, g * -alpha)
        case aten.mul.Tensor: return (g * y,) if one else (g * y, g * x)
        case aten.div.Tensor: return (g / y,) if one else (g / y, -g * x / (y * y))
        case aten.neg.default: return (g * -1,)
        case aten.exp.default: return (g * x.exp(),)
        case aten.tanh.default: return (g - g * out**2,)
        case aten.mm.default: return torch.mm(g, y.t()), torch.mm(x.t(), g)
        case aten.addmm.default: return g.sum(0), torch.mm(g, args[2].t()), torch.mm(y.t(), g)
        case aten.t.default: return (g.transpose(0, 1),)
        case aten.view.default: return (g.view(x.shape),)
        case aten.sum.default: return (g * torch.ones_like(x),)
    kept = [1 if n in [d % x.ndim for d in y] else size for n, size in enumerate(x.shape)]
    return (g.reshape(kept) + torch.zeros_like(x),)"""
WALK = """    for node in list(graph.nodes)[::-1]:
        if node.op == "call_function" and node in gradients:
            args = fx.node.map_arg(node.args, values.get)
            found = iter(derivative(node.target, gradients[node], values[node], *args, **node.kwargs))
            for source in [a for a in node.args if isinstance(a, fx.Node)]:
                part = next(found).sum_to_size(values[source].shape)
                gradients[source] = gradients.get(source, 0) + part
    return gradients"""

GRAD = """    leaf = torch.ones(1, requires_grad=True)
    with torch.enable_grad():
        torch.autograd.grad(leaf.sum(), [leaf])
"""

ALTERNATIVES = {
    "functional": body(STEP, MASKED, LATE),
    "decompositions": body(SOFTMAX, BACKWARD, NORM),
    "frugal": body(
        """    random = node.op == "call_function" and node.target is not operator.getitem
    random = random and torch.Tag.nondeterministic_seeded in node.target.tags
    return not random and node.target not in EXPENSIVE"""
    ),
    "what_to_keep": body(FEWEST),
    "joint": body(CHAIN, WALK),
}
WRONG = {
    "functional": {
        "writes to a copy": edit(
            "running = running * 0.9\n", "running = running.clone().mul_(0.9)\n"
        ),
        "the running mean of before": edit(
            "return x - running, running", "return x - (running - 0.1 * x.mean(0)) / 0.9, running"
        ),
        "what it held before": edit(
            "return x - running, running", "return x - running, (running - 0.1 * x.mean(0)) / 0.9"
        ),
        "added before it is masked": edit(
            "y = torch.select_scatter(y, torch.zeros_like(y[:, 0]), 1, 0)",
            "y = torch.slice_scatter(y, y[1:] + 1, 0, 1)",
            "return torch.slice_scatter(y, y[1:] + 1, 0, 1)",
            "return torch.select_scatter(y, torch.zeros_like(y[:, 0]), 1, 0)",
        ),
        "added to every row": edit("torch.slice_scatter(y, y[1:] + 1, 0, 1)", "y + 1"),
        "the view of before": edit("return total[0], before", "return total[0] / 10, before"),
        "before sees the write": edit("return total[0], before", "return total[0], total[0] + 1"),
        "half of the gradient": edit("    y = x * 2\n", "    y = x + x.detach()\n"),
        "a list": edit("return total[0], before", "return [total[0], before]"),
        "torch's own": body(STEP, "    return torch.func.functionalize(masked_in_place)(x)", LATE),
    },
    "decompositions": {
        "no largest element": edit("(wide - wide.amax(dim, keepdim=True)).exp()", "wide.exp()"),
        "always the last dimension": edit(
            "wide.amax(dim, keepdim=True)", "wide.amax(-1, keepdim=True)", "e.sum(dim,", "e.sum(-1,"
        ),
        "in half precision": edit(
            "wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x", "wide = x"
        ),
        "always in float32": edit(
            "x.float() if x.dtype in (torch.float16, torch.bfloat16) else x", "x.float()"
        ),
        "float16 alone": edit("in (torch.float16, torch.bfloat16)", "in (torch.float16,)"),
        "the composite itself": edit(
            "return (e / e.sum(dim, keepdim=True)).to(x.dtype)", "return torch.softmax(x, dim)"
        ),
        "the library's own": body(
            "    return lowering.DECOMPOSITIONS[aten._softmax.default](x, dim, half_to_float)",
            BACKWARD,
            NORM,
        ),
        "the sum of its backward has lost its dimension": edit(
            "product.sum(dim, keepdim=True)", "product.sum(dim)"
        ),
        "each element on its own": edit(
            "return product - output * product.sum(dim, keepdim=True)",
            "return product * (1 - output)",
        ),
        "summed along the last": edit("product.sum(dim,", "product.sum(-1,"),
        "the variance of a sample": edit(
            "(centred * centred).mean(dims, keepdim=True)",
            "(centred * centred).sum(dims, keepdim=True) / (x.shape[-1] - 1)",
        ),
        "the deviation itself": edit("return result, mean, rstd", "return result, mean, 1 / rstd"),
        "eps outside the root": edit(
            "((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()",
            "1 / ((centred * centred).mean(dims, keepdim=True).sqrt() + eps)",
        ),
        "no bias without a weight": edit(
            "if bias is not None:", "if bias is not None and weight is not None:"
        ),
        "one dimension": edit(
            "dims = list(range(x.ndim - len(shape), x.ndim))", "dims = [x.ndim - 1]"
        ),
        "the mean has lost its dimension": edit(
            "return result, mean, rstd",
            "return result, mean.squeeze(-1) if len(shape) == 1 else mean, rstd",
        ),
        "two of three": edit("return result, mean, rstd", "return result, rstd"),
    },
    "frugal": {
        "everything": body("    return True"),
        "the library's rule": body("    return lowering.may_recompute(node)"),
        "also what is random": body("    return node.target not in EXPENSIVE"),
        "random by its name": edit(
            'torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())',
            '"bernoulli" not in str(node.target)',
        ),
        "more names": edit(
            'torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())',
            'not any(word in str(node.target) for word in ("bernoulli", "rand", "normal"))',
        ),
        "products by their name": edit(
            "if node.target in EXPENSIVE:", 'if "mm" in str(node.target):'
        ),
        "only what has tags": edit(
            'torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())',
            'hasattr(node.target, "tags") and torch.Tag.nondeterministic_seeded not in node.target.tags',
        ),
        "nothing is said": edit(
            "    if node.target in EXPENSIVE:\n        return False\n    return", "    _ ="
        ),
    },
    "what_to_keep": {
        "all that backward reads": body("""    late = set(tangents)
    for node in joint.graph.nodes:
        late |= {node} if late & set(node.all_input_nodes) else set()
    return [node for node in joint.graph.nodes if node not in late and any(user in late for user in node.users)]"""),
        "each edge is a pipe": edit(
            '(node, "out"), capacity=cost(node))',
            '(node, "out"), capacity=math.inf)',
            '(node, "out"), "sink", capacity=math.inf',
            '(node, "out"), (node, user), capacity=cost(node))\n'
            '                network.add_edge((node, user), "sink", capacity=math.inf',
            '(node, "out"), (user, "in"), capacity=math.inf',
            '(node, "out"), (user, "in"), capacity=cost(node)',
            'if (node, "in") in left and (node, "out") in right]',
            'if (node, "out") in left and any((user, "in") in right or (node, user) in right for user in node.users)]',
        ),
        "inputs cost their bytes": edit(
            "math.inf if node in overwritten(joint) else 0",
            "math.inf if node in overwritten(joint) else nbytes(node) - 1",
        ),
        "what is overwritten is kept": edit("math.inf if node in overwritten(joint) else 0", "0"),
        "the rule is not asked": edit(
            "if node in inputs or not may_recompute(node):", "if node in inputs:"
        ),
        "a tuple is free": edit(
            "        return nbytes(node)",
            "        return nbytes(node) if nbytes(node) < math.inf else 1",
        ),
        "elements, not bytes": edit(
            "        return nbytes(node)",
            '        return node.meta["val"].numel() if nbytes(node) < math.inf else math.inf',
        ),
        "only what reads a tangent": edit(
            'if node.op == "call_function" and backward & set',
            'if node.op == "call_function" and set(tangents) & set',
        ),
        "a set": edit(
            "return [node for node in joint.graph.nodes if",
            "return {node for node in joint.graph.nodes if",
            "in right]",
            "in right}",
        ),
        "inputs are computed again": edit(
            "if node in inputs or not may_recompute(node):",
            "if not (node in inputs or may_recompute(node)):",
        ),
        "the library's own": body(
            "    return list(autograd.partition(joint, may_recompute).saved)"
        ),
    },
    "joint": {
        "the last gradient counts": edit(
            "gradients[source] + gradient if source in gradients else gradient", "gradient"
        ),
        "as it comes": edit("gradient = gradient.sum_to_size(values[source].shape)", "pass"),
        "from the front": edit("for node in reversed(graph.nodes):", "for node in graph.nodes:"),
        "torch's own": edit(
            "    for node in reversed(graph.nodes):\n",
            GRAD + "    for node in reversed(graph.nodes):\n",
        ),
        "a product turned": edit(
            "(g @ b.t(), a.t() @ g),\n        aten.addmm",
            "(b @ g.t(), g.t() @ a),\n        aten.addmm",
        ),
        "tanh without its square": edit("1 - out * out", "1 - out"),
        "factors exchanged": edit("lambda x, y: (g * y, g * x)", "lambda x, y: (g * x, g * y)"),
        "a difference is a sum": edit("(g, -g * alpha)", "(g, g * alpha)"),
        "a quotient without a sign": edit("-g * out / y", "g * out / y"),
        "exp of the result": edit(
            "(g * out,),\n        aten.tanh", "(g * out.exp(),),\n        aten.tanh"
        ),
        "a number has a gradient": edit(
            "return found if all(map(torch.is_tensor, args[: len(found)])) else found[:1]",
            "return found",
        ),
        "the bias is left out": edit(
            "lambda bias, a, b: (g, g @ b.t(), a.t() @ g)",
            "lambda bias, a, b: (g * 0, g @ b.t(), a.t() @ g)",
        ),
        "alpha is left out": edit("(g, g * alpha)", "(g, g)"),
        "alpha of a sum only": edit("(g, -g * alpha)", "(g, -g)"),
        "alpha is not handed on": edit(", **node.kwargs", ""),
        "dimensions as they come": edit("sorted(d % x.ndim for d in dims)", "dims"),
        "dimensions from the last": edit(
            "sorted(d % x.ndim for d in dims)", "sorted((d % x.ndim for d in dims), reverse=True)"
        ),
        "dimensions sorted as they are written": edit(
            "sorted(d % x.ndim for d in dims)", "sorted(dims)"
        ),
        "the sum keeps its dimension": edit(" if not keepdim else ()", " if False else ()"),
        "a view stays": edit("(g.reshape(x.shape),)", "(g,)"),
        "the mean of everything": edit(
            "aten.sum.default: lambda x: (g.expand(x.shape),)",
            "aten.sum.default: lambda x: (g.expand(x.shape) / x.numel(),)",
        ),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
