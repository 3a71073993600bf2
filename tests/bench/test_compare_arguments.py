"""Bad arguments and bad input are refused in one line that says what was expected, before anything is measured."""

from collections.abc import Callable
from pathlib import Path

import in_process
import pytest
from in_process import assert_refused, run_here, start_at_once

from shared.bench.cases import Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.problems import PROBLEMS
from shared.sequences import matrix_names
from shared.variants import Abilities, variant_names

settings_of = in_process.settings_of  # a fixture

TAKE_SIZE, TAKE_SIZES = (
    " or ".join(name for name, question in QUESTIONS.items() if option in question.takes)
    for option in ("size", "sizes")
)
GROWTH_SIZE = "a size of smith_waterman is BATCHxROWSxCOLS or ROWSxCOLS, such as 128x256x256"
GAP = "gap must be a finite number of at most 1e+18, got"
REFUSED = {
    # unknown names, with those that are known
    "--device=tpu": "unknown device 'tpu'; known: cpu, cuda",
    "--framework=jax,numpy": "unknown framework 'numpy'; known: jax, torch",
    "--problem=needleman": f"unknown problem 'needleman'; known: {', '.join(PROBLEMS)}",
    "--variant=vmap,fastest": f"unknown variant 'fastest' of smith_waterman; known: "
    f"{', '.join(variant_names('smith_waterman'))}, auto",
    "--pass=hessian": "unknown pass 'hessian' of smith_waterman; known: score, marginals, hvp, path",
    "--matrix=BLOSUM63": f"expected a substitution matrix out of {', '.join(matrix_names())}, got 'BLOSUM63'",
    "--end=both": "unknown end 'both'; known: any, match",
    "--repeats=3": "unrecognized arguments: --repeats=3",
    "--bud=3": "unrecognized arguments: --bud=3",  # no short forms
    "--variant=,": "expected at least one name, got none",
    # numbers
    "--gap=nan": f"{GAP} 'nan'",
    "--gap=1e30": f"{GAP} '1e30'",
    "--temperature=0": "temperature must be a number between 1e-15 and 1e+15, got '0'",
    "--budget -60": "budget must be a positive finite number, got '-60'",
    "--precision 2": "precision must be a number between 0.0001 and 0.5, got '2'",
    "--batch=0": "batch must be a whole number from 1 to 2^32 - 1, got '0'",
    "--seed=4294967296": "seed must be a whole number from 0 to 2^32 - 1, got '4294967296'",
    "--threads=99999": f"--threads must be from 1 to {len(usable_cores())}, this machine's cores, got 99999",
    "--size=0x5": "size must be whole numbers from 1, such as 100x150, got '0x5'",
    "--size=100": "a size of smith_waterman is ROWSxCOLS, such as 100x150, got '100'",
    "--problem stencil --size 2x5": "a stencil has a height of at least 3, got 2",
    "--size=16x5x5": "a size of smith_waterman is ROWSxCOLS, such as 100x150, got '16x5x5'",
    "growth --sizes=32": f"{GROWTH_SIZE}, got '32'",
    "--input random --size 9999999999x9999999999": "",
    # what does not go together
    "growth --sizes 5x5,6x6,7x7": "growth needs at least 4 sizes, got 5x5, 6x6, 7x7",
    "growth --batch 3": "a batch of 3 goes with sizes of ROWSxCOLS, got '1x16x16'",
    "growth --size 5x5": f"--size goes with the question {TAKE_SIZE}, not with growth",
    "speed growth --size 5x5": f"--size goes with the question {TAKE_SIZE}, not with growth",
    "speed growth --sizes 5x5": f"--sizes goes with the question {TAKE_SIZES}, not with speed",
    "growth --input globins": "growth goes with --input random",
    "growth --matrix PAM250": "growth goes with --input random",
    "--size=5x5 --input globins": "--size goes with --input random",
    "--input random --matrix PAM250": "--matrix goes with sequences, not with --input random",
    "--problem stencil --gap -1": "--gap goes with --problem smith_waterman or needleman_wunsch, not with stencil",
    "--gap-open=-2": "--gap-open goes with --problem smith_waterman_affine, not with smith_waterman",
    "--problem free_gap --no-penalize-turns": "--no-penalize-turns goes with --problem smith_waterman_affine, not with",
    "--resume a.json --from b.json": "--from does not go with --resume, which goes on as the record says",
    "--against a.json b.json --list": "--list does not go with --against",
    "--predict 5x5": "--predict goes with growth and --from one record, got growth and 0 records",
    "--predict 5x5 --from a.json b.json": "--predict goes with growth and --from one record, got growth and 2 records",
    "speed --predict 5x5 --from a.json": "--predict goes with growth and --from one record, got speed and 1 records",
    "--predict 5x5 --from a.json --report b.html": "--report does not go with --predict",
    "--from a.json --json b.json": "--json does not go with --from",
    "ladder --resume a.json": "a question does not go with --resume",
    "--resume a.json --dtype float32": "--dtype does not go with --resume",
    "--against old.json": "argument --against: expected 2 arguments",
    # interpreters
    "versions": "versions needs another interpreter: --python jax=PATH or --python torch=PATH",
    "versions --python torch": "expected [LABEL:]jax=PATH or [LABEL:]torch=PATH, got 'torch'",
    "--python a/b:jax=python3": "expected [LABEL:]jax=PATH or [LABEL:]torch=PATH, got 'a/b:jax=python3'",
    "--python jax=python3 --framework torch": "--python jax=PATH goes with --framework jax, got torch",
    "--python jax=missing/python": "--python jax=missing/python: no worker can start there: [Errno 2] No such",
    "versions --python torch=true": "--python torch=true: no worker can start there: it printed nothing",
    # files
    "--json .": "cannot write . (--json): it is a directory",
    "--json=": "argument --json: expected the name of a file, got ''",
    "--json mine.fasta": "cannot write mine.fasta (--json): it exists; --force overwrites it",
    "--markdown mine.fasta": "cannot write mine.fasta (--markdown): it exists; --force overwrites it",
    "--json mine.fasta --input mine.fasta --force": "(--json): it is the file which this command reads",
    "--from mine.fasta --report ./mine.fasta --force": "(--report): it is the file which this command reads",
    "--json new --report ./new": "cannot write new (--report): it is the file of --json",
    "--resume mine.fasta --json mine.fasta --force": "(--json): it is the file which this command reads",
    "--report missing/page.html": "cannot write missing/page.html (--report): No such file or directory",
    "--input none.fasta": "'none.fasta': expected a readable FASTA file",
    "--input mine.fasta": "'mine.fasta': record 2 'two': expected letters of BLOSUM62 (",
}


