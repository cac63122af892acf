"""What a save in JupyterLab writes over is kept, and `course undo` brings back what another window had saved."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from tiny_course import tiny_course

from course_lib.grading import copies, history, lab_saves, writing
from course_lib.grading.cli import main
from course_lib.grading.exercise_files import generate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copied(tmp_path, monkeypatch):
    lesson = tiny_course(tmp_path)
    generate(lesson)
    monkeypatch.chdir(tmp_path)
    copies.start(lesson)
    return lesson


@pytest.fixture
def save(copied, monkeypatch):
    """Save the copy from a window of Lab, with these words in its first cell: what the server does with it."""
    from jupyter_server.services.contents.largefilemanager import LargeFileManager

    manager = LargeFileManager(root_dir=str(copied.root))
    saves = lab_saves.Saves(logging.getLogger("server"))
    manager.register_pre_save_hook(saves.before)

    def saved(window: str, words: str, output: str = "") -> None:
        monkeypatch.setattr(lab_saves, "name_of_window", lambda: window)
        manager.save({"type": "notebook", "content": content(copied, words, output)}, path(copied))

    return saved


def path(lesson) -> str:
    return str(lesson.copy.relative_to(lesson.root))


def content(lesson, words: str, output: str = "") -> dict:
    nb = json.loads(lesson.copy.read_text(encoding="utf-8"))
    nb["cells"][0]["source"] = words
    code = next(cell for cell in nb["cells"] if cell["cell_type"] == "code")
    code["outputs"] = [{"output_type": "stream", "name": "stdout", "text": output}]
    return nb


def first_cell(lesson) -> str:
    return "".join(json.loads(lesson.copy.read_text(encoding="utf-8"))["cells"][0]["source"])


def reasons(lesson) -> list[str]:
    return [version.why for version in history.versions(lesson)]


def test_undo_brings_back_what_another_window_had_saved(copied, save, capsys):
    save("first", "written in the first window")
    save("first", "more in the first window")
    save("second", "written in the second window")
    assert reasons(copied) == ["save", "save", "window"]

    assert main(["undo", "1"]) == 0
    assert "before another window of JupyterLab saved over it" in capsys.readouterr().out
    assert first_cell(copied) == "more in the first window"
    # and again: the second window's
    assert main(["undo", "1"]) == 0 and first_cell(copied) == "written in the second window"


def test_undo_takes_back_the_command_and_tells_of_the_saves_behind_it(copied, save, capsys):
    save("first", "an answer")
    history.keep_now(copied, "update")
    save("first", "better")
    save("first", "still better")
    assert main(["undo", "1"]) == 0 and first_cell(copied) == "an answer"
    assert "JupyterLab's saves since then are kept, too (1): `course undo 01 --list`" in (
        capsys.readouterr().out
    )
    better = next(v for v in history.versions(copied) if "better" in v.path.read_text())
    assert main(["undo", "1", "--to", str(better.number)]) == 0 and first_cell(copied) == "better"


@pytest.mark.parametrize("left", [None, b"", b"{"])
def test_a_copy_that_is_gone_or_spoilt_comes_back_as_of_the_last_kept_save(copied, save, left):
    history.keep_now(copied, "check")
    save("first", "an answer")
    save("first", "better")
    copied.copy.unlink()
    if left is not None:
        copied.copy.write_bytes(left)
    assert main(["undo", "1"]) == 0 and first_cell(copied) == "an answer"


def test_a_save_that_changes_outputs_only_keeps_nothing(copied, save):
    save("first", "an answer")
    save("first", "an answer", output="5.0\n")
    save("second", "an answer", output="6.0\n")
    assert reasons(copied) == ["save"]


def test_many_saves_push_out_no_version_of_a_command(copied, save):
    history.keep_now(copied, "check")
    for number in range(history.SAVES + 15):
        save("first", f"typed {number}")
    save("second", "from the second window")
    kept = reasons(copied)
    assert kept[0] == "check" and kept.count("save") <= history.SAVES and kept[-1] == "window"


def test_a_file_that_lab_left_cut_is_kept_before_the_next_save(copied, save):
    save("first", "an answer")
    whole = content(copied, "an answer")
    copied.copy.write_bytes(copied.copy.read_bytes()[:500])
    assert lab_saves.changes_text(copied.copy.read_bytes(), whole)


@pytest.mark.parametrize("name", ["notes.ipynb", "notes.txt"])
def test_other_files_are_saved_as_ever(copied, name):
    assert lab_saves.lesson_of((copied.work / name).resolve()) is None
    assert lab_saves.lesson_of(copied.exercise.resolve()) is None
    assert lab_saves.lesson_of(copied.copy.resolve()) == copied


def test_a_save_goes_on_where_nothing_can_be_kept(copied, save, monkeypatch, caplog):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "write_new", full)
    save("first", "an answer")
    assert first_cell(copied) == "an answer" and reasons(copied) == []
    assert "before this save is not kept" in caplog.text


def test_a_save_waits_a_moment_only_for_a_command(copied, save, caplog):
    with writing.alone(copied.work):
        before = time.monotonic()
        save("first", "an answer")
    assert time.monotonic() - before < 5 and first_cell(copied) == "an answer"


def test_make_setup_and_make_lab_tell_the_server():
    told = "$(BIN)/python course_lib/grading/lab_saves.py"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    setup, _, lab = makefile.partition("\nlab: $(STAMP)")
    assert told in setup and told in lab


@pytest.mark.slow
def test_the_server_tells_two_windows_apart(copied, tmp_path):
    """The server itself, with its configuration, its requests and two of Lab's workspaces."""
    lab_saves.install(str(tmp_path / "prefix"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token, address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", f"--port={port}"]
    command += ["--allow-root", f"--IdentityProvider.token={token}"]
    command += [f"--ServerApp.root_dir={copied.root}", "--ServerApp.disable_check_xsrf=True"]
    config = str(tmp_path / "prefix" / "etc" / "jupyter")
    environment = os.environ | {"JUPYTER_CONFIG_PATH": config, "PYTHONPATH": str(ROOT)}
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def put(workspace: str, words: str) -> None:
        model = {"type": "notebook", "format": "json", "content": content(copied, words)}
        request = urllib.request.Request(
            f"{address}/api/contents/{path(copied)}", json.dumps(model).encode(), method="PUT"
        )
        request.add_header("Authorization", f"token {token}")
        request.add_header("Referer", f"{address}{workspace}/tree/{path(copied)}")
        urllib.request.urlopen(request, timeout=30).close()

    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api?token={token}", timeout=2).close()
                break
            except OSError:
                assert server.poll() is None, "the server ended"
                time.sleep(0.25)
        put("/lab", "first window")
        put("/lab", "first window, more")
        put("/lab/workspaces/auto-k", "second window")
    finally:
        server.terminate()
        server.wait(20)
    assert reasons(copied) == ["save", "save", "window"]
    assert main(["undo", "1"]) == 0 and first_cell(copied) == "first window, more"
