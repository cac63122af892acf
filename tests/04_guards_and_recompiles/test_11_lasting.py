"""Guards that hold until a dictionary changes (`guards/check.py`): the check says what asking each guard says."""

import copy
import gc
import sys
import weakref

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import course_lib as cl
from course_lib.guards import Check


class Settings:
    """An object that is no module, with an attribute that is made up."""

    def __init__(self):
        self.scale, self.sizes = 2.0, (2, 3)

    def __getattr__(self, name):
        if name == "made_up":
            return 1.0
        raise AttributeError(name)


class Mark:
    """Only its class is looked at."""

    __slots__ = ()


class OtherMark:
    __slots__ = ()


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.act = nn.BatchNorm1d(4), nn.ReLU()
        self.settings, self.names, self.pair, self.flag = (
            Settings(),
            ["a", "b"],
            (1.0, (2.0, 3.0)),
            True,
        )
        self.mark = Mark()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x):
        x = self.act(self.norm(x)) * self.weight + self.shift
        if (
            self.flag
            and self.names[0] == "a"
            and len(self.names) == 2
            and isinstance(self.mark, Mark)
        ):
            x = (
                x * self.pair[0]
                + self.pair[1][1] * self.settings.scale
                + self.settings.sizes[0]
                + self.settings.made_up
            )
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(), Part()])
        self.rest = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
        self.plain = [Part()]  # a list: its item is looked up in each call

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return self.plain[0](self.rest(x))


def new_hook(module, args, output):
    return output


KEPT: list[dict[str, object]] = []  # dictionaries that lie where they lay, and are nobody's
CHANGES = {
    "nothing": lambda m: None,
    "another weight": lambda m: setattr(m, "weight", nn.Parameter(torch.ones(4))),
    "another shape": lambda m: setattr(m, "weight", nn.Parameter(torch.ones(1))),
    "data": lambda m: setattr(m.weight, "data", torch.ones(4, dtype=torch.float64)),
    "data as before": lambda m: setattr(m.weight, "data", torch.zeros(4)),
    "frozen": lambda m: m.weight.requires_grad_(False),
    "thawed": lambda m: m.weight.requires_grad_(True),
    "in the registry": lambda m: m._parameters.update(weight=nn.Parameter(torch.ones(1))),
    "none": lambda m: setattr(m, "weight", None),
    "buffer": lambda m: setattr(m, "shift", torch.zeros(1)),
    "buffer deleted": lambda m: m._buffers.pop("shift", None),
    "eval": lambda m: m.eval(),
    "train": lambda m: m.train(),
    "eps": lambda m: setattr(m.norm, "eps", 0.5),
    "eps as before": lambda m: setattr(m.norm, "eps", 1e-5),
    "momentum": lambda m: object.__setattr__(m.norm, "momentum", 0.5),
    "another layer": lambda m: setattr(m, "act", nn.ReLU()),
    "another kind of layer": lambda m: setattr(m, "act", nn.GELU()),
    "another class": lambda m: setattr(
        m.act, "__class__", nn.GELU if type(m.act) is nn.ReLU else nn.ReLU
    ),
    "hook": lambda m: m.norm.register_forward_hook(new_hook),
    "pre-hook": lambda m: m.act._forward_pre_hooks.setdefault(7, new_hook),
    "no hook": lambda m: (m.norm._forward_hooks.clear(), m.act._forward_pre_hooks.clear()),
    "own forward": lambda m: m.act.__dict__.update(forward=torch.sigmoid),
    "own forward gone": lambda m: m.act.__dict__.pop("forward", None),
    "tuple": lambda m: setattr(m, "pair", (1.0, (2.0, 4.0))),
    "tuple as before": lambda m: setattr(m, "pair", (1.0, (2.0, 3.0))),
    "list item": lambda m: m.names.__setitem__(slice(0, 1), ["c"]),
    "list longer": lambda m: m.names.append("c"),
    "list shorter": lambda m: m.names.__delitem__(slice(-1, None)),
    "another mark": lambda m: setattr(m.mark, "__class__", OtherMark),
    "the mark again": lambda m: setattr(m.mark, "__class__", Mark),
    "list item as before": lambda m: m.names.__setitem__(slice(0, 1), ["a"]),
    "setting": lambda m: setattr(m.settings, "scale", 3.0),
    "setting as before": lambda m: setattr(m.settings, "scale", 2.0),
    "setting of another type": lambda m: setattr(m.settings, "scale", 2),
    "another object": lambda m: setattr(m, "settings", Settings()),
    "made up no more": lambda m: setattr(m.settings, "made_up", 5.0),
    "made up again": lambda m: m.settings.__dict__.pop("made_up", None),
    "dictionary replaced": lambda m: setattr(m, "__dict__", dict(m.__dict__)),
    "dictionary replaced by another": lambda m: (
        KEPT.append(m.__dict__) or setattr(m, "__dict__", {**m.__dict__, "flag": False})
    ),
    "its settings' replaced": lambda m: setattr(
        m.settings, "__dict__", {"scale": 9.0, "sizes": (2, 3)}
    ),
    "deleted": lambda m: m.__dict__.pop("flag", None),
    "set again": lambda m: setattr(m, "flag", True),
    "flag": lambda m: m.__dict__.update(flag=False),
    "something else": lambda m: setattr(m, "counter", getattr(m, "counter", 0) + 1),
}
WHICH = {
    "first": lambda m: m.parts[0],
    "second": lambda m: m.parts[1],
    "in the list": lambda m: m.plain[0],
}
ABOVE = {
    "exchanged": lambda m: m.parts._modules.update({"0": m.parts[1], "1": m.parts[0]}),
    "appended": lambda m: m.parts.append(Part()),
    "popped": lambda m: m.parts._modules.popitem() if len(m.parts) > 2 else None,
    "copied": lambda m: m.parts.__setitem__(0, copy.deepcopy(m.parts[0])),
    "in the list": lambda m: m.plain.__setitem__(0, Part()),
    "all": lambda m: m.eval(),
    "all train": lambda m: m.train(),
}


