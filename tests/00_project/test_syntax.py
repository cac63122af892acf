"""Source is read in several threads at a time: the grader has one for each learner's notebook."""

from __future__ import annotations

import gc
import threading
import time

from course_lib.syntax import parse

SOURCE = "\n".join(f"x{number} = a + b * (a - b)" for number in range(30))


def read_at_depth(depth: int) -> None:
    """Read the source with `depth` more calls on the stack: CPython counts them, too."""
    if depth:
        read_at_depth(depth - 1)
    else:
        parse(SOURCE)


def test_threads_that_read_source_do_not_disturb_each_other():
    """With `ast.parse` itself this fails on CPython 3.11: "AST constructor recursion depth
    mismatch"."""
    failures: list[BaseException] = []

    def read(depth: int) -> None:
        try:
            for _ in range(5):
                read_at_depth(depth)
        except SystemError as error:
            failures.append(error)

    def let_others_run(phase: str, info: dict[str, int]) -> None:
        time.sleep(0.0001)

    # the collector runs while a tree is built, and lets another thread run
    threshold = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(20)
    try:
        threads = [threading.Thread(target=read, args=(3 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(let_others_run)
    assert failures == []
