"""One list of packages: what pyproject.toml says, environment.yml and the Makefile do not say again."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from course_lib import versions

ASKED_FOR = {"torch", "triton", "jupyterlab", "matplotlib", "graphviz", "ipywidgets", "nbval"}
# programs
CONDA_ONLY = {"python", "pip", "make", "c-compiler", "cxx-compiler", "graphviz", "llvm-openmp"}


@pytest.fixture
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture
def environment(root: Path) -> list:
    return yaml.safe_load((root / "environment.yml").read_text())["dependencies"]


def names(requirements: list[str]) -> set[str]:
    return {Requirement(each).name.lower() for each in requirements}


def test_pip_installs_only_the_project_itself(environment, project):
    pip = next(entry["pip"] for entry in environment if isinstance(entry, dict))
    assert pip == ["-e .[course]"]
    assert "course" in project["project"]["optional-dependencies"]


def test_conda_lists_only_programs_that_pip_cannot_install(environment):
    conda = {entry.split("=")[0] for entry in environment if isinstance(entry, str)}
    assert conda <= CONDA_ONLY
    assert {"python", "pip", "cxx-compiler", "graphviz"} <= conda


def test_condas_python_is_one_that_the_project_supports(environment, project):
    version = next(
        e.split("=")[1] for e in environment if isinstance(e, str) and e.startswith("python=")
    )
    assert f"{version}.0" in SpecifierSet(project["project"]["requires-python"])


def test_the_packages_that_were_asked_for_are_installed_for_the_course(project):
    about = project["project"]
    assert names(about["dependencies"] + about["optional-dependencies"]["course"]) >= ASKED_FOR
    assert set(about["optional-dependencies"]) == {"course", "dev", "gpu", "cluster", "hub", "site"}


def test_triton_is_bounded_wherever_it_is_listed(project):
    extras = project["project"]["optional-dependencies"]
    triton = [
        Requirement(each)
        for extra in extras.values()
        for each in extra
        if each.startswith("triton")
    ]
    assert triton and len({str(each) for each in triton}) == 1
    for low, high in versions.TRITON_FOR.values():
        assert f"{low}.{high}.1" in triton[0].specifier
    assert "3.5.1" not in triton[0].specifier and "3.10.0" not in triton[0].specifier


def test_the_makefile_installs_a_torch_that_the_project_allows(root, project):
    pinned = re.findall(r"\btorch==([\d.]+\d)", (root / "Makefile").read_text())
    torch = next(
        Requirement(each) for each in project["project"]["dependencies"] if each.startswith("torch")
    )
    assert pinned and all(version in torch.specifier for version in pinned)


def test_doctor_agrees_about_versions(project):
    from course_lib.tools import doctor_looks as doctor

    python, torch = (
        SpecifierSet(text)
        for text in (
            project["project"]["requires-python"],
            project["project"]["dependencies"][0].removeprefix("torch"),
        )
    )
    for (low, high), allowed in ((doctor.PYTHONS, python), (doctor.TORCHES, torch)):
        assert f"{low[0]}.{low[1]}.0" in allowed and f"{high[0]}.{high[1]}.0" in allowed
        assert (
            f"{low[0]}.{low[1] - 1}.9" not in allowed
            and f"{high[0]}.{high[1] + 1}.0" not in allowed
        )


def test_the_extensions_are_optional(project):
    extensions = project["tool"]["setuptools"]["ext-modules"]
    names = {
        "course_lib.frames._framehook",
        "course_lib.guards._tensors",
        "course_lib.runtime._launcher",
    }
    assert {each["name"] for each in extensions} == names
    assert all(each["optional"] for each in extensions)


def test_lint_runs_all_three_tools_and_test_begins_with_it(root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    lint = re.search(r"(?m)^lint:.*\n((?:\t.*\n)+)", makefile)[1]
    assert [line.split("/")[-1].split(" ")[:2] for line in lint.splitlines()] == [
        ["ruff", "check"],
        ["ruff", "format"],
        ["mypy"],
    ]
    assert {"lint", "size", "exercises-check"} <= set(
        re.search(r"(?m)^test:(.*?)##", makefile)[1].split()
    )


def test_the_readme_names_the_pythons_that_the_project_takes(root, project):
    takes = SpecifierSet(project["project"]["requires-python"])
    names = [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}.0" in takes]
    said = f"{', '.join(names[:-1])} or {names[-1]}"
    assert f"You need Python {said}" in (root / "README.md").read_text(encoding="utf-8")
    assert f"No Python {said} that" in (root / "Makefile").read_text(encoding="utf-8")


# ---- a torch that nobody has tried -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0a0+git12", "3.0.0+cu140"])
def test_a_torch_newer_than_any_that_was_tried_warns_in_one_line(version):
    with pytest.warns(RuntimeWarning, match=re.escape(version)) as told:
        versions.warn_of_a_newer_torch(version)
    assert len(told) == 1 and "\n" not in str(told[0].message)


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0+cpu", "2.15.3", "unknown"])
def test_a_torch_that_was_tried_warns_of_nothing(version, recwarn):
    versions.warn_of_a_newer_torch(version)
    assert not recwarn.list
