"""The subcommands of `course bench`.

In:  command-line arguments. Out: text (or JSON) and an exit status: 1 if a result is wrong or course_lib fails, 2 for
arguments that make no sense. That torch.compile cannot run here is told and is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

import torch

import course_lib
from course_lib.bench import compare, eager, first_call, leaks, machine, models, report
from course_lib.bench import overhead as guard_cost
from course_lib.bench import peak as peak_
from course_lib.bench import suite as suite_
from course_lib.bench.compare import Contender, Outcome, Workload
from course_lib.bench.library import library_share

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand."""
    args = parser().parse_args(argv)
    try:
        if getattr(args, "plot", None):
            report.need_matplotlib()
        if args.device.startswith("cuda") and not torch.cuda.is_available():
            raise report.MissingPackage(
                f"torch {torch.__version__} can use no GPU here; leave --device out, or say --device cpu"
            )
    except report.MissingPackage as missing:
        print(f"course bench: {missing}", file=sys.stderr)
        return 2
    args.dtype = (
        DTYPES[args.dtype]
        if args.dtype
        else torch.float16
        if args.device.startswith("cuda")
        else torch.float32
    )
    with float32_matmul_precision("high"):  # as the text's script sets it
        return int(args.run(args))


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="course bench", description="Eager, course_lib and torch.compile side by side."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="default: %(default)s",
    )
    everywhere.add_argument(
        "--dtype", choices=DTYPES, help="default: float16 on a GPU, else float32"
    )
    everywhere.add_argument(
        "--json",
        metavar="PATH",
        help="write machine, versions and raw samples; - for standard output",
    )
    everywhere.add_argument(
        "--no-torch-compile", action="store_true", help="leave torch.compile out"
    )
    compiling = argparse.ArgumentParser(add_help=False)
    compiling.add_argument("--mode", default="default", choices=MODES)
    compiling.add_argument("--dynamic", action="store_true")
    compiling.add_argument("--fullgraph", action="store_true")
    block = argparse.ArgumentParser(add_help=False)
    block.add_argument("--batch", type=positive, default=32)
    block.add_argument("--seq", type=positive, default=128)
    block.add_argument("--hidden", type=positive, default=768)
    timing = argparse.ArgumentParser(add_help=False)
    timing.add_argument(
        "--warmup",
        type=int,
        default=20,
        help="calls before the first sample (default: %(default)s)",
    )
    timing.add_argument(
        "--min-time", type=float, default=0.002, help="a sample lasts at least so many seconds"
    )

    def command(
        function: Any, parents: list[argparse.ArgumentParser], iters: int | None = None
    ) -> argparse.ArgumentParser:
        about = function.__doc__.splitlines()[0]
        added = commands.add_parser(
            function.__name__, parents=[everywhere, *parents], help=about, description=about
        )
        added.set_defaults(run=function)
        if iters:
            added.add_argument(
                "--iters",
                type=positive,
                default=iters,
                help="samples of each (default: %(default)s)",
            )
        return added

    it = command(tinyblock, [compiling, block, timing], iters=100)
    it.add_argument("--train", action="store_true", help="forward and backward, no optimizer")
    it.add_argument("--plot", metavar="PATH", help="draw the samples (SVG)")
    command(overhead, [compiling, timing], iters=50)
    it = command(compile, [compiling])
    it.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=", ".join(models.FIRST_CALLS) + " (default: all but the last)",
    )
    it = command(memory, [])
    it.add_argument("--compiles", type=positive, default=10_000)
    it.add_argument("--calls", type=positive, default=1_000_000)
    it.add_argument("--backend", default="inductor")
    command(peak, [])
    it = command(kernels, [compiling, timing], iters=30)
    it.add_argument("--rows", type=positive, help="replaces the number of rows of every input")
    it.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=", ".join(f.__name__ for f in models.FUNCTIONS) + " (default: all)",
    )
    it = command(suite, [compiling, timing], iters=15)
    it.add_argument("--seconds", type=float, help="start no further case after so long (GPU)")
    it.add_argument(
        "--fresh-memory",
        action="store_true",
        help="let the C library give large pieces back, as it does by default",
    )
    it.add_argument(
        "names",
        nargs="*",
        metavar="words",
        help="only cases whose name contains one of these (default: all)",
    )
    return top


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


