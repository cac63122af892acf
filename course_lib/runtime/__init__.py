"""Sources to something that runs: compiler, launcher, the compiled program."""

import os
import sys

import torch

# Triton decides when it is first imported whether kernels are compiled for a GPU or run in its interpreter, and torch
# imports it on the way (with its fake tensors). So the choice is made here, before that.
if "triton" not in sys.modules and not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from course_lib.runtime import corners  # for what they register
from course_lib.runtime.compiled import CompiledGraph, build
from course_lib.runtime.compiler import BackendMissing, CompileFailed
from course_lib.runtime.cudagraphs import with_cuda_graphs
from course_lib.runtime.gemm import choose_products
from course_lib.runtime.templates import choose_templates
