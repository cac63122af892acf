"""What happens at a call: into the graph, run now, followed, or refused.

    torch operation            a node of the graph
    Python function            followed: its code is interpreted with the same graph
    builtin without effects    run now, on the interpreted world's objects
    nn.Module                  its `forward` is followed
    anything else              `Unsupported`

Read `dispatch.py` first: the ordered list of rules, the first that matches decides. Then the rules'
own files: `operations.py` (torch), `modules.py`, `functions.py` (followed), `classes.py` (made),
`builtins.py` (run now), `known_functions.py` (those that know about the interpreted world:
`getattr`, `isinstance`, ...; its tables are in `tables.py`), `callbacks.py` (what C calls back).
In PyTorch: the `call_function` methods in `torch/_dynamo/variables/`, and
`torch/_dynamo/trace_rules.py` for what is followed.
"""
