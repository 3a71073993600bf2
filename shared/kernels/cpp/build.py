"""Compiles C++ into a shared library for this machine's CPU, once: libraries are cached in the user's cache folder.

A library's file name holds a hash of what it was made from (sources, flags, CPU), and one of the compiler. It gets this
name only when it is complete, by renaming, so a build that was killed leaves nothing that could be mistaken for a
result. Where there is no compiler, as in a container whose image was built with one, a library made by any is taken.
Processes that need the same library at the same time wait for one of them by a file lock. A library that cannot be
loaded is compiled again.
"""

import contextlib
import errno
import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

FOLDER = "jax-torch-alignment"
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden")
# Floating-point freedoms of the compiler: the kernels test for NaN, so it must respect NaN and infinities, but none
# of them reads errno, floating-point exception flags or the sign of a zero.
FLOATING_POINT_FLAGS = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros")
LINK_FLAGS = {"library": ("-shared",), "program": (), "object": ("-r", "-nostdlib")}
# a hung compiler is no better than none
COMPILE_TIMEOUT_SECONDS = 900
# a wait for another process's build; after it, at worst both compile the same
LOCK_TIMEOUT_SECONDS = 300

_has_announced = False


class Absent(RuntimeError):
    """Raised where there is no native library; the text is one line that says why."""


class Target(NamedTuple):
    """One file to be made."""

    name: str  # prefix of the file's name
    sources: tuple[Path, ...]  # compiled in parallel
    headers: tuple[Path, ...] = ()  # included by the sources; part of the hash
    flags: tuple[str, ...] = ()  # after the flags of every library, so that they can override them
    # a program: such as a test with a sanitizer; an object: what several libraries are linked with
    makes: Literal["library", "program", "object"] = "library"
    objects: tuple["Target", ...] = ()  # linked with the sources; compiled once for all targets that have them


def compiled(target: Target) -> Path:
    """The compiled library, from the cache or by compiling it now. Raises Absent with the reason."""
    try:
        compiler = find_compiler()
    except Absent:
        if path := _by_any_compiler(target):
            return path
        raise
    name = _file_name(target, compiler)
    reasons: list[str] = []
    for folder in (cache_folder(), _temporary_folder()):
        try:
            path = _cached_or_compiled(target, compiler, folder / name)
        except OSError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            _warn(
                f"compiled kernels are cached in {folder} because {reason}; set ALIGNMENT_CACHE to use another folder"
            )
        return path
    raise Absent(f"no usable folder for compiled kernels: {'; '.join(reasons)}; set ALIGNMENT_CACHE to one")


@cache
def _warn(text: str) -> None:
    """Log this warning once in a process."""
    log.warning(text)


def _cached_or_compiled(target: Target, compiler: tuple[str, ...], path: Path) -> Path:
    _prepare(path.parent)
    if not path.exists():
        lock = FileLock(path.parent / f"{target.name}.lock")
        with contextlib.suppress(Timeout, NotImplementedError):  # some network folders have no locks
            lock.acquire(timeout=LOCK_TIMEOUT_SECONDS)
        try:
            if not path.exists():  # another process may have compiled it while this one waited
                if lock.is_locked:
                    for killed in path.parent.glob(f"{_unfinished(target)}*"):
                        shutil.rmtree(killed, ignore_errors=True)
                _compile(target, compiler, path)
        finally:
            lock.release()
    return path


def _by_any_compiler(target: Target) -> Path | None:
    """A cached library of these sources for this CPU."""
    return next(cache_folder().glob(_file_name(target)), None)


def why_no_compiler() -> str | None:
    """None if there seems to be a compiler; else the reason, in one line. Runs nothing."""
    try:
        find_compiler()
    except Absent as reason:
        return str(reason)
    return None


