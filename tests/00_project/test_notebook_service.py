"""The script that makes a hosted notebook ready: what it refuses, what it pins, what it hands out."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys

import pytest


@pytest.fixture
def service(root):
    spec = importlib.util.spec_from_file_location("service", root / "deploy/notebook_service.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_installed_package_is_pinned_while_others_are_added(service, monkeypatch, tmp_path):
    commands = []

    def pip(*arguments):
        pins = arguments[arguments.index("-c") + 1]
        with open(pins, encoding="utf-8") as file:
            commands.append((arguments, file.read().splitlines()))

    monkeypatch.setattr(service, "pip", pip)
    monkeypatch.setattr(service, "is_installed", lambda name: name != "anywidget")

    service.install_missing_packages()

    [(arguments, pins)] = commands
    assert arguments[-1] == "anywidget"
    assert f"torch=={importlib.metadata.version('torch')}" in pins


def test_nothing_is_installed_where_nothing_is_missing(service, monkeypatch):
    monkeypatch.setattr(service, "is_installed", lambda name: True)
    monkeypatch.setattr(service, "pip", lambda *arguments: pytest.fail(f"pip {arguments}"))

    service.install_missing_packages()


@pytest.mark.parametrize(
    ("version", "said"),
    [("2.10.0+cu128", "has torch 2.10.0"), ("1.13.1", "needs 2.11 or newer"), (None, "no torch")],
)
def test_a_torch_that_is_too_old_is_refused_and_not_replaced(service, monkeypatch, version, said):
    def version_of(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(service.importlib.metadata, "version", version_of)

    with pytest.raises(service.NotReady, match=said):
        service.look_at_python_and_torch()


def test_an_old_python_is_refused(service, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))

    with pytest.raises(service.NotReady, match=r"the course needs 3\.11"):
        service.look_at_python_and_torch()


def test_a_failing_pip_is_one_sentence(service, monkeypatch, capsys):
    def fails():
        service.pip("install", "--no-index", "a-package-that-is-nowhere")

    monkeypatch.setattr(service, "prepare", fails)

    assert service.main([]) == 1
    said = capsys.readouterr().out
    assert said.startswith("The course cannot run here: `pip install")
    assert "Traceback" not in said and said.count("\n") == 1


def test_notebooks_to_hand_out_begin_with_the_first_cell(service, root, tmp_path):
    count = service.write_notebooks(tmp_path, "https://example.org/course.git")

    written = sorted(tmp_path.rglob("*.ipynb"))
    assert count == len(written) >= 31

    for path in written:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        original = json.loads((root / path.relative_to(tmp_path)).read_text(encoding="utf-8"))
        first = "".join(notebook["cells"][0]["source"])

        assert "git clone -q https://example.org/course.git course" in first
        assert notebook["cells"][1:] == original["cells"]
