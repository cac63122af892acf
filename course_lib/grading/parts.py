"""The stages that the exercises ask for, and how each answer is put into the compiler.

In:  the names that an exercise notebook defines, and the compiler's own stages. Out: stages with
     the answer in them.

A `Part` is one line of the table below. Stages that are fields of `Pipeline` are put in by
`replace`; guard checks and resume functions are no fields, so they are exchanged while this
compiler compiles (`capstone.OwnCompiler`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from course_lib import scheduling
from course_lib.frames import resume
from course_lib.guards import Check
from course_lib.lessons import trials
from course_lib.lowering import DECOMPOSITIONS, ExternKernel, LoopGraph, Reduction
from course_lib.scheduling import MemoryPlan, No, Schedule
from course_lib.viz.evaluator import run_extern, seen, starting_memory
from course_lib.viz.pictures.lowering.loop_formulas import reads

aten = torch.ops.aten
MOST_NODES = 60
"""A learner's scheduler is asked about graphs of at most so many nodes."""
Names = dict[str, Any]
"""What the cells of an exercise define."""
Stages = dict[str, Any]
"""Stage → what the pipeline has there: the fields of `Pipeline`, and "check" and "resume"."""


class NotAsked(Exception):
    """The exercise did not ask for this: ours does it."""


# ---- a function for each part: from the answers' names, and the stages so far, to its stage ------


def interpreter(names: Names, stages: Stages) -> Any:
    return names["MyInterpreter"]


def resume_function(names: Names, stages: Stages) -> Any:
    """The exercise asks for functions without a closure, with nothing on the stack."""

    def make_resume(code: Any, offset: int, stack: Any, unbound: Any) -> Any:
        if stack or unbound or code.co_cellvars or code.co_freevars:
            return stages["resume"](code, offset, stack, unbound)
        new = names["make_resume"](code, offset)
        # A copy of `new` is the code that is never captured. There is no closure. What the answer
        # put in front of the original bytecode shifts that by as many bytes.
        return resume.Resume(
            code, offset, new, new.replace(), (), len(new.co_code) - len(code.co_code)
        )

    return make_resume


def guard_check(names: Names, stages: Stages) -> Any:
    """Our `Check`, whose function the answer makes."""

    class MyCheck(Check):
        def __init__(self, guards: Any, parameters: Any, name: str = "frame") -> None:
            super().__init__(guards, parameters, name)
            self.function = names["make_check"](self.guards, self.parameters)

    return MyCheck


def decompositions(names: Names, stages: Stages) -> Any:
    learners_rules = {
        aten._softmax.default: names["softmax"],
        aten._softmax_backward_data.default: names["softmax_backward"],
    }
    return {**DECOMPOSITIONS, **learners_rules, aten.native_layer_norm.default: names["layer_norm"]}


def joint_graph(names: Names, stages: Stages) -> Any:
    return names["my_joint"]


def cut(names: Names, stages: Stages) -> Any:
    """The exercise gives `halves`, which cuts a graph when it is told what to keep."""
    return lambda joint, may_recompute: names["halves"](
        joint, names["what_to_keep"](joint, may_recompute)
    )


def rule(names: Names, stages: Stages) -> Any:
    """The cut as it is, with the answer in the place of `may_recompute`."""
    return lambda joint, may_recompute: stages["partition"](joint, names["frugal"])


def lowering(names: Names, stages: Stages) -> Any:
    return names["my_lower"]


def legality(names: Names, stages: Stages) -> Any:
    return names["as_fuse"]


def scheduler(names: Names, stages: Stages) -> Any:
    """`fuse_all` says what may be one kernel, the stage `fuse` what else must hold."""

    def schedule(loops: LoopGraph, fuse: Any) -> Schedule:
        if len(loops.nodes) > MOST_NODES:
            raise NotAsked(f"a graph of more than {MOST_NODES} nodes would take it minutes")
        kernels = names["fuse_all"](*names["facts"](loops), names["fits"])
        # Buffer → the number of the kernel that writes it
        home = {
            name: n for n, kernel in enumerate(kernels) for work in kernel for name in work.writes
        }

        def both(producer: Any, consumer: Any) -> Any:
            homes = {home[buffer.name] for buffer in producer.writes | consumer.writes}
            if len(homes) == 1:
                return fuse(producer, consumer)
            return No("fuse_all put them into different kernels")

        return scheduling.schedule(loops, both)

    return schedule


def planner(names: Names, stages: Stages) -> Any:
    """The answer says where buffers lie and when they are freed; that is all a program needs."""

    def plan(schedule: Schedule, loops: LoopGraph) -> MemoryPlan:
        learners_plan = names["my_plan"](schedule, loops)
        return MemoryPlan(learners_plan.place, learners_plan.free_after)

    return plan


def without_reductions(stages: Stages) -> Any:
    """The stage `fuse`, for kernels that `kernel_source` can write: each reduction stays alone."""

    def fuse(producer: Any, consumer: Any) -> Any:
        if any(isinstance(node, Reduction) for node in (*producer.nodes, *consumer.nodes)):
            return No("kernel_source writes no reductions")
        return stages["fuse"](producer, consumer)

    return fuse


