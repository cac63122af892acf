"""What packages say to torch's compiler about their functions: allowed, not allowed, constant."""

import contextlib

import pytest
import torch

import course_lib as cl

BACKENDS = ["eager", "inductor"]


def written_while_it_runs(x):
    """Capture cannot follow this code: it is made by `exec`."""
    namespace = {"torch": torch}
    exec("def triple(x): return torch.sin(x) * 3", namespace)
    return namespace["triple"](x)


@contextlib.contextmanager
def not_allowed(function):
    """Mark a function, and take the mark back.

    torch keeps the mark of `disallow_in_graph` by the function's address, and keeps it when the
    function is gone: the next function at that address would have the mark, too.
    """
    torch._dynamo.disallow_in_graph(function)
    try:
        yield
    finally:
        torch._dynamo.allow_in_graph(function)


def graphs_of(f, *args):
    return len(cl.explain(f)(*args).graphs)


@pytest.mark.parametrize("mark", ["allow_in_graph", "nonstrict_trace"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_allowed_function_is_one_node(mark, backend):
    """Values and gradients are eager's, and the graph does not end."""
    say = torch.compiler.allow_in_graph
    if mark == "nonstrict_trace":
        say = torch._dynamo.nonstrict_trace

    def own(x):
        return written_while_it_runs(x)

    allowed = say(own)

    def f(x):
        return allowed(x + 1) * 2

    x = torch.randn(5, requires_grad=True)
    expected = f(x)
    (expected_grad,) = torch.autograd.grad(expected.sum(), x)

    compiled = cl.compile(f, fullgraph=True, backend=backend)
    for _ in range(2):
        result = compiled(x)
        (grad,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(grad, expected_grad)


def test_without_a_mark_the_graph_ends():
    """What the first test shows is due to the mark."""

    def f(x):
        return written_while_it_runs(x + 1) * 2

    with pytest.raises(cl.Unsupported, match="exec"):
        cl.compile(f, fullgraph=True)(torch.ones(3))


def test_a_mark_that_is_taken_back_counts_no_more():
    """`disallow_in_graph` after `allow_in_graph`: the call ends the graph."""

    def own(x):
        return x * 3

    def f(x):
        return own(x + 1) * 2

    x = torch.ones(3)
    torch.compiler.allow_in_graph(own)
    with not_allowed(own):
        assert torch.equal(cl.compile(f)(x), f(x))
        with pytest.raises(cl.Unsupported, match=r"own, which torch does not allow in a graph"):
            cl.compile(f, fullgraph=True)(x)


def test_an_operation_that_torch_may_not_have_in_a_graph():
    def f(x):
        return torch.sub(x + 1, 2) * 2

    x = torch.randn(3)
    with not_allowed(torch.sub):
        assert torch.equal(cl.compile(f)(x), f(x))
        assert graphs_of(f, x) == 2
    assert graphs_of(f, x) == 1


@pytest.mark.parametrize("value", [7, 2.5, "relu", None, (1, "a"), True])
def test_a_result_that_is_assumed_constant_is_asked_once(value):
    """The function runs while the program is captured, and never again."""
    calls = []

    @torch.compiler.assume_constant_result
    def setting(name):
        calls.append(name)
        exec("unseen = 1")
        return value

    def f(x):
        answer = setting("mode")
        return (x * 2, answer)

    compiled = cl.compile(f, fullgraph=True)
    for _ in range(3):
        doubled, answer = compiled(torch.ones(2))
        assert doubled.tolist() == [2.0, 2.0]
        assert answer == value and type(answer) is type(value)
    assert calls == ["mode"]


def test_a_function_of_a_tensor_is_followed_although_it_is_marked():
    @torch.compiler.assume_constant_result
    def scaled(x):
        return x * 3

    def f(x):
        return scaled(x) + 1

    for x in (torch.ones(2), torch.zeros(2)):
        assert torch.equal(cl.compile(f, fullgraph=True)(x), f(x))
