"""Autograd: the joint graph, and where it is cut into forward and backward.

`joint_graph.py` is the picture: `joint_sides.py` says what stands where, `joint_drawing.py` draws
it. `pipes.py` draws the cut as pipes.
"""
