"""What happens at a call: into the graph, run now, followed, or refused.

    torch operation            a node of the graph
    Python function            followed: its code is interpreted with the same graph
    builtin without effects    run now, on the interpreted world's objects
    nn.Module                  its `forward` is followed
    anything else              `Unsupported`
In PyTorch: the `call_function` methods in `torch/_dynamo/variables/`, and `torch/_dynamo/trace_rules.py` for what is followed.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import inspect
import operator
import os
import re
import string
import sys
import types
import typing
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch._refs
import torch.utils.checkpoint
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental import symbolic_shapes
from torch.utils._pytree import tree_leaves

from course_lib import frames
from course_lib.capture import attributes, effects, global_state
from course_lib.capture.classes import MISSING, is_users, isinstance, member_of
from course_lib.capture.graph import PLAIN, STATE, has_tensor, name_of
from course_lib.capture.shapes import NUMBERS, SYMBOLIC, concrete
from course_lib.capture.sources import FRAME, HELPERS, Imported, Source, Unsupported
from course_lib.capture.tests import Holds, Is, SwitchIs
from course_lib.capture.world import BY_IDENTITY, INSTALLED, functions_of
from course_lib.frames import newer

if TYPE_CHECKING:
    from course_lib.capture.interpreter import Interpreter

OPERATION_MODULES = {"torch", "torch.functional", "torch.nn.functional"}
OPERATION_MODULES |= {f"torch._C{name}" for name in ("", "._nn", "._fft", "._special", "._linalg")}
NOT_OPERATIONS = {
    "set_printoptions",
    "max_unpool2d",
    "_fused_adam_",
    "_fused_adamw_",
    "_fused_sgd_",
    "_fused_adagrad_",
}
"""Of the second torch's fake tensors do not know the strides (channels last); the last are whole steps, as fast as can be."""
FACTS: set[Any] = {getattr(torch, name) for name in """finfo iinfo device promote_types result_type can_cast is_tensor is_complex
    get_default_dtype is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cache_enabled get_autocast_dtype
    get_autocast_gpu_dtype get_autocast_cpu_dtype is_floating_point are_deterministic_algorithms_enabled
    is_autocast_cpu_enabled""".split()}  # fmt: skip
FACTS |= {getattr(torch._C, name, None) for name in """_get_tracing_state _log_api_usage_once _is_any_autocast_enabled
    _is_autocast_available _get_privateuse1_backend_name _is_tracing _is_fwd_grad_enabled _is_torch_function_enabled
    _are_functorch_transforms_active _get_cudnn_enabled _get_deterministic_algorithms _group_tensors_by_device_and_dtype
    _cuda_isCurrentStreamCapturing""".split()}  # fmt: skip
FACTS |= {torch._C._functorch.peek_interpreter_stack, sys.getrecursionlimit, sys.intern, os.fspath}
"""Functions of torch that compute no tensor: their result follows from constants and from the state that is guarded."""
SAFE_MODULES = {
    f"_{name}" for name in "operator functools collections bisect heapq abc string struct".split()
}
SAFE_MODULES |= {"math", "math.integer", "cmath", "itertools", "unicodedata"}
REFUSED = {input, open, exec, eval, compile, __import__, breakpoint, locals, dir}
"""Builtins that look at, or change, more than their arguments."""
SAFE_TYPES = {
    cls for module in (builtins, types) for cls in vars(module).values() if isinstance(cls, type)
}
SAFE_TYPES -= {
    memoryview,
    types.FrameType,
    types.ModuleType,
    types.CoroutineType,
    types.AsyncGeneratorType,
}
SAFE_TYPES |= {
    *(
        collections.deque,
        collections.OrderedDict,
        collections.defaultdict,
        functools.partial,
        *newer.TEMPLATES,
        torch.Size,
        torch.dtype,
    ),
    *(
        torch.device,
        torch.finfo,
        torch.iinfo,
        weakref.ref,
        torch.SymInt,
        torch.SymBool,
        torch.SymFloat,
    ),
    *map(
        type,
        map(iter, ([], (), {}, set(), "", b"", range(1), {}.values(), {}.items(), reversed([]))),
    ),
    *map(type, ({}.keys(), {}.values(), {}.items(), reversed({}), iter(int, 1))),
}
"""Types written in C whose methods touch nothing but the object and their arguments."""
INERT = (torch.profiler.record_function, torch.autograd.profiler.record_function,
         torch.autograd.graph.disable_saved_tensors_hooks)  # fmt: skip
