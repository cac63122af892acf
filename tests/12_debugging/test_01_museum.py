"""Each exhibit of the bug museum is wrong where it should be: for some calls, from some rung on, because of one stage."""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import course_lib as cl
from course_lib.frames import installed
from course_lib.grading.notebooks import find_lesson, is_checks, read
from course_lib.lessons import museum
from course_lib.lessons.museum import EXHIBITS, STAGES, Exhibit, ramp

pytestmark = pytest.mark.skipif(not installed(), reason="the museum needs the frame hook")
RIGHT = cl.Pipeline()
RUNGS = ("eager", "aot_eager", "inductor")


def shared():
    weight = torch.zeros(3)
    return [(weight, ramp(3)), (weight, ramp(3))]


# number → (the guilty stage, the first wrong rung, what differs, failing calls)
FACTS = {
    1: ("capture", "eager", "call 2: the result", [(ramp(2, 3), 2.0), (ramp(2, 3), 1.0)]),
    2: ("capture", "eager", "call 1: an argument", [(ramp(2, 3), torch.zeros(3), True)]),
    3: ("trace", "aot_eager", "call 1: the result", [(ramp(2, 3), 1)]),
    4: ("partition", "aot_eager", "call 1: a gradient", [(ramp(8, 8).requires_grad_(), 0.5)]),
    5: ("trace", "aot_eager", "call 1: the result", [(ramp(2, 3), 2)]),
    6: ("lower", "inductor", "call 1: the result", [(-ramp(2, 3) - 1,)]),
    7: ("lower", "inductor", "call 1: the result", [(ramp(3, 2).t(), ramp(2, 3))]),
    8: ("schedule", "inductor", "call 1: the result", [(ramp(2, 2) / 4,)]),
    9: ("build", "inductor", "call 2: the result", shared()),
    10: ("build", "inductor", "call 1: the result", [(ramp(300, 300),)]),
}  # fmt: skip


def test_every_exhibit_is_described_here():
    assert list(EXHIBITS) == list(FACTS) == list(range(1, 11))


