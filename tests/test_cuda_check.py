"""`make cuda-check` without a GPU: its steps, their time limits, and their outcomes."""

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest

from shared.bench.command_line import parse
from tools import cuda_check
from tools.cuda_check import SUFFIXES, Log, Step, main, page, steps

TESTS_FOLDER = Path(__file__).parent


def run(step: Step, folder: Path) -> tuple[str, str]:
    """Its outcome, and what is in the log after its title."""
    found = cuda_check.run(step, Log(folder / "log"))
    return found, (folder / "log").read_text().partition("\n")[2]


def test_all_steps_together_take_less_than_10_minutes(tmp_path):
    every = [*steps("GPU", tmp_path, tmp_path), page("GPU", tmp_path)]
    assert sum(step.seconds + step.grace for step in every) < 590


def test_compare_py_accepts_every_comparison_and_the_main_one_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    every = steps("GPU", tmp_path, tmp_path)
    compared = [step for step in every if step.command[0] == "compare.py"]
    assert every[0] == compared[0] and not compared[0].environment
    assert compared[1].environment["XLA_FLAGS"].startswith("--xla_dump_to=here --xla_gpu_enable_command_buffer=+WHILE ")
    for step, suffix in zip(compared, SUFFIXES, strict=True):
        request, (settings,) = parse(step.command[1:])
        assert settings.device == "cuda" and settings.budget < step.seconds
        assert request.json == tmp_path / f"GPU{suffix}.json"
    (tmp_path / f"GPU{SUFFIXES[1]}.json").touch()  # the other one was never begun
    request, _ = parse(page("GPU", tmp_path).command[1:])
    assert request.recorded == [tmp_path / f"GPU{SUFFIXES[1]}.json"] and request.report == tmp_path / "GPU.html"


def test_all_files_with_tests_for_gpus_are_run():
    marked = [path for path in TESTS_FOLDER.glob("test_*.py") if "mark" + ".cuda" in path.read_text()]
    assert sorted(f"tests/{path.name}" for path in marked) == sorted(cuda_check.TESTS)


def test_a_step_s_output_is_shown_and_kept(tmp_path, capfd):
    code = "import os, sys; print(os.environ['WHAT']); sys.stderr.write('and more')"
    assert run(Step("a", ("-c", code), 60, {"WHAT": "a table"}), tmp_path) == ("ok", "a table\nand more")
    assert capfd.readouterr().out == "== a, at most 60 s\na table\nand more"


SLOW = """
import sys, time
print("begun", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("what was finished", flush=True)
    sys.exit(130)
"""


def test_a_step_that_takes_too_long_is_interrupted_and_keeps_its_output(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for a script's background jobs
    try:
        found = run(Step("a", ("-c", SLOW), 2), tmp_path)
        assert found == ("not finished within 2 s", "begun\nwhat was finished\n")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_step_that_ignores_interrupts_is_killed_with_its_children(tmp_path):
    deaf = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    assert run(Step("a", ("-c", deaf), 2, grace=0.5), tmp_path)[0] == "not finished within 2 s"
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
    log, main_thread = tmp_path / "T4.log", threading.main_thread().ident
    assert main_thread is not None

    def interrupt_once_begun() -> None:
        while not log.exists() or "begun" not in log.read_text():
            time.sleep(0.05)
        signal.pthread_kill(main_thread, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt_once_begun, daemon=True).start()
        assert main(["--folder", str(tmp_path)]) == 1
    finally:
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


def test_without_a_gpu_there_is_one_line(tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "exit 9")
    assert main(["--folder", str(tmp_path / "none")]) == 3
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("codes", [(0, 0), (1, 0)])
def test_every_step_is_done_and_the_exit_code_is_of_all(codes, tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "echo 'NVIDIA H200 (80/GB)'; echo 'NVIDIA T4'")
    name = "NVIDIA-H200-80-GB-"  # files are named after the first one
    made = [Step(str(number), ("-c", f"raise SystemExit({code})"), 60) for number, code in enumerate(codes)]
    monkeypatch.setattr(cuda_check, "steps", lambda name, folder, cache: made)
    monkeypatch.setattr(cuda_check, "page", lambda name, folder: Step("page", ("-c", ""), 60))
    for old in ("-command-buffers.json", ".json", ".html"):
        (tmp_path / f"{name}{old}").touch()
    assert main(["--folder", str(tmp_path)]) == max(codes)
    assert [path.name for path in tmp_path.glob("NVIDIA*")] == [f"{name}.log"]
    outcomes = "; ".join(f"{number}: {'exit code 1' if code else 'ok'}" for number, code in enumerate(codes))
    assert capsys.readouterr().out.splitlines()[-1] == f"== {name}: {outcomes}; page: ok"
