"""Our back half under torch's capture."""

import torch
from torch import nn
from torch.testing import assert_close

from course_lib import events
from course_lib.viz.mirror import course
from course_lib.viz.recording import Recording


def test_torch_compile_with_the_course_backend_runs_our_kernels():
    model = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)).eval()
    recording = Recording()
    with torch.no_grad(), events.listener(recording.events.append):
        compiled = torch.compile(model, backend=course, fullgraph=True)
        for x in torch.randn(2, 4, 16):
            assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()
    assert [str(kernel) for kernel in recording.kernels][2].startswith("gelu over")


def test_training_runs_the_graph_as_it_is():
    compiled = torch.compile(lambda x: (x * 2).sin(), backend=course)
    x = torch.randn(4, requires_grad=True)
    compiled(x).sum().backward()
    torch._dynamo.reset()
    assert_close(x.grad, 2 * (x * 2).cos().detach())


def test_the_next_size_runs_our_kernels_too():
    recording = Recording()
    with torch.no_grad(), events.listener(recording.events.append):
        compiled = torch.compile(lambda x, n: (x * n).sin(), backend=course)
        for size, n in ((4, 2), (6, 3), (9, 3)):
            x = torch.randn(size)
            assert_close(compiled(x, n), (x * n).sin())
    torch._dynamo.reset()
    # built for the first size, and once for all others
    assert len(recording.of(events.KernelsBuilt)) == 2 and not recording.of(events.FellBack)


def test_a_number_that_travels_as_a_tensor_is_told():
    recording = Recording()
    with torch.no_grad(), events.listener(recording.events.append):
        compiled = torch.compile(lambda x, k: x.relu() * k, backend=course)
        for k in (2.0, 2.5):
            assert_close(compiled(torch.ones(4), k), torch.ones(4) * k)
    torch._dynamo.reset()
    assert [told.why for told in recording.of(events.FellBack)] == [
        "the graph reads a number out of a tensor"
    ]