"""Contexts that mean nothing to a graph: names for profilers, and a switch of what does not run."""
APART = (inspect.signature, inspect.getfullargspec, torch.overrides.is_tensor_like, collections.namedtuple, typing.get_type_hints,
         typing.get_origin, typing.get_args, torch._functorch.predispatch.lazy_load_decompositions,
         torch.jit.annotate, torch.distributed.is_available, getattr(torch.distributed, "is_initialized", None))  # fmt: skip
"""Functions that look at functions and types only: nothing to follow."""
LEVELS = "torch._C._functorch", "torch._functorch.predispatch"
"""Modules of what vmap and grad do to tensors, and of the levels at which they do it: into the graph with it."""
CALLED = dict.fromkeys("map filter reduce starmap takewhile dropwhile filterfalse iter".split(), 0)
CALLED |= {"accumulate": 1, "groupby": 1} | dict.fromkeys(
    "sorted min max sort bisect_left bisect_right insort_right".split(), -1
)
"""C code that calls one of its arguments, if not `key=` or `func=`: the how manieth."""
# Methods of `object` that look at all attributes
COPYING = ("__reduce_ex__", "__reduce__", "__getstate__")
NOT_FOLLOWED = tuple(
    f"torch.{name}."
    for name in "_dynamo _inductor _subclasses fx jit optim distributed utils.data multiprocessing library "
    "_library export onnx compiler overrides _logging testing _refs _prims cuda utils.cpp_extension".split()
)
# Where a compiled function keeps the original
COMPILED = "_course_original", "_torchdynamo_orig_callable", "_torchdynamo_inline"
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
HAS_HOOKS = (
    " or ".join(f"{{0}}[{name!r}]" for name in HOOKS)
    + " or '_compiled_call_impl' in {0} and {0}['_compiled_call_impl']"
)
"""Of a module's attributes: does calling it run more than `forward`? (The test of `nn.Module._call_impl`.)"""
HELPERS["SHARED_HOOKS"] = SHARED_HOOKS = [
    getattr(torch.nn.modules.module, f"_global{name}") for name in HOOKS
]
FOLLOWED = (
    "torch.jit._state.",
    "torch.cuda.amp",
    "torch.optim.swa_utils",
    "torch.optim.optimizer._to_scalar",
)