def find_compiler() -> tuple[str, ...]:
    """The compiler's command: CXX, which may have arguments, or the first usual name on the PATH. Raises Absent."""
    if sys.platform not in ("linux", "darwin"):
        raise Absent(f"the native kernels are compiled on Linux and macOS only, not on {sys.platform}")
    variable = os.environ.get("CXX", "").strip()
    try:
        command = shlex.split(variable)
    except ValueError as error:
        raise Absent(f"the environment variable CXX is {variable!r}: {error}") from error
    if command:
        path = shutil.which(command[0])
        if not path:
            raise Absent(f"the environment variable CXX is {variable!r}, which is no program")
        return (path, *command[1:])
    for name in COMPILERS:
        path = shutil.which(name)
        if path:
            return (path,)
    raise Absent(f"no C++ compiler: none of {', '.join(COMPILERS)} on the PATH; install one, or name it in CXX")


def check_compiler(*targets: Target) -> None:
    """Raise Absent unless one of these libraries is cached or the compiler accepts an empty file, tried once.

    That takes milliseconds, where a build takes seconds.
    """
    try:
        compiler, folder = find_compiler(), cache_folder()
    except Absent:
        if any(map(_by_any_compiler, targets)):
            return
        raise
    if not any(os.path.exists(folder / _file_name(target, compiler)) for target in targets):
        reason = _why_not_working(compiler)
        if reason:
            raise Absent(reason)


@cache
def _why_not_working(compiler: tuple[str, ...]) -> str | None:
    # with a header, which may be missing where the compiler is not
    result = _run((*compiler, "-std=c++17", "-x", "c++", "-fsyntax-only", "-include", "cstdint", os.devnull))
    if result.returncode:
        return f"{shlex.join(compiler)} cannot compile C++17: {_first_error(result)}; name another compiler in CXX"
    return None


def cache_folder() -> Path:
    """The folder of the compiled libraries, absolute; it may be removed at any time."""
    chosen, shared = os.environ.get("ALIGNMENT_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if chosen and not chosen.startswith("~"):
        return _absolute(chosen)
    users = shared if os.path.isabs(shared) else "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    folder = os.path.expanduser(chosen or f"{users}/{FOLDER}")
    return Path(folder) if os.path.isabs(folder) else _temporary_folder()  # "~" stays where no home is known


@cache
def _absolute(folder: str) -> Path:
    """The absolute path that a relative one had when it was first used, whatever the working folder is since."""
    return Path(folder).absolute()


def cache_is_usable() -> bool:
    """Whether compiled libraries can be cached for other processes."""
    folder = cache_folder()
    try:
        _prepare(folder)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _prepare(folder: Path) -> None:
    """Make the folder. Raises OSError where it cannot be, or libraries in it may not be loaded."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if os.statvfs(there).f_flag & getattr(os, "ST_NOEXEC", 0):  # known before one is compiled
        raise PermissionError(errno.EACCES, "mounted noexec", str(folder))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder == _temporary_folder():  # whose name anybody may have taken
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(errno.EACCES, "not owned by this user alone", str(folder))


def _temporary_folder() -> Path:
    """This user's folder for compiled libraries where the cache folder cannot be used."""
    return Path(tempfile.gettempdir(), f"{FOLDER}-{os.getuid()}")


def _file_name(target: Target, compiler: tuple[str, ...] = ()) -> str:
    """The name of a target's file, with hashes of everything that determines the compiler's output.

    Without a compiler a pattern that fits the files of all.
    """
    digest = hashlib.sha256()
    flags = (*FLAGS, *LINK_FLAGS[target.makes], *FLOATING_POINT_FLAGS, *target.flags)
    for text in (*flags, *map(_file_name, target.objects), _cpu()):
        digest.update(os.fsencode(text) + b"\0")  # a path need not be UTF-8
    for file in (*target.sources, *target.headers):
        try:
            content = file.read_bytes()
        except OSError as error:
            raise Absent(f"a source is missing: {error}") from error
        digest.update(os.fsencode(f"{file.name} {len(content)}\0") + content)
    made_by = hashlib.sha256()
    for text in (*compiler, os.path.realpath(compiler[0]), _version(compiler)) if compiler else ():
        made_by.update(os.fsencode(text) + b"\0")
    which = made_by.hexdigest()[:8] if compiler else "*"
    return f"{target.name}-{digest.hexdigest()[:20]}.{which}{'.o' if target.makes == 'object' else '.so'}"


@cache
def _version(compiler: tuple[str, ...]) -> str:
    return _run((*compiler, "--version")).stdout


@cache
def _cpu() -> str:
    """The processor's model and features, on which -march=native depends."""
    try:
        if sys.platform == "darwin":
            return platform.machine() + _run(("sysctl", "-n", "machdep.cpu.brand_string")).stdout
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except (OSError, Absent):
        return platform.machine()
    pattern = r"^(vendor_id|cpu family|model|flags|Features|CPU (?:implementer|part|variant))\s*:.*$"
    return "\n".join([platform.machine(), *(match[0] for match in re.finditer(pattern, text, re.MULTILINE))])


@cache
def _machine_flags(compiler: tuple[str, ...]) -> tuple[str, ...]:
    """Flags for this machine's CPU, as far as the compiler has them; the hash in the file name covers its inputs."""
    flags = next(((flag,) for flag in ("-march=native", "-mcpu=native") if _accepts(compiler, flag)), ())
    # compilers prefer half-width vectors on some CPUs, for programs that use few of them
    wide = "-mprefer-vector-width=512"
    if "avx512f" in _cpu().split() and _accepts(compiler, wide):
        flags = (*flags, wide)
    return flags


def _accepts(compiler: tuple[str, ...], flag: str) -> bool:
    return _run((*compiler, flag, "-Werror", "-x", "c++", "-fsyntax-only", os.devnull)).returncode == 0


def _compile(target: Target, compiler: tuple[str, ...], path: Path) -> None:
    flags = (*FLAGS, *_machine_flags(compiler), *FLOATING_POINT_FLAGS, *target.flags)
    log.info("compiling %s (once; kept in %s): %s", target.name, path.parent, shlex.join((*compiler, *flags)))
    with tempfile.TemporaryDirectory(prefix=_unfinished(target), dir=path.parent) as name:
        folder = Path(name)

        def compile_source(source: Path | Target) -> Path:
            if isinstance(source, Target):
                return _cached_or_compiled(source, compiler, path.parent / _file_name(source, compiler))
            written = folder / f"{source.stem}.o"
            _write(target, written, compiler, (*flags, "-c", str(source)))
            return written

        with _announced(path.parent), ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_source, (*target.sources, *target.objects)))
        unfinished = folder / path.name
        _write(target, unfinished, compiler, (*flags, *LINK_FLAGS[target.makes], *map(str, objects)))
        os.replace(unfinished, path)


