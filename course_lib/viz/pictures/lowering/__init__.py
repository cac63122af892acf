"""Lowering: loops as formulas, one loop body under several handlers, and views as memory.

`loop_formulas.py` has the formulas, `handlers.py` the handlers side by side, `views.py` the memory.
"""
