"""A compiled module is to the program what the module is: its class, attributes, methods, slots, text, pickle and copies."""

import abc
import copy
import functools
import inspect
import io
import pickle
import weakref

import pytest
import torch
from same_as_eager import Cases
from torch import nn

import course_lib as cl

X = torch.ones(1, 2)


class Net(nn.Module):
    """A module that looks at itself."""

    calls = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = 2

    def forward(self, x):
        type(self).calls += 1
        return self.linear(x) * self.scale

    def scaled(self, scale):
        self.scale = scale
        return self

    @property
    def half(self):
        return self.scale / 2

    @half.setter
    def half(self, value):
        self.scale = value * 2

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index * self.scale

    def __contains__(self, item):
        return item == self.scale

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Slotted(nn.Module):
    __slots__ = ("kept", "scale")
    number = 0

    def __init__(self):
        super().__init__()
        self.scale = 4

    def forward(self, x):
        self.kept = self.scale
        return x * self.scale

    def __len__(self):
        return self.scale


class Base(nn.Module):
    names = []

    def __init_subclass__(cls, **options):
        Base.names.append(cls.__name__)

    def forward(self, x):
        return x + len(Base.names)


class Derived(Base):
    pass


class Listed(type):
    names = []

    def __new__(cls, name, bases, members):
        Listed.names.append(name)
        return super().__new__(cls, name, bases, members)


class OfListed(nn.Module, metaclass=Listed):
    def forward(self, x):
        return x + len(Listed.names)


class Abstract(nn.Module, abc.ABC):
    @abc.abstractmethod
    def forward(self, x): ...


class Concrete(Abstract):
    def forward(self, x):
        return x + 1


class OwnGetattr(nn.Module):
    asked = []

    def __getattr__(self, name):
        OwnGetattr.asked.append(name)
        return 7 if name.startswith("made") else super().__getattr__(name)

    def forward(self, x):
        return x + self.made


class OwnCall(nn.Module):
    def __call__(self, x):
        return super().__call__(x) + 100

    def forward(self, x):
        return x


def saved(thing):
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def read_and_set(m):
    first, m.scale = m(X), 7
    m.half = 5
    return first, m(X), m.half, m.scale


def class_is_asked(m):
    cls = type(m)
    return (
        (cls.__name__, cls.__qualname__, cls.__module__, cls.__doc__, repr(cls), str(m.__class__)),
        (cls == Net, m.__class__ is Net, {Net: 1}.get(cls), cls in (Net, nn.Linear)),
        (isinstance(m, Net), isinstance(m, nn.Linear), issubclass(cls, Net), issubclass(Net, cls)),
        (cls.forward is Net.forward, cls.calls, type(cls()) is Net, len(Net.__subclasses__())),
    )


def class_is_set(m):
    type(m).new = 8
    found = Net.new, m.new
    del type(m).new
    return found, hasattr(Net, "new")


def methods_give_it_back(m):
    given = m.eval(), m.scaled(3), m.to(torch.float64), m.requires_grad_(False), m.__enter__()
    return [each is m for each in given], m.training, m.scale, m.linear.weight.dtype


def special_methods(m):
    return len(m), m[4], 2 in m, 3 in m, bool(m), repr(m), f"{m}", hash(m) == hash(m), m == m


def pickled(m):
    one, two = pickle.loads(pickle.dumps([m, m]))
    loaded = [pickle.loads(pickle.dumps(m, protocol))(X) for protocol in range(2, 6)]
    return loaded, one is two, type(one) is Net, pickle.loads(pickle.dumps(type(m))) is Net


def copied(m):
    shallow, deep = copy.copy(m), copy.deepcopy(m)
    shallow.scale = deep.scale = 9
    same = shallow.linear is m.linear, deep.linear is m.linear
    return shallow(X), deep(X), m(X), same, shallow is m


def asked_by_inspect(m):
    texts = [str(inspect.signature(f)) for f in (m.forward, m.scaled, type(m).forward)]
    method = m.forward
    return texts, inspect.ismethod(method), method == m.forward, method.__func__ is Net.forward


