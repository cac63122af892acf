"""Code generation: tiles, lanes and warps; a kernel from its source to machine code.

tiles.py, product_tiles.py, tile_parts.py    the tiles of Triton kernels
lanes.py, warps.py                           threads and lanes, of a CPU and of a GPU
kernel_origins.py                            which kernel came from which lines
inspect_kernel.py, machine_code.py           a kernel down to the processor's instructions
inductor_triton.py                           what TorchInductor would write
"""
