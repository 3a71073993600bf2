"""The first thing to run on a machine with a GPU: does every kind of kernel launch, is it right, how fast is it?

    python tools/first_contact.py [--out FOLDER]

In less than 5 minutes: all machine code compiled on all cores into one cache; then, in one process for each framework,
the smallest kernel, `fused` in all passes of all functions against the CPU's float64, best alignments against the
CPU's, the other ways to use the GPU, and device times of the README's rows; then ncu and compute-sanitizer, where they
exist; last what takes longest to compile. Needs PyTorch, Triton, JAX, NumPy, psutil and a C++ compiler.

A step that fails does not stop the next. Each has a line of JSON in FOLDER/first-contact.jsonl as soon as it is done;
at the end that and the output of all programs are in FOLDER/first-contact.tar.gz. Exit codes: 0 all is well, 1 a step
failed or there was no time for it (the last line names it), 3 there is no GPU.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # nothing is installed here
from shared.bench.measure.machine import machine
from tools.first_contact_runs import ROOT, Failed, Framework, Gpu, Lane, Log, Step, first_gpu, kill, pack, ran
from tools.first_contact_steps import BATCHES, DTYPES, FUNCTIONS, PASSES, SHAPES, WITH_GAPS

# all steps together; what is not begun by then is left out
BUDGET_SECONDS = 285.0
FRAMEWORKS = ("torch", "jax")
PACKAGES = ("torch", "triton", "jax", "jaxlib", "jax-cuda13-plugin", "numpy", "scipy")
TOOLS = ("nvidia-smi", "nvcc", "c++", "compute-sanitizer", "ncu")
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "InstructionStats", "LaunchStats",
            "Occupancy", "SchedulerStats", "WarpStateStats")  # fmt: skip

# what each says when it has looked and found nothing; it may also end without having looked
SANITIZERS = {
    "memcheck": "ERROR SUMMARY: 0 errors",
    "racecheck": "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
}


class Row(NamedTuple):
    """What is timed."""

    variant: str
    pass_name: str
    batch: str
    problem: str = "smith_waterman"

    @property
    def words(self) -> str:
        return " ".join((self.variant, *(["affine"] if "affine" in self.problem else []), self.pass_name, self.batch))


class Contact:
    """All that is tried, as phases of lanes of steps."""

    def __init__(self, gpu: Gpu, folder: Path) -> None:
        self.gpu, self.folder = gpu, folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "TRITON_CACHE_DIR": str(folder / "triton"),  # one for all, so that each kernel is compiled once
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # or PyTorch would find the GPU's memory taken
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9",  # by itself JAX takes three quarters at most
            "NVIDIA_TF32_OVERRIDE": "0",
        }
        self.frameworks = {name: Framework(name, self.environment, folder) for name in FRAMEWORKS}
        self._programs: set[subprocess.Popen[bytes]] = set()  # those that run now

    def phases(self) -> Iterator[Sequence[Lane]]:
        """What takes part in one phase runs at the same time; times are taken where nothing else runs."""
        for framework in self.frameworks.values():
            framework.begin()  # imports while kernels are compiled
        yield [[Step("machine", 20, self._machine)], [Step("compile all kernels", 120, self._compile)]]
        yield [self._right(framework) for framework in self.frameworks.values()]
        for rows in (_rows_of_fused, _other_rows):
            for framework in self.frameworks.values():
                yield [self._times(framework, rows(framework))]
        for framework in self.frameworks.values():
            framework.end()  # what they hold is in the way of what looks on
        yield [[self._profiler()]]
        for framework in self.frameworks.values():
            framework.begin()  # imports while the sanitizers look on
        yield [[self._sanitizer(tool, well)] for tool, well in SANITIZERS.items()]
        for framework in self.frameworks.values():
            yield [self._times(framework, _slow_rows())]

    def end(self) -> None:
        """Stop what still runs."""
        for framework in self.frameworks.values():
            framework.end()
        for process in [*self._programs]:
            kill(process)

    def _machine(self, seconds: float) -> dict[str, Any]:
        fields = "driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"
        smi = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        found = [tool for tool in TOOLS if shutil.which(tool)]
        return {
            "date": time.strftime("%Y-%m-%d"), "gpu": self.gpu._asdict(), "packages": dict(_versions()),
            "tools": found, **machine(),
            "nvidia-smi": self._ran("nvidia-smi", smi, seconds) if smi[0] in found else None,
        }  # fmt: skip

    def _compile(self, seconds: float) -> dict[str, Any]:
        command = [sys.executable, "-m", "tools.first_contact_programs", "compile"]
        lines = self._ran("compile", command, seconds).splitlines()
        return json.loads(next(line for line in reversed(lines) if line.startswith("{")))

    def _right(self, framework: Framework) -> Lane:
        def asked(name: str, seconds: float, do: str, **arguments: Any) -> Step:
            return Step(f"{framework.name} {name}", seconds, lambda left: framework.ask(do, left, **arguments))

        small = SHAPES[-1:]
        return [
            asked("start", 90, "start"),
            asked("smallest kernel", 60, "smallest_kernel"),
            asked("ex2 of whole numbers", 30, "ex2"),
            *(
                asked(f"fused {problem} {pass_name} {dtype}", 60, "right", problem=problem, variant="fused",
                      pass_name=pass_name, dtype=dtype, shapes=SHAPES)
                for problem in FUNCTIONS for dtype in DTYPES for pass_name in PASSES
            ),
            *(
                asked(f"fused {problem} {pass_name} by position", 60, "right", problem=problem, variant="fused",
                      pass_name=pass_name, dtype="float32", shapes=small, by_position=True)
                for problem in WITH_GAPS for pass_name in PASSES
            ),
            *(
                asked(f"best alignments {problem} {dtype}", 60, "best", problem=problem, dtype=dtype, shapes=SHAPES)
                for problem in FUNCTIONS for dtype in DTYPES
            ),
            *(
                asked(f"{variant} {pass_name}", 90, "right", problem="smith_waterman", variant=variant,
                      pass_name=pass_name, dtype="float32", shapes=small)
                for variant, pass_name in _others(framework)
            ),
        ]  # fmt: skip

    def _times(self, framework: Framework, rows: Sequence[Row]) -> Lane:
        def timed(row: Row) -> Step:
            name = f"{framework.name} time {row.words}"
            return Step(name, 60, lambda left: framework.ask("time", left, **row._asdict()))

        return [*map(timed, rows)]

    def _sanitizer(self, tool: str, well: str) -> Step:
        def check(seconds: float) -> dict[str, Any]:
            if not shutil.which("compute-sanitizer"):
                return {"there is no": "compute-sanitizer"}
            program = [sys.executable, "-m", "tools.first_contact_programs", "sanitized"]
            # imports come before the first call of the driver; and frameworks ask it for more than it has
            options = ["--launch-timeout", "100", "--report-api-errors", "no", "--target-processes", "all"]
            command = ["compute-sanitizer", "--tool", tool, *options, "--error-exitcode", "9", *program]
            # PyTorch's cache of memory would make one large allocation of many small ones
            text = self._ran(tool, command, seconds, PYTORCH_NO_CUDA_MEMORY_CACHING="1")
            if well not in text:
                raise Failed(f"it did not say {well!r} but {text.splitlines()[-1]!r}; see {tool}.log")
            return {}

        return Step(f"compute-sanitizer {tool}", 150, check)

    def _profiler(self) -> Step:
        def profile(seconds: float) -> dict[str, Any]:
            if not shutil.which("ncu"):
                return {"there is no": "ncu"}
            program = [sys.executable, "-m", "tools.first_contact_programs", "profiled"]
            chosen = ["-k", "regex:odds_(forward|backward)_kernel", "--launch-skip", "2", "--launch-count", "2"]
            sections = [word for section in SECTIONS for word in ("--section", section)]
            text = self._ran("ncu", ["ncu", "--clock-control", "none", *chosen, *sections, *program], seconds)
            if "odds_forward_kernel" not in text or "odds_backward_kernel" not in text:
                raise Failed("it did not see both kernels; see ncu.log")
            return {}

        return Step("ncu", 90, profile)

    def _ran(self, name: str, command: Sequence[str], seconds: float, **environment: str) -> str:
        """What a program prints, also kept in a log of this name. Raises Failed."""
        return ran(command, seconds, self.folder / f"{name}.log", self.environment | environment, self._programs)


def _graph(framework: Framework) -> tuple[str, ...]:
    return ("cuda_graph",) if framework.name == "torch" else ()


def _others(framework: Framework) -> list[tuple[str, str]]:
    """Variants and the pass that is looked at."""
    # torch.compile unrolls the backward pass through the diagonals: a minute for vmap's marginals, 5 s for its score
    return [("wavefront", "marginals"), *((own, "marginals") for own in _graph(framework)), ("vmap", "score")]


def _rows_of_fused(framework: Framework) -> list[Row]:
    rows = [Row("fused", pass_name, batch) for batch in BATCHES for pass_name in PASSES]
    return [*rows, *(Row("fused", pass_name, BATCHES[0], "smith_waterman_affine") for pass_name in PASSES)]


def _other_rows(framework: Framework) -> list[Row]:
    return [Row(variant, "score", BATCHES[-1]) for variant in ("wavefront", *_graph(framework), "vmap")]


def _slow_rows() -> list[Row]:
    return [Row("vmap", "score", BATCHES[0])]


def _versions() -> Iterator[tuple[str, str | None]]:
    for package in PACKAGES:
        try:
            yield package, importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield package, None


def main(arguments: Sequence[str] | None = None) -> int:
    """All phases; the exit code."""
    parser = argparse.ArgumentParser(prog="first_contact.py", description="The first run on a machine with a GPU.")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="where files go (default: here)")
    out: Path = parser.parse_args(arguments).out
    gpu = first_gpu()
    if gpu is None:
        print("no CUDA device: libcuda.so.1 knows none", file=sys.stderr)
        return 3
    out.mkdir(parents=True, exist_ok=True)
    lines = out / "first-contact.jsonl"
    log = Log(lines, BUDGET_SECONDS)
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="first-contact-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        contact = Contact(gpu, folder)
        try:
            for phase in contact.phases():
                log.run(phase)
                pack(out / "first-contact.tar.gz", [lines, *sorted(folder.glob("*.log"))])
        except KeyboardInterrupt:
            interrupted = True
        finally:
            log.close()
            pack(out / "first-contact.tar.gz", [lines, *sorted(folder.glob("*.log"))])
            contact.end()
    result = f"FAILED: {', '.join(log.lost)}" if log.lost else f"all {log.done} steps are well"
    print(f"first contact with {gpu.name}, {log.seconds:.0f} s{interrupted * ', interrupted'}: {result}", flush=True)
    return 130 if interrupted else 1 if log.lost else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
