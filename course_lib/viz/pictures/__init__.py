"""What the compiler did, drawn: one folder for each of its rooms, and two for what goes across.

capture/, guards/, autograd/, lowering/, scheduling/, codegen/, runtime/
                                     the rooms, in their order
pipeline/                            the compiler as a whole
graphs/                              the FX graphs that several rooms work on
"""
