"""tools/first_contact.py without a GPU: with a fake driver that has one, and with frameworks that take the CPU for one.
That the steps themselves are right on a GPU only a GPU can show."""

import importlib
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import ROOT, environment, plant
from frameworks import FRAMEWORKS

from shared.kernels.triton.programs import TYPES, Program
from tools import first_contact_programs as programs
from tools import first_contact_steps as steps

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the pretended driver is C"),
]

# what the comparison asks for, and this does not
ABSENT = ("Bio", "jinja2", "matplotlib", "pytest", "rich", "tabulate")

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGetName(char *name, int length, int device) { return strncpy(name, "Pretended 9000", length), 0; }
int cuDeviceGetAttribute(int *value, int which, int device) { return *value = which == 75 ? 9 : 0, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
"""

# fewer cases, on a CPU; PyTorch's free_gap is wrong, and JAX's process dies of its own
PRETENDED = """
def pretend(backend):
    name, real = backend.NAME, {key: getattr(backend, key) for key in dir(backend)}
    backend.device_problem = lambda device: None
    backend.to_device = lambda array, device: real["to_device"](array, "cpu")
    backend.environment = lambda device: real["environment"]("cpu")
    backend.flush = backend.release = lambda device: None
    backend.device_seconds = lambda launch, device: backend.wait(launch()) is None or 1e-3

    def function(problem, variant, *others, **more):
        variant = "wavefront" if variant == "vmap" else variant  # which takes long to compile
        score = real["function"](problem, variant, *others, **more)

        def wrong(similarity, *arguments, **parameters):
            is_given = "float32" in str(similarity.dtype)  # what it is compared with is computed in float64
            if name == "jax" and is_given:
                os.kill(os.getpid(), signal.SIGKILL)
            return (1.01 if is_given else 1) * score(similarity, *arguments, **parameters)

        return wrong if problem == "free_gap" else score

    backend.function = function
    backend.uncompiled_variants = dict.fromkeys(("vmap", "wavefront", "fused"), "the CPU is to be quick")


def exponentials(calls):
    calls.exponentials = lambda values, rounds, each: 2.0 ** -values


def fewer(steps):
    steps.WITH_GAPS = ("smith_waterman",)
    steps.FUNCTIONS, steps.DTYPES, steps.SHAPES = ("smith_waterman", "free_gap"), ("float32",), ((3, 1, 7), (5, 32, 17))
    steps.BATCHES = ("10x15",)


def smaller(inputs):
    inputs.GPU_SIZE, inputs.GPU_BATCH, inputs.CHIP_SIZE = (10, 15), 2, (8, 8)


def compiled(machine_code):
    machine_code.machine_code = lambda kernel, capability: None  # other tests compile for GPUs


PATCHES = {
    "jax_impl.backend": pretend,
    "torch_impl.backend": pretend,
    "jax_impl.kernels.triton_binding": exponentials,
    "torch_impl.kernels.triton_binding": exponentials,
    "shared.kernels.triton.machine_code": compiled,
    "shared.problems.alignment_inputs": smaller,
    "tools.first_contact_steps": fewer,
}
"""


def driver(folder: Path, init: int = 0) -> Path:
    """A folder with a CUDA driver that has one device and can do nothing."""
    (source := folder / "driver.c").write_text(DRIVER)
    command = ["g++", "-x", "c", "-shared", "-fPIC", f"-DINIT={init}", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(command, check=True)
    return folder


def tool(folder: Path, name: str, text: str) -> None:
    (path := folder / name).write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def command(folder: Path) -> tuple[list[str], dict[str, str]]:
    own = environment(folder) | {"LD_LIBRARY_PATH": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}
    return [sys.executable, str(ROOT / "tools/first_contact.py"), "--out", str(folder / "out")], own


class Run:
    """Exit code, output, recorded steps and files of one run."""

    def __init__(self, folder: Path) -> None:
        arguments, own = command(driver(plant(folder, PRETENDED)))
        for name in ABSENT:
            (folder / f"{name}.py").write_text(f'raise ImportError("No module named {name!r}")')
        tool(folder, "compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'")  # also where it has not looked
        tool(folder, "ncu", "echo forward_kernel; exit 3")
        done = subprocess.run(arguments, env=own, cwd=folder, capture_output=True, text=True, timeout=280)
        self.code, self.out, self.err = done.returncode, done.stdout.splitlines(), done.stderr
        self.files = sorted(path.name for path in (folder / "out").iterdir())
        lines = (folder / "out/first-contact.jsonl").read_text().splitlines()
        self.steps: dict[str, dict[str, Any]] = {line["step"]: line for line in map(json.loads, lines)}
        with tarfile.open(folder / "out/first-contact.tar.gz") as tar:
            self.kept = sorted(tar.getnames())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return Run(tmp_path_factory.mktemp("contact"))


def test_a_step_that_fails_gives_its_reason_and_does_not_stop_the_next(run: Run):
    failed = [name for name, step in run.steps.items() if step["status"] != "ok"]
    of_free_gap = [
        f"{own} fused free_gap {name} float32" for own in FRAMEWORKS for name in ("score", "marginals", "hvp")
    ]
    of_graphs = ["torch cuda_graph marginals", "torch time cuda_graph score 10x15"]
    assert sorted(failed) == sorted([*of_free_gap, *of_graphs, "ncu", "compute-sanitizer racecheck"]), run.err
    assert run.code == 1
    named = run.out[-1].partition("FAILED: ")[2].split(", ")
    assert run.out[-1].startswith("first contact with Pretended 9000, ") and sorted(named) == sorted(failed)
    assert "score off by" in run.steps["torch fused free_gap score float32"]["reason"]
    assert run.steps["jax fused free_gap hvp float32"]["reason"] == "its process ended with SIGKILL; see jax.log"
    assert run.steps["ncu"]["reason"] == "exit code 3: forward_kernel; see ncu.log"


def test_each_framework_is_asked_for_everything(run: Run):
    for own in FRAMEWORKS:
        assert run.steps[f"{own} start"]["status"] == "ok"
        assert run.steps[f"{own} ex2 of whole numbers"]["float32"]["largest_is_inf"]
        assert run.steps[f"{own} best alignments smith_waterman float32"]["status"] == "ok"
        errors = run.steps[f"{own} fused smith_waterman hvp float32"]["worst_of_what_is_allowed"]
        assert errors.keys() == {"3x1x7", "5x32x17"} and all(0 <= error < 0.5 for error in errors.values())
        assert run.steps[f"{own} fused smith_waterman hvp by position"]["worst_of_what_is_allowed"].keys() == {
            "5x32x17"
        }
        for variant, pass_name in (("wavefront", "marginals"), ("vmap", "score")):
            assert run.steps[f"{own} {variant} {pass_name}"]["status"] == "ok"
            assert run.steps[f"{own} time {variant} score 10x15"]["gcups"] > 0
        for name in ("score", "marginals", "hvp"):
            step = run.steps[f"{own} time fused {name} 10x15"]
            assert len(step["device_seconds"]) == len(step["wall_seconds"]) == 5
        assert run.steps[f"{own} time fused affine score 10x15"]["gcups"] > 0


def test_machine_code_is_compiled_and_everything_is_in_one_archive(run: Run):
    assert run.steps["compile all kernels"]["failed"] == 0 < run.steps["compile all kernels"]["kernels"]
    assert run.steps["compute-sanitizer memcheck"]["status"] == "ok"
    assert "did not say 'RACECHECK SUMMARY: 0 hazards" in run.steps["compute-sanitizer racecheck"]["reason"]
    assert run.steps["machine"]["gpu"] == {"name": "Pretended 9000", "capability": 90, "cuda": 13000, "devices": 1}
    assert run.files == ["first-contact.jsonl", "first-contact.tar.gz"]
    logs = {"compile", "jax", "torch", "memcheck", "racecheck", "ncu"}
    assert {f"first-contact/{name}.log" for name in logs} | {"first-contact/first-contact.jsonl"} <= set(run.kept)


def test_an_interrupt_keeps_what_is_done_and_leaves_no_process(tmp_path: Path):
    arguments, own = command(driver(plant(tmp_path, PRETENDED)))
    tool(tmp_path, "nvidia-smi", f"echo $$ > {tmp_path}/number; exec sleep 60")
    with subprocess.Popen(arguments, env=own, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        while not (number := tmp_path / "number").exists() or not number.read_text():
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.search(r"first contact with Pretended 9000, \d+ s, interrupted: ", out)
    assert (tmp_path / "out/first-contact.tar.gz").exists()
    status = Path("/proc", number.read_text().strip(), "stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


@pytest.mark.parametrize("init", [None, 100])
def test_without_a_gpu_there_is_one_line(init: int | None, tmp_path: Path):
    arguments, own = command(tmp_path if init is None else driver(tmp_path, init))
    done = subprocess.run(arguments, env=own, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "no CUDA device: libcuda.so.1 knows none\n"
    assert not (tmp_path / "out").exists()


def test_the_kernels_compiled_up_front_are_those_that_the_steps_launch(monkeypatch: pytest.MonkeyPatch):
    import torch_impl.alignment
    from torch_impl.kernels import fused, plain_calls, triton_binding

    launched = set()

    def note(program: Program, given: dict[str, Any]) -> dict[str, Any]:
        launched.update(launch.kernel for launch in program.launches)
        types = {name: getattr(torch, own) for name, own in TYPES.items()}
        own = program.results.items()
        return {name: torch.zeros(shape, dtype=types.get(name, given["values"].dtype)) for name, shape in own}

    for module in (fused, torch_impl.alignment, importlib.import_module("torch_impl.best_alignment")):
        monkeypatch.setattr(module, "is_on_gpu", lambda own: isinstance(own, torch.Tensor))
    monkeypatch.setattr(plain_calls, "is_plain", lambda *_: False)
    monkeypatch.setattr(triton_binding, "_run", note)
    own = steps.Steps("torch")
    for problem, dtype, pass_name, shape in itertools.product(
        steps.FUNCTIONS, steps.DTYPES, steps.PASSES, steps.SHAPES
    ):
        arrays = similarity, lengths, _ = steps.ragged(problem, *shape)
        own._computed("cpu", problem, "fused", pass_name, dtype, *arrays)
        own._best("cpu", problem, similarity.astype(dtype), lengths)
    for problem, pass_name in itertools.product(steps.WITH_GAPS, steps.PASSES):
        arrays = steps.ragged(problem, *steps.SHAPES[-1])
        own._computed("cpu", problem, "fused", pass_name, "float32", *arrays, by_position=True)
    assert launched == {kernel for kernel in programs.kernels() if kernel.name != "exponentials_kernel"}


def test_the_shapes_have_all_layouts_with_several_strips():
    layouts = {programs.layout_of(*shape[:2]) for shape in steps.SHAPES}
    assert layouts == {programs.NARROW, programs.WIDE, programs.TALL}
    for layout in layouts - {programs.WIDE}:  # which is for a single one
        assert layout.scores
        strip = max(layout.lanes, layout.scores.lanes * layout.scores.height)
        assert any(programs.layout_of(*shape[:2]) == layout and shape[1] > strip for shape in steps.SHAPES)


def test_an_inexact_power_of_2_and_a_wrong_result_are_found(monkeypatch: pytest.MonkeyPatch):
    own = steps.Steps("torch")

    def inexact(values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            powers = np.ldexp(np.ones((), values.dtype), -values.astype(int))
        return np.where(values == 3, np.nextafter(powers, powers.dtype.type(1)), powers)

    monkeypatch.setattr(own, "_exponentials", inexact)
    with pytest.raises(AssertionError, match=r"float32: 2 \*\* -3 is .*, 1 are not exact"):
        own.ex2()
    arrays = steps.ragged("free_gap", 3, 5, 4)
    right = own._computed("cpu", "free_gap", "fused", "score", "float64", *arrays)
    assert steps.worst_error("free_gap", "score", "float64", right, {"score": right}, arrays) == 0
    with pytest.raises(AssertionError, match="score off by"):
        steps.worst_error("free_gap", "score", "float64", right * 1.001, {"score": right}, arrays)
