"""Sources to something that runs: compiler, launcher, the compiled program.

In:  sources of kernels, and the program around them. Out: a `CompiledGraph`, which is called with
     tensors.

    compiled.py                  everything is put together
    compiler.py                  C++: the machine's compiler, its flags (`FLAGS`), what is missing
                                 (`BackendMissing`)
    triton_runner.py             Triton: compiled for a GPU, or run by its interpreter
    cudagraphs.py                all kernels of a program started at once, and when that cannot be
                                 (`why_not`)
    gemm.py, templates.py        who computes a matrix product
    autotune.py                  tile sizes, by measuring
    _launcher.c                  calls a kernel without the cost of Python
    corners/                     may be skipped

Built files are kept on disk by `course_lib.build_cache`.
In PyTorch: `torch/_inductor/codecache.py`, `cpp_builder.py`, `runtime/triton_heuristics.py`,
`cudagraph_trees.py`.
"""

import sys

import torch

from course_lib.simulator.switch import choose_interpreter

# Triton decides when it is first imported whether kernels are compiled for a GPU or run in its
# interpreter, and torch imports it on the way (with its fake tensors). So the choice is made
# here, before that.
if "triton" not in sys.modules and not torch.cuda.is_available():
    choose_interpreter()

from course_lib.runtime import corners  # for what they register
from course_lib.runtime.compiled import CompiledGraph, build, why_no_stream
from course_lib.runtime.compiler import BackendMissing, CompileFailed
from course_lib.runtime.cudagraphs import tell_that_it_falls_back, with_cuda_graphs
from course_lib.runtime.gemm import choose_products
from course_lib.runtime.templates import choose_templates
