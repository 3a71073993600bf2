"""The command line: what it refuses, the settings that it makes, recorded runs, `all`, exit codes, and files."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hand_made
import in_process
import pytest
from command_line import COMPARE, ROOT, rows
from hand_made import case, ended, steady
from in_process import Ended, assert_refused, run_here, start_at_once
from rendered import console_report

import compare
from shared.bench import command_line
from shared.bench.cases import Settings
from shared.bench.command_line import EPILOG, parse
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.record import InputFacts, Record, Result
from shared.bench.report import output_files
from shared.bench.report.output_files import CannotWrite, Keeper, check_outputs, locked
from shared.bench.report.report import Report
from shared.bench.run.context import CannotMeasure
from shared.file_writing import write_atomically
from shared.problems import ANY_FILE, PROBLEMS, problem_of
from shared.problems.problem import UnusableInput
from shared.sequences import SequenceError, matrix_names
from shared.variants import Abilities, variant_names

settings_of, no_biopython = in_process.settings_of, in_process.no_biopython  # fixtures
FINE = steady(case("jax", "vmap"), 0.25)

# what is refused, in one line

TAKE_SIZE = " or ".join(name for name, question in QUESTIONS.items() if "size" in question.takes)
REFUSED = {
    # unknown names, with those that are known
    "--device=tpu": "unknown device 'tpu'; known: cpu, cuda",
    "--problem=needleman": f"unknown problem 'needleman'; known: {', '.join(PROBLEMS)}",
    "--variant=vmap,fastest": f"unknown variant 'fastest' of smith_waterman; known: "
    f"{', '.join(variant_names('smith_waterman'))}, auto",
    "--pass=hessian": "unknown pass 'hessian' of smith_waterman; known: score, marginals, hvp, path",
    "--matrix=BLOSUM63": f"expected a substitution matrix out of {', '.join(matrix_names())}, got 'BLOSUM63'",
    "--bud=3": "unrecognized arguments: --bud=3",  # no short forms
    # numbers
    "--temperature=0": "temperature must be a number between 1e-15 and 1e+15, got '0'",
    "--budget -60": "budget must be a positive finite number, got '-60'",
    "--threads=99999": f"--threads must be from 1 to {len(usable_cores())}, this machine's cores, got 99999",
    "--size=0x5": "size must be whole numbers from 1, such as 100x150, got '0x5'",
    "--problem stencil --size 2x5": "a stencil has a height of at least 3, got 2",
    "--input random --size 9999999999x9999999999": "",
    # what does not go together
    "growth --sizes 5x5,6x6,7x7": "growth needs at least 4 sizes, got 5x5, 6x6, 7x7",
    "growth --batch 3": "a batch of 3 goes with sizes of ROWSxCOLS, got '1x16x16'",
    "all --variant fastest": "unknown variant 'fastest'",
    "speed growth --size 5x5": f"--size goes with the question {TAKE_SIZE}, not with growth",
    "--size=5x5 --input globins": "--size goes with --input random",
    "--input random --matrix PAM250": "--matrix goes with sequences, not with --input random",
    "--resume a.json --from b.json": "--from does not go with --resume, which uses the options of the record",
    "--from a.json --json b.json": "--json does not go with --from",
    "--against old.json": "argument --against: expected 2 arguments",
    "graphs": "graphs goes with --device cuda, got cpu: a CPU has no CUDA graphs",
    "graphs --device cuda --problem stencil": "not with stencil",
    # interpreters
    "versions": "versions needs another interpreter: --python jax=PATH or --python torch=PATH",
    "--python jax=python3 --framework torch": "--python jax=PATH goes with --framework jax, got torch",
    "versions --python torch=true": "--python torch=true: no worker can start there: it printed nothing",
    # files
    "--json=": "argument --json: expected the name of a file, got ''",
    "--json=~/run.json": "cannot write /nowhere/run.json (--json): No such file or directory",
    "--markdown mine.fasta": "cannot write mine.fasta (--markdown): it exists; --force overwrites it",
    "--json mine.fasta --input mine.fasta --force": "(--json): it is the file which this command reads",
    "--json own.py --problem own.py --force": "(--json): it is the file which this command reads",
    "--json new --report ./new": "cannot write new (--report): it is the file of --json",
    "--input none.fasta": "'none.fasta': expected a readable FASTA file",
    "--input mine.fasta": "'mine.fasta': record 2 'two': expected letters of BLOSUM62 (",
    "--resume none.json": "cannot read none.json: No such file or directory",
    "--from mine.fasta": "cannot read mine.fasta: not a record that this version reads: ",
    "--against mine.fasta none.json": "cannot read mine.fasta: not a record that this version reads: ",
    # a user's file
    "--problem own.py --size 5x5": "--size goes with --problem smith_waterman or ",
    "growth --problem own.py": "growth does not go with own.py, which has one size",
    "--problem own.py --variant vmap": "unknown variant 'vmap' of own.py; known: eager, compiled",
    **{f"{question} --problem bad.py": "bad.py, line 2: TypeError: object of type 'int' has no len()"
       for question in QUESTIONS},
    "--problem none.py": "cannot read none.py: No such file or directory",
}  # fmt: skip


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working directory, with a FASTA file and two of a user's problems."""
    (tmp_path / "mine.fasta").write_text(">one\nACDE\n>two\nACJ\n")
    (tmp_path / "own.py").write_text((ROOT / "docs/soft_dtw.py").read_text())
    (tmp_path / "bad.py").write_text("\nlength = len(3)\n")
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("arguments", REFUSED)
def test_bad_arguments_and_bad_input_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, folder: Path, arguments: str
):
    start_at_once(monkeypatch)
    before = sorted(folder.iterdir())
    assert_refused(run_here(*arguments.split()), REFUSED[arguments])
    assert sorted(folder.iterdir()) == before


