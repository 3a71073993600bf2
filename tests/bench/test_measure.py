"""The stage `measure`: clock and warm-up, peak memory, the machine, its GPU, variables that change times, and code."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch._inductor.config
from hand_made import case, record, steady
from in_process import assert_refused, run_here, start_at_once
from rendered import console_report, html_report, markdown_report

import jax_impl.backend
import torch_impl.backend
from shared.bench.measure import clock as clock_module
from shared.bench.measure import machine as machine_module
from shared.bench.measure import memory
from shared.bench.measure.clock import MOST_WARM_UP_CALLS, MOST_WARM_UP_SECONDS, WINDOW, warm_up
from shared.bench.measure.gpu_state import in_words, sampled, summary
from shared.bench.measure.machine import best_rate, different_environments, machine, stream_bandwidth
from shared.bench.measure.measured_code import code_hash
from shared.bench.measure.memory import resident_peak
from shared.bench.measure.variables import changed, disabling, recorded, warnings
from shared.bench.worker.commands import outcome
from shared.problems import own_file
from tools import docs

# the clock and the warm-up, in simulated time


class Clock:
    """Time that passes only in `call`, by the next of the given durations; the last goes on for ever."""

    def __init__(self, *durations: float) -> None:
        self.durations, self.now, self.calls = durations, 0.0, 0

    def call(self) -> int:
        self.now += self.durations[min(self.calls, len(self.durations) - 1)]
        self.calls += 1
        return self.calls


@pytest.mark.parametrize(
    ("durations", "settled", "seconds", "calls"),
    [
        ([0.125] * 5 + [0.5], True, 0.125, 2 * WINDOW),  # one slow call changes nothing
        # five that get faster, then the first two windows of which most are even
        ([*(2.0 ** -(2 + step) for step in range(5)), 2.0**-7], True, 2.0**-7, 5 + 2 * WINDOW - 1),
        ([0.01 * 0.98**step for step in range(MOST_WARM_UP_CALLS + 1)], False, None, MOST_WARM_UP_CALLS),
        ([0.125 * 0.9**step for step in range(20)], False, None, 15),  # the next one would end too late
        ([10 * MOST_WARM_UP_SECONDS], None, 10 * MOST_WARM_UP_SECONDS, 1),  # too few calls to tell
    ],
)
def test_a_warm_up_ends_when_times_have_settled_or_a_bound_is_reached(
    monkeypatch: pytest.MonkeyPatch, durations: list[float], settled: bool | None, seconds: float | None, calls: int
):
    clock = Clock(*durations)
    monkeypatch.setattr(clock_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    outcome = warm_up(clock.call)
    assert (outcome[0], clock.calls) == (settled, calls) and outcome[1] == (seconds or outcome[1])


# memory and the machine


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read from /proc")
def test_peak_memory_of_a_call_is_above_what_was_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    if resident_peak(lambda: None) is None:
        pytest.skip("this system does not report the peak of a process")
    mebibyte = 2**20

    def above(call: Callable[[], Any]) -> int:
        before, peak = resident_peak(call) or (0, 0)
        return peak - before

    np.ones(64 * mebibyte, np.uint8).sum()  # an earlier peak
    in_use = np.ones(64 * mebibyte, np.uint8)  # and memory in use
    assert above(lambda: None) < 8 * mebibyte and in_use.all()
    assert 60 * mebibyte < above(lambda: np.ones(64 * mebibyte, np.uint8).sum()) < 100 * mebibyte  # freed at the end
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "missing" / "file")
    assert resident_peak(lambda: None) is None


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_is_dirty_only_if_code_has_changed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    code, result = tmp_path / "code.py", tmp_path / "results" / "run.json"
    result.parent.mkdir()
    code.write_text("one\n")
    result.write_text("one\n")
    monkeypatch.setattr(machine_module, "ROOT", tmp_path)
    git("init", "-q")
    git("add", "code.py", "results")
    git("commit", "-q", "-m", "one")
    clean = machine()["git_commit"]
    (tmp_path / "new.json").write_text("an untracked file\n")
    result.write_text("a recorded result\n")
    assert re.fullmatch(r"[0-9a-f]{40,64}", clean) and machine()["git_commit"] == clean
    code.write_text("two\n")
    assert machine()["git_commit"] == f"{clean}-dirty"
    with monkeypatch.context() as patch:
        patch.setattr(machine_module, "ROOT", result.parent)  # as in an environment within another checkout
        assert machine()["git_commit"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine()["git_commit"] is None  # without git


def test_memory_streams_at_the_best_of_a_few_plausible_rates(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine_module, "_STREAM_BYTES", 2**24)
    before = threading.active_count()
    assert 1e8 < stream_bandwidth(2) < 1e13 and threading.active_count() == before
    seconds = iter([4.0, 2.0, 8.0, 0.5, 1.0])
    assert best_rate(lambda: next(seconds), 10.0) == 20.0
    assert next(seconds, None) is None


# the state of a GPU, by an nvidia-smi that is a script

SAMPLES = """\
210, 2619, 75.1, 31, 0x0000000000000001
1980, 3201, 400.0, 50, 0x0000000000000000
1755, 3201, 690.5, 61, 0x0000000000000004
1500, 3201, [N/A], 61, 0x0000000000000004
1965, 3201, 500
"""


def test_clocks_and_power_are_those_of_the_gpu_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (text := tmp_path / "samples").write_text(SAMPLES)
    (tool := tmp_path / "nvidia-smi").write_text(
        f"#!/bin/sh\necho $* > {tmp_path}/asked\necho $$ > {tmp_path}/pid\ncat {text}\nexec sleep 60\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1f2e,0")
    with sampled("cuda") as lines:
        end = time.monotonic() + 10
        while len(lines) < SAMPLES.count("\n"):
            assert time.monotonic() < end
            time.sleep(0.02)
    assert (tmp_path / "asked").read_text().startswith("--id GPU-1f2e --query-gpu=clocks.sm,")
    state = summary(lines)
    assert state["samples"] == 3 and state["throttled"] == {"power": 2 / 3}
    assert state["sm_mhz"] == [1500, 1755, 1980] and state["watts"] == [400, 545.25, 690.5]
    text = in_words(state)
    assert "; slowed down by power in 67% of 3 samples; " in text and "1,755 MHz (1,500 … 1,980), " in text
    assert in_words(summary(["[N/A], [N/A], [N/A], 40, 0x0"])).startswith("GPU at work: 40 °C (40 … 40); never")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for device in ("cpu", "cuda"):
        with sampled(device) as lines:
            pass
        assert summary(lines) == {}


# environment variables and settings that change what is measured


@pytest.mark.parametrize(
    ("name", "on", "off"),
    [
        ("JAX_DISABLE_JIT", "1", "0"),
        ("TORCH_COMPILE_DISABLE", "1", "true"),  # PyTorch takes "1" alone for on
        ("TORCHDYNAMO_DISABLE", "1", "true"),
        ("TORCH_COMPILE_OVERRIDE_BACKENDS", ">=0:eager", ""),
    ],
)
def test_a_variable_that_disables_a_compared_compiler_is_refused(
    name: str, on: str, off: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(name, on)
    where = f"{name}={on}, in the environment, disables the compiler that is compared: "
    assert_refused(run_here("--size", "6x7"), f"{where}unset it, as by: env -u {name} python compare.py ...")
    assert disabling(["torch" if name.startswith("JAX") else "jax"]) is None
    monkeypatch.setenv(name, off)
    assert disabling(["jax", "torch"]) is None


DISABLED: dict[str, tuple[Any, Any]] = {
    "jax_disable_jit": (jax_impl.backend, jax.disable_jit),
    "torch._dynamo.config.disable": (torch_impl.backend, partial(torch._dynamo.config.patch, disable=True)),
    "torch.compiler.set_stance('force_eager')": (torch_impl.backend, partial(torch.compiler.set_stance, "force_eager")),
}


@pytest.mark.parametrize("switch", DISABLED)
def test_a_function_that_disables_its_compiler_fails_its_case(switch: str):
    backend, disabled = DISABLED[switch]
    commands: Any = SimpleNamespace(backend=backend, start_compiler_before=lambda *_: None, measure=lambda _: {})
    assert outcome(commands, "measure", case("torch", "vmap"), {})["status"] == "ok"
    with disabled():
        done = outcome(commands, "measure", case("torch", "vmap"), {})
    assert done["status"] == "failed" and f"{switch} is set, which disables the compiler" in done["reason"]


OWN = """
import os
import numpy

