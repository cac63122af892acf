"""FX graphs, operation by operation or module by module.

`fx_graphs.py` draws them; `frame_names.py` puts the name of a frame beside the arrows;
`module_graphs.py` says to which module an operation belongs.
"""
