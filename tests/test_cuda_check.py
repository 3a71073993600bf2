"""Tools for machines with a GPU, without one: the steps of `make cuda-check` and their outcomes, times of kernels."""

import contextlib
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from shared.bench.command_line import parse
from tools import cuda_check, kernel_times
from tools.cuda_check import FILES, Step, main, steps
from torch_impl import accelerator

TESTS_FOLDER = Path(__file__).parent


def python(code: str, *, title: str = "a", seconds: float = 60, **more) -> Step:
    return Step(title, (sys.executable, "-u", "-c", code), seconds, **more)


def run(step: Step, folder: Path, seconds: float = 1e3) -> tuple[str, str]:
    """Run a step with so many seconds left: its outcome without its seconds, and the log below the step's title."""
    with (folder / "log").open("w") as log:
        outcome = cuda_check.run(step, log, time.monotonic() + seconds)
    return outcome.rpartition(",")[0] or outcome, (folder / "log").read_text().partition("\n")[2]


def test_a_call_takes_less_than_10_minutes(tmp_path):
    for target in FILES:
        *every, last = steps(target, tmp_path, "90")
        begin = sum(step.seconds for step in every if step.title != "page")
        assert begin < cuda_check.CALL_SECONDS  # the last step has what is left
        assert cuda_check.CALL_SECONDS + max(step.grace for step in (*every, last)) < 600


def test_compare_py_accepts_what_it_is_asked_for(tmp_path):
    comparison, page, graphs = steps("comparison", tmp_path, "90")[2:]
    outputs = []
    for step, question in ((comparison, "speed"), (graphs, "graphs")):
        request, (settings,) = parse([word.replace("BUDGET", "420") for word in step.command[3:]])
        assert (settings.question, settings.device, settings.workers, settings.budget) == (question, "cuda", 3, 420)
        outputs += [path.name for _, path in request.outputs]
    assert comparison.seconds == 460 and sorted(outputs) == sorted(FILES["comparison"][1:])
    request, _ = parse(page.command[3:])
    assert request.recorded == [tmp_path / "gpu-default.json"] and request.report == tmp_path / "gpu-default.html"


def test_all_files_with_tests_for_gpus_are_run():
    marked = [path for path in TESTS_FOLDER.glob("test_*.py") if "mark" + ".cuda" in path.read_text()]
    assert sorted(f"tests/{path.name}" for path in marked) == sorted(cuda_check.TESTS)


def test_a_step_s_output_is_shown_and_kept_and_its_outcome_says_what_is_wrong(tmp_path, capfd):
    code = "import os, sys; print(os.environ['WHAT']); sys.stderr.write('and more')"
    assert run(python(code, environment={"WHAT": "a table"}, says="a tab"), tmp_path) == ("ok", "a table\nand more")
    assert capfd.readouterr().out == "== a, at most 60 s\na table\nand more"
    assert run(python("print('looked at nothing')", says="0 errors"), tmp_path)[0] == "it did not say '0 errors'"
    assert run(python("raise SystemExit(3)"), tmp_path)[0] == "exit code 3"
    assert "No such file or directory: 'none'" in run(Step("a", ("none",), 9), tmp_path)[0]


def test_a_step_has_the_time_that_is_left_and_a_budget_within_it(tmp_path):
    assert run(python("print('BUDGET')", seconds=300), tmp_path, 100.4) == ("ok", "80\n")
    assert run(python("", least=45), tmp_path, 44)[0] == "no time was left"


INTERRUPTED = """
import signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print("begun", child.pid, flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("what was finished", flush=True)
"""


