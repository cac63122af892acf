"""What the subcommands of `course bench` do.

In:  the arguments of one subcommand, as `command_line.py` reads them.
Out: text (or JSON) and an exit status: 1 if a result is wrong or course_lib fails, 2 for arguments
     that make no sense.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import sys
import time
from collections.abc import Collection, Sequence
from typing import Any, TextIO

import torch

import course_lib
from course_lib.bench import compare, eager, first_call, leaks, machine, models, report
from course_lib.bench import overhead as guard_cost
from course_lib.bench import peak as peak_
from course_lib.bench import suite as suite_
from course_lib.bench.compare import Contender, Outcome, Workload
from course_lib.bench.library import library_share


def tinyblock(args: argparse.Namespace) -> int:
    """The text's model: results, first call, steady state, what was compiled."""
    out = report.text_stream(args.json)
    torch.manual_seed(0)
    shape = (args.batch, args.seq, args.hidden)
    model = models.TinyBlock(args.hidden, expansion=4)
    model = model.to(device=args.device, dtype=args.dtype).train(args.train)

    def inputs() -> tuple[torch.Tensor, ...]:
        return (torch.randn(shape).to(args.device, args.dtype).requires_grad_(args.train),)

    # What is measured is told first: the measuring takes a while.
    about_machine = machine.describe()
    how = f"mode={args.mode} dynamic={args.dynamic} train={args.train}"
    print(f"device={args.device} dtype={args.dtype} {how}", file=out)
    print(f"shape={shape}\n{machine.summary(about_machine)}\n", file=out, flush=True)

    outcomes = run(args, Workload("tinyblock", model, inputs, args.train))
    print(report.table(outcomes), file=out)
    print(
        "\nvs: how many times faster (median of the ratios of each round); first call: compiles; diff: to eager\n",
        file=out,
    )
    print(report.programs(outcomes), file=out)

    # Rows for a README or an issue: they say by themselves where they come from.
    place = about_machine["machine"]["gpu" if args.device.startswith("cuda") else "cpu"]
    environment = f"{place} / {str(args.dtype).removeprefix('torch.')}"
    if args.train:
        environment += " / training"
    print("\n" + report.markdown_rows(outcomes, environment, args.mode, shape), file=out)

    if args.plot:
        report.plot(args.plot, f"TinyBlock {' × '.join(map(str, shape))}, {environment}", outcomes)
    save(args, about_machine, {"shape": shape, "results": all_as_json(outcomes)})
    return status(outcomes)


def overhead(args: argparse.Namespace) -> int:
    """What one call costs when there is hardly any work: x * 2 + y on 4 elements."""
    out = report.text_stream(args.json)
    about_machine = machine.describe()
    inputs = functools.partial(models.random_inputs, ((4,), (4,)), args.device, args.dtype)
    outcomes = run(args, Workload("overhead", models.scale_and_add, inputs))
    print(f"x * 2 + y on 4 elements\n{machine.summary(about_machine)}\n", file=out)
    print(report.table(outcomes), file=out)
    print(f"\n{report.programs(outcomes)}", file=out)

    # What of a call is no kernel: guards, and events while `cl.record()` listens
    parts = guard_cost.measure(args.iters, not args.no_torch_compile)
    print(f"\n{guard_cost.table(parts)}", file=out)

    seconds = {}
    for row, samples in parts.items():
        seconds[row] = {name: sample.seconds for name, sample in samples.items()}
    save(args, about_machine, {"results": all_as_json(outcomes), "parts": seconds})
    return status(outcomes)


def kernels(args: argparse.Namespace) -> int:
    """Small functions, one kernel each, and the memory bandwidth they reach."""
    known = {function.__name__: (function, shapes) for function, shapes in models.FUNCTIONS.items()}
    if is_unknown(args.names, "function", known):
        return 2

    out = report.text_stream(args.json)
    about_machine = machine.describe()
    say(out, machine.summary(about_machine))

    results, worst = {}, 0
    for name in args.names or known:
        function, shapes = known[name]
        inputs = functools.partial(models.random_inputs, shapes, args.device, args.dtype, args.rows)
        outcomes = run(args, Workload(name, function, inputs))

        # The least that any program must move: each input once, and the result once
        arguments = inputs()
        bytes_moved = sum(tensor.nbytes for tensor in (*arguments, function(*arguments)))
        say(out, f"\n{name}{tuple(tuple(tensor.shape) for tensor in arguments)}")
        say(out, report.table(outcomes))
        say(out, f"GB/s if inputs and output moved once: {rates(outcomes, bytes_moved)}")
        say(out, report.programs(outcomes))

        results[name] = {"bytes": bytes_moved, "results": all_as_json(outcomes)}
        worst = max(worst, status(outcomes))

    save(args, about_machine, {"functions": results})
    return worst


