"""The checks of lesson 08's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("08_fusion_and_scheduling")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


PLAN = """    count = len(schedule.kernels)
    mine = [buffer for kernel in schedule.kernels for buffer in kernel.buffers]
    users = {b.name: [n for n, k in enumerate(schedule.kernels) if b in k.buffers or b.name in k.reads] for b in mine}
    until = {b.name: count if b.name in loops.returned else users[b.name][-1] for b in mine}
    storages = {}
    for buffer in mine:
        start = users[buffer.name][0]
        over = lambda tenants: all(until[t.name] < start for t in tenants)
        old = [s for s, tenants in storages.items() if over(tenants) and alike(tenants[0], buffer)]
        name = old[-1] if old and not allocates(schedule.kernels[start]) else buffer.name
        storages.setdefault(name, []).append(buffer)
    place = {tenant.name: storage for storage, tenants in storages.items() for tenant in tenants}
    last = {storage: max(until[t.name] for t in tenants) for storage, tenants in storages.items()}
    return MemoryPlan(place=place, free_after=[tuple(s for s, n in last.items() if n == k) for k in range(count)])"""

FUSE = """    kernels = {n: (work,) for n, work in enumerate(program)}

    def needed_by(n):
        read = {name for work in kernels[n] for name in work.reads}
        return {m for m in kernels if m != n and any(work.writes & read for work in kernels[m])}

    def gain(m, n):
        apart = traffic(list(kernels[m]), program, outputs, sizes) + traffic(list(kernels[n]), program, outputs, sizes)
        return apart - traffic([*kernels[m], *kernels[n]], program, outputs, sizes)

    while True:
        needs = {n: needed_by(n) for n in kernels}
        pairs = [(m, n) for m in kernels for n in kernels if m < n and fits(list(kernels[m]), list(kernels[n]))]
        pairs = [pair for pair in pairs if gain(*pair) > 0 and not makes_a_circle(needs, *pair)]
        if not pairs:
            break
        m, n = max(pairs, key=lambda pair: gain(*pair))
        kernels[m] += kernels.pop(n)
    result = []

    def put(n):
        for m in sorted(needed_by(n)):
            put(m)
        kernel = sorted(kernels[n], key=program.index)
        if kernel not in result:
            result.append(kernel)

    for n in kernels:
        put(n)
    return result"""

NEXT = "next(n for n in needs if n not in order and needs[n] <= set(order))"
ANY = "next((n for n in needs if n not in order and needs[n] <= set(order)), next(n for n in needs if n not in order))"

ALTERNATIVES = {
    "traffic": body(
        """    total, seen = 0, set()
    for work in kernel:
        for name in work.reads - seen:
            seen.add(name)
            if not any(name in other.writes for other in kernel):
                total += sizes[name]
        for name in work.writes:
            if name in outputs or any(name in other.reads for other in program if other not in kernel):
                total += sizes[name]
    return total"""
    ),
    "makes_a_circle": body(
        """    def before(name, without):
        found = set()
        for n in needs[name] - {without}:
            found |= {n} | before(n, None)
        return found

    return a in before(b, a) or b in before(a, b)"""
    ),
    "legal": body(
        """    if type(first) is not Pointwise or type(second) is not Pointwise:
        return "not pointwise"
    if len(first.ranges) != len(second.ranges) or any(a != b for a, b in zip(first.ranges, second.ranges)):
        return "their loops are not the same"
    index = [symbol if size != 1 else sympy.Integer(0) for symbol, size in zip(first.symbols[0], first.ranges)]
    loads = Loads()
    second.inner(loads, index)
    places = {sympy.simplify(place) for buffer, place in loads.found if buffer == first.buffer.name}
    return None if places <= {sympy.simplify(first.place(index))} else "another element" """
    ),
    "my_plan": body(PLAN),
    "fuse_all": body(FUSE),
}
WRONG = {
    "traffic": {
        "what it computes itself is read": edit("for work in kernel)) - written", "for work in kernel))"),
        "read again by each": edit(
            "sum(sizes[name] for name in read)", "sum(sizes[name] for work in kernel for name in work.reads if name in read)"
        ),
        "everything is stored": edit("if name in outputs or name in others}", "}"),
        "what is returned stays inside": edit("if name in outputs or name in others}", "if name in others}"),
        "only outputs are stored": edit("if name in outputs or name in others}", "if name in outputs}"),
        "whoever reads it needs it": edit("for work in program if work not in kernel", "for work in program"),
        "works are read in the order they come": edit(
            "    read = set().union(*(work.reads for work in kernel)) - written\n",
            "    read, before = set(), set()\n    for work in kernel:\n        read |= work.reads - before\n"
            "        before |= work.writes\n",
        ),
        "one result for each work": edit(
            "sum(sizes[name] for name in stored)", "sum(max(sizes[n] for n in w.writes) for w in kernel if w.writes & stored)"
        ),
    },
    "makes_a_circle": {
        "one step": edit("waiting.extend(needs[name])", "return first in needs[name]"),
        "one direction": edit("for first, last in ((a, b), (b, a)):", "for first, last in ((a, b),):"),
        "whoever needs the other": edit("for name in needs[last] if name != first]", "for name in needs[last]]"),
        "anything between": body("    return bool((needs[a] | needs[b]) - {a, b})"),
        "only those that need each other": edit(
            "    for first", "    if a not in needs[b] and b not in needs[a]:\n        return False\n    for first"
        ),
        "eats what it was lent": edit(
            "waiting, seen = [name for name in needs[last] if name != first], set()",
            "waiting, seen = [name for name in needs[last] if name != first], set()\n        needs[last].clear()",
        ),
    },
    "legal": {
        "ranges are enough": edit("sympy.expand(formula.subs(still) - written) != 0", "False"),
        "the ranges do not matter": edit("if tuple(first.ranges) != tuple(second.ranges):", "if False:"),
        "as many iterations": edit(
            "if tuple(first.ranges) != tuple(second.ranges):", "if math.prod(first.ranges) != math.prod(second.ranges):"
        ),
        "any load of any buffer": edit("if buffer == first.buffer.name and ", "if "),
        "the first load only": edit("in handler.found:", "in handler.found[:1]:"),
        "the last load only": edit("in handler.found:", "in handler.found[-1:]:"),
        "formulas as written": edit("sympy.expand(formula.subs(still) - written) != 0", "formula.subs(still) != written"),
        "an index of size 1 moves": edit("if size == 1}", "if False}"),
        "a library call is a loop": edit(
            "if not (isinstance(first, Pointwise) and isinstance(second, Pointwise)):",
            "if isinstance(first, ExternKernel):\n        return None\n"
            "    if not (isinstance(first, Pointwise) and isinstance(second, Pointwise)):",
        ),
        "a reduction is a loop": edit(
            "if not (isinstance(first, Pointwise) and isinstance(second, Pointwise)):",
            "if not isinstance(second, (Pointwise, ExternKernel)):\n        return None\n"
            "    if not (isinstance(first, Pointwise) and isinstance(second, Pointwise)):",
        ),
        "just no": edit('return f"it needs {buffer}[{formula}], not the element that was just computed"', "return False"),
    },
    "my_plan": {
        "free after the first reader": edit(
            "last |= {name: n for name in kernel.reads if name in last}",
            "last |= {name: n for name in kernel.reads if name in last and not any(name in k.reads for k in kernels[:n])}",
        ),
        "outputs are free": edit("    last |= dict.fromkeys(loops.returned & last.keys(), len(kernels))\n", ""),
        "any storage will do": edit("if alike(old, buffer)", ""),
        "the same shape only": edit("if alike(old, buffer)", "if alike(old, buffer) and old.shape == buffer.shape"),
        "nothing is used again": edit("None if allocates(kernel) else", "None if True else"),
        "operands are free at once": edit(
            "        for buffer in kernel.buffers:\n            fits",
            "        free += [b for b in buffers if last[b.name] == n]\n        for buffer in kernel.buffers:\n            fits",
            "free += [buffer for buffer in buffers if last[buffer.name] == n]",
            "free += [b for b in kernel.buffers if last[b.name] == n]",
        ),
        "a call that allocates gets an old one": edit("None if allocates(kernel) else", ""),
        "what a call allocated serves nobody else": edit(
            "if last[buffer.name] == n]",
            "if last[buffer.name] == n and not any(buffer in k.buffers for k in kernels if allocates(k))]",
        ),
        "a storage ends with its first buffer": edit("max(end.get(storage, 0), last[name])", "end.get(storage, last[name])"),
        "nothing is given back": edit("tuple(s for s in end if end[s] == n)", "()"),
        "inputs are planned": edit("MemoryPlan(place, ", "MemoryPlan({b.name: b.name for b in loops.inputs} | place, "),
        "the name of the buffer before": edit("= place[fits.name]", "= fits.name"),
        "lists": edit("tuple(s for s in end if end[s] == n)", "[s for s in end if end[s] == n]"),
        "the library's own": body("    return scheduling.plan(schedule, loops)"),
        "one too few": edit("for n in range(len(kernels))]", "for n in range(len(kernels) - 1)]"),
    },
    "fuse_all": {
        "circles": edit(" and not makes_a_circle(needs, n, m)", "", NEXT, ANY),
        "library calls": edit("if fits(b, a) and not", "if not"),
        "whatever it saves": edit("(0, None, None)", "(-1, None, None)", "if not saved:", "if saved < 0:"),
        "the first that saves": edit("best = max(best, (saved, n, m), key=lambda choice: choice[0])",
                                     "best = best if best[0] else (saved, n, m)"),
        "the last that saves": edit("best = max(best, (saved, n, m), key=lambda choice: choice[0])",
                                    "best = (saved, n, m) if saved else best"),
        "only neighbours": edit("enumerate(kernels[:m])", "[(m - 1, kernels[m - 1])] if m else []"),
        "once": edit("        del kernels[m]\n", "        del kernels[m]\n        break\n"),
        "in the order of their first works": edit("return [kernels[n] for n in order]",
                                                  "return sorted(kernels, key=lambda kernel: program.index(kernel[0]))"),
        "works as they were joined": edit("sorted(kernels[n] + kernels[m], key=program.index)", "kernels[m] + kernels[n]"),
        "only producers with consumers": edit("if fits(b, a) and not", "if n in needs[m] and fits(b, a) and not"),
        "one is forgotten": edit("return [kernels[n] for n in order]", "return [kernels[n] for n in order if n]"),
    },
}  # fmt: skip

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
