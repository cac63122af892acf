"""Classes with operators, with the methods of a container, or called like a function."""

# The oddities are the point.
# ruff: noqa

from language_programs.classes import Base
from language_programs.kit import LOG, program, randn


class Vector:
    def __init__(self, *items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        return Vector(*self.items[k]) if isinstance(k, slice) else self.items[k]

    def __setitem__(self, k, v):
        self.items[k] = v

    def __delitem__(self, k):
        del self.items[k]

    def __iter__(self):
        return iter(self.items)

    def __contains__(self, v):
        LOG.append(("contains", v))
        return v in self.items

    def __eq__(self, other):
        return isinstance(other, Vector) and self.items == other.items

    def __hash__(self):
        return hash(tuple(self.items))

    def __bool__(self):
        LOG.append("bool")
        return bool(self.items)

    def __add__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(*[a + b for a, b in zip(self.items, other.items)])

    def __mul__(self, k):
        return Vector(*[a * k for a in self])

    __rmul__ = __mul__

    def __iadd__(self, other):
        self.items += other
        return self

    def __neg__(self):
        return self * -1

    def __lt__(self, other):
        return sum(self) < sum(other)

    def __call__(self, *a, **k):
        return a, k, self.items

    def __repr__(self):
        return f"Vector{tuple(self.items)}"

    def __str__(self):
        return "<v>"

    def __format__(self, spec):
        return f"F{spec}"

    def __int__(self):
        return len(self)

    __index__ = __int__

    def __enter__(self):
        return self

    def __exit__(self, *a):
        LOG.append("exit")

    def __reversed__(self):
        return iter(["r", *self.items])

    def __matmul__(self, other):
        return "matmul", other

    def __rsub__(self, other):
        return "rsub", other

    def __abs__(self):
        return 7

    def __round__(self, n=None):
        return "round", n

    def __floordiv__(self, o):
        return "floordiv"

    def __pow__(self, o, m=None):
        return "pow", m

    def __length_hint__(self):
        return 2


@program(lambda i: (randn(3), Vector(1, 2, i)))
def container_protocol(x, v):
    v[0] = 5
    del v[1]
    v += [9]
    a, *rest = v
    return (
        x * v[0],
        len(v),
        list(v),
        9 in v,
        77 in v,
        v == Vector(5, 2),
        {v: 1}[v],
        v[1:],
        rest,
        bool(v),
        not Vector(),
        sorted(v),
        v,
    )


@program(lambda i: (randn(3), Vector(1, 2)))
def operator_protocol(x, v):
    out = [
        v + Vector(1, 1),
        v * 2,
        2 * v,
        -v,
        v < Vector(9),
        v > Vector(9),
        v(1, k=2),
        f"{v:>3}",
        f"{v}",
        repr(v),
        str(v),
        int(v),
    ]
    out += [
        v @ 3,
        5 - v,
        abs(v),
        round(v),
        round(v, 2),
        v // 1,
        v**2,
        pow(v, 2, 3),
        list(reversed(v)),
        [1, 2, 3][v],
        max(v, Vector(9)),
    ]
    try:
        v + 1
    except TypeError as e:
        out.append(str(e))
    return x, out, "yes" if v else "no", v or 3, v and 4


class WithTensor:
    def __init__(self, t):
        self.t = t

    def __radd__(self, other):
        return "radd", other

    def __add__(self, other):
        return WithTensor(self.t + (other.t if isinstance(other, WithTensor) else other))

    def __torch_function__(self):
        raise AssertionError


class Plain(WithTensor):
    __torch_function__ = None


@program(lambda i: (randn(3), Base(2)), breaks=1)
def reflected_operator_with_tensor(x, b):
    class_ = type(b)
    try:
        x + b
    except TypeError as e:
        return x + 1, class_.__name__


class CallableObject:
    def __init__(self):
        self.calls = 0

    def __call__(self, v, *, by=1):
        self.calls += 1
        return v + self.calls * by


@program(lambda i: (randn(3), CallableObject()))
def callable_instance(x, c):
    return c(x) + c(x, by=2), callable(c), list(map(c, [1, 2])), c.calls


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program(lambda i: (randn(3), Countdown(5)))
def iterator_class(x, c):
    first = next(c)
    for k in c:
        x = x + k
        if k == 1:
            break
    return x, first, list(c), list(Countdown(2)), sum(Countdown(4)), c.n


class OldSequence:
    def __getitem__(self, k):
        if k > 2:
            raise IndexError
        return k * 2


@program()
def old_iteration_protocol(x):
    return (
        x + sum(OldSequence()),
        list(OldSequence()),
        4 in OldSequence(),
        tuple(reversed([*OldSequence()])),
    )
