"""The first thing to run on a machine with a GPU: does every kind of kernel launch, is it right, how fast is it?

    python tools/first_contact.py [--out FOLDER]

In less than 5 minutes: all machine code compiled on all cores into one cache; then, in one process for each framework,
the smallest kernel, `fused` in all passes of all functions against the CPU's float64, the other ways to use the GPU,
with compute-sanitizer beside them; device times of the README's rows; and ncu. The two tools where they exist. Needs
PyTorch, Triton, JAX, NumPy and a C++ compiler.

A step that fails does not stop the next. Each has a line of JSON in FOLDER/first-contact.jsonl as soon as it is done;
at the end that and the output of all programs are in FOLDER/first-contact.tar.gz. Exit codes: 0 all is well, 1 a step
failed or there was no time for it (the last line names it), 3 there is no GPU.
"""

import argparse
import contextlib
import ctypes
import importlib.metadata
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# all steps together; what is not begun by then is left out
BUDGET_SECONDS = 285.0
FRAMEWORKS = ("torch", "jax")
PACKAGES = ("torch", "triton", "jax", "jaxlib", "jax-cuda13-plugin", "numpy", "scipy")
TOOLS = ("nvidia-smi", "nvcc", "c++", "compute-sanitizer", "ncu")
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "InstructionStats", "LaunchStats",
            "Occupancy", "SchedulerStats", "WarpStateStats")  # fmt: skip


class Gpu(NamedTuple):
    """What the driver says of its first device."""

    name: str
    capability: int  # 90 for compute capability 9.0
    cuda: int  # the newest version that the driver knows, 13000 for 13.0
    devices: int


