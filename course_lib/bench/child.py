"""The child process of `first_call`: compile one workload once and print the seconds as one line of
JSON.

Run as a file, not as a module of course_lib: for torch.compile nothing of ours may be imported.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path

import torch


def load_models():
    """`models.py` from beside this file, without the package around it."""
    spec = importlib.util.spec_from_file_location(
        "bench_models", Path(__file__).with_name("models.py")
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(who: str, options: dict) -> dict:
    """What `first_call.FirstCall` holds, measured here. `who`: "course_lib" or "torch.compile"."""
    # The same weights and inputs in each process, and products as users have them on a GPU
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device, dtype = options["device"], getattr(torch, options["dtype"])
    make, shapes, train = load_models().FIRST_CALLS[options["workload"]]
    eager = make()
    if isinstance(eager, torch.nn.Module):
        eager.to(device=device, dtype=dtype).train(train)
    inputs = [torch.randn(shape).to(device, dtype) for shape in shapes]
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    # Not asked for, `dynamic` is None: the compiler decides itself. False would forbid it.
    how = {
        "mode": options["mode"],
        "dynamic": options["dynamic"] or None,
        "fullgraph": options["fullgraph"],
    }

    def call(function):
        """A call, in training with its backward; the result, or the gradients' sums."""
        if not train:
            with torch.inference_mode():
                result = function(*inputs)
                wait()
                return result
        eager.zero_grad()
        function(*inputs).square().mean().backward()
        wait()
        return torch.stack([parameter.grad.sum() for parameter in eager.parameters()])

    # Eager first: what torch does once a process is no part of what is measured
    expected = call(eager)
    start = time.perf_counter()
    if who == "course_lib":
        import course_lib

        compile = course_lib.compile
    else:
        compile = torch.compile
    imported = time.perf_counter()

    # Both only compile when they are called
    compiled = compile(eager, **how)
    result = call(compiled)
    first = time.perf_counter()
    call(compiled)
    second = time.perf_counter()

    # Wide enough for float16: here only a wrong result counts, not the last digit
    torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)
    return {
        "imports": imported - start,
        "compile_and_call": first - imported,
        "second_call": second - first,
        "max_abs_diff": (result.double() - expected.double()).abs().max().item(),
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
