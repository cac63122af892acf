"""Small programs after what packages do: eager's results at each call, and no more graph breaks than torch.compile has."""

import random

import pytest
import torch
from alike import same
from wild_programs import PROGRAMS

import course_lib as cl

LEFT = {
    "cached_function_has_an_effect": "its cache answers from the second call on, which guards cannot tell before",
    "cached_function_reads_what_the_program_changed": "what it reads is not changed yet while capture runs",
    "object_given_to_apply": "an object that an autograd.Function keeps for backward may change until then",
    "object_made_inside_given_to_apply": "the same",
    "apply_gives_its_argument": "a result that is an argument has rules of its own in autograd",
    "tensor_with_attributes": "a tensor subclass is followed by nobody",
    "tensor_with_attributes_as_plain": "the same",
    "max_of_a_tensor_and_a_number": "Python's max gives the number itself where it is the larger one; torch.compile gives a tensor",
    "generator_alive_at_a_break": "what a generator gives behind a break is not followed",
    "dataclass_fields": "a class that is made inside outlives its graph",
}
"""Where we have more breaks than torch.compile, and why."""


def played(function, make, turn):
    """What a call gives, and the gradients of what it was given."""
    random.seed(turn)
    torch.manual_seed(turn)
    args = make(turn)
    gradients = []
    try:
        result = function(*args)
        if isinstance(result, torch.Tensor) and result.requires_grad and args[0] is not None:
            result.sum().backward()
            gradients = [arg.grad for arg in args if isinstance(arg, torch.Tensor)]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    plain = [comparable(part) for part in listed(result)]
    return plain, gradients, random.random()


def comparable(part):
    """What can be compared: of a source of random numbers where it is."""
    if isinstance(part, random.Random):
        return part.getstate()
    if isinstance(part, torch.Generator):
        return part.get_state()
    return part.detach() if isinstance(part, torch.Tensor) else part


def listed(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_call_gives_what_eager_gives(name):
    function, make, _ = PROGRAMS[name]
    eagers = [played(function, make, turn) for turn in range(3)]
    compiled = cl.compile(function, backend="eager")
    ours = [played(compiled, make, turn) for turn in range(3)]
    same(ours, eagers)


@pytest.mark.parametrize("name", PROGRAMS)
def test_there_are_no_more_breaks_than_in_torch(name):
    """What is left is listed with its reason, and leaves the list once it is mended."""
    function, make, breaks = PROGRAMS[name]
    torch.manual_seed(0)
    found = cl.explain(function)(*make(0)).breaks
    assert (len(found) > breaks) == (name in LEFT), [one.reason for one in found]


@pytest.mark.parametrize(
    "name", [name for name, (_, _, breaks) in PROGRAMS.items() if not breaks and name not in LEFT]
)
def test_without_breaks_it_compiles_whole(name):
    function, make, _ = PROGRAMS[name]
    cl.compile(function, backend="eager", fullgraph=True)(*make(0))


def test_a_lazy_module_that_cannot_be_filled_raises_what_eager_raises():
    function = lambda module, x: module(x) + 1
    said = []
    for run in (function, cl.compile(function, backend="eager")):
        with pytest.raises(RuntimeError) as caught:
            run(torch.nn.LazyConv2d(2, 1), torch.randn(3))
        said.append(str(caught.value))
    assert said[0] == said[1]
