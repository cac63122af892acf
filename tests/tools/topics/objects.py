"""Classes and their objects: made inside, subclasses of containers, dataclasses, named tuples, enums, functools, weak references."""

# Unusual classes are the point.
# ruff: noqa

import collections
import copy
import dataclasses
import enum
import functools
import operator
import types
import typing
import weakref

import torch
from topics.kit import grad, number, one, program, two


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale


@program()
def a_class_made_inside(x):
    class Local:
        factor = 3

        def __init__(self, shift):
            self.shift = shift

        def run(self, x):
            return x * self.factor + self.shift

    return Local(2).run(x)


@program()
def a_class_made_inside_that_inherits(x):
    class Twice(Scaled):
        def __call__(self, x):
            return super().__call__(x) * 2

    return Twice(3)(x)


@program()
def a_class_made_inside_that_closes_over_a_tensor(x):
    y = x * 2

    class Holder:
        def get(self):
            return y + 1

    return Holder().get() * x


@program()
def a_class_made_by_type(x):
    made = type("Made", (Scaled,), {"shift": 4, "add": lambda self, x: x + self.shift})
    return made(2).add(x)


class Registered:
    known = []

    def __init_subclass__(cls, name="none", **kwargs):
        super().__init_subclass__(**kwargs)
        cls.name = name


@program()
def a_subclass_with_a_keyword(x):
    class Mine(Registered, name="mine"):
        pass

    return x * len(Mine.name)


class Table(dict):
    def __missing__(self, key):
        return len(key)


@program()
def a_dict_subclass_with_missing(x):
    table = Table(a=2)
    return x * table["a"] + table["long"]