X, FORWARD, MODEL = torch.randn(3, 4), Model.forward, Model()


@pytest.fixture(scope="module")
def check():
    with cl.record() as trace, torch.no_grad():
        cl.compile(MODEL, backend="eager")(X)
    return Check(trace.captures[0].guards, ["self", "x"])


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="Python 3.13 gives dictionaries no versions to go by"
)
def test_most_guards_of_a_module_are_asked_again_only_when_a_dictionary_changed(check):
    asked, again = check.source.split("def again")
    assert 3 * asked.count("if ") < again.count("if ") and "unchanged(noted, self, v" in asked


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(sorted(WHICH)), st.sampled_from(sorted(CHANGES))),
            st.tuples(st.just(""), st.sampled_from(sorted(ABOVE))),
        ),
        max_size=12,
    )
)
def test_the_check_says_what_asking_each_guard_says(check, changes):
    model = copy.deepcopy(MODEL)
    with torch.no_grad():
        assert check(FORWARD, model, X) and check(FORWARD, model, X), check.first_failure(
            FORWARD, model, X
        )
        for which, change in changes:
            ABOVE[change](model) if not which else CHANGES[change](WHICH[which](model)) if may(
                model, which, change
            ) else None
            expected = check.first_failure(FORWARD, model, X) is None
            for _ in range(3):
                assert check(FORWARD, model, X) is expected, (
                    which,
                    change,
                    check.first_failure(FORWARD, model, X),
                )


def test_a_note_keeps_nothing_alive(check):
    with torch.no_grad():
        for _ in range(3):  # the next model may lie where the last one lay
            model = copy.deepcopy(MODEL)
            gone = weakref.ref(model.parts[0])
            assert check(FORWARD, model, X) and check(FORWARD, model, X)
            model.parts[0].pair = (1.0, (2.0, 4.0))
            assert not check(FORWARD, model, X)
            del model
            gc.collect()
            assert gone() is None and not check(FORWARD, None, X)


class Odd(Settings):
    """What a module keeps in dictionaries, by the same names, in other things."""

    def __init__(self):
        super().__init__()
        self._modules, self._buffers, self._parameters = (), [1.0], (2.0,)


def test_registries_that_are_no_dictionaries_are_asked_each_time():
    odd = Odd()
    compiled = cl.compile(
        lambda x: x * odd._parameters[0] + odd._buffers[0] + len(odd._modules), backend="eager"
    )
    for _ in range(4):
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
    odd._buffers[0] = 2.0
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]
    odd._modules, odd._parameters = (1,), (3.0,)
    assert compiled(torch.ones(2)).tolist() == [6.0, 6.0]


def may(model, which, change):
    """Does the change apply to what is left?"""
    try:
        part = WHICH[which](model)
        return part.weight is not None or change not in (
            "data",
            "data as before",
            "frozen",
            "thawed",
        )
    except (AttributeError, IndexError):
        return False
