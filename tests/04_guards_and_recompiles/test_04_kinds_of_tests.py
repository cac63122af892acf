"""Each kind of test that a guard has: the condition, when it holds, and what is said where it does not."""

from __future__ import annotations

import pytest
import torch

from course_lib.capture import Local
from course_lib.capture.guard_tests import (
    AnotherObject,
    DeviceIs,
    DimensionsAre,
    DtypeIs,
    Equals,
    Guard,
    HasKey,
    Holds,
    Is,
    IsConjugated,
    IsNegated,
    IsOnCpu,
    KeysAre,
    LacksAttribute,
    LacksKey,
    LengthIs,
    PrintsAs,
    RequiresGrad,
    SameObject,
    SizeIs,
    SizesAre,
    StridesAre,
    SwitchIs,
    TypeIs,
)
from course_lib.capture.sources import FRAME
from course_lib.guards import Check
from course_lib.guards.tensors import CPU, LooksLike, looks_of

THING, OTHER = object(), object()
Y = Local("y")
x = torch.zeros(2, 3)

# the test, an object for which it holds, one for which it does not, and what is said of that
TABLE = [
    (TypeIs(int), 3, True, "type(x): expected int, got bool"),
    (Is(None), None, 0, "x: expected None, got 0"),
    (Equals("a"), "a", "b", "x: expected 'a', got 'b'"),
    (PrintsAs("0.0"), 0.0, -0.0, "repr(x): expected '0.0', got '-0.0'"),
    (SameObject(Y), THING, OTHER, "x: expected the same object as y, got one that is not"),
    (AnotherObject(Y), OTHER, THING, "x: expected another object than y, got it"),
    (LengthIs(2), [1, 2], [1], "len(x): expected 2, got 1"),
    (KeysAre(("a",)), {"a": 1}, {"b": 1}, "tuple(x): expected ('a',), got ('b',)"),
    (HasKey("a"), {"a": 1}, {}, "'a' in x: expected True, got False"),
    (LacksKey("a"), {}, {"a": 1}, "'a' not in x: expected True, got False"),
    (LacksAttribute("real"), [], 1, "not hasattr(x, 'real'): expected True, got False"),
    (DtypeIs(torch.float32), x, x.double(), "x.dtype: expected torch.float32, got torch.float64"),
    (SizesAre((2, 3)), x, x.mT, "x.shape[0]: expected 2, got 3"),
    (SizesAre((2, 3)), x, x[0], "x.shape: expected (2, 3), got torch.Size([3])"),
    (StridesAre((3, 1)), x, x.mT, "x.stride()[0]: expected 3, got 1"),
    (SizeIs(1, 3), x, x.mT, "x.shape[1]: expected 3, got 2"),
    (DimensionsAre(2), x, x[0], "x.ndim: expected 2, got 1"),
    (
        RequiresGrad(False),
        x,
        torch.zeros(2, requires_grad=True),
        "x.requires_grad: expected False, got True",
    ),
    (IsNegated(False), x, torch._neg_view(x), "x.is_neg(): expected False, got True"),
    (IsConjugated(False), x.cfloat(), x.cfloat().conj(), "x.is_conj(): expected False, got True"),
    (IsOnCpu(), x, x.to("meta"), "x.is_cpu: expected True, got False"),
    (DeviceIs(torch.device("meta")), x.to("meta"), x, "x.device: expected device(type='meta'), got device(type='cpu')"),
    (Holds("{} > 2", "x is large"), 3, 1, "x is large: expected True, got False"),
]  # fmt: skip


@pytest.mark.parametrize(("test", "good", "bad", "said"), TABLE, ids=lambda value: "")
def test_a_check_and_its_reason_agree(test, good, bad, said):
    check = Check([Guard(Local("x"), "value", (test,))], ["x", "y"])
    function = lambda: None
    assert check(function, good, THING) and check.first_failure(function, good, THING) is None
    assert not check(function, bad, THING)
    assert str(check.first_failure(function, bad, THING)) == said


def test_a_switch_of_torch_has_a_name_of_its_own_in_a_check():
    test = SwitchIs("torch.is_grad_enabled", True)
    check = Check([Guard(FRAME, "state", (test,))], [])
    assert "if is_grad_enabled() is not True" in check.source
    function = lambda: None
    assert check(function)
    with torch.no_grad():
        assert not check(function)
        failure = check.first_failure(function)
    assert str(failure) == "torch.is_grad_enabled(): expected True, got False"


def test_what_c_asks_of_a_tensor_is_read_from_the_kinds_of_its_tests():
    tests = (
        TypeIs(torch.Tensor),
        DtypeIs(torch.float32),
        SizesAre((2, 3)),
        StridesAre((3, 1)),
        RequiresGrad(False),
        IsNegated(False),
        IsOnCpu(),
    )
    looks = looks_of(Guard(Local("x"), "tensor", tests))
    assert looks == LooksLike(torch.Tensor, torch.float32, (2, 3), (3, 1), False, False, CPU)

    # one test more or less, and Python has to ask
    for others in (tests[:-1], (*tests, IsConjugated(False)), (TypeIs(list), *tests[1:])):
        assert looks_of(Guard(Local("x"), "tensor", others)) is None