def call(it: Interpreter, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)`. Raises what Python raises, or `Unsupported`."""
    if isinstance(function, torch.nn.Module):
        return call_module(it, function, args, kwargs)
    own = member_of(type(function), "__call__")
    if (
        isinstance(own, types.FunctionType)
        and is_users(type(function))
        and not isinstance(function, type)
    ):
        return call(it, attributes.get(it, function, "__call__"), args, kwargs)
    cls: Any = getattr(function, "__self__", None)
    if isinstance(cls, torch.Tensor) and not it.world.is_opaque(cls):
        return it.world.builder.call(function.__name__, [cls, *args], kwargs)
    for corner in CORNERS:
        if corner.applies(function):
            return corner.rule(it, function, args, kwargs)
    rule = None
    with contextlib.suppress(TypeError):  # not hashable
        rule = RULES.get(function)
    if (number := it.world.shapes.compute(function, args)) is not None:
        return number
    # `super().__setattr__`
    if isinstance(function, types.MethodWrapperType) and function.__objclass__ is object:
        rule = RULES.get(getattr(object, function.__name__), rule)
        args = [function.__self__, *args] if rule else args
    if rule is not None:
        return rule(it, *args, **kwargs)
    if getattr(function, "__module__", "") in LEVELS:
        recorded = function.__name__.startswith(("_", "set_"))
        return (
            it.world.builder.call(function, args, kwargs)
            if recorded
            else it.native(function, *args, **kwargs)
        )
    if type(function) in BY_TYPE:
        return BY_TYPE[type(function)](it, function, *args, **kwargs)
    if is_operation(function):
        # an object of the user's that takes part in torch's functions
        for arg in (*args, *kwargs.values()):
            if hasattr(type(arg), "__torch_function__") and not isinstance(arg, torch.Tensor):
                handler = attributes.get(it, type(arg), "__torch_function__")
                return call(it, handler, [function, (type(arg),), tuple(args), kwargs], {})
        return it.world.builder.call(function, args, kwargs)
    if isinstance(function, (types.FunctionType, torch.jit.ScriptFunction)):
        return follow(it, function, args, kwargs)
    if isinstance(function, type):
        return construct(it, function, args, kwargs)
    if isinstance(function, weakref.ref) and (known := it.world.of(function)) is not None:
        return it.world.wrap(function(), Source("()", known.source))
    if it.world.is_opaque(function):
        raise Unsupported(
            f"calls {name_of(function)}, of which capture knows nothing",
            "call it outside the compiled function",
        )
    if isinstance(own, types.FunctionType):
        return call(it, attributes.get(it, function, "__call__"), args, kwargs)
    if own is MISSING:
        raise TypeError(f"'{attributes.type_of(it, function).__name__}' object is not callable")
    return call_builtin(it, function, args, kwargs)


def call_back(world: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What C code calls in place of `function`: the interpreter knows what that is to do."""
    return call(world.inliner.caller, function, list(args), kwargs)


def with_callbacks(
    it: Interpreter, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for C code, which may call one of them."""
    if (place := CALLED.get(getattr(function, "__name__", ""))) is None:
        return args, kwargs
    wrapped = lambda arg: functools.partial(call_back, it.world, arg) if callable(arg) else arg
    args = [wrapped(arg) if at == place else arg for at, arg in enumerate(args)]
    return args, {
        name: wrapped(arg) if name in ("key", "func") else arg for name, arg in kwargs.items()
    }


def get_by_name(it: Interpreter, getter: operator.attrgetter[Any], value: Any) -> Any:
    found = [
        functools.reduce(functools.partial(attributes.get, it), path.split("."), value)
        for path in getter.__reduce__()[1]
    ]
    return tuple(found) if len(found) > 1 else found[0]


def call_by_name(it: Interpreter, caller: operator.methodcaller, value: Any) -> Any:
    # with keywords, `make` is a partial that has the name
    make, args = cast(Any, caller.__reduce__())
    name, *args, kwargs = (
        (*args, {}) if make is operator.methodcaller else (*make.args, *args, make.keywords)
    )
    return call(it, attributes.get(it, value, name), args, dict(kwargs))


def is_operation(function: Any) -> bool:
    """Does torch's function compute on tensors, with no other effect? Then it may be a node."""
    # what it writes to, its schema says
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if (
        getattr(function, "__module__", None) not in OPERATION_MODULES
        or getattr(function, "__name__", "") in NOT_OPERATIONS
    ):
        return False
    if isinstance(function, types.BuiltinFunctionType):
        # a switch
        return (
            function.__self__ is not torch._C or "_dual_level" in function.__name__
        ) and function not in FACTS
    return isinstance(function, types.FunctionType) and function.__module__ != "torch"


def follow(
    it: Interpreter, function: types.FunctionType, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Interpret the callee's code with the same graph and guards."""
    if getattr(function, "_course_disable", False) or getattr(
        function, "_torchdynamo_disable", False
    ):
        raise Unsupported(f"calls {name_of(function)}, which is marked with disable")
    for attribute in COMPILED:
        if (original := getattr(function, attribute, None)) is not None:
            source = it.world.source_of(function)
            return call(
                it, it.world.wrap(original, source and source.attr(attribute)), args, kwargs
            )
    module = f"{function.__module__}."
    plain = module == "re." and all(
        type(arg) in (*PLAIN, re.Pattern) for arg in (*args, *kwargs.values())
    )
    if module == "torch._dynamo.compiled_autograd.":
        return contextlib.nullcontext()
    # `nn.Module.__init__`, once torch.compile was used
    if plain or module in ("linecache.", "torch._dynamo.mutation_guard."):
        return frames.call(None, function, *args, **kwargs)
    if module.startswith(NOT_FOLLOWED) and not name_of(function).startswith(FOLLOWED):
        what = f"calls {name_of(function)}, a part of torch that is not an operation"
        raise Unsupported(what, "call it outside the compiled function")
    if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Unsupported(f"calls the coroutine {name_of(function)}")
    it.world.adopt(function, args)
    copy = types.FunctionType(function.__code__, {}, function.__name__, None, function.__closure__)
    copy.__defaults__, copy.__kwdefaults__ = it.world.defaults(function)
    return it.enter(function, frames.call(Binder(lambda frame: None), copy, *args, **kwargs))


class Binder(frames.Watcher):
    """Lets no frame run: CPython binds the arguments of a call, which gives the parameters' values in flat order."""

    def __call__(self, code: types.CodeType, func: types.FunctionType, *args: Any) -> Any:
        return functools.partial(frames.call, None, lambda func, *values: values)


def call_module(
    it: Interpreter, module: torch.nn.Module, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """`module(*args)`: without hooks, what its `forward` does."""
    known = it.world.of(module)
    # a `GraphModule` only adds to the text of errors
    own_call = type(module).__call__ is not torch.nn.Module.__call__ and not isinstance(
        module, torch.fx.GraphModule
    )
    hooked = any(
        getattr(known.real if known else module, name) for name in (*HOOKS, "_compiled_call_impl")
    )
    assume_hooks(it, FRAME, "any(SHARED_HOOKS)", any(SHARED_HOOKS), "for all modules")
    if known is not None:
        assume_hooks(it, it.world.own(known, "__dict__"), HAS_HOOKS, hooked, f"on {known.source}")
    inner = (
        "_call_impl"
        if hooked or any(SHARED_HOOKS) or "_call_impl" in type(module).__dict__
        else "forward"
    )
    return call(it, attributes.get(it, module, "__call__" if own_call else inner), args, kwargs)


def assume_hooks(it: Interpreter, source: Source, test: str, are: bool, where: str) -> None:
    """Guard that there are hooks, or none."""
    test, text = (test, "hooks") if are else (f"not ({test})", "no hooks")
    it.world.assume(source, "hooks", Holds(test, f"{text} {where}"))


def construct(it: Interpreter, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)`: Python makes the object; what the class wrote in Python is interpreted."""
    # which is to run when the program drops the object
    if issubclass(cls, torch.Tensor) or hasattr(cls, "__del__"):
        raise Unsupported(f"makes a {cls.__name__}", "make it outside the compiled function")
    it.world.see(cls, it.world.source_of(cls))
    for name in ("__new__", "__init__"):
        maker, owner = (
            member_of(cls, name),
            next(base for base in cls.__mro__ if name in base.__dict__),
        )
        if isinstance(getattr(maker, "__func__", maker), types.FunctionType):
            continue
        if not is_safe_type(owner):
            raise Unsupported(f"makes a {cls.__name__}, which capture cannot make")
        it.look_into(*([] if owner in (object, functools.partial) else [*args, *kwargs.values()]))
    args, kwargs = (args, kwargs) if is_users(cls) else with_callbacks(it, cls, args, kwargs)
    return it.native(cls, *args, **kwargs)


def build_class(
    it: Interpreter, function: types.FunctionType, name: str, /, *bases: Any, **options: Any
) -> Any:
    """`class name(*bases): ...`: the body is interpreted, then Python makes the class of its names. (`Python/bltinmodule.c`)"""
    resolved = it.native(types.resolve_bases, bases)
    metaclass, names, options = it.native(types.prepare_class, name, resolved, options)
    it.enter(function, (), names)
    if resolved is not bases:
        names["__orig_bases__"] = bases
    return register(it, it.native(metaclass, name, resolved, names, **options))


def register(it: Interpreter, made: type) -> type:
    """Remember a class as made by the interpreted program, and the functions that others have written into it."""
    written = [
        f
        for found in vars(made).values()
        for f in functions_of(found).values()
        if it.world.source_of(f) is None
    ]
    it.world.made |= {id(thing): thing for thing in (made, *written)}
    return made


def is_safe_type(cls: type) -> bool:
    safe = cls.__module__ in "itertools functools operator re typing torch.return_types".split()
    return (
        safe
        or issubclass(cls, BaseException)
        or (type(cls).__hash__ is not None and (cls in SAFE_TYPES or cls in FACTS))
    )


def call_builtin(it: Interpreter, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A callable written in C: run it now, if it is known to touch nothing but its arguments."""
    target: Any = getattr(function, "__self__", None)
    owner = getattr(function, "__objclass__", None)
    module = (
        target.__name__
        if isinstance(target, types.ModuleType)
        else getattr(function, "__module__", None)
    )
    if owner is torch._C.TensorBase or isinstance(target, torch.Tensor):
        return it.native(function, *args, **kwargs)  # the recorder hears of it
    if module == "_operator" and any(map(has_tensor, args)):
        return it.world.builder.call(function, args, kwargs)
    if isinstance(function, types.BuiltinFunctionType) and function in FACTS:
        safe = True
    elif target is not None and not isinstance(target, types.ModuleType):
        cls = (
            target if isinstance(target, type) else getattr(function, "__objclass__", type(target))
        )
        # inherited from a type written in C
        safe = is_safe_type(cls) or isinstance(target, tuple(SAFE_TYPES - {object}))
        safe = (
            (safe or function.__name__ in COPYING)
            and not it.world.is_opaque(target)
            and function.__name__ != "__enter__"
        )
    elif owner is not None:
        # `with torch.device(...)` is a mode of torch's
        safe = is_safe_type(owner) and function.__name__ != "__enter__"
    else:
        safe = module in SAFE_MODULES or (module == "builtins" and function not in REFUSED)
        safe = safe or (
            not isinstance(function, types.BuiltinFunctionType) and is_safe_type(type(function))
        )
    if not safe:
        reason = f"calls {name_of(function)}, which is not a torch operation and cannot be followed"
        raise Unsupported(reason, "move it out of the compiled function")
    for arg in (target, *args):
        if (
            it.world.is_opaque(arg)
            and not isinstance(arg, torch.Tensor)
            and function not in (callable, repr)
        ):
            raise Unsupported(f"gives a {type(arg).__name__} to {name_of(function)}")
        known = it.world.of(arg)
        if (
            known is not None
            and known.attributes is not None
            and getattr(function, "__name__", "") in COPYING
        ):
            it.world.fill_all(known)
        if (
            known is not None
            and known.real is not arg
            and function is hash
            and type(arg).__hash__ in BY_IDENTITY
        ):
            raise Unsupported(
                f"asks for the hash of a {type(arg).__name__}, which is its address",
                "give it a __hash__",
            )
    if function is format or (type(target) is str and function.__name__ == "format"):
        args, kwargs = [*map(concrete, args)], {name: concrete(arg) for name, arg in kwargs.items()}
    # "{0.shape}"
    if type(target) is str and function.__name__ == "format" and re.search(r"{\w*[.[]", target):
        return it.call(string.Formatter().vformat, target, args, kwargs)
    args, kwargs = with_callbacks(it, function, args, kwargs)
    return it.native(function, *args, **kwargs)


