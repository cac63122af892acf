"""Sources to something that runs: build cache, compiler, launcher, the compiled program."""

from course_lib.runtime.compiled import BuiltKernel, CompiledGraph, build
from course_lib.runtime.errors import BackendMissing, CompileFailed, warn_once

__all__ = ["BackendMissing", "BuiltKernel", "CompileFailed", "CompiledGraph", "build", "warn_once"]
