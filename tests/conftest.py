"""Fixtures and settings of all tests."""

import gc
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
import torch

from jax_impl.transformed import QUICK
from shared.kernels.cpp import build
from shared.kernels.cpp.library import HEADERS

# these want Triton's interpreter from the beginning of their process: test_interpreted.py runs them
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]
# these want a driver of their own before any framework is imported: test_launcher.py runs them
collect_ignore += ["launches", "sharded"]


# or PyTorch's compiler begins with programs that try the CPU's vectors: seconds in each empty cache
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# nor collects garbage after each function that it compiles
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")
# tracing and compiling make many objects that live on: Python's usual collections of garbage take a tenth of the time
gc.set_threshold(50_000, 20, 20)


# XLA optimises little, to compile faster; tests of what users get ask for AS_BY_DEFAULT (frameworks.py)
QUICKLY = " ".join(f"--{name}={str(value).lower()}" for name, value in QUICK.items())
QUICKLY += " --xla_cpu_parallel_codegen_split_count=1"  # each process of the suite has one core
# what XLA compiles is kept for the other tests, processes and runs: that is most of a JAX test's time
KEPT = {"jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "xla"),
        "jax_persistent_cache_min_compile_time_secs": 0.0}  # fmt: skip


def precompile_headers() -> None:
    """Compile the standard headers of the kernels, which GCC then takes where its other options are the same."""
    header = Path(KEPT["jax_compilation_cache_dir"]).with_name("headers.h")
    version = subprocess.run(("c++", "--version"), capture_output=True, text=True).stdout
    if header.with_suffix(".h.gch").exists() or "Free Software" not in version:  # Clang refuses what GCC ignores
        return
    header.parent.mkdir(exist_ok=True)
    lines = re.findall(r"^#include <(?!arm).*\n", "".join(map(Path.read_text, HEADERS)), re.MULTILINE)
    header.write_text("".join(sorted({*lines})))
    flags = (*build.FLAGS, *build._machine_flags(("c++",)), *build.FLOATING_POINT_FLAGS, "-Og")
    subprocess.run(("c++", *flags, "-x", "c++-header", str(header)))


def pytest_configure(config: pytest.Config) -> None:
    for name, value in KEPT.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)  # for child processes
    if shutil.which("c++"):
        name = "quick_compiler.sh" if "not slow" in (config.getoption("markexpr") or "") else "quick_for_most.sh"
        os.environ.setdefault("CXX", str(Path(__file__).with_name(name)))
        if not hasattr(config, "workerinput"):  # before the processes of the suite
            precompile_headers()
    # on a machine with a GPU, JAX would choose kernels for it wherever a test on the CPU traces
    if "not cuda" in (config.getoption("markexpr") or ""):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        if QUICKLY not in os.environ.get("XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First a long file that calls no native kernel, while the other process compiles them; then the next longest."""
    first = ("test_interpreted", "test_transform_matrix", "test_whole_runs", "test_parity", "test_native")
    items.sort(key=lambda item: first.index(item.path.stem) if item.path.stem in first else len(first))


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    """Use one thread: the suite runs a process per core, and eager loops take small steps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a run makes its temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def triton_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


@pytest.fixture
def triton_knows_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_programs import Driver
    from triton.runtime import driver

    monkeypatch.setattr(driver, "_active", Driver())
