"""The whole run on a GPU: the tests that need one, the comparisons, and a page, in less than 8 minutes.

    python -m shared.bench.cuda_check [--folder results]

Each step has its seconds; one that needs more is interrupted and keeps what it has. Ctrl-C interrupts the step at work,
leaves out the others, and makes the page of what there is. Files are named after the GPU: NAME.json and NAME.txt of the
comparison, NAME-scan of the frameworks' own loops, NAME-hvp of second derivatives, NAME-sweep of sizes,
NAME-command-buffers of JAX's loops as CUDA graphs, and NAME.html with all of them.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shared.bench.machine import usable_cores

_ROOT = Path(__file__).resolve().parents[2]
COMPARE = ("compare.py", "--device", "cuda", "--compile-limit", "60")
SUFFIXES = ("", "-scan", "-hvp", "-sweep", "-command-buffers")
SIZES = "256x256,512x512,1024x1024"
# XLA makes no graphs while its profiler looks, unless it is told to: the device's time would be of something else
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer=+WHILE --xla_enable_command_buffers_during_profiling=true"
# by name: pytest would import the others, and what they need, to find out that nothing there is for a GPU
TESTS = ("tests/test_cuda.py", "tests/test_transforms.py")
PAGE_SECONDS = 30


class Step(NamedTuple):
    """One of the commands; its output goes to the terminal, and to a file if one is named.

    grace: seconds that it has after it was interrupted, before it is killed.
    """

    title: str
    command: tuple[str, ...]
    seconds: float
    output: str | None = None
    environment: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    grace: float = 5.0


def steps(name: str, folder: Path) -> list[Step]:
    """What is done on the GPU of this name."""

    def compared(title: str, suffix: str, seconds: int, *more: str, **environment: str) -> Step:
        """A comparison stops by itself somewhat earlier."""
        made = folder / f"{name}{suffix}"
        command = (*COMPARE, *more, "--budget", str(seconds * 4 // 5), "--json", f"{made}.json")
        return Step(title, command, seconds, f"{made}.txt", environment)

    flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), COMMAND_BUFFERS]))
    tests = ("-m", "pytest", "-q", "--tb", "short", "-m", "cuda", "-p", "no:cacheprovider", *_several_at_once(), *TESTS)
    as_workers = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "NVIDIA_TF32_OVERRIDE": "0"}
    return [
        # pytest waits 10 s for its processes before it says what failed
        Step("tests", tests, 105, environment=as_workers, grace=20.0),
        compared("comparison", SUFFIXES[0], 150, "--variant", "wavefront,cuda_graph,fused"),
        compared("the frameworks' scans", SUFFIXES[1], 50, "--variant", "vmap", "--pass", "score"),
        compared("second derivatives", SUFFIXES[2], 40, "--variant", "cuda_graph,fused", "--pass", "hvp"),
        compared("sizes", SUFFIXES[3], 25, "--variant", "fused", "--pass", "score", "--batch", "64", "--sweep", SIZES),
        compared("JAX's loops as CUDA graphs", SUFFIXES[4], 25, "--variant", "vmap,wavefront", "--pass", "score",
                 "--batch", "64", "--framework", "jax", XLA_FLAGS=flags),
    ]  # fmt: skip


def page(name: str, folder: Path) -> Step:
    """All that was recorded, on a page. What was stopped before it had begun has no record."""
    records = [folder / f"{name}{suffix}.json" for suffix in SUFFIXES]
    known = [str(path) for path in records if path.exists()]
    return Step("page", ("compare.py", "--from", *known, "--report", str(folder / f"{name}.html")), PAGE_SECONDS)


def _several_at_once() -> tuple[str, ...]:
    """Most of a test's time is the compilers', which run on the CPU."""
    try:
        import xdist  # noqa: F401
    except ImportError:
        return ()
    return "--numprocesses", str(max(1, min(12, len(usable_cores())))), "--dist", "load"


def gpu_name() -> str:
    """The first GPU's, as a file may be called. Raises OSError or CalledProcessError where there is none."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", names[0].strip()) if names else "GPU"


def run(step: Step) -> str:
    """Do it; what became of it, in words: "ok" if all is well."""
    print(f"== {step.title}, at most {step.seconds} s", flush=True)
    environment = {**os.environ, **step.environment}
    command = [sys.executable, *step.command]
    pipe = None if step.output is None else subprocess.PIPE
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a script's background; a step would ignore it as well
        signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted: BaseException | None = None
    # in a group of its own, which can be killed with all that it has started
    with subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=pipe, text=True, process_group=0) as process:
        try:
            out, _ = process.communicate(timeout=step.seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            interrupted = error
            process.send_signal(signal.SIGINT)
            try:
                out, _ = process.communicate(timeout=step.grace)
            except subprocess.TimeoutExpired:
                _kill_group(process)
                out, _ = process.communicate()
        finally:
            _kill_group(process)
    if step.output is not None and out:
        print(out, flush=True)
        Path(step.output).write_text(out, encoding="utf-8")
    if isinstance(interrupted, KeyboardInterrupt):
        raise interrupted
    if interrupted:
        return f"not finished within {step.seconds:g} s"
    return "ok" if process.returncode == 0 else f"exit code {process.returncode}"


def _kill_group(process: subprocess.Popen) -> None:
    """What is left of it: workers that nobody waits for would go on with the GPU."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """All steps, whatever becomes of one; the exit code is 1 if one did not end well."""
    parser = argparse.ArgumentParser(prog="python -m shared.bench.cuda_check", description="The whole run on a GPU.")
    parser.add_argument("--folder", type=Path, default=_ROOT / "results", help="where files go (default results)")
    options = parser.parse_args(arguments)
    try:
        name = gpu_name()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no CUDA device: nvidia-smi does not name one ({error})", file=sys.stderr)
        return 3
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*(f"{suffix}.{kind}" for suffix in SUFFIXES for kind in ("json", "txt")), ".html"):
        (folder / f"{name}{file}").unlink(missing_ok=True)  # those of another day are not this run's
    found: dict[str, str] = {}
    try:
        for step in steps(name, folder):
            found[step.title] = run(step)
    except KeyboardInterrupt:
        found["the rest"] = "interrupted"
    found["page"] = run(page(name, folder))
    print(f"== {name}: " + "; ".join(f"{title}: {result}" for title, result in found.items()), flush=True)
    return 0 if set(found.values()) == {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())