def test_a_step_that_takes_too_long_is_interrupted_and_killed_with_its_children(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as for a script's background jobs
    try:
        outcome, log = run(python(f"{INTERRUPTED}    time.sleep(60)", seconds=2, grace=0.5), tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    first, *later = log.splitlines()
    assert (outcome, later) == ("not finished within 2 s", ["what was finished"])
    status = Path("/proc", first.removeprefix("begun "), "stat")

    def is_running() -> bool:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return status.read_text().split()[2] != "Z"
        return False

    end = time.monotonic() + 10
    while is_running():
        assert time.monotonic() < end
        time.sleep(0.05)


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{text}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_ctrl_c_ends_the_step_at_work_and_makes_the_page_of_what_there_is(tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "echo 9.0")
    record = f"open({str(tmp_path / 'gpu-default.json')!r}, 'w'); {INTERRUPTED}    sys.exit(130)"
    made = [python(record, title="long"), python("", title="page"), python("", title="never")]
    monkeypatch.setattr(cuda_check, "steps", lambda what, folder, capability: made)
    log, main_thread = tmp_path / "cuda-check.log", threading.main_thread().ident
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
    assert "what was finished\n" in printed
    last = printed.splitlines()[-1]
    assert last.startswith("== comparison: long: interrupted, ") and "; page: ok" in last and "never" not in last
    assert log.read_text() == printed


def test_cuda_check_says_in_one_line_that_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "exit 9")
    assert main(["--folder", str(tmp_path / "none")]) == 3
    assert "no CUDA device" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("codes", [(0, 0), (1, 0)])
def test_every_step_is_done_and_the_exit_code_is_of_all(codes, tmp_path, monkeypatch, capsys):
    nvidia_smi(tmp_path, monkeypatch, "echo 9.0; echo 8.6")
    made = [python(f"raise SystemExit({code})", title=str(number)) for number, code in enumerate(codes)]
    monkeypatch.setattr(cuda_check, "steps", lambda what, folder, capability: {"90": made}[capability])
    for old in (*FILES["comparison"], "tests.xml"):  # the last is another call's
        (tmp_path / old).touch()
    assert main(["--folder", str(tmp_path)]) == max(codes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cuda-check.log", "nvidia-smi", "tests.xml"]
    first = "exit code 1" if codes[0] else "ok"
    assert capsys.readouterr().out.splitlines()[-1] == f"== comparison: 0: {first}, 0 s; 1: ok, 0 s"


# tools/kernel_times.py


@pytest.mark.parametrize("call", kernel_times.CALLS)
def test_an_argument_becomes_the_kernels_and_all_that_they_take(call):
    program = kernel_times.program(kernel_times.asked(f"smith_waterman_affine/{call}/600x70x50/1x16x96"))
    names = ["block_forward_kernel", "block_backward_kernel"]
    assert [launch.kernel.name for launch in program.launches] == (names[:1] if call == "score" else names)
    basic = {"similarity", "lengths", "values", *(["t_similarity"] if call == "product" else []), *program.scratch}
    for launch in program.launches:
        constants = dict(launch.kernel.constants)
        assert (constants["height"], constants["steps"], launch.kernel.registers) == (1, 16, 96)
        assert {name for name in launch.arguments if isinstance(name, str)} <= basic


def test_an_argument_may_name_several_warps_or_leave_the_layout_to_the_library():
    assert kernel_times.asked("smith_waterman/score/64x100x150/2x8x0x2").layout.scores == (64, 2, 8, None, 2)
    assert kernel_times.asked("free_gap/score/4096x512x512").layout == kernel_times.layout_of(4096, 512)


@pytest.mark.parametrize(
    "wrong", ["smith_waterman/score", "sw/score/1x2x3", "free_gap/score/1x2x3/4x8x0x3", "free_gap/score/1x2x3/4x7x0"]
)
def test_a_wrong_argument_is_told(wrong, capsys):
    with pytest.raises(SystemExit, match="2"):
        kernel_times.main([wrong])
    assert f"expected {kernel_times.FORM}, for example {kernel_times.EXAMPLE}, not {wrong!r}" in capsys.readouterr().err


def test_kernels_are_compiled_first_and_one_that_does_not_run_gives_its_error(monkeypatch, capsys):
    def times(what: kernel_times.Asked) -> str:
        done.append(what.call)
        return {"score": "2 µs"}[what.call]

    done = []
    monkeypatch.setattr(kernel_times, "device_problem", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(accelerator, "compile_ahead", lambda *given: done.append((len(given[0]), given[1])))
    monkeypatch.setattr(kernel_times, "times", times)
    texts = [f"free_gap/{call}/64x100x150" for call in ("gradients", "score")]
    assert kernel_times.main(texts) == 1
    assert done == [(3, 90), "gradients", "score"]
    assert capsys.readouterr().out == f"{texts[0]}: KeyError: 'gradients'\n{texts[1]}: 2 µs\n"
