"""The flow of a program: generators and context managers alive at a break, itertools, closures, comprehensions, match, arguments."""

# Unusual flow is the point.
# ruff: noqa

import asyncio
import contextlib
import itertools

import torch
from topics.kit import grad, number, one, program, two


@program()
def a_generator_alive_at_a_break(x):
    def parts():
        for i in range(3):
            yield x * i

    it = parts()
    first = next(it)
    y = x + 1
    print("break")
    return y + first + next(it) + sum(it)


@program()
def a_generator_that_is_sent_to(x):
    def averages():
        total, n = 0, 0
        while True:
            value = yield total / n if n else 0
            total, n = total + value, n + 1

    run = averages()
    next(run)
    run.send(x)
    return run.send(x * 3)


@program()
def a_generator_with_finally(x):
    log = []

    def parts():
        try:
            yield x
            yield x * 2
        finally:
            log.append("closed")

    it = parts()
    y = next(it)
    it.close()
    return y + 1, log


@program()
def a_generator_into_which_an_error_is_thrown(x):
    def parts():
        try:
            yield x
        except ValueError as error:
            yield x + len(str(error))

    it = parts()
    next(it)
    return it.throw(ValueError("four"))


@program()
def yield_from_with_a_result(x):
    def inner():
        yield x
        return 5

    def outer():
        n = yield from inner()
        yield x * n

    return sum(outer())


@program()
def a_generator_given_back(x):
    def parts(y):
        yield y * 2
        yield y * 3

    return list(parts(x + 1)), next(iter(parts(x)))


@contextlib.contextmanager
def shifted(box, n):
    box.append(n)
    try:
        yield n * 2
    finally:
        box.pop()


@program()
def a_context_manager_alive_at_a_break(x):
    box = []
    with shifted(box, 3) as n:
        y = x * n
        print("inside", box)
        y = y + box[-1]
    return y, box


@program()
def nested_context_managers_at_a_break(x):
    box = []
    with shifted(box, 1) as a, shifted(box, 2) as b:
        with torch.no_grad():
            y = x * a
            print(len(box))
            y = y + b
    return y, len(box)


@program(grad)
def no_grad_alive_at_a_break(x):
    with torch.no_grad():
        y = x * 2
        print(torch.is_grad_enabled())
        z = y + 1
    return z, x * 3 + z


@program()
def an_error_out_of_a_context_manager_after_a_break(x):
    box = []
    try:
        with shifted(box, 1):
            y = x + 1
            print("before")
            raise KeyError("gone")
    except KeyError as error:
        return y * 2, str(error), box


@program()
def an_exit_stack(x):
    box = []
    with contextlib.ExitStack() as stack:
        total = sum(stack.enter_context(shifted(box, i)) for i in range(3))
        stack.callback(box.append, "last")
        y = x * total + len(box)
    return y, box