def is_instance(it: Interpreter, value: Any, classes: Any) -> Any:
    if type(value) in SYMBOLIC:
        if not is_users(type(classes)):
            return it.native(issubclass, attributes.type_of(it, value), classes)
        value = attributes.type_of(it, value)(value)  # the class has its own opinion
    # which none is, to the program
    if isinstance(value, torch.Tensor) and classes is not FakeTensor:
        return frames.call(
            None,
            builtins.isinstance,
            known.real if (known := it.world.of(value)) else value,
            classes,
        )
    return classes is not FakeTensor and it.native(builtins.isinstance, value, classes)


def get_attribute(it: Interpreter, value: Any, name: str, *default: Any) -> Any:
    with contextlib.suppress(*[AttributeError for _ in default]):
        return attributes.get(it, value, name)
    return default[0]


def has_attribute(it: Interpreter, value: Any, name: str) -> bool:
    # whether or not it can be read
    of_class = isinstance(value, torch.Tensor) and hasattr(torch.Tensor, name)
    return of_class or get_attribute(it, value, name, MISSING) is not MISSING


def make_super(it: Interpreter, *args: Any) -> Any:
    # as CPython does: the class from the cell `__class__`, the object from the first argument
    if not args:
        first = it.locals[it.code.co_varnames[0]]
        value = first.cell_contents if type(first) is types.CellType else first
        args = it.world.open_cell(it.locals["__class__"]).cell_contents, value
    return super(*args)


