"""`try`, `raise`, `finally`, notes and groups of exceptions."""

# The oddities are the point.
# ruff: noqa

import torch
from language_programs.kit import LOG, number, program, randn


class MyError(Exception):
    def __init__(self, code, *, note=None):
        super().__init__(f"code {code}")
        self.code, self.note = code, note


class Worse(MyError):
    pass


@program(number)
def try_except_else_finally(x, i):
    out = []
    try:
        if i == 1:
            raise ValueError("one")
        if i == 2:
            raise KeyError("two")
    except ValueError as e:
        out.append(str(e))
    except (KeyError, IndexError) as e:
        out.append(repr(e))
    else:
        out.append("else")
    finally:
        out.append("finally")
    return x + len(out), out


@program(number)
def custom_exception_attributes(x, i):
    try:
        raise Worse(i, note=x * 2)
    except MyError as e:
        return x + e.code, e.note, type(e).__name__, e.args, str(e)


@program()
def raises_to_the_caller(x):
    y = x + 1
    raise Worse(3, note="n")


@program()
def raise_from(x):
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise ValueError("outer") from e
    except ValueError as e:
        return x, type(e.__cause__), e.__cause__.args, e.__suppress_context__, type(e.__context__)


@program(breaks=3)
def raise_from_none_out(x):
    try:
        [][3]
    except IndexError:
        raise MyError(1) from None


@program(breaks=3)
def raise_in_except_out(x):
    try:
        [][3]
    except IndexError as e:
        raise MyError(1)


@program()
def implicit_context(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            int("a")
    except ValueError as e:
        return x + 1, str(e), str(e.__context__)


@program(number)
def nested_reraise(x, i):
    log = []
    try:
        try:
            if i:
                raise MyError(i)
        except MyError:
            log.append("inner")
            raise
        finally:
            log.append("finally")
    except Exception as e:
        log.append(type(e).__name__)
    return x * len(log), log


@program(number)
def return_in_finally(x, i):
    try:
        if i:
            raise MyError(1)
        return x
    finally:
        return x + 1


@program(number)
def return_value_before_finally(x, i):
    r = [0]
    try:
        return r, x + r[0]
    finally:
        r[0] = i


@program(number)
def break_and_continue_in_finally(x, i):
    n = 0
    for k in range(5):
        try:
            if k == i:
                continue
            if k == i + 2:
                break
            n += 10
        finally:
            n += 1
    return x + n, n


@program()
def except_name_is_deleted(x):
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        e
    except UnboundLocalError as err:
        return x, str(err)


@program(breaks=1)
def catches_torch_error(x):
    try:
        return x @ torch.ones(5)
    except RuntimeError:
        return x + 5


@program()
def catches_attribute_error(x):
    try:
        x.nope
    except AttributeError as e:
        return x + 1, str(e)


@program(breaks=1)
def raises_type_error(x):
    return x + "a"


@program()
def raises_missing_argument(x):
    def g(a, b):
        return a

    return g(x)


@program()
def raises_unexpected_keyword(x):
    def g(a):
        return a

    return g(x, z=1)


@program()
def raises_stop_iteration(x):
    return next(iter([])), x


@program(number)
def side_effect_before_raise(x, i):
    LOG.append(i)
    LOG.append(x + 1)
    raise MyError(i)


@program(lambda i: (randn(3), []), breaks=1)
def side_effect_before_operation_error(x, values):
    values.append(x * 2)
    x[7]


@program(breaks=2)
def raises_from_callee(x):
    def g(v):
        LOG.append("g")
        if v.shape[0] == 3:
            raise Worse(4)

    try:
        g(x)
    finally:
        LOG.append("after")


@program()
def exception_group_of_classes(x):
    errors = (ValueError, TypeError)
    try:
        raise TypeError("t")
    except errors as e:
        return x, e.args


@program()
def assert_true(x):
    assert x.shape[0] == 3, "no"
    assert isinstance(x, torch.Tensor)
    return x + 1


@program(number)
def assert_false(x, i):
    assert i < 1, f"i is {i}"
    return x + i


@program(lambda i: (randn(3).abs() + 1,), breaks=1)
def assert_tensor(x):
    assert (x > 0).all(), "positive"
    return x + 1


@program(lambda i: (randn(3).abs() - 100,), breaks=1)
def assert_tensor_false(x):
    assert (x > 0).all(), "positive"
    return x + 1


@program()
def exception_as_value(x):
    e = MyError(2, note=[x])
    return e, x + 1


@program()
def try_in_loop(x):
    out = []
    for v in ("1", "a", "2", ""):
        try:
            out.append(int(v))
        except ValueError:
            out.append(-1)
    return x * sum(out), out


@program()
def key_error_message(x):
    d = {"a": 1}
    try:
        d["b"]
    except KeyError as e:
        return x, str(e), e.args


@program()
def raise_class_without_call(x):
    try:
        raise MyError
    except TypeError as e:
        return x + 1, str(e)


@program()
def raise_not_an_exception(x):
    try:
        raise 3
    except TypeError as e:
        return x, str(e)


@program()
def bare_raise_without_exception(x):
    try:
        raise
    except RuntimeError as e:
        return x, str(e)


@program()
def handler_in_callee_reraises(x):
    def g():
        raise

    try:
        try:
            raise ValueError("v")
        except ValueError:
            g()
    except ValueError as e:
        return x, str(e)


@program()
def sys_exc_info(x):
    import sys

    try:
        raise ValueError("v")
    except ValueError:
        return x + 1, sys.exc_info()[0]


@program()
def exception_notes(x):
    try:
        e = ValueError("a")
        e.add_note("n")
        raise e
    except ValueError as err:
        return x, err.__notes__


@program(number)
def nested_functions_with_finally(x, i):
    def g(k):
        try:
            LOG.append(("try", k))
            if k > 1:
                raise MyError(k)
            return k
        except MyError as e:
            LOG.append(e.code)
            return -1
        finally:
            LOG.append(("finally", k))

    return x + g(0) + g(i) + g(5)


@program(breaks=1)
def except_star(x):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
    except* ValueError as e:
        out.append(len(e.exceptions))
    except* TypeError as e:
        out.append(str(e.exceptions[0]))
    return x + 1, out


@program()
def nested_try_in_loop_with_else(x):
    out = []
    for k in range(4):
        try:
            if k == 1:
                continue
            if k == 3:
                break
            out.append(10 // (k - 2))
        except ZeroDivisionError:
            out.append("zero")
        else:
            out.append("else")
        finally:
            out.append("fin")
    else:
        out.append("never")
    return out, x * len(out)


@program()
def iteration_errors(x):
    out = []
    for bad in (3, None, object):
        try:
            for _ in bad:
                pass
        except TypeError as e:
            out.append(str(e))
    return x, out


@program()
def call_errors(x):
    out = []
    for bad in (lambda: len(3), lambda: [].nope(),
    lambda: {}["k"], lambda: (1,)[4], lambda: "a" + 1, lambda: None.x, lambda: int("q"),
                lambda: [1] < ["a"], lambda: undefined_name, lambda: {[]: 1}, lambda: max([]), lambda: "a".index("b"),
                lambda: next(iter(())),
                lambda: [].pop(), lambda: {}.popitem(), lambda: (1).x, lambda: dict(1), lambda: chr(-1),
                lambda: 1 << -1):  # fmt: skip
        try:
            bad()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return x + 1, out
