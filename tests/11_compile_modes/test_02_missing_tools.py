"""What a missing or failing tool says: one clear sentence, and nothing half done."""

from __future__ import annotations

import sys

import pytest
import torch
from hand_kernels import gelu_chain
from run_kernels import program

from course_lib import config, native, runtime
from course_lib.runtime import compiler, triton_runner


@pytest.fixture
def own_path(tmp_path, monkeypatch):
    """A folder that is the whole PATH, and a cache folder of its own."""
    # the package's own module, which a C compiler builds when it is first needed
    native.load("course_lib.runtime._launcher")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    caches = (config.find_cxx, config.cache_dir, compiler.optional_flags)
    for cached in caches:
        cached.cache_clear()
    yield tmp_path / "bin"
    for cached in caches:
        cached.cache_clear()


def test_no_compiler(own_path):
    with pytest.raises(runtime.BackendMissing) as problem:
        program(*gelu_chain(3, 4))
    text = str(problem.value)
    assert "\n" not in text
    for part in (
        "no C++ compiler found",
        "g++",
        "clang++",
        "conda install cxx-compiler",
        "op by op",
    ):
        assert part in text


def test_a_compiler_that_fails(own_path):
    fake = own_path / "g++"
    fake.write_text("#!/bin/sh\necho 'fatal error: out of luck' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(runtime.CompileFailed) as problem:
        program(*gelu_chain(3, 4))
    text = str(problem.value)
    assert "fatal error: out of luck" in text
    assert str(fake) in text
    assert str(problem.value.source) in text
    assert "void gelu_chain(" in problem.value.source.read_text()


def test_a_compiler_that_cannot_be_run(own_path):
    fake = own_path / "g++"
    fake.write_text("#!/no/such/interpreter\n")
    fake.chmod(0o755)
    with pytest.raises(runtime.BackendMissing, match="cannot be run"):
        program(*gelu_chain(3, 4))


def test_a_compiler_that_knows_few_flags(own_path):
    """No -fopenmp, no -march=native, no libmvec: as with Apple's compiler."""
    real = compiler_outside(own_path)
    fake = own_path / "g++"
    fake.write_text(
        '#!/bin/sh\nfor a in "$@"; do case $a in -fopenmp|-march=native|-mcpu=native|-DSIMD=*) '
        f'echo "unsupported option \'$a\'" >&2; exit 1;; esac; done\nPATH=/usr/bin:/bin exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    compiled = program(*gelu_chain(30, 40))
    flags = compiler.optional_flags(str(fake))
    assert "-fopenmp" not in flags and "-fopenmp-simd" in flags
    x, w, b = torch.randn(30, 40), torch.randn(40), torch.randn(40)
    torch.testing.assert_close(compiled(x, w, b)[0], torch.nn.functional.gelu(x * w + b) + x)


def compiler_outside(own_path):
    import shutil

    found = shutil.which("g++", path="/usr/bin:/usr/local/bin:/opt/conda/bin")
    if not found:
        pytest.skip("needs g++")
    return found


def test_no_triton(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    triton_runner.import_triton.cache_clear()
    try:
        with pytest.raises(runtime.BackendMissing) as problem:
            program(*gelu_chain(3, 4), codegen="triton")
    finally:
        triton_runner.import_triton.cache_clear()
    assert "triton cannot be imported" in str(problem.value) and "pip install triton" in str(
        problem.value
    )
    assert "\n" not in str(problem.value)


def test_an_unknown_language():
    with pytest.raises(ValueError, match='must be "auto", "cpp" or "triton"'):
        program(*gelu_chain(3, 4), codegen="cuda")
