"""Special cases of capture: each module adds rules to the tables of the spine, which knows none of
them.

A reader of lesson 02 and 03 may skip this folder. In PyTorch: the long tail of
`torch/_dynamo/variables/`.

    cached_functions.py    `functools.lru_cache`
    checkpoint.py          `torch.utils.checkpoint`
    arrays.py              arrays of NumPy; `array_operators.py`: their operators and items
    dict_views.py          views of dicts from outside
    followed_functions.py  an `autograd.Function` whose forward is followed
    hints_to_torch.py      `error_on_graph_break` of torch, and other hints that change no value
    inference.py           `with torch.inference_mode():` inside a function
    lazy_modules.py        `nn.LazyLinear`: its first call makes parameters
    loaded_modules.py      `sys.modules`
    loops_over_time.py     `nn.RNN`, `nn.GRU`: torch writes them out step by step
    looking.py             `locals`, `globals`, frames, threads, `dir`, `pickle` of constants
    missing_kernels.py     dtypes for which eager has no kernel
    names_one_by_one.py    what `globals()` and `sys.modules` have in common
    norms_of_fakes.py      the shape of a norm, where torch infers a wrong one
    numpy.py               NumPy's functions and numbers, its arrays from outside; what computes
                           them: `numpy_rules.py`, `numpy_functions.py`, `numpy_ufuncs.py`,
                           `numpy_constants.py`
    optimizers.py          optimizers that are not torch's own
    own_generator.py       a `torch.Generator` that the program makes
    own_operations.py      an `autograd.Function`, a custom operator; `reading.py`: what their code
                           does
    pools.py               `nn.MaxPool1d` of a length that is a symbol
    python.py              loggers, views of dicts, cached properties, weak references
    python_random.py       Python's own random numbers
    random.py              random numbers whose dtype fake tensors get wrong
    rebuilding.py          how special kinds of values are written in a head
    refusals.py            arguments that eager's kernels refuse, though fake tensors take them
    said_to_torch.py       `torch.compiler.allow_in_graph` and its kind, set by packages
    sizes_of_data.py       numbers that only the data says, kept in the graph
    switches.py            functions that ask or turn a switch of torch
    tensors.py             calls on tensors that ask for data, and need none
    torch_functions.py     makers of tensors, conditions, vmap and grad, `__torch_function__`
    torch_warnings.py      warnings of torch's own operations
    warn.py                `warnings.warn`
"""

from course_lib.capture.corners import (
    cached_functions,
    checkpoint,
    dict_views,
    followed_functions,
    hints_to_torch,
    inference,
    lazy_modules,
    loaded_modules,
    looking,
    loops_over_time,
    missing_kernels,
    norms_of_fakes,
    numpy,
    optimizers,
    own_generator,
    own_operations,
    pools,
    python,
    python_random,
    random,
    reading,
    rebuilding,
    refusals,
    said_to_torch,
    sizes_of_data,
    switches,
    tensors,
    torch_functions,
    torch_warnings,
    warn,
)

__all__ = [
    "cached_functions",
    "checkpoint",
    "dict_views",
    "followed_functions",
    "inference",
    "lazy_modules",
    "loaded_modules",
    "looking",
    "loops_over_time",
    "missing_kernels",
    "numpy",
    "optimizers",
    "own_generator",
    "own_operations",
    "pools",
    "python",
    "python_random",
    "random",
    "reading",
    "rebuilding",
    "refusals",
    "sizes_of_data",
    "switches",
    "tensors",
    "torch_functions",
    "torch_warnings",
    "warn",
]
