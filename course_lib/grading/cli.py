"""The `course` command.

In:  a subcommand and its arguments. Out: text on the terminal and an exit status.

The commands themselves are in `commands/`, a file a group. What they share is here: the parser, and
the rule that a mistake in the course's files or in the arguments is told in one sentence, without a
traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from course_lib import __version__
from course_lib.languages import phrase

from .commands import Commands, author, learner, learner_copies, teacher, tools
from .mistakes import sentence
from .terminal import Help, fold_long_lines, show_every_sign

# Their options are their own: argparse would take `--help` for its own.
OWN_OPTIONS = {"bench": tools.bench, "coverage": tools.coverage}
MISTAKE, INTERRUPTED = 2, 130
"""Exit statuses: for wrong input, as argparse has it; after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    show_every_sign()
    # jsonschema, which nbformat loads, would build a grammar of international addresses from this
    # module, which takes a second and more. None in its place says that it is not installed.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        parser().print_help()
        return 0

    # These print what somebody's program prints, or code: its lines must stay as they are.
    if words[0] not in ("report", "demo", *OWN_OPTIONS):
        fold_long_lines()
    try:
        return run(words)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `course doctor | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        # A mistake of the user's is told in a sentence; what is none is a fault of ours.
        error_text = sentence(error)
        if not error_text:
            raise
        print(f"course: {error_text}", file=sys.stderr)
        return MISTAKE


def run(words: list[str]) -> int:
    """Run the command that these words name; its exit status comes back."""
    own_command = OWN_OPTIONS.get(words[0])
    if own_command is not None:
        return own_command(argparse.Namespace(arguments=words[1:]))

    args = parser().parse_args(words)
    return int(args.run(args))


def parser() -> argparse.ArgumentParser:
    """The commands in the order in which `course --help` lists them."""
    top = argparse.ArgumentParser(
        prog="course",
        description=phrase("A readable torch.compile, and a course that walks through it."),
        epilog=phrase("`course COMMAND --help` says more about one of them."),
        formatter_class=a_line_each,
    )
    top.add_argument("-V", "--version", action="version", version=f"course_lib {__version__}")

    commands = Commands(top.add_subparsers(dest="command", required=True, metavar="command"))
    for group in (tools, learner, learner_copies, teacher, author):
        group.add(commands)
    return top


def a_line_each(prog: str) -> argparse.HelpFormatter:
    """Help in which each command stands beside what it does, in 80 columns where the terminal has
    no more."""
    return Help(prog, max_help_position=18)


if __name__ == "__main__":
    sys.exit(main())
