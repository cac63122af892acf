"""Autograd: the joint graph, and where it is cut into forward and backward."""
