"""Arguments, closures, decorators, recursion, comprehensions."""

# The oddities are the point.
# ruff: noqa

import functools

from language_programs.classes import Derived, Mixin
from language_programs.kit import LOG, number, program, randn

STATE = 0
"""What `global` writes; `observed.run` sets it back."""


@program(lambda i: (randn(3),))
def annotations_of_a_function_made_here(x):
    def inner(a: int, *, b: "text" = 2) -> float:  # noqa: F821
        return a

    return x + 1, inner.__annotations__, inner


@program()
def list_comprehension(x):
    return [x * k for k in range(3) if k != 1], [[a + b for b in range(2)] for a in range(2)]


@program()
def set_and_dict_comprehension(x):
    return {k % 2 for k in range(5)}, {k: x + k for k in "ab" * 2 for k in (1, 2)}


@program()
def generator_expressions(x):
    return (
        sum(x * k for k in range(3)),
        any(k > 3 for k in range(5)),
        all(k for k in (1, 0, 2)),
        max(k * k for k in (1, -3)),
    )


@program()
def comprehension_over_outer_names(x):
    n = 3
    scale = [x * n for _ in range(2)]
    fs = [lambda: k + n for k in range(3)]
    n = 4
    return scale, [f() for f in fs]


@program()
def walrus_in_comprehension(x):
    r = [y for k in range(4) if (y := k * 2) > 2]
    return x + y, r


@program()
def nested_closures(x):
    def a(p):
        def b(q):
            def c(r):
                return p + q + r + x

            return c

        return b

    return a(1)(2)(3)


@program()
def nonlocal_counter(x):
    def counter():
        n = 0

        def inc(by=1):
            nonlocal n
            n += by
            return n

        return inc

    one, two = counter(), counter()
    one(), one(5), two()
    return x + one() * two(), one


@program(number)
def global_state(x, i):
    global STATE
    STATE += i + 1
    return x * STATE


@program()
def global_read_after_write_in_callee(x):
    def g():
        global STATE
        STATE = 7

    g()
    return x + STATE


@program()
def all_kinds_of_parameters(x):
    def g(a, b=2, /, c=3, *rest, d, e=5, **more):
        return a, b, c, rest, d, e, more

    return g(x, d=1), g(1, 2, 3, 4, 5, d=x, z=9), g(1, *[2, 3], **{"d": 4, "c2": 6})


def defaults(x, n=1, *values, scale=2, **more):
    return x * n * scale + len(values) + len(more), values, more


@program(lambda i: (randn(3), *range(i)))
def star_args_of_the_frame(*args):
    return defaults(*args, scale=3, z=1)


@program()
def mutable_default(x):
    def g(v, seen=[]):
        seen.append(v)
        return len(seen)

    g(x), g(1)
    return x + g(2), g.__defaults__


def mutable_module_default(v, seen=[]):
    seen.append(v)
    return list(seen)[-2:]


@program()
def keyword_duplicates(x):
    def g(**kw):
        return kw

    try:
        g(**{"a": 1}, **{"a": 2})
    except TypeError as e:
        return x, str(e)


@program()
def keyword_only_missing(x):
    def g(*, key):
        return key

    try:
        g()
    except TypeError as e:
        return x, str(e)


@program()
def lambdas_and_decorators(x):
    def twice(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            LOG.append(f.__name__)
            return f(f(*args, **kwargs), **kwargs)

        return wrapper

    @twice
    def g(v, k=2):
        "doc"
        return v * k

    return g(x, k=3), g.__name__, g.__doc__, (lambda a, *b, c=1: (a, b, c))(1, 2, c=3)


@program()
def decorator_with_arguments(x):
    def repeat(n):
        def deco(f):
            def w(v):
                for _ in range(n):
                    v = f(v)
                return v

            return w

        return deco

    @repeat(2)
    @repeat(3)
    def inc(v):
        return v + 1

    return inc(x)


@program()
def recursion(x):
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    def down(v, n):
        return v if n == 0 else down(v + n, n - 1)

    return down(x, 4) * fact(5)


@program()
def mutual_recursion(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return x + 1, even(6), odd(6)


@program()
def closures_in_loops_and_defaults(x):
    fs = []
    for k in range(3):

        def f(v, k=k, *, scale=k + 1):
            return v * k + scale

        fs.append(f)
    return [f(x) for f in fs], fs[1].__defaults__, fs[2].__kwdefaults__, fs[0]


@program()
def class_with_closure_cell(x):
    return Derived(3, x).name(), Mixin.name.__closure__ is not None, x + 1


@program()
def functions_with_attributes(x):
    def f(v):
        f.calls += 1
        return v + f.calls

    f.calls = 0
    return f(x), f(x), f.calls, f


@program(breaks=2)
def writes_attribute_of_module_function(x):
    defaults.tag = getattr(defaults, "tag", 0) + 1
    y = x + 1
    del defaults.tag
    return y


@program()
def y_combinator(x):
    return (lambda f: f(f))(lambda f: lambda n: 1 if n == 0 else n * f(f)(n - 1))(5), x + 1


@program()
def varargs_identity(x):
    def g(*a):
        return a

    def h(**k):
        return k

    t, d = (x, 1), {"k": x}
    return g(*t) == t, h(**d) is d, g(*t)[0] is x


@program()
def returns_wrapped_function(x):
    def g(v):
        "doc"
        return v * x

    @functools.wraps(g)
    def w(*a, k=[1]):
        "other"
        return g(*a)

    return w, x + 1


@program()
def returns_recursive_function(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    return fact, even, odd, x * fact(4)


@program(breaks=1)
def recursive_function_alive_at_break(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    y = x * fact(4)
    print("break")
    return y + fact(3)
