"""FX graphs, operation by operation or module by module.

`fx_graphs.py` draws them; `module_graphs.py` says to which module an operation belongs.
"""
