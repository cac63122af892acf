"""What has no loop form runs as torch's own operator, and says why."""

from __future__ import annotations

import pytest
import torch
from aten_graphs import agree, always, lowered
from run_schedules import evaluate_schedule
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import course_lib as cl
from course_lib.autograd import trace
from course_lib.lowering import ExternKernel, lower
from course_lib.lowering.operators import find_out_variant
from course_lib.scheduling import No, plan, schedule

aten = torch.ops.aten


def test_matrix_products_are_library_calls_that_write_where_they_are_told():
    graph = agree(nn.Linear(8, 4), torch.randn(3, 8))
    (node,) = graph.nodes
    assert isinstance(node, ExternKernel) and node.out_variant == aten.addmm.out


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x: x.sort().values, "sorting: left to the library"),
        (lambda x: x.cumsum(0), "a running total: each element waits for the one before"),
        (lambda x: x.scatter(0, torch.tensor([1]), 2.0), "where it writes, only the data knows"),
        (
            lambda x: x.i0(),
            "aten.i0.default has no loop form here: it runs as torch's own operator",
        ),
    ],
)
def test_the_reason_is_a_sentence(function, why):
    graph = agree(function, torch.randn(9))
    assert graph.nodes[-1].why == why


def test_several_results():
    x = torch.randn(4, 6)
    agree(lambda x: (*torch.topk(x, 2), *torch.sort(x, 0), x.cumsum(1)), x)
    agree(lambda x: torch.linalg.svd(x, full_matrices=False)[1], x)


@torch.library.custom_op("course_test::nested", mutates_args=())
def nested(
    x: torch.Tensor, n: int, y: torch.Tensor | None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return x * n, [x + (i if y is None else y) for i in range(n)]


@nested.register_fake
def _(x, n, y):
    return torch.empty_like(x), [torch.empty_like(x) for _ in range(n)]


@torch.library.custom_op("course_test::add_one", mutates_args=("x",))
def add_one(x: torch.Tensor) -> None:
    x.add_(1)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_users_operator_is_a_call_whatever_it_returns(n):
    def f(x, y):
        first, rest = nested(x * 2, n, y if n > 1 else None)
        return [first + 1, *rest]

    x, y = torch.randn(3, 4), torch.randn(4)
    agree(f, x, y)
    torch.testing.assert_close(cl.compile(f, fullgraph=True)(x, y), f(x, y))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_one_that_writes_to_its_arguments_is_a_call_too(backend):
    def f(x, y):
        z = x * 2
        add_one(z)  # of its own, an input, a part of an input
        add_one(y)
        add_one(y[0])
        return (z + y).relu(), y.sum()

    x, y = torch.randn(3, requires_grad=True), torch.randn(2, 3)
    one, two = y.clone(), y.clone()
    want, got = f(x, one), cl.compile(f, backend=backend, fullgraph=True)(x, two)
    torch.testing.assert_close((got, two), (want, one))
    torch.testing.assert_close(
        torch.autograd.grad(got[0].sum(), x), torch.autograd.grad(want[0].sum(), x)
    )


def test_an_lstm():
    lstm, x = nn.LSTM(4, 5, num_layers=2).eval(), torch.randn(3, 2, 4)
    with torch.no_grad():
        (got, (h, c)), (want, (h2, c2)) = cl.compile(lambda x: lstm(x), fullgraph=True)(x), lstm(x)
    torch.testing.assert_close((got, h, c), (want, h2, c2))


def test_what_attention_returns_beside_tensors():
    q = torch.randn(1, 2, 8, 16)
    agree(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)


def test_convolutions_and_pooling():
    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    agree(lambda x, w: F.relu(F.conv2d(x, w, padding=1) + 1), x, w)
    agree(
        lambda x: (
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 1),
            F.interpolate(x, scale_factor=2.0),
        ),
        x,
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.complex64],
    ids=str,
)
def test_dtypes_that_no_loop_knows(dtype):
    def f(x):
        return torch.cat([x, x]), x.clone(), x.view(torch.uint8)

    x = torch.ones(4).to(dtype)
    for got, want in zip(cl.compile(f, fullgraph=True)(x), f(x), strict=True):
        assert got.dtype == want.dtype and got.view(torch.uint8).equal(want.view(torch.uint8))


@pytest.mark.skipif(not hasattr(torch, "hash_tensor"), reason="new in torch 2.10")
def test_a_result_of_a_dtype_that_no_input_has():
    assert cl.compile(torch.hash_tensor)(x := torch.randn(5, 5)).equal(torch.hash_tensor(x))


def test_an_out_variant_that_computes_first_and_copies_then_is_no_gain():
    graph = lowered(lambda x: x.roll(1).cumsum(0).cumprod(0), torch.randn(4, 4))
    variants = {
        str(node.op): node.out_variant for node in graph.nodes if isinstance(node, ExternKernel)
    }
    assert variants == {
        "aten.cumsum.default": aten.cumsum.out,
        "aten.cumprod.default": aten.cumprod.out,
    }
    assert find_out_variant(aten.convolution.default) is None