def builder(names: Names, stages: Stages) -> Any:
    """Fused kernels by `kernel_source`, each reduction by `reduction_source`, library calls as they
    are."""

    def build(loops: LoopGraph, schedule: Schedule, plan: MemoryPlan, codegen: str) -> Any:
        if any(buffer.device.type != "cpu" for buffer in loops.buffers.values()):
            raise NotAsked("it writes C++ for a CPU")
        # (the kernel's name, "" for a library call; the kernel; its arguments)
        steps: list[Any] = []
        sources: dict[str, str] = {}

        for n, kernel in enumerate(schedule.kernels):
            if isinstance(kernel, ExternKernel):
                steps.append(("", kernel, []))
                continue
            node = kernel.steps[0].node
            if isinstance(node, Reduction):
                arguments = [*reads(node), node.buffer.name]
                source = names["reduction_source"](f"kernel{n}", node, arguments, loops.buffers)
            else:
                arguments = names["arguments_of"](kernel)
                source = names["kernel_source"](f"kernel{n}", kernel, arguments, loops.buffers)
            sources[f"kernel{n}"] = source
            steps.append((f"kernel{n}", kernel, arguments))

        return runs(steps, loops, names["functions"](sources) if sources else {}, plan, names)

    return build


def runs(
    steps: list[Any], loops: LoopGraph, functions: dict[str, Any], plan: MemoryPlan, names: Names
) -> Any:
    """A program: `steps` in order.

    A buffer lives where the plan says, unless that is in place or somebody's input."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        memory = starting_memory(loops, inputs)
        claimed_homes = set()  # buffers that have memory of their own
        for name, kernel, arguments in steps:
            if isinstance(kernel, ExternKernel):
                run_extern(kernel, memory)
                continue
            for argument in arguments:
                home = plan.place.get(argument, argument)
                buffer = loops.buffers[argument]
                if argument not in memory and home in claimed_homes and not kernel.in_place:
                    memory[argument] = memory[home].as_strided(buffer.shape, buffer.stride)
                elif argument not in memory:
                    memory[argument] = names["room_for"](buffer)
                    claimed_homes.add(argument)
            names["run_in_cpp"](functions[name], [memory[argument] for argument in arguments])

        # An output is a view of a buffer, or a plain number.
        results = []
        for out in loops.outputs:
            results.append(seen(out, memory) if hasattr(out, "buffer") else out)
        return tuple(results)

    return run


@dataclass(frozen=True)
class Part:
    """A stage that an exercise asks for.

    answers: the `grade_id`s that it needs. room: its box on the map of the pipeline. stage: the
    field of `Pipeline`, or the name, by which it is put in. what: the part in words. make: makes
    the stage of the answers. try_on: the program that it must compile before it counts. training:
    is it tried in training, too?"""

    name: str
    lesson: str
    exercise: str
    answers: tuple[str, ...]
    room: str
    stage: str
    what: str
    make: Callable[[Names, Stages], Any]
    try_on: Callable[[], Any] = trials.block
    training: bool = False


PARTS = (
    Part("MyInterpreter", "02", "2.3", ("my_interpreter",), "capture", "interpreter", "two instructions", interpreter),
    Part(
        "make_resume", "03", "3.4", ("make_resume",), "frames", "resume", "going on after a break", resume_function,
        trials.broken_in_two,
    ),
    Part("make_check", "04", "4.2", ("make_check",), "guards", "check", "the guard check", guard_check, trials.many_calls),
    Part(
        "softmax, layer_norm", "06", "6.2", ("decompositions",), "autograd", "decompositions", "decompositions", decompositions,
        training=True,
    ),
    Part(
        "derivative, pull_back", "06", "6.5", ("joint",), "autograd", "joint", "the joint graph", joint_graph,
        trials.small_net, True,
    ),
    Part("what_to_keep", "06", "6.4", ("what_to_keep",), "autograd", "partition", "the cut", cut, training=True),
    Part("frugal", "06", "6.3", ("frugal",), "autograd", "partition", "what to do again", rule, training=True),
    Part("my_lower", "07", "7.4", ("my_lower",), "lowering", "lower", "operators to loops", lowering, training=True),
    Part("legal", "08", "8.3", ("legal",), "scheduling", "fuse", "may two be one?", legality),
    Part(
        "fuse_all", "08", "8.5", ("traffic", "makes_a_circle", "fuse_all"), "scheduling", "schedule", "the scheduler", scheduler
    ),
    Part("my_plan", "08", "8.4", ("my_plan",), "scheduling", "plan", "the memory plan", planner),
    Part(
        "kernel_source", "10", "10.3, 10.4", ("reduction_source", "kernel_source"), "codegen", "build", "C++ kernels", builder
    ),
)  # fmt: skip
"""In the order in which they are put in: `what_to_keep` before the rule that it is asked with."""