def calls_counted(m):
    Net.calls = 0
    m(X)
    m.forward(X)
    nn.Module.__call__(m, X)
    return Net.calls, m.calls, type(m).calls


def hooked(m):
    log = []
    m.register_forward_hook(lambda module, args, result: log.append(isinstance(module, Net)))
    return m(X), log


def among_others(m):
    outer = nn.Sequential(m, nn.ReLU())
    return outer(X), repr(outer), [name for name, _ in outer.named_modules()], list(m.state_dict())


def dispatched(m):
    kind = functools.singledispatch(lambda thing: "another")
    kind.register(Net, lambda thing: "a net")
    return kind(m)


def refused(m):
    return hasattr(m, "missing"), getattr(m, "missing", 5), sorted(vars(m)), m.missing


def trained(m):
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        m(X).sum().backward()
        optimizer.step()
    return m.linear.weight.detach()


def forward_replaced(m):
    first = m(X)
    m.forward = lambda x: x * 0
    return first, m(X)


def slots(m):
    first = m(X)
    m.scale = 6
    return (
        first,
        m(X),
        m.kept,
        len(m),
        hash(type(m)) == hash(Slotted),
        type(m).number,
        isinstance(m, Slotted),
    )


def of_net(look):
    def body(compile):
        torch.manual_seed(0)
        return look(compile(Net()))

    return body


def registered(compile):
    Base.names.clear()
    result = compile(Derived())(X)
    return result, list(Base.names), [cls.__name__ for cls in Base.__subclasses__()]


def asked_once(compile):
    module = compile(OwnGetattr())
    OwnGetattr.asked.clear()
    return module.made_up, hasattr(module, "missing"), list(OwnGetattr.asked)


def inside_another(compile):
    module = compile(Net().scaled(3))
    torch.nn.init.ones_(module.linear.weight)
    torch.nn.init.ones_(module.linear.bias)

    def function(x):
        found = module(x), module.forward(x), x + len(type(module).__name__)
        return module, isinstance(module, Net), module.scaled(5)(x), found

    result, *others = compile(function)(X)
    return result is module, others, module.scale


def freed(compile):
    module = compile(Net())
    reference = weakref.ref(module)
    module(X)
    del module
    return reference() is None


LOOKS = (
    read_and_set,
    class_is_asked,
    class_is_set,
    methods_give_it_back,
    special_methods,
    pickled,
    saved,
    copied,
    asked_by_inspect,
    calls_counted,
    hooked,
    among_others,
    dispatched,
    refused,
    trained,
    forward_replaced,
)
case = Cases(backend="eager")
for look in LOOKS:
    case(look.__name__, of_net(look))
case("slots", lambda compile: slots(compile(Slotted())))
case("slots, copied", lambda compile: copy.deepcopy(compile(Slotted()))(X))
case("slots, pickled", lambda compile: pickle.loads(pickle.dumps(compile(Slotted())))(X))
case("a class that registers", registered)
case("a metaclass that registers", lambda compile: (compile(OfListed())(X), Listed.names))
case(
    "abstract", lambda compile: (compile(Concrete())(X), isinstance(compile(Concrete()), Abstract))
)
case("own __getattr__", asked_once)
case("own __call__", lambda compile: compile(OwnCall())(X))
case("inside another function", inside_another)
case("freed", freed)


def test_it_has_none_of_the_names_of_a_compiled_function():
    assert not hasattr(cl.compile(Net()), "_course_original")


@pytest.mark.parametrize("name", case.names)
def test_a_compiled_module_is_as_the_module(name):
    case.check(name)


def test_a_module_compiled_twice_is_a_module_with_its_children():
    """With torch.compile it is a plain function (`findings/compile_module_twice.sh`)."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    once = cl.compile(model, backend="eager")
    twice = cl.compile(once, backend="eager")
    x = torch.randn(3, 2)

    for compiled in (once, twice):
        assert isinstance(compiled, nn.Module) and len(compiled) == 2
        assert [*compiled] == [*model] and compiled[0] is model[0]
        assert [*compiled.state_dict()] == [*model.state_dict()]
        assert not compiled.train(False).training and not model.training
        assert torch.equal(compiled(x), model(x))
        model.train()
