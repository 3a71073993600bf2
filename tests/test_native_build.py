"""The native kernels are compiled once, on first use, and where that is impossible the reason is said."""

import ctypes
import os
import pwd
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.kernels import cpp
from shared.kernels.cpp import build as building
from shared.kernels.cpp import library

ROOT = Path(__file__).parent.parent
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


@pytest.fixture
def common(tmp_path) -> cpp.Target:
    path = tmp_path / "common.cpp"
    path.write_text("int common() { return 7; }\n")
    return cpp.Target("common", (path,), makes="object")


@pytest.fixture
def compilations(tmp_path, monkeypatch) -> "Compilations":
    return Compilations(tmp_path, monkeypatch)


class Compilations:
    """A compiler that is slow and writes a line for each library that it makes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines, program = folder / "compilations", folder / "compiler"
        command = " ".join(building.find_compiler())
        program.write_text(
            f'#!/bin/sh\ncase "$*" in *-shared*) echo x >> {self.lines}; sleep 0.5;; esac\nexec {command} "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("CXX", str(program))

    def count(self) -> int:
        return len(self.lines.read_text().splitlines()) if self.lines.exists() else 0


def target(source: Path, number: int = 42, *flags: str) -> cpp.Target:
    return cpp.Target("answer", (source,), (), (f"-DNUMBER={number}", *flags))


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).answer()


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


def test_the_second_build_comes_from_the_cache(source, cache, compilations):
    first = cpp.compiled(target(source))
    assert (answer(first), first.parent) == (42, cache)
    assert cpp.compiled(target(source)) == first
    assert compilations.count() == 1
    assert not list(cache.glob(".*"))  # nothing unfinished


_TWICE = """
import logging, sys
from test_native_build import *
if "log" in sys.argv:
    logging.basicConfig(level=logging.INFO)
for number in (1, 2):
    cpp.compiled(target(Path(sys.argv[1]), number)._replace(sources=tuple(map(Path, sys.argv[1:3]))))
