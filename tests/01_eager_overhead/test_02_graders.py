"""The checks of lesson 01 tell right from wrong: right answers pass, the stub and wrong answers fail, each in its own words."""

from __future__ import annotations

import pytest
from mutants import Mutants, own_reasons

LESSON = Mutants("01_eager_overhead")

ALTERNATIVES = {
    "median_time": """
    for _ in range(warmup):
        function()
    times = []
    before = clock()
    for _ in range(rounds):
        function()
        now = clock()
        times.append(now - before)
        before = now
    times.sort()
    return (times[rounds // 2] + times[(rounds - 1) // 2]) / 2
""",
    "counting_mode": """
        result = op(*args, **(kwargs or {}))
        tensors = lambda tree: [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
        size = lambda found: sum(tensor.numel() * tensor.element_size() for tensor in found)
        seen, made = [], tensors(result)
        for tensor in tensors((args, kwargs)):
            if not any(tensor is other for other in seen):
                seen.append(tensor)
        lies_in = lambda new, old: new is not old and new.untyped_storage().data_ptr() == old.untyped_storage().data_ptr()
        in_place = any(new is old for new in made for old in seen)
        if not in_place and any(lies_in(new, old) for new in made for old in seen):
            seen = made = []
        self.calls.append(Moved(str(op), size(seen), size(made)))
        return result
""",
    "traffic": """
    eager, fused, in_registers = 0, 0, set()
    for step in chain:
        for name in dict.fromkeys(step.reads):
            eager += nbytes[name]
            if name not in in_registers:
                fused += nbytes[name]
                in_registers.add(name)
        eager += nbytes[step.writes]
        in_registers.add(step.writes)
    return eager, fused + sum(nbytes[name] for name in outputs)
""",
    "attainable": """
    ridge = peak / bandwidth
    if flops / nbytes > ridge:
        return peak, "arithmetic"
    return flops / nbytes * bandwidth, "memory"
""",
    "predict": """
    parts = [(operators * machine.op_overhead, bytes_eager / machine.bandwidth)]
    parts.append((machine.call_overhead, bytes_fused / machine.bandwidth))
    eager, compiled = (max(part) if machine.asynchronous else sum(part) for part in parts)
    after = None
    if eager > compiled:
        after = int(machine.first_call / (eager - compiled))
        while machine.first_call + after * compiled > after * eager:
            after += 1
    return Prediction(eager, compiled, eager / compiled, after)
""",
}