@contextlib.contextmanager
def _announced(folder: Path) -> Iterator[None]:
    """Say in a line, once, why the first call takes so long, and how long; not where the log says it already."""
    global _has_announced
    if _has_announced or log.isEnabledFor(logging.INFO) or sys.stderr is None:
        yield
        return
    _has_announced, start = True, time.monotonic()
    home = os.path.expanduser("~")
    place = Path("~", folder.relative_to(home)) if folder.is_relative_to(home) else folder
    text = f"compiling alignment kernels for this CPU, each at its first call, once (kept in {place}): the first took"
    print(text, end=" ", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(f"{time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def _unfinished(target: Target) -> str:
    """The beginning of the name of the folder in which a target is being compiled."""
    return f".building-{target.name}."  # the dot: longer names of targets go on with "-"


def _write(target: Target, path: Path, compiler: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    """Have the compiler write this file. Raises Absent."""
    result = _run((*compiler, *arguments, "-o", str(path)))
    if result.returncode:
        raise Absent(f"{shlex.join(compiler)} cannot compile {target.name}: {_first_error(result)}")
    if not path.exists():  # a compiler that only claims success, such as `true`
        raise Absent(f"{shlex.join(compiler)} has written nothing for {target.name}")


def forget(path: Path, target: Target) -> None:
    """Remove a library that cannot be loaded, with its objects, so that they are compiled again."""
    compiler = find_compiler()
    for name in (path.name, *(_file_name(object_, compiler) for object_ in target.objects)):
        with contextlib.suppress(OSError):
            (path.parent / name).unlink()


def _run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=COMPILE_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(f"{command[0]} cannot be run: {error}") from error


def _first_error(result: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (result.stderr + result.stdout).splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|No space left", line, re.IGNORECASE)]
    return (errors or lines or [f"exit status {result.returncode}"])[0]