def test_a_view_of_torchs_own_that_we_have_no_strides_for_is_copied():
    x = torch.randn(4, 2)
    graph = agree(lambda x: torch.view_as_complex(x) * 1j, x)
    assert graph.nodes[0].op == aten.view_as_complex_copy.default


@pytest.mark.parametrize(
    "function", [lambda x: x.nonzero(), lambda x: x[x > 0], lambda x: x.sum().item() * x]
)
def test_what_only_the_data_knows_cannot_be_lowered(function):
    gm = make_fx(function, tracing_mode="fake")(torch.randn(4))
    with pytest.raises(NotImplementedError, match=r"only the data knows|no kernel can return"):
        lower(gm)


def test_sparse_tensors_cannot_be_lowered():
    with pytest.raises(NotImplementedError, match="which no buffer can hold"):
        lowered(lambda x: x.to_sparse(), torch.randn(4, 4))


def traced_with(decomposition, x):
    """The ATen graph of gelu, if this is what gelu falls apart into."""
    gm = make_fx(lambda x: (F.gelu(x),), tracing_mode="fake")(x)
    return trace(gm, {aten.gelu.default: lambda x, approximate="none": decomposition(x)})


def test_what_a_decomposition_writes_in_place_is_just_a_new_value():
    graph = lower(traced_with(lambda x: (x * 2).add_(1).relu_(), torch.randn(4)))
    assert [node.label for node in graph.nodes] == ["mul", "add", "relu"]


def test_also_where_it_is_seen_through_a_view():
    def f(x):
        y = torch.zeros(3, 4)
        y[1].add_(x)
        y.mul_(2)
        return y[1] + y[2]

    x = torch.randn(4)
    gm = traced_with(f, x)
    assert all("origin" in node.meta for node in gm.graph.nodes if node.op == "call_function")
    graph = lower(gm)
    assert not any(isinstance(node, ExternKernel) for node in graph.nodes)
    for can_fuse in (always, lambda a, b: No("no")):
        result = schedule(graph, can_fuse)
        (got,) = evaluate_schedule(result, plan(result, graph), graph, x)
        torch.testing.assert_close(got, f(x))


def test_a_graph_that_writes_to_its_own_values_cannot_be_lowered():
    gm = make_fx(lambda x: (x * 2).add_(1), tracing_mode="fake")(torch.randn(4))
    with pytest.raises(NotImplementedError, match="must be functional"):
        lower(gm)


def test_explain_says_what_is_left_to_libraries_and_why():
    def f(x, w):
        return ((x @ w).relu() @ w).sort().values + 1

    explained = cl.explain(f)(torch.randn(4, 4), torch.randn(4, 4))
    assert explained.library_calls == [
        "aten.mm.default: matrix product: left to the library (2 times)",
        "aten.sort.default: sorting: left to the library",
    ]
    assert "library call, aten.sort.default: sorting: left to the library" in str(explained)
    assert cl.explain(lambda x: x.softmax(-1) * 2)(torch.randn(4, 4)).library_calls == []


def test_a_loss_whose_decomposition_forgets_where_labels_end():
    x, labels = torch.randn(4, 3), torch.tensor([[0, 2, -1], [1, -1, 2], [2, 0, 1], [-1, 0, 1]])
    agree(lambda x, labels: F.multilabel_margin_loss(x, labels, reduction="none"), x, labels)


def images(device="cpu"):
    """A small net of convolutions of all kinds, the same each time."""
    torch.manual_seed(0)
    first = [
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.MaxPool2d(2),
    ]
    return nn.Sequential(
        *first, nn.ConvTranspose2d(8, 4, 3, stride=2), nn.Flatten(), nn.Linear(396, 5)
    ).to(device)


def train_and_compare(device):
    x = torch.randn(4, 3, 10, 12, device=device)
    model, other = images(device), images(device)
    with cl.record() as trace:
        given, result = x.clone().requires_grad_(), None
        result = cl.compile(other)(given)
        result.square().sum().backward()
    assert not trace.of(cl.events.FellBack)
    expected = x.clone().requires_grad_()
    model(expected).square().sum().backward()
    pairs = [(given.grad, expected.grad), (result, model(expected))]
    pairs += [(p.grad, q.grad) for p, q in zip(other.parameters(), model.parameters(), strict=True)]
    for got, want in pairs:
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()
    return [event.graph for event in trace.of(cl.events.AtenTraced)]


def test_on_a_gpu_images_have_their_channels_side_by_side(monkeypatch):
    inputs = lambda graphs: [
        node.meta["val"].stride(1)
        for graph in graphs
        for op in (aten.convolution.default, aten.convolution_backward.default)
        for call in graph.graph.find_nodes(op="call_function", target=op)
        for node in call.all_input_nodes
        if node.meta["val"].ndim == 4
    ]
    assert 1 not in inputs(train_and_compare("cpu"))
    # there is no GPU here: CPU tensors pass for some
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    steps = inputs(train_and_compare("cpu"))
    assert len(steps) == 15 and set(steps) == {1}


@pytest.mark.gpu
def test_images_on_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    train_and_compare("cuda")
