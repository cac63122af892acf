"""The commands that are no benchmark: each module is one subcommand of `course`.

course doctor      what this machine has, and how to get what is missing
course demo        one function on its way from bytecode to machine code
course gallery     every picture once, made from real traces
course coverage    how much of torch is compiled, and whether it is right

`doctor.py` (what it looks at: `doctor_looks.py`), `demo.py`, `gallery.py`, `coverage_table.py`
(which runs `coverage.py`, and says by `differences.py` where a result differs). `walk.py` draws the
README's first picture.
"""