def test_a_home_folder_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # no such user
    assert_refused(run_here("--json=~"), "argument --json: expected the name of a file, got '~'")


@pytest.mark.parametrize("arguments", [(), ("--input", "mine.fasta"), ("learning",)])
def test_sequences_are_refused_in_one_line_where_biopython_is_missing(
    no_biopython: None, folder: Path, arguments: tuple[str, ...]
):
    reason = "FASTA files, Stockholm files and substitution matrices are read by Biopython: pip install biopython ("
    assert_refused(run_here(*arguments), reason)


def test_an_unknown_question_is_answered_with_the_known_ones():
    done = run_here("fastest")
    assert (done.code, done.out) == (2, "")
    assert done.err[0] == "compare.py: error: argument QUESTION: unknown question 'fastest'; known:"
    assert [line.split(":")[0].strip() for line in done.err[1:]] == [*QUESTIONS, "all"]


def test_a_case_that_no_framework_can_run_is_told_before_measuring(monkeypatch: pytest.MonkeyPatch, folder: Path):
    start_at_once(monkeypatch, Abilities("diagonal_loop", first_order={"vmap": "wrong second derivatives"}))
    done = run_here("--framework", "torch", "--pass", "hvp", "--variant", "vmap")
    assert (done.code, done.out) == (2, "")
    assert done.err[-1] == "compare.py: error: nothing to measure: PyTorch vmap hvp: wrong second derivatives"
    file = folder / "own.py"
    file.write_text(file.read_text().replace("def torch_function", "def other"))
    done = run_here("--problem", "own.py", "--framework", "torch", "--variant", "compiled", "--pass", "value")
    assert done.err[-1].endswith("nothing to measure: PyTorch compiled value: own.py has no torch_function")


def test_the_list_shows_all_names():
    lines = run_here("--list").out.splitlines()
    titles = {line.partition(":")[0] for line in lines}
    rungs = {line.split()[0] for line in lines if line.startswith("  ")}
    assert titles >= {*QUESTIONS, *PROBLEMS, ANY_FILE}
    for problem in map(problem_of, (*PROBLEMS, ANY_FILE)):
        assert rungs >= {*problem.passes, *problem.variant_names}
    assert "takes --gap-open --gap-extend --temperature --no-restrict-turns" in "".join(lines)


