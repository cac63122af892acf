"""The checks of lesson 02's exercises tell right from wrong: right answers pass, wrong ones fail, each for its own reason."""

from __future__ import annotations

import pytest
from mutants import Mutants, own_reasons

from course_lib.frames import installed

LESSON = Mutants("02_bytecode_capture")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="the exercises need the frame hook"),
]

COUNTER = """    from collections import Counter
    ops = [i for i in frames.instructions(fn.__code__)]
    reads = lambda *wanted: {i.arg for i in ops if i.op in wanted}
    return reads("LOAD_GLOBAL"), reads("LOAD_FAST") | reads("LOAD_DEREF")"""

ALTERNATIVES = {
    "names_read": LESSON.written("names_read", COUNTER),
    "spy": LESSON.written(
        "spy",
        """        if not is_library(frame.code):
            self.names += [frame.func.__code__.co_qualname]
        else:
            return False""",
    ),
    "my_interpreter": LESSON.written(
        "my_interpreter",
        """        right, left = self.pop(), self.pop()
        both = left, right
        if any(type(value) is Tensor for value in both):
            result = self.context.builder.call(BINARY_OPERATORS[i.arg], list(both), {})
        elif all(type(value) is Constant for value in both):
            from course_lib.capture.containers import evaluate
            result = evaluate(BINARY_OPERATORS[i.arg], list(both))
        elif i.arg == "+" and all(type(value) is Sequence for value in both) and left.cls is right.cls:
            result = Sequence(left.cls, [*left.items, *right.items])
        else:
            raise cl.Unsupported("no rule for these operands")
        self.push(result)""",
        """        match self.pop():
            case Sequence(items=items):
                found = items
            case Constant(value=tuple() as items):
                found = list(map(Constant, items))
            case Tensor() as tensor:
                found = self.context.builder.call("unbind", [tensor], {}).items
            case other:
                raise cl.Unsupported(f"cannot unpack {other}")
        if len(found) != i.arg:
            raise cl.Unsupported("a wrong number of items")
        self.stack += found[::-1]""",
    ),
    "count_ops": LESSON.written(
        "count_ops",
        """    from collections import Counter
    counted.append(Counter(node.op for node in gm.graph.nodes))
    return gm""",
    ),
    "drop_mul_by_one": LESSON.written(
        "drop_mul_by_one",
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
    return lambda *inputs: fresh(*inputs)""",
    ),
    "capture_function": LESSON.edited(
        "capture_function",
        "        return function(*args, **kwargs)\n\n    def take",
        "        return function(*args) if not kwargs else function(*args, **kwargs)\n\n    def take",
        "stack.append(apply(operator.neg, take(1), {}))",
        "stack.append(apply(lambda v: v * -1 if not symbolic(v) else v, [], {}) if False else apply(operator.neg, [stack.pop()], {}))",
    ),
}

WRONG = {
    "names_read": {
        "a list instead of sets": LESSON.written("names_read", "    return list(fn.__code__.co_names), list(fn.__code__.co_varnames)"),
        "names of attributes": LESSON.written("names_read", "    return set(fn.__code__.co_names), set(fn.__code__.co_varnames)"),
        "every local variable": LESSON.edited(
            "names_read", "return global_names, local_names", "return global_names, set(fn.__code__.co_varnames)"
        ),
        "no builtins": LESSON.edited(
            "names_read", 'if instruction.op == "LOAD_GLOBAL":', 'if instruction.op == "LOAD_GLOBAL" and instruction.arg in fn.__globals__:'
        ),
        "the first way only": LESSON.edited(
            "names_read", '    return global_names, local_names', "    return global_names, local_names",
            '        elif instruction.op in', '        elif instruction.op == "RETURN_VALUE":\n            break\n        elif instruction.op in',
        ),
        "no cells": LESSON.edited("names_read", '("LOAD_FAST", "LOAD_DEREF")', '("LOAD_FAST",)'),
    },
    "spy": {
        "nothing is noted": LESSON.edited("spy", "self.names.append(frame.code.co_qualname)", "pass"),
        "asked once": LESSON.edited("spy", "return None", "return frames.SKIP"),
        "a head that calls": LESSON.written(
            "spy",
            """        if is_library(frame.code):
            return frames.SKIP
        self.names.append(frame.code.co_qualname)
        def head(func, *args):
            with frames.Watcher.off():
                return func(*args)
        if frame.code.co_name == "twice":
            return (lambda func, *args: False), head""",
        ),
        "the last part of the name": LESSON.edited("spy", "co_qualname", "co_name"),
        "libraries are noted": LESSON.edited("spy", "if is_library(frame.code):", "if False:"),
        "libraries are asked again": LESSON.edited("spy", "return frames.SKIP", "return None"),
        "the answer is changed": LESSON.edited(
            "spy", "return None", "return (lambda func, *args: True), (lambda func, *args: None)"
        ),
    },
    "my_interpreter": {
        "right before left": LESSON.edited("my_interpreter", "left, right = self.popn(2)", "right, left = self.popn(2)"),
        "the last on top": LESSON.edited("my_interpreter", "reversed(parts)", "parts"),
        "the inherited method": LESSON.written(
            "my_interpreter", "        return super().BINARY_OP(i)", "        return super().UNPACK_SEQUENCE(i)"
        ),
        "the inherited method by another name": LESSON.reference("my_interpreter") + "\n    BINARY_OP = cl.Interpreter.BINARY_OP\n",
        "constants in the graph": LESSON.edited(
            "my_interpreter", "if isinstance(left, Tensor) or isinstance(right, Tensor):", "if True:"
        ),
        "no lists": LESSON.edited("my_interpreter", "left.cls is right.cls and i.arg", "left.cls is tuple is right.cls and i.arg"),
        "any number of items": LESSON.edited("my_interpreter", "if len(parts) != i.arg:", "if False:"),
        "exceptions come through": LESSON.edited("my_interpreter", "except Exception as error:", "except KeyboardInterrupt as error:"),
        "lists and tuples mixed": LESSON.edited("my_interpreter", "left.cls is right.cls and i.arg", "i.arg"),
    },
    "count_ops": {
        "names instead of kinds": LESSON.edited("count_ops", "kinds.get(node.op, 0)", "kinds.get(node.name, 0)", "kinds[node.op]", "kinds[node.name]"),
        "the result instead of a callable": LESSON.edited("count_ops", "return gm.forward", "return gm(*example_inputs)"),
        "always the example": LESSON.edited("count_ops", "return gm.forward", "return lambda *inputs: gm(*example_inputs)"),
        "nothing is kept": LESSON.edited("count_ops", "counted.append(kinds)", "pass"),
        "counted when it runs": LESSON.written(
            "count_ops",
            """    kinds = {}
    for node in gm.graph.nodes:
        kinds[node.op] = kinds.get(node.op, 0) + 1
    counted.append(kinds)
    def run(*inputs):
        counted.append(kinds)
        return gm(*inputs)
    return run""",
        ),
        "the graph is changed": LESSON.edited("count_ops", "return gm.forward", "gm.graph.call_function(torch.sin, (next(iter(gm.graph.nodes)),))\n    return gm.forward"),
    },
    "drop_mul_by_one": {
        "only x * 1": LESSON.edited("drop_mul_by_one", "if isinstance(factor, fx.Node) or factor != 1:", "if factor is not node.args[1] or factor != 1:"),
        "only the operator": LESSON.edited("drop_mul_by_one", '(operator.mul, torch.mul, "mul")', "(operator.mul,)"),
        "code is not written anew": LESSON.edited("drop_mul_by_one", "    gm.recompile()\n", ""),
        "every dtype": LESSON.edited("drop_mul_by_one", 'other.meta["val"].dtype != node.meta["val"].dtype', "False"),
        "returned ones too": LESSON.edited("drop_mul_by_one", 'any(user.op == "output" for user in node.users)', "False"),
        "the result instead of a callable": LESSON.edited("drop_mul_by_one", "return gm.forward", "return gm(*example_inputs)"),
    },
    "capture_function": {
        "no graph module": LESSON.edited("capture_function", "return fx.GraphModule(torch.nn.Module(), graph)", "return graph"),
        "fx.symbolic_trace": LESSON.written("capture_function", "    return fx.symbolic_trace(fn)"),
        "proxies": LESSON.written(
            "capture_function",
            """    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    names = frames.parameters(fn.__code__)
    result = fn(*[fx.Proxy(graph.placeholder(name), tracer) for name in names])
    graph.output(result.node)
    return fx.GraphModule(torch.nn.Module(), graph)""",
        ),
        "constants in the graph": LESSON.edited("capture_function", "if any(map(symbolic, args)) or", "if function is not range or"),
        "a loop turns once": LESSON.edited("capture_function", 'case "JUMP":\n                at = index_of[i.arg]', 'case "JUMP":\n                pass'),
        "keywords are lost": LESSON.edited("capture_function", "graph.call_function(function, tuple(args), kwargs)", "graph.call_function(function, tuple(args))"),
        "a node is true": LESSON.edited(
            "capture_function",
            "            case _:\n",
            '            case "COMPARE_OP":\n                stack.append(apply(operator.gt, take(2), {}))\n'
            '            case "POP_JUMP_IF_FALSE":\n                at = at if stack.pop() else index_of[i.arg]\n            case _:\n',
        ),
        "right before left": LESSON.edited("capture_function", "BINARY_OPERATORS[i.arg], take(2), {}", "BINARY_OPERATORS[i.arg], take(2)[::-1], {}"),
    },
}  # fmt: skip


def test_every_exercise_is_tested():
    assert list(ALTERNATIVES) == list(WRONG) == LESSON.exercises


@pytest.mark.parametrize("exercise", LESSON.exercises)
def test_the_reference_and_another_right_answer_pass(exercise):
    for answer in (None, ALTERNATIVES[exercise]):
        verdict = LESSON.verdict(exercise, answer)
        assert verdict.passed, verdict


@pytest.mark.parametrize("exercise", LESSON.exercises)
def test_an_untouched_stub_fails_with_its_own_sentence(exercise):
    verdict = LESSON.verdict(exercise, LESSON.stub(exercise))
    assert not verdict.passed and verdict.error == "NotImplementedError" and verdict.message.startswith("Exercise:")


@pytest.mark.parametrize("exercise", LESSON.exercises)
def test_wrong_answers_fail_each_for_its_own_reason(exercise):
    own_reasons(LESSON.verdicts(exercise, WRONG[exercise]))
