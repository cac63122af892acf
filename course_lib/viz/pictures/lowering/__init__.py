"""Lowering: loops as formulas, one loop body under several handlers, and views as memory."""
