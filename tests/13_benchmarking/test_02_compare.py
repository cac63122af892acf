"""Results before times: `course_lib.bench.compare`, with contenders whose answer is known."""

from __future__ import annotations

import functools
import time

import pytest
import torch

from course_lib.bench import compare, models, report
from course_lib.bench.compare import Contender, Program, Workload

QUICK = {"rounds": 3, "warmup": 1, "min_time": 0.0}


def double_then_add(x, y):
    return x * 2 + y


WORKLOAD = Workload(
    "double", double_then_add, functools.partial(models.random_inputs, ((8, 16), (16,)))
)


def contender(name, change, program=None):
    """`change(function)` stands for a compiler."""

    def watch(run):
        run()
        return program

    return Contender(name, change, watch)


def race(*others, workload=WORKLOAD, **how):
    return compare.compare(workload, [compare.eager(), *others], **{**QUICK, **how})


def test_a_slow_compiler_is_told_apart_from_a_slow_program():
    def slow_compiler(function):
        compiled = []

        def run(*args):
            if not compiled:
                time.sleep(0.05)
                compiled.append(True)
            return function(*args)

        return run

    eager, outcome = race(contender("compiled", slow_compiler))
    assert outcome.first_call > 0.05 > outcome.samples.median
    assert eager.first_call < 0.05


def test_the_slower_contender_comes_out_slower():
    def slowed(function):
        def run(*args):
            time.sleep(0.002)
            return function(*args)

        return run

    outcomes = race(contender("slow", slowed))
    assert report.speedup(outcomes[1], outcomes, "eager") < 0.5


def test_a_wrong_result_is_told_and_not_timed():
    outcome = race(contender("wrong", lambda function: lambda *args: function(*args) + 0.01))[1]
    assert outcome.wrong and outcome.samples is None
    assert outcome.problem == "wrong result: differs from eager by up to 1.0e-02"
    assert outcome.max_abs_diff == pytest.approx(0.01, rel=1e-2)


def test_a_result_that_is_right_only_for_the_first_input_is_found():
    """Fresh inputs: a compiler that baked a value in as a constant must not pass."""

    def constant(function):
        return lambda *args: results.setdefault("first", function(*args))

    results = {}
    assert race(contender("constant", constant))[1].wrong


def test_another_dtype_is_a_wrong_result_even_with_the_same_values():
    outcome = race(contender("wide", lambda function: lambda *args: function(*args).double()))[1]
    assert outcome.wrong and "torch.float64" in outcome.problem


def test_nan_is_right_only_where_eager_gives_nan():
    nan = Workload("log", torch.log, functools.partial(models.random_inputs, ((32,),)))
    assert not race(contender("same", lambda function: function), workload=nan)[1].wrong
    zeroed = contender("zeroed", lambda function: lambda x: function(x).nan_to_num())
    assert race(zeroed, workload=nan)[1].wrong


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_no_error_in_any_dtype(dtype):
    inputs = functools.partial(models.random_inputs, ((8, 16), (16,)), dtype=dtype)
    workload = Workload("double", double_then_add, inputs)
    precise = contender(
        "precise",
        lambda function: lambda *args: function(*(arg.double() for arg in args)).to(dtype),
    )
    assert not race(precise, workload=workload)[1].wrong


def test_who_fails_is_told_and_the_others_go_on():
    def broken(function):
        raise RuntimeError("no C++ compiler\nand a long story") from ValueError("g++ was not found")

    eager, outcome, last = race(
        contender("broken", broken), contender("fine", lambda function: function)
    )
    assert (
        outcome.problem == "ValueError: g++ was not found"
        and outcome.samples is None
        and not outcome.wrong
    )
    assert eager.samples and last.samples


def test_training_checks_every_gradient():
    model = models.TinyBlock(8, expansion=2)
    workload = Workload(
        "block", model, lambda: (torch.randn(2, 3, 8).requires_grad_(),), train=True
    )

    class Scaled(torch.autograd.Function):
        """The right output and a wrong gradient."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return 1.5 * gradient

    wrong = contender("wrong backward", lambda function: lambda x: Scaled.apply(function(x)))
    right = contender("right", lambda function: function)
    outcomes = race(wrong, right, workload=workload)
    assert [outcome.wrong for outcome in outcomes] == [False, True, False]


def test_a_model_in_which_rounding_grows_is_judged_by_double_precision():
    """What is no further from double precision than eager is right; what is further is wrong."""

    class Steep(torch.nn.Module):
        """Makes 1e6 of what rounding leaves of 0, as batch norms of nearly equal values do."""

        def forward(self, x):
            return ((x + 1.0) - x - 1.0) * 1e6 + x

    workload = Workload("steep", Steep(), lambda: (torch.randn(64),))
    shifted = lambda by: lambda model: lambda x: model(x) + by(x)
    unlike = race(
        contender("another rounding", shifted(lambda x: 0.01 * torch.randn_like(x))),
        workload=workload,
    )[1]
    wrong = race(contender("wrong", shifted(lambda x: 1.0)), workload=workload)[1]
    assert not unlike.wrong and "rounding grows" in unlike.notes[0] and unlike.samples
    assert wrong.wrong and "differs from eager by up to 1.0e+00" in wrong.problem


def test_inference_runs_without_gradients_and_training_with():
    seen = []

    def look(x):
        seen.append((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        return x * 2

    def inputs():
        return (torch.randn(4).requires_grad_(),)

    compare.compare(Workload("look", look, inputs), [compare.eager()], **QUICK)
    assert set(seen) == {(True, False)}
    seen.clear()
    compare.compare(Workload("look", look, inputs, train=True), [compare.eager()], **QUICK)
    assert set(seen) == {(False, True)}


def test_what_was_compiled_reads_as_a_sentence():
    program = Program(graphs=1, breaks=0, kernels=3, library_calls=2, recompiles=0)
    assert str(program) == "1 graph, no graph breaks, no recompiles, 3 kernels, 2 library calls"
    program.fallbacks = ["the graph runs operation by operation: training comes with lesson 06"]
    assert str(program).endswith(
        "; the graph runs operation by operation: training comes with lesson 06"
    )
