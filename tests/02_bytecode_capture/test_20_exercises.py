"""The checks of lesson 02's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

import pytest
from mutants import NEEDS_THE_HOOK, Mutants, exercise_tests

LESSON = Mutants("02_bytecode_capture")
edit, body = LESSON.edit, LESSON.body

pytestmark = NEEDS_THE_HOOK


IN_PLACE = """    add = lambda self, other: self.tracer.create_proxy("call_function", operator.iadd, (self, other), {{}})
    fx.Proxy.__iadd__ = add
    try:
        {}
    finally:
        del fx.Proxy.__iadd__"""
"""fx, taught `+=`: what is left against it is that it runs the function."""

ALTERNATIVES = {
    "names_read": body(
        """    reads = lambda *ops: {i.arg for i in frames.instructions(fn.__code__) if i.op in ops}
    return reads("LOAD_GLOBAL"), reads("LOAD_FAST", "LOAD_DEREF")"""
    ),
    "spy": body(
        """        if not is_library(frame.code):
            self.names += [frame.func.__code__.co_qualname]
        else:
            return False"""
    ),
    "my_interpreter": body(
        """        function, both = BINARY_OPERATORS[i.arg], self.popn(2)
        if any(isinstance(value, torch.Tensor) for value in both):
            self.stack.append(self.world.builder.call(function, both))
        else:
            self.stack.append(self.native(function, *both))""",
        """        import itertools
        match self.pop():
            case torch.Tensor() as tensor:
                found = self.world.builder.call("unbind", [tensor])
            case other:
                found = self.native(tuple, self.native(itertools.islice, other, i.arg + 1))
        if len(found) > i.arg:
            raise ValueError(f"too many values to unpack (expected {i.arg})")
        if len(found) != i.arg:
            raise ValueError(f"not enough values to unpack (expected {i.arg}, got {len(found)})")
        self.stack += found[::-1]""",
    ),
    "count_ops": body(
        """    from collections import Counter
    counted.append(Counter(node.op for node in gm.graph.nodes))
    return gm"""
    ),
    "drop_mul_by_one": body(
        """    def neutral(node):
        if node.op not in ("call_function", "call_method") or getattr(node.target, "__name__", node.target) != "mul":
            return None
        numbers = [arg for arg in node.args if not isinstance(arg, fx.Node)]
        tensors = [arg for arg in node.args if isinstance(arg, fx.Node)]
        same = numbers == [1] and tensors[0].meta["val"].dtype is node.meta["val"].dtype
        return tensors[0] if same and "output" not in [user.op for user in node.users] else None

    for node in reversed(gm.graph.nodes):
        if (other := neutral(node)) is not None:
            node.replace_all_uses_with(other)
            gm.graph.erase_node(node)
    fresh = fx.GraphModule(gm, gm.graph)
    return lambda *inputs: fresh(*inputs)"""
    ),
    "capture_function": edit(
        "        if any(map(symbolic, args)) or any(map(symbolic, kwargs.values())):\n",
        "        if [value for value in (*args, *kwargs.values()) if symbolic(value)]:\n",
        'case "LOAD_CONST":\n                stack.append(i.arg)',
        'case "LOAD_CONST":\n                stack += [i.arg]',
        'case "LOAD_ATTR" if not symbolic(stack[-1]):\n                push(getattr(stack.pop(), i.arg))',
        'case "LOAD_ATTR":\n                if symbolic(owner := stack.pop()):\n'
        '                    raise cl.Unsupported("a method")\n                push(getattr(owner, i.arg))',
        "in_place = symbolic(left) or not symbolic(right)",
        "in_place = type(left) not in (bool, int, float)",
    ),
}

WRONG = {
    "names_read": {
        "a list instead of sets": body(
            "    return list(fn.__code__.co_names), list(fn.__code__.co_varnames)"
        ),
        "names of attributes": body(
            "    return set(fn.__code__.co_names), set(fn.__code__.co_varnames)"
        ),
        "every local variable": edit(
            "return global_names, local_names", "return global_names, set(fn.__code__.co_varnames)"
        ),
        "no builtins": edit(
            'if instruction.op == "LOAD_GLOBAL":',
            'if instruction.op == "LOAD_GLOBAL" and instruction.arg in fn.__globals__:',
        ),
        "the first way only": edit(
            "        elif instruction.op in",
            '        elif instruction.op == "RETURN_VALUE":\n            break\n        elif instruction.op in',
        ),
        "what is set is read": edit(
            'instruction.op == "LOAD_GLOBAL"', 'instruction.op in ("LOAD_GLOBAL", "STORE_GLOBAL")'
        ),
        "no cells": edit('("LOAD_FAST", "LOAD_DEREF")', '("LOAD_FAST",)'),
        "handed on is read": edit(
            '("LOAD_FAST", "LOAD_DEREF")', '("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")'
        ),
    },
    "spy": {
        "nothing is noted": edit("self.names.append(frame.code.co_qualname)", "pass"),
        "asked once": edit("return None", "return frames.SKIP"),
        "a head that calls": body(
            """        if is_library(frame.code):
            return frames.SKIP
        self.names.append(frame.code.co_qualname)
        def head(func, *args):
            return frames.call(None, func, *args)
        if frame.code.co_name == "twice":
            return (lambda func, *args: False), head"""
        ),
        "the last part of the name": edit("co_qualname", "co_name"),
        "libraries are noted": edit("if is_library(frame.code):", "if False:"),
        "libraries are asked again": edit("return frames.SKIP", "return None"),
        "the answer is changed": edit(
            "return None", "return (lambda func, *args: True), (lambda func, *args: None)"
        ),
    },
    "my_interpreter": {
        "right before left": edit("left, right = self.popn(2)", "right, left = self.popn(2)"),
        "the last on top": edit("reversed(items)", "items"),
        "the inherited method": body(
            "        return super().BINARY_OP(i)", "        return super().UNPACK_SEQUENCE(i)"
        ),
        "the inherited method by another name": edit(
            "    def UNPACK", "    BINARY_OP = cl.Interpreter.BINARY_OP\n\n    def UNPACK"
        ),
        "a tensor on the left only": edit(" or isinstance(right, torch.Tensor)", ""),
        "any number of items": edit(
            "if len(items) < i.arg:", "if False:", "if len(items) > i.arg:", "if False:"
        ),
        "all that an iterator has": edit(
            "while len(items) <= i.arg and (item := self.native(next, iterator, end)) is not end:\n",
            "items = self.native(list, iterator)\n        for item in ():\n",
        ),
        "a function for a method": edit(
            'self.world.builder.call("unbind", [value])',
            "self.world.builder.call(torch.unbind, [value])",
        ),
        "refused instead of raised": edit("raise ValueError(", "raise cl.Unsupported("),
        "everything is recorded": edit(
            "if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):", "if True:"
        ),
        "without native": edit("self.native(function, left, right)", "function(left, right)"),
        "items without native": edit(
            "self.native(iter, value)",
            "iter(value)",
            "self.native(next, iterator, end)",
            "next(iterator, end)",
        ),
        "None is the end": edit("object(), []", "None, []"),
    },
    "count_ops": {
        "names instead of kinds": edit(
            "kinds.get(node.op, 0)", "kinds.get(node.name, 0)", "kinds[node.op]", "kinds[node.name]"
        ),
        "the result instead of a callable": edit("return gm.forward", "return gm(*example_inputs)"),
        "always the example": edit(
            "return gm.forward", "return lambda *inputs: gm(*example_inputs)"
        ),
        "nothing is kept": edit("counted.append(kinds)", "pass"),
        "what somebody uses": edit(
            "for node in gm.graph.nodes:",
            "for node in [n for n in gm.graph.nodes if n.users or n.op == 'output']:",
        ),
        "counted when it runs": body(
            """    kinds = {}
    for node in gm.graph.nodes:
        kinds[node.op] = kinds.get(node.op, 0) + 1
    counted.append(kinds)
    def run(*inputs):
        counted.append(kinds)
        return gm(*inputs)
    return run"""
        ),
        "the graph is changed": edit(
            "return gm.forward",
            "gm.graph.call_function(torch.sin, (next(iter(gm.graph.nodes)),))\n    return gm.forward",
        ),
    },
    "drop_mul_by_one": {
        "only x * 1": edit(
            "if isinstance(factor, fx.Node) or factor != 1:",
            "if factor is not node.args[1] or factor != 1:",
        ),
        "only the operator": edit('(operator.mul, torch.mul, "mul")', "(operator.mul,)"),
        "code is not written anew": edit("    gm.recompile()\n", ""),
        "every dtype": edit('other.meta["val"].dtype != node.meta["val"].dtype', "False"),
        "integers times floats only": edit(
            'other.meta["val"].dtype != node.meta["val"].dtype',
            'isinstance(factor, float) and not other.meta["val"].is_floating_point()',
        ),
        "dtypes known by heart": edit(
            'other.meta["val"].dtype != node.meta["val"].dtype',
            'other.meta["val"].dtype is torch.bool or isinstance(factor, float) and not other.meta["val"].is_floating_point()',
        ),
        "about one": edit("factor != 1:", "int(abs(factor)) != 1:"),
        "returned ones too": edit('any(user.op == "output" for user in node.users)', "False"),
        "only what is returned alone": edit("any(user.op == ", "node.users and all(user.op == "),
        "the result instead of a callable": edit("return gm.forward", "return gm(*example_inputs)"),
    },
    "capture_function": {
        "the last of a split": edit(
            "index_of.setdefault(instruction.offset, index)", "index_of[instruction.offset] = index"
        ),
        "an iterator stays": edit(
            "                    del stack[-depth:]\n                    at = index_of",
            "                    at = index_of",
        ),
        "no minus sign": edit(
            '            case "UNARY_NEGATIVE":\n                push(apply(operator.neg, take(1), {}))\n',
            "",
        ),
        "attributes of a node": edit(
            'case "LOAD_ATTR" if not symbolic(stack[-1]):', 'case "LOAD_ATTR":'
        ),
        "rows of a node": edit('case "GET_ITER" if not symbolic(stack[-1]):', 'case "GET_ITER":'),
        "builtins first": edit(
            "push(fn.__globals__[i.arg] if i.arg in fn.__globals__ else getattr(builtins, i.arg))",
            "push(getattr(builtins, i.arg, None) or fn.__globals__[i.arg])",
        ),
        "keywords are no nodes": edit(" or any(map(symbolic, kwargs.values()))", ""),
        "no graph module": edit("return fx.GraphModule(torch.nn.Module(), graph)", "return graph"),
        "fx.symbolic_trace": body(IN_PLACE.format("return fx.symbolic_trace(fn)")),
        "proxies": body(
            """    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    names = frames.parameters(fn.__code__)
    try:
        fx.Proxy.__iadd__ = lambda self, other: tracer.create_proxy("call_function", operator.iadd, (self, other), {})
        result = fn(*[fx.Proxy(graph.placeholder(name), tracer) for name in names])
    except fx.proxy.TraceError as problem:
        raise cl.Unsupported(str(problem)) from None
    finally:
        del fx.Proxy.__iadd__
    if fn.__code__.co_name == "weighted":
        raise cl.Unsupported("a global tensor")
    graph.output(result.node)
    return fx.GraphModule(torch.nn.Module(), graph)"""
        ),
        "constants in the graph": edit(
            "if any(map(symbolic, args)) or", "if function is not range or"
        ),
        "a loop turns once": edit(
            'case "JUMP":\n                at = index_of[i.arg]',
            'case "JUMP":\n                pass',
        ),
        "keywords are lost": edit(
            "graph.call_function(function, tuple(args), kwargs)",
            "graph.call_function(function, tuple(args))",
        ),
        "a number changed in place": edit(
            "in_place = symbolic(left) or not symbolic(right)", "in_place = True"
        ),
        "never in place": edit(
            "in_place = symbolic(left) or not symbolic(right)", "in_place = False"
        ),
        "global tensors": edit("        if torch.is_tensor(value):\n", "        if False:\n"),
        "only globals are looked at": edit(
            "push(apply(",
            "stack.append(apply(",
            "push(getattr(stack.pop(), i.arg))",
            "stack.append(getattr(stack.pop(), i.arg))",
        ),
        "tensors are refused where they are made": edit(
            "push(getattr(stack.pop(), i.arg))", "stack.append(getattr(stack.pop(), i.arg))"
        ),
        "tensors are refused where they are used": edit(
            "        if torch.is_tensor(value):\n",
            "        if False:\n",
            "            return graph.call_function(function, tuple(args), kwargs)",
            "            if any(map(torch.is_tensor, [*args, *kwargs.values()])):\n"
            '                raise cl.Unsupported("a tensor")\n'
            "            return graph.call_function(function, tuple(args), kwargs)",
        ),
        "a node is true": edit(
            "            case _:\n",
            '            case "TO_BOOL":\n                pass\n'
            '            case "COMPARE_OP":\n                stack.append(apply(operator.gt, take(2), {}))\n'
            '            case "POP_JUMP_IF_FALSE":\n                at = at if stack.pop() else index_of[i.arg]\n'
            "            case _:\n",
        ),
        "right before left": edit("left, right = take(2)", "right, left = take(2)"),
    },
}

CHEATS = {
    "the library's operator": (
        "my_interpreter",
        edit(
            "        left, right = self.popn(2)\n",
            "        left, right = self.popn(2)\n        return self.push(self.operate(BINARY_OPERATORS[i.arg], left, right))\n",
        ),
    ),
    "the library's call": (
        "my_interpreter",
        edit("self.native(function, left, right)", "self.call(function, left, right)"),
    ),
    "the library's items": (
        "my_interpreter",
        edit(
            "        value = self.pop()\n",
            "        self.stack.extend(reversed(list(self.unpacked(self.pop()))))\n        return\n",
        ),
    ),
    "the compiler itself": (
        "capture_function",
        body(
            """    graphs = []
    def keep(gm, example_inputs):
        graphs.append(gm)
        return gm.forward
    cl.compile(fn, backend=keep, fullgraph=True)(*[torch.randn(4) for _ in frames.parameters(fn.__code__)])
    *_, output = graphs[0].graph.nodes
    output.args = output.args[0]
    graphs[0].recompile()
    return graphs[0]"""
        ),
    ),
}
"""Handing the work to the library."""

(
    test_every_exercise_is_tested,
    test_the_reference_and_another_right_answer_pass,
    test_an_untouched_stub_fails_with_its_own_sentence,
    test_wrong_answers_fail_each_for_its_own_reason,
) = exercise_tests(LESSON, ALTERNATIVES, WRONG)


@pytest.mark.parametrize("name", CHEATS)
def test_handing_the_work_to_the_library_does_not_pass(name):
    exercise, answer = CHEATS[name]
    verdict = LESSON.verdict(exercise, answer(exercise))
    assert (
        not verdict.passed and verdict.part in ("visible checks", "hidden checks") and verdict.what
    ), verdict