os.environ["{}"] = "{}"

def inputs(seed):
    os.environ["MKL_VERBOSE"] = "1"
    return (numpy.ones(3),)

def reference(x):
    return x + 1

def jax_function(x):
    return x + 1
"""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The path of a user's file; what it sets is unset after the test."""
    for name in ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "MKL_VERBOSE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "mine.py"
    own_file.SET_BY_FILES.clear()


def test_a_file_that_disables_a_compiler_is_named_in_place_of_the_environment(own: Path):
    own.write_text(OWN.format("JAX_DISABLE_JIT", "1"))
    text = "JAX_DISABLE_JIT=1, set by mine.py, disables the compiler that is compared: remove it there"
    assert_refused(run_here("--problem", "mine.py"), text)


def test_a_path_that_is_not_utf_8_is_refused_for_jax(own: Path):
    path = own.parent / os.fsdecode(b"caf\xe9.py")
    path.write_text(OWN.format("ANY", "1"))
    text = "JAX cannot compile code whose path is not UTF-8, got 'caf\\udce9.py': rename it"
    assert_refused(run_here("--problem", path.name), text)


def test_variables_that_a_file_sets_are_no_part_of_the_environment(own: Path, monkeypatch: pytest.MonkeyPatch):
    own.write_text(OWN.format("JAX_DEBUG_NANS", "1"))
    start_at_once(monkeypatch)
    done = run_here("--problem", "mine.py")
    assert not any(line.startswith("TypeError") for line in done.err)  # one computation has no number of pairs
    printed = done.out
    assert printed.count("JAX_DEBUG_NANS") == 1  # not among those of the environment
    assert "The code that was measured changed settings that change times: JAX_DEBUG_NANS=1, MKL_VERBOSE=1." in printed


