"""What `pyproject.toml` cannot say: a wheel carries the course's notebooks.

In:  the repository. Out: `course_lib/_course/{notebooks,exercises,solutions}` in the wheel.

A clone has the notebooks beside the package, so an editable install copies nothing. Who installs a wheel has no clone:
`course start --all FOLDER` writes the notebooks from there.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
FOLDERS = ("notebooks", "exercises", "solutions")
KINDS = {".ipynb", ".md"}


class BuildWithNotebooks(build_py):
    """The ordinary build, and then the notebooks."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return

        for path in course_files():
            target = Path(self.build_lib, "course_lib", "_course", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(HERE / path, target)


def course_files() -> list[Path]:
    """The notebooks and texts of the course, relative to the repository; nothing that an editor left beside them."""
    found = []

    for folder in FOLDERS:
        for path in sorted((HERE / folder).rglob("*")):
            place = path.relative_to(HERE)
            hidden = any(part.startswith(".") for part in place.parts)
            if path.suffix in KINDS and path.is_file() and not hidden:
                found.append(place)

    return found


setup(cmdclass={"build_py": BuildWithNotebooks})
