"""Dockerfile, dev container and hub: they agree with the rest of the repository (no Docker is needed to know)."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = {"FROM", "RUN", "ARG", "ENV", "USER", "WORKDIR", "COPY", "EXPOSE", "CMD"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def dockerfile() -> list[tuple[str, str]]:
    """(instruction, its argument), lines that go on put together."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def said(instruction: str) -> list[str]:
    return [argument for name, argument in dockerfile() if name == instruction]


def extras_of(command: str) -> set[str]:
    return set(re.search(r"EXTRAS=([\w,]+)", command)[1].split(","))


def test_the_dockerfile_has_only_instructions_that_docker_knows():
    assert {name for name, _ in dockerfile()} <= INSTRUCTIONS
    assert dockerfile()[0][0] == "FROM" and len(said("FROM")) == len(said("CMD")) == 1
    for command in said("RUN"):
        shlex.split(command)  # raises where a quote is open


def test_python_and_torch_are_the_ones_of_the_project():
    python = re.match(r"python:(\d\.\d+)-", said("FROM")[0])[1]
    assert f"{python}.0" in Requirement(f"python{PROJECT['requires-python']}").specifier
    pinned = re.search(r"(?m)^TORCH \?= (.+)$", MAKEFILE)[1]
    assert f"TORCH={pinned}" in said("ARG")


def test_the_environment_is_made_by_the_makefile():
    setup = next(command for command in said("RUN") if "make setup" in command)
    assert extras_of(setup) <= set(PROJECT["optional-dependencies"])
    # `?=`: the variable of the image has the last word
    assert "setup:" in MAKEFILE and "VENV ?=" in MAKEFILE
    assert re.search(r"VENV=(\S+)", said("ENV")[0])[1] + "/bin" in said("ENV")[0].split("PATH=")[1]


def test_stored_pictures_are_shown_at_once():
    """JupyterLab leaves the pictures of a notebook out until it is trusted."""
    trusts = "jupyter trust notebooks/*.ipynb"
    lab = re.search(r"(?m)^lab:.*\n((?:\t.*\n)+)", MAKEFILE)[1]
    assert trusts in lab and any(trusts in command for command in said("RUN"))
    assert all(
        trusts in (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "docs/hosting.md")
    )
    assert "--LabApp.default_url=/lab/tree/$(START)" in lab, (
        "the address that is printed leads to the first lesson"
    )


def test_nothing_runs_as_root_and_binders_user_is_there():
    names = [name for name, _ in dockerfile()]
    assert names.index("USER") < names.index("COPY") < names.index("CMD")
    assert "NB_UID=1000" in said("ARG")
    assert any(each.startswith("jupyterhub") for each in PROJECT["optional-dependencies"]["hub"])


def test_the_container_starts_jupyterlab_on_a_lesson_that_exists():
    command = json.loads(said("CMD")[0])
    assert command[:2] == ["jupyter", "lab"] and "--ip=0.0.0.0" in command
    # The address that Lab prints leads there; of a file that is named instead it says nothing
    first = re.search(r"--LabApp.default_url=/lab/tree/(\S+)", " ".join(command))[1]
    assert (ROOT / first).is_file()
    assert f"--port={said('EXPOSE')[0]}" in command


@pytest.mark.parametrize(
    "kept", ["course_lib", "notebooks", "exercises", "Makefile", "pyproject.toml"]
)
def test_what_the_image_needs_is_not_ignored(kept):
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and line[0] != "#"
    ]
    assert kept not in ignored and ".git" in ignored and "**/*.so" in ignored


def test_the_dev_container_builds_the_same_image():
    about = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8"))
    folder = ROOT / ".devcontainer"
    assert (folder / about["build"]["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (folder / about["build"]["context"]).resolve() == ROOT
    assert f"NB_USER={about['remoteUser']}" in said("ARG")
    assert extras_of(about["postCreateCommand"]) <= set(PROJECT["optional-dependencies"])


class Config:
    """What `get_config()` gives: an attribute for each class, which takes any setting."""

    def __init__(self) -> None:
        self.sections: dict[str, SimpleNamespace] = {}

    def __getattr__(self, name: str) -> SimpleNamespace:
        return self.sections.setdefault(name, SimpleNamespace())


def test_the_hubs_settings_load_and_name_places_of_the_image():
    config = Config()
    source = (ROOT / "deploy/jupyterhub_config.py").read_text(encoding="utf-8")
    with mock.patch.dict(os.environ, {"HUB_PASSWORD": "a word"}):
        exec(compile(source, "jupyterhub_config.py", "exec"), {"get_config": lambda: config})
    spawner = config.sections["DockerSpawner"]
    assert (ROOT / spawner.default_url.removeprefix("/lab/tree/")).is_file()
    home = "/home/" + next(each.split("=")[1] for each in said("ARG") if each.startswith("NB_USER"))
    assert spawner.notebook_dir == f"{home}/course"
    assert all(place.startswith(home) for place in spawner.volumes.values())
    assert f"{home}/course/exercises" in spawner.volumes.values()
    assert f"{home}/course/work" in spawner.volumes.values(), "a learner's answers are kept"
    # else Docker makes it, for root alone
    made = next(command for command in said("RUN") if "mkdir -p" in command)
    assert "${HOME}/.cache" in made and f"{home}/.cache" in spawner.volumes.values()


def test_a_learner_on_the_hub_gets_the_memory_that_the_guide_reckons_with():
    reckoned = re.search(
        r"(\d+) GB while `course check` runs",
        (ROOT / "docs/hosting.md").read_text(encoding="utf-8"),
    )[1]
    assert f'mem_limit = "{reckoned}G"' in (ROOT / "deploy/jupyterhub_config.py").read_text(
        encoding="utf-8"
    )


def test_the_hub_does_not_start_without_a_password():
    source = (ROOT / "deploy/jupyterhub_config.py").read_text(encoding="utf-8")
    with mock.patch.dict(os.environ), pytest.raises(KeyError, match="HUB_PASSWORD"):
        os.environ.pop("HUB_PASSWORD", None)
        exec(compile(source, "jupyterhub_config.py", "exec"), {"get_config": Config})