"""


def said_on_a_terminal(*arguments: object) -> str:
    """What Python says on a terminal while it compiles two libraries."""
    own, other = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _TWICE, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
            stderr=other,
        )
        assert process.wait(120) == 0
        os.write(other, b"end")
        said = b""
        while not said.endswith(b"end"):
            said += os.read(own, 1024)
    finally:
        os.close(own)
        os.close(other)
    return said.decode().removesuffix("end").replace("\r\n", "\n")


@pytest.fixture
def second_source(tmp_path) -> Path:
    path = tmp_path / "second.cpp"
    path.write_text("int second() { return 2; }\n")
    return path


def test_a_terminal_is_told_once_that_the_kernels_are_compiled(source, second_source, cache, monkeypatch):
    monkeypatch.setenv("HOME", str(cache.parent))
    line = "compiling alignment kernels for this CPU, as they are called (each once, about 3 s; kept in ~/cache)\n"
    assert said_on_a_terminal(source, second_source) == line
    assert said_on_a_terminal(source, second_source) == ""  # they are in the cache


def test_a_terminal_that_shows_the_log_is_not_told_once_more(source, second_source):
    said = said_on_a_terminal(source, second_source, "log")
    assert said.count("compiling answer (once; kept in") == said.count("compiling") == 2


def test_what_is_no_terminal_is_told_nothing(source, second_source):
    code = f"import sys; sys.argv[1:] = {str(source)!r}, {str(second_source)!r}\n{_TWICE}"
    assert run_python(code, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}") == ""


def test_a_process_without_stderr_compiles_too(source, second_source, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert answer(cpp.compiled(target(source)._replace(sources=(source, second_source)))) == 42


def test_a_change_of_source_header_flags_or_compiler_is_another_library(source, tmp_path, monkeypatch, compilations):
    header = tmp_path / "answer.h"
    header.write_text("")
    wanted = target(source)._replace(headers=(header,))
    paths = [cpp.compiled(wanted)]
    header.write_text("// changed")
    paths.append(cpp.compiled(wanted))
    source.write_text(ANSWER.replace("NUMBER", "NUMBER + 1"))
    paths.append(cpp.compiled(wanted))
    paths.append(cpp.compiled(target(source, 5)))
    assert [answer(path) for path in paths] == [42, 42, 43, 6]
    monkeypatch.delenv("CXX")
    paths.append(cpp.compiled(target(source, 5)))
    assert len(set(paths)) == 5
    assert compilations.count() == 4


def test_an_object_is_compiled_once_for_all_that_are_linked_with_it(tmp_path, cache, common):
    source = tmp_path / "uses.cpp"
    source.write_text(f"int common();\n{ANSWER.replace('NUMBER', 'NUMBER + common()')}")
    two = [target(source, number)._replace(objects=(common,)) for number in (1, 2)]
    assert [answer(cpp.compiled(wanted)) for wanted in two] == [8, 9]
    (kept,) = cache.glob("common-*.o")
    common.sources[0].write_text("int common() { return 8; }\n")
    assert answer(cpp.compiled(two[0])) == 9
    assert len(list(cache.glob("common-*.o"))) == 2
    # a foreign library goes with its objects
    path = cpp.compiled(two[1])
    path.write_bytes(b"complete, but not for this system")
    kept, *_ = (own for own in cache.glob("common-*.o") if own != kept)
    kept.write_bytes(b"likewise")
    assert cpp.load(two[1])._name == str(path)
    assert answer(path) == 10


def test_another_cpu_is_another_library(source, monkeypatch):
    first = cpp.compiled(target(source))
    cpu = building._cpu()
    monkeypatch.setattr(building, "_cpu", lambda: f"{cpu} and more")
    assert cpp.compiled(target(source)) != first


@pytest.mark.parametrize("processes", [False, True])
def test_builds_at_the_same_time_compile_once(source, compilations, processes):
    build = cpp.compiled
    if processes:
        code = f"from test_native_build import *; print(cpp.compiled(target(Path({str(source)!r}))))"

        def build(target: cpp.Target) -> Path:
            return Path(run_python(code, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}").strip())

    with ThreadPoolExecutor(3) as pool:
        paths = set(pool.map(build, [target(source)] * 3))
    assert len(paths) == compilations.count() == 1
    assert answer(paths.pop()) == 42


@pytest.mark.parametrize("content", [b"", b"complete, but not for this system"], ids=["empty", "foreign"])
def test_a_library_that_cannot_be_loaded_is_compiled_again(source, compilations, content):
    path = cpp.compiled(target(source))
    path.unlink()
    path.write_bytes(content)
    assert cpp.load(target(source)).answer() == 42
    assert compilations.count() == 2


def test_a_build_that_is_killed_lets_the_next_one_compile(source, cache, tmp_path, monkeypatch):
    hanging = tmp_path / "hanging"
    script = 'case "$*" in *" -c "*) for last; do :; done; echo half > "$last"; exec sleep 9;; esac'
    hanging.write_text(f"#!/bin/sh\n{script}\n")
    hanging.chmod(0o755)
    code = f"from test_native_build import *; cpp.compiled(target(Path({str(source)!r})))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "CXX": str(hanging)},
        stderr=subprocess.DEVNULL,
    )
    while not any(path.stat().st_size for path in cache.glob(".building-*/*")):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert answer(cpp.compiled(target(source))) == 42
    assert not list(cache.glob(".*"))


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
    assert cpp.compiled(target(source)) == path and compilations.count() == 1
    path.parent.chmod(0o777)
    with pytest.raises(cpp.Absent, match="not owned by this user alone"):
        cpp.compiled(target(source))


def test_where_no_folder_can_be_used_the_reason_names_the_variable(source, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(cpp.Absent, match=r"mounted noexec: .*; name one in ALIGNMENT_CACHE$"):
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


def test_a_path_need_not_be_utf_8(source):
    assert answer(cpp.compiled(target(source, 42, f"-I{os.fsdecode(source.parent)}\udcff"))) == 42


def test_a_source_that_does_not_compile_gives_the_compilers_first_error(tmp_path, cache):
    source = tmp_path / "wrong.cpp"
    source.write_text("int answer() { return wrong; }\n")
    with pytest.raises(cpp.Absent, match=r"^\S+ cannot compile answer: .*wrong\.cpp:1:.*error:.*wrong") as caught:
        cpp.compiled(target(source))
    assert "\n" not in str(caught.value)
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]


def test_a_missing_header_and_a_missing_source_are_reasons(source, tmp_path):
    source.write_text("#include <no_such_header.h>\n")
    with pytest.raises(cpp.Absent, match=r"no_such_header\.h"):
        cpp.compiled(target(source))
    with pytest.raises(cpp.Absent, match=r"a source is missing: .*gone\.cpp"):
        cpp.compiled(target(tmp_path / "gone.cpp"))


def test_after_a_failed_build_the_reason_is_known_and_it_is_not_tried_again(source, monkeypatch):
    monkeypatch.setattr(library, "_failures", {})
    monkeypatch.setattr(library, "_loaded", {})
    assert cpp.why_absent() is None
    source.write_text("#error no\n")
    with pytest.raises(cpp.Absent) as caught:
        cpp.load(target(source))
    assert cpp.why_absent() == str(caught.value)
    monkeypatch.setattr(library, "compiled", lambda wanted: pytest.fail("built once more"))
    with pytest.raises(cpp.Absent, match=re.escape(str(caught.value))):
        cpp.load(target(source))


def test_a_failed_build_takes_nothing_from_the_kernels_that_are_there(source, monkeypatch):
    monkeypatch.setattr(library, "_failures", {})
    assert cpp.kernel("float32", 0).score
    source.write_text("#error no\n")
    with pytest.raises(cpp.Absent):
        cpp.load(target(source))
    assert cpp.why_absent() is None
    source.write_text(ANSWER.replace("NUMBER", "42"))
    cpp.load(target(source)._replace(name="another"), {"answer": []})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PATH", "/nowhere", "no C++ compiler: none of c++, g++, clang++ on the PATH"),
        ("CXX", "no-such-compiler", "'no-such-compiler', which is no program"),
        ("ALIGNMENT_NATIVE", "0", "ALIGNMENT_NATIVE turns the native kernels off"),
    ],
)
def test_why_absent_says_what_is_missing(name, value, reason, monkeypatch):
    monkeypatch.setattr(library, "_loaded", {})
    monkeypatch.delenv("CXX", raising=False)
    assert cpp.why_absent() is None
    monkeypatch.setenv(name, value)
    assert reason in (cpp.why_absent() or "")


@pytest.mark.parametrize("package", ["jax_impl", "torch_impl"])
def test_only_what_is_called_is_compiled(package, cache, tmp_path):
    code = f"""
        import sys, numpy as np, {package} as package
        package.smith_waterman(np.ones((2, 2), np.float32))
        assert "torch._dynamo" not in sys.modules  # PyTorch's compiler, which takes a second to import
    """
    hasty = tmp_path / "hasty"  # the last level of optimisation is the one that counts
    hasty.write_text(f'#!/bin/sh\nexec {shlex.join(building.find_compiler())} "$@" -O0\n')
    hasty.chmod(0o755)
    run_python(code, CXX=str(hasty))
    names = {path.name.rpartition("-")[0] for path in cache.glob("*.so")}
    assert names - {"alignment-xla-float32"} == {"alignment-float32-0-score"}


def test_a_program_can_be_built_too(tmp_path):
    source = tmp_path / "program.cpp"
    source.write_text('#include "alignment.h"\nint main() { return sizeof(REAL); }\n')
    wanted = cpp.target("float64", flags=("-O0", f"-I{library.FOLDER}"))
    path = cpp.compiled(wanted._replace(name="program", sources=(source,), makes="program"))
    assert subprocess.run([path]).returncode == 8


NO_COMPILER = "no C++ compiler: none of c++, g++, clang++ on the PATH; install one, or name it in CXX"
MISSING = "CXX", "c++ -D__builtin_convertvector=missing", "=missing cannot compile alignment-"


# for each package a reason that is known before the first build, and one that only the build finds
@pytest.mark.parametrize(
    ("package", "name", "value", "reason"),
    [
        ("jax_impl", "PATH", "/nowhere", NO_COMPILER),
        ("jax_impl", *MISSING),
        ("torch_impl", "CXX", "false", "false cannot compile"),
        ("torch_impl", *MISSING),
    ],
)
def test_without_a_compiler_that_works_auto_warns_once_and_still_works(package, name, value, reason):
    code = f"""
        import numpy as np, {package} as package
        for _ in range(2):
            print(float(package.smith_waterman(np.ones((2, 2), np.float32))))
        try:
            package.smith_waterman(np.ones((2, 2), np.float32), variant="fused")
        except ValueError as error:
            print(error)
        assert "fused" not in package.variants("smith_waterman")
    """
    said = run_python(code, **{name: value})
    (warning,) = re.findall("(.*): RuntimeWarning: variant 'auto' is 'wavefront' here, .* than 'fused': (.*)", said)
    assert warning[0] == "<string>:4"
    assert reason in warning[1]
    assert f"variant 'fused' is absent here: {warning[1]}" in said


@pytest.mark.parametrize("package", ["jax_impl", "torch_impl"])
def test_a_compiler_that_cannot_work_is_found_out_at_once_but_not_at_import(package, tmp_path, cache):
    tried, compiler = tmp_path / "tried", tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\necho $* >> {tried}\nexit 1\n")
    compiler.chmod(0o755)
    code = f"""
        from pathlib import Path
        import {package} as package, {package}.backend as backend
        assert not Path({str(tried)!r}).exists()
        for problem in ("smith_waterman", "smith_waterman_affine"):
            able = backend.abilities(problem, "cpu")
            assert able.auto == "wavefront"
            assert "compiler cannot compile C++17: exit status 1; name another compiler in CXX" in able.absent["fused"]
        assert "fused" not in package.variants("smith_waterman")
    """
    run_python(code, CXX=str(compiler))
    assert [line.split()[0] for line in tried.read_text().splitlines()] == ["--version", "-std=c++17"]
    assert not cache.exists()


def test_a_compiler_is_not_tried_where_the_cache_has_what_it_would_make(source, monkeypatch):
    cpp.compiled(target(source))
    monkeypatch.setattr(building, "_why_not_working", lambda compiler: "it does not work")
    building.check_compiler(target(source, 5), target(source))
    with pytest.raises(cpp.Absent, match="it does not work"):
        building.check_compiler(target(source, 5))


def test_the_sources_are_packaged():
    jax_own = (ROOT / "jax_impl/kernels" / name for name in ("xla.cc", "launch.cc", "driver.h"))
    for file in (*cpp.target("float32").sources, *library.HEADERS, *jax_own):
        assert file.is_file()
    text = (ROOT / "pyproject.toml").read_text()
    assert '"shared.kernels.cpp" = ["*.h", "*.cpp"]' in text
    assert '"jax_impl.kernels" = ["*.cc", "*.h"]' in text
