"""The checks of lesson 07's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("07_lowering_to_loops")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


INTERVALS = [
    "        low, high = self.known[buffer]\n        return low, high",
    "        return (float(value),) * 2",
    "        return self.mul((-1.0, -1.0), x)",
    "        return self.maximum((0.0, 0.0), self.maximum(x, self.neg(x))) if x[0] * x[1] > 0 else (0.0, max(-x[0], x[1]))",
    "        return tuple(math.exp(end) if end < 700 else math.inf for end in x)",
    "        return tuple(a + b for a, b in zip(x, y))",
    "        return self.add(x, self.neg(y))",
    """        ends = sorted(a * b if a and b else 0.0 for a in x for b in y)
        return ends[0], ends[-1]""",
    "        return tuple(map(max, x, y))",
    "        return self.neg(self.maximum(self.neg(x), self.neg(y)))",
    "        return self.minimum(yes, no)[0], self.maximum(yes, no)[1]",
]
"""`abs`: both signs, or 0 to the end that is farther away."""

LOWER = """    def convert(term, dtype):
        return lambda ops, index: ops.to_dtype(term(ops, index), dtype)

    def argument(arg, dtype):
        if isinstance(arg, View):
            return convert(arg.load, dtype)
        return lambda ops, index: ops.constant(arg, dtype)

    def applied(op, terms):
        return lambda ops, index: getattr(ops, op)(*(term(ops, index) for term in terms))

    longer = "b" * (1 + max(len(node.name) for node in gm.graph.nodes))
    for number, node in enumerate(gm.graph.nodes):
        fake = node.meta.get("val")
        if node.op == "placeholder":
            graph.inputs.append(Buffer.like(fake, node.name) if hasattr(fake, "stride") else None)
            values[node] = graph.inputs[-1].view() if graph.inputs[-1] else fake
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
        if node.op == "output":
            graph.outputs += args[0]
        elif node.target is operator.getitem:
            values[node] = operator.getitem(*args)
        elif node.target in VIEWS:
            values[node] = seen_as(node, args[0])
        elif node.target not in POINTWISE or kwargs:
            call, values[node] = library_call(node, args, kwargs, f"{longer}{number}")
            graph.nodes += [call]
        else:
            op, *more = POINTWISE[node.target]
            terms = [argument(arg, compute_dtype(fake.dtype)) for arg in (*args, *more)]
            values[node] = Buffer.like(fake, f"{longer}{number}").view()
            inner = convert(applied(op, terms), fake.dtype)
            graph.nodes += [Pointwise(values[node].buffer, tuple(fake.shape), inner, (node,), op)]"""

ALTERNATIVES = {
    "views": body(
        """    shape, stride = [[part[d] for d in dims] for part in (shape, stride)]
    return tuple(shape), tuple(stride), offset""",
        "    return shape[:dim] + shape[dim + 1 :], stride[:dim] + stride[dim + 1 :], offset + stride[dim] * index",
        """    sizes = tuple(len(range(start, stop, step)) if d == dim else n for d, n in enumerate(shape))
    steps = tuple(n * step if d == dim else n for d, n in enumerate(stride))
    return sizes, steps, start * stride[dim] + offset""",
        """    front = len(shape) - len(old_shape)
    old = (None,) * front + tuple(old_shape)
    step = (0,) * front + tuple(old_stride)
    return tuple(shape), tuple(0 if have == 1 or have is None else n for have, n in zip(old, step)), offset""",
    ),
    "bounds": body(*INTERVALS),
    "matmul": body(
        """    rank = len(a.shape)
    first = View(a.buffer, (*a.shape[:-1], 1, a.shape[-1]), (*a.stride[:-1], 0, a.stride[-1]), a.offset)
    turned = lambda of: (*of[: rank - 2], 1, of[-1], of[-2])
    second = View(b.buffer, turned(b.shape), turned(b.stride), b.offset)

    def inner(ops, index, rindex):
        place = [*index, *rindex]
        return ops.mul(*(ops.to_dtype(view.load(ops, place), dtype) for view in (first, second)))

    return tuple(a.shape[:-1]) + (b.shape[-1],), (b.shape[-2],), inner"""
    ),
    "my_lower": body(LOWER),
}


def loops_called(name):
    """7.4, with another name for the buffers of loops."""
    return edit('Buffer.like(fake, f"{own}{len(graph.nodes)}")', f"Buffer.like(fake, {name})")


WRONG = {
    "views": {
        "only the shape turns": edit("tuple(stride[d] for d in dims)", "stride"),
        "the other way round": edit(
            "return tuple(shape[d] for d in dims), tuple(stride[d] for d in dims), offset",
            "back = [dims.index(d) for d in range(len(dims))]\n"
            "    return tuple(shape[d] for d in back), tuple(stride[d] for d in back), offset",
        ),
        "permute starts at 0": edit("for d in dims), offset", "for d in dims), 0"),
        "the offset counts rows": edit("offset + index * stride[dim]", "offset + index"),
        "select forgets where it was": edit("offset + index * stride[dim]", "index * stride[dim]"),
        "the step is forgotten": edit("steps[dim] * step", "steps[dim]"),
        "rounded down": edit("-(-(stop - start) // step)", "(stop - start) // step"),
        "a cut begins at its start": edit("offset + start * stride[dim]", "offset + start"),
        "a cut begins at the beginning": edit(
            "offset + start * stride[dim]", "start * stride[dim]"
        ),
        "what is expanded keeps its stride": edit("step if size == old else 0", "step"),
        "expanded everywhere": edit("step if size == old else 0", "0"),
        "new dimensions behind": edit(
            "steps = [0] * new",
            "steps = []",
            "tuple(steps), offset\n",
            "(*steps, *[0] * new), offset\n",
        ),
    },
    "bounds": {
        "sides of a difference": edit("x[0] - y[1], x[1] - y[0]", "x[0] - y[0], x[1] - y[1]"),
        "two corners of a product": edit(
            "corners = [0.0 if 0 in (a, b) else a * b for a in x for b in y]",
            "corners = [x[0] * y[0], x[1] * y[1]]",
        ),
        "negated in place": edit("return -x[1], -x[0]", "return -x[0], -x[1]"),
        "abs of the ends": edit("(0.0 if x[0] <= 0 <= x[1] else min(ends))", "min(ends)"),
        "abs from zero": edit("(0.0 if x[0] <= 0 <= x[1] else min(ends))", "0.0"),
        "exp overflows": edit("return math.inf", "return math.exp(700.0)"),
        "the low end of exp overflows": edit(
            "return of(x[0]), of(x[1])", "return math.exp(x[0]), of(x[1])"
        ),
        "large is infinite": edit(
            "try:\n", "if number > 100:\n                return math.inf\n            try:\n"
        ),
        "a square is not negative": edit(
            "return min(corners), max(corners)",
            "return 0.0 if x == y else min(corners), max(corners)",
        ),
        "the larger interval": edit(
            "max(x[0], y[0]), max(x[1], y[1])", "min(x[0], y[0]), max(x[1], y[1])"
        ),
        "the smaller interval": edit(
            "min(x[0], y[0]), min(x[1], y[1])", "min(x[0], y[0]), max(x[1], y[1])"
        ),
        "always yes": edit("min(yes[0], no[0]), max(yes[1], no[1])", "yes"),
        "nan": edit("0.0 if 0 in (a, b) else a * b", "a * b"),
        "nobody knows": edit("return self.known[buffer]", "return ANYTHING"),
        "around zero": edit(
            "return float(value), float(value)", "return -abs(float(value)), abs(float(value))"
        ),
        "an int": edit("return float(value), float(value)", "return value, value"),
    },
    "matmul": {
        "turned ranges": edit(
            "ranges = (*a.shape[:-1], b.shape[-1])",
            "ranges = (*a.shape[:-2], b.shape[-1], a.shape[-2])",
        ),
        "the wrong dimension": edit(
            "return ranges, (a.shape[-1],), inner", "return ranges, (b.shape[-1],), inner"
        ),
        "a turned": edit(
            "a.load(ops, [*batch, row, *rindex])", "a.load(ops, [*batch, *rindex, row])"
        ),
        "strides by hand": edit(
            "b.load(ops, [*batch, *rindex, column])",
            "ops.load(b.buffer.name, b.offset + rindex[0] * b.shape[-1] + column + sum(batch) * (b.shape[-1] * b.shape[-2]))",
        ),
        "offset forgotten": edit(
            "b.load(ops, [*batch, *rindex, column])",
            "View(b.buffer, b.shape, b.stride, 0).load(ops, [*batch, *rindex, column])",
        ),
        "one batch for all": edit(
            "b.load(ops, [*batch, *rindex, column])",
            "b.load(ops, [*(0 * i for i in batch), *rindex, column])",
        ),
        "converted afterwards": edit(
            "ops.mul(ops.to_dtype(left, dtype), ops.to_dtype(right, dtype))",
            "ops.to_dtype(ops.mul(left, right), dtype)",
        ),
        "only a is converted": edit("ops.to_dtype(right, dtype)", "right"),
        "added": edit("ops.mul(ops.to_dtype", "ops.add(ops.to_dtype"),
    },
    "my_lower": {
        "views are calls": edit("elif node.target in VIEWS:", "elif False:"),
        "alpha is forgotten": edit(
            "node.target in POINTWISE and not kwargs", "node.target in POINTWISE"
        ),
        "everything is a call": edit("node.target in POINTWISE and not kwargs", "False"),
        "operands in their own dtype": edit(
            "return ops.to_dtype(arg.load(ops, index), dtype)", "return arg.load(ops, index)"
        ),
        "constants as they are stored": edit(
            "ops.constant(arg, dtype)", "ops.constant(arg, fake.dtype)"
        ),
        "constants are floats": edit("ops.constant(arg, dtype)", "ops.constant(float(arg), dtype)"),
        "computed in float32 and left so": edit(
            "Buffer.like(fake, f",
            "Buffer.like(fake.float() if fake.dtype is torch.float16 else fake, f",
        ),
        "numbers of the table are forgotten": edit(
            "[*args, *numbers]", "[*args, *numbers][:2] if numbers else [*args][::-1]"
        ),
        "numbers are no inputs": edit(
            "graph.inputs.append(buffer)", "graph.inputs += [buffer] if buffer else []"
        ),
        "the library's names": loops_called('f"buf{len(graph.nodes)}"'),
        "one name for all": loops_called('"loop"'),
        "a loop's name that an input may have": loops_called('f"loop_{node.name}"'),
        "a call's name that an input may have": edit(
            'kwargs, f"{own}{len(graph.nodes)}"', 'kwargs, f"call_{node.name}"'
        ),
        "the shape of the input": edit(
            "Pointwise(buffer, buffer.shape,",
            "Pointwise(buffer, (graph.inputs[0] or buffer).shape,",
        ),
        "only the last output": edit(
            "graph.outputs = list(args[0])", "graph.outputs = list(args[0])[-1:]"
        ),
        "nobody knows where from": edit("(node,), node.name", "(), node.name"),
        "the library's own": body(
            "    from course_lib import lowering\n    return lowering.lower(gm)"
        ),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
