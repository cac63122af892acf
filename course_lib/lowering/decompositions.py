"""Which composite operators fall apart before lowering, and into what.

In:  calls of composite ATen operators while a graph is traced (`autograd.trace`).
Out: smaller ATen operators, few of them: `lowering` stays small. What is whole (GEMM, convolution,
     attention) a library does.

Most come from torch. Our own are those where torch's text is longer or slower than needed here;
those in `corners/as_eager.py` do what eager does where torch's own differ from it.
In PyTorch: `torch/_decomp/decompositions.py`, `torch/_inductor/decomposition.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions

# What has a rule does not fall apart, so the modules that register rules come first.
from course_lib.lowering import index_rules, reductions, rules  # noqa: F401
from course_lib.lowering.lower import LOWERINGS

aten = torch.ops.aten
Decomposition = Callable[..., Any]
"""Called like the operator. `NotImplemented`: this call stays whole."""

BESIDE_CORE = """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward arange as_strided_copy avg_pool2d_backward batch_norm_backward
    _batch_norm_with_update_functional dist elu grid_sampler_2d hardtanh ldexp leaky_relu linalg_vector_norm _log_softmax
    narrow_copy native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional native_group_norm
    _native_batch_norm_legit_no_training native_layer_norm permute_copy _softmax tril_indices triu_indices unbind_copy
    upsample_bicubic2d upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d view_copy xlog1py""".split()
"""What falls apart as torch says, though torch counts it as core."""
STAYS_WHOLE = """baddbmm bernoulli binary_cross_entropy embedding_dense_backward index_add index_copy max_unpool2d max_unpool3d mv take
    _scaled_dot_product_flash_attention_for_cpu multilabel_margin_loss_forward""".split()
"""What torch would take apart, and a library does better, or whose parts ask for the data.

`binary_cross_entropy`, `index_add` and `take` check their data (probabilities, indices that are not
to be negative); their parts do not. Of `multilabel_margin_loss_forward`, torch's parts are
wrong."""


def torchs_own() -> dict[Any, Decomposition]:
    """torch's decompositions of what no rule of ours lowers as it is."""
    packets = [getattr(aten, name) for name in BESIDE_CORE if hasattr(aten, name)]
    known = {**_core_aten_decompositions_post_autograd(), **get_decompositions(packets)}

    return {op: parts for op, parts in known.items() if falls_apart(op)}


def falls_apart(op: Any) -> bool:
    """True for an operator that writes to nothing, and neither a rule nor a library takes as it
    is."""
    if op in LOWERINGS or op._schema.is_mutable:
        return False
    return op.overloadpacket.__name__ not in STAYS_WHOLE


DECOMPOSITIONS: dict[Any, Decomposition] = torchs_own()
"""Operator (or function of torch's) → its decomposition."""


def decomposes(*ops: Any) -> Callable[[Decomposition], Decomposition]:
    """Register our own decomposition of these operators, in place of torch's."""

    def register(parts: Decomposition) -> Decomposition:
        DECOMPOSITIONS.update(dict.fromkeys(ops, parts))
        return parts

    return register


@decomposes(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Eager writes the gradient where the target says; a loop asks of each element whether its
    class is the target."""
    # `target` with a dimension of size 1 where `x` has its classes
    if x.ndim > 1:
        class_dim = 1
        target = target.unsqueeze(1)
    else:
        class_dim = 0
        target = target.reshape(1)

    # The number of its class for each element, to be compared with `target`
    dims_behind = x.ndim - 1 - class_dim
    classes = torch.arange(x.shape[class_dim], device=x.device)
    classes = classes.reshape([-1, *[1] * dims_behind])

    is_mean = reduction == 1
    if is_mean:
        grad = grad / total_weight
    if grad.ndim:
        grad = grad.unsqueeze(class_dim)
    if weight is not None:
        grad = grad * weight.reshape(classes.shape)

    return torch.where((classes == target) & (target != ignore_index), -grad, 0)


@decomposes(aten.expand.default)
def expand_to_the_same_size(x: Tensor, size: Any, **_: Any) -> Any:
    """A plain view. (A write through `expand` becomes a sum of differences, which rounds.)"""
    if len(size) != x.ndim:
        return NotImplemented
    for wanted, old in zip(size, x.shape, strict=True):
        if wanted not in (-1, old):
            return NotImplemented
    return x.view(x.shape)


@decomposes(aten.repeat.default)
def repeat(x: Tensor, repeats: Any) -> Tensor:
    """Laid out row by row, as eager's result is."""
    return torch._refs.repeat(x, repeats).contiguous()


def is_image_on_gpu(x: Any) -> bool:
    """Is this a batch of images, [n, channels, height, width]?"""
    return isinstance(x, Tensor) and x.is_cuda and x.ndim == 4


def with_channels_last(convolution: Any, *args: Any) -> Any:
    """On a GPU, 2-D images have their channels side by side: cuDNN wants them so, and transposes
    others there and back."""
    laid = []
    changed = False
    for arg in args:
        if is_image_on_gpu(arg):
            new = arg.contiguous(memory_format=torch.channels_last)
            changed = changed or new is not arg
            arg = new
        laid.append(arg)

    # Else this very decomposition would be asked again, without end.
    if not changed:
        return NotImplemented
    return convolution(*laid)


for _op in (aten.convolution.default, aten.convolution_backward.default):
    decomposes(_op)(partial(with_channels_last, _op))
