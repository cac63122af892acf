"""Random kernels that no GPU has run: what the simulator says of new ones, and of new planted faults.

    python tests/tools/simulated/fresh.py --start 100000 --count 3000 --planted 500 --compiled 100 --keep /tmp/a.json
    python tests/tools/simulated/fresh.py --compare /tmp/a.json /tmp/b.json
    python tests/tools/simulated/fresh.py --recorded recorded_fresh.npz

The first line runs kernels with the checks on. It prints each complaint about a kernel that has no fault (none is right), each planted
fault that is not named, and each of the first `--compiled` kernels that the compiler would refuse. `--keep` writes a short
hash of each result. The second line compares two such files, of two versions of Triton: the
simulator is mended by version, so a kernel with two results is wrong in one of them, or Triton has changed. The third line sets the results
beside those that `record_on_gpu.py --first` has brought from a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

from course_lib import simulator  # noqa: E402  (before Triton: it switches the simulator on)

MOST = 0.05
"""The part of the planted faults that may be missed."""


def complaint(program, **settings) -> tuple[str, str]:
    """(a hash of the result, what was said against the kernel)."""
    from small_kernels import run

    with contextlib.redirect_stderr(io.StringIO()), simulator.using(**settings):
        try:
            return hashlib.sha256(run(program, "cpu")).hexdigest()[:16], ""
        except Exception as error:
            return "", f"{type(error).__name__}: {error}"


def clean(start: int, count: int, compiled: int) -> tuple[dict[str, str], int]:
    """Kernels without a fault: name → hash of the result, and how many were complained about."""
    from random_small_kernels import random_program

    results: dict[str, str] = {}
    complaints = 0
    for place, seed in enumerate(range(start, start + count)):
        program = random_program(seed)
        results[program.name], said = complaint(program, refusals=place < compiled)
        if said:
            complaints += 1
            print(f"{program.name}: {said.splitlines()[0][:200]}", flush=True)
    print(f"{count} kernels without a fault: {complaints} complained about")
    return results, complaints


def missed(start: int, count: int) -> int:
    """Kernels with a planted fault: how many of the faults were not named."""
    from random_small_kernels import planted

    silent = 0
    for seed in range(start, start + count):
        program, word = planted(seed)
        _, said = complaint(program, refusals=False)
        if word not in said:
            silent += 1
            print(f"{program.name}: expected `{word}`, said `{said[:200]}`", flush=True)
    print(f"{count} planted faults: {silent} missed")
    return silent


def compare(first: Path, second: Path) -> int:
    """Print the kernels with two results; 1 if there is one."""
    one, other = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
    both = one.keys() & other.keys()
    different = sorted(name for name in both if one[name] != other[name])
    print(f"{len(both)} kernels in both files, {len(different)} with two results")
    print("\n".join(different))
    return 1 if different or not both else 0


def beside_the_gpu(path: Path) -> int:
    """Print how many kernels give what a GPU gave, and those that differ; 1 if there is one."""
    from random_small_kernels import random_program
    from record_on_gpu import load
    from small_kernels import compare as compare_results
    from small_kernels import run

    about, recorded = load(path)
    kinds: Counter[str] = Counter()
    for name, theirs in recorded.items():
        program = random_program(int(name.removeprefix("random ")))
        with simulator.using(refusals=False):
            mine = run(program, "cpu")
        if len(mine) != len(theirs):
            # What stands there is the text of an error
            kinds["failed on the GPU"] += 1
            print(f"{name}: {theirs.decode()}", flush=True)
            continue
        comparison = compare_results(program, mine, theirs)
        kinds[comparison.kind] += 1
        if comparison.kind == "different":
            print(f"{name}: {comparison}, {comparison.ulps:.3g} ulp", flush=True)
    print(f"{about}: {dict(kinds)}")
    return 1 if kinds["different"] else 0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--start", type=int, default=100_000, help="the first seed")
    parser.add_argument("--count", type=int, default=3000, help="kernels without a fault")
    parser.add_argument("--planted", type=int, default=500, help="kernels with one")
    parser.add_argument("--compiled", type=int, default=100, help="so many are compiled, too")
    parser.add_argument("--keep", type=Path, help="write the hashes of the results into this file")
    parser.add_argument("--compare", type=Path, nargs=2, help="two such files")
    parser.add_argument("--recorded", type=Path, help="results of a GPU")
    chosen = parser.parse_args()
    if chosen.compare:
        return compare(*chosen.compare)

    warnings.simplefilter("ignore")
    if chosen.recorded:
        return beside_the_gpu(chosen.recorded)

    import triton

    print(f"Triton {triton.__version__}, seeds from {chosen.start}")
    results, complaints = clean(chosen.start, chosen.count, chosen.compiled)
    if chosen.keep:
        chosen.keep.write_text(json.dumps(results), encoding="utf-8")
    silent = missed(chosen.start, chosen.planted)
    return 1 if complaints or silent > MOST * chosen.planted else 0


if __name__ == "__main__":
    sys.exit(main())
