"""What stands for an object from outside, one file a family.

    make.py          the ordered list of rules: which family an object belongs to
    tensors.py       a tensor: a fake one, and the guard on its looks
    containers.py    a list, tuple, set, deque or dict: a copy, filled with what stands for the
                     items
    instances.py     an instance: a copy whose attributes are filled in when they are first read
    functions.py     a function: its cells and defaults
    iterators.py     an iterator: gives what stands for the items to come
    kinds.py         which types belong where
    slots.py         attributes that have a fixed place in each instance

In PyTorch: `torch/_dynamo/variables/builder.py` (`VariableBuilder._wrap`), and the classes of
`torch/_dynamo/variables/`.
"""
