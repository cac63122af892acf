"""Opening and saving a notebook of the course in JupyterLab changes no file that git looks at."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from course_lib.grading.handed_out import is_committed
from course_lib.grading.kernelspec import LAUNCH, WRAPPED, install, with_launch, wrap_long_lines
from course_lib.grading.notebooks import KERNELSPEC, LANGUAGE_INFO, Lesson, read

ROOT = Path(__file__).parents[2]
STORED = [
    path
    for kind in ("notebooks/*.ipynb", "solutions/*/*.ipynb", "exercises/*/*.ipynb")
    for path in sorted(ROOT.glob(kind))
    if path.parts[-3] != "exercises" or is_committed(Lesson(ROOT, path.stem))
]


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parts[-2]}-{path.stem}")
def test_a_stored_notebook_says_what_lab_would_write_into_it(path):
    about = json.loads(path.read_text(encoding="utf-8"))["metadata"]
    assert about["language_info"] == LANGUAGE_INFO and about["kernelspec"] == KERNELSPEC


def test_saving_what_the_server_gave_to_lab_gives_the_same_bytes(tmp_path):
    """What Lab does when a notebook that nobody changed is saved: the server's own reading and writing."""
    from jupyter_server.services.contents.largefilemanager import LargeFileManager

    for path in STORED:
        shutil.copy(path, tmp_path / f"{path.parts[-2]}-{path.name}")
    manager = LargeFileManager(root_dir=str(tmp_path))
    for copied in sorted(tmp_path.glob("*.ipynb")):
        before = copied.read_bytes()
        # as Lab gets it, and sends it back
        model = json.loads(json.dumps(manager.get(copied.name, type="notebook"), default=str))
        manager.save({"type": "notebook", "content": model["content"]}, copied.name)
        assert copied.read_bytes() == before, copied.name


@pytest.mark.slow
def test_the_courses_kernel_tells_lab_what_the_notebooks_say(tmp_path, monkeypatch):
    from jupyter_client.manager import start_new_kernel

    install(str(tmp_path))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    manager, client = start_new_kernel(kernel_name="course", startup_timeout=120)
    try:
        told = client.kernel_info(reply=True, timeout=60)["content"]["language_info"]
        client.execute_interactive("import sys; x = sys.path[0]", timeout=60)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert told == LANGUAGE_INFO


def test_the_kernel_is_ipykernels_with_other_first_words():
    argv = [
        sys.executable,
        "-Xfrozen_modules=off",
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ]
    assert with_launch(argv) == [*argv[:2], "-c", LAUNCH, *argv[4:]]


def test_the_reader_keeps_what_lab_wrote():
    assert read(STORED[0]).metadata["language_info"] == LANGUAGE_INFO


def test_lab_folds_long_lines_of_code(tmp_path):
    path = wrap_long_lines(str(tmp_path))
    (setting,) = json.loads(path.read_text(encoding="utf-8")).values()
    assert setting["codeCellConfig"]["lineWrap"] is True
    assert path.parts[-4:-1] == ("jupyter", "lab", "settings")


def test_settings_that_are_there_stay(tmp_path):
    path = wrap_long_lines(str(tmp_path))
    mine = {key: {"codeCellConfig": {"lineWrap": False}} for key in WRAPPED} | {"other": {"a": 1}}
    path.write_text(json.dumps(mine), encoding="utf-8")
    wrap_long_lines(str(tmp_path))
    assert json.loads(path.read_text(encoding="utf-8")) == mine

    path.write_text("{not json", encoding="utf-8")
    wrap_long_lines(str(tmp_path))
    assert path.read_text(encoding="utf-8") == "{not json"


def test_lab_knows_the_setting_that_folds_lines():
    """The name is that of the installed JupyterLab's own schema."""
    schemas = Path(sys.prefix, "share/jupyter/lab/schemas")
    (key,) = WRAPPED
    package, plugin = key.split(":")
    schema = schemas / package / f"{plugin}.json"
    if not schema.is_file():
        pytest.skip("JupyterLab is not installed here")
    known = json.loads(schema.read_text(encoding="utf-8"))["properties"]["codeCellConfig"][
        "default"
    ]
    assert "lineWrap" in known
