"""What a machine with a GPU is asked for, in less than 10 minutes: one comparison, the tests that need one, and a page.

    python -m tools.cuda_check [--folder results]

Nothing is installed. Each step has its seconds; one that needs more is interrupted and keeps what it has. Ctrl-C
interrupts the step at work, leaves out the others, and makes the page of what there is. Files are named after the GPU:
NAME.json of the comparison, NAME-command-buffers.json of JAX's loops as CUDA graphs, NAME.html with both, and NAME.log
with all that was printed.
"""

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from shared.bench.measure.machine import usable_cores
from tools.first_contact_runs import ROOT, kill

COMPARE = ("compare.py", "--device", "cuda", "--compile-limit", "60")
SUFFIXES = ("", "-command-buffers")
# XLA makes no graphs while its profiler looks, unless it is told to: the device's time would be of something else
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer=+WHILE --xla_enable_command_buffers_during_profiling=true"
# by name: pytest would import the others, and what they need, to find out that nothing there is for a GPU
TESTS = ("tests/test_cuda.py", "tests/test_transforms.py")


class Step(NamedTuple):
    """One of the commands, and how long it may take.

    grace: seconds that it has after it was interrupted, before it is killed.
    """

    title: str
    command: tuple[str, ...]
    seconds: float
    environment: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    grace: float = 10.0


def steps(name: str, folder: Path, cache: Path) -> list[Step]:
    """What is done on the GPU of this name, the most important first. cache: a folder for the tests' kernels."""

    def compared(title: str, suffix: str, seconds: int, *more: str, **environment: str) -> Step:
        """A comparison stops by itself somewhat earlier. It begins with each case's first call and device time."""
        record = folder / f"{name}{suffix}.json"
        command = (*COMPARE, *more, "--budget", str(seconds * 4 // 5), "--json", str(record), "--force")
        return Step(title, command, seconds, environment)

    flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), COMMAND_BUFFERS]))
    tests = ("-m", "pytest", "-q", "--tb", "short", "-m", "cuda", "-p", "no:cacheprovider", *_several_at_once(), *TESTS)
    kept = {"TRITON_CACHE_DIR": str(cache)}
    as_workers = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "NVIDIA_TF32_OVERRIDE": "0"}
    return [
        # the frameworks' scans take minutes to compile; tools/first_contact.py has device times of them
        compared("comparison", SUFFIXES[0], 280, "--pass", "score,marginals,hvp",
                 "--variant", "wavefront,cuda_graph,fused"),
        Step("the tests' kernels", ("-m", "tools.first_contact_programs", "compile", "all"), 60, kept),
        # pytest waits 10 s for its processes before it says what failed
        Step("tests", tests, 100, as_workers | kept, grace=20.0),
        compared("JAX's loops as CUDA graphs", SUFFIXES[1], 55, "--variant", "vmap,wavefront", "--pass", "score",
                 "--batch", "64", "--framework", "jax", "--workers", "1", XLA_FLAGS=flags),
    ]  # fmt: skip


def page(name: str, folder: Path) -> Step:
    """All that was recorded, on a page. What was stopped before it had begun has no record."""
    records = [folder / f"{name}{suffix}.json" for suffix in SUFFIXES]
    known = [str(path) for path in records if path.exists()]
    return Step("page", ("compare.py", "--from", *known, "--report", str(folder / f"{name}.html"), "--force"), 30)


def _several_at_once() -> tuple[str, ...]:
    """Most of a test's time is the compilers', which run on the CPU."""
    try:
        import xdist  # noqa: F401
    except ImportError:
        return ()
    return "--numprocesses", str(max(1, min(12, len(usable_cores())))), "--dist", "load", "--maxschedchunk", "1"


def gpu_name() -> str:
    """The first GPU's, as a file may be called. Raises OSError or CalledProcessError where there is none."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", names[0].strip()) if names else "GPU"


class Log:
    """A file beside the terminal: both get every line at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def say(self, line: str) -> None:
        """One line, with its end."""
        print(line, end="", flush=True)
        self._file.write(line)
        self._file.flush()

    def follow(self, stream: Iterable[str]) -> None:
        """All lines of a stream, until it ends."""
        for line in stream:
            self.say(line)


def run(step: Step, log: Log) -> str:
    """Do it; what became of it, in words: "ok" if all is well."""
    log.say(f"== {step.title}, at most {step.seconds:g} s\n")
    command = [sys.executable, "-u", *step.command]
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a script's background; a step would ignore it as well
        signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted: BaseException | None = None
    # in a group of its own, which can be killed with all that it has started
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **step.environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", process_group=0,
    )  # fmt: skip
    follower = threading.Thread(target=log.follow, args=(process.stdout or (),), daemon=True)
    follower.start()
    try:
        process.wait(step.seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        interrupted = error
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(step.grace)
    finally:
        kill(process)  # with what is left of it: workers that nobody waits for would go on with the GPU
    follower.join(5.0)  # not for ever: what left the group may still hold the other end
    if isinstance(interrupted, KeyboardInterrupt):
        raise interrupted
    if interrupted:
        return f"not finished within {step.seconds:g} s"
    return "ok" if process.returncode == 0 else f"exit code {process.returncode}"


def main(arguments: Sequence[str] | None = None) -> int:
    """All steps, whatever becomes of one; the exit code is 1 if one did not end well."""
    parser = argparse.ArgumentParser(prog="python -m tools.cuda_check", description="The whole run on a GPU.")
    parser.add_argument("--folder", type=Path, default=ROOT / "results", help="where files go (default results)")
    options = parser.parse_args(arguments)
    try:
        name = gpu_name()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"no CUDA device: nvidia-smi does not name one ({error})", file=sys.stderr)
        return 3
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*(f"{suffix}.json" for suffix in SUFFIXES), ".html", ".log"):
        (folder / f"{name}{file}").unlink(missing_ok=True)  # those of another day are not this run's
    log = Log(folder / f"{name}.log")
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="cuda-check-", ignore_cleanup_errors=True) as cache:
        try:
            for step in steps(name, folder, Path(cache)):
                found[step.title] = run(step, log)
        except KeyboardInterrupt:
            found["the rest"] = "interrupted"
    found["page"] = run(page(name, folder), log)
    log.say(f"== {name}: " + "; ".join(f"{title}: {result}" for title, result in found.items()) + "\n")
    return 0 if set(found.values()) == {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())
