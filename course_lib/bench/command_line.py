"""The command line of `course bench`: which subcommands there are, and what each may be given.

In:  command-line arguments. Out: an exit status: 1 if a result is wrong or course_lib fails, 2 for
     arguments that make no sense. A machine on which torch.compile cannot run is told of, and is no
     failure.

What the subcommands do is in `commands.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from course_lib.bench import commands, models, report

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand."""
    args = parser().parse_args(argv)
    try:
        # Only some subcommands have `--plot`
        if getattr(args, "plot", None):
            report.need_matplotlib()
        if args.device.startswith("cuda") and not torch.cuda.is_available():
            raise report.MissingPackage(
                f"torch {torch.__version__} can use no GPU here; leave --device out, or say --device cpu"
            )
    except report.MissingPackage as missing:
        print(f"course bench: {missing}", file=sys.stderr)
        return 2

    args.dtype = DTYPES[args.dtype] if args.dtype else usual_dtype(args.device)

    # The script that the course starts from (`day13_compile_bench.py`) sets this, too.
    with float32_matmul_precision("high"):
        return int(args.run(args))


def usual_dtype(device: str) -> torch.dtype:
    """What models mostly compute with on this device."""
    if device.startswith("cuda"):
        return torch.float16
    return torch.float32


@contextlib.contextmanager
def float32_matmul_precision(precision: str) -> Iterator[None]:
    """torch's setting within a block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


# ---- the arguments ---------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """Knows every subcommand, in the order in which `--help` shows them."""
    top = argparse.ArgumentParser(
        prog="course bench", description="Eager, course_lib and torch.compile side by side."
    )
    added = top.add_subparsers(dest="command", required=True, metavar="command")
    everywhere, compiling, block, timing = for_all(), for_compiling(), for_block(), for_timing()

    def command(
        function: Any, *groups: argparse.ArgumentParser, iters: int = 0
    ) -> argparse.ArgumentParser:
        """One subcommand; `iters`: so many samples are its default."""
        summary = function.__doc__.splitlines()[0]
        one = added.add_parser(
            function.__name__, parents=[everywhere, *groups], help=summary, description=summary
        )
        one.set_defaults(run=function)
        if iters:
            help_text = "samples of each (default: %(default)s)"
            one.add_argument("--iters", type=positive, default=iters, help=help_text)
        return one

    it = command(commands.tinyblock, compiling, block, timing, iters=100)
    it.add_argument("--train", action="store_true", help="forward and backward, no optimizer")
    it.add_argument("--plot", metavar="PATH", help="draw the samples (SVG)")

    command(commands.overhead, compiling, timing, iters=50)

    it = command(commands.compile, compiling)
    add_names(it, "name", ", ".join(models.FIRST_CALLS) + " (default: all but the last)")

    it = command(commands.memory)
    it.add_argument("--compiles", type=positive, default=10_000)
    it.add_argument("--calls", type=positive, default=1_000_000)
    it.add_argument("--backend", default="inductor")

    command(commands.peak)

    it = command(commands.kernels, compiling, timing, iters=30)
    it.add_argument("--rows", type=positive, help="replaces the number of rows of every input")
    function_names = ", ".join(function.__name__ for function in models.FUNCTIONS)
    add_names(it, "name", f"{function_names} (default: all)")

    it = command(commands.suite, compiling, timing, iters=15)
    it.add_argument("--seconds", type=float, help="start no further case after so long (GPU)")
    it.add_argument(
        "--fresh-memory",
        action="store_true",
        help="let the C library give large pieces back, as it does by default",
    )
    add_names(it, "words", "only cases whose name contains one of these (default: all)")
    return top


def for_all() -> argparse.ArgumentParser:
    """What every subcommand may be given."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="default: %(default)s",
    )
    group.add_argument("--dtype", choices=DTYPES, help="default: float16 on a GPU, else float32")
    group.add_argument(
        "--json",
        metavar="PATH",
        help="write machine, versions and raw samples; - for standard output",
    )
    group.add_argument("--no-torch-compile", action="store_true", help="leave torch.compile out")
    return group


def for_compiling() -> argparse.ArgumentParser:
    """How course_lib and torch.compile are called."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument("--mode", default="default", choices=MODES)
    group.add_argument("--dynamic", action="store_true")
    group.add_argument("--fullgraph", action="store_true")
    return group


def for_block() -> argparse.ArgumentParser:
    """The sizes of a TinyBlock."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument("--batch", type=positive, default=32)
    group.add_argument("--seq", type=positive, default=128)
    group.add_argument("--hidden", type=positive, default=768)
    return group


def for_timing() -> argparse.ArgumentParser:
    """How calls are timed."""
    group = argparse.ArgumentParser(add_help=False)
    group.add_argument(
        "--warmup",
        type=int,
        default=20,
        help="calls before the first sample (default: %(default)s)",
    )
    group.add_argument(
        "--min-time", type=float, default=0.002, help="a sample lasts at least so many seconds"
    )
    return group


def add_names(parser: argparse.ArgumentParser, metavar: str, help_text: str) -> None:
    """Any number of words without a dash."""
    parser.add_argument("names", nargs="*", metavar=metavar, help=help_text)


def positive(text: str) -> int:
    """A number of rows, samples or calls, as an argument gives it."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value
