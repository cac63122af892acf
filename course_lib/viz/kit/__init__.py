"""The visual language: what every picture is made of.

`style.py` has `Picture` and the colours, `svg.py` draws by hand, `tables.py` makes tables,
`bars.py` bars, `roofline.py` the limits of a machine, `highlight.py` shows source code.
`arguments.py` looks at what a drawing function is given. `user_lines.py` finds the line of the
user's program for what happens deep inside a library.
"""
