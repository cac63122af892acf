"""Code generation: tiles, lanes and warps; a kernel from its source to machine code."""