@pytest.mark.parametrize("number", FACTS)
def test_it_is_wrong_from_its_rung_on_and_the_reporters_own_test_finds_nothing(number):
    exhibit, (_, rung, what, calls) = EXHIBITS[number], FACTS[number]
    first = RUNGS.index(rung)
    assert [exhibit.difference(calls, backend) for backend in RUNGS] == [""] * first + [what] * (
        3 - first
    )
    assert exhibit.difference(exhibit.passing()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", FACTS)
def test_one_stage_is_guilty_and_no_other(number):
    exhibit, (stage, _, _, calls) = EXHIBITS[number], FACTS[number]
    assert [
        name for name in STAGES if not exhibit.difference(calls, **{name: getattr(RIGHT, name)})
    ] == [stage]


def test_it_cannot_be_seen_which_stage_was_exchanged_by_which_are_the_librarys_own():
    for exhibit in EXHIBITS.values():
        theirs = [
            name for name in STAGES if getattr(exhibit.pipeline, name) is getattr(RIGHT, name)
        ]
        assert theirs == []


def test_what_is_called_a_difference():
    same = Exhibit(0, "", museum.count_rows, list, RIGHT)
    assert same.difference([(ramp(2, 3), torch.zeros(3), True)]) == ""
    dropout = Exhibit(0, "", museum.thin_out, list, RIGHT, trains=True)
    assert dropout.difference([(ramp(8, 8).requires_grad_(), 0.5)] * 2) == ""
    with pytest.raises(TypeError, match="no stage 'fusion'"):
        same.difference([], fusion=None)


def test_a_call_leaves_its_arguments_as_they_were():
    total = torch.zeros(3)
    EXHIBITS[2].difference([(ramp(2, 3), total, True)])
    assert total.tolist() == [0, 0, 0]


def test_every_stage_can_be_read():
    for exhibit in EXHIBITS.values():
        for name in STAGES:
            assert name == "decompositions" or inspect.getsource(getattr(exhibit.pipeline, name))


# number → line that exercise 12.5 accepts → what to write in its place, and the compiler is right
MENDED = {
    1: {
        'worth_testing = [guard for guard in result.guards if guard.kind != "value"]': "worth_testing = result.guards",
        "return dataclasses.replace(result, guards=worth_testing)": "return result",
    },
    2: {
        'if node.op.startswith("call") and not node.users:': 'if node.target == "add_" and False:',
        "graph.erase_node(node)": "pass",
    },
    3: {
        "return super().made_of(inputs, values).clone()": "return super().made_of(inputs, values)",
        "parts = [r if r.layout is None else OwnMemory(**vars(r)) for r in signature.results]": "parts = signature.results",
        "signature.results = tuple(parts)": "pass",
    },
    4: {
        "return node.target not in DEAR": "return may_recompute(node)",
        "return autograd.partition(joint, cheap)": "return autograd.partition(joint, may_recompute)",
        "DEAR = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)": "DEAR = (aten.bernoulli.p,)",
    },
    5: {
        'if node.op == "call_function":': 'if node.op == "call_function" and "rand" not in str(node.target):',
        "same = seen.setdefault((node.target, str(node.args), str(node.kwargs)), node)": "same = node",
        "if same is not node:": 'if same is not node and "rand" not in str(node.target):',
        "node.replace_all_uses_with(same)": "pass",
    },
    6: {
        "return ops.masked(inside, lambda: node.inner(ops, index, rindex), 0)": (
            'return ops.masked(inside, lambda: node.inner(ops, index, rindex), float("-inf"))'
        ),
        "if isinstance(node, Reduction) and len(node.reduced) == 1:": 'if isinstance(node, Reduction) and node.kind == "sum":',
        "loops.nodes[n] = as_tile(node, columns=node.reduced[0])": "pass",
        "return dataclasses.replace(node, inner=inner, reduced=(1 << (columns - 1).bit_length(),))": "return node",
    },
    7: {
        'node.meta["val"] = torch.empty(fake.shape, dtype=fake.dtype)': (
            'node.meta["val"] = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)'
        )
    },
    8: {
        "if producer is not None and producer.ranges == self.ranges:": "if producer is self:",
        "place = producer.place(self.index)": "pass",
        "return lambda ops, index: inner(Registers(ops, index, ranges, written), index)": "return inner",
        "node.inner = from_registers(node.inner, node.ranges, dict(written))": "pass",
        "written[node.buffer.name] = node": "pass",
    },
    9: {
        "if x.data_ptr() != self.filled_from[n]:": "if True:",
        "return self.program(*self.copies)": "return self.program(*inputs)",
        "return tuple(result.clone() for result in recordings[0].play(*inputs))": "return program.run(*inputs)",
    },
    10: {
        "return self.ops.load(buffer, Mod(place, 2**16))": "return self.ops.load(buffer, place)",
        "return lambda ops, index: inner(ShortIndex(ops), index)": "return inner",
        "node.inner = with_short_index(node.inner)": "pass",
    },
}


def accepted(number):
    """The lines that the hidden checks of an exhibit take for right."""
    lesson = find_lesson(Path(__file__).parents[2], "12")
    (source,) = [
        c.source
        for c in read(lesson.solution).cells
        if is_checks(c) and f"exhibit_{number}()" in c.source
    ]
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    (call,) = [call for call in calls if getattr(call.func, "id", "") == "right_line"]
    return [ast.literal_eval(line) for line in call.args[2:]]


@pytest.mark.slow
@pytest.mark.parametrize("number", MENDED)
def test_each_line_that_is_accepted_makes_the_compiler_right_when_it_alone_is_changed(
    number, monkeypatch
):
    assert list(MENDED[number]) == accepted(number)
    calls = FACTS[number][3]
    for line, mended in MENDED[number].items():
        source = inspect.getsource(museum)
        assert source.count(f" {line}\n") + source.count(f"\n{line}\n") == 1, line
        module = ModuleType("course_lib.bench.mended")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(source.replace(line, mended), museum.__file__, "exec"), vars(module))
        assert module.EXHIBITS[number].difference(calls) == "", line
