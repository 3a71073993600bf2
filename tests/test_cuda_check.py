"""`make cuda-check` without a GPU: its steps, their time, and what becomes of them."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from shared.bench.command_line import parse
from tools import cuda_check
from tools.cuda_check import SUFFIXES, Log, Step, gpu_name, main, page, steps

TESTS_FOLDER = Path(__file__).parent


def run(step: Step, folder: Path) -> tuple[str, str]:
    """What became of it, and what is in the log after its title."""
    found = cuda_check.run(step, Log(folder / "log"))
    return found, (folder / "log").read_text().partition("\n")[2]


def test_all_steps_together_take_less_than_10_minutes(tmp_path):
    every = [*steps("GPU", tmp_path, tmp_path), page("GPU", tmp_path)]
    assert sum(step.seconds + step.grace for step in every) < 590


def test_the_comparison_is_one_and_comes_first(tmp_path):
    first, *others = steps("GPU", tmp_path, tmp_path)
    assert first.command[0] == "compare.py" and str(tmp_path / "GPU.json") in first.command
    starts = [step for step in others if step.command[0] == "compare.py"]
    assert [step.environment.keys() for step in starts] == [{"XLA_FLAGS"}]  # which have to be there when JAX starts


def test_the_tests_that_need_a_gpu_are_looked_for_where_they_are():
    marked = [path for path in TESTS_FOLDER.glob("test_*.py") if "mark" + ".cuda" in path.read_text()]
    assert sorted(f"tests/{path.name}" for path in marked) == sorted(cuda_check.TESTS)


def test_every_comparison_is_one_that_compare_py_takes(tmp_path):
    compared = [step for step in steps("GPU", tmp_path, tmp_path) if step.command[0] == "compare.py"]
    assert len(compared) == len(SUFFIXES)
    for step in compared:
        request, settings = parse(step.command[1:])
        assert settings.device == "cuda" and settings.budget < step.seconds
        assert request.json is not None and request.json.parent == tmp_path
    for suffix in SUFFIXES[1:]:
        (tmp_path / f"GPU{suffix}.json").touch()
    request, _ = parse(page("GPU", tmp_path).command[1:])
    assert request.recorded == tuple(tmp_path / f"GPU{suffix}.json" for suffix in SUFFIXES[1:])
    assert request.report == tmp_path / "GPU.html"


def test_xla_s_flags_are_added_to_those_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    (flags,) = [
        step.environment["XLA_FLAGS"] for step in steps("GPU", tmp_path, tmp_path) if "XLA_FLAGS" in step.environment
    ]
    assert flags == (
        "--xla_dump_to=here --xla_gpu_enable_command_buffer=+WHILE --xla_enable_command_buffers_during_profiling=true"
    )


def test_a_step_s_output_is_shown_and_kept(tmp_path, capfd):
    code = "import os, sys; print(os.environ['WHAT']); sys.stderr.write('and more')"
    assert run(Step("a", ("-c", code), 60, {"WHAT": "a table"}), tmp_path) == ("ok", "a table\nand more")
    assert capfd.readouterr().out == "== a, at most 60 s\na table\nand more"


def test_a_step_that_fails_says_how(tmp_path):
    assert run(Step("a", ("-c", "raise SystemExit(7)"), 60), tmp_path)[0] == "exit code 7"


SLOW = """
import sys, time
print("begun", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("what was finished", flush=True)
    sys.exit(130)
"""


def test_a_step_that_takes_too_long_is_interrupted_and_keeps_what_it_has(tmp_path):
    found = run(Step("a", ("-c", SLOW), 2), tmp_path)
    assert found == ("not finished within 2 s", "begun\nwhat was finished\n")


def test_it_is_interrupted_too_where_interrupts_were_ignored(tmp_path):
    """As a script's background jobs do."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        found = run(Step("a", ("-c", SLOW), 2), tmp_path)
        assert found == ("not finished within 2 s", "begun\nwhat was finished\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_that_does_not_listen_is_killed_with_all_that_it_began(tmp_path):
    deaf = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    assert run(Step("a", ("-c", deaf), 4, grace=0.5), tmp_path)[0] == "not finished within 4 s"
    status = Path("/proc", (tmp_path / "child").read_text(), "stat")

    def is_running() -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return status.read_text().split()[2] != "Z"
        return False

    end = time.monotonic() + 10
    while is_running():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_ctrl_c_ends_the_step_at_work_and_makes_the_page_of_what_there_is(tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "echo T4")
    made = [Step("long", ("-c", SLOW), 60), Step("never", ("-c", ""), 60)]
    monkeypatch.setattr(cuda_check, "steps", lambda name, folder, cache: made)
    monkeypatch.setattr(cuda_check, "page", lambda name, folder: Step("page", ("-c", ""), 60))
    timer = threading.Timer(4, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        assert main(["--folder", str(tmp_path)]) == 1
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    printed = capsys.readouterr().out
    assert "begun\nwhat was finished\n" in printed
    assert printed.splitlines()[-1] == "== T4: the rest: interrupted; page: ok"
    assert (tmp_path / "T4.log").read_text() == printed


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_files_are_named_after_the_gpu(tmp_path, monkeypatch):
    nvidia_smi(tmp_path, monkeypatch, "echo 'NVIDIA H200 (80/GB)'; echo 'NVIDIA T4'")
    assert gpu_name() == "NVIDIA-H200-80-GB-"


def test_without_a_gpu_there_is_one_line(tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "exit 9")
    assert main(["--folder", str(tmp_path / "none")]) == 3
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("codes", [(0, 0), (0, 1)])
def test_every_step_is_done_and_the_exit_code_tells_of_all(codes, tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "echo T4")
    made = [Step(str(number), ("-c", f"raise SystemExit({code})"), 60) for number, code in enumerate(codes[::-1])]
    monkeypatch.setattr(cuda_check, "steps", lambda name, folder, cache: made)
    monkeypatch.setattr(cuda_check, "page", lambda name, folder: Step("page", ("-c", ""), 60))
    for old in ("T4-command-buffers.json", "T4.json", "T4.html"):
        (tmp_path / old).touch()
    assert main(["--folder", str(tmp_path)]) == max(codes)
    assert [path.name for path in tmp_path.glob("T4*")] == ["T4.log"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert (
        last
        == "== T4: "
        + "; ".join(f"{n}: {'exit code 1' if c else 'ok'}" for n, c in enumerate(codes[::-1]))
        + "; page: ok"
    )
