"""Which composite operators fall apart before lowering, and into what.

In:  calls of composite ATen operators while a graph is traced (`autograd.trace`).
Out: smaller ATen operators, few of them: `lowering` stays small. What is whole (GEMM, convolution, attention) a library does.

Most come from torch. Our own are those where torch's text is longer or slower than needed here.
In PyTorch: `torch/_decomp/decompositions.py`, `torch/_inductor/decomposition.py`.
"""

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import _core_aten_decompositions_post_autograd, get_decompositions

from course_lib.lowering.lower import LOWERINGS

aten = torch.ops.aten
BESIDE_CORE = """_adaptive_avg_pool2d _adaptive_avg_pool2d_backward arange as_strided_copy avg_pool2d_backward batch_norm_backward
    _batch_norm_with_update_functional dist elu grid_sampler_2d hardtanh ldexp leaky_relu linalg_vector_norm _log_softmax
    narrow_copy native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional native_group_norm
    _native_batch_norm_legit_no_training native_layer_norm permute_copy _softmax tril_indices triu_indices unbind_copy
    upsample_bicubic2d upsample_bilinear2d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d view_copy xlog1py""".split()
"""What falls apart as torch says, though torch counts it as core."""
STAYS_WHOLE = """baddbmm bernoulli binary_cross_entropy embedding_dense_backward index_add index_copy max_unpool2d max_unpool3d mv take
    _scaled_dot_product_flash_attention_for_cpu multilabel_margin_loss_forward""".split()
"""What torch would take apart, and a library does better, or whose parts ask for the data. Three check their data,
which their parts do not: probabilities, indices that are not to be negative. Of the last, torch's parts are wrong."""


def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    dim = dim and [d % max(x.ndim, 1) for d in dim]  # torch 2.11 forgets those counted from the end
    return torch._refs.linalg.vector_norm(x, ord, dim, keepdim, dtype=dtype)


def bernoulli_(x: Tensor, p: float = 0.5, **generator: Any) -> Any:
    """Eager draws in the order of memory. So does this overload; the one that functionalization would take does not."""
    if x.is_contiguous():
        return NotImplemented
    return x.copy_(aten.bernoulli.Tensor(x, torch.tensor(p, dtype=torch.float64), **generator))


def with_channels_last(convolution: Any, *args: Any) -> Any:
    """On a GPU, 2-D images have their channels side by side: cuDNN wants them so, and transposes others there and back."""
    image = lambda x: isinstance(x, Tensor) and x.is_cuda and x.ndim == 4
    laid = [x.contiguous(memory_format=torch.channels_last) if image(x) else x for x in args]
    return (
        convolution(*laid)
        if any(new is not old for new, old in zip(laid, args, strict=True))
        else NotImplemented
    )