class Id(int):
    """`id(obj)` of an object that the interpreted program made."""

    obj: Any


def id_of(it: Interpreter, value: Any) -> int:
    """Of an object from outside the real one's, which is then guarded: the program may have kept it elsewhere."""
    known = it.world.of(value)
    if isinstance(value, torch.Tensor) and known and not isinstance(known.real, torch.nn.Parameter):
        raise Unsupported("asks for the id of a tensor from outside")
    if known is not None and type(known.real) not in PLAIN:
        it.world.assume(known.source, "identity", Is(known.real))
        return id(known.real)
    made = Id(id(value))
    made.obj = value
    return made


def handled(it: Interpreter) -> BaseException | None:
    """The exception that is being handled: by the interpreted program, or else by whoever called it."""
    if it.handling is None and sys.exception() is None:
        it.world.assume(Source(".exception()", Imported("sys")), "identity", Is(None))
    elif it.handling is None or it.world.is_opaque(it.handling):
        raise Unsupported("asks for an exception that was raised outside")
    return it.handling


def enter_inference(it: Interpreter, context: Any) -> None:
    """`with torch.inference_mode()`: without gradients; of what is made inside, the head makes inference tensors."""
    builder = it.world.builder
    if not context.mode or it.world.inference or it.world.of(context):
        raise Unsupported(
            "switches inference mode in a way that is not followed",
            "write `with torch.inference_mode():`",
        )
    context._inference_mode_context = builder.region, torch.is_grad_enabled()
    builder.region = builder.region or it.world.root.next - 1
    it.call(torch._C._set_grad_enabled, False)


