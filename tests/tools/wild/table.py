"""The table of programs: what each compiles, what it gets, and from which package it comes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Inputs = Callable[[int], "tuple[Any, ...] | dict[str, Any]"]
"""What one call gets: positional arguments, or keyword arguments. Its argument is a size, often the batch."""


@dataclass
class Training:
    """A program under trial.

    call: the module or function that is compiled. Its floating-point results are squared and summed for a loss.
    inputs: its arguments for a size.
    parameters: what is trained. None: the parameters of `call`, if it is a module.
    """

    call: Any
    inputs: Inputs
    parameters: Iterable[torch.nn.Parameter] | None = None

    def trained(self) -> list[torch.nn.Parameter]:
        """The parameters, in order."""
        if self.parameters is not None:
            return list(self.parameters)
        if isinstance(self.call, torch.nn.Module):
            return list(self.call.parameters())
        return []


@dataclass(frozen=True)
class Program:
    """One row: its name, what makes it, and what pip must install for it (the first: the package it stands for)."""

    name: str
    make: Callable[[], Training]
    packages: tuple[str, ...]


PROGRAMS: dict[str, Program] = {}


def program(*packages: str) -> Callable[[Callable[[], Training]], Callable[[], Training]]:
    """Register a program. `packages`: what pip calls them; the first one is the one that the row is about."""

    def register(make: Callable[[], Training]) -> Callable[[], Training]:
        name = make.__name__
        assert name not in PROGRAMS, f"two programs are called {name}"
        PROGRAMS[name] = Program(name, make, packages)
        return make

    return register


def load() -> dict[str, Program]:
    """All programs. (None of their packages is imported before a program is made.)"""
    folder = Path(__file__).with_name("programs")
    for module in sorted(one.name for one in pkgutil.iter_modules([str(folder)])):
        importlib.import_module(f"programs.{module}")
    return PROGRAMS


# ---- what many programs share ------------------------------------------------------------------------


def images(side: int = 32, channels: int = 3) -> Inputs:
    """A batch of images."""
    return lambda n: (torch.randn(n, channels, side, side),)


def tokens(vocabulary: int = 99, batch: int = 2, length: int = 12) -> Inputs:
    """Sequences of token numbers: each size is four tokens longer."""
    return lambda n: (torch.randint(0, vocabulary, (batch, length + 4 * n)),)


def rows(width: int) -> Inputs:
    """A batch of vectors."""
    return lambda n: (torch.randn(4 * n, width),)


def sequences(width: int, batch: int = 2, length: int = 8) -> Inputs:
    """A batch of sequences of vectors: each size is four longer."""
    return lambda n: (torch.randn(batch, length + 4 * n, width),)


def declare_operators() -> Any:
    """torchvision without its C++ operators, where these do not load: they are declared, for no program here calls them.

    What it gives must be kept: the declarations go with it.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    pairs = "roi_align ps_roi_align roi_pool ps_roi_pool deform_conv2d".split()
    for name in ["nms", "qnms", "qroi_align", *pairs, *(f"_{name}_backward" for name in pairs)]:
        library.define(f"{name}(Tensor a) -> Tensor")
    return library
