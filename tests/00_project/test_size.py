"""`make size` reports how long each room is. It holds no limit."""

from __future__ import annotations

import house_size


def write(folder, path, lines):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("pass\n" * lines)


def rows(folder):
    return [line.split() for line in str(house_size.measure(folder)).splitlines()]


def test_c_counts_and_pictures_grading_bench_and_tests_do_not(tmp_path):
    write(tmp_path, "course_lib/frames/hook.c", 5)
    write(tmp_path, "course_lib/pipeline.py", 7)
    write(tmp_path, "course_lib/a_new_room/x.py", 11)
    not_the_compiler = ("course_lib/viz/a.py", "course_lib/grading/a.py", "course_lib/bench/a.py")
    for path in (*not_the_compiler, "tests/a.py"):
        write(tmp_path, path, 100)

    assert sum(house_size.measure(tmp_path).compiler.values()) == 23


def test_the_table_has_a_row_for_each_room(tmp_path):
    write(tmp_path, "course_lib/frames/hook.c", 5)
    write(tmp_path, "course_lib/viz/a.py", 9)

    table = rows(tmp_path)

    assert ["frames", "1", "5", "0"] in table
    assert ["compiler", "1", "5", "0"] in table
    assert ["viz", "1", "9", "0"] in table


def test_corners_are_counted_apart(tmp_path):
    write(tmp_path, "course_lib/capture/interpreter.py", 40)
    write(tmp_path, "course_lib/capture/corners/autocast.py", 6)

    assert ["capture", "2", "40", "6"] in rows(tmp_path)
