"""Bad arguments and bad input are told in one line that says what was expected, before anything is measured."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from command_line import run_compare

import compare as command
from shared.bench import run as run_module
from shared.bench.plan import Settings
from shared.problems import PROBLEMS
from shared.sequences import matrix_names
from shared.variants import Abilities, variant_names

UNKNOWN = {
    "device": ("--device=tpu", "unknown device 'tpu'; known: cpu, cuda"),
    "framework": ("--framework=jax,numpy", "unknown framework 'numpy'; known: jax, torch"),
    "problem": ("--problem=needleman", f"unknown problem 'needleman'; known: {', '.join(PROBLEMS)}"),
    "variant": (
        "--variant=vmap,fastest",
        f"unknown variant 'fastest'; known: {', '.join(variant_names('smith_waterman'))}, auto",
    ),
    "pass": ("--pass=hessian", "unknown pass 'hessian'; known: score, marginals, hvp"),
    "matrix": ("--matrix=BLOSUM63", f"unknown matrix 'BLOSUM63'; known: {', '.join(matrix_names())}"),
    "end": ("--end=both", "unknown end 'both'; known: any, match"),
    "dtype": ("--dtype=float16", "unknown dtype 'float16'; known: float32, float64"),
}

BAD_NUMBERS = {
    "gap nan": ("--gap=nan", "gap must be a finite number of at most 1e+18, got 'nan'"),
    "gap infinite": ("--gap=-inf", "gap must be a finite number of at most 1e+18, got '-inf'"),
    "gap a word": ("--gap=low", "gap must be a finite number of at most 1e+18, got 'low'"),
    "gap too large": ("--gap=1e30", "gap must be a finite number of at most 1e+18, got '1e30'"),
    "gap-open nan": (
        "--problem=smith_waterman_affine --gap-open=nan",
        "gap-open must be a finite number of at most 1e+18, got 'nan'",
    ),
    "gap-extend a word": (
        "--problem=smith_waterman_affine --gap-extend=low",
        "gap-extend must be a finite number of at most 1e+18, got 'low'",
    ),
    "temperature zero": ("--temperature=0", "temperature must be a number between 1e-15 and 1e+15, got '0'"),
    "temperature negative": ("--temperature=-1", "temperature must be a number between 1e-15 and 1e+15, got '-1'"),
    "size without rows": ("--size=0x5", "size must be ROWSxCOLS, such as 100x150, got '0x5'"),
    "size with one number": ("--size=100", "size must be ROWSxCOLS, such as 100x150, got '100'"),
    "size negative": ("--size=5x-5", "size must be ROWSxCOLS, such as 100x150, got '5x-5'"),
    "batch zero": ("--batch=0", "batch must be a whole number from 1, got '0'"),
    "repeats a letter": ("--repeats=x", "repeats must be a whole number from 1, got 'x'"),
    "repeats a fraction": ("--repeats=1.5", "repeats must be a whole number from 1, got '1.5'"),
    "threads too many": ("--threads=99999", "--threads must be between 1 and the"),
    "threads zero": ("--threads=0", "threads must be a whole number from 1, got '0'"),
    "seed negative": ("--seed=-1", "seed must be a whole number from 0, got '-1'"),
    "seed too large": ("--seed=4294967296", "seed must be a whole number from 0, got '4294967296'"),
    "unroll zero": ("--unroll=0", "unroll must be a whole number from 1, got '0'"),
    "limit zero": ("--compile-limit=0", "compile-limit must be a positive finite number, got '0'"),
    "no names": ("--variant=,", "expected at least one name, got none"),
    "size of proteins": ("--size=5x5", "--size goes with --input random"),
}

MINE = ">one\nACDE\n>two\n"
BAD_FASTA = {
    "empty": (b"", "expected at least 2 records, got an empty file"),
    "one sequence": (b">one\nACDE\n", "expected at least 2 records, got only 'one'"),
    "binary": (b"\x7fELF\x00\xff", "expected UTF-8 text, got the byte 0xff at 5"),
    "unknown letter": (f"{MINE}AC3\n".encode(), "record 2 'two': expected letters A-Z, got '3' at position 3"),
    "letter outside the matrix": (f"{MINE}ACJ\n".encode(), "record 2 'two': expected letters of BLOSUM62 ("),
}

JSON_PATHS: dict[str, Callable[[Path], tuple[Path, str]]] = {
    "a directory": lambda folder: (folder, "it is a directory"),
    "in a missing folder": lambda folder: (folder / "missing" / "run.json", "No such file or directory"),
    "below a file": lambda folder: (Path(__file__) / "run.json", "Not a directory"),
    "a name too long": lambda folder: (folder / ("a" * 300), "File name too long"),
}


class Ended(NamedTuple):
    """How a run of the command ended."""

    code: Any
    out: str
    err: list[str]


@pytest.fixture
def end_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run the command in this process. Its workers start at once and cannot run a case."""
    worker = SimpleNamespace(abilities=Abilities("vmap", {}, {}, {}), environment={}, stop=lambda: None)
    monkeypatch.setattr(run_module, "Worker", lambda *_: worker)

    def run(*arguments: str) -> Ended:
        try:
            code: Any = command.main(arguments)
        except SystemExit as error:
            code = error.code
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err.splitlines())

    return run


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Settings]:
    """What the command makes of its arguments; nothing is measured."""
    asked: list[Settings] = []
    monkeypatch.setattr(command, "run", lambda settings, record, say: asked.append(settings))
    monkeypatch.chdir(tmp_path)

    def parse(*arguments: str) -> Settings:
        assert command.main(arguments) == 0
        return asked[-1]

    return parse


