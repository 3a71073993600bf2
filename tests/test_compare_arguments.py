"""Bad arguments and bad input are told in one line that says what was expected, before anything is measured."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import in_process
import pytest
from command_line import run_compare
from in_process import Ended, assert_refused, start_at_once
from shared.bench.machine import usable_cores
from shared.bench.plan import Settings

from shared.problems import PROBLEMS
from shared.sequences import matrix_names
from shared.variants import Abilities, variant_names

end_of, settings_of = in_process.end_of, in_process.settings_of  # fixtures

UNKNOWN = {
    "device": ("--device=tpu", "unknown device 'tpu'; known: cpu, cuda"),
    "framework": ("--framework=jax,numpy", "unknown framework 'numpy'; known: jax, torch"),
    "problem": ("--problem=needleman", f"unknown problem 'needleman'; known: {', '.join(PROBLEMS)}"),
    "variant": (
        "--variant=vmap,fastest",
        f"unknown variant 'fastest' of smith_waterman; known: {', '.join(variant_names('smith_waterman'))}, auto",
    ),
    "pass": ("--pass=hessian", "unknown pass 'hessian' of smith_waterman; known: score, marginals, hvp"),
    "matrix": (
        "--matrix=BLOSUM63",
        f"expected a substitution matrix out of {', '.join(matrix_names())}, got 'BLOSUM63'",
    ),
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
    "size without rows": ("--size=0x5", "size must be whole numbers from 1, such as 100x150, got '0x5'"),
    "size with one number": ("--size=100", "a size of smith_waterman is ROWSxCOLS, such as 100x150, got '100'"),
    "size negative": ("--size=5x-5", "size must be whole numbers from 1, such as 100x150, got '5x-5'"),
    "batch zero": ("--batch=0", "batch must be a whole number from 1, got '0'"),
    "workers a letter": ("--workers=x", "workers must be a whole number from 1, got 'x'"),
    "workers zero": ("--workers=0", "workers must be a whole number from 1, got '0'"),
    "rounds a fraction": ("--rounds=1.5", "rounds must be a whole number from 1, got '1.5'"),
    "rounds zero": ("--rounds 0", "rounds must be a whole number from 1, got '0'"),
    "budget zero": ("--budget=0", "budget must be a positive finite number, got '0'"),
    "budget negative": ("--budget -60", "budget must be a positive finite number, got '-60'"),
    "budget without end": ("--budget=inf", "budget must be a positive finite number, got 'inf'"),
    "precision zero": ("--precision=0", "precision must be a positive finite number, got '0'"),
    "precision a word": ("--precision=high", "precision must be a positive finite number, got 'high'"),
    "sweep with one number": ("--sweep=32", "a size of smith_waterman is ROWSxCOLS, such as 100x150, got '32'"),
    "sweep with one bad size": ("--sweep=32x32,0x5", "size must be whole numbers from 1, such as 100x150, got '0x5'"),
    "sweep without sizes": ("--sweep=,", "expected at least one name, got none"),
    "threads too many": ("--threads=99999", "--threads must be between 1 and the"),
    "threads zero": ("--threads=0", "threads must be a whole number from 1, got '0'"),
    "seed negative": ("--seed=-1", "seed must be a whole number from 0, got '-1'"),
    "seed too large": ("--seed=4294967296", "seed must be a whole number from 0, got '4294967296'"),
    "unroll zero": ("--unroll=0", "unroll must be a whole number from 1, got '0'"),
    "limit zero": ("--compile-limit=0", "compile-limit must be a positive finite number, got '0'"),
    "no names": ("--variant=,", "expected at least one name, got none"),
    "size of proteins": ("--size=5x5", "--size goes with --input random"),
    "matrix of random": ("--input=random --matrix=PAM250", "--matrix goes with sequences, not with --input random"),
    "against one": ("--against old.json", "argument --against: expected 2 arguments"),
    "from nothing": ("--from", "argument --from: expected at least one argument"),
    "what is gone": ("--repeats=3", "unrecognized arguments: --repeats=3"),
    "a short form": ("--bud=3", "unrecognized arguments: --bud=3"),
}

# what does not go together
EXCLUDED = {
    "--resume a.json --from b.json": "--resume does not go with --from",
    "--resume a.json --against b.json c.json": "--resume does not go with --against",
    "--from a.json --against b.json c.json": "--from does not go with --against",
    "--list --resume a.json": "--resume does not go with --list",
    "--against a.json b.json --list": "--against does not go with --list",
    "--from a.json --json b.json": "--json does not go with --from: nothing is measured",
    "--against a.json b.json --json c.json": "--json does not go with --against: nothing is measured",
    "--sweep --ladder": "--sweep does not go with --ladder",
    "--sweep --size 5x5": "--sweep does not go with --size: it has sizes itself",
    "--sweep=5x5 --input globins": "--sweep goes with --input random",
    "--sweep --input mine.fasta": "--sweep goes with --input random",
    "--problem stencil --gap -1": ("--gap goes with --problem smith_waterman or needleman_wunsch, not with stencil"),
    "--problem stencil --epochs 3": "--epochs goes with --problem linear_regression, not with stencil",
    "--problem stencil --variant vmap": "unknown variant 'vmap' of stencil; known: cell_loop, column_convolve, ",
    "--problem stencil --variant auto": "unknown variant 'auto' of stencil; known: cell_loop, ",
    "--problem stencil --pass score": "unknown pass 'score' of stencil; known: value, gradient",
    "--problem stencil --size 64": "a size of stencil is HEIGHTxWIDTH, such as 64x32, got '64'",
    "--problem stencil --size 2x5": "a stencil has a height of at least 3, got 2",
    "--problem stencil --unroll 2": "--unroll goes with --problem smith_waterman or smith_waterman_affine or ",
    "--problem linear_regression --size 3x4": "a size of linear_regression is POINTS, such as 1000, got '3x4'",
    "--problem linear_regression --batch 3": "--batch goes with --problem smith_waterman or ",
    "--problem linear_regression --input globins": "--input goes with --problem smith_waterman or ",
    "--problem linear_regression --learning-rate 3": "gradient descent runs away with a learning rate of 3: ",
    "--sweep --matrix PAM250": "--matrix goes with sequences, not with --input random",
    "--json a --report a": "--json and --report must be different files",
    "--report a --markdown ./a": "--report and --markdown must be different files",
}

MINE = ">one\nACDE\n>two\n"
BAD_FASTA = {
    "empty": (b"", "expected at least 2 records, got an empty file"),
    "one sequence": (b">one\nACDE\n", "expected at least 2 records, got only 'one'"),
    "binary": (b"\x7fELF\x00\xff", "expected UTF-8 text, got the byte 0xff at 5"),
    "unknown letter": (f"{MINE}AC3\n".encode(), "record 2 'two': expected letters A-Z, got '3' at position 3"),
    "letter outside the matrix": (f"{MINE}ACJ\n".encode(), "record 2 'two': expected letters of BLOSUM62 ("),
}

PATHS: dict[str, Callable[[Path], tuple[Path, str]]] = {
    "a directory": lambda folder: (folder, "it is a directory"),
    "in a missing folder": lambda folder: (folder / "missing" / "run.json", "No such file or directory"),
    "below a file": lambda folder: (Path(__file__) / "run.json", "Not a directory"),
    "a name too long": lambda folder: (folder / ("a" * 300), "File name too long"),
}


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
    values |= {"epochs": 7, "steps": 3, "learning_rate": 0.5}
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
    start_at_once(monkeypatch, Abilities("diagonal_loop", {}, {"vmap": "wrong second derivatives"}, {}))
    ended = end_of("--framework", "torch", "--pass", "hvp", "--variant", "vmap")
    assert_refused(ended, "nothing to measure: PyTorch vmap hvp: wrong second derivatives")


OUTPUTS = pytest.mark.parametrize("option", ["--json", "--report", "--markdown"])


@OUTPUTS
@pytest.mark.parametrize("kind", PATHS)
def test_a_path_that_cannot_be_written_is_told_before_measuring(
    end_of: Callable[..., Ended], tmp_path: Path, kind: str, option: str
):
    path, reason = PATHS[kind](tmp_path)
    ended = end_of(option, str(path))
    assert_refused(ended, f"cannot write {path} ({option}): {reason}")
    assert not any("starting" in line for line in ended.err)
    assert not list(tmp_path.iterdir())


@OUTPUTS
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to this user")
def test_a_path_in_a_closed_folder_is_told_before_measuring(end_of: Callable[..., Ended], tmp_path: Path, option: str):
    tmp_path.chmod(0)
    try:
        assert_refused(end_of(option, str(tmp_path / "run.json")), "Permission denied")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("arguments", EXCLUDED)
def test_options_that_exclude_each_other_are_refused(end_of: Callable[..., Ended], arguments: str):
    assert_refused(end_of(*arguments.split()), EXCLUDED[arguments])


# settings that come out


def test_the_defaults_of_the_command_line_are_those_of_the_settings(settings_of: Callable[..., Settings]):
    assert settings_of() == Settings(threads=len(usable_cores()))


def test_how_long_and_how_precisely_to_measure_is_asked_for(settings_of: Callable[..., Settings]):
    asked = settings_of("--budget", "1e2", "--precision", "0.05", "--workers", "7", "--rounds", "3")
    assert (asked.budget, asked.precision, asked.workers, asked.rounds) == (100.0, 0.05, 7, 3)


def test_a_sweep_has_sizes_of_its_own_and_random_input(settings_of: Callable[..., Settings]):
    swept = PROBLEMS["smith_waterman"].sizes.swept
    plain, given = settings_of("--sweep"), settings_of("--sweep", "6x7, 8X9,6x7", "--batch", "3")
    assert (plain.sweep, plain.input, plain.passes) == (swept, "random", Settings.passes)
    assert (given.sweep, given.input, given.batch) == (((6, 7), (8, 9)), "random", 3)
    assert settings_of("--sweep", "--input", "random").sweep == swept and settings_of().sweep is None


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
