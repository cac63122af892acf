"""Run a script that knows nothing of this library, with its compiles recorded.

    python -m course_lib.viz.report.script [--torch-compile] script.py [arguments]

(`course report` does this.)

In:  a script, or `-m module`, and its arguments. Out: what the script does; `COURSE_TRACE` says
where the report goes. With `--torch-compile`, `torch.compile` in it means `cl.compile`; not so in
processes that the script starts anew (`multiprocessing` with "spawn").
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

TAKE_OVER = "--torch-compile"
"""The option that lets `torch.compile` mean `cl.compile`."""
INTERRUPTED, FAILED = 130, 1
"""Exit statuses, as shells and Python have them: 128 and the number of the signal (2, Ctrl-C); an
exception."""


def take_over() -> None:
    """From now on `torch.compile` is `cl.compile`.

    Backends and options that only torch has are left out."""
    import torch

    import course_lib as cl

    def compile(model: Any = None, **options: Any) -> Any:
        """In place of `torch.compile`."""
        understood: dict[str, Any] = {
            name: options[name]
            for name in ("fullgraph", "dynamic", "mode", "disable")
            if name in options
        }
        backend = options.get("backend", "inductor")
        understood["backend"] = (
            backend if callable(backend) or backend in cl.list_backends() else "inductor"
        )
        return cl.compile(model, **understood)

    torch.compile = compile


def main(arguments: list[str]) -> None:
    """Run a script (or `-m module`) as the main program."""
    import course_lib  # noqa: F401  (which starts the recording)
    from course_lib.viz.report import whole_run as tracing

    if arguments[:1] == [TAKE_OVER]:
        arguments = arguments[1:]
        take_over()
    # As Python itself does for a script or a module: its own arguments, and the folder from which
    # it imports first.
    as_module = arguments[0] == "-m"
    sys.argv = arguments[1:] if as_module else arguments
    sys.path[0] = os.getcwd() if as_module else os.path.dirname(os.path.abspath(arguments[0]))
    try:
        if as_module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(os.path.abspath(arguments[0]), run_name="__main__")
    except SystemExit as leaving:
        if leaving.code and tracing.SESSION:
            tracing.SESSION.run.error = f"The program left by sys.exit({leaving.code!r})."
        raise
    except BaseException as error:
        # Python would print the frames of this file, too.
        error.__traceback__ = own_part(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED)


def own_part(trace: Any) -> Any:
    """The part of a traceback that begins in the script, without the frames that started it."""
    ours = (__file__, "<frozen runpy>")
    while (
        trace is not None
        and trace.tb_next is not None
        and trace.tb_frame.f_code.co_filename in ours
    ):
        trace = trace.tb_next
    return trace


def run_traced(arguments: list[str], folder: Path, torch_compile: bool = False) -> int:
    """Run a script in a process of its own, its report in `folder`; its exit status comes back."""
    command = [sys.executable, "-m", __name__, *([TAKE_OVER] if torch_compile else []), *arguments]
    status = subprocess.run(
        command, env={**os.environ, "COURSE_TRACE": str(folder.absolute())}
    ).returncode
    if status < 0:
        print(
            f"course: the script was ended by signal {-status}; the report holds what was compiled before",
            file=sys.stderr,
        )
    # A process that a signal has ended has the status -signal here, and 128 + signal in a shell.
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    main(sys.argv[1:])
