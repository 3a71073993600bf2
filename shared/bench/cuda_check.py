"""The whole run on a GPU: the tests that need one, the comparisons, and a page, in less than 8 minutes.

    python -m shared.bench.cuda_check [--folder results]

Each step has its seconds; one that needs more is interrupted, as by Ctrl-C, and keeps what it has. Files are named
after the GPU: NAME.json and NAME.txt of the comparison, NAME-scan of the frameworks' own loops, NAME-hvp of second
derivatives, NAME-sweep of sizes, NAME-command-buffers of JAX's loops as CUDA graphs, and NAME.html with all of them.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).resolve().parents[2]
COMPARE = ("compare.py", "--device", "cuda", "--compile-limit", "60")
SUFFIXES = ("", "-scan", "-hvp", "-sweep", "-command-buffers")
SIZES = "256x256,512x512,1024x1024"
COMMAND_BUFFERS = "--xla_gpu_enable_command_buffer=+WHILE"
# of a step that was interrupted, before it is killed
_GRACE_SECONDS = 5
PAGE_SECONDS = 15


class Step(NamedTuple):
    """One of the commands; its output goes to the terminal, and to a file if one is named."""

    title: str
    command: tuple[str, ...]
    seconds: int
    output: str | None = None
    environment: dict[str, str] = {}  # noqa: RUF012 - nobody changes it


def steps(name: str, folder: Path) -> list[Step]:
    """What is done on the GPU of this name."""

    def compared(title: str, suffix: str, seconds: int, *more: str, **environment: str) -> Step:
        """A comparison stops by itself somewhat earlier."""
        made = folder / f"{name}{suffix}"
        command = (*COMPARE, *more, "--budget", str(seconds * 4 // 5), "--json", f"{made}.json")
        return Step(title, command, seconds, f"{made}.txt", environment)

    flags = " ".join(filter(None, [os.environ.get("XLA_FLAGS"), COMMAND_BUFFERS]))
    tests = ("-m", "pytest", "-q", "-m", "cuda", "-p", "no:cacheprovider", *_several_at_once())
    return [
        Step("tests", tests, 95, environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        compared("comparison", SUFFIXES[0], 160, "--variant", "wavefront,cuda_graph,fused"),
        compared("the frameworks' scans", SUFFIXES[1], 55, "--variant", "vmap", "--pass", "score"),
        compared("second derivatives", SUFFIXES[2], 45, "--variant", "cuda_graph,fused", "--pass", "hvp"),
        compared("sizes", SUFFIXES[3], 35, "--variant", "fused", "--pass", "score", "--batch", "64", "--sweep", SIZES),
        compared("JAX's loops as CUDA graphs", SUFFIXES[4], 35, "--variant", "vmap,wavefront", "--pass", "score",
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
    return "--numprocesses", "4", "--dist", "load"


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
    with subprocess.Popen(command, cwd=_ROOT, env=environment, stdout=pipe, text=True) as process:
        interrupted = False
        try:
            out, _ = process.communicate(timeout=step.seconds)
        except subprocess.TimeoutExpired:
            interrupted = True
            process.send_signal(signal.SIGINT)
            try:
                out, _ = process.communicate(timeout=_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                out, _ = process.communicate()
    if step.output is not None and out:
        print(out, flush=True)
        Path(step.output).write_text(out, encoding="utf-8")
    if interrupted:
        return f"not finished within {step.seconds} s"
    return "ok" if process.returncode == 0 else f"exit code {process.returncode}"


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
    for suffix in SUFFIXES:  # those of another day are not this run's
        (folder / f"{name}{suffix}.json").unlink(missing_ok=True)
    found = {step.title: run(step) for step in steps(name, folder)}
    found["page"] = run(page(name, folder))
    print(f"== {name}: " + "; ".join(f"{title}: {result}" for title, result in found.items()), flush=True)
    return 0 if set(found.values()) == {"ok"} else 1


if __name__ == "__main__":
    sys.exit(main())
