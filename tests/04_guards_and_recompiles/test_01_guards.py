"""Guards: when compiled code may be used again, and what is said when it may not."""

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import course_lib as cl
from course_lib import events
from course_lib.capture.guard_tests import Guard, SwitchIs
from course_lib.capture.sources import FRAME
from course_lib.guards import Check, writing
from course_lib.guards.tensors import in_c
from course_lib.viz.recording import Recording


class Count:
    """A backend that counts the graphs it is given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


def compiles(function, *calls):
    """How many graphs each further call makes; every call is compared with eager."""
    backend = Count()
    compiled = cl.compile(function, backend=backend)
    made = []
    for args in calls:
        before = backend.graphs
        assert_close(compiled(*args), function(*args))
        made.append(backend.graphs - before)
    return made


def test_the_same_shapes_compile_once():
    assert compiles(lambda x: x + 1, (torch.randn(4),), (torch.randn(4),), (torch.randn(4),)) == [
        1,
        0,
        0,
    ]


@pytest.mark.parametrize(
    "other",
    [
        torch.randn(5, 4),
        torch.randn(4, 4, dtype=torch.float64),
        torch.randn(4, 4).t(),
        torch.randn(8, 4)[::2],
        nn.Parameter(torch.randn(4, 4)),
        torch.randn(4, 4, requires_grad=True),
    ],
    ids=["shape", "dtype", "stride", "step", "parameter", "requires_grad"],
)
def test_what_the_graph_depends_on_is_guarded(other):
    assert compiles(
        lambda x: x * 2, (torch.randn(4, 4),), (other,), (torch.randn(4, 4),), (other,)
    ) == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "a, b",
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("sum", "mean"),
        (None, 1),
        ((1, 2), (1, 3)),
        ([1], [1, 2]),
    ],
)
def test_python_arguments_are_constants_with_a_guard(a, b):
    def f(x, k):
        return (
            x.sum()
            if k in ("sum", None)
            else torch.copysign(x, torch.tensor(float(k)))
            if isinstance(k, float)
            else x * len(str(k))
        )

    x = torch.randn(3)
    assert compiles(f, (x, a), (x, b), (x, a), (x, b)) == [1, 1, 0, 0]


def test_nan_is_equal_to_itself_for_a_guard():
    assert compiles(lambda x, k: x + k, *[(torch.zeros(2) + 1, 3.5)] * 3) == [1, 0, 0]
    compiled = cl.compile(lambda x, k: x + k, backend=(count := Count()))
    for _ in range(3):
        compiled(torch.ones(2), float("nan"))
    assert count.graphs == 1


SCALE = 2.0


def reads_a_global(x):
    return x * SCALE


def test_globals_closures_and_attributes_are_guarded(monkeypatch):
    k = 1.0

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2.0
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return self.lin(x) * self.k if self.training else x

    def reads_a_closure(x):
        return x + k

    model, x = Scale(), torch.randn(2, 2)
    steps = {
        reads_a_global: lambda: monkeypatch.setitem(globals(), "SCALE", 3.0),
        reads_a_closure: None,
        model: lambda: setattr(model, "k", 5.0),
    }
    for function, change in steps.items():
        backend = Count()
        compiled = cl.compile(function, backend=backend)
        assert_close(compiled(x), function(x))
        if change:
            change()
        else:
            k = 7.0
        assert_close(compiled(x), function(x))
        assert_close(compiled(x), function(x))
        assert backend.graphs == 2
    model.eval()
    assert_close(compiled(x), model(x))
    model.lin = nn.Linear(2, 2, bias=False)
    model.train()
    assert_close(compiled(x), model(x))


def test_grad_mode_and_default_dtype_are_guarded():
    backend = Count()
    compiled = cl.compile(lambda x: x + torch.zeros(2), backend=backend)
    x = torch.randn(2)
    compiled(x)
    with torch.no_grad():
        compiled(x)
    with torch.inference_mode():
        compiled(x)
    try:
        torch.set_default_dtype(torch.float64)
        assert compiled(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert backend.graphs == 4


def test_hooks_put_on_later_run():
    model, seen = nn.Linear(2, 2), []
    compiled = cl.compile(model, backend="eager")
    x = torch.randn(1, 2)
    compiled(x)
    model.register_forward_hook(lambda *_: seen.append(1))
    compiled(x)
    compiled(x)
    assert len(seen) == 2


def test_a_failing_guard_says_which_part_failed_and_which_line_wanted_it():
    def f(x):
        return x + 1

    recording = Recording()
    compiled = cl.compile(f, backend="eager")
    compiled(torch.randn(4, 8))
    with events.listener(recording.events.append):
        compiled(torch.randn(4, 16))
    (failure,) = recording.of(events.GuardFailed)
    assert failure.got.startswith("x.shape[1]: expected 8, got 16")
    assert recording.recompiles[0].entries == 2


def test_each_guard_prints_as_python_with_its_cause():
    guards = cl.explain(lambda x: x.sin())(torch.randn(2)).guards
    (tensor,) = [guard for guard in guards if guard.kind == "tensor"]
    assert "x.shape == (2,)" in str(tensor) and "x.dtype is torch.float32" in str(tensor)


def test_at_the_recompile_limit_new_shapes_run_in_eager_and_old_entries_stay():
    backend = Count()
    compiled = cl.compile(lambda x: x * 2 + 1, backend=backend, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(2, 14):
            assert_close(compiled(torch.ones(n)), torch.full((n,), 3.0))
    assert backend.graphs == cl.config.recompile_limit == 8
    assert any(
        "recompile limit (8)" in str(w.message) and "x.shape[0]: expected" in str(w.message)
        for w in caught
    )


def test_two_compiles_of_one_function_do_not_share_entries():
    def f(x):
        return x + 1

    one, two = Count(), Count()
    cl.compile(f, backend=one)(torch.ones(2))
    cl.compile(f, backend=two)(torch.ones(2))
    assert (one.graphs, two.graphs) == (1, 1)


def test_reset_forgets_compiled_code():
    backend = Count()
    compiled = cl.compile(lambda x: x + 1, backend=backend)
    compiled(torch.ones(2))
    cl.reset()
    compiled(torch.ones(2))
    assert backend.graphs == 2


# ---- what is asked of a tensor at once ----------------------------------------------------------------------------------


def looks(x):
    """What `looks_like` is given for a tensor that looks like this one."""
    device = -1 if x.is_cpu else x.device.index
    return type(x), x.dtype, tuple(x.shape), x.stride(), x.requires_grad, x.is_neg(), device


class Own(torch.Tensor):
    """A tensor with a class of its own."""


def tensors():
    """Tensors that differ from each other in at least one thing that a kernel depends on, by what it is."""
    x = torch.randn(2, 3, 4)
    return {
        "plain": x,
        "another size": torch.randn(2, 3, 5),
        "one dimension more": x[None],
        "another stride": torch.randn(2, 4, 3).mT,
        "double": x.double(),
        "int32": x.int(),
        "its gradient is wanted": x.clone().requires_grad_(),
        "a parameter": nn.Parameter(x),
        "a parameter that is frozen": nn.Parameter(x, requires_grad=False),
        "its sign is turned when it is read": torch.randn(2, 3, 4, dtype=torch.complex64)
        .conj()
        .imag.contiguous()
        ._neg_view(),
        "no memory": x.to("meta"),
        "a subclass": x.as_subclass(Own),
        "nothing in it": torch.empty(0),
        "no dimension": torch.tensor(1.0),
    }


def test_a_tensor_looks_only_like_those_with_the_same_type_dtype_sizes_strides_flags_and_place():
    looks_like = in_c().looks_like
    for name, x in tensors().items():
        for other, y in tensors().items():
            if not x.is_meta:
                assert looks_like(y, *looks(x)) is (name == other), (name, other)


def test_what_is_no_strided_tensor_looks_like_none():
    looks_like, wanted = in_c().looks_like, looks(torch.randn(2, 3, 4))
    x = torch.randn(2, 3, 4)
    for other in (x.to_sparse(), x.to_mkldnn(), 3, None, x.numpy()):
        assert looks_like(other, *wanted) is False


def test_a_tensor_that_changes_in_place_looks_otherwise():
    looks_like, p = in_c().looks_like, nn.Parameter(torch.randn(3))
    wanted = looks(p)
    for data in (torch.randn(4), torch.randn(3, dtype=torch.float16), torch.randn(6)[::2]):
        p.data = data
        assert looks_like(p, *wanted) is False
    p.data = torch.randn(3)
    assert looks_like(p, *wanted) is True
    assert looks_like(p.requires_grad_(False), *wanted) is False


def test_all_that_is_asked_of_an_ordinary_tensor_is_one_call_and_of_others_each_thing_by_itself():
    def f(x):
        return x.abs() + 1

    checks = []
    for x, dynamic in (
        (torch.randn(4, 3), False),
        (torch.randn(4, 3), True),
        (torch.randn(4, 3, dtype=torch.complex64), False),
    ):
        with cl.record() as trace:
            cl.compile(f, backend="eager", dynamic=dynamic)(x)
        checks.append(Check(trace.captures[0].guards, ["x"]))
    asked = ["looks_like(x, Tensor" in check.source for check in checks]
    assert asked == [True, False, False] and ["x.is_neg()" in check.source for check in checks] == [
        False,
        True,
        True,
    ]
    assert checks[0].first_failure(f, torch.randn(4, 5)).part == "x.shape[1]"


# ---- attributes of modules ------------------------------------------------------------------------------------------------


class Slotted:
    """Some of its attributes lie in slots, some in its `__dict__`, and others it makes up."""

    __slots__ = ("__dict__", "scale")

    def __init__(self):
        self.scale, self.shift = 2.0, 3.0

    def __getattr__(self, name):
        return {"more": 1.0}[name]


def test_attributes_of_objects_with_a_getattr_are_found_wherever_they_lie():
    it = Slotted()

    def f(x):
        return x * it.scale + it.shift + it.more

    backend = Count()
    compiled = cl.compile(f, backend=backend)
    for _ in range(2):
        assert_close(compiled(torch.ones(2)), f(torch.ones(2)))
    assert backend.graphs == 1
    for name in ("scale", "shift", "more"):  # the last: one of its own hides what it makes up
        setattr(it, name, 7.0)
        assert_close(compiled(torch.ones(2)), f(torch.ones(2)))
    assert backend.graphs == 4


def test_a_module_s_attributes_are_read_from_its_dict_and_shown_as_a_user_writes_them():
    layer = nn.LayerNorm(8)
    with cl.record() as trace:
        compiled = cl.compile(layer, backend="eager")
        compiled(torch.randn(2, 8))
    guards = trace.captures[0].guards
    assert "['eps']" in Check(
        guards, ["self", "input"]
    ).source and "self.eps == 1e-05" in "\n".join(map(str, guards))
    layer.eps = 0.5
    assert_close(compiled(x := torch.randn(2, 8)), layer(x))


class Deep(nn.Module):
    """More parameters than a head shows each with its whole path."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(12)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x


