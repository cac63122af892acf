"""What `cl.compile` takes beside the model: limits, names, the default backend. They mean what they mean in torch.compile."""

import inspect
import warnings

import pytest
import torch

import course_lib as cl


class Counts:
    """A backend that counts the graphs it is given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, inputs):
        self.graphs += 1
        return gm.forward


def scale(x, word):
    return x * len(word)


def graphs_after(calls, **arguments):
    counts = Counts()
    scaled = cl.compile(scale, backend=counts, dynamic=False, **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for number in range(calls):
            word = "a" * (number + 2)
            assert torch.equal(scaled(torch.ones(2), word), scale(torch.ones(2), word))
    return counts.graphs


@pytest.fixture
def ordinary_backend():
    """The default backend, put back afterwards."""
    yield
    cl.set_default_backend(None)


# ---- recompile_limit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", (1, 2, 5))
def test_a_limit_of_its_own(limit):
    assert graphs_after(7, recompile_limit=limit) == limit


def test_without_one_the_limit_for_all_counts_as_it_is_at_the_call(monkeypatch):
    monkeypatch.setattr(cl.config, "recompile_limit", 3)
    assert graphs_after(7) == 3
    assert graphs_after(7, recompile_limit=4) == 4


@pytest.mark.parametrize("limit", (1, 3))
def test_the_same_limit_in_torch(limit):
    if "recompile_limit" not in inspect.signature(torch.compile).parameters:
        pytest.skip("this torch.compile has no recompile_limit")
    counts = Counts()
    torch.compiler.reset()
    scaled = torch.compile(scale, backend=counts, dynamic=False, recompile_limit=limit)
    for number in range(6):
        scaled(torch.ones(2), "a" * (number + 2))
    assert counts.graphs == graphs_after(6, recompile_limit=limit) == limit


def test_with_fullgraph_the_limit_is_an_error_that_says_which_limit():
    scaled = cl.compile(scale, backend="eager", fullgraph=True, recompile_limit=1)
    scaled(torch.ones(2), "ab")
    with pytest.raises(cl.Unsupported, match="recompile_limit=") as problem:
        scaled(torch.ones(2), "abc")
    assert "(1)" in str(problem.value)


@pytest.mark.parametrize("limit", (0, -1, 2.0, "8", True))
def test_what_is_no_limit(limit):
    with pytest.raises(
        ValueError, match="recompile_limit must be None or a whole number from 1 on"
    ):
        cl.compile(scale, recompile_limit=limit)


# ---- isolate_recompiles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isolate", (False, True))
def test_two_compiles_of_one_function_never_share_a_limit(isolate):
    first = graphs_after(3, recompile_limit=3, isolate_recompiles=isolate)
    second = graphs_after(3, recompile_limit=3, isolate_recompiles=isolate)
    assert (first, second) == (3, 3)


# ---- name -----------------------------------------------------------------------------------------------------------


def test_a_name_stands_in_the_warning_of_the_limit():
    scaled = cl.compile(scale, backend="eager", name="the head", recompile_limit=1, dynamic=False)
    scaled(torch.ones(2), "ab")
    with pytest.warns(UserWarning, match="of the compile named 'the head'"):
        scaled(torch.ones(2), "abc")


# ---- dynamic_shapes -------------------------------------------------------------------------------------------------


def test_sizes_described_by_parameter_are_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"Use cl\.mark_dynamic"):
        cl.compile(scale, dynamic_shapes={"x": {0: "rows"}})


# ---- the default backend --------------------------------------------------------------------------------------------


def test_the_default_backend_is_inductor(ordinary_backend):
    assert cl.get_default_backend() == "inductor"


def test_a_default_backend_serves_later_compiles_that_name_none(ordinary_backend):
    counts = Counts()
    cl.set_default_backend(counts)
    assert cl.get_default_backend() is counts

    cl.compile(scale)(torch.ones(2), "ab")
    assert counts.graphs == 1
    cl.compile(scale, backend="eager")(torch.ones(2), "ab")
    assert counts.graphs == 1


def test_none_puts_inductor_back(ordinary_backend):
    cl.set_default_backend("eager")
    cl.set_default_backend(None)
    assert cl.get_default_backend() == "inductor"


@pytest.mark.parametrize("backend", ("indcutor", 3))
def test_what_is_no_backend_is_refused_at_once(backend, ordinary_backend):
    with pytest.raises(ValueError, match="backend"):
        cl.set_default_backend(backend)
    assert cl.get_default_backend() == "inductor"


# ---- as a decorator -------------------------------------------------------------------------------------------------


def test_a_decorator_hands_on_every_argument():
    counts = Counts()

    @cl.compile(
        backend=counts, recompile_limit=1, name="scaled", isolate_recompiles=True, dynamic=False
    )
    def scaled(x, word):
        return x * len(word)

    scaled(torch.ones(2), "ab")
    with pytest.warns(UserWarning, match="'scaled'"):
        scaled(torch.ones(2), "abc")
    assert counts.graphs == 1


def test_each_argument_of_todays_torch_compile_is_taken():
    todays = {
        "model",
        "fullgraph",
        "dynamic",
        "backend",
        "mode",
        "options",
        "name",
        "disable",
        "recompile_limit",
    }
    todays |= {"isolate_recompiles", "dynamic_shapes"}  # torch 2.14 and 2.15
    assert todays <= set(inspect.signature(cl.compile).parameters)