def rates(outcomes: Sequence[Outcome], moved: int) -> str:
    """'eager 8.2, course_lib 12.1': GB/s of those that were timed."""
    texts = []
    for outcome in outcomes:
        if outcome.samples:
            texts.append(f"{outcome.name} {moved / outcome.samples.median / 1e9:.1f}")
    return ", ".join(texts)


def suite(args: argparse.Namespace) -> int:
    """The workloads that the compiler is measured by, each with what it must reach.

    On a GPU they are others."""
    out = report.text_stream(args.json)
    if args.device.startswith("cuda"):
        return on_gpu(args, out)

    known = suite_.known()
    chosen = [case for name, case in known.items() if is_asked_for(name, args.names)]
    if not chosen:
        print(f"course bench: no case is called so; there are {', '.join(known)}", file=sys.stderr)
        return 2

    # Fresh memory page-faults, in eager too: that would hide what the kernels cost.
    about_machine = machine.describe()
    memory_is_kept = not args.fresh_memory and suite_.keep_memory()
    memory = "given back to the system: large results page-fault"
    if memory_is_kept:
        memory = "kept by the C library for the next"

    bandwidth = eager.copy_bandwidth()
    say(out, machine.summary(about_machine))
    say(out, f"copy bandwidth {bandwidth / 1e9:.1f} GB/s; freed memory is {memory}\n")

    rows, everything = [], []
    for case in chosen:
        outcomes = run(args, case.workload)
        share = library_share(case.workload, args.iters, args.min_time)
        rows.append(suite_.line_of(case, outcomes, bandwidth, share))
        everything.append(outcomes)

        say(out, "  ".join(rows[-1]))
        problems = "; ".join(f"{each.name}: {each.problem}" for each in outcomes if each.problem)
        if problems:
            say(out, f"    {problems}")

    # Geometric: one case twice as fast and one half as fast cancel.
    means = []
    for base in ("eager", "torch.compile"):
        means.append(f"{suite_.geometric_mean(everything, base):.2f}x {base}")
    say(out, f"\n{suite_.table(rows)}\n")
    say(
        out,
        f"geometric mean: {', '.join(means)}. '!' marks what is missed; 'copy': share of the copy bandwidth reached",
    )
    say(
        out,
        "'library': share of our time that matrix products and other library calls take by themselves",
    )

    results = {case.name: all_as_json(each) for case, each in zip(chosen, everything, strict=True)}
    save(args, about_machine, {"copy_bandwidth": bandwidth, "cases": results})
    return max(map(status, everything))


def on_gpu(args: argparse.Namespace, out: TextIO) -> int:
    """`suite` on a GPU. What does not fit in `--seconds` is left out, and that is told."""
    from course_lib.bench import gpu_suite

    about_machine = machine.describe()
    bandwidth = gpu_suite.copy_bandwidth()
    # `--seconds` counts from here.
    start = time.perf_counter()
    say(out, f"{machine.summary(about_machine)}\ncopy bandwidth {bandwidth / 1e9:.0f} GB/s\n")

    # Cases, each with the compilers that are compared on it
    chosen = [(case, case.contenders(not args.no_torch_compile)) for case in gpu_suite.cases()]
    case, contenders = gpu_suite.ablation()
    named = dataclasses.replace(case, name="ablation: " + case.name)
    # Before the last four, the large models, for which there may be no time
    chosen.insert(-4, (named, contenders))

    rows: list[tuple[str, ...]] = [gpu_suite.HEAD]
    results, worst = {}, 0
    for case, contenders in chosen:
        if not is_asked_for(case.name, args.names):
            continue
        if args.seconds and time.perf_counter() - start > args.seconds:
            say(out, f"{case.name}: left out, the time is up")
            continue

        outcomes = compare.compare(
            case.workload,
            contenders,
            device=args.device,
            rounds=args.iters,
            min_time=args.min_time,
            checks=case.checks,
        )

        rows_of_case = gpu_suite.lines_of(case, outcomes, bandwidth)
        rows += rows_of_case
        say(out, "\n".join("  ".join(row) for row in rows_of_case))
        for outcome in outcomes:
            notes = [outcome.problem] if outcome.problem else []
            if outcome.program:
                notes += filter(None, outcome.program.fallbacks)
            if notes:
                say(out, f"    {outcome.name}: {'; '.join(notes)}")

        # Saved after each case: the time may be up before the last.
        results[case.name] = all_as_json(outcomes)
        worst = max(worst, status(outcomes))
        save(args, about_machine, {"copy_bandwidth": bandwidth, "cases": results})

        # Programs of one case keep memory that the next may need.
        torch._dynamo.reset()
        course_lib.reset()
        torch.cuda.empty_cache()

    print("\n" + report.columns(rows), file=out)
    return worst