@pytest.mark.parametrize("arguments", REFUSED)
def test_bad_arguments_and_bad_input_are_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: str
):
    (tmp_path / "mine.fasta").write_text(">one\nACDE\n>two\nACJ\n")
    monkeypatch.chdir(tmp_path)
    start_at_once(monkeypatch)
    assert_refused(run_here(*arguments.split()), REFUSED[arguments])
    assert [path.name for path in tmp_path.iterdir()] == ["mine.fasta"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            ">one\nA-\n>two\n\n>three\nACJ\n",
            ["letters A-Z or *, got '-' at position 2", "at least one letter, got none", "got 'J' at position 3"],
        ),
        (">one\nJA\n>two\nACJ*\n", ["(ARNDCQEGHILKMFPSTWYVBZX*), got 'J' at position 1", "'J' at position 3"]),
    ],
)
def test_every_faulty_record_of_a_file_is_told_before_measuring(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, told: list[str]
):
    (tmp_path / "mine.fasta").write_text(content)
    monkeypatch.chdir(tmp_path)
    start_at_once(monkeypatch)
    ended = run_here("--input", "mine.fasta")
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.err) == len(told)
    for number, line, name, end in zip((1, 2, 3), ended.err, ("one", "two", "three"), told, strict=False):
        assert line.removeprefix("compare.py: error: ").startswith(f"'mine.fasta': record {number} '{name}': expected")
        assert line.endswith(end)


def test_an_unknown_question_ends_the_process_with_2_and_the_questions_on_standard_error():
    ended = run_here("fastest")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err[0] == "compare.py: error: argument QUESTION: unknown question 'fastest'; known:"
    assert [line.split(":")[0].strip() for line in ended.err[1:]] == [*QUESTIONS, "all"]
    assert list(QUESTIONS)[:3] == ["speed", "ladder", "growth"]


