"""The checks of lesson 10's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_A_COMPILER, Mutants, exercise_tests

LESSON = Mutants("10_cpp_codegen")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_A_COMPILER


POINTWISE = """    index = node.symbols[0]
    *read, written = arguments
    text = f"{written}[{node.place(index)}] = {node.value(Cpp(), index, ())};"
    for depth, (symbol, size) in enumerate(reversed(list(zip(index, node.ranges)))):
        text = f"for (int64_t {symbol} = 0; {symbol} < {size}; ++{symbol}) {{ {text} }}"
        if depth == 0:
            text = "\\n#pragma omp simd\\n" + text
        else:
            text = text.replace("{ \\n", "{\\n") + "\\n"
        text = "\\n" + text.lstrip("\\n")
    pointers = "".join(f"auto {a} = ({C[buffers[a].dtype]}*)buffers[{n}];" for n, a in enumerate(arguments))
    return f'extern "C" void {name}(void** buffers) {{ {pointers} {text} }}\\n'"""

REDUCTION = """    (index, rindex), out = node.symbols, node.buffer
    best = {"max": ">", "min": "<"}.get(node.kind)
    floats = out.dtype.is_floating_point
    wide = "int" if node.kind in ("any", "all") else "double" if floats and not best else C[out.dtype]
    loops = lambda symbols, sizes: "".join(f"for (int64_t {s} = 0; {s} < {n}; {s}++) {{" for s, n in zip(symbols, sizes))
    take = {"sum": "total + value", "prod": "total * value", "any": "total || value", "all": "total && value"}.get(node.kind)
    if best:
        take = f"first || value {best} total || value != value ? value : total"
    start = int(node.kind in ("prod", "all"))
    pointers = "".join(f"auto {a} = ({C[buffers[a].dtype]}*)buffers[{n}];\\n" for n, a in enumerate(arguments))
    return f'''extern "C" void {name}(void** buffers) {{
{pointers}{loops(index, node.ranges)}
bool first = true; {wide} total = {start};
{loops(rindex, node.reduced)}
auto value = {node.value(Cpp(), index, rindex)}; total = {take}; first = false;
{"}" * len(rindex)}
{out.name}[{node.place(index)}] = total;
{"}" * len(index)} }}
'''"""

KERNEL = """    import math

    class Fused(Cpp):
        def __init__(self):
            self.known = {}

        def load(self, buffer, index):
            return self.known[buffer] if buffer in self.known else Cpp.load(self, buffer, index)

    ops, inside = Fused(), []
    for step in kernel.steps:
        variable = f"v{len(ops.known)}"
        inside += [f"const {C[step.buffer.dtype]} {variable} = {step.value(ops)};"]
        if step.buffer.name in kernel.stores:
            inside += [f"{step.buffer.name}[{step.store_index}] = {variable};"]
        ops.known[step.buffer.name] = variable
    many = math.prod(loop.size for loop in kernel.loops) >= 16384
    for loop in reversed(kernel.loops):
        words = "parallel for " * (many and loop is kernel.loops[0]) + "simd" * (loop is kernel.loops[-1])
        head = [f"#pragma omp {words.strip()}"] if words else []
        inside = [*head, f"for (int64_t {loop.symbol} = 0; {loop.symbol} < {loop.size}; {loop.symbol}++)", "{", *inside, "}"]
    pointers = [f"{C[buffers[a].dtype]}* {a} = ({C[buffers[a].dtype]}*)buffers[{n}];" for n, a in enumerate(arguments)]
    head = f'extern "C" void {name}(void** buffers) {{'
    return "\\n".join([head, *pointers, *inside, "}"])"""

ALTERNATIVES = {
    "strips": body(
        """    left, first, result = -(-n // lanes), 0, []
    for waiting in range(threads, 0, -1):
        mine = -(-left // waiting)
        left -= mine
        result.append([])
        for _ in range(mine):
            result[-1].append((first, min(n, first + lanes)))
            first += lanes
    return result"""
    ),
    "pointwise_source": body(POINTWISE),
    "reduction_source": body(REDUCTION),
    "kernel_source": body(KERNEL),
}
PLACE = "{arguments[-1]}[{node.place(index)}]"
WRONG = {
    "strips": {
        "no tail": edit("range(0, n, lanes)", "range(0, n - lanes + 1, lanes)"),
        "the tail rounded up": edit("min(first + lanes, n)", "first + lanes"),
        "dealt like cards": edit(
            "result.append(pairs[:count])\n        pairs = pairs[count:]",
            "result.append(pairs[thread::threads])",
        ),
        "the rest for the last": edit("(thread < more)", "more * (thread == threads - 1)"),
        "rounded up for each": edit(
            "each + (thread < more)", "-(-len(range(0, n, lanes)) // threads)"
        ),
        "nobody without work": edit("return result", "return [mine for mine in result if mine]"),
        "tuples": edit("result.append(pairs[:count])", "result.append(tuple(pairs[:count]))"),
    },
    "pointwise_source": {
        "written in order": edit(
            PLACE,
            "{arguments[-1]}[{sum(i * s for i, s in zip(index, torch.empty(node.ranges).stride()))}]",
        ),
        "the outermost is vectorised": edit("if n == len(index) - 1:", "if n == 0:"),
        "the second is vectorised": edit(
            "if n == len(index) - 1:", "if n == min(1, len(index) - 1):"
        ),
        "always a pragma": edit(
            "    for n, (symbol, size)",
            '    lines += [] if index else ["#pragma omp simd"]\n    for n, (symbol, size)',
        ),
        "all is float": edit("{C[buffers[argument].dtype]}", "float"),
        "one type for all": edit("C[buffers[argument].dtype]", "C[node.buffer.dtype]"),
        "int": edit("for (int64_t {symbol}", "for (int {symbol}"),
        "one short": edit("{symbol} < {size};", "{symbol} < {size} - 1;"),
        "no pragma for a single range": edit(
            "if n == len(index) - 1:", "if n == len(index) - 1 and n > 0:"
        ),
        "the third is vectorised": edit(
            "if n == len(index) - 1:", "if n == min(2, len(index) - 1):"
        ),
        "an int inside": edit(
            "for (int64_t {symbol}", "for ({'int64_t' if n == 0 else 'int'} {symbol}"
        ),
        "int32 is int64": edit(
            "    index = node.symbols[0]",
            "    C = {**globals()['C'], torch.int32: 'int64_t'}\n    index = node.symbols[0]",
        ),
        "changes its list": edit('    return "\\n"', '    arguments.clear()\n    return "\\n"'),
        "changes its dict": edit('    return "\\n"', '    buffers.clear()\n    return "\\n"'),
        "a name of C++": edit('extern "C" void', "void"),
        "a brace is missing": edit('["}"] * (len(index) + 1)', '["}"] * len(index)'),
        "nothing": body("    return None"),
    },
    "reduction_source": {
        "one total for all": edit(
            '    lines += map(loop, index, node.ranges)\n    lines.append(f"{kind} total = {start};")',
            '    lines.append(f"{kind} total = {start};")\n    lines += map(loop, index, node.ranges)',
        ),
        "max from 0": edit('lowest = "-INFINITY" if floats', 'lowest = "0" if floats'),
        "min from 0": edit('highest = "INFINITY" if floats', 'highest = "0" if floats'),
        "bools: min from 0": edit(
            'str(limits.max) if limits else "1"', 'str(limits.max) if limits else "0"'
        ),
        "a product from 0": edit('"prod": ("1"', '"prod": ("0"'),
        "max loses NaN": edit("value > total || value != value", "value > total"),
        "min loses NaN": edit("value < total || value != value", "value < total"),
        "32 bits": edit('f"({limits.min + 1} - 1)"', '"(-2147483647 - 1)"'),
        "double for all": edit(
            'elif floats and node.kind in ("sum", "prod"):', 'elif node.kind in ("sum", "prod"):'
        ),
        "float for all": edit('        kind = "double"', '        kind = "float"'),
        "a finite lowest": edit('lowest = "-INFINITY"', 'lowest = "-3.0e38f"'),
        "a finite highest": edit('highest = "INFINITY"', 'highest = "3.0e38f"'),
        "limits of 64 bits": edit("torch.iinfo(dtype)", "torch.iinfo(torch.int64)"),
        "products of integers in double": edit(
            'elif floats and node.kind in ("sum", "prod"):',
            'elif (floats and node.kind == "sum") or node.kind == "prod":',
        ),
        "products in float": edit(
            'elif floats and node.kind in ("sum", "prod"):',
            'elif floats and node.kind == "sum":',
        ),
        "max in float": edit(
            '    if node.kind in ("any", "all"):\n',
            '    if floats and node.kind == "max":\n        kind = "float"\n    elif node.kind in ("any", "all"):\n',
        ),
        "changes its list": edit('    return "\\n"', '    arguments.clear()\n    return "\\n"'),
        "any is all": edit('"total |= value != 0;"', '"total = value != 0;"'),
        "the type of what is read": edit(
            "kind = C[dtype]", "kind = C[buffers[arguments[0]].dtype]"
        ),
        "the last dimension only": edit(
            "map(loop, rindex, node.reduced)",
            "map(loop, rindex[-1:], node.reduced[-1:])",
            '["}"] * len(rindex)',
            '["}"]',
        ),
    },
    "kernel_source": {
        "everything is stored": edit(
            "        if step.buffer.name in kernel.stores:\n", "        if True:\n"
        ),
        "read from memory": edit("variables.get(buffer) or f", "f"),
        "all is float": edit("const {C[step.buffer.dtype]} v{n}", "const float v{n}"),
        "always threads": edit("iterations >= 16384", "iterations"),
        "never threads": edit("iterations >= 16384", "False"),
        "threads for a long outer loop": edit("iterations >= 16384", "loop.size >= 16384"),
        "more than 16,384": edit("iterations >= 16384", "iterations > 16384"),
        "threads from 10,000 on": edit("iterations >= 16384", "iterations >= 10000"),
        "int loops": edit("for (int64_t {loop.symbol}", "for (int {loop.symbol}"),
        "the second is vectorised": edit(
            "if n == len(kernel.loops) - 1", "if n == min(1, len(kernel.loops) - 1)"
        ),
        "two loops are counted": edit(
            "in kernel.loops:\n        iter", "in kernel.loops[:2]:\n        iter"
        ),
        "changes its list": edit('    return "\\n"', '    arguments.clear()\n    return "\\n"'),
        "the value before": edit(
            'variables.get(buffer) or f"{',
            'f"v{len(variables) - 1}" if buffer in variables else f"{',
        ),
        "only the last is stored": edit(
            "        if step.buffer.name in kernel.stores:\n",
            "        if step is kernel.steps[-1]:\n",
        ),
        "the library's own": body(
            "    from course_lib.codegen.cpp import cpp_source\n    return cpp_source(kernel, buffers, name).source"
        ),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