def compile(args: argparse.Namespace) -> int:
    """The whole first call, in fresh processes: nothing on disk, others compiled before, the same
    compiled before."""
    if is_unknown(args.names, "workload", models.FIRST_CALLS):
        return 2

    out = report.text_stream(args.json)
    about_machine = machine.describe()
    say(out, machine.summary(about_machine) + "\n")
    contenders = ["course_lib"] if args.no_torch_compile else ["course_lib", "torch.compile"]
    # The small one is what `situations` compiles first, to fill the caches: it would not find
    # "others before", but itself.
    chosen = args.names or [name for name in models.FIRST_CALLS if name != first_call.SMALL]

    # (workload, what is on disk) → compiler → its first call
    runs: dict[tuple[str, str], dict[str, first_call.FirstCall]] = {}
    for workload, situation, who, first_call_of in first_call.situations(chosen, contenders, args):
        runs.setdefault((workload, situation), {})[who] = first_call_of
        result = first_call_of.problem or f"{first_call_of.total:.2f} s"
        say(out, f"{workload}, {situation}, {who}: {result}")

    print("\n" + first_call.table(runs), file=out)

    rows = []
    for (workload, situation), by_name in runs.items():
        costs = {who: vars(first_call_of) for who, first_call_of in by_name.items()}
        rows.append({"workload": workload, "caches": situation, **costs})
    save(args, about_machine, {"runs": rows})
    return int(any(by_name["course_lib"].problem for by_name in runs.values()))


def memory(args: argparse.Namespace) -> int:
    """Whether memory stays flat over thousands of compiles and a million calls."""
    out = report.text_stream(args.json)
    about_machine = machine.describe()
    say(out, f"{machine.summary(about_machine)}\nbackend {args.backend}\n")

    # Each is an iterator: what it does is measured while it is read.
    series = {
        "compiles": leaks.compiles(args.compiles, args.backend),
        "calls": leaks.calls(args.calls, args.backend),
    }
    readings_by_name = {}
    for name, several in series.items():
        readings = list(several)
        readings_by_name[name] = [vars(reading) for reading in readings]
        bytes_, objects = leaks.gained(readings)
        say(out, f"{name}\n{leaks.table(readings)}")
        say(out, f"each leaves {bytes_:.1f} bytes and {objects:.4f} objects behind\n")

    save(args, about_machine, readings_by_name)
    return 0


def peak(args: argparse.Namespace) -> int:
    """The most memory that a training step takes, in fresh processes."""
    out = report.text_stream(args.json)
    about_machine = machine.describe()
    names = ["eager", "course_lib"]
    if not args.no_torch_compile:
        names.append("torch.compile")
    say(out, f"{machine.summary(about_machine)}\nMB that a training step takes at its height\n")

    sizes_by_work, rows = {}, [("", *names, "")]
    for work in models.TRAINED:
        sizes = {who: peak_.measure(who, work, args.device, args.dtype) for who in names}
        sizes_by_work[work] = sizes
        rows.append((work, *(f"{size:.0f}" for size in sizes.values()), ""))
    print(report.columns(rows), file=out)
    save(args, about_machine, {"megabytes": sizes_by_work})

    # What could not be measured is NaN.
    return int(any(math.isnan(sizes["course_lib"]) for sizes in sizes_by_work.values()))


# ---- shared --------------------------------------------------------------------------------------


def say(out: TextIO, text: str) -> None:
    """Print without delay, so that a long measurement can be followed."""
    print(text, file=out, flush=True)


def is_unknown(names: Sequence[str], what: str, known: Collection[str]) -> bool:
    """Is one of `names` not known? Then a sentence says which are."""
    for name in names:
        if name not in known:
            there_are = ", ".join(known)
            print(
                f"course bench: there is no {what} '{name}'; there are {there_are}", file=sys.stderr
            )
            return True
    return False


def is_asked_for(name: str, words: Sequence[str]) -> bool:
    """Does it contain one of `words`? Without words all are asked for."""
    return not words or any(word in name for word in words)


def all_as_json(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """What `--json` keeps of each."""
    return [report.as_json(outcome, outcomes) for outcome in outcomes]


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
    """Who is compared: eager, course_lib, and torch.compile if it is wanted."""
    how = (args.mode, args.dynamic or None, args.fullgraph)
    chosen = [compare.eager(), compare.ours(*how)]
    if args.no_torch_compile:
        return chosen
    return [*chosen, compare.theirs(*how)]


def status(outcomes: Sequence[Outcome]) -> int:
    """1 if any result is wrong or if ours did not run: torch.compile may be unable to run here."""
    for outcome in outcomes:
        is_theirs = outcome.name.startswith("torch.compile")
        if outcome.wrong or (outcome.problem and not is_theirs):
            return 1
    return 0


def save(args: argparse.Namespace, about_machine: dict[str, Any], results: dict[str, Any]) -> None:
    """Write the JSON that `--json` asks for."""
    if not args.json:
        return
    # These say where the outcome goes, not what was measured.
    no_arguments = ("run", "json", "plot")
    arguments = {name: value for name, value in vars(args).items() if name not in no_arguments}
    arguments["dtype"] = str(args.dtype).removeprefix("torch.")
    record = {"benchmark": args.command, **about_machine, "arguments": arguments, **results}
    report.write_json(args.json, record)
