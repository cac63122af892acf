"""What `except`, `with` and `match` ask of a class: the same as in CPython, and as often."""

import collections
from collections.abc import Mapping

import pytest
import torch

import course_lib as cl

ASKED = []


# ---- match: the values under keys ------------------------------------------------------------------------------------


class OwnItem(dict):
    def __getitem__(self, key):
        ASKED.append(("item", key))
        return "own"


class OwnContains(dict):
    def __contains__(self, key):
        ASKED.append(("in", key))
        return True


class OwnGet(dict):
    def get(self, key, default=None):
        ASKED.append(("get", key))
        return dict.get(self, key, default)


class Table(Mapping):
    def __init__(self, **held):
        self.held = held

    def __getitem__(self, key):
        ASKED.append(key)
        return self.held[key]

    def __iter__(self):
        return iter(self.held)

    def __len__(self):
        return len(self.held)


class Names:
    first = "a"
    same = "a"


def one_key(x, subject):
    match subject:
        case {"a": value}:
            return x + 1, value
        case _:
            return x + 2, None


def one_key_twice(x, subject):
    try:
        match subject:
            case {Names.first: value, Names.same: _}:
                return x + 1, value
    except ValueError as error:
        return x + 2, str(error)
    return x + 3, None


SUBJECTS = [
    OwnItem(a=1),
    OwnContains(b=1),
    OwnGet(a=1),
    OwnGet(b=1),
    Table(a=1, b=2),
    Table(b=1),
    {"a": None, "b": 1},
    collections.defaultdict(int),
    collections.Counter(b=2),
]


@pytest.mark.parametrize(
    "subject", SUBJECTS, ids=lambda subject: f"{type(subject).__name__}{len(subject)}"
)
@pytest.mark.parametrize("function", [one_key, one_key_twice])
def test_match_asks_get_once_for_each_key(function, subject):
    as_in_eager(function, subject)


# ---- except: which classes match -------------------------------------------------------------------------------------


class SaysYes(type):
    def __instancecheck__(cls, obj):
        ASKED.append("instance")
        return True

    def __subclasscheck__(cls, other):
        ASKED.append("subclass")
        return True


class Willing(Exception, metaclass=SaysYes):
    pass


class Below(ValueError):
    pass


def caught(x, kinds):
    try:
        try:
            raise Below("a")
        except kinds:
            return x + 1, ""
    except TypeError as error:
        return x + 2, str(error)
    except ValueError:
        return x + 3, ""


KINDS = [
    Below,
    ValueError,
    KeyError,
    (),
    (KeyError, ValueError),
    (KeyError, IndexError),
    Willing,
    (Willing, KeyError),
    int,
    (ValueError, int),
    (ValueError, "text"),
    ((ValueError,),),
    object,
]


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_except_takes_subclasses_and_refuses_what_is_no_exception(kinds):
    as_in_eager(caught, kinds)


# ---- with: the class must have both methods --------------------------------------------------------------------------


class Both:
    def __enter__(self):
        ASKED.append("enter")

    def __exit__(self, *error):
        ASKED.append("exit")


class Neither:
    pass


class OnlyEnter:
    def __enter__(self):
        ASKED.append("enter")


class OnlyExit:
    def __exit__(self, *error):
        ASKED.append("exit")


class InTheInstance:
    def __init__(self):
        self.__enter__ = self.__exit__ = lambda *error: ASKED.append("instance")


class ForAsync:
    async def __aenter__(self):
        ASKED.append("aenter")

    async def __aexit__(self, *error):
        ASKED.append("aexit")


def entered(x, manager):
    try:
        with manager:
            x = x + 1
    except AttributeError as error:
        return x + 2, str(error)
    except TypeError as error:
        return x + 3, str(error)
    return x, ""


def made_inside(x, cls):
    return entered(x, cls())


MANAGERS = [Both, Neither, OnlyEnter, OnlyExit, InTheInstance, ForAsync]


@pytest.mark.parametrize("cls", MANAGERS)
def test_with_asks_the_class_for_both_methods(cls):
    as_in_eager(entered, cls())
    as_in_eager(made_inside, cls)


def as_in_eager(function, argument):
    """Result, what was asked, and what the argument holds afterwards."""
    found = []
    for called in (function, cl.compile(function, backend="eager")):
        ASKED.clear()
        x, said = called(torch.zeros(1), argument)
        found.append((x.item(), said, list(ASKED), str(argument)))
    assert found[1] == found[0]