def nll_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Eager writes the gradient where the target says; a loop asks of each element whether its class is the target."""
    channels = 1 if x.ndim > 1 else 0
    classes = torch.arange(x.shape[channels], device=x.device).reshape(
        [-1] + [1] * (x.ndim - 1 - channels)
    )
    target = target.unsqueeze(1) if channels else target.reshape(1)
    grad = grad / total_weight if reduction == 1 else grad  # the mean's
    grad = grad.unsqueeze(channels) if grad.ndim else grad
    if weight is not None:
        grad = grad * weight.reshape(classes.shape)
    return torch.where((classes == target) & (target != ignore_index), -grad, 0)


def one_hot(classes: Tensor, num_classes: int = -1) -> Tensor:
    """While torch traces, it does not look at the classes. Eager refuses those that are not there."""
    if num_classes < 0:  # as many as there are: only the data knows
        return torch.nn.functional.one_hot(classes, num_classes)
    refuse((classes < 0) | (classes >= num_classes), "one_hot")
    return torch.nn.functional.one_hot(classes, num_classes)


def quantile(
    function: Callable[..., Tensor], x: Tensor, q: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """On a CPU eager looks if `q` lies between 0 and 1; while torch traces, it does not."""
    if isinstance(q, Tensor) and x.device.type == "cpu":
        refuse(((q >= 0) & (q <= 1)).logical_not(), "quantile")
    return function(x, q, *args, **kwargs)


def refuse(wrong: Tensor, name: str) -> None:
    """Raise if any element of `wrong` is true. (This check can be recorded, and a GPU survives it. Eager then says what is wrong.)"""
    aten._linalg_check_errors(wrong.any().to(torch.int32), name, is_matrix=True)


def interpolation(packet: Any, copies: Callable[[int, int], bool]) -> dict[Any, Callable[..., Any]]:
    """Interpolation whose factor does not count in a dimension where `copies(size, new size)`: eager looks at the sizes first."""
    torchs = get_decompositions([packet.default])[packet.default]

    def to_sizes(x: Tensor, sizes: Any, *more: Any) -> Tensor:
        factors = list(more[-len(sizes) :]) if len(more) >= len(sizes) else [None] * len(sizes)
        aligned = more[: len(more) - len(sizes)] if len(more) >= len(sizes) else more
        for d, (old, new) in enumerate(zip(x.shape[2:], sizes, strict=True)):
            factors[d] = None if copies(old, new) else factors[d]
        return torchs(x, sizes, *aligned, *factors)

    def by_factors(x: Tensor, sizes: Any, *more: Any) -> Tensor:
        *aligned, factors = more
        if sizes is None:
            sizes = [math.floor(n * by) for n, by in zip(x.shape[2:], factors, strict=True)]
        return to_sizes(x, sizes, *aligned, *(factors or [None] * len(sizes)))

    return {packet.default: to_sizes, packet.vec: by_factors}


def interpolations() -> dict[Any, Callable[..., Any]]:
    """Those in which eager copies on a CPU: nearest in two dimensions (not in one, nor in three), and the linear ones.
    (`aten/src/ATen/native/UpSample.h`: `nearest_idx`, `compute_source_index_and_lambda`)"""
    same_or_twice = lambda old, new: new in (old, 2 * old)
    found = interpolation(aten.upsample_nearest2d, same_or_twice)
    for packet in (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d):
        found |= interpolation(packet, operator.eq)
    return found


def torchs_own() -> dict[Any, Callable[..., Any]]:
    """torch's decompositions of what no rule of ours lowers as it is."""
    beside = get_decompositions(
        [getattr(aten, name) for name in BESIDE_CORE if hasattr(aten, name)]
    )
    wanted = lambda op: (
        op not in LOWERINGS
        and not op._schema.is_mutable
        and op.overloadpacket.__name__ not in STAYS_WHOLE
    )
    return {
        op: made
        for op, made in {**_core_aten_decompositions_post_autograd(), **beside}.items()
        if wanted(op)
    }


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **torchs_own(),
    **interpolations(),
    torch.nn.functional.one_hot: one_hot,
    **dict.fromkeys((torch.quantile, Tensor.quantile), partial(quantile, torch.quantile)),
    **dict.fromkeys((torch.nanquantile, Tensor.nanquantile), partial(quantile, torch.nanquantile)),
    **dict.fromkeys(
        (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default), nll_loss_backward
    ),
    # To the size that it has: a plain view. A write through `expand` becomes a sum of differences, which rounds.
    aten.expand.default: lambda x, size, **_: (
        x.view(x.shape)
        if len(size) == x.ndim and all(map(lambda n, old: n in (-1, old), size, x.shape))
        else NotImplemented
    ),
    aten.bernoulli_.float: bernoulli_,
    **{
        op: partial(with_channels_last, op)
        for op in (aten.convolution.default, aten.convolution_backward.default)
    },
    aten.linalg_vector_norm.default: vector_norm,
    # torch's fake tensors take the result for int64.
    aten.pow.Tensor_Scalar: lambda x, y: (
        x | (not y) if x.dtype is torch.bool and isinstance(y, bool) else NotImplemented
    ),
    # as eager's result is
    aten.repeat.default: lambda x, repeats: torch._refs.repeat(x, repeats).contiguous(),
}
