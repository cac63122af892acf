"""FX graphs, operation by operation or module by module."""
