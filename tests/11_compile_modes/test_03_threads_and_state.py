"""A loaded kernel changes nothing in the process, and uses as many threads as torch would."""

from __future__ import annotations

import ctypes

import pytest
import torch
from hand_kernels import gelu_chain, layer_norm
from run_kernels import program, run

from course_lib.runtime import compiler

THREADS = """
extern "C" int omp_get_num_threads();
extern "C" void threads(void** buffers) {
  #pragma omp parallel
  ((int64_t*)buffers[0])[0] = omp_get_num_threads();
}
"""


def test_kernels_use_as_many_threads_as_torch():
    if "-fopenmp" not in compiler.optional_flags(compiler.find_compiler()):
        pytest.skip("this compiler has no OpenMP")
    library = ctypes.CDLL(str(compiler.build_library("#include <stdint.h>\n" + THREADS).path))
    before, seen = torch.get_num_threads(), torch.zeros(1, dtype=torch.int64)
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            library.threads(ctypes.byref(ctypes.c_void_p(seen.data_ptr())), None)
            assert seen.item() == n
    finally:
        torch.set_num_threads(before)


def test_denormal_numbers_survive():
    program(*gelu_chain(3, 4))
    assert (torch.tensor([1e-40]) * 1.0).item() != 0.0


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_the_number_of_threads(threads):
    torch.manual_seed(0)
    tensors = {"x": torch.randn(300, 768), "weight": torch.randn(768), "bias": torch.randn(768)}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got, _ = run(*layer_norm(300, 768), tensors)
    finally:
        torch.set_num_threads(before)
    want = torch.nn.functional.layer_norm(tensors["x"], (768,), tensors["weight"], tensors["bias"])
    torch.testing.assert_close(got["layer_norm"], want)
