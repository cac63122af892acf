"""Small programs, one for each corner of the language, each with a maker of arguments for the call with number `i`.

`tests/03_graph_breaks/test_03_language.py` compares them with eager. `breaks`: how many graph breaks are allowed, which
is how many torch.compile has, or what there are today where that is more. Each file is one part of the language (`TOPICS`)."""

import importlib

# Before the programs: some import parts of torch that import Triton, and course_lib chooses Triton's interpreter.
import course_lib  # noqa: F401

# isort: split
from language_programs.kit import LOG, PROGRAMS, number, one

TOPICS = (
    "exceptions",
    "context_managers",
    "torch_modes",
    "functions",
    "expressions",
    "pattern_matching",
    "generators",
    "containers",
    "functools_and_copies",
    "enums",
    "classes",
    "special_methods",
    "kinds_of_classes",
    "classes_made_inside",
    "text_and_numbers",
    "tensors",
    "standard_library",
    "breaks",
    "effects",
    "changing_arguments",
)

# A file registers its programs when it is imported.
for topic in TOPICS:
    importlib.import_module(f"language_programs.{topic}")

__all__ = ["LOG", "PROGRAMS", "TOPICS", "number", "one"]
