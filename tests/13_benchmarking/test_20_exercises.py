"""The checks of lesson 13's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_A_COMPILER, Mutants, exercise_tests

LESSON = Mutants("13_benchmarking")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_A_COMPILER


ALTERNATIVES = {
    "steady_samples": body(
        """    readings = []
    for number in range(1 + warmup + rounds):
        synchronize()
        begin = clock()
        call()
        synchronize()
        readings += [clock() - begin]
    steady = sorted(readings[1 + warmup :])
    middle = (steady[(rounds - 1) // 2] + steady[rounds // 2]) / 2
    far = [value for value in steady if value > 2 * middle]
    near = steady[: rounds - len(far)]
    return Steady(readings[0], middle, near[0], near[-1], len(far))"""
    ),
    "speedup_table": body(
        """    table = []
    for workload in raw:
        eager, compiled = (np.array(raw[workload][name]) for name in ("eager", "compiled"))
        if eager.shape != compiled.shape:
            raise ValueError(f"{workload}: the rounds do not match")
        ratios = eager / compiled
        low, high = np.percentile(ratios, [10, 90])
        verdict = "no difference"
        verdict = "faster" if low > 1 else verdict
        verdict = "slower" if high < 1 else verdict
        table.append(Row(workload, float(np.median(ratios)), float(low), float(high), verdict))
    return table, statistics.geometric_mean([row.ratio for row in table])"""
    ),
    "bound": body(
        """    waits, ours, theirs = {}, 0.0, 0.0
    for name, flops, nbytes, library in kernels:
        slow, busy = nbytes / limits.bandwidth, flops / limits.peak
        waits[name] = "memory" if slow >= busy else "arithmetic"
        if library:
            theirs += max(slow, busy)
        else:
            ours += max(slow, busy)
    everything = ours + theirs + limits.call
    return Bound(everything, waits, theirs / everything, measured / (theirs + limits.call))"""
    ),
    "why_not_faster": body(
        """    counts, usual = trace.evidence, statistics.median(trace.calls[1:])
    parts = counts.least_seconds(limits)
    least = parts["call"] + parts["library"] + parts["loops"]
    questions = {
        "measurement": trace.reported / usual > 2,
        "pieces": counts.breaks > 0,
        "recompiles": counts.recompiles >= 2,
        "eager": counts.fallbacks > 0,
        "elsewhere": 2 * usual < trace.step,
        "library": 2 * parts["library"] > least,
        "small": 2 * parts["call"] > least,
        "done": usual <= 1.5 * least,
        "kernels": True,
    }
    return next(cause for cause, yes in questions.items() if yes)"""
    ),
    "ablate": body(
        """    lines, earns = {}, []
    with torch.no_grad():
        wanted = function(*args)

    def line(**stages):
        kernels = nbytes = 0
        with torch.no_grad(), cl.record() as trace:
            got = cl.compile(function, pipeline=cl.Pipeline().replace(**stages))(*args)
        for event in trace.of(cl.events.Scheduled):
            kernels += len(event.schedule.fused)
            nbytes += int(event.schedule.bytes_after)
        return Line(kernels, nbytes, bool(((got - wanted).abs() <= 1e-5 + 1e-4 * wanted.abs()).all()))

    lines["all"] = line()
    for part in parts:
        lines[part] = line(**parts[part])
        if lines[part].right and lines[part].nbytes > lines["all"].nbytes:
            earns.append(part)
    return lines, earns"""
    ),
}
WRONG = {
    "steady_samples": {
        "the asking is timed": edit(
            "        call()\n        synchronize()\n        return",
            "        call()\n        return",
        ),
        "what was queued before is timed": edit(
            "        synchronize()\n        start", "        start"
        ),
        "waits once before it starts": edit(
            "        synchronize()\n        start",
            "        start",
            "    first = timed()",
            "    synchronize()\n    first = timed()",
        ),
        "the first call is one of the samples": edit(
            "    for _ in range(warmup):\n        call()\n",
            "",
            "rounds)]",
            "rounds)]\n    samples = [first] + samples[1:]",
        ),
        "the first call is an ordinary one": edit(
            "first = timed()", "call()\n    first = timed()", "range(warmup)", "range(warmup - 1)"
        ),
        "mean": edit("statistics.median(samples)", "statistics.mean(samples)"),
        "outliers are kept": edit("if seconds <= 2 * median", "if True"),
        "too fast is an outlier": edit(
            "if seconds <= 2 * median", "if median / 2 <= seconds <= 2 * median"
        ),
        "twice is too far": edit("seconds <= 2 * median", "seconds < 2 * median"),
    },
    "speedup_table": {
        "compiled by eager": edit("eager / compiled for", "compiled / eager for"),
        "ratio of medians": edit(
            "        verdict =",
            '        middle = float(np.median(samples["eager"]) / np.median(samples["compiled"]))\n        verdict =',
        ),
        "arithmetic mean": edit(
            "math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))",
            "sum(row.ratio for row in rows) / len(rows)",
        ),
        "the median decides": edit(
            '"faster" if low > 1 else "slower" if high < 1 else',
            '"faster" if middle > 1 else "slower" if middle < 1 else',
        ),
        "never slower": edit('"slower" if high < 1 else ', ""),
        "as long is faster": edit("if low > 1", "if low >= 1"),
        "by their names": edit("raw.items()", "sorted(raw.items())"),
        "two at least": edit("/ len(rows))", "/ max(2, len(rows)))"),
        "lengths are cut": edit(", strict=True", ""),
        "quartiles": edit("(10, 50, 90)", "(25, 50, 75)"),
    },
    "bound": {
        "memory only": edit("max(memory[name], arithmetic[name])", "memory[name]"),
        "both, one after the other": edit(
            "max(memory[name], arithmetic[name])", "memory[name] + arithmetic[name]"
        ),
        "the call is free": edit("least = limits.call + sum", "least = sum"),
        "words exchanged": edit(
            '"arithmetic" if arithmetic[name] > memory[name] else "memory"',
            '"memory" if arithmetic[name] > memory[name] else "arithmetic"',
        ),
        "the library is free": edit(
            "measured / (limits.call + library)", "measured / (least - library)"
        ),
        "the call goes, too": edit(
            "measured / (limits.call + library)", "measured / (library or limits.bandwidth)"
        ),
        "share of what is measured": edit("library / least", "library / measured"),
        "arithmetic on the ridge": edit(
            "arithmetic[name] > memory[name]", "arithmetic[name] >= memory[name]"
        ),
    },
    "why_not_faster": {
        "the first call, too": edit(
            "statistics.median(trace.calls[1:])", "statistics.median(trace.calls)"
        ),
        "believes the number": edit("trace.reported > 2 * usual", "False"),
        "never in pieces": edit("if evidence.breaks:", "if False:"),
        "recompiles first": edit(
            "if evidence.breaks:", "if evidence.breaks and evidence.recompiles < 2:"
        ),
        "any recompile": edit("evidence.recompiles > 1", "evidence.recompiles"),
        "fallbacks do not count": edit("if evidence.fallbacks:", "if False:"),
        "the step is not looked at": edit("usual < trace.step / 2", "False"),
        "the library before the step": edit(
            "    if usual < trace.step / 2:\n",
            '    if parts["library"] > least / 2:\n        return "library"\n    if usual < trace.step / 2:\n',
        ),
        "the bound must be met": edit("1.5 * least", "1.0001 * least"),
        "always done": edit('"done" if usual <= 1.5 * least else "kernels"', '"done"'),
        "the library has most": edit(
            'parts["library"] > least / 2', 'parts["library"] == max(parts.values())'
        ),
        "the call has most": edit(
            'parts["call"] > least / 2', 'parts["call"] == max(parts.values())'
        ),
        "half of the usual, library": edit(
            'parts["library"] > least / 2', 'parts["library"] > usual / 2'
        ),
        "half of the usual, call": edit('parts["call"] > least / 2', 'parts["call"] > usual / 2'),
        "the lower median": edit("statistics.median(trace", "statistics.median_low(trace"),
        "mean of the calls": edit(
            "statistics.median(trace.calls[1:])", "statistics.mean(trace.calls[1:])"
        ),
        "twice is too much": edit("trace.reported > 2", "trace.reported >= 2"),
        "half is too little": edit("usual < trace.step / 2", "usual <= trace.step / 2"),
        "1.5 times is too much": edit("usual <= 1.5 * least", "usual < 1.5 * least"),
        "with the first call": edit(
            "statistics.median(trace.calls[1:])", "statistics.mean(trace.calls)"
        ),
        "the paper machine for all": edit(
            "evidence.least_seconds(limits)", "evidence.least_seconds(PAPER)"
        ),
        "half of the step is elsewhere": edit("usual < trace.step / 2", "usual < trace.step"),
    },
    "ablate": {
        "without the whole": edit(
            '{"all": {}, **parts}',
            "parts",
            'whole = lines["all"]',
            "whole = next(iter(lines.values()))",
        ),
        "parts add up": edit(
            "        for name, stages",
            "        before = {}\n        for name, stages",
            "replace(**stages)",
            "replace(**before.__ior__(stages))",
        ),
        "library calls are kernels": edit("len(schedule.fused)", "len(schedule.kernels)"),
        "nothing is replaced": edit("replace(**stages)", "replace()"),
        "always right": edit("torch.allclose(result, expected, rtol=1e-4, atol=1e-5)", "True"),
        "bytes before fusion": edit("schedule.bytes_after", "schedule.bytes_before"),
        "wrong parts earn": edit("lines[name].right and ", ""),
        "the first graph only": edit(
            "trace.of(cl.events.Scheduled)]", "trace.of(cl.events.Scheduled)][:1]"
        ),
        "more kernels earn": edit(
            "lines[name].nbytes > whole.nbytes", "lines[name].kernels > whole.kernels"
        ),
        "roughly right": edit("rtol=1e-4, atol=1e-5", "rtol=0.1, atol=0.1"),
        "whatever differs earns": edit("lines[name].nbytes > whole.nbytes", "True"),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
