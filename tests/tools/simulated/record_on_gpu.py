"""Run all kernels of this folder on a GPU and keep what they give.

    python tests/tools/simulated/record_on_gpu.py FOLDER --seconds 150 --random 3000
    python tests/tools/simulated/record_on_gpu.py FOLDER --seconds 110 --random 3000 --first 200000

In:  a machine with a GPU, torch and Triton; no `course_lib`.
Out: `recorded_own.npz`, `recorded_random.npz` and `recorded_probes.json` in FOLDER, with machine, versions and date.

Compiling takes the time, so that as many processes run as there are cores. After `--seconds` no further kernel is started.
With `--first` only random kernels run, from this seed on: those of `fresh.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np


def versions() -> dict[str, str]:
    import torch
    import triton

    return {
        "gpu": torch.cuda.get_device_name(), "triton": triton.__version__, "torch": torch.__version__,
        "python": platform.python_version(), "numpy": np.__version__, "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def jobs(random: int, first: int) -> list:
    """All programs: our own, then the random ones; from another seed than 0 the random ones alone."""
    from own_programs import PROGRAMS
    from random_small_kernels import random_program

    own = [] if first else PROGRAMS
    return [*own, *(random_program(seed) for seed in range(first, first + random))]


def work(given: argparse.Namespace) -> None:
    """One process: every `workers`-th program."""
    from small_kernels import run

    done: dict[str, str] = {}
    for program in jobs(given.random, given.first)[given.part :: given.workers]:
        if time.time() > given.until:
            break
        try:
            done[program.name] = run(program, "cuda").hex()
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            done[program.name] = f"! {type(error).__name__}: {lines[-1][:300]}"
    (given.folder / f"part{given.part}.json").write_text(json.dumps(done))


def probes(folder: Path, until: float) -> None:
    """The 48 kernels of the discovery."""
    import probes as table

    done = {}
    for number in sorted(table.PROBES):
        if time.time() > until:
            break
        try:
            done[f"{number:02d}"] = str(table.run(number))
        except Exception as error:
            done[f"{number:02d}"] = f"! {type(error).__name__}: {error}"
    (folder / "recorded_probes.json").write_text(
        json.dumps({**versions(), "answers": done}, indent=1)
    )


def save(path: Path, results: dict[str, str], about: dict[str, str]) -> None:
    """Names, and all bytes in one row; a text that begins with `!` is an error."""
    names = sorted(results)
    raw = [
        results[n].encode() if results[n].startswith("!") else bytes.fromhex(results[n])
        for n in names
    ]
    np.savez_compressed(
        path, names=np.array(names), ends=np.cumsum([len(r) for r in raw]), data=np.frombuffer(b"".join(raw), np.uint8),
        about=np.array(json.dumps(about)),
    )  # fmt: skip


def load(path: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """(machine, versions and date; name → the bytes of its result)."""
    stored = np.load(path)
    parts = np.split(stored["data"], stored["ends"][:-1])
    return json.loads(str(stored["about"])), {
        str(n): p.tobytes() for n, p in zip(stored["names"], parts)
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--random", type=int, default=3000)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--first", type=int, default=0, help="the first seed of the random ones")
    parser.add_argument("--until", type=float)
    parser.add_argument("--part", type=int)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.part == -1:
        return probes(given.folder, given.until)
    if given.part is not None:
        return work(given)

    until = time.time() + given.seconds
    command = [
        sys.executable,
        __file__,
        str(given.folder),
        "--until",
        str(until),
        "--workers",
        str(given.workers),
        "--random",
        str(given.random),
        "--first",
        str(given.first),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([*command, "--part", str(part)], env=environment)
        for part in range(0 if given.first else -1, given.workers)
    ]
    for process in running:
        try:
            process.wait(max(1.0, until + 25 - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()

    results: dict[str, str] = {}
    for part in given.folder.glob("part*.json"):
        results |= json.loads(part.read_text())
        part.unlink()
    about = versions()
    own = {k: v for k, v in results.items() if not k.startswith("random ")}
    if own:
        save(given.folder / "recorded_own.npz", own, about)
    random = {k: v for k, v in results.items() if k.startswith("random ")}
    save(given.folder / f"recorded_{'fresh' if given.first else 'random'}.npz", random, about)
    errors = {k: v for k, v in results.items() if v.startswith("!")}
    print(about, len(results), "results,", len(errors), "errors")
    for name, text in list(errors.items())[:40]:
        print(name, text[:160])


if __name__ == "__main__":
    main()