# ---- the subcommands ----------------------------------------------------------------------------------------------------


def tinyblock(args: argparse.Namespace) -> int:
    """The text's model: results, first call, steady state, what was compiled."""
    out = report.text_stream(args.json)
    torch.manual_seed(0)
    shape = (args.batch, args.seq, args.hidden)
    model = (
        models.TinyBlock(args.hidden, expansion=4)
        .to(device=args.device, dtype=args.dtype)
        .train(args.train)
    )

    def inputs() -> tuple[torch.Tensor, ...]:
        return (torch.randn(shape).to(args.device, args.dtype).requires_grad_(args.train),)

    told = machine.describe()
    print(
        f"device={args.device} dtype={args.dtype} mode={args.mode} dynamic={args.dynamic} train={args.train}",
        file=out,
    )
    print(f"shape={shape}\n{machine.summary(told)}\n", file=out, flush=True)
    outcomes = run(args, Workload("tinyblock", model, inputs, args.train))
    print(report.table(outcomes), file=out)
    print(
        "\nvs: how many times faster (median of the ratios of each round); first call: compiles; diff: to eager\n",
        file=out,
    )
    print(report.programs(outcomes), file=out)
    place = told["machine"]["gpu"] if args.device.startswith("cuda") else told["machine"]["cpu"]
    environment = f"{place} / {str(args.dtype).removeprefix('torch.')}" + (
        " / training" if args.train else ""
    )
    print("\n" + report.markdown_rows(outcomes, environment, args.mode, shape), file=out)
    if args.plot:
        report.plot(args.plot, f"TinyBlock {' × '.join(map(str, shape))}, {environment}", outcomes)
    save(
        args,
        told,
        {"shape": shape, "results": [report.as_json(outcome, outcomes) for outcome in outcomes]},
    )
    return status(outcomes)


def overhead(args: argparse.Namespace) -> int:
    """What one call costs when there is hardly any work: x * 2 + y on 4 elements."""
    out = report.text_stream(args.json)
    told = machine.describe()
    inputs = functools.partial(models.random_inputs, ((4,), (4,)), args.device, args.dtype)
    outcomes = run(args, Workload("overhead", models.scale_and_add, inputs))
    print(f"x * 2 + y on 4 elements\n{machine.summary(told)}\n\n{report.table(outcomes)}", file=out)
    print(f"\n{report.programs(outcomes)}", file=out)
    parts = guard_cost.measure(args.iters, not args.no_torch_compile)
    print(f"\n{guard_cost.table(parts)}", file=out)
    rows = {
        row: {name: sample.seconds for name, sample in samples.items()}
        for row, samples in parts.items()
    }
    save(
        args,
        told,
        {"results": [report.as_json(outcome, outcomes) for outcome in outcomes], "parts": rows},
    )
    return status(outcomes)


def kernels(args: argparse.Namespace) -> int:
    """Small functions, one kernel each, and the memory bandwidth they reach."""
    out = report.text_stream(args.json)
    known = {function.__name__: (function, shapes) for function, shapes in models.FUNCTIONS.items()}
    for name in args.names:
        if name not in known:
            print(
                f"course bench: there is no function '{name}'; there are {', '.join(known)}",
                file=sys.stderr,
            )
            return 2
    told = machine.describe()
    print(machine.summary(told), file=out, flush=True)
    results, worst = {}, 0
    for name in args.names or known:
        function, shapes = known[name]
        inputs = functools.partial(models.random_inputs, shapes, args.device, args.dtype, args.rows)
        outcomes = run(args, Workload(name, function, inputs))
        given = inputs()
        moved = sum(tensor.nbytes for tensor in (*given, function(*given)))
        print(
            f"\n{name}{tuple(tuple(tensor.shape) for tensor in given)}\n{report.table(outcomes)}",
            file=out,
        )
        rates = [
            f"{each.name} {moved / each.samples.median / 1e9:.1f}"
            for each in outcomes
            if each.samples
        ]
        print(
            f"GB/s if inputs and output moved once: {', '.join(rates)}\n{report.programs(outcomes)}",
            file=out,
            flush=True,
        )
        results[name] = {
            "bytes": moved,
            "results": [report.as_json(outcome, outcomes) for outcome in outcomes],
        }
        worst = max(worst, status(outcomes))
    save(args, told, {"functions": results})
    return worst


