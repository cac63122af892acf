"""Matrix products as loops, so that what is done to a result can be done before it leaves
registers.

In:  a call of `mm`, `addmm`, `bmm` or `baddbmm` (`ExternKernel`).
Out: nodes that do the same: a `Product`, and a loop that adds the bias.

A product is one more reduction, for each row m and column n a sum over k, to all but the Triton
printer, which has `tl.dot`.
In PyTorch: `torch/_inductor/kernel/mm.py`, `torch/_inductor/select_algorithm.py`
(`TritonTemplate`).
"""

from dataclasses import replace

import torch

from course_lib.lowering.ir import ExternKernel, Index, Node, Pointwise, Product, View
from course_lib.lowering.ops import Handler, Value
from course_lib.lowering.reduction_kinds import SUM

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)


def allows_tf32() -> bool:
    """May a product round float32 to ten binary digits?

    (A GPU has no instructions for products of whole ones.)"""
    return bool(torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32")


def is_product(node: Node, codegen: str) -> bool:
    """Is this a call that a GPU's tensor cores can do?

    In Triton's interpreter float32 is one too."""
    if not isinstance(node, ExternKernel) or node.op not in PRODUCTS or node.kwargs:
        return False

    *_, a, b = node.args
    on_gpu = a.buffer.device.type == "cuda"
    if not on_gpu and codegen != "triton":
        return False

    known = {torch.float16, torch.bfloat16}
    if allows_tf32() or not on_gpu:
        known.add(torch.float32)
    dtypes = {view.dtype for view in node.args}
    if len(dtypes) > 1 or not dtypes <= known:
        return False

    # A vector times a matrix has nothing for tensor cores to do.
    sides = (*a.shape[-2:], *b.shape[-2:])
    return min(sides) > 1 and 0 not in a.shape


def as_loops(node: ExternKernel) -> list[Node]:
    """What the call computes as a `Product`, and a loop after it if something is added.

    Both in float32 until the end."""
    *bias, a, b = node.args
    (out,) = node.buffers
    label = node.op.overloadpacket.__name__

    # With a bias the product is a buffer of its own, which lives in registers.
    result = out
    if bias:
        result = replace(out, name=f"{out.name}_product", dtype=torch.float32)

    def multiply(ops: Handler, index: Index, rindex: Index) -> Value:
        *batch, m, n = index
        left = as_float(ops, a, [*batch, m, *rindex])
        right = as_float(ops, b, [*batch, *rindex, n])
        return ops.mul(left, right)

    product = Product(
        buffer=result,
        ranges=out.shape,
        inner=multiply,
        origins=node.origins,
        label=label,
        reduced=a.shape[-1:],
        kind=SUM.name,
        accumulate=torch.float32,
    )
    if not bias:
        return [product]

    def add(ops: Handler, index: Index) -> Value:
        total = ops.add(as_float(ops, bias[0], index), as_float(ops, result.view(), index))
        return ops.to_dtype(total, out.dtype)

    return [product, Pointwise(out, out.shape, add, node.origins, label)]


def as_float(ops: Handler, view: View, index: Index) -> Value:
    """An element as float32."""
    return ops.to_dtype(view.load(ops, index), torch.float32)
