"""The checks of lesson 03's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("03_graph_breaks")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


ALTERNATIVES = {
    "count_breaks": body(
        """    fn = getattr(fn, "_course_original", fn)
    with cl.record() as trace:
        cl.compile(fn, backend="eager")(*args)
    seen, lines = set(), []
    for problem in trace.graph_breaks:
        if str(problem.location) not in seen:
            seen.add(str(problem.location))
            lines.append(problem.location.text)
    return len(trace.graphs), lines"""
    ),
    "cures": body(
        """    return x * 2 * torch.where(x.mean() > 0, 1.0, -1.0)""",
        """    scale = x.abs().amax()
    return x / (scale + (scale == 0))""",
        """    def attend(x, w):
        return (x @ w).softmax(-1)

    def half(x, w):
        return x / 2

    return torch.cond(torch.gt(x.sum(), 0), attend, half, (x, w))""",
        """    y = x.tanh()
    return {"mean": torch.mean(y), "result": y + y}""",
        """    got = step(x)
    say("mean %.3f" % float(got["mean"]))
    return got["result"]""",
    ),
    "moving_median": body(
        """    out = torch.empty(*signal.shape[:-1], signal.shape[-1] + 1 - width, dtype=signal.dtype)
    out.numpy()[...] = moving_median_numpy(signal.numpy(), width)
    return out""",
        """    return torch.empty_like(signal[..., width - 1 :], memory_format=torch.contiguous_format)""",
    ),
    "make_resume": body(
        """    units, op = offset // 2, dis.opmap
    prologue = [op["RESUME"], 0] + [0, 0] * (sys.version_info >= (3, 15))
    for byte in units.to_bytes(4, "big")[:-1]:
        prologue += [op["EXTENDED_ARG"], byte]
    prologue += [op["JUMP_FORWARD"], units % 256]
    star = 0x04 | 0x08
    changed = {"co_code": bytes(prologue) + code.co_code, "co_argcount": code.co_nlocals, "co_flags": code.co_flags & ~star}
    changed["co_linetable"] = lines_before(len(prologue) // 2) + code.co_linetable
    return code.replace(co_posonlyargcount=0, co_kwonlyargcount=0, **changed)"""
    ),
}

WRONG = {
    "count_breaks": {
        "each break, not each place": body(
            """    seen = cl.explain(fn)(*args)
    return seen.graph_count, [p.location.text for p in seen.breaks]"""
        ),
        "graphs from breaks": edit("return seen.graph_count", "return seen.graph_break_count + 1"),
        "a graph for each break": edit(
            "return seen.graph_count", "return seen.graph_break_count and seen.graph_count"
        ),
        "by text": edit("(p.location.filename, p.location.line): ", "p.location.text: "),
        "by line": edit("(p.location.filename, p.location.line): ", "p.location.line: "),
        "in the order of files": edit(
            "list(places.values())", "[places[place] for place in sorted(places)]"
        ),
        "sorted": edit("list(places.values())", "sorted(places.values())"),
        "called twice": edit("    seen = cl.explain", "    fn(*args)\n    seen = cl.explain"),
        "reasons instead of lines": edit(": p.location.text for", ": p.reason for"),
        "a warm recording": body(
            """    with cl.record() as trace:
        (fn if hasattr(fn, "_course_original") else cl.compile(fn, backend="eager"))(*args)
    places = {str(p.location): p.location.text for p in trace.graph_breaks}
    return len(trace.graphs), list(places.values())"""
        ),
    },
    "cures": {
        "as it was": edit("torch.where(y.mean() > 0, y, -y)", "flip_slow(x)"),
        "each element for itself": edit(
            "torch.where(y.mean() > 0, y, -y)", "torch.where(y > 0, y, -y)"
        ),
        "zero goes the other way": edit("y.mean() > 0", "y.mean() >= 0"),
        "a number after all": edit("x.abs().amax()", "torch.tensor(x.abs().amax().item())"),
        "a number for what is said": edit(
            "squashed * 2, squashed.mean()",
            "squashed * 2, squashed.mean().item()",
            "mean.item()",
            "mean",
        ),
        "nothing for zero": edit("torch.where(largest == 0, x, x / largest)", "x / largest"),
        "not a number is zero": edit(
            "torch.where(largest == 0, x, x / largest)", "torch.where(largest > 0, x / largest, x)"
        ),
        "not a number goes the other way": edit(
            "torch.where(y.mean() > 0, y, -y)", "torch.where(y.mean() <= 0, -y, y)"
        ),
        "zero has a product": edit("torch.cond(x.sum() > 0", "torch.cond(x.sum() >= 0"),
        "not a number has a product": edit(
            "x.sum() > 0, lambda x, w: torch.softmax(x @ w, -1), lambda x, w: x * 0.5,",
            "x.sum() <= 0, lambda x, w: x * 0.5, lambda x, w: torch.softmax(x @ w, -1),",
        ),
        "a smallest scale": edit(
            "torch.where(largest == 0, x, x / largest)", "x / largest.clamp(min=1e-12)"
        ),
        "both ways always": edit(
            "torch.cond(x.sum() > 0, lambda x, w: torch.softmax(x @ w, -1), lambda x, w: x * 0.5, (x, w))",
            "torch.where(x.sum() > 0, torch.softmax(x @ w, -1), x * 0.5)",
        ),
        "the product outside": edit(
            "return torch.cond(x.sum() > 0, lambda x, w: torch.softmax(x @ w, -1), lambda x, w: x * 0.5, (x, w))",
            "p = x @ w\n    return torch.cond(x.sum() > 0, lambda x, p: torch.softmax(p, -1), lambda x, p: x * 0.5, (x, p))",
        ),
        "another product outside": edit(
            "return torch.cond(x.sum() > 0, lambda x, w: torch.softmax(x @ w, -1), lambda x, w: x * 0.5, (x, w))",
            "p = torch.mm(x, w)\n"
            "    return torch.cond(x.sum() > 0, lambda x, p: torch.softmax(p, -1), lambda x, p: x * 0.5, (x, p))",
        ),
        "all but the product outside": edit(
            "return torch.cond(x.sum() > 0, lambda x, w: torch.softmax(x @ w, -1), lambda x, w: x * 0.5, (x, w))",
            "p = torch.cond(x.sum() > 0, lambda x, w: x @ w, lambda x, w: x * 1, (x, w))\n"
            "    return torch.where(x.sum() > 0, torch.softmax(p, -1), x * 0.5)",
        ),
        "step reports": edit(
            "squashed = torch.tanh(x)", "squashed = torch.tanh(x)\n    print(end='')"
        ),
        "another text": edit("{mean.item():.3f}", "{mean.item():.2f}"),
        "step does half": edit(
            "    squashed = torch.tanh(x)\n    return squashed * 2, squashed.mean()",
            "    return torch.tanh(x)",
            "    y, mean = step(x)",
            "    y = step(x)\n    mean, y = y.mean(), y * 2",
        ),
        "report without step": edit(
            "    y, mean = step(x)", "    y = torch.tanh(x)\n    mean, y = y.mean(), y * 2"
        ),
    },
    "moving_median": {
        "double precision": edit(".to(signal.dtype)", ""),
        "the order of the input": edit(".contiguous()", ""),
        "the shape of the signal": edit("(*batch, length - width + 1)", "signal.shape"),
        "a fixed length": edit("length - width + 1)", "2)"),
        "one dimension": edit("(*batch, length - width + 1)", "(signal.shape[0] - width + 1,)"),
        "looks at data": body(
            """    return torch.from_numpy(moving_median_numpy(signal.numpy(), width)).to(signal.dtype)""",
            """    return torch.from_numpy(moving_median_numpy(signal.numpy(), width)).to(signal.dtype)""",
        ),
        "single precision": edit(".to(signal.dtype)", ".float()"),
        "the fake one in the order of the input": edit(
            "signal.new_empty((*batch, length - width + 1))",
            "torch.empty_like(signal[..., width - 1 :])",
        ),
        "the fake one computes": edit(
            "signal.new_empty((*batch, length - width + 1))",
            "signal.new_empty(moving_median_numpy(np.zeros(signal.shape), width).shape)",
        ),
        "always single": edit("length - width + 1))", "length - width + 1), dtype=torch.float32)"),
        "always double": edit("length - width + 1))", "length - width + 1), dtype=torch.float64)"),
        "always on the CPU": edit(
            "signal.new_empty((*batch, length - width + 1))",
            "torch.empty((*batch, length - width + 1), dtype=signal.dtype)",
        ),
        "torch's own median": edit(
            "torch.from_numpy(moving_median_numpy(signal.numpy(), width)).to(signal.dtype)",
            "signal.unfold(-1, width, 1).quantile(0.5, dim=-1)",
        ),
    },
    "make_resume": {
        "unchanged": edit("    return code.replace(", "    return code\n    return code.replace("),
        "no new parameters": edit("        co_argcount=len(code.co_varnames),\n", ""),
        "bytes instead of units": edit("units = offset // 2", "units = offset"),
        "cut off the front": edit(
            "prologue + code.co_code,", 'bytes([dis.opmap["RESUME"], 0]) + code.co_code[offset:],'
        ),
        "one byte": edit("    for shift in (24, 16, 8):", "    for shift in ():"),
        "two bytes": edit("    for shift in (24, 16, 8):", "    for shift in (8,):"),
        "by position only": edit("        co_posonlyargcount=0,\n", ""),
        "stars stay": edit("code.co_flags & ~(4 | 8)", "code.co_flags"),
        "lines before each byte": edit(
            "lines_before(len(prologue) // 2)", "lines_before(len(prologue))"
        ),
        "no RESUME": edit('prologue = bytes([dis.opmap["RESUME"], 0])', 'prologue = b""'),
        "lines as they were": edit("lines_before(len(prologue) // 2) + ", ""),
        "the library's": body(
            """    from course_lib.frames.resume import resume_at

    return resume_at(code, offset, (), frozenset()).code"""
        ),
    },
}

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)