WRONG: dict[str, dict[str, tuple[str, ...]]] = {
    "median_time": {
        "counts the warm-up among the rounds": ("range(rounds)", "range(rounds - warmup)"),
        "looks at its own clock": ("clock()", "time.perf_counter()"),
        "times the warm-up": (
            "for _ in range(warmup):\n        function()\n    samples = []\n    for _ in range(rounds)",
            "samples = []\n    for _ in range(warmup + rounds)",
        ),
        "mean": ("statistics.median", "statistics.mean"),
        "fastest": ("statistics.median", "min"),
        "the upper middle": ("statistics.median", "statistics.median_high"),
    },
    "counting_mode": {
        "reads what is given twice twice": (
            "for tensor in given.values()) if",
            "for tensor in arguments) if",
        ),
        "misses tensors in lists": ("tree_leaves((args, kwargs))", "args"),
        "counts one result": ("for tensor in fresh))", "for tensor in fresh[:1]))"),
        "counts views": ("if tensor.untyped_storage().data_ptr() not in places or id(tensor) in given", ""),
        "believes what an operator promises": (
            "if tensor.untyped_storage().data_ptr() not in places or id(tensor) in given",
            "if not op.is_view",
        ),
        "takes in-place for a view": (" or id(tensor) in given", ""),
        "looks for tensors in no keyword": ("tree_leaves((args, kwargs))", "tree_leaves(args)"),
        "drops keyword arguments": ("op(*args, **(kwargs or {}))", "op(*args)"),
        "what begins at one place is one": (
            "given = {id(tensor): tensor for tensor in arguments}",
            "given = {t.data_ptr(): t for t in arguments}",
            "id(tensor) in given",
            "any(tensor is t for t in arguments)",
        ),
        "who reads nothing does nothing": ("        self.calls.append(", "        if arguments:\n            self.calls.append("),
        "who writes nothing does nothing": ("        self.calls.append(", "        if made:\n            self.calls.append("),
        "gives no result back": ("        return result\n", ""),
        "where a tensor begins is where it lies": (".untyped_storage().data_ptr()", ".data_ptr()"),
    },
    "traffic": {
        "reads x twice for x * x": ("{*step.reads, step.writes}", "(*step.reads, step.writes)"),
        "writes what stays in registers": ("from_outside | set(outputs)", "from_outside | made_inside"),
        "writes the last result only": ("from_outside | set(outputs)", "from_outside | {chain[-1].writes}"),
        "reads a shared input for each step": (
            "fused = sum(nbytes[name] for name in from_outside | set(outputs))",
            "fused = sum(nbytes[n] for s in chain for n in set(s.reads) - made_inside) + sum(nbytes[n] for n in outputs)",
        ),
        "reads a shared input once in eager": (
            "eager = sum(nbytes[name] for step in chain for name in {*step.reads, step.writes})",
            "eager = sum(nbytes[n] for n in {n for s in chain for n in s.reads}) + sum(nbytes[s.writes] for s in chain)",
        ),
        "writes what nobody reads": (
            "from_outside | set(outputs)",
            "from_outside | set(outputs) | (made_inside - {n for s in chain for n in s.reads})",
        ),
        "leaves out a step that nobody needs": (
            "    made_inside =",
            "    chain = [s for s in chain if s.writes in outputs or any(s.writes in o.reads for o in chain)]\n    made_inside =",
        ),
        "gives a list": ("return eager, fused", "return [eager, fused]"),
        "writes two results at most": ("from_outside | set(outputs)", "from_outside | {outputs[0], outputs[-1]}"),
        "takes all buffers for equally large": ("nbytes[name] for", "max(nbytes.values()) for"),
    },
    "attainable": {
        "the higher limit": ("min(", "max("),
        "always the peak": ("min(fed_by_memory, peak)", "peak"),
        "bytes for each operation": ("flops / nbytes", "nbytes / flops"),
        "the words exchanged": ("fed_by_memory < peak", "fed_by_memory > peak"),
        "memory far below the peak only": ("fed_by_memory < peak", "fed_by_memory < peak / 2"),
        "one ridge for all machines": ("fed_by_memory < peak", "flops / nbytes < 10"),
        "always memory": ('"memory" if fed_by_memory < peak else "arithmetic"', '"memory"'),
    },
    "predict": {
        "one overhead for all operators": ("operators * machine.op_overhead", "machine.op_overhead"),
        "nothing is fused": ("bytes_fused / machine.bandwidth", "bytes_eager / machine.bandwidth"),
        "upside down": ("eager / compiled, pays", "compiled / eager, pays"),
        "rounds down": ("math.ceil", "math.floor"),
        "a GPU that waits": ("max if machine.asynchronous else ", ""),
        "waits in a compiled call": (
            "compiled = together(machine.call_overhead, bytes_fused / machine.bandwidth)",
            "compiled = machine.call_overhead + bytes_fused / machine.bandwidth",
        ),
        "one call more": (
            "math.ceil(machine.first_call / (eager - compiled))",
            "int(machine.first_call / (eager - compiled)) + 1",
        ),
        "as long is shorter": ("if compiled < eager", "if compiled <= eager"),
        "pays at last though it is slower": (
            "math.ceil(machine.first_call / (eager - compiled)) if compiled < eager else None",
            "math.ceil(machine.first_call / abs(eager - compiled))",
        ),
    },
}  # fmt: skip


def test_the_lesson_has_these_exercises_and_no_others():
    assert LESSON.exercises == list(ALTERNATIVES) == list(WRONG)


@pytest.mark.parametrize("exercise", LESSON.exercises)
def test_the_reference_and_an_alternative_right_answer_pass(exercise):
    reference = LESSON.verdict(exercise)
    assert reference.passed, str(reference)
    alternative = LESSON.verdict(exercise, LESSON.written(exercise, ALTERNATIVES[exercise]))
    assert alternative.passed, str(alternative)


@pytest.mark.parametrize("exercise", LESSON.exercises)
def test_the_untouched_stub_ends_with_its_own_sentence(exercise):
    untouched = LESSON.verdict(exercise, LESSON.stub(exercise))
    assert untouched.error == "NotImplementedError" and "write this part" in untouched.message, str(
        untouched
    )


@pytest.mark.parametrize("exercise", LESSON.exercises)
def test_wrong_answers_fail_each_for_its_own_reason(exercise):
    verdicts = {
        name: LESSON.verdict(exercise, LESSON.edited(exercise, *edit))
        for name, edit in WRONG[exercise].items()
    }
    assert len(verdicts) >= 3
    own_reasons(verdicts)


LIAR = """
class Liar(float):
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = lambda self, other: True
    __hash__ = float.__hash__
"""


def test_an_object_that_claims_to_equal_everything_earns_nothing():
    """`==` of the learner's own making decides no check."""
    assert not LESSON.verdict(
        "median_time", LIAR + LESSON.written("median_time", "    return Liar(0)")
    ).passed
    assert not LESSON.verdict(
        "attainable", LIAR + LESSON.written("attainable", "    return Liar(0), 'memory'")
    ).passed
    lies = LESSON.written("predict", "    return Prediction(Liar(0), Liar(0), Liar(0), Liar(0))")
    assert not LESSON.verdict("predict", LIAR + lies).passed


def test_the_scheduler_does_not_write_the_answer_to_its_own_exercise():
    """`by_the_scheduler` is there to judge; sizes alone do not tell it the shapes."""
    asking = """
    judged = by_the_scheduler(chain, {name: (size // 4,) for name, size in nbytes.items()}, outputs)
    return int(judged.bytes_before), int(judged.bytes_after)
"""
    verdict = LESSON.verdict("traffic", LESSON.written("traffic", asking))
    assert not verdict.passed, str(verdict)