def test_defaults_are_those_of_the_settings_and_of_each_question(settings_of: Callable[..., Settings]):
    assert settings_of() == settings_of("speed") == Settings(threads=len(usable_cores()))
    ladder, growth = settings_of("ladder"), settings_of("growth", "--sizes", "6x7, 8X9,6x7")
    assert (ladder.input, ladder.passes) == ("random", ("score",))
    assert (growth.input, growth.passes, growth.sizes) == ("random", ("score", "marginals"), ((6, 7), (8, 9)))
    assert settings_of("--size", "5x6").input == settings_of("--device", "cuda").input == "random"
    run = settings_of("ladder", "--matrix", "PAM250", "--pass", "marginals")
    assert (run.input, run.matrix, run.passes) == ("globins", "PAM250", ("marginals",))
    run = settings_of("--framework", "torch, jax,torch", "--variant", "vmap,,vmap", "--gap", "-2.5e-1")
    assert (run.frameworks, run.variants, run.arguments) == (("torch", "jax"), ("vmap",), {"gap": -0.25})


def test_every_problem_takes_its_own_arguments(settings_of: Callable[..., Settings]):
    values = {"gap": -2.5, "gap_open": -9.0, "gap_extend": -0.5, "temperature": 2.0, "end": "match"}
    values |= {"end_gaps": "free_cols", "epochs": 7, "learning_rate": 0.5}
    values |= {"model": "encoder", "families": "/proteins", "seeds": 2, "checkpoints": "/kept"}
    for name, problem in PROBLEMS.items():
        typed, words = {}, []
        for key, argument in problem.arguments.items():
            option = key.replace("_", "-")
            is_flag = argument.parse is None
            typed[key] = not argument.default if is_flag else values[key]
            words += (
                [f"--{option}" if typed[key] else f"--no-{option}"] if is_flag else [f"--{option}", str(typed[key])]
            )
        question = problem.question or "speed"
        assert settings_of(question, "--problem", name, *words).arguments == typed
        assert settings_of(question, "--problem", name).arguments == {}