def leave_inference(it: Interpreter, context: Any, *error: Any) -> None:
    if it.world.of(context):
        raise Unsupported("leaves an inference mode that was entered outside")
    it.world.builder.region, grad = context._inference_mode_context
    it.call(torch._C._set_grad_enabled, grad)


def without_subclasses(it: Interpreter) -> Any:
    """Switches `__torch_function__` of tensor subclasses off: nothing to a graph, which has none of these. Where the user's code
    does it, there may be one, at which the graph ends: then the switch must be turned in the real world, too."""
    if not re.match(INSTALLED, it.code.co_filename):
        raise Unsupported("switches `__torch_function__` off, which is for tensor subclasses")
    return contextlib.nullcontext()


def attention_switch(name: str, it: Interpreter) -> Any:
    """Which kernels may compute attention: guarded, unless the program itself has turned it."""
    value = getattr(torch._C, name)()
    if (f"torch._C.{global_state.ATTENTION[name]}", str(value)) in it.world.at_start:
        it.world.assume(FRAME, "state", SwitchIs(f"torch._C.{name}", value, "=="))
    return value


def check(it: Interpreter, condition: Any, *message: Any) -> None:
    if not it.world.builder.expect(condition, True) and not it.truth(condition):
        raise Unsupported("an assertion fails")


