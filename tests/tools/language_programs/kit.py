"""What all programs share: how one is registered, makers of arguments, and a log of what ran."""

import string

import torch

PROGRAMS = {}
"""Name → (function, maker of arguments, allowed graph breaks)."""
LOG = []
randn = torch.randn

# Python 3.14 writes into this class at its first use.
string.Template("$a").substitute(a=1)


def one(i):
    return (randn(3),)


def number(i):
    return randn(3), i


def program(make=one, breaks=0):
    """Register a program; `make(i)` gives its arguments."""

    def register(function):
        assert function.__name__ not in PROGRAMS, function.__name__
        PROGRAMS[function.__name__] = (function, make, breaks)
        return function

    return register