def test_a_record_of_a_users_file_is_shown_without_the_file():
    problem = "no/such/mine.py"
    settings = Settings(problem=problem, passes=("value",), input="random")
    of = [replace(case("torch", name, "value"), problem=problem, input="data") for name in ("compiled", "eager")]
    slow = ended(of[0], "limit", "torch.compile failed: Unsupported (f(x))")
    facts = {"data": InputFacts("inputs(0): float32 (3,)", (3,), None, 1, {}, {"file": problem}, "5f" * 32)}
    made = hand_made.record(slow, steady(of[1], 0.25, work=1), settings=settings, inputs=facts)
    printed = console_report(made)
    table = rows(printed)
    assert table["value", "PyTorch", "eager"]["calls/s"] == "4"
    assert table["value", "PyTorch", "compiled"]["first call, caches empty"] == "torch.compile failed"
    assert "LIMIT: PyTorch compiled value: torch.compile failed: Unsupported (f(x))" in printed
    assert f"mine.py: functions of your own; float32, file {problem}\n" in printed


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The file of a run that was not finished."""
    path = tmp_path / "recorded.json"
    settings = Settings(passes=("score",), rounds=3, seed=7, batch=5, budget=60.0)
    hand_made.record(FINE, settings=settings, finished=None).write(path)
    return path


def test_a_resumed_run_has_the_settings_of_its_record_except_for_the_budget(
    settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path
):
    before, unchanged = Record.read(recorded), recorded.read_bytes()
    assert settings_of("--resume", str(recorded), "--json", "other.json", "--report", "page.html").budget == 300
    assert recorded.read_bytes() == unchanged and (tmp_path / "page.html").exists()
    assert Record.read(tmp_path / "other.json").resumed_by
    assert settings_of("--resume", str(recorded), "--budget", "90") == replace(before.settings, budget=90.0)
    again = Record.read(recorded)
    assert again.command == "python compare.py"
    assert again.resumed_by == [f"python compare.py --resume {recorded} --budget 90"]
    again.settings = replace(again.settings, question="ladder")
    again.write(recorded)
    assert settings_of("--resume", str(recorded)).budget == QUESTIONS["ladder"].default_budget == 900


def test_a_run_of_another_machine_code_or_input_is_not_resumed(recorded: Path, monkeypatch: pytest.MonkeyPatch):
    start_at_once(monkeypatch)
    made = Record.read(recorded)
    made.code["jax"]["vmap"] = "0" * 12
    made.write(recorded)
    before = recorded.read_bytes()
    done = run_here("--resume", str(recorded))
    assert done.code == 2 and not done.out
    assert done.err[-1].startswith("compare.py: error: cannot resume: cpu was Abacus 9, is ")
    assert done.err[-1].endswith("; Measured before the project code for JAX changed.; the input batch differs")
    assert recorded.read_bytes() == before


def test_the_examples_of_help_are_accepted_and_recorded_runs_are_printed_reported_and_compared(
    settings_of: Callable[..., Settings], recorded: Path, tmp_path: Path
):
    lines = [line.split()[2:] for line in EPILOG.splitlines() if line.startswith("  python compare.py")]
    for name in ("cpu.json", "gpu.json", "old.json", "new.json", "result.json"):
        (tmp_path / name).write_bytes(recorded.read_bytes())
    ends = [run_here(*line, *(["--force"] if "result.json" in line and "--json" in line else [])) for line in lines]
    assert [(end.code, len(lines)) for end in ends] == [(0, 7)] * 7
    assert ends[5].out.count("This run was not finished") == 2 and (tmp_path / "both.html").read_text() == "2 records"
    assert "Cases, old and new" in ends[6].out
    assert ends[6].out.splitlines()[-1].endswith("1 in both: 0 slower, 0 faster, 1 same")
    printed = run_here("--help")
    assert printed.code == 0 and all(" ".join(line) in printed.out for line in lines)


def test_an_output_that_lacks_letters_or_its_reader_ends_quietly(recorded: Path):
    command = [sys.executable, COMPARE, "--from", str(recorded)]
    printed = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    assert b"250 ms" in printed.stdout and printed.stdout.isascii() and not printed.stderr
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr.count(b"\n")) == (2, 1) and b"No space left on device" in ended.stderr
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


# exit codes: however a run ends, what it found is printed and kept

VERDICT = "score: only JAX (vmap, 250 ms per call) was measured, so there is nothing to compare."
EVERY_FILE = "--json to/run.json --report to/page.html --markdown to/page.md"
# what a run finds, in order, and what happens to it
Step = Result | BaseException | Callable[[], object]
End = Callable[..., Ended]


def shortened(reports: Sequence[Report], *_: object) -> str:
    """A report of the questions and how many cases each has."""
    return ", ".join(f"{report.question}: {len(report.brief[0].rows)}" for report in reports)


@pytest.fixture
def end_with(monkeypatch: pytest.MonkeyPatch, folder: Path) -> End:
    """Run the command with runs that take these steps, and have everything written."""
    (folder / "to").mkdir()
    for name in ("html_report", "markdown_report"):
        monkeypatch.setattr(output_files, name, shortened)

    def end(*runs: Sequence[Step], asked: str = EVERY_FILE) -> Ended:
        remaining = list(runs)

        def measure(_: object, record: Record, __: object, keep: Callable[[], None]) -> None:
            for step in remaining.pop(0):
                if isinstance(step, BaseException):
                    raise step
                if callable(step):
                    step()
                    continue
                whole = hand_made.record(settings=record.settings)
                record.started, record.inputs, record.environment = whole.started, whole.inputs, whole.environment
                record.results.append(step)
                keep()

        monkeypatch.setattr(compare, "measure", measure)
        return run_here("--pass=score", *asked.split())

    return end


BAD = {status: ended(case("torch", "vmap"), status, "because") for status in ("wrong", "failed", "limit")}
NO_MEMORY = "compare.py: error: the input does not fit into memory"
ENDS = [
    ([FINE], 0, ""),
    ([FINE, BAD["wrong"]], 1, ""),
    ([FINE, BAD["failed"]], 1, ""),
    ([FINE, BAD["limit"]], 0, ""),
    ([CannotMeasure("JAX has no such device\nPyTorch neither")], 3, "PyTorch neither"),
    ([UnusableInput("nothing to measure: vmap")], 2, "compare.py: error: nothing to measure: vmap"),
    ([SequenceError("'a': no such file")], 2, "compare.py: error: 'a': no such file"),
    ([MemoryError()], 2, NO_MEMORY),
    ([FINE, MemoryError()], 2, NO_MEMORY),
    ([FINE, OSError(28, "No space left on device")], 2, "compare.py: error: [Errno 28] No space left on device"),
    ([FINE, KeyError("broken")], 1, "KeyError: 'broken'"),
    ([KeyboardInterrupt()], 130, "interrupted"),
    ([FINE, KeyboardInterrupt()], 130, "interrupted; this is what was finished:"),
]


@pytest.mark.parametrize(("steps", "code", "line"), ENDS)
def test_however_a_run_ends_it_is_told_and_what_was_found_is_printed_and_kept(
    end_with: End, folder: Path, steps: list[Step], code: int, line: str
):
    done = end_with(steps)
    assert (done.code, "".join(done.err[-1:])) == (code, line)
    timed = [step for step in steps if isinstance(step, Result)]
    assert (VERDICT in done.out.splitlines()) == bool(timed)
    assert sorted(path.name for path in (folder / "to").iterdir()) == ["page.html", "page.md", "run.json"] * bool(timed)
    if timed:
        assert Record.read(folder / "to/run.json").results == timed
        assert {(folder / "to" / name).read_text() for name in ("page.html", "page.md")} == {f"speed: {len(timed)}"}


def test_a_second_question_that_cannot_be_asked_costs_no_answer_to_the_first(end_with: End):
    done = end_with([FINE], [CannotMeasure("no JAX any more")], asked="speed ladder")
    assert done.code == 3 and VERDICT in done.out.splitlines()


def test_a_failure_in_a_users_file_is_bad_input_and_the_rest_is_printed(end_with: End):
    of = [replace(case("torch", name, "value"), problem="own.py") for name in ("eager", "compiled")]
    results = ended(of[0], "failed", "ValueError: no"), steady(of[1], 0.25, work=1)
    done = end_with(results, asked="--problem own.py --framework torch --pass value")
    assert done.code == 2 and done.err[-1] == "compare.py: error: PyTorch eager value: ValueError: no"
    assert "FAILED: PyTorch eager value: ValueError: no" in done.out and "250 ms" in done.out


def test_reports_that_cannot_be_made_or_written_are_told_and_cost_no_other(
    end_with: End, monkeypatch: pytest.MonkeyPatch, folder: Path
):
    def without_matplotlib(*_: object) -> None:
        raise ImportError("no matplotlib")

    monkeypatch.setattr(output_files, "html_report", without_matplotlib)
    problems = {"compare.py: error: cannot make to/page.html: ImportError('no matplotlib')"}
    done = end_with([FINE])
    assert done.code == 2 and problems <= {*done.err} and (folder / "to/page.md").read_text() == "speed: 1"
    done = end_with([FINE, lambda: shutil.rmtree(folder / "to")], asked=f"{EVERY_FILE} --force")
    for name in ("run.json", "page.md"):
        problems.add(f"compare.py: error: cannot write to/{name}: No such file or directory")
    assert done.code == 2 and problems <= {*done.err} and VERDICT in done.out.splitlines()


@pytest.fixture
def four_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    four = ("speed", "ladder", "growth", "shapes")
    monkeypatch.setattr(command_line, "QUESTIONS", {name: QUESTIONS[name] for name in four})


@pytest.mark.usefixtures("four_questions")
def test_all_writes_a_page_and_a_record_of_every_question_that_can_be_asked(end_with: End, folder: Path):
    not_asked = CannotMeasure("JAX can use 2 cores, expected 1"), UnusableInput("shapes goes with others")
    wrong = ended(case("jax", "vmap"), "wrong", "score off by 1.0")
    everything = "all --framework jax --json records"
    done = end_with([wrong], [FINE], *([error] for error in not_asked), asked=everything)
    assert done.code == 1 and done.out.count("smith_waterman: smooth local alignment") == 2
    assert done.err == [
        "speed, ladder, growth, shapes: up to 34:00 minutes in all",
        "not asked: growth: JAX can use 2 cores, expected 1",
        "not asked: shapes: shapes goes with others",
    ]
    assert (folder / "report.html").read_text() == "speed: 1, ladder: 1"
    for name in ("speed", "ladder"):
        assert Record.read(folder / "records" / f"{name}.json").settings.question == name
    again = end_with(asked=everything)
    assert again.code == 2 and again.err[0].endswith("speed.json (--json): it exists; --force overwrites it")


@pytest.mark.usefixtures("four_questions")
@pytest.mark.parametrize(
    ("budget", "seconds", "expected"),
    [("10", [10.0], {"speed": 10.0}), ("1200", [301.0, 897.0], {"speed": 300.0, "ladder": 899.0})],
)
def test_all_asks_the_questions_for_which_time_is_left_and_the_first_in_any_case(
    end_with: End, monkeypatch: pytest.MonkeyPatch, folder: Path, budget: str, seconds: list[float], expected: object
):
    """seconds: that each question takes."""
    over, times = [0.0], iter(seconds)
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=lambda: sum(over)))
    steps = [[FINE, lambda: over.append(next(times))] for _ in seconds]
    done = end_with(*steps, asked=f"all --framework jax --budget {budget} --json records")
    records = {path.stem: Record.read(path) for path in (folder / "records").glob("*.json")}
    assert {name: record.settings.budget for name, record in records.items()} == expected
    seconds_left = max(0.0, float(budget) - sum(seconds))
    assert done.err[-2:] == [f"not asked: {name}: it takes {QUESTIONS[name].default_budget:g} s of the budget, "
                             f"{seconds_left:.0f} s are left" for name in ("growth", "shapes")]  # fmt: skip


def test_an_option_goes_to_the_questions_that_take_it():
    request, settings = parse(["all", "--size", "64x64"])
    sizes = {settings_of_one.question: settings_of_one.size for settings_of_one in settings}
    assert sizes["speed"] == (64, 64) and sizes["growth"] is None
    left_out = [line.split(":")[0] for line in request.left_out]
    assert left_out == ["graphs", "versions"] and [*sizes] == [name for name in QUESTIONS if name not in left_out]
    assert parse(["all", "--input", "globins"])[0].left_out[0] == "growth: growth goes with --input random"


# files


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text("old")
    with path.open() as reader:
        write_atomically(path, "Σ – 'µs' \udcff\n")  # the last one of a path that is not UTF-8
        assert reader.read() == "old"
    assert path.read_bytes() == "Σ – 'µs' ?\n".encode()  # whatever the system's encoding
    (other := tmp_path / "other").touch()
    assert path.stat().st_mode == other.stat().st_mode  # others may read it if they may read other files


def test_a_link_and_a_pipe_are_written_into_not_replaced(tmp_path: Path):
    link, target, pipe = (tmp_path / name for name in ("link", "target", "pipe"))
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "new")
    assert pipe.is_fifo() and os.read(reader, 9) == b"new"
    os.close(reader)


def test_a_check_of_outputs_changes_nothing_and_knows_devices_and_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "run.json"
    path.write_text("old")
    devices = [("--report", Path("/dev/null")), ("--markdown", Path("/dev/null"))]
    check_outputs([("--json", path), *devices], [], force=True)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]

    def refuse(dir: Path) -> None:  # a root user may write everywhere
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(CannotWrite, match="Permission denied"):
        check_outputs([("--json", tmp_path / "other.json")], [], force=False)


def test_a_record_that_another_run_writes_is_refused(tmp_path: Path):
    path = tmp_path / "run.json"
    with locked(path):
        with pytest.raises(CannotWrite, match="another run is writing it"), locked(tmp_path / "." / "run.json"):
            pass
        with locked(tmp_path / "other.json"):
            pass
    with locked(path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_record_is_kept_after_every_step_and_a_full_disk_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path, growing = tmp_path / "run.json", hand_made.record()
    path.write_text("an earlier run")
    keep = Keeper(growing, path)
    keep()
    assert keep.write() is None and path.read_text() == "an earlier run"  # there is nothing to store
    growing.results.append(FINE)
    problem = f"cannot write {path}: No space left on device"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(3):
            keep()
        assert capsys.readouterr().err == f"{problem}; the run continues, and prints its results at the end\n"
        # what was there is whole, and nothing half written is beside it
        assert path.read_text() == "an earlier run" and list(tmp_path.iterdir()) == [path]
        assert keep.write() == problem
    for variant in ("wavefront", "fused"):
        keep()
        assert Record.read(path) == growing
        growing.results.append(steady(case("jax", variant), 0.25))