SETTINGS: dict[str, tuple[Any, Any]] = {  # name: how it is set, and to which value
    "jax_debug_nans": (partial(jax.config.update, "jax_debug_nans"), True),
    "jax_enable_x64": (partial(jax.config.update, "jax_enable_x64"), True),
    "jax_default_matmul_precision": (partial(jax.config.update, "jax_default_matmul_precision"), "high"),
    "torch.get_default_dtype()": (torch.set_default_dtype, torch.float64),
    "torch.get_default_device()": (torch.set_default_device, torch.device("meta")),
    "torch.get_num_threads()": (torch.set_num_threads, 3),
    "torch.is_grad_enabled()": (torch.set_grad_enabled, False),
    "torch.is_anomaly_enabled()": (torch.autograd.set_detect_anomaly, True),
    "torch.are_deterministic_algorithms_enabled()": (torch.use_deterministic_algorithms, True),
    "torch.set_flush_denormal()": (torch.set_flush_denormal, True),
    "torch.compiler.set_stance()": (torch.compiler.set_stance, "force_eager"),
    "torch.backends.mkldnn.enabled": (lambda value: torch._C._set_mkldnn_enabled(value), False),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_a_function_changes_is_seen_and_warned_of(name: str):
    backend = jax_impl.backend if name.startswith("jax") else torch_impl.backend
    before, (change, value) = backend.settings(), SETTINGS[name]
    change(value)
    try:
        changes = changed(before, backend.settings())
    finally:
        change(None if "device" in name else before[name])
    assert changes.pop(name) == str(value)
    assert set(changes) <= {"torch._inductor.config.deterministic"}  # which PyTorch sets too
    (line,) = warnings({}, {name: str(value)})
    assert line.endswith(f" changed settings that change times: {name}={value}.")
    assert not changed(before, backend.settings())


def test_settings_of_torch_compile_that_a_function_changes_are_seen():
    before = torch_impl.backend.settings()
    with torch._inductor.config.patch({"max_autotune": True, "cpp.threads": 3}):
        changes = changed(before, torch_impl.backend.settings())
    assert changes == {"torch._inductor.config.max_autotune": "True", "torch._inductor.config.cpp.threads": "3"}
    assert changed({"a": 1}, {"a": "/home/ann/x", "b": 2}) == {"a": "x"}  # b: of a module imported since


def test_variables_are_recorded_and_those_that_change_times_warned_of(monkeypatch: pytest.MonkeyPatch):
    variables_set = {
        "JAX_DEBUG_NANS": "1", "XLA_FLAGS": "--xla_dump_to=/home/ann/dump --x='/home/ann lee/my dump' --y=\"/a b/c\"",
        "JAX_PLATFORMS": "cpu", "LD_PRELOAD": "/usr/lib/libjemalloc.so.2", "NVIDIA_VISIBLE_DEVICES": "all",
        "EDITOR": "vi", "TORCH_HOME": r"/opt/my\ torch/here", "TORCHINDUCTOR_FREEZING": "1",
    }  # fmt: skip
    for name in recorded():
        monkeypatch.delenv(name)
    for name, value in variables_set.items():
        monkeypatch.setenv(name, value)
    assert recorded() == {
        "JAX_DEBUG_NANS": "1", "LD_PRELOAD": "libjemalloc.so.2", "TORCH_HOME": "here",
        "TORCHINDUCTOR_FREEZING": "1", "XLA_FLAGS": "--xla_dump_to=dump --x='my dump' --y=\"c\"",
    }  # fmt: skip
    (line,) = warnings(recorded(), {})
    assert line.startswith("The environment has variables that change times: JAX_DEBUG_NANS=1, LD_PRELOAD=libjemalloc")
    assert "TORCHINDUCTOR_FREEZING=1, XLA_FLAGS=" in line and "TORCH_HOME" not in line
    assert not list(warnings({"TORCH_HOME": "torch"}, {"jax_log_compiles": "True"}))


def test_a_variable_of_one_environment_alone_was_not_set_in_the_other():
    before, after = {"variables": {"KMP_AFFINITY": "none"}}, {"variables": {"XLA_FLAGS": "--x=1"}}
    differences = ["KMP_AFFINITY was none, is not set", "XLA_FLAGS was not set, is --x=1", "jax_x was not set, is 2"]
    assert different_environments(before, after | {"settings": {"jax_x": "2"}}) == differences
    assert not different_environments({}, after)  # a record of before they were recorded


def test_every_run_records_the_variables(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JAX_DEBUG_NANS", "1")
    start_at_once(monkeypatch)
    assert "WARNING: The environment has variables that change times: JAX_DEBUG_NANS=1" in run_here("--size", "6x7").out


# the hash of the code that is measured

CHECKOUT = {
    "jax_impl/sweeps.py": '''
import functools
import jax.numpy as jnp
from jax.lax import sub
from shared.smooth import larger, smax
class Rows:
    scale: float
    def next_one(self, row):
        """The next one."""
        return self.scale * row
def vmap(rows: Rows, matrix):
    """The sum."""  # as it is
    total = 0.5
    for row in matrix:
        total = smax(total, rows.next_one(row)) + 3
        total = larger(total, y=sub(row, 1))
    return jnp.sin(total.exp())
jnp.register("rows", order=5)
def cell_loop(matrix):
    return matrix * 7
''',
    "jax_impl/kernels/fused.py": "from shared import checks\nfrom shared.kernels.cpp import library\n"
    "def fused(x):\n    return library.run(checks.check(x))\nIN_TRITON = 'jax_impl.kernels.triton_binding'\n",
    "jax_impl/kernels/triton_binding.py": "from shared.kernels.triton.forward import forward\n",
    "shared/smooth.py": "def smax(a, b):\n    return a + b\n\ndef larger(a, y):\n    return a if a > y else y\n",
    "shared/checks.py": "def check(s):\n    return s\n",
    "shared/kernels/cpp/library.py": 'PACKAGES = ("torch_impl",)\n\n\ndef run(x):\n    return x\n',
    "torch_impl/__init__.py": "HALF = 0.5\n",
    "shared/kernels/cpp/solve.h": '#include "worth.h"\n/* Solves. */\nfloat solve(float *row) {\n'
    "  const float half = 0.5f;  // of it\n  return worth(std::exp(half * row[0]));\n}\n",
    "shared/kernels/cpp/worth.h": "inline float worth(float x) { return x + 1; }\n",
    "shared/kernels/triton/forward.py": "def forward(x):\n    return x\n",
}


def hashes_of(folder: Path, old: str = "", new: str = "") -> dict[str, str]:
    """The hashes of the checkout above, with a change in its files and their names."""
    for name, text in CHECKOUT.items():
        path = folder / re.sub(old, new, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(re.sub(old, new, text))
    devices = {"vmap": "cpu", "cell_loop": "cpu", "fused": "cpu", "fused on a GPU": "cuda"}
    names = {name: (name.split()[0], "smith_waterman", device) for name, device in devices.items()}
    return {name: code_hash("jax", *problem, folder) for name, problem in names.items()}


@pytest.mark.parametrize(
    ("old", "new", "of"),
    [
        (r"\btotal\b", "found", set()),  # a local name
        (r"\bsmax\b", "softmax", set()),  # a function
        ("smooth", "maxima", set()),  # a module
        ("(?s)(def smax.*)(def larger.*)", r"\2\1", set()),  # another order
        (r'"""The (sum|next one)."""(  # as it is)?', '"""Another one."""', set()),
        ("total = smax(.*) [+] 3", "total = (\n      smax(total,rows.next_one(row))+3)", set()),
        (r"\bhalf\b", "a_half", set()),  # in C++
        ("worth", "a_worth", set()),  # now the first file
        ("  const float half = 0.5f;  // of it", "const\nfloat   half=0.5f;", set()),
        ("0[.]5\n", "0.25\n", {"vmap"}),
        ("jnp.sin", "jnp.cos", {"vmap"}),
        (r"\bsub\b", "add", {"vmap"}),
        ("order=5", "order=6", {"vmap", "cell_loop"}),  # what a module does beside defining
        ("    return s\n", "    return 2 * s\n", set()),
        ("0[.]5f", "0.25f", {"fused"}),
        ("float", "double", {"fused", "vmap"}),
        (r"def forward\(x\):\n    return x", "def forward(x):\n    return -x", {"fused on a GPU"}),
    ],
)
def test_what_is_computed_changes_the_hash_and_names_and_formatting_do_not(
    tmp_path: Path, old: str, new: str, of: set[str]
):
    before, after = hashes_of(tmp_path / "before"), hashes_of(tmp_path / "after", old, new)
    assert {name for name in before if before[name] != after[name]} == of


def test_every_page_says_once_that_the_code_has_changed_since(tmp_path: Path):
    made = record(*(steady(case(name, variant), 0.25) for name in ("jax", "torch") for variant in ("vmap", "fused")))
    path, line = tmp_path / "recorded.json", "Measured before the project code for JAX (vmap) and for PyTorch changed."

    def told() -> list[int]:
        made.write(path)
        docs._record.cache_clear()
        blocks = [f"<!-- generated: {kind} {path} -->\n<!-- end -->\n" for kind in docs.KINDS_OF_TABLES]
        pages = [console_report(made), markdown_report([made]), html_report([made]), docs.rendered("".join(blocks))]
        return [" ".join(page.split()).replace("\\", "").count(line) for page in pages]

    assert told() == [0] * 4
    made.code["jax"]["vmap"] = made.code["torch"]["vmap"] = made.code["torch"]["fused"] = "0" * 12
    assert told() == [1] * 4
