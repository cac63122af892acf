"""The Triton that TorchInductor would write for a GPU, on a machine that has none.

In:  a function and CPU tensors.
Out: each kernel's source by name, in the order in which they run, and under "call" the program that
     calls them.

TorchInductor can write Triton for CPU tensors too (`cpu_backend = "triton"`). It is told that the
machine is an H200, for what it writes depends on the number of multiprocessors; and it is stopped
before Triton would compile, which needs a driver.
In PyTorch: `TORCH_LOGS=output_code` shows the same where there is a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch

H200: dict[str, Any] = {
    "type": "cpu", "index": 0, "multi_processor_count": 132, "cc": 90, "major": 9, "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024, "warp_size": 32,
}  # fmt: skip
"""Fields of torch's `DeviceProperties`. The type stays "cpu", for the tensors are the CPU's."""
KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''.*?(@triton\.jit\n.*?)'''", re.S)
"""In TorchInductor's program: a kernel's name, and its source from the decorator on."""
CALL = re.compile(r"\n    def call\(self, args\):\n(.*?)\n\n?runner = ", re.S)
"""In the same: the body of the function that calls the kernels."""


class Written(Exception):
    """Raised when the source is there: what follows needs a GPU."""


class NoDriver:
    """In place of Triton's driver: says which GPU the kernels are for, and starts nothing."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def inductor_triton(function: Callable[..., Any], *args: Any) -> dict[str, str]:
    """What TorchInductor writes for one call of `function` without gradients.

    Raises LookupError if it writes no Triton."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering
    from torch._inductor.runtime.hints import DeviceProperties
    from triton.runtime import driver

    codes: list[str] = []

    def stop(code: str) -> None:
        codes.append(code)
        raise Written

    h200 = DeviceProperties(
        **{name: H200[name] for name in DeviceProperties._fields if name in H200}
    )
    torch._dynamo.reset()
    with (
        mock.patch.object(GraphLowering, "save_output_code", stop),
        mock.patch.object(DeviceProperties, "create", lambda device: h200),
        mock.patch.object(type(driver), "active", NoDriver()),
        config.patch(cpu_backend="triton", fx_graph_cache=False),
        torch.no_grad(),
    ):
        try:
            torch.compile(function)(*args)
        except Exception as error:
            # `Written` arrives wrapped in one of torch's errors. Whatever it is: is a source there?
            if not codes:
                raise LookupError(f"TorchInductor wrote nothing: {error}") from error
    torch._dynamo.reset()
    sources = {name: text for code in codes for name, text in KERNEL.findall(code)}
    if not sources:
        raise LookupError(
            "TorchInductor wrote no Triton kernel for this function: all of it is library calls"
        )
    return sources | {"call": "\n".join(call for code in codes for call in CALL.findall(code))}
