"""Gradient mode, inference mode, autocast and devices, as managers and as decorators."""

# The oddities are the point.
# ruff: noqa

import contextlib

import torch
from language_programs.kit import number, program, randn


@program(lambda i: (randn(3, requires_grad=True),))
def grad_switches(x):
    a = x * 2
    with torch.no_grad():
        b = x * 3
        with torch.enable_grad():
            c = x * 4
        d = x * 5
    with torch.set_grad_enabled(False):
        e = x * 6
    return a, b, c, d, e, torch.is_grad_enabled()


@program(lambda i: (randn(3, requires_grad=True),))
def no_grad_as_decorator(x):
    @torch.no_grad()
    def g(v):
        return v * 2

    return g(x), x + 1


@torch.no_grad()
def module_level_no_grad(v):
    return v * 2, torch.is_grad_enabled()


@program(lambda i: (randn(3, requires_grad=True),))
def calls_no_grad_function(x):
    return module_level_no_grad(x), x + 1


@program(lambda i: (randn(3, requires_grad=True), i))
def grad_mode_left_off(x, i):
    torch.set_grad_enabled(i == 1)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@program(lambda i: (randn(3, requires_grad=True),))
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1


@program(lambda i: (randn(3, 4), randn(3, 4, requires_grad=True)))
def inference_mode_and_views(x, w):
    with torch.inference_mode():
        y = x * w
        outside, inside, twice = x.view(-1), y.view(-1), y
        kept = [y[0], {"sum": y.sum()}]
    return (
        y,
        twice,
        outside,
        inside,
        kept,
        y + 1,
        y[1],
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
    )


@program(lambda i: (randn(3, requires_grad=True),))
def inference_mode_writes_to_what_is_outside(x):
    y = x * 2
    with torch.inference_mode():
        y.add_(1)
        with torch.enable_grad():
            z = y * 2
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    return y, z, inside


@torch.inference_mode()
def module_level_inference(x):
    return x * 2


@program(lambda i: (randn(3, requires_grad=True),))
def calls_an_inference_function(x):
    return module_level_inference(x), module_level_inference(x) + 1, x + 1


@program(lambda i: (randn(3), randn(3, requires_grad=True)))
def inference_mode_in_a_loop_under_no_grad(x, w):
    kept = []
    with torch.no_grad():
        for _ in range(3):
            with torch.inference_mode(), torch.inference_mode():
                x = x + w
            kept.append(x * w)
    return kept, x


@program(lambda i: (randn(3),))
def inference_mode_left_by_an_exception(x):
    try:
        with torch.inference_mode():
            y = x * 2
            raise ValueError("enough")
    except ValueError as error:
        return y, y + 1, str(error), torch.is_grad_enabled()


@program(lambda i: (randn(3), randn(3)))
def inference_mode_around_vmap_and_complex(x, y):
    with torch.inference_mode():
        seen = torch.vmap(lambda row: row.view(-1))(x.view(3, 1))
        made = torch.vmap(lambda row: row * 2)(x)
        turned = torch.complex(x, y).conj()
    return seen, made, turned.real, turned.imag


@program(lambda i: (randn(3), randn(3, requires_grad=True)), breaks=1)
def saves_an_inference_tensor(x, w):
    with torch.inference_mode():
        y = x * 2
    return y * w


@program(lambda i: (randn(3),), breaks=1)
def writes_to_an_inference_tensor(x):
    with torch.inference_mode():
        y = x * 2
    y += 1
    return y


@program(lambda i: (randn(3), randn(3)), breaks=3)
def break_in_inference_mode(x, w):
    with torch.inference_mode():
        y = x * w
        print("inside")
        y = y + 1
    return y * 2, y


@program(lambda i: (randn(3),), breaks=2)
def asks_for_an_inference_tensor(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), x.is_inference(), y


@program(lambda i: (randn(3),), breaks=2)
def inference_mode_switched_off(x):
    with torch.inference_mode(False):
        y = x * 2
    return y, y.sum()


@program(lambda i: (randn(3),))
def inference_mode_by_hand(x):
    context = torch.inference_mode()
    context.__enter__()
    y = x * 2
    inside = torch.is_inference_mode_enabled()
    context.__exit__(None, None, None)
    return y, inside, torch.is_inference_mode_enabled()


@program(lambda i: (randn(3),), breaks=2)
def device_context(x):
    with torch.device("meta"):
        made = torch.ones(2), torch.tensor([1.0]), torch.nn.Linear(2, 2).weight
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.device("meta"))
        more = torch.zeros(3)
    return [t.device for t in made], more.device, torch.ones(2), x + 1


@program(lambda i: (randn(3, 3), randn(3, 3)))
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
    return z, x @ y


@program(lambda i: (randn(3, 3),))
def autocast_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def g(v):
        return v @ v

    return g(x)


@program(number)
def raise_inside_no_grad(x, i):
    try:
        with torch.no_grad():
            if i:
                raise ValueError
    except ValueError:
        pass
    return x + 1, torch.is_grad_enabled()