def branch(it: Interpreter, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """`torch.cond` of a number, as eager does it. On data eager captures both sides, and refuses some: that is left to it."""
    if not isinstance(pred, (torch.Tensor, *NUMBERS)):
        raise Unsupported(f"calls torch.cond with a {type(pred).__name__}, which it refuses")
    return it.call(true_fn if it.truth(pred) else false_fn, *operands)


def checkpoint(
    it: Interpreter, function: Any, *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """What is kept for backward is the back half's choice. (Reentrant, it is another function: without gradients.)"""
    if use_reentrant or "context_fn" in kwargs:
        raise Unsupported(
            "calls torch.utils.checkpoint in a way that is not followed", "pass use_reentrant=False"
        )
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise Unsupported(
            "calls torch.utils.checkpoint where hooks for saved tensors are active",
            "they see what the checkpoint saves: use one of the two",
        )
    options = "preserve_rng_state", "determinism_check", "debug", "early_stop"
    before = effects.changes(it.world) | it.world.builder.writes()
    result = it.call(
        function, *args, **{name: arg for name, arg in kwargs.items() if name not in options}
    )
    if effects.changes(it.world) | it.world.builder.writes() != before:
        raise Unsupported(
            "calls torch.utils.checkpoint with a function that changes something outside",
            "it runs again in backward, and changes it again: move the change out of the function",
        )
    drawn = re.search("drop|rand|bernoulli|normal|uniform", str(it.world.builder.graph))
    if drawn and not kwargs.get("preserve_rng_state", True):
        raise Unsupported(
            "draws random numbers in a checkpoint that is to draw others in backward",
            "preserve_rng_state=True",
        )
    return result


def new_tensor(cls: Any, it: Interpreter, *data: Any, **options: Any) -> Any:
    """`torch.Tensor([1, 2])`, `torch.LongTensor(2, 3)`: of these numbers, or of these sizes."""
    listed = len(data) == 1 and type(data[0]) in (list, tuple)
    options["dtype"] = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
    return it.call(torch.tensor if listed else torch.empty, *data, **options)


def tensor_of(function: Any, it: Interpreter, data: Any, **options: Any) -> Any:
    """`torch.tensor(data)`; a list with scalar tensors in it is made as torch's own reference makes it."""
    parts = (
        [part for part in tree_leaves(data) if isinstance(part, torch.Tensor)]
        if type(data) in (list, tuple)
        else ()
    )
    if not parts or any(part.ndim for part in parts) or options:
        return it.world.builder.call(function, [data], options)
    return frames.call(
        None,
        torch._refs._internal_new_from_data,
        {},
        torch.get_default_dtype(),
        "cpu",
        data,
        True,
        True,
        True,
    )


def evaluate_annotations(it: Interpreter, annotate: Any, *args: Any, **kwargs: Any) -> Any:
    """What the annotations of a class or function are. Python does it, in a namespace that it makes for that."""
    for cell in getattr(annotate, "__closure__", None) or ():
        it.world.open_cell(cell)
    evaluate = newer.evaluator_of_annotations()
    return frames.call(None, evaluate, annotate, *args, **kwargs)


def lookup_special(it: Interpreter, value: Any, name: str, default: Any) -> Any:
    """A method that Python looks for in the class only. `contextlib` of 3.15 searches the classes' dictionaries for it."""
    there = member_of(type(value), name) is not MISSING
    return attributes.get(it, value, name) if there else default


def recorded(function: Any) -> Rule:
    """Into the graph as it is."""
    return lambda it, *args, **kwargs: it.world.builder.call(function, args, kwargs)


def refused(reason: str, hint: str = "") -> Rule:
    def refuse(it: Interpreter, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(reason, hint)

    return refuse


def is_compiling(it: Interpreter) -> bool:
    """True to the program. `nn.Module` asks, too: then it leaves out hooks with `always_call`, which run if forward raises."""
    return it.code is not torch.nn.Module._call_impl.__code__


def always(value: Any) -> Rule:
    return lambda it, *args, **kwargs: value


Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {
    builtins.isinstance: is_instance,
    builtins.__build_class__: build_class,
    newer.evaluator_of_annotations(): evaluate_annotations,
    getattr(contextlib, "_lookup_special", newer.Nowhere): lookup_special,
    # of a metaclass
    type.__new__: lambda it, *args, **options: register(
        it, it.native(type.__new__, *args, **options)
    ),
    type: lambda it, *args, **kwargs: (
        attributes.type_of(it, *args) if len(args) == 1 else refused("makes a class")(it)
    ),
    id: id_of,
    super: make_super,
    iter: lambda it, value, *end: (
        it.native(iter, *with_callbacks(it, iter, [value, *end], {})[0])
        if end
        else it.iterate(value)
    ),
    getattr: get_attribute,
    hasattr: has_attribute,
    **dict.fromkeys((setattr, delattr), attributes.change),
    vars: lambda it, value: attributes.get(it, value, "__dict__"),
    object.__getattribute__: functools.partial(attributes.get, default=True),
    **dict.fromkeys(
        (object.__setattr__, object.__delattr__), functools.partial(attributes.change, default=True)
    ),
    globals: refused("asks for all global variables"),
    print: refused("print has an effect outside the graph", "move it out of the compiled function"),
    sys.exception: handled,
    sys.exc_info: lambda it: (
        (type(error), error, error.__traceback__) if (error := handled(it)) else (None, None, None)
    ),
    **{
        function: recorded(function)
        for function in (torch.autograd.grad, torch.nn.Parameter, *STATE)
    },
    torch.autocast_increment_nesting: lambda it: it.world.nest(1),
    torch.autocast_decrement_nesting: lambda it: it.world.nest(-1),
    **dict.fromkeys((torch._assert, torch._check), check),
    # a hint for sizes that only the data knows
    symbolic_shapes._advise_is_size: lambda it, size: None,
    **dict.fromkeys(
        (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling), is_compiling
    ),
    **dict.fromkeys(
        (torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing), always(False)
    ),
    torch._C._is_torch_function_mode_enabled: always(False),
    **dict.fromkeys(
        (getattr(torch._C, f"_has_torch_function{kind}") for kind in ("", "_unary", "_variadic")),
        always(False),
    ),
    **dict.fromkeys(
        (torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass), without_subclasses
    ),
    **dict.fromkeys(INERT, lambda it, *args, **kwargs: contextlib.nullcontext()),
    **{
        function: lambda it, *args, _function=function, **kwargs: _function(*args, **kwargs)
        for function in APART
    },
    **{
        getattr(torch._C, name): functools.partial(attention_switch, name)
        for name in global_state.ATTENTION
    },
    torch.is_inference_mode_enabled: lambda it: it.world.inference or it.world.builder.region > 0,
    torch.inference_mode.__enter__: enter_inference,
    torch.inference_mode.__exit__: leave_inference,
    torch.cond: branch,
    # exact
    sys.modules["torch.optim.optimizer"]._get_value: lambda it, step: it.world.builder.call(
        "double", [step]
    ),
    # part of this graph
    torch.compile: lambda it, model=None, **options: (
        (lambda model: model) if model is None else model
    ),
    **{
        cls: functools.partial(new_tensor, cls)
        for cls in (torch.Tensor, *torch._tensor_classes)
        if cls.__module__ == "torch"
    },
    **{
        function: functools.partial(tensor_of, function)
        for function in (torch.tensor, torch.as_tensor)
    },
    torch.nn.Module.__setattr__: attributes.set_module_attribute,
    torch.utils.checkpoint.checkpoint: checkpoint,
}
"""Functions that know about the interpreted world: (interpreter, *arguments) → result."""
BY_TYPE: dict[Any, Rule] = {
    operator.attrgetter: get_by_name,
    operator.methodcaller: call_by_name,
    types.MethodType: lambda it, bound, /, *args, **kwargs: it.call(
        bound.__func__, bound.__self__, *args, **kwargs
    ),
    functools.partial: lambda it, bound, /, *args, **kwargs: it.call(
        bound.func, *bound.args, *args, **bound.keywords | kwargs
    ),
    torch._library.custom_ops.CustomOpDef: lambda it, op, /, *args, **kwargs: it.call(
        op._opoverload, *args, **kwargs
    ),
}
"""Types of objects that do, too: (interpreter, the object, *arguments) → result."""


@dataclass(frozen=True)
class Corner:
    """How a special kind of callable is called; `corners/` has them."""

    name: str
    applies: Callable[[Any], bool]
    rule: Rule  # (interpreter, the callable, list of arguments, dict of keyword arguments) → result


CORNERS: list[Corner] = []
"""The special kinds, in the order in which they are asked; `corners/` fills this table."""
