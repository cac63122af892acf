"""Programs in the style of another compiler's tests: attributes of tensors, odd keys, tensors from lists, objects that take
part in torch's functions, and the traceback lines of exceptions that are kept and raised again."""

import collections
import traceback
import types

import pytest
import torch
from observed import run
from torch import nn

import course_lib as cl

PROGRAMS = {}
WHOLE = set()


def program(make, whole=True):
    def register(function):
        PROGRAMS[function.__name__] = function, make
        WHOLE.update([function.__name__] if whole else [])
        return function

    return register


def one(i):
    return (torch.randn(3),)


@program(one)
def attributes_of_a_made_tensor(x):
    y = x * 2
    y.tag, y.parts = "hello", [x]
    y.parts.append(y.tag)
    z = y.view(-1)
    del y.tag
    return y, hasattr(y, "tag"), hasattr(x, "parts"), hasattr(z, "parts"), getattr(y, "tag", None)


@program(one)
def attributes_of_a_tensor_from_outside(x):
    for _ in range(3):
        x.seen = getattr(x, "seen", 0) + 1
    return x + x.seen


def tagged(i):
    x = torch.randn(3)
    x.meta, x.old = {"scale": 2 + i}, 1
    return (x,)


@program(tagged)
def attributes_replaced_and_deleted(x):
    x.meta["used"] = True
    y, x.meta = x * x.meta["scale"], "new"
    del x.old
    try:
        x.old
    except AttributeError:
        return y, x.meta, hasattr(x, "old")


@program(one, whole=False)
def attributes_live_over_a_break(x):
    y = x + 1
    y.tag, x.mark = {"a": x}, y
    print("break")
    return y.tag["a"] + x.mark, x.mark is y


@program(lambda i: (nn.Linear(3, 2), torch.ones(1, 3)))
def gradients_are_set(model, x):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
        parameter.is_initialized = True
    before = [parameter.grad + 1 for parameter in model.parameters()]
    model.zero_grad()
    return model(x), before, [parameter.grad for parameter in model.parameters()]


@program(lambda i: (lambda a, b: ({a: 1, "k": b, b: 2}, a, b))(torch.randn(2), nn.Linear(2, 2)))
def keys_that_are_tensors_and_modules(table, tensor, layer):
    table[tensor] += 5
    table["new"] = tensor
    made = torch.zeros(1)
    table[made] = 3
    del table["k"]
    return table[layer], tensor in table, len(table), layer(tensor), [*table.values()][:2]


@program(lambda i: (collections.defaultdict(dict), nn.Linear(2, 2)))
def state_of_an_optimizer(state, model):
    for parameter in model.parameters():
        kept = state[parameter]
        kept["step"] = kept.get("step", 0) + 1
        kept["mean"] = torch.zeros_like(parameter) + parameter.detach()
    return len(state), [kept["mean"] for kept in state.values()]


@program(one)
def tensors_from_lists(x):
    nested = torch.tensor([[x[0], 1], [2.5, x[1]]]), torch.as_tensor((x[0], x.sum()))
    typed = torch.LongTensor([1, 2]), torch.BoolTensor([True, False])
    return (
        *nested,
        *typed,
        torch.Tensor([1, 2, 3]) + x,
        torch.Tensor([[1.5]]).shape,
        torch.FloatTensor(2, 3).shape,
    )


class Wrapped:
    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return cls(func(*[getattr(arg, "tensor", arg) for arg in args], **(kwargs or {})))


@program(lambda i: (Wrapped(torch.randn(3)), torch.randn(3)))
def objects_in_torch_functions(wrapped, x):
    made = torch.add(wrapped, Wrapped(x))
    return torch.sum(torch.relu(made), dim=0).tensor, torch.mul(2.0, wrapped).tensor


@program(lambda i: (torch.randn(3 + i),))
def compiled_inside_and_cond(x):
    doubled = torch.compile(lambda v: v * 2, backend="eager")(x)
    return torch.cond(x.shape[0] > 3, lambda v: v + 1, lambda v: v - 1, (doubled,))


class Options(types.SimpleNamespace):
    def total(self):
        return self.width + 1


OPTIONS = types.SimpleNamespace(width=3, inner=types.SimpleNamespace(scale=2.0))


@program(lambda i: (torch.randn(3), types.SimpleNamespace(a=1 + i, b=[2]), Options(width=i)))
def namespaces(x, plain, own):
    plain.c, own.seen = x + plain.a, True
    plain.b.append(own.total())
    del plain.a
    made = types.SimpleNamespace(x=x * OPTIONS.inner.scale)
    return plain, own, sorted(vars(plain)), hasattr(plain, "a"), made, repr(OPTIONS.inner)


@program(one)
def ids_of_made_tensors(x):
    y = x + 1
    seen = {id(y): 2}
    return y * seen[id(y)], id(y) == id(x + 1)


@program(one)
def a_class_made_inside(x):
    pair = collections.namedtuple("pair", "a b")(x, 2)
    return pair.a + pair.b, pair._fields


@program(one)
def the_text_of_a_traceback(x):
    try:
        deep(x, 1)
    except KeyError:
        # made lines have no columns
        return x + 1, [row for row in traceback.format_exc().splitlines() if "^" not in row]


