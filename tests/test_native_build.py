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
    command, variables = [sys.executable, "-c", textwrap.dedent(code)], {**os.environ, **environment}
    result = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120)
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
    """The text that Python prints on a terminal while it compiles two libraries."""
    terminal, other_end = os.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _TWICE, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
            stderr=other_end,
        )
        assert process.wait(120) == 0
        os.write(other_end, b"end")
        said = b""
        while not said.endswith(b"end"):
            said += os.read(terminal, 1024)
    finally:
        os.close(terminal)
        os.close(other_end)
    return said.decode().removesuffix("end").replace("\r\n", "\n")


def test_only_a_terminal_is_told_and_once_that_kernels_are_compiled(source, tmp_path, cache, monkeypatch):
    second = tmp_path / "second.cpp"
    second.write_text("int second() { return 2; }\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    line = "compiling alignment kernels for this CPU, as they are called (each once, about 3 s; kept in ~/cache)\n"
    assert said_on_a_terminal(source, second) == line
    assert said_on_a_terminal(source, second) == ""  # they are in the cache
    monkeypatch.setenv("ALIGNMENT_CACHE", str(tmp_path / "of the log"))
    said = said_on_a_terminal(source, second, "log")  # which says it already
    assert said.count("compiling answer (once; kept in") == said.count("compiling") == 2
    monkeypatch.setenv("ALIGNMENT_CACHE", str(tmp_path / "of no terminal"))
    code = f"import sys; sys.argv[1:] = {str(source)!r}, {str(second)!r}\n{_TWICE}"
    assert run_python(code, PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}") == ""
    monkeypatch.setattr(sys, "stderr", None)
    assert answer(cpp.compiled(target(source, 3)._replace(sources=(source, second)))) == 3


def test_a_change_of_source_header_flags_compiler_or_cpu_is_another_library(
    source, tmp_path, monkeypatch, compilations
):
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
    cpu = building._cpu()
    monkeypatch.setattr(building, "_cpu", lambda: f"{cpu} and more")
    paths.append(cpp.compiled(target(source, 5)))
    assert len(set(paths)) == 6
    assert compilations.count() == 4


def test_an_object_is_compiled_once_for_all_that_are_linked_with_it(tmp_path, cache):
    path = tmp_path / "common.cpp"
    path.write_text("int common() { return 7; }\n")
    common = cpp.Target("common", (path,), makes="object")
    source = tmp_path / "uses.cpp"
    source.write_text(f"int common();\n{ANSWER.replace('NUMBER', 'NUMBER + common()')}")
    two = [target(source, number)._replace(objects=(common,)) for number in (1, 2)]
    assert [answer(cpp.compiled(wanted)) for wanted in two] == [8, 9]
    (kept,) = cache.glob("common-*.o")
    path.write_text("int common() { return 8; }\n")
    assert answer(cpp.compiled(two[0])) == 9
    assert len(list(cache.glob("common-*.o"))) == 2
    # a foreign library goes with its objects
    path = cpp.compiled(two[1])
    path.write_bytes(b"complete, but not for this system")
    (kept,) = (other for other in cache.glob("common-*.o") if other != kept)
    kept.write_bytes(b"likewise")
    assert cpp.load(two[1])._name == str(path)
    assert answer(path) == 10


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


@pytest.mark.parametrize("package", [pytest.param("jax_impl", marks=pytest.mark.slow), "torch_impl"])
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


NO_COMPILER = "no C++ compiler: none of c++, g++, clang++ on the PATH; install one, or name it in CXX"
MISSING = "CXX", "c++ -D__builtin_convertvector=missing", "=missing cannot compile alignment-"


# a reason that is known before the first build, and one that only the build finds
@pytest.mark.parametrize(
    ("package", "name", "value", "reason"),
    [
        ("jax_impl", "PATH", "/nowhere", NO_COMPILER),
        pytest.param("jax_impl", *MISSING, marks=pytest.mark.slow),
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


@pytest.mark.parametrize("package", ["jax_impl", pytest.param("torch_impl", marks=pytest.mark.slow)])
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