def first_gpu() -> Gpu | None:
    """Asked of the driver itself, so that no framework is needed to learn that there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, major, minor, cuda = (ctypes.c_int() for _ in range(4))
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    name = ctypes.create_string_buffer(100)
    driver.cuDeviceGetName(name, len(name), 0)
    driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
    driver.cuDriverGetVersion(ctypes.byref(cuda))
    return Gpu(name.value.decode(), 10 * major.value + minor.value, cuda.value, count.value)


class Failed(Exception):
    """A step that did not do what it should; the text says how."""


class Step(NamedTuple):
    """A name, the most seconds that it may take, and what it does with so many: gives what is noted of it."""

    name: str
    seconds: float
    do: Callable[[float], dict[str, Any]]


Lane = Sequence[Step]  # one after the other


class Log:
    """What becomes of the steps: lines of JSON, and of text for whoever looks on."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._budget = seconds
        self._closed = False
        self.lost: list[str] = []
        self.done = 0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    def run(self, phase: Sequence[Lane]) -> None:
        """The lanes of a phase, all at the same time."""
        threads = [threading.Thread(target=lambda lane=lane: [*map(self._do, lane)], daemon=True) for lane in phase]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Nothing more is begun or noted."""
        with self._lock:
            self._closed = True

    def _do(self, step: Step) -> None:
        if self._closed:
            return
        began, left = time.monotonic(), self._budget - self.seconds
        noted: dict[str, Any]
        if left <= 0:
            noted = {"status": "failed", "reason": "no time was left for it"}
        else:
            try:
                noted = {"status": "ok", **step.do(min(step.seconds, left))}
            except Exception as error:
                reason = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
                noted = {"status": "failed", "reason": reason}
        taken = time.monotonic() - began
        with self._lock:
            if self._closed:
                return
            self.done += 1
            if noted["status"] != "ok":
                self.lost.append(step.name)
            self._file.write(json.dumps({"step": step.name, "at": self.seconds, "seconds": taken, **noted}) + "\n")
            self._file.flush()
            print(f"{self.seconds:6.1f} s  {step.name}: {_told(noted)}", flush=True)


def _told(noted: dict[str, Any]) -> str:
    if noted["status"] != "ok":
        return f"FAILED: {noted['reason']}"
    if "gcups" in noted:
        best = min(noted["device_seconds"])
        return f"ok, {noted['gcups']:.4g} GCUPS, {best * 1e6:.4g} µs on the device at best"
    if "worst_of_what_is_allowed" in noted:
        return f"ok, {max(noted['worst_of_what_is_allowed'].values()):.2%} of what is allowed at worst"
    return "ok"


class Framework:
    """One framework's process. After a fault that the device does not survive, or a step without an end, a new one."""

    def __init__(self, name: str, environment: dict[str, str], folder: Path) -> None:
        self.name = name
        self._environment, self._folder = environment, folder
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()

    def begin(self) -> None:
        """Start the process; it can be asked at once."""
        self._answers = queue.Queue()
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.first_contact_steps", self.name], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=self._environment, text=True, start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._read, args=(self._process, self._answers), daemon=True).start()

    @staticmethod
    def _read(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)
        answers.put(None)

    def ask(self, do: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """Have a step done. Raises Failed."""
        if self._process is None:
            self.begin()
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.end()
            raise Failed(f"not done within {seconds:.0f} s") from None
        except OSError:
            line = None
        if line is None:
            code = process.wait()
            self.end()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise Failed(f"its process ended with {how}; see {self.name}.log")
        answer = json.loads(line)
        if answer.pop("status") != "ok":
            if not answer["device_works"]:
                self.end()
            raise Failed(answer["reason"])
        return answer

    def end(self) -> None:
        """Stop the process and all that it started."""
        if self._process is not None:
            _kill(self._process)
            self._process = None


def _kill(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Contact:
    """All that is tried, as phases of lanes of steps."""

    def __init__(self, gpu: Gpu, folder: Path) -> None:
        self.gpu, self.folder = gpu, folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "TRITON_CACHE_DIR": str(folder / "triton"),  # one for all, so that each kernel is compiled once
            "ALIGNMENT_CACHE": str(folder / "native"),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # or PyTorch would find the GPU's memory taken
            "NVIDIA_TF32_OVERRIDE": "0",
        }
        self.frameworks = {name: Framework(name, self.environment, folder) for name in FRAMEWORKS}
        self._programs: set[subprocess.Popen[bytes]] = set()  # those that run now

    def phases(self) -> Iterator[Sequence[Lane]]:
        """What takes part in one phase runs at the same time; times are taken where nothing else runs."""
        for framework in self.frameworks.values():
            framework.begin()  # imports while kernels are compiled
        yield [[Step("machine", 20, self._machine)], [Step("compile all kernels", 120, self._compile)]]
        right = [self._right(framework) for framework in self.frameworks.values()]
        yield [*right, *([self._sanitizer(tool)] for tool in ("memcheck", "racecheck"))]
        for framework in self.frameworks.values():
            yield [self._times(framework)]
        yield [[self._profiler()]]

    def end(self) -> None:
        """Stop what still runs."""
        for framework in self.frameworks.values():
            framework.end()
        for process in [*self._programs]:
            _kill(process)

    def _machine(self, seconds: float) -> dict[str, Any]:
        from shared.bench.machine import machine

        fields = "driver_version,memory.total,clocks.max.sm,clocks.max.memory,power.limit"
        smi = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        found = {tool: shutil.which(tool) for tool in TOOLS}
        return {
            "gpu": self.gpu._asdict(), "packages": dict(_versions()), "tools": found, **machine(),
            "nvidia-smi": self._ran("nvidia-smi", smi, seconds) if found["nvidia-smi"] else None,
        }  # fmt: skip

    def _compile(self, seconds: float) -> dict[str, Any]:
        command = [sys.executable, "-m", "tools.first_contact_programs", "compile", str(self.gpu.capability)]
        return json.loads(self._ran("compile", command, seconds).splitlines()[-1])

    def _right(self, framework: Framework) -> Lane:
        def asked(name: str, seconds: float, do: str, **arguments: Any) -> Step:
            return Step(f"{framework.name} {name}", seconds, lambda left: framework.ask(do, left, **arguments))

        from tools.first_contact_steps import DTYPES, FUNCTIONS, PASSES, SHAPES

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
                asked(f"{variant} marginals", 90, "right", problem="smith_waterman", variant=variant,
                      pass_name="marginals", dtype="float32", shapes=small)
                for variant in ("wavefront", *_graph(framework), "vmap")
            ),
        ]  # fmt: skip

    def _times(self, framework: Framework) -> Lane:
        from tools.first_contact_steps import BATCHES, PASSES

        rows = [("fused", pass_name, batch) for batch in BATCHES for pass_name in PASSES]
        rows += [(variant, "score", BATCHES[-1]) for variant in ("wavefront", *_graph(framework))]
        rows += [("vmap", "score", batch) for batch in reversed(BATCHES)]

        def timed(variant: str, pass_name: str, batch: str) -> Step:
            given = {"problem": "smith_waterman", "variant": variant, "pass_name": pass_name, "batch": batch}
            name = f"{framework.name} time {variant} {pass_name} {batch}"
            return Step(name, 60, lambda left: framework.ask("time", left, **given))

        return [timed(*row) for row in rows]

    def _sanitizer(self, tool: str) -> Step:
        def check(seconds: float) -> dict[str, Any]:
            if not shutil.which("compute-sanitizer"):
                return {"there is no": "compute-sanitizer"}
            program = [sys.executable, "-m", "tools.first_contact_programs", "sanitized"]
            command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *program]
            # PyTorch's cache of memory would make one large allocation of many small ones
            return {"said": self._ran(tool, command, seconds, PYTORCH_NO_CUDA_MEMORY_CACHING="1").splitlines()[-1]}

        return Step(f"compute-sanitizer {tool}", 150, check)

    def _profiler(self) -> Step:
        def profile(seconds: float) -> dict[str, Any]:
            if not shutil.which("ncu"):
                return {"there is no": "ncu"}
            program = [sys.executable, "-m", "tools.first_contact_programs", "profiled"]
            chosen = ["--kernel-name", "regex:(forward|backward)_kernel", "--launch-skip", "2", "--launch-count", "2"]
            sections = [word for section in SECTIONS for word in ("--section", section)]
            text = self._ran("ncu", ["ncu", "--clock-control", "none", *chosen, *sections, *program], seconds)
            if "forward_kernel" not in text or "backward_kernel" not in text:
                raise Failed("it did not see both kernels; see ncu.log")
            return {}

        return Step("ncu", 90, profile)

    def _ran(self, name: str, command: Sequence[str], seconds: float, **environment: str) -> str:
        """What a program prints, also kept in a log of this name. Raises Failed."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT,
                env=self.environment | environment, start_new_session=True,
            )  # fmt: skip
            self._programs.add(process)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                raise Failed(f"not done within {seconds:.0f} s; see {log.name}") from None
            finally:
                _kill(process)
                self._programs.discard(process)
        text = log.read_text(errors="replace").strip()
        if code:
            raise Failed(f"exit code {code}: {text.splitlines()[-1] if text else 'it said nothing'}; see {log.name}")
        return text


def _graph(framework: Framework) -> tuple[str, ...]:
    return ("cuda_graph",) if framework.name == "torch" else ()


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
        except KeyboardInterrupt:
            interrupted = True
        finally:
            log.close()
            contact.end()
            with tarfile.open(out / "first-contact.tar.gz", "w:gz") as tar:
                for path in (lines, *sorted(folder.glob("*.log"))):
                    tar.add(path, f"first-contact/{path.name}")
    result = f"FAILED: {', '.join(log.lost)}" if log.lost else f"all {log.done} steps are well"
    print(f"first contact with {gpu.name}, {log.seconds:.0f} s{interrupted * ', interrupted'}: {result}", flush=True)
    return 130 if interrupted else 1 if log.lost else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
