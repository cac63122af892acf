"""Kernels as source text, C++ for a CPU and Triton for a GPU, and the Python program that calls
them.

In:  a `Schedule` and the memory plan. Out: a `KernelSource` for each kernel, and the source of the
     program around them.

Read in this order:

    loops.py                     which step of a kernel runs in which pass over its loops
    printer.py                   trees become lines: what both languages have in common
    spellings.py                 how an operation is written, and when it needs parentheses
    large_numbers.py             which whole numbers may not fit the integers of a kernel
    plan.py, cpp.py              C++: what a kernel will look like is decided first, and then
                                 printed
    triton_plan.py, triton.py    the same for Triton
    cpp_ops.py, triton_ops.py    how one operation is spelled, and which dtypes there are (`STORED`,
                                 `POINTERS`)
    wrapper.py                   the program around the kernels

`cpp_loops.py` writes the loops of a C++ kernel, which includes `prelude.h` (and `tiles.h` where it
is a stream). `accumulators.py` and `triton_reductions.py` write
reductions, and `tilings.py` has the tiles of a Triton kernel. `streamed.py` (with
`stream_tiles.py`) and `streamed_triton.py` write the kernels of attention; for Triton,
`stream_trees.py` says how values are computed, `stream_walks.py` which blocks each program has,
`stream_swizzles.py` which tiles may not be together, `stream_plan.py` decides what the kernel looks
like, `stream_block.py` writes what happens with one block of columns, `streamed_ops.py` spells its
operations, and `stream_look.py` looks for values that are not finite.
Building and starting what is written here: `course_lib.runtime`.
In PyTorch: `torch/_inductor/codegen/` (`cpp.py`, `triton.py`, `wrapper.py`, `common.py`).
"""
