"""Built kernels are found again; what is damaged is built again; two processes do not disturb each other."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
import torch
from hand_kernels import gelu_chain
from run_kernels import program
from torch_handler import evaluate

from course_lib import build_cache, config
from course_lib.runtime import compiler


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache folder for one test."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    config.cache_dir.cache_clear()
    yield tmp_path / "cache"
    config.cache_dir.cache_clear()
    compiler.optional_flags.cache_clear()


@pytest.fixture
def tensors():
    return {"x": torch.randn(5, 7), "scale": torch.randn(7), "bias": torch.randn(7)}


def entries(folder: Path) -> list[Path]:
    """(Beside them lives `native/`, the package's own C modules.)"""
    return sorted(folder.glob("??/*.so"))


def is_right(compiled, tensors):
    want = evaluate(*gelu_chain(5, 7), tensors)["out"]
    return torch.allclose(compiled(*tensors.values())[0], want, rtol=1e-5, atol=1e-6)


def test_a_kernel_is_built_once(own_cache, tensors):
    first, second = program(*gelu_chain(5, 7)), program(*gelu_chain(5, 7))
    assert (first.cached, second.cached) == (False, True)
    assert len(entries(own_cache)) == 1
    assert is_right(second, tensors)


@pytest.mark.parametrize("damage", ["empty", "half", "garbage", "one bit"])
def test_a_damaged_entry_is_built_again_without_a_word(own_cache, tensors, damage):
    program(*gelu_chain(5, 7))
    (entry,) = entries(own_cache)
    whole = entry.read_bytes()
    flipped = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]
    broken = {
        "empty": b"",
        "half": whole[: len(whole) // 2],
        "garbage": b"not a library",
        "one bit": flipped,
    }[damage]
    entry.unlink()  # the loaded library must not change under our feet
    entry.write_bytes(broken)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = program(*gelu_chain(5, 7))
    assert not compiled.cached
    assert is_right(compiled, tensors)
    assert all(build_cache.checksum(e) in e.name for e in entries(own_cache))


def test_other_flags_or_another_compiler_are_another_entry():
    assert build_cache.key_of("source", "-O2", "g++ 12") != build_cache.key_of(
        "source", "-O3", "g++ 12"
    )
    assert build_cache.key_of("source", "-O2", "g++ 12") != build_cache.key_of(
        "source", "-O2", "g++ 13"
    )
    assert build_cache.key_of("ab", "c") != build_cache.key_of("a", "bc")


def test_nothing_is_left_over_where_the_build_fails(own_cache):
    def fail(path: Path) -> None:
        path.write_text("half a file")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        build_cache.build(build_cache.key_of("x"), ".so", fail)
    assert [p for p in own_cache.glob("??/*") if p.is_file()] == []


BUILD = """
    import sys
    sys.path[:0] = {path!r}
    import torch
    from hand_kernels import gelu_chain
    from run_kernels import program
    import course_lib
    print("ready", flush=True)
    sys.stdin.readline()
    compiled = program(*gelu_chain(5, 7))
    x = torch.ones(5, 7)
    print("%.5f" % compiled(x, torch.ones(7), torch.zeros(7))[0][0, 0].item(), flush=True)
"""


def start(code: str, folder: Path, **environment: str) -> subprocess.Popen:
    """A Python process that runs `code` with its own cache folder."""
    tools = [p for p in sys.path if p]
    return subprocess.Popen(
        [sys.executable, "-W", "error::UserWarning:course_lib", "-c", textwrap.dedent(code).format(path=tools)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "COURSE_CACHE": str(folder), **environment},
    )  # fmt: skip


@pytest.mark.slow
def test_two_processes_may_build_the_same_kernel_at_once(tmp_path):
    both = [start(BUILD, tmp_path) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        out, err = process.communicate(timeout=120)
        assert out == "1.84134\n", err
    assert len({e.name for e in entries(tmp_path)}) >= 1
    assert all(build_cache.checksum(e) in e.name for e in entries(tmp_path))
    assert not list(tmp_path.rglob("building-*"))


@pytest.mark.slow
def test_an_unwritable_cache_folder_is_named_and_replaced(tmp_path):
    (tmp_path / "file").write_text("")
    process = start(BUILD, tmp_path / "file" / "cache", TMPDIR=str(tmp_path))
    out, err = process.communicate("go\n", timeout=120)
    assert out.splitlines()[-1] == "1.84134", err
    assert f"cannot write to the cache folder {tmp_path}/file/cache" in err
