"""Machine code, and which line of a kernel's source each line of it belongs to.

In:  a printed kernel; a target as for `inspect_kernel`. Out: name of the form → (line, line of the
     source or 0) for each line.

Nothing is guessed: compilers write where each line came from for debuggers. GCC and PTX say
`.loc 1 12`, MLIR `loc(#loc3)`, LLVM `!dbg !17`; only what these mean is looked up. Lines that only
debuggers need are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from course_lib.codegen.cpp import prelude
from course_lib.codegen.printer import KernelSource
from course_lib.viz.pictures.codegen.inspect_kernel import assembly, inspect_kernel

Lines = list[tuple[str, int]]
"""A line of machine code, and the number of the kernel's line that it comes from (0: none)."""
NOISE = re.compile(
    r"""^\s*(\.(?!L\d|visible|reg|shared|entry|param)\w   # directives, but not labels, nor what PTX declares
      |//|;|!|\#loc|attributes|declare|target\ |source_filename|$)""",
    re.VERBOSE,
)
"""Lines that only assemblers and debuggers need: they are left out."""


def source_lines(source: KernelSource, target: str) -> dict[str, Lines]:
    """Every form of a kernel down to the processor's. Raises `BackendMissing`, `CompileFailed`."""
    if source.language == "cpp":
        text = assembly(source, target, ["-g1"])  # line numbers, and nothing about variables
        body = text[text.index(f"\n{source.name}:") : text.index(f"\t.size\t{source.name}")]
        skipped = prelude().count("\n") + 1  # stands before the kernel in its file
        return {"asm": by_loc(body, skipped)}
    return {
        form: READERS[form](text)
        for form, text in inspect_kernel(source, target).items()
        if form in READERS
    }


def by_loc(text: str, skipped: int = 0) -> Lines:
    """Assembly and PTX: `.loc file line column` holds for the lines that follow."""
    lines: Lines = []
    line = 0
    for row in text.splitlines():
        place = re.match(r"\s*\.loc\s+1\s+(\d+)", row)
        if place:
            # a line of the prelude (the first `skipped` ones) leaves the line of its caller in
            # force
            if int(place[1]) > skipped:
                line = int(place[1]) - skipped
        elif not NOISE.match(row):
            lines.append((row.expandtabs(4).rstrip(), line))
    return lines


def by_reference(mark: str, meaning: str) -> Callable[[str], Lines]:
    """Text whose lines end in a reference, which other lines of the text explain.

    mark: finds the reference in a line (`loc(#loc3)`). meaning: finds the lines that explain one,
    as (name, line of the source).
    """

    def read(text: str) -> Lines:
        line_of = {name: int(line) for name, line in re.findall(meaning, text, flags=re.M)}
        # a reference may name another one: `#loc7 = loc("x"(#loc3))`
        aliases = dict(re.findall(r"^(#loc\d*) = loc\(\S+?\((#loc\d*)[^\n]*$", text, flags=re.M))

        lines: Lines = []
        for row in text.splitlines():
            if NOISE.match(row):
                continue
            reference = re.search(mark, row)
            name = reference[1] if reference else ""
            if name not in line_of:
                name = aliases.get(name, "")
            shown = re.sub(r"\s*loc\(#loc\d*\)|, !dbg !\d+", "", row)
            lines.append((shown.rstrip(), line_of.get(name, 0)))
        return lines

    return read


mlir = by_reference(
    mark=r"loc\((#loc\d*)\)$",
    meaning=r'^(#loc\d*) = loc\(.*?"[^"]*":(\d+):\d+',
)
llvm = by_reference(
    mark=r"!dbg (!\d+)",
    meaning=r"^(!\d+) = !DILocation\(line: (\d+)",
)
READERS: dict[str, Callable[[str], Lines]] = {
    "ttir": mlir,
    "ttgir": mlir,
    "llir": llvm,
    "ptx": by_loc,
}
"""Form of a kernel → the function that reads its lines."""
