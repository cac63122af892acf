"""The house stays small: no file over 700 lines, the compiler within 12,000."""

from __future__ import annotations

import house_size


def test_the_house_is_within_its_limits():
    assert house_size.measure().complaints == []


def write(folder, path, lines):
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text("pass\n" * lines)


def test_a_file_of_701_lines_is_too_long(tmp_path):
    write(tmp_path, "course_lib/capture/a.py", 700)
    assert house_size.measure(tmp_path).complaints == []
    write(tmp_path, "course_lib/capture/a.py", 701)
    assert "course_lib/capture/a.py has 701 lines" in house_size.measure(tmp_path).complaints[0]


def test_c_counts_and_pictures_grading_bench_and_tests_do_not(tmp_path):
    write(tmp_path, "course_lib/frames/hook.c", 5)
    write(tmp_path, "course_lib/pipeline.py", 7)
    write(tmp_path, "course_lib/a_new_room/x.py", 11)
    for path in ("course_lib/viz/a.py", "course_lib/grading/a.py", "course_lib/bench/a.py", "tests/a.py"):
        write(tmp_path, path, 100)
    assert house_size.measure(tmp_path).compiler == 23


def test_a_compiler_over_its_limit_is_told(tmp_path):
    for i in range(18):
        write(tmp_path, f"course_lib/capture/{i}.py", 700)
    assert house_size.measure(tmp_path).complaints == ["the compiler has 12,600 lines; the limit is 12,000. Simplify it."]


def test_the_table_has_a_row_for_each_room(tmp_path):
    write(tmp_path, "course_lib/frames/hook.c", 5)
    write(tmp_path, "course_lib/viz/a.py", 9)
    rows = [line.split() for line in str(house_size.measure(tmp_path)).splitlines()]
    assert ["frames", "1", "5"] in rows and ["compiler", "1", "5", "of", "12,000"] in rows and ["viz", "1", "9"] in rows


def test_the_limits_are_the_ones_that_contributors_are_told():
    told = (house_size.ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"No file over {house_size.FILE_LIMIT} lines" in told
    assert f"the compiler within {house_size.COMPILER_LIMIT:,}" in told
    assert f"at most {house_size.COMPILER_LIMIT:,} lines" in (house_size.ROOT / "README.md").read_text(encoding="utf-8")
