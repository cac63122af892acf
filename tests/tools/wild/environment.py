"""Packages on demand: an environment on top of this one, so that torch stays the torch that is here.

In:  names of packages. Out: the Python of an environment in which they can be imported, and which could not be installed.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib.metadata import distributions, version
from pathlib import Path

KEPT = ("torch", "numpy", "sympy", "triton")
"""pip may not install another one of these."""


class Environment:
    """A folder with an environment. It sees this environment's packages, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.constraints = folder / "constraints.txt"

    def make(self) -> None:
        """Make it, if it is not there."""
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)

        # the packages that are here, behind those that are installed there
        (self.site / "zz_below.pth").write_text(
            f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        )
        self.constraints.write_text("".join(f"{name}=={version(name)}\n" for name in KEPT))

    def install(self, packages: tuple[str, ...]) -> str:
        """Install what is missing. Gives pip's complaint, or "" if all are there."""
        missing = [one for one in packages if not self.has(one)]
        if not missing:
            return ""

        # with what they need; where that does not fit this torch, without
        for extra in ([], ["--no-deps"]):
            command = [
                *(str(self.python), "-m", "pip", "install", "-q", *extra),
                *("-c", str(self.constraints), *missing),
            ]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                self.remove_what_does_not_load()
                return ""
        return done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "pip failed"

    def remove_what_does_not_load(self) -> None:
        """torchaudio is built for another torch, and those who can use it fail if it is there and does not load."""
        if self.has("torchaudio"):
            command = [str(self.python), "-m", "pip", "uninstall", "-q", "-y", "torchaudio"]
            subprocess.run(command, capture_output=True)

    def has(self, package: str) -> bool:
        """Is it installed, there or here?"""
        found = distributions(name=package, path=[str(self.site), *sys.path])
        return next(iter(found), None) is not None

    @property
    def site(self) -> Path:
        """Where its packages lie."""
        return next(self.folder.glob("lib/python*/site-packages"))
