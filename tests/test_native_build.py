"""The native kernels are compiled once, on first use, and where that is impossible the reason is said."""

import ctypes
import io
import logging
import os
import pwd
import re
import shlex
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from native_calls import run_python, start_python

from shared.kernels import cpp
from shared.kernels.cpp import build as building
from shared.kernels.cpp import library

ANSWER = 'extern "C" __attribute__((visibility("default"))) int answer() { return NUMBER; }\n'

pytestmark = pytest.mark.skipif(building.why_no_compiler() is not None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ALIGNMENT_CACHE", str(folder))
    return folder


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "answer.cpp"
    path.write_text(ANSWER)
    return path


def use_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Have a shell script compile, in which $COMPILER is the real compiler."""
    program = folder / "compiler"
    program.write_text(f"#!/bin/sh\nCOMPILER='{shlex.join(building.find_compiler())}'\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))


@pytest.fixture
def compilations(tmp_path, monkeypatch) -> Callable[[], int]:
    """Count the libraries that a slow compiler has made."""
    lines = tmp_path / "compilations"
    count = f'case "$*" in *-shared*) echo x >> {lines}; sleep 0.5;; esac'
    use_compiler(monkeypatch, tmp_path, f'{count}\nexec $COMPILER "$@"')
    return lambda: len(lines.read_text().splitlines()) if lines.exists() else 0


def target(source: Path, number: int = 42, *flags: str) -> cpp.Target:
    return cpp.Target("answer", (source,), (), (f"-DNUMBER={number}", *flags))


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).answer()


@pytest.mark.parametrize("is_logged", [False, True])
def test_one_line_says_that_kernels_are_compiled_and_how_long_the_first_took(
    source, tmp_path, monkeypatch, caplog, is_logged
):
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(building, "_has_announced", False)
    monkeypatch.setenv("HOME", str(tmp_path))
    caplog.set_level(logging.INFO if is_logged else logging.WARNING)
    for number in (1, 2, 1):  # the last one is in the cache
        cpp.compiled(target(source, number))
    line = r"compiling alignment kernels for this CPU, .* \(kept in ~/cache\): the first took [\d.]+ s\n"
    assert re.fullmatch("" if is_logged else line, said.getvalue())
    assert caplog.text.count("compiling answer (once; kept in") == 2 * is_logged
    monkeypatch.setattr(sys, "stderr", None)
    assert answer(cpp.compiled(target(source, 3))) == 3


def test_a_change_of_source_header_flags_compiler_or_cpu_is_another_library(
    source, tmp_path, monkeypatch, cache, compilations
):
    header = tmp_path / "answer.h"
    header.write_text("")
    wide_target = target(source)._replace(headers=(header,))
    paths = [cpp.compiled(wide_target), cpp.compiled(wide_target)]
    assert paths[0] == paths[1] and paths[0].parent == cache
    header.write_text("// changed")
    paths.append(cpp.compiled(wide_target))
    source.write_text(ANSWER.replace("NUMBER", "NUMBER + 1"))
    paths.append(cpp.compiled(wide_target))
    paths.append(cpp.compiled(target(source, 5)))
    assert [answer(path) for path in paths] == [42, 42, 42, 43, 6]
    monkeypatch.delenv("CXX")
    paths.append(cpp.compiled(target(source, 5)))
    cpu = building._cpu()
    monkeypatch.setattr(building, "_cpu", lambda: f"{cpu} and more")
    paths.append(cpp.compiled(target(source, 5)))
    paths.append(cpp.compiled(target(source, 5, f"-I{os.fsdecode(source.parent)}\udcff")))  # no UTF-8
    assert len(set(paths)) == 7
    assert compilations() == 4
    assert not list(cache.glob(".*"))  # nothing unfinished


@pytest.mark.parametrize("content", [b"", b"complete, but not for this system"], ids=["empty", "foreign"])
def test_an_object_is_compiled_once_for_all_and_again_with_a_library_that_cannot_be_loaded(tmp_path, cache, content):
    path = tmp_path / "common.cpp"
    path.write_text("int common() { return 7; }\n")
    common = cpp.Target("common", (path,), makes="object")
    source = tmp_path / "uses.cpp"
    source.write_text(f"int common();\n{ANSWER.replace('NUMBER', 'NUMBER + common()')}")
    two = [target(source, number)._replace(objects=(common,)) for number in (1, 2)]
    assert [answer(cpp.compiled(target_)) for target_ in two] == [8, 9]
    (object_file,) = cache.glob("common-*.o")
    path.write_text("int common() { return 8; }\n")
    assert answer(cpp.compiled(two[0])) == 9
    assert len(list(cache.glob("common-*.o"))) == 2
    # a foreign library goes with its objects
    path = cpp.compiled(two[1])
    path.unlink()
    path.write_bytes(content)
    (object_file,) = (other for other in cache.glob("common-*.o") if other != object_file)
    object_file.write_bytes(b"likewise")
    assert cpp.load(two[1])._name == str(path)
    assert answer(path) == 10


@pytest.mark.parametrize("processes", [False, True])
def test_builds_at_the_same_time_compile_once(source, compilations, processes):
    build = lambda: cpp.compiled(target(source))  # noqa: E731
    if processes:
        code = f"from test_native_build import *; print(cpp.compiled(target(Path({str(source)!r}))))"
        build = lambda: Path(run_python("-c", code).split()[-1])  # noqa: E731
    with ThreadPoolExecutor(3) as pool:
        paths = {built.result() for built in [pool.submit(build) for _ in range(3)]}
    assert len(paths) == compilations() == 1
    assert answer(paths.pop()) == 42


def test_a_build_that_is_killed_lets_the_next_one_compile(source, cache, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        hanging = 'case "$*" in *" -c "*) for last; do :; done; echo half > "$last"; exec sleep 9;; esac'
        use_compiler(patch, tmp_path, hanging)
        process = start_python("-c", f"from test_native_build import *; cpp.compiled(target(Path({str(source)!r})))")
    while not any(path.stat().st_size for path in cache.glob(".building-*/*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    works_still = cache / f".building-{target(source).name}-by-axis.1"  # another process, on another target
    works_still.mkdir()
    assert answer(cpp.compiled(target(source))) == 42
    assert list(cache.glob(".*")) == [works_still]


@pytest.mark.parametrize("cache", ["{0}/answer.cpp/cache", "{0}/noexec", "~no-such-user/cache"])
def test_where_the_cache_cannot_be_used_the_temporary_folder_is(source, temporary, monkeypatch, compilations, cache):
    tmp_path = temporary.parent

    def mount_options(path: Path) -> SimpleNamespace:
        return SimpleNamespace(f_flag=os.ST_NOEXEC if path.name == "noexec" else 0)

    (tmp_path / "noexec").mkdir()
    monkeypatch.setattr(os, "statvfs", mount_options)
    monkeypatch.setenv("ALIGNMENT_CACHE", cache.format(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    path = cpp.compiled(target(source))
    assert answer(path) == 42
    assert path.parent == temporary / f"{building.FOLDER}-{os.getuid()}" and not any((tmp_path / "noexec").iterdir())
    assert cpp.compiled(target(source)) == path and compilations() == 1
    path.parent.chmod(0o777)
    with pytest.raises(cpp.Absent, match=r"not owned by this user alone.*; set ALIGNMENT_CACHE to one$"):
        cpp.compiled(target(source))


def test_the_cache_folder_is_absolute_and_does_not_follow_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALIGNMENT_CACHE", f"relative-{tmp_path.name}")
    before = cpp.cache_folder()
    monkeypatch.chdir("/")
    assert cpp.cache_folder() == before == tmp_path / f"relative-{tmp_path.name}"
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # no such user
    for name in ("ALIGNMENT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cpp.cache_folder().is_absolute() and cpp.cache_is_usable()


def test_a_build_that_fails_gives_its_first_reason_in_a_line(source, cache):
    with pytest.raises(cpp.Absent, match=r"a source is missing: .*gone\.cpp"):
        cpp.compiled(target(source.with_name("gone.cpp")))
    for text, reason in (
        ("int answer() { return wrong; }\n", r"^\S+ cannot compile answer: .*answer\.cpp:1:.*error:.*wrong"),
        ("#include <no_such_header.h>\n", r"no_such_header\.h"),
    ):
        source.write_text(text)
        with pytest.raises(cpp.Absent, match=reason) as caught:
            cpp.compiled(target(source))
        assert "\n" not in str(caught.value)
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]


def test_a_failed_build_is_not_tried_again_and_takes_nothing_from_other_kernels(source, monkeypatch):
    monkeypatch.setattr(library, "_failures", {})
    monkeypatch.setattr(library, "_loaded", {})
    assert cpp.why_absent() is None
    source.write_text("#error no\n")
    with pytest.raises(cpp.Absent) as caught:
        cpp.load(target(source))
    assert cpp.why_absent() == str(caught.value)
    with monkeypatch.context() as patch:
        patch.setattr(library, "compiled", lambda wanted: pytest.fail("built once more"))
        with pytest.raises(cpp.Absent, match=re.escape(str(caught.value))):
            cpp.load(target(source))
    monkeypatch.setattr(library, "_loaded", {"a kernel": None})
    assert cpp.why_absent() is None
    source.write_text(ANSWER.replace("NUMBER", "42"))
    cpp.load(target(source)._replace(name="another"), {"answer": []})


def test_why_absent_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(library, "_loaded", {})
    monkeypatch.delenv("CXX", raising=False)
    assert cpp.why_absent() is None
    for name, value, reason in (
        ("PATH", "/nowhere", "no C++ compiler: none of c++, g++, clang++ on the PATH"),
        ("CXX", "no-such-compiler", "'no-such-compiler', which is no program"),
        ("ALIGNMENT_NATIVE", "0", "ALIGNMENT_NATIVE turns the native kernels off"),
    ):
        monkeypatch.setenv(name, value)
        assert reason in (cpp.why_absent() or "")


@pytest.mark.parametrize("package", [pytest.param("jax_impl", marks=pytest.mark.slow), "torch_impl"])
def test_only_what_is_called_is_compiled(package, cache, tmp_path, monkeypatch):
    # hasty: the last level of optimisation is the one that counts
    use_compiler(monkeypatch, tmp_path, 'exec $COMPILER "$@" -O0')
    code = f"""
        import sys, numpy as np, {package} as package
        package.smith_waterman(np.ones((2, 2), np.float32))
        assert "torch._dynamo" not in sys.modules  # PyTorch's compiler, which takes a second to import
    """
    run_python("-c", textwrap.dedent(code))
    names = {path.name.rpartition("-")[0] for path in cache.glob("*.so")}
    assert names - {"alignment-xla-float32"} == {"alignment-float32-0-score"}


# a reason that is known before the first build, one that only the build finds, and one that a quick try finds
@pytest.mark.parametrize(
    ("package", "name", "value", "reason"),
    [
        ("jax_impl", "PATH", "/nowhere", "no C++ compiler: none of c++, g++, clang++ on the PATH"),
        ("torch_impl", "CXX", "c++ -D__builtin_convertvector=missing", "=missing cannot compile alignment-"),
        ("jax_impl", "CXX", "{0}/compiler", "compiler cannot compile C++17: exit status 1; name another compiler in"),
    ],
)
def test_auto_warns_once_and_still_works_where_no_compiler_works(
    package, name, value, reason, tmp_path, cache, monkeypatch
):
    tried = tmp_path / "tried"
    use_compiler(monkeypatch, tmp_path, f"echo $* >> {tried}\nexit 1")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv(name, value.format(tmp_path))
    code = f"""
        import pathlib, numpy as np, {package} as package
        assert not pathlib.Path({str(tried)!r}).exists()  # at import
        package.variants("smith_waterman")  # tries the compiler
        for _ in range(2):
            print(float(package.smith_waterman(np.ones((2, 2), np.float32))))
        try:
            package.smith_waterman(np.ones((2, 2), np.float32), variant="fused")
        except ValueError as error:
            print(error)
        assert "fused" not in package.variants("smith_waterman")
    """
    said = run_python("-c", textwrap.dedent(code))
    (warning,) = re.findall("(.*): RuntimeWarning: variant 'auto' is 'wavefront' here, .* than 'fused': (.*)", said)
    assert warning[0] == "<string>:6"
    assert reason in warning[1]
    assert f"variant 'fused' is absent here: {warning[1]}" in said
    if tried.exists():
        assert [line.split()[0] for line in tried.read_text().splitlines()] == ["--version", "-std=c++17"]
        assert not cache.exists()


def test_a_compiler_is_not_tried_where_the_cache_has_what_it_would_make(source, monkeypatch):
    cpp.compiled(target(source))
    monkeypatch.setattr(building, "_why_not_working", lambda compiler: "it does not work")
    building.check_compiler(target(source, 5), target(source))
    with pytest.raises(cpp.Absent, match="it does not work"):
        building.check_compiler(target(source, 5))


def test_a_library_is_taken_where_there_is_no_compiler_any_more(source, monkeypatch):
    made = cpp.compiled(target(source))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    building.check_compiler(target(source))
    assert cpp.compiled(target(source)) == made
    with pytest.raises(cpp.Absent, match="no C\\+\\+ compiler"):
        cpp.compiled(target(source, 5))