@program()
def an_exit_stack_at_a_break(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(log.append, "a")
        stack.callback(log.append, "b")
        y = x + 1
        print("inside")
        y = y * 2
    return y, log


@program()
def suppressed_errors(x):
    with contextlib.suppress(ZeroDivisionError, KeyError):
        x = x + 1
        {}["a"]
        x = x * 100
    return x


@program()
def a_nullcontext(x):
    with contextlib.nullcontext(3) as n, contextlib.nullcontext():
        return x * n


@program()
def a_closing_context(x):
    class Box:
        closed = False

        def close(self):
            self.closed = True

    box = Box()
    with contextlib.closing(box) as b:
        y = x + b.closed
    return y + box.closed


class Doubler(contextlib.ContextDecorator):
    depth = 0

    def __enter__(self):
        Doubler.depth += 1
        return self

    def __exit__(self, *details):
        Doubler.depth -= 1
        return False


@Doubler()
def decorated(x):
    return x * (Doubler.depth + 1)


@program()
def a_context_decorator(x):
    return decorated(x) + Doubler.depth


@program()
def redirected_output(x):
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print("hidden")
    return x + len(out.getvalue())


@program()
def itertools_of_many_kinds(x):
    pairs = list(itertools.product([1, 2], "ab"))
    chained = list(itertools.chain([x], (x + 1, x + 2)))
    taken = list(itertools.islice(itertools.count(3, 2), 3))
    return sum(chained) * len(pairs) + sum(taken), list(itertools.pairwise([1, 2, 3]))


@program()
def itertools_groupby(x):
    total = 0
    for key, group in itertools.groupby([1, 1, 2, 2, 2, 3], key=lambda n: n % 2):
        total = total + x * key * len(list(group))
    return total


@program()
def itertools_accumulate_of_tensors(x):
    return list(itertools.accumulate([x, x, x], torch.add, initial=x * 0))


@program()
def itertools_zip_longest_and_cycle(x):
    colours = itertools.cycle([1, 2])
    out = [a * b for a, b in zip([x, x, x], colours)]
    rest = list(itertools.zip_longest([1, 2], [3], fillvalue=9))
    return sum(out), rest


@program()
def itertools_tee_and_starmap(x):
    a, b = itertools.tee([1, 2, 3])
    next(b)
    return x * sum(itertools.starmap(lambda p, q: p * q, zip(a, b)))


@program()
def itertools_of_conditions(x):
    numbers = [1, 3, 4, 5]
    a = list(itertools.takewhile(lambda n: n % 2, numbers))
    b = list(itertools.dropwhile(lambda n: n % 2, numbers))
    c = list(itertools.filterfalse(lambda n: n % 2, numbers))
    d = list(itertools.compress("abcd", [1, 0, 1, 0]))
    return x * sum(a) + sum(b) + sum(c), d


@program()
def itertools_combinations(x):
    rows = list(itertools.combinations(x.unbind(0), 2))
    return sum(a * b for a, b in rows), len(list(itertools.permutations(range(3))))


@program()
def itertools_batched_by_hand(x):
    it = iter(range(7))
    groups = list(iter(lambda: tuple(itertools.islice(it, 3)), ()))
    return x * len(groups), groups


# torch.compile makes no graph of what comes behind the break.
@program(graphs=2)
def an_iterator_alive_at_a_break(x):
    it = zip([1, 2, 3], "abc")
    n, _ = next(it)
    y = x * n
    print(n)
    for n, letter in it:
        y = y + n
    return y, letter


@program()
def iterators_of_texts_and_bytes_alive_at_a_break(x):
    letters, codes, far = iter("abc"), enumerate(b"abc"), iter(range(2**64, 2**64 + 3))
    next(letters), next(codes), next(far)
    y = x + 1
    print("here")
    for letter, (place, code), big in zip(letters, codes, far):
        y = y * place + code + (big - 2**64) + len(letter)
    return y, list(letters)


@program()
def enumerate_reversed_alive_at_a_break(x):
    it = enumerate(reversed([1, 2, 3]), start=5)
    y = x + next(it)[0]
    print("here")
    return y, list(it)


@program()
def a_map_with_effects_alive_at_a_break(x):
    seen = []

    def note(n):
        seen.append(n)
        return n * 2

    it = map(note, [1, 2, 3])
    y = x * next(it)
    print(seen)
    return y + sum(it), seen


@program()
def nonlocal_in_two_levels(x):
    n = 1

    def outer():
        nonlocal n
        n += 1

        def inner():
            nonlocal n
            n *= 10
            return x * n

        return inner

    y = outer()()
    return y + n, n


@program()
def closures_over_the_same_variable(x):
    total = 0

    def add(n):
        nonlocal total
        total = total + n

    def get():
        return total

    add(x)
    print("between")
    add(x * 2)
    return get() + total


@program()
def closures_made_in_a_loop(x):
    late = [lambda: i for i in range(3)]
    early = [lambda i=i: i for i in range(3)]
    return x * sum(f() for f in late) + sum(f() for f in early)


@program()
def a_closure_given_back(x):
    y = x * 2

    def add(z):
        return y + z

    return add(x)


@program()
def a_recursive_closure(x):
    def power(n):
        return x if n == 0 else power(n - 1) * 2

    return power(4)


@program()
def comprehensions_with_walrus(x):
    big = [last := n * n for n in range(5) if (half := n / 2) >= 1]
    return x * last + half, big


@program()
def nested_comprehensions(x):
    grid = {(i, j): x * i + j for i in range(2) for j in range(2) if i <= j}
    flat = {k for k in grid}
    return sum(grid.values()), sorted(flat), [[i * j for j in range(i)] for i in range(3)]


@program()
def a_walrus_in_a_while(x):
    items = [3, 2, 0, 5]
    total = 0
    while n := items.pop(0):
        total += n
    return x * total, items


@program(lambda i: (torch.randn(3, 4), ["add", ("mul", 3), {"op": "pow", "by": 2}][i]))
def match_of_many_kinds(x, order):
    match order:
        case "add" | "plus":
            return x + 1
        case (name, int(n)) if n > 2:
            return x * n, name
        case {"op": "pow", **rest}:
            return x ** rest["by"], rest
        case _:
            return x


class Shape:
    __match_args__ = ("rows", "columns")

    def __init__(self, x):
        self.rows, self.columns = x.shape


@program()
def match_of_classes(x):
    match Shape(x):
        case Shape(3, columns=c):
            return x * c
        case Shape(rows):
            return x + rows


@program()
def match_of_sequences(x):
    found = []
    for item in ([1, 2, 3], [], (x, 2), "text", {"a": [1, {"b": 2}]}, None, 1.5):
        match item:
            case []:
                found.append("empty")
            case [first, *rest] if isinstance(first, int):
                found.append((first, rest))
            case [torch.Tensor() as t, n]:
                x = t * n
            case {"a": [_, {"b": b}]}:
                found.append(b)
            case None:
                found.append("none")
            case float(v):
                found.append(v)
            case other:
                found.append(other)
    return x, found


@program()
def formatted_shapes(x):
    name = f"{x.shape[0]:>4}x{x.shape[1]!r} {tuple(x.shape)} {x.dtype} {x.ndim=}"
    return (
        x * len(name),
        name,
        f"{len(name):{4}d}",
        "%s-%d" % (x.dtype, x.size(0)),
        "{0.ndim}".format(x),
    )


@program()
def star_arguments(x):
    def f(a, /, b, *rest, c=1, **more):
        return a * b + sum(rest) * c + sum(more.values())

    args, options = (2, 3), {"c": 2, "d": 4}
    return f(x, *args, *[4, 5], **options, **{"e": 1})


@program()
def unpacking(x):
    first, *middle, last = x.unbind(0)
    (a, b), [c, *d] = (1, 2), "xyz"
    swapped = [*middle, last, first]
    merged = {**{"a": 1}, "b": 2, **{"a": 3}}
    return torch.stack(swapped) * a + b, c, d, merged


@program()
def unpacking_a_tensor(x):
    a, b, c = x
    (p, q, *_), *_ = x
    return a + b * c, p - q


@program()
def missing_and_extra_arguments(x):
    def f(a, b=2, *, c):
        return a * b * c

    said = []
    for args, options in (
        ((x,), {}),
        ((x, 1, 2), {"c": 1}),
        ((x,), {"c": 1, "d": 2}),
        ((x,), {"c": 3}),
    ):
        try:
            x = f(*args, **options)
        except TypeError as error:
            said.append(str(error))
    return x, said


@program()
def mutable_defaults(x):
    def f(n, seen=[]):
        seen.append(n)
        return len(seen)

    f(1)
    return x * f(2) + f(3), f.__defaults__


@program()
def a_while_else_and_a_for_else(x):
    for n in [1, 2, 3]:
        if n == 5:
            break
    else:
        x = x + 1
    while n:
        n -= 1
        if n == 1:
            break
    else:
        x = x * 100
    return x


@program()
def a_finally_that_returns(x):
    def f():
        try:
            return x
        finally:
            return x + 1

    def g():
        for _ in range(2):
            try:
                continue
            finally:
                yield x

    return f() * sum(g())


@program()
def exception_groups(x):
    try:
        raise ExceptionGroup("both", [ValueError("a"), KeyError("b")])
    except* ValueError as group:
        x = x + len(group.exceptions)
    except* KeyError:
        x = x * 2
    return x


@program()
def an_error_raised_from_another(x):
    try:
        try:
            {}["a"]
        except KeyError as error:
            raise ValueError("no a") from error
    except ValueError as error:
        return x + 1, type(error.__cause__).__name__, error.__suppress_context__


@program()
def an_error_with_notes(x):
    try:
        error = ValueError("a")
        error.add_note("more")
        raise error
    except ValueError as caught:
        return x * len(caught.__notes__)


@program()
def a_coroutine_run_by_hand(x):
    async def twice(x):
        return x * 2

    async def body(x):
        return await twice(x) + await twice(x + 1)

    run = body(x)
    try:
        run.send(None)
    except StopIteration as done:
        return done.value


async def ticks(x):
    for i in range(3):
        yield x * i


@program()
def an_async_generator(x):
    async def body():
        return sum([part async for part in ticks(x)])

    return asyncio.run(body())


@program()
def an_assertion_with_a_message(x):
    assert x.ndim == 2 and x.shape[0] == 3, f"shape {x.shape}"
    try:
        assert x.ndim == 7, f"{x.ndim} dimensions"
    except AssertionError as error:
        return x + 1, str(error)


@program()
def sorting_with_keys(x):
    rows = sorted([("b", 2), ("a", 2), ("c", 1)], key=lambda row: (-row[1], row[0]))
    rows.reverse()
    return x * rows[0][1], rows, min(rows, key=lambda r: r[0]), max([], default=4)


@program()
def slices_of_everything(x):
    items = list(range(10))
    items[2:5] = [0]
    del items[::3]
    window = slice(1, None, 2)
    return x[window, ..., None, ::2], items, window.indices(7), "hello"[::-1]


@program()
def numbers_of_python(x):
    n, r = divmod(17, 5)
    return x * n + r, (3).bit_length(), round(2.675, 2), 7 // -2, -7 % 3, pow(3, -1, 7), 0.1 + 0.2


@program()
def text_of_python(x):
    words = "the quick brown fox".split()
    text = ", ".join(w.title() for w in words).replace("Quick", "slow")
    return x * len(text), text.partition(","), text.encode()[:3], "a" < "b", text.find("zzz")


@program()
def a_global_name_made_and_deleted(x):
    global made_here
    made_here = globals().get("made_here", 0) + 1
    y = x * made_here
    del made_here
    return y, "made_here" in globals()
