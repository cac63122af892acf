"""Rows of the lists "Loops", "Fused groups", "Generated code" and "Machine code".

In:  the events of lowering, scheduling and building in their order.
Out: one row a loop, a kernel and its steps, a line of a kernel's source and of the program around
     the kernels, and a line of machine code where a processor is named.

A loop came from ATen nodes (`origins`), a step of a kernel from its loop, a line of source from its
step (`line_of`).
"""

from __future__ import annotations

import ast
import re
from typing import Any

from course_lib import events
from course_lib.lowering.ir import ExternKernel
from course_lib.scheduling import Fuse, FusedKernel, Kernel, Schedule
from course_lib.viz.explorer.rows import Lists, Row, Sees
from course_lib.viz.kit.highlight import highlighted
from course_lib.viz.kit.style import human_bytes, plural
from course_lib.viz.pictures.codegen.machine_code import source_lines
from course_lib.viz.pictures.lowering.loop_formulas import formula, is_extern, label_of, ranges_of

LANGUAGES = {"cpp": "C++", "triton": "Triton"}
"""The language of a kernel, as it is shown."""


class KernelRows:
    """Adds what lowering, scheduling, codegen and the kernels' compilers made."""

    def __init__(self, lists: Lists, target: str) -> None:
        self.lists = lists
        self.target = target
        """The processor whose machine code is wanted ("sm_90", "x86-64-v3"); "" for none."""

        # All three are about the graph that is being compiled.
        self.loops: dict[str, Row] = {}
        """By the name of the buffer that the loop writes."""
        self.groups: dict[Any, Row] = {}
        """By the kernel."""
        self.steps: dict[tuple[Any, str], Row] = {}
        """By the kernel and the name of the buffer that the step computes."""

        self.sees: Sees = {
            events.Lowered: self.lowered,
            events.Scheduled: self.scheduled,
            events.KernelsBuilt: self.kernels_built,
        }

    # ---- loops -----------------------------------------------------------------------------------

    def lowered(self, event: events.Lowered) -> None:
        """A row for each loop, from the ATen nodes that it came from."""
        graph = event.graph
        size = plural(len(graph.nodes), "loop")
        self.lists.head("loops", self.lists.title, size, at=self.lists.next_moment)

        self.loops = {}
        for node in graph.nodes:
            row = self.lists.add("loops", formula(node, graph.buffers))
            if is_extern(node):
                row.kind = "extern"
                row.note = node.why
                row.at = self.lists.moment("lowering", f"{node.op} is left to the library")
            else:
                row.note = ranges_of(node)
                row.at = self.lists.moment("lowering", f"a loop for {label_of(node)}")

            # The rows of the ATen nodes that the loop came from, each once
            listed = [origin for origin in node.origins if origin in self.lists.nodes]
            row.up = list(dict.fromkeys(self.lists.nodes[origin] for origin in listed))
            for buffer in node.buffers:
                self.loops[buffer.name] = row

    # ---- groups ----------------------------------------------------------------------------------

    def scheduled(self, event: events.Scheduled) -> None:
        """A moment for each fusion; then a row for each kernel and library call."""
        schedule = event.schedule
        for decision in schedule.decisions:
            if isinstance(decision.answer, Fuse):
                self.lists.moment("scheduling", f"fused: {decision}")

        before = human_bytes(schedule.bytes_before)
        after = human_bytes(schedule.bytes_after)
        note = f"{plural(len(schedule.kernels), 'group')}, {before} → {after}"
        self.lists.head("groups", self.lists.title, note, at=self.lists.next_moment)

        self.groups = {}
        self.steps = {}
        inlined = self.loops_in_no_kernel(schedule)
        for kernel, group in zip(schedule.kernels, schedule.groups, strict=True):
            traffic = human_bytes(group.traffic)
            if isinstance(kernel, ExternKernel):
                self.add_library_call(kernel, traffic)
            else:
                self.add_kernel(kernel, traffic, inlined)

    def loops_in_no_kernel(self, schedule: Schedule) -> list[Row]:
        """Loops that are computed again where they are read, so that no kernel has them as a
        step."""
        in_kernels = {
            self.loops[node.buffer.name] for kernel in schedule.fused for node in kernel.nodes
        }
        # (A library call that writes several buffers is one row. A loop without `up` came from no
        # node, and nothing could lead to it.)
        every_loop = dict.fromkeys(self.loops.values())
        return [row for row in every_loop if row.up and row not in in_kernels]

    def add_library_call(self, kernel: ExternKernel, traffic: str) -> None:
        """A library call, or a kernel that is written as a whole (attention), which has no
        steps."""
        sentence = f"{kernel.label} stays a library call"
        if not kernel.is_library:
            sentence = f"{kernel.label} is one kernel: {kernel.why}"
        at = self.lists.moment("scheduling", sentence)
        row = self.lists.add("groups", kernel.label, kind="library", note=traffic, at=at)

        # All its buffers have the same row, that of the call in "Loops"; some calls have no buffer.
        row.up = [self.loops[buffer.name] for buffer in kernel.buffers][:1]
        self.groups[kernel] = row

    def add_kernel(self, kernel: FusedKernel, traffic: str, inlined: list[Row]) -> None:
        """A kernel and its steps.

        `inlined` are the loops in no kernel: a step that reads one has its origins."""
        at = self.lists.moment("scheduling", f"{kernel.name} is one kernel")
        head = self.lists.add("groups", kernel.name, kind="group", note=traffic, at=at)
        self.groups[kernel] = head

        for step in kernel.steps:
            name = step.buffer.name
            loop = self.loops[name]
            origins = {self.lists.nodes.get(origin) for origin in step.node.origins}
            read = [row for row in inlined if is_inside(row, origins, loop)]

            row = self.lists.add("groups", step.node.label or name, depth=2, at=at)
            row.note = name if name in kernel.stores else f"{name} in registers"
            row.up = [loop, *read]

            # A kernel's row stands above its steps, and yet came from them.
            head.up.append(row)
            self.steps[kernel, name] = row

    # ---- code ------------------------------------------------------------------------------------

    def kernels_built(self, event: events.KernelsBuilt) -> None:
        """The source of each kernel, then the program that calls them."""
        compiled = event.compiled
        # `printed` are the kernels of the schedule that have a source, in the same order.
        source_of = dict(zip(compiled.schedule.printed, compiled.kernels, strict=True))
        for kernel, source in source_of.items():
            self.add_source(kernel, source)
        self.add_program(compiled.wrapper_source, source_of)

    def add_source(self, kernel: Kernel, source: Any) -> None:
        """The source of one kernel, and its machine code if that is wanted."""
        language = LANGUAGES[source.language]
        group = self.groups[kernel]
        at = self.lists.moment("codegen", f"{source.name} in {language}")
        self.lists.head("code", source.name, language, at=at, of=group)

        rows = self.add_lines(source.source, source.language, at)
        for number, row in enumerate(rows, 1):
            step = source.line_of.get(number)
            if step:
                row.up = [self.steps[kernel, step.buffer.name]]
            else:
                row.of = group

        if self.target:
            self.add_machine_code(source, rows, group)

    def add_program(self, program: str, source_of: dict[Kernel, Any]) -> None:
        """The Python program that allocates memory and calls the kernels."""
        at = self.lists.moment("codegen", "the program around them")
        self.lists.head("code", f"the program of {self.lists.title}", "Python", at=at)

        # A line belongs to a kernel that it calls, or whose result it allocates.
        group_of_name: dict[str, Row] = {}
        for kernel, group in self.groups.items():
            for buffer in kernel.buffers:
                group_of_name[buffer.name] = group
        for kernel, source in source_of.items():
            group_of_name[source.name] = self.groups[kernel]

        rows = self.add_lines(program, "python", at)
        for row, names in zip(rows, names_by_line(program), strict=True):
            of_kernels = [name for name in names if name in group_of_name]
            if of_kernels:
                row.of = group_of_name[of_kernels[0]]
                row.up = [row.of]

    def add_lines(self, source: str, language: str, at: int) -> list[Row]:
        """Lines of generated source."""
        # Comments move closer to the code, so that they are seen in a narrow list.
        lines = [
            re.sub(r" {3,}(?=(//|#) )", "   ", line) for line in source.rstrip("\n").split("\n")
        ]

        coloured = highlighted("\n".join(lines), language)
        rows = []
        for number, (text, html) in enumerate(zip(lines, coloured, strict=True), 1):
            rows.append(self.lists.add("code", text, html=html, label=str(number), at=at))
        return rows

    def add_machine_code(self, source: Any, rows: list[Row], group: Row) -> None:
        """What the kernel's own compiler made of it, each line with the line of source that it
        belongs to."""
        for form, lines in source_lines(source, self.target).items():
            at = self.lists.moment("runtime", f"{source.name} as {form}")
            self.lists.head("machine", f"{source.name} ({form})", self.target, at=at, of=group)

            for text, number in lines:
                row = self.lists.add("machine", text, at=at)
                # (0 for a line that came from no line of the source)
                if 0 < number <= len(rows):
                    row.up = [rows[number - 1]]
                else:
                    row.of = group


def is_inside(row: Row, origins: set[Row | None], loop: Row) -> bool:
    """Was the loop of `row` computed again inside a step with these origins?

    Then the step has its origins, all of them, and the step's own `loop` does not."""
    return origins.issuperset(row.up) and not set(row.up) <= set(loop.up)


def names_by_line(program: str) -> list[set[str]]:
    """For each line of a program the functions that it calls, the variables that it sets, and those
    that take a result."""
    names_of_line: list[set[str]] = [set() for _ in program.splitlines()]
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call):
            results = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
            names = [
                name_node.id
                for name_node in (node.func, *results)
                if isinstance(name_node, ast.Name)
            ]
            names_of_line[node.lineno - 1].update(names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names_of_line[node.lineno - 1].add(node.id)
    return names_of_line


__all__ = ["KernelRows"]
