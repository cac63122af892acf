"""Which composite operators fall apart before lowering, and into what.

In:  calls of composite ATen operators while a graph is traced (`autograd.trace`).
Out: smaller ATen operators. The fewer are left, the smaller `lowering` is; what stays whole (GEMM, convolution, attention) is
     better done by a library.

Most come from torch. Our own are those where torch's text is longer or slower than needed here.
In PyTorch: `torch/_decomp/decompositions.py`, `torch/_inductor/decomposition.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten

TORCHS_OWN = """
    _adaptive_avg_pool2d_backward addr affine_grid_generator aminmax avg_pool2d_backward binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits celu col2im count_nonzero deg2rad diag_embed dist
    elu_backward embedding_backward eye fill frac gelu_backward glu glu_backward hardshrink hardsigmoid_backward
    hardswish_backward hardtanh_backward heaviside huber_loss huber_loss_backward im2col index_add index_copy
    index_fill isclose isfinite isin isneginf isposinf kl_div l1_loss leaky_relu_backward linalg_cross linspace
    log_sigmoid_backward log_sigmoid_forward logaddexp logaddexp2 logit logit_backward logspace margin_ranking_loss
    meshgrid mish_backward mse_loss mse_loss_backward nan_to_num nansum native_batch_norm_backward
    native_dropout_backward native_group_norm_backward native_layer_norm_backward new_empty norm pixel_shuffle
    pixel_unshuffle prelu _prelu_kernel rad2deg reflection_pad1d reflection_pad2d repeat roll replication_pad1d
    replication_pad2d select_backward sgn sigmoid_backward silu_backward sinc slice_backward smooth_l1_loss
    smooth_l1_loss_backward soft_margin_loss softplus_backward softshrink special_entr special_log_ndtr
    special_xlog1py split_with_sizes_copy stack std_mean trace tanh_backward unfold_copy upsample_nearest1d
    upsample_nearest2d vdot xlogy xlog1py zero _log_softmax_backward_data _safe_softmax _softmax_backward_data _fused_rms_norm
    _fused_rms_norm_backward
""".split()


def half_in_float(x: Tensor) -> Tensor:
    """Statistics of float16 and bfloat16 are computed in float32."""
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def as_eager_lays_out(result: Tensor, x: Tensor) -> Tensor:
    """`result` in the dtype of `x`, channels last if `x` is, else contiguous."""
    return result.to(x.dtype).contiguous(memory_format=suggest_memory_format(x))


def below_zero(x: Tensor, dim: int) -> Tensor:
    """`x` less its largest element, so that exp never overflows and the largest term of a sum is 1."""
    wide = half_in_float(x.contiguous())  # eager's result is contiguous
    return wide - wide.amax(dim, keepdim=True) if wide.numel() else wide


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    e = below_zero(x, dim).exp()
    result = e / e.sum(dim, keepdim=True)
    return result if half_to_float else result.to(x.dtype)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide = below_zero(x, dim)
    result = wide - wide.exp().sum(dim, keepdim=True).log()
    return result if half_to_float else result.to(x.dtype)


def logsumexp(x: Tensor, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    if not x.numel() or not x.dtype.is_floating_point:
        x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
        return x.exp().sum(dim, keepdim).log()
    largest = x.amax(dim, keepdim=True)
    largest = torch.where(largest.abs() == math.inf, 0, largest)  # inf - inf would be nan
    total = (x - largest).exp().sum(dim, keepdim)
    return total.log() + (largest if keepdim else largest.squeeze(dim))


def scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: Sequence[int] | None = None) -> Tensor:
    """x·weight + bias, as far as there are any, each seen with this shape."""
    seen = lambda y: y if shape is None else y.reshape(shape)
    if weight is not None:
        x = x * seen(weight)
    return x if bias is None else x + seen(bias)


def standardized(x: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(var + eps) over these dimensions; the mean; what is multiplied with."""
    var, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    rstd = (var + eps).rsqrt()
    return (x - mean) * rstd, mean, rstd


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.ndim - len(shape), x.ndim))
    result, mean, rstd = standardized(half_in_float(x.contiguous()), dims, eps)
    result = scaled(result, weight, bias)
    if x.device.type == "cpu" and weight is not None:  # the CPU kernel keeps its statistics in the weight's dtype
        mean, rstd = mean.to(weight.dtype), rstd.to(weight.dtype)
    return result.to(x.dtype), mean, rstd


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, channels: int, space: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = half_in_float(x).reshape(n, groups, channels // groups * space)
    result, mean, rstd = standardized(rows, [2], eps)
    result = scaled(result.reshape(x.shape), weight, bias, [1, channels] + [1] * (x.ndim - 2))
    return as_eager_lays_out(result, x), mean.reshape(n, groups).to(x.dtype), rstd.reshape(n, groups).to(x.dtype)


def batch_norm_inference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    per_channel = [1, -1] + [1] * (x.ndim - 2)
    scale = (half_in_float(var) + eps).rsqrt()
    result = (half_in_float(x) - mean.reshape(per_channel)) * scale.reshape(per_channel)
    empty = x.new_empty(0)
    return as_eager_lays_out(scaled(result, weight, bias, per_channel), x), empty, empty


def batch_norm(x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float) -> Any:
    """In inference; training, which also updates the running statistics, stays with torch."""
    return NotImplemented if training else batch_norm_inference(x, weight, bias, mean, var, momentum, eps)


def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The usual norm; others stay with torch."""
    if ord != 2 or x.is_complex() or not x.numel():
        return NotImplemented
    wide = half_in_float(x if dtype is None else x.to(dtype))
    dims = list(range(x.ndim)) if dim is None else dim
    return (wide * wide).sum(dims, keepdim).sqrt().to(dtype or x.dtype)


_found = get_decompositions([getattr(aten, name) for name in TORCHS_OWN if hasattr(aten, name)])

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **{op: function for op, function in _found.items() if not op._schema.is_mutable},
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten.logsumexp.default: logsumexp,
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten._native_batch_norm_legit_no_training.default: batch_norm_inference,
    aten.native_batch_norm.default: batch_norm,
    aten.linalg_vector_norm.default: vector_norm,
}