def assert_refused(ended: Ended, text: str) -> None:
    """One line with the text, exit code 2, and no case was begun."""
    assert ended.code == 2
    assert text in ended.err[-1] and ended.err[-1].startswith("compare.py: error: ")
    assert sum("error" in line for line in ended.err) == 1
    assert not ended.out and not any("[1/" in line for line in ended.err)


@pytest.mark.parametrize(("argument", "text"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_name_lists_the_known_ones(end_of: Callable[..., Ended], argument: str, text: str):
    ended = end_of(argument)
    assert_refused(ended, text)
    assert ended.err[-1].endswith(text)


@pytest.mark.parametrize(("argument", "text"), BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_a_bad_number_is_told_with_what_was_expected(end_of: Callable[..., Ended], argument: str, text: str):
    assert_refused(end_of(*argument.split()), text)


FOREIGN = {
    "--gap=-2": ("free_gap", "--gap goes with --problem smith_waterman or needleman_wunsch, not with free_gap"),
    "--gap=-1": ("smith_waterman_affine", "--gap goes with --problem smith_waterman or needleman_wunsch, not with"),
    "--gap-open=-2": ("smith_waterman", "--gap-open goes with --problem smith_waterman_affine, not with"),
    "--gap-extend=-2": ("needleman_wunsch", "--gap-extend goes with --problem smith_waterman_affine, not with"),
    "--no-restrict-turns": ("smith_waterman", "--no-restrict-turns goes with --problem smith_waterman_affine, not"),
    "--no-penalize-turns": ("free_gap", "--no-penalize-turns goes with --problem smith_waterman_affine, not with"),
    "--end=match": ("needleman_wunsch", "--end goes with --problem smith_waterman, not with needleman_wunsch"),
}


@pytest.mark.parametrize("argument", FOREIGN)
def test_an_argument_of_another_problem_is_refused(end_of: Callable[..., Ended], argument: str):
    problem, text = FOREIGN[argument]
    assert_refused(end_of("--problem", problem, argument), text)


def test_every_problem_takes_its_own_arguments(settings_of: Callable[..., Settings]):
    values = {"gap": -2.5, "gap_open": -9.0, "gap_extend": -0.5, "temperature": 2.0, "end": "match"}
    for name, problem in PROBLEMS.items():
        given = {key: values.get(key, False) for key in problem.arguments}
        words = [
            word
            for key, value in given.items()
            for word in ([f"--no-{key}"] if value is False else [f"--{key}", str(value)])
        ]
        settings = settings_of("--problem", name, *(word.replace("_", "-") for word in words))
        assert settings.arguments == given
        assert settings_of("--problem", name).arguments == {}


@pytest.mark.parametrize("gap", ["-4", "-0.5", "-.5", "-1e1", "-2.5e-1"])
def test_a_gap_may_stand_after_a_blank(settings_of: Callable[..., Settings], gap: str):
    assert settings_of("--gap", gap).arguments == {"gap": float(gap)}


def test_names_may_be_repeated_and_spaced(settings_of: Callable[..., Settings]):
    settings = settings_of("--framework", "torch, jax,torch", "--variant", "vmap,,vmap")
    assert (settings.frameworks, settings.variants) == (("torch", "jax"), ("vmap",))


def test_the_ladder_has_defaults_of_its_own(settings_of: Callable[..., Settings]):
    plain, ladder = settings_of(), settings_of("--ladder")
    asked = settings_of("--ladder", "--input", "globins", "--pass", "marginals")
    assert [(s.input, s.passes) for s in (plain, ladder, asked)] == [
        ("globins", ("score", "marginals")),
        ("random", ("score",)),
        ("globins", ("marginals",)),
    ]


def test_without_a_number_of_threads_all_cores_are_used(settings_of: Callable[..., Settings]):
    assert settings_of().threads == (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count())


@pytest.mark.parametrize("size", ["9999999999x9999999999", "99999x99999999"])
def test_an_input_larger_than_memory_is_told(end_of: Callable[..., Ended], size: str):
    ended = end_of("--input", "random", "--size", size)
    assert ended.code == 2
    assert ended.err[-1].startswith("compare.py: error: ")


@pytest.mark.parametrize(("content", "text"), BAD_FASTA.values(), ids=BAD_FASTA)
def test_a_bad_fasta_file_is_told_with_file_record_and_letter(
    end_of: Callable[..., Ended], tmp_path: Path, content: bytes, text: str
):
    path = tmp_path / "mine.fasta"
    path.write_bytes(content)
    ended = end_of("--input", str(path))
    assert_refused(ended, text)
    assert f"{str(path)!r}: " in ended.err[-1]


def test_a_missing_fasta_file_is_told(end_of: Callable[..., Ended], tmp_path: Path):
    assert_refused(end_of("--input", str(tmp_path / "none.fasta")), "none.fasta': expected a readable FASTA file")


def test_what_no_framework_can_run_is_told_before_measuring(
    end_of: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
):
    able = Abilities("diagonal_loop", {}, {"vmap": "wrong second derivatives"}, {})
    worker = SimpleNamespace(abilities=able, environment={}, stop=lambda: None)
    monkeypatch.setattr(run_module, "Worker", lambda *_: worker)
    ended = end_of("--framework", "torch", "--pass", "hvp", "--variant", "vmap")
    assert_refused(ended, "nothing to measure: PyTorch vmap hvp: wrong second derivatives")


@pytest.mark.parametrize("kind", JSON_PATHS)
def test_a_json_path_that_cannot_be_written_is_told_before_measuring(
    end_of: Callable[..., Ended], tmp_path: Path, kind: str
):
    path, reason = JSON_PATHS[kind](tmp_path)
    ended = end_of("--json", str(path))
    assert_refused(ended, f"cannot write {path}: {reason}")
    assert not any("starting" in line for line in ended.err)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_json_path_in_a_closed_folder_is_told_before_measuring(end_of: Callable[..., Ended], tmp_path: Path):
    tmp_path.chmod(0)
    try:
        assert_refused(end_of("--json", str(tmp_path / "run.json")), "Permission denied")
    finally:
        tmp_path.chmod(0o700)


# the same from a process of its own


def test_a_usage_error_ends_the_process_with_2():
    done = run_compare("--gap", "nan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].endswith("gap must be a finite number of at most 1e+18, got 'nan'")


def test_a_letter_outside_the_matrix_ends_the_process_with_2(tmp_path: Path):
    path = tmp_path / "mine.fasta"
    path.write_text(f"{MINE}ACUA\n")
    done = run_compare("--input", str(path), "--framework", "jax")
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert f"{str(path)!r}: record 2 'two': expected letters of BLOSUM62 (" in last and "got 'U' at position 3" in last
    assert "Traceback" not in done.stderr


def test_help_has_three_worked_examples():
    done = run_compare("--help")
    assert (done.returncode, done.stderr) == (0, "")
    examples = done.stdout[done.stdout.index("examples:") :]
    assert sum(line.startswith("  python compare.py") for line in examples.splitlines()) == 3
    for option in ("--device", "--framework", "--variant", "--compile-limit", "--json", "--ladder", "--list"):
        assert option in done.stdout


def test_help_s_examples_are_accepted(settings_of: Callable[..., Settings], tmp_path: Path):
    lines = command.EPILOG.splitlines()
    asked = [settings_of(*line.split()[2:]) for line in lines if line.startswith("  python compare.py")]
    assert [settings.input for settings in asked] == ["globins", "random", "my.fasta"]
    assert (tmp_path / "result.json").exists()