def suite(args: argparse.Namespace) -> int:
    """The workloads that the compiler is measured by, each with what it must reach. On a GPU they are others."""
    out = report.text_stream(args.json)
    if args.device.startswith("cuda"):
        return on_gpu(args, out)
    chosen = [
        case
        for name, case in suite_.known().items()
        if not args.names or any(word in name for word in args.names)
    ]
    if not chosen:
        print(
            f"course bench: no case is called so; there are {', '.join(suite_.known())}",
            file=sys.stderr,
        )
        return 2
    told = machine.describe()
    kept = not args.fresh_memory and suite_.keep_memory()
    copy = eager.copy_bandwidth()
    memory = (
        "kept by the C library for the next"
        if kept
        else "given back to the system: large results page-fault"
    )
    print(
        f"{machine.summary(told)}\ncopy bandwidth {copy / 1e9:.1f} GB/s; freed memory is {memory}\n",
        file=out,
        flush=True,
    )
    rows, everything = [], []
    for case in chosen:
        outcomes = run(args, case.workload)
        rows.append(
            suite_.line_of(
                case, outcomes, copy, library_share(case.workload, args.iters, args.min_time)
            )
        )
        everything.append(outcomes)
        problems = "; ".join(f"{each.name}: {each.problem}" for each in outcomes if each.problem)
        print("  ".join(rows[-1]) + (f"\n    {problems}" if problems else ""), file=out, flush=True)
    print(f"\n{suite_.table(rows)}\n", file=out)
    means = [
        f"{suite_.geometric_mean(everything, base):.2f}x {base}"
        for base in ("eager", "torch.compile")
    ]
    print(
        f"geometric mean: {', '.join(means)}. '!' marks what is missed; 'copy': share of the copy bandwidth reached",
        file=out,
    )
    print(
        "'library': share of our time that matrix products and other library calls take by themselves",
        file=out,
    )
    results = {
        case.name: [report.as_json(o, os) for o in os]
        for case, os in zip(chosen, everything, strict=True)
    }
    save(args, told, {"copy_bandwidth": copy, "cases": results})
    return max(map(status, everything))


def on_gpu(args: argparse.Namespace, out: TextIO) -> int:
    """`suite` on a GPU. What does not fit in `--seconds` is left out, and that is told."""
    from course_lib.bench import gpu_suite

    told, copy, start = machine.describe(), gpu_suite.copy_bandwidth(), time.perf_counter()
    print(f"{machine.summary(told)}\ncopy bandwidth {copy / 1e9:.0f} GB/s\n", file=out, flush=True)
    chosen = [(c, c.contenders(not args.no_torch_compile)) for c in gpu_suite.cases()]
    case, several = gpu_suite.ablation()
    chosen.insert(-4, (dataclasses.replace(case, name="ablation: " + case.name), several))
    rows: list[tuple[str, ...]] = [gpu_suite.HEAD]
    results, worst = {}, 0
    for case, several in chosen:
        if args.names and not any(word in case.name for word in args.names):
            continue
        if args.seconds and time.perf_counter() - start > args.seconds:
            print(f"{case.name}: left out, the time is up", file=out, flush=True)
            continue
        outcomes = compare.compare(
            case.workload,
            several,
            device=args.device,
            rounds=args.iters,
            min_time=args.min_time,
            checks=case.checks,
        )
        new = gpu_suite.lines_of(case, outcomes, copy)
        rows += new
        print("\n".join("  ".join(row) for row in new), file=out, flush=True)
        for each in outcomes:
            notes = "; ".join(
                filter(None, [each.problem, *(each.program.fallbacks if each.program else [])])
            )
            print(f"    {each.name}: {notes}\n" if notes else "", end="", file=out, flush=True)
        results[case.name] = [report.as_json(o, outcomes) for o in outcomes]
        worst = max(worst, status(outcomes))
        torch._dynamo.reset()
        course_lib.reset()
        torch.cuda.empty_cache()
        save(args, told, {"copy_bandwidth": copy, "cases": results})
    print("\n" + report.columns(rows), file=out)
    return worst