def lines(error):
    """Where it came through: the program's own lines."""
    found = traceback.extract_tb(error.__traceback__)
    return [(frame.name, frame.lineno) for frame in found if frame.filename == __file__]


def deep(x, n):
    if n:
        return deep(x, n - 1)
    raise KeyError("a")


@program(one, whole=False)
def raised_again_later(x):
    try:
        deep(x, 2)
    except KeyError as error:
        kept = error
    y = x + 1
    try:
        raise kept
    except KeyError:
        return y, lines(kept)


@program(one, whole=False)
def raised_again_after_a_break(x):
    try:
        deep(x, 2)
    except KeyError as error:
        kept = error
    print("break")
    try:
        raise kept
    except KeyError:
        return x + 1, lines(kept)


@program(one, whole=False)
def looked_at_while_handled(x):
    try:
        deep(x, 1)
    except KeyError as error:
        print("break")
        return x + 1, lines(error)


class Seeing:
    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.seen = kind, trace.tb_lineno
        return True


@program(one)
def a_context_sees_the_traceback(x):
    with Seeing() as seeing:
        deep(x, 1)
    return x + 1, seeing


@cl.disable
def fails(x):
    raise KeyError("from eager")


def passes_through(x):
    y = x + 1
    try:
        fails(y)
    finally:
        y = y + 1


@program(one, whole=False)
def an_exception_of_eager_keeps_its_lines(x):
    try:
        passes_through(x)
    except KeyError as error:
        return x, lines(error)[-1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_eager(name):
    function, make = PROGRAMS[name]
    compiled = cl.compile(function, backend="eager")
    for turn in range(3):
        assert run(compiled, make, turn) == run(function, make, turn)
    if name in WHOLE:
        whole = cl.compile(function, backend="eager", fullgraph=True)
        assert run(whole, make, 0) == run(function, make, 0)


def test_two_tensors_that_were_apart_may_be_one():
    def f(x, y):
        x.mark = 1
        return x + getattr(y, "mark", 0)

    compiled = cl.compile(f, backend="eager")
    assert compiled(torch.ones(2), torch.ones(2)).tolist() == [1, 1]
    same = torch.ones(2)
    assert compiled(same, same).tolist() == [2, 2]


def test_the_program_raises_what_was_kept_with_its_first_lines():
    def f(x):
        try:
            deep(x, 1)
        except KeyError as error:
            kept = error
        print("break")
        raise kept

    expected, got = [], []
    for function, found in ((f, expected), (cl.compile(f, backend="eager"), got)):
        with pytest.raises(KeyError) as caught:
            function(torch.ones(2))
        found += lines(caught.value)[1:]
    assert got == expected and len(got) == 4


def front_and_behind():
    class Behind:
        scale, parts = 1, [1]

    class Front(Behind):
        scale = 10

        def read(self):
            return super().scale, len(super().parts), hasattr(super(), "late")

        @classmethod
        def read_of_class(cls):
            return super().scale

    return Behind, Front


def changes_what_is_behind(x, behind, front):
    before = front.read()
    behind.scale += 1
    super(type(front), front).parts.append(2)
    return x * front.read()[0] + front.read_of_class(), before, front.read(), front.scale


def test_super_reads_what_was_stored_in_the_class_behind():
    (behind, front), (eager_behind, eager_front) = front_and_behind(), front_and_behind()
    compiled = cl.compile(changes_what_is_behind, backend="eager", fullgraph=True)
    x = torch.randn(3)
    for turn in range(4):
        got = compiled(x, behind, front())
        torch.testing.assert_close(
            got, changes_what_is_behind(x, eager_behind, eager_front()), msg=f"call {turn}"
        )
        for each in (behind, eager_behind):  # what others change between calls is seen too
            each.scale *= 3
            if turn == 2:
                each.late = True
    assert behind.parts == eager_behind.parts == [1, 2, 2, 2, 2] and "parts" not in front.__dict__


@pytest.mark.parametrize("pred", [None, "yes", True, 0, 2.5])
def test_cond_takes_what_eager_takes(pred):
    def f(x):
        return torch.cond(
            pred=pred, true_fn=lambda v: v * 2, false_fn=lambda v: v + 1, operands=(x,)
        )

    x = torch.randn(3)
    compiled = cl.compile(f, backend="eager")
    if pred is None or isinstance(pred, str):
        with pytest.raises(RuntimeError, match="Expected pred to be bool or tensor"):
            compiled(x)
    else:
        assert torch.equal(compiled(x), f(x))


@pytest.mark.filterwarnings("ignore")
def test_cond_on_data_whose_branch_gives_an_input_raises_as_in_eager():
    def f(x):
        y = x * 2
        return torch.cond(y.sum() > 0, lambda v: v, lambda v: v + 1, (y,)) * 2

    kinds = []
    for call in (f, cl.compile(f, backend="eager")):
        torch._dynamo.reset()
        with pytest.raises(Exception) as caught:
            call(torch.ones(3))
        kinds.append(type(caught.value))
    assert kinds[0] is kinds[1]