class Counting(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.reads = 0

    def __getitem__(self, key):
        self.reads += 1
        return super().__getitem__(key)


@program()
def a_dict_subclass_that_counts_reads(x):
    table = Counting(a=x, b=x + 1)
    y = table["a"] * table["b"]
    return y + table.reads, table.reads


@program(lambda i: (torch.randn(3), Counting(a=torch.randn(3), b=2.0)))
def a_dict_subclass_from_outside(x, table):
    return x * table["a"] + table["b"]


class Attributes(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error

    def __setattr__(self, name, value):
        self[name] = value


@program()
def a_dict_with_attributes(x):
    out = Attributes(hidden=x * 2)
    out.last = out.hidden + 1
    return out, hasattr(out, "absent")


class Sized(list):
    def __len__(self):
        return super().__len__() * 10

    def __iter__(self):
        return (item * 2 for item in super().__iter__())


@program()
def a_list_subclass_with_its_own_len_and_iter(x):
    parts = Sized([x, x + 1])
    total = 0
    for part in parts:
        total = total + part
    return total * len(parts), bool(parts)


@program(lambda i: (torch.randn(3), Sized([1.0, 2.0])))
def a_list_subclass_from_outside(x, parts):
    return x * len(parts) + sum(parts)


class Pair(tuple):
    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    @property
    def first(self):
        return self[0]


@program()
def a_tuple_subclass(x):
    pair = Pair(x, x * 2)
    a, b = pair
    return pair.first + b, pair


class Chars(str):
    def shout(self):
        return self.upper() + "!"


@program()
def a_str_subclass(x):
    return x * len(Chars("abc").shout())


class Number(int):
    def twice(self):
        return Number(self * 2)


@program()
def an_int_subclass(x):
    n = Number(3).twice()
    return x * n, type(n).__name__


class Bag(set):
    def add(self, item):
        super().add(item)
        super().add(-item)


@program()
def a_set_subclass(x):
    bag = Bag()
    bag.add(1)
    bag.add(2)
    return x * sum(sorted(bag)) + len(bag)


@program()
def a_frozenset_as_a_key(x):
    table = {frozenset((1, 2)): x, frozenset((3,)): x * 2}
    return table[frozenset((2, 1))] + table[frozenset([3])]


@program()
def set_algebra(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    return x * len(a | b) + len(a & b) - len(a ^ b) + (a - b).pop(), a <= b, a.isdisjoint({9})


@program()
def a_deque(x):
    queue = collections.deque(maxlen=3)
    for i in range(5):
        queue.append(x + i)
    queue.rotate(1)
    queue.appendleft(x)
    return sum(queue), queue[-1], len(queue)


@program()
def a_counter(x):
    count = collections.Counter("abracadabra")
    count.update("aaa")
    count.subtract("b")
    (letter, times), *_ = count.most_common(2)
    return x * times + count["none"], letter, count.total()


@program()
def an_ordered_dict(x):
    table = collections.OrderedDict(a=1, b=2, c=3)
    table.move_to_end("a")
    key, value = table.popitem(last=False)
    return x * value, key, list(table)


@program()
def a_defaultdict_of_tensors(x):
    groups = collections.defaultdict(list)
    for i, row in enumerate(x):
        groups[i % 2].append(row)
    return torch.stack(groups[0]).sum() + torch.stack(groups[1]).sum(), sorted(groups)


@program()
def a_chain_map(x):
    names = collections.ChainMap({"a": 1}, {"a": 5, "b": 7})
    names["c"] = 2
    return x * names["a"] + names["b"] + names["c"], len(names)


class OwnMapping(collections.UserDict):
    def __setitem__(self, key, value):
        super().__setitem__(key.lower(), value)


@program()
def a_user_dict(x):
    table = OwnMapping()
    table["ABC"] = x
    return table["abc"] + 1, "ABC" in table


@dataclasses.dataclass(slots=True)
class Slotted:
    a: torch.Tensor
    n: int = 2
    parts: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.a = self.a * self.n


@program()
def a_dataclass_with_slots_and_post_init(x):
    record = Slotted(x, n=3)
    record.parts.append(x)
    return record.a + record.n, len(record.parts)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    name: str = "none"


@program()
def a_frozen_dataclass(x):
    record = Frozen(2)
    other = dataclasses.replace(record, n=5)
    table = {record: 1, other: 2}
    try:
        record.n = 7
    except dataclasses.FrozenInstanceError:
        x = x + 1
    return x * table[Frozen(5)], record < other, max(record, other).n


@program()
def a_frozen_dataclass_is_given_back(x):
    return Frozen(x.shape[0], "rows"), x + 1


@dataclasses.dataclass
class Base:
    a: int = 1
    b: dataclasses.InitVar[int] = 5

    def __post_init__(self, b):
        self.total = self.a + b


@dataclasses.dataclass(kw_only=True)
class Derived(Base):
    c: float = 0.5


@program()
def a_dataclass_with_init_var_and_a_base(x):
    record = Derived(a=2, b=3, c=0.25)
    return x * record.total + record.c, [f.name for f in dataclasses.fields(record)]


@program()
def a_dataclass_as_a_dict(x):
    record = Frozen(3, "three")
    return x * dataclasses.asdict(record)["n"], dataclasses.astuple(record)


@program()
def a_dataclass_made_inside(x):
    @dataclasses.dataclass
    class Local:
        n: int
        t: object = None

        def scaled(self):
            return self.t * self.n

    return Local(3, x).scaled(), repr(Local(1))


Point = collections.namedtuple("Point", "a b", defaults=[4])


@program()
def a_named_tuple(x):
    point = Point(x)
    moved = point._replace(a=point.a + 1)
    return moved, moved._fields, point._asdict()["b"]


class Typed(typing.NamedTuple):
    value: torch.Tensor
    scale: float = 2.0

    def scaled(self):
        return self.value * self.scale


@program()
def a_typed_named_tuple(x):
    t = Typed(x)
    return t.scaled(), t == t, t.index(2.0) if False else t.count(2.0) if False else len(t)


@program()
def a_named_tuple_made_inside(x):
    Local = collections.namedtuple("Local", ["p", "q"])
    p, q = Local(p=x, q=x * 2)
    return p + q


class Mode(enum.Enum):
    ADD = "add"
    MUL = "mul"

    def apply(self, x):
        return x + 2 if self is Mode.ADD else x * 2


@program()
def an_enum(x):
    for mode in Mode:
        x = mode.apply(x)
    return x, Mode("mul"), Mode["ADD"].name


class Bits(enum.IntFlag):
    A = 1
    B = 2
    C = 4


@program()
def flags(x):
    bits = Bits.A | Bits.C
    if bits & Bits.C and Bits.B not in bits:
        x = x * int(bits)
    return x, bits, ~bits & Bits.B


@program(lambda i: (torch.randn(3), list(Mode)[i % 2]))
def an_enum_argument(x, mode):
    return mode.apply(x)


@program()
def functools_partial(x):
    f = functools.partial(torch.add, alpha=3)
    g = functools.partial(f, x)
    return g(x), g.args[0] is x, f.keywords


class HasPartial:
    def base(self, x, n, *, k=1):
        return x * n + k

    twice = functools.partialmethod(base, 2, k=5)


@program()
def functools_partialmethod(x):
    return HasPartial().twice(x)


@functools.singledispatch
def describe(value, x):
    return x


@describe.register
def _(value: int, x):
    return x + value


@describe.register(list)
def _(value, x):
    for item in value:
        x = describe(item, x)
    return x


@program()
def functools_singledispatch(x):
    return describe([1, [2, 3], "none"], x)


class Lazy:
    def __init__(self, x):
        self.x, self.made = x, 0

    @functools.cached_property
    def double(self):
        self.made += 1
        return self.x * 2


@program()
def functools_cached_property(x):
    lazy = Lazy(x)
    return lazy.double + lazy.double, lazy.made, lazy.double is lazy.double


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


@program()
def functools_total_ordering(x):
    return x + (Version(2) >= Version(1)) + (Version(1) > Version(3)), max(Version(1), Version(4)).n


@program()
def functools_reduce(x):
    return functools.reduce(operator.mul, [x, 2, x + 1]), functools.reduce(max, [3, 1, 7], 0)


@program()
def functools_cmp_to_key(x):
    order = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    return x * order[0] + order[-1]


def noted(f):
    @functools.wraps(f)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return f(*args, **kwargs)

    wrapper.calls = 0
    return wrapper


@program()
def a_decorator_made_inside(x):
    @noted
    def body(x):
        "doc"
        return x * 2

    return body(body(x)), body.calls, body.__name__, body.__doc__


@program()
def operator_getters(x):
    rows = [(2, "b"), (1, "a")]
    rows.sort(key=operator.itemgetter(0))
    shape = operator.attrgetter("shape")(x)
    total = operator.methodcaller("sum", dim=0)(x)
    return total * rows[0][0], rows[0][1], shape[0]


@program()
def operator_in_place(x):
    y = x.clone()
    z = operator.iadd(y, 1)
    operator.setitem(y, 0, 5.0)
    return y, z is y, operator.contains([1, 2], 2), operator.index(3)


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.by_meta = True
        return made


class Metaed(metaclass=Meta):
    def __init__(self, n):
        self.n = n


@program()
def a_metaclass_with_a_call(x):
    m = Metaed(3)
    return x * m.n + m.by_meta


class Typechecked:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, holder, owner=None):
        return self if holder is None else getattr(holder, self.name)

    def __set__(self, holder, value):
        if value is None:
            raise TypeError("not None")
        setattr(holder, self.name, value)


class Described:
    value = Typechecked()

    def __init__(self, value):
        self.value = value


@program()
def a_descriptor(x):
    d = Described(x)
    d.value = d.value + 1
    try:
        d.value = None
    except TypeError as error:
        return d.value, str(error)


class Own:
    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return Own(self.x + (other.x if isinstance(other, Own) else other))

    __radd__ = __add__

    def __getitem__(self, key):
        return Own(self.x[key])

    def __enter__(self):
        return self.x

    def __exit__(self, *details):
        return details[0] is ZeroDivisionError

    def __contains__(self, n):
        return n == self.x.ndim

    def __bool__(self):
        return False

    def __index__(self):
        return 1

    def __matmul__(self, other):
        return self.x @ other.x.T


@program()
def special_methods(x):
    o = 1 + Own(x) + 2
    with o as inner:
        y = inner * 2
        1 / 0
    return y + (Own(x) @ Own(x)).sum(), 2 in o, not o, [5, 6][o], o[0].x


@program()
def a_weak_reference(x):
    class Node:
        pass

    node = Node()
    node.x = x + 1
    ref = weakref.ref(node)
    same = ref() is node
    return ref().x * 2, same


@program()
def a_weak_dictionary(x):
    table = weakref.WeakKeyDictionary()
    key = Scaled(2)
    table[key] = x
    return table[key] + len(table)


@program()
def a_weak_value_dictionary(x):
    table = weakref.WeakValueDictionary()
    kept = Scaled(2)
    table["a"] = kept
    return table["a"](x), "b" in table


@program()
def copies(x):
    record = {"a": [1, 2], "t": x}
    shallow, deep = copy.copy(record), copy.deepcopy({"a": [1, 2]})
    shallow["a"].append(3)
    return x * len(record["a"]) + len(deep["a"]), shallow["a"] is record["a"]


@program()
def a_simple_namespace(x):
    space = types.SimpleNamespace(a=2, t=x)
    space.b = space.t * space.a
    return space.b, vars(space)["a"], space == types.SimpleNamespace(a=2)


@program()
def a_mapping_proxy(x):
    proxy = types.MappingProxyType({"a": 3})
    try:
        proxy["b"] = 1
    except TypeError:
        x = x * proxy["a"]
    return x


class ByName:
    def __getattribute__(self, name):
        if name == "magic":
            return 42
        return super().__getattribute__(name)

    plain = 3


@program()
def own_getattribute(x):
    return x * ByName().magic + ByName().plain


class Cloneable:
    def __copy__(self):
        new = type(self)()
        new.copied = True
        return new

    def __deepcopy__(self, memo):
        new = type(self)()
        new.deep = True
        return new


@program()
def own_copies(x):
    a = Cloneable()
    return x * copy.copy(a).copied + copy.deepcopy(a).deep


@program()
def isinstance_of_protocols(x):
    checks = (
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        isinstance(x, collections.abc.Iterable),
        callable(Scaled(1)),
        issubclass(bool, int),
        isinstance(3, (str, int)),
        isinstance(3, int | str),
    )
    return x * sum(checks), checks