def compile(args: argparse.Namespace) -> int:
    """The whole first call, in fresh processes: nothing on disk, others compiled before, the same compiled before."""
    for name in args.names:
        if name not in models.FIRST_CALLS:
            print(
                f"course bench: there is no workload '{name}'; there are {', '.join(models.FIRST_CALLS)}",
                file=sys.stderr,
            )
            return 2
    out = report.text_stream(args.json)
    told = machine.describe()
    print(machine.summary(told) + "\n", file=out, flush=True)
    contenders = ["course_lib"] if args.no_torch_compile else ["course_lib", "torch.compile"]
    runs: dict[tuple[str, str], dict[str, first_call.FirstCall]] = {}
    chosen = args.names or [name for name in models.FIRST_CALLS if name != first_call.SMALL]
    for workload, situation, who, one in first_call.situations(chosen, contenders, args):
        runs.setdefault((workload, situation), {})[who] = one
        print(
            f"{workload}, {situation}, {who}: {one.problem or f'{one.total:.2f} s'}",
            file=out,
            flush=True,
        )
    print("\n" + first_call.table(runs), file=out)
    rows = [
        {"workload": w, "caches": at, **{who: vars(one) for who, one in by.items()}}
        for (w, at), by in runs.items()
    ]
    save(args, told, {"runs": rows})
    return int(any(by["course_lib"].problem for by in runs.values()))


def memory(args: argparse.Namespace) -> int:
    """Whether memory stays flat over thousands of compiles and a million calls."""
    out = report.text_stream(args.json)
    told = machine.describe()
    print(f"{machine.summary(told)}\nbackend {args.backend}\n", file=out, flush=True)
    found = {}
    for name, several in (
        ("compiles", leaks.compiles(args.compiles, args.backend)),
        ("calls", leaks.calls(args.calls, args.backend)),
    ):
        seen = list(several)
        found[name] = [vars(reading) for reading in seen]
        bytes_, objects = leaks.gained(seen)
        print(
            f"{name}\n{leaks.table(seen)}\neach leaves {bytes_:.1f} bytes and {objects:.4f} objects behind\n",
            file=out,
            flush=True,
        )
    save(args, told, found)
    return 0


def peak(args: argparse.Namespace) -> int:
    """The most memory that a training step takes, in fresh processes."""
    out = report.text_stream(args.json)
    told = machine.describe()
    names = ["eager", "course_lib"] + ["torch.compile"] * (not args.no_torch_compile)
    print(
        f"{machine.summary(told)}\nMB that a training step takes at its height\n",
        file=out,
        flush=True,
    )
    found = {
        work: {who: peak_.measure(who, work, args.device, args.dtype) for who in names}
        for work in models.TRAINED
    }
    rows = [
        ("", *names),
        *((work, *(f"{size:.0f}" for size in sizes.values())) for work, sizes in found.items()),
    ]
    print(report.columns([(*row, "") for row in rows]), file=out)
    save(args, told, {"megabytes": found})
    return int(any(sizes["course_lib"] != sizes["course_lib"] for sizes in found.values()))


# ---- shared -----------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace, workload: Workload) -> list[Outcome]:
    """All contenders on one workload."""
    return compare.compare(
        workload,
        contenders(args),
        device=args.device,
        rounds=args.iters,
        warmup=args.warmup,
        min_time=args.min_time,
    )


def contenders(args: argparse.Namespace) -> list[Contender]:
    how = (args.mode, args.dynamic or None, args.fullgraph)
    chosen = [compare.eager(), compare.ours(*how)]
    return chosen if args.no_torch_compile else [*chosen, compare.theirs(*how)]


def status(outcomes: Sequence[Outcome]) -> int:
    """1 if any result is wrong or if ours did not run."""
    return int(
        any(
            outcome.wrong or (outcome.problem and not outcome.name.startswith("torch.compile"))
            for outcome in outcomes
        )
    )


def save(args: argparse.Namespace, told: dict[str, Any], results: dict[str, Any]) -> None:
    """Write the JSON that `--json` asks for."""
    if args.json:
        arguments = {
            name: value for name, value in vars(args).items() if name not in ("run", "json", "plot")
        }
        arguments["dtype"] = str(args.dtype).removeprefix("torch.")
        report.write_json(
            args.json, {"benchmark": args.command, **told, "arguments": arguments, **results}
        )


@contextlib.contextmanager
def float32_matmul_precision(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
