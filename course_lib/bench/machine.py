"""Where a number was measured: without it, a number says nothing."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from course_lib.config import find_cxx


def describe() -> dict[str, Any]:
    """Machine, versions and date, ready for JSON."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "simd": torch.backends.cpu.get_cpu_capability(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "load": round(os.getloadavg()[0], 2),
            "system": platform.system(),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "triton": version_of("triton"),
            "course_lib": course_version(),
            "c++": cxx_version(),
        },
    }


def summary(about_machine: dict[str, Any]) -> str:
    """`describe` in a line or two."""
    machine, versions = about_machine["machine"], about_machine["versions"]
    where = f"{machine['cpu']}, {machine['cores']} cores ({machine['simd']})"
    if machine["gpu"]:
        where += f", {machine['gpu']}"
    engines = f"torch {versions['torch']}, course_lib {versions['course_lib']}"
    line = f"{where} · Python {versions['python']}, {engines}"

    busy = machine["load"] > 0.75 * (machine["cores"] or 1)
    if busy:
        line += f"\nThe machine is busy (load {machine['load']}): trust the ratios, not the times."
    return line


def cpu_name() -> str:
    """The processor as its maker calls it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    if platform.system() == "Darwin":
        return first_line("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def cxx_version() -> str | None:
    """What the C++ compiler says of itself; None where there is none."""
    compiler = find_cxx()
    if compiler:
        return first_line(compiler, "--version")
    return None


def course_version() -> str:
    import course_lib

    return course_lib.__version__


def version_of(package: str) -> str | None:
    """The version that is installed; None where there is none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def first_line(*command: str) -> str | None:
    """What a program prints first; None where it does not run."""
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    if output.strip():
        return output.strip().splitlines()[0]
    return None
