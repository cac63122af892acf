"""Matrix products as loops, so that what is done to a result can be done before it leaves registers.

In:  a call of `mm`, `addmm`, `bmm` or `baddbmm` (`ExternKernel`).
Out: nodes that do the same: a `Product`, and a loop that adds the bias.

A product is one more reduction, for each row m and column n a sum over k, to all but the Triton printer, which has `tl.dot`.
In PyTorch: `torch/_inductor/kernel/mm.py`, `torch/_inductor/select_algorithm.py` (`TritonTemplate`).
"""

from dataclasses import replace
from typing import Any

import torch

from course_lib.lowering.ir import ExternKernel, Index, Node, Pointwise, Product
from course_lib.lowering.ops import Value

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default)


def allows_tf32() -> bool:
    """May a product round float32 to ten binary digits? (A GPU has no instructions for products of whole ones.)"""
    return bool(torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32")


def is_product(node: Node, codegen: str) -> bool:
    """Is this a call that a GPU's tensor cores can do? In Triton's interpreter float32 is one too."""
    if not isinstance(node, ExternKernel) or node.op not in PRODUCTS or node.kwargs:
        return False
    (dtype, *others), (*_, a, b) = {view.dtype for view in node.args}, node.args
    on_gpu = a.buffer.device.type == "cuda"
    known = {
        torch.float16,
        torch.bfloat16,
        *([torch.float32] if allows_tf32() or not on_gpu else []),
    }
    matrices = min(a.shape[-2:] + b.shape[-2:]) > 1 and 0 not in a.shape
    return matrices and dtype in known and not others and (on_gpu or codegen == "triton")


def as_loops(node: ExternKernel) -> list[Node]:
    """What the call computes as a `Product`, and a loop after it if something is added. Both in float32 until the end."""
    *bias, a, b = node.args
    (out,), label = node.buffers, node.op.overloadpacket.__name__
    result = replace(out, name=f"{out.name}_product", dtype=torch.float32) if bias else out
    element = lambda ops, view, index: ops.to_dtype(view.load(ops, index), torch.float32)

    def multiply(ops: Any, index: Index, rindex: Index) -> Value:
        *batch, m, n = index
        return ops.mul(element(ops, a, [*batch, m, *rindex]), element(ops, b, [*batch, *rindex, n]))

    add = lambda ops, index: ops.add(
        element(ops, bias[0], index), element(ops, result.view(), index)
    )
    after = Pointwise(
        out,
        out.shape,
        lambda ops, index: ops.to_dtype(add(ops, index), out.dtype),
        node.origins,
        label,
    )
    loops = result, out.shape, multiply, node.origins, label, a.shape[-1:]
    return [Product(*loops, kind="sum", accumulate=torch.float32), *([after] if bias else [])]