def test_a_head_with_many_inputs_looks_their_common_paths_up_once():
    model, x = Deep(), torch.randn(2, 4)
    with cl.record() as trace:
        compiled = cl.compile(model, backend="eager")
        assert_close(compiled(x), model(x))
    source = trace.captures[0].head.source
    assert source.count("['blocks']") == 1 and source.count("['weight']") == 24
    model.blocks[3][0] = nn.Linear(4, 4)
    assert_close(compiled(x), model(x))


@pytest.mark.parametrize("parameters", [["x"], ["is_available"]])
def test_switches_of_one_name_are_told_apart(parameters):
    asked = (torch.distributed.is_available, torch.cuda.is_available, torch.mps.is_available)
    named = [f"{function.__module__}.is_available" for function in asked]

    for expected in ([f() for f in asked], [not f() for f in asked]):
        tests = tuple(SwitchIs(path, value) for path, value in zip(named, expected, strict=True))
        for test in tests:
            check = Check([Guard(FRAME, "state", (test, *tests))], parameters)
            holds = all(eval(t.left) is t.right for t in (test, *tests))
            assert check(lambda: None, None) is holds


class Key:
    """A key that no Python text stands for: the value under it is found by its place."""


def test_a_text_that_looks_like_a_path_is_compared_as_it_is():
    """In a formula a variable stands for the path `[*dict.values(d)]`; not in a text of the
    program."""
    key = Key()

    def scaled(d, text, x):
        for value in d.values():
            x = x * value
        return x + 1 if text == "[*dict.values(d)]" else x

    texts = ["[*dict.values(d)]", "[*dict.values(d)]", *(f"v{n}" for n in range(6))]
    calls = [({key: 2}, text, torch.ones(2)) for text in texts]
    assert compiles(scaled, *calls)[:2] == [1, 0]


def test_a_name_of_c_is_unknown_where_there_is_no_c(monkeypatch):
    monkeypatch.setattr(writing, "in_c", lambda: None)
    names = writing.Names(["x"])
    assert not set(writing.IN_C) & set(names.known)
