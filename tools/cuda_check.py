"""Runs what needs a GPU, in three calls of less than 10 minutes each; nothing is installed.

    python -m tools.cuda_check [--folder results]     the comparison, and what CUDA graphs change
    python -m tools.cuda_check tests                  the tests marked cuda
    python -m tools.cuda_check kernels                times of other layouts of the kernels; compute-sanitizer racecheck

A step that exceeds its seconds is interrupted and keeps what it has; Ctrl-C also leaves out the steps after it. Files
are gpu-default.json, .md and .html of the comparison, gpu-graphs.json, tests.xml, and for each call a log of all that
was printed, which ends with the outcomes.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple

from shared.kernels import cpp
from tools.record import RECORDS, ROOT

PYTHON = (sys.executable, "-u")
CALL_SECONDS = 575.0  # beside what a step has to end in
# by name: pytest would import the others, and what they need, to find out that nothing there is for a GPU
TESTS = ("tests/test_cuda.py", "tests/test_transforms.py")
# the library's layouts, then others: rows to a lane x steps x registers x warps
SMALL, LARGE = ("", "/2x8x0x2", "/1x8x0x4"), ("", "/2x16x0", "/2x16x128", "/2x16x168")
SHAPES = [*(f"64x100x150{suffix}" for suffix in SMALL), *(f"4096x512x512{suffix}" for suffix in LARGE)]
LAYOUTS = [f"smith_waterman/{call}/{shape}" for call in ("score", "gradients") for shape in SHAPES]
# imports come before the first call of the driver, and frameworks ask it for more than it has
RACECHECK = "compute-sanitizer --tool racecheck --launch-timeout 100 --report-api-errors no --target-processes all"
NO_RACES = "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
# what each call writes into the folder, its log first
FILES = {
    "comparison": ("cuda-check.log", "gpu-default.json", "gpu-default.md", "gpu-default.html", "gpu-graphs.json"),
    "tests": ("cuda-check-tests.log", "tests.xml"),
    "kernels": ("cuda-check-kernels.log",),
}


class Step(NamedTuple):
    """A command and its time limit; BUDGET in the command becomes 20 seconds less.

    grace: seconds from interrupt to kill. least: seconds without which it is left out. says: printed if all is well.
    """

    title: str
    command: Sequence[str]
    seconds: float
    environment: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    grace: float = 10.0
    least: float = 1.0
    says: str = ""


def steps(what: str, folder: Path, capability: str) -> list[Step]:
    """The steps of a call, the most important first. capability: "90" for compute capability 9.0."""
    planned = [
        Step("GPU", ("nvidia-smi", "-q", "-d", "CLOCK,POWER,PERFORMANCE,TEMPERATURE"), 10),
        Step("compiling kernels", (*PYTHON, "tests/cuda_kernels.py", capability), 90, grace=1),
    ]
    if what == "tests":
        report = "-v", "--tb=short", "--durations=25", f"--junitxml={folder / 'tests.xml'}", "-p", "no:cacheprovider"
        as_workers = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "NVIDIA_TF32_OVERRIDE": "0"}
        # most of a test's time is the compilers', which run on the CPU
        several = "--numprocesses=logical", "--maxprocesses=16", "--dist=load", "--maxschedchunk=1"
        command = (*PYTHON, "-m", "pytest", "-m", "cuda", *report, *(several if find_spec("xdist") else ()), *TESTS)
        # pytest waits 10 s for its processes before it writes its report
        return [*planned, Step("tests", command, 170, as_workers, grace=20)]
    if what == "kernels":
        # PyTorch's cache of memory would make one large allocation of many small ones
        alone, launches = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, (*PYTHON, "tests/small_launches.py")
        times = Step("layouts", (*PYTHON, "-m", "tools.kernel_times", *LAYOUTS, *LAYOUTS), 150)
        return [*planned, times, Step("racecheck", (*RACECHECK.split(), *launches), 280, alone, says=NO_RACES)]
    pages = folder / "gpu-default"
    reports = ("--markdown", f"{pages}.md", "--report", f"{pages}.html", "--force")
    speed, graphs = (
        (*PYTHON, "compare.py", *RECORDS[name].split(), "--budget", "BUDGET", "--json", str(folder / f"{name}.json"))
        for name in ("gpu-default", "gpu-graphs")
    )
    return [
        *planned,
        Step("comparison", (*speed, *reports), 460, grace=15),
        Step("page", (*PYTHON, "compare.py", "--from", f"{pages}.json", *reports), 30, grace=1),
        Step("graphs", graphs, 300, least=45),
    ]


def say(log: IO[str], line: str) -> None:
    """Print a line, and keep it."""
    print(line, end="", flush=True)
    log.write(line)
    log.flush()


def run(step: Step, log: IO[str], end: float) -> str:
    """Run a step; returns its outcome and seconds. end: of all steps, as time.monotonic gives it."""
    began = time.monotonic()
    if (seconds := min(step.seconds, end - began)) < step.least:
        return "no time was left"
    say(log, f"== {step.title}, at most {seconds:.0f} s\n")
    command = [word.replace("BUDGET", f"{seconds - 20:.0f}") for word in step.command]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    cache = str(cpp.cache_folder() / "triton")  # of compare.py's workers
    environment = os.environ | {"PYTHONPATH": path, "TRITON_CACHE_DIR": cache} | step.environment
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a script's background; a step would ignore it as well
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:  # in a group of its own, which can be killed with all that it has started
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", process_group=0,
        )  # fmt: skip
    except OSError as error:
        return f"not run: {error}"
    follower = threading.Thread(target=lambda: [say(log, line) for line in process.stdout or ()], daemon=True)
    follower.start()
    outcome = ""
    try:
        process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else f"not finished within {seconds:.0f} s"
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(step.grace)
    finally:  # with what is left of it: workers that nobody waits for would go on with the GPU
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that is stuck in the driver is left there
            process.wait(5.0)
    follower.join(5.0)  # not for ever: what left the group may still hold the other end
    if not outcome and process.returncode:
        outcome = f"exit code {process.returncode}"
    elif not outcome and step.says not in Path(log.name).read_text(encoding="utf-8"):
        outcome = f"it did not say {step.says!r}"
    return f"{outcome or 'ok'}, {time.monotonic() - began:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """All steps of a call; the exit code is 1 if one did not end well, 3 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m tools.cuda_check", description="Runs what needs a GPU.")
    parser.add_argument("what", nargs="?", choices=tuple(FILES), default="comparison")
    parser.add_argument("--folder", type=Path, default=ROOT / "results", help="where files go (default results)")
    options = parser.parse_args(arguments)
    began, query = time.monotonic(), ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        capability = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        print(f"no CUDA device: nvidia-smi does not name one ({error})", file=sys.stderr)
        return 3
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES[options.what]:
        (folder / name).unlink(missing_ok=True)  # those of another day are not this run's
    outcomes: dict[str, str] = {}
    with (folder / FILES[options.what][0]).open("w", encoding="utf-8") as log:
        for step in steps(options.what, folder, capability.replace(".", "")):
            if step.title == "page":  # of a comparison that was killed
                if not (folder / "gpu-default.json").exists() or (folder / "gpu-default.html").exists():
                    continue
            elif any(outcome.startswith("interrupted") for outcome in outcomes.values()):
                continue
            outcomes[step.title] = run(step, log, began + CALL_SECONDS)
        for lock in folder.glob(".gpu-*.lock"):  # of what was killed
            lock.unlink()
        say(log, f"== {options.what}: {'; '.join(f'{title}: {outcome}' for title, outcome in outcomes.items())}\n")
    return 0 if all(outcome.startswith("ok") for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