def test_what_no_framework_can_run_is_told_before_measuring(monkeypatch: pytest.MonkeyPatch):
    start_at_once(monkeypatch, Abilities("diagonal_loop", first_order={"vmap": "wrong second derivatives"}))
    ended = run_here("--framework", "torch", "--pass", "hvp", "--variant", "vmap")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err[-1] == "compare.py: error: nothing to measure: PyTorch vmap hvp: wrong second derivatives"


def test_the_list_says_once_why_a_framework_lacks_something(monkeypatch: pytest.MonkeyPatch):
    first_order: dict[str, str] = dict.fromkeys(("scan_cond", "vmap"), "wrong second derivatives")
    start_at_once(monkeypatch, Abilities("fused", absent={"cuda_graph": "no GPU"}, first_order=first_order))
    alignments = "smith_waterman, smith_waterman_affine, free_gap, needleman_wunsch"
    assert run_here("--list", "--framework", "jax").out.splitlines()[-3:] == [
        "JAX 1.2.3: auto picks fused",
        f"  {alignments}: no cuda_graph: no GPU",
        f"  {alignments}: no hvp of scan_cond, vmap: wrong second derivatives",
    ]


# settings that come out


def test_the_defaults_of_the_command_line_are_those_of_the_settings(settings_of: Callable[..., Settings]):
    assert settings_of() == settings_of("speed") == Settings(threads=len(usable_cores()))


def test_the_other_questions_have_defaults_of_their_own(settings_of: Callable[..., Settings]):
    ladder, growth = settings_of("ladder"), settings_of("growth")
    assert (ladder.input, ladder.passes) == ("random", ("score",))
    assert (growth.input, growth.passes, growth.sizes) == ("random", ("score", "marginals"), None)
    asked = settings_of("ladder", "--input", "globins", "--pass", "marginals")
    assert (asked.input, asked.passes) == ("globins", ("marginals",))
    assert settings_of("growth", "--sizes", "6x7, 8X9,6x7").sizes == ((6, 7), (8, 9))


def test_the_input_follows_from_the_options_that_need_one(settings_of: Callable[..., Settings]):
    assert settings_of("--size", "5x6").input == settings_of("--device", "cuda").input == "random"
    asked = settings_of("ladder", "--matrix", "PAM250")
    assert (asked.input, asked.matrix) == ("globins", "PAM250")


def test_every_problem_takes_its_own_arguments(settings_of: Callable[..., Settings]):
    values = {"gap": -2.5, "gap_open": -9.0, "gap_extend": -0.5, "temperature": 2.0, "end": "match"}
    values |= {"epochs": 7, "learning_rate": 0.5}
    values |= {"model": "encoder", "families": "/proteins", "seeds": 2, "checkpoints": "/kept"}
    for name, problem in PROBLEMS.items():
        flags = {key: not one.default for key, one in problem.arguments.items() if one.parse is None}
        given = {key: flags.get(key, values.get(key)) for key in problem.arguments}
        words = [
            word
            for key, value in given.items()
            for word in ([f"--{'' if value else 'no-'}{key}"] if key in flags else [f"--{key}", str(value)])
        ]
        question = problem.question or "speed"
        settings = settings_of(question, "--problem", name, *(word.replace("_", "-") for word in words))
        assert settings.arguments == given
        assert settings_of(question, "--problem", name).arguments == {}


@pytest.mark.parametrize("gap", ["-4", "-.5", "-2.5e-1"])
def test_a_gap_may_stand_after_a_blank(settings_of: Callable[..., Settings], gap: str):
    assert settings_of("--gap", gap).arguments == {"gap": float(gap)}


def test_a_home_folder_is_meant_after_an_equals_sign_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/nowhere")
    assert "cannot write /nowhere/run.json (--json)" in run_here("--json=~/run.json").err[-1]
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # no such user
    assert_refused(run_here("--json=~"), "argument --json: expected the name of a file, got '~'")


def test_names_may_be_repeated_and_spaced(settings_of: Callable[..., Settings]):
    settings = settings_of("--framework", "torch, jax,torch", "--variant", "vmap,,vmap")
    assert (settings.frameworks, settings.variants) == (("torch", "jax"), ("vmap",))
