"""The command line of compare.py: its options, and the settings that they make."""

import argparse
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from shared.alignments import ALIGNMENTS
from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.questions.processes import counts
from shared.bench.questions.question import Question
from shared.bench.run.interpreters import parse_python
from shared.bench.run.schedule import LEAST_REPEATS
from shared.problems import ANY_FILE, PROBLEMS, problem_name, problem_of
from shared.problems.argument_types import file, join_numbers, memory, names, one_of, real, size, sizes, some_of, whole
from shared.problems.problem import Argument, Problem, UnusableInput

EPILOG = """examples:
  python compare.py
  python compare.py growth --sizes 1x32x32,16x32x32,1x256x256,16x256x128,64x64x64 --report growth.html
  python compare.py --size 100x150 --batch 100 --variant vmap --json result.json
  python compare.py --resume result.json
  python compare.py all --json records --report everything.html
  python compare.py --from cpu.json gpu.json --report both.html
  python compare.py --against old.json new.json

exit codes: 0 success; 1 a result was wrong or a case failed (it gets no time), or with --against calls became slower,
or results wrong or missing; 2 bad arguments or bad input, or nothing to compare; 3 a framework cannot use the
device, or none is installed; 130 interrupted (what is finished is printed)
"""

# in place of questions: every one that can be asked with the given options
ALL = "all"
QUICK_SECONDS = 55.0  # and a few to start and to end
_REPORTS = ("report", "markdown", "force")
# what is done instead of a new run, and the options that go with it
_MODES = {
    "resume": ("budget", "json", *_REPORTS),
    "predict": ("questions", "recorded"),
    "recorded": _REPORTS,
    "against": (),
    "list": (),
}


@dataclass(frozen=True)
class Request:
    """The options of the command line that are not settings of a run."""

    list: bool = False
    json: Path | None = None
    record_files: Sequence[Path] = ()  # one for each run, if they are to be kept
    report: Path | None = None
    markdown: Path | None = None
    force: bool = False
    resume: Path | None = None
    budget: float | None = None  # if given: of a resumed run or, with `all`, of all questions together
    recorded: Sequence[Path] = ()
    predict: tuple[int, ...] | None = None
    against: Sequence[Path] = ()
    all: bool = False  # every question that can be asked
    left_out: Sequence[str] = ()  # the questions that are not asked, and why

    @property
    def outputs(self) -> Sequence[tuple[str, Path]]:
        """The files to be written, each with its option; a record that is resumed is not one."""
        records = [("--json", path) for path in self.record_files if self.json]
        return [*records, *((f"--{name}", path) for name in _REPORTS[:2] if (path := getattr(self, name)))]


def parse(arguments: Sequence[str]) -> tuple[Request, list[Settings]]:
    """The request, and settings for each question; ends the process with an error if the command line is wrong."""
    parser = _parser()
    options = vars(parser.parse_args(join_numbers(arguments)))
    option_of = {action.dest: (action.option_strings or ["a question"])[0] for action in parser._actions}
    request = Request(**_fields_of(Request, options))
    mode = next((name for name in _MODES if name in options), None)
    questions = dict.fromkeys(options.get("questions", [Settings.question]))
    try:
        if mode is not None:
            _check_mode(options, option_of, mode)
            record_files = filter(None, [request.json or request.resume])
            return replace(request, record_files=[*record_files]), [Settings(**_fields_of(Settings, options))]
        if ALL in questions:
            settings, left_out = _of_all(options, option_of)
            request = replace(request, report=request.report or Path("report.html"), all=True, left_out=left_out)
        else:
            problems = {name: _problem(options, option_of, QUESTIONS[name]) for name in questions}
            settings = [_settings(options, QUESTIONS[name], problem) for name, problem in problems.items()]
        if request.json:
            is_folder = len(settings) > 1 or ALL in questions
            files = [request.json / f"{one.question}.json" if is_folder else request.json for one in settings]
            request = replace(request, record_files=files)
        return request, settings
    except (ArgumentTypeError, UnusableInput) as error:
        parser.error(str(error))


def _fields_of(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in fields(kind) if field.name in given}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """The error alone; --help shows the usage."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    """The parser; its result has only the options given, mostly by names of fields of `Request` and `Settings`."""
    parser = _Parser(
        prog="compare.py",
        description="Time the same kernels in JAX and in PyTorch. A result is compared with a NumPy reference before "
        "its time is shown;\nof a large batch of alignments only some pairs are: the output says how many.",
        epilog=EPILOG,
        usage="compare.py [QUESTION ...] [OPTION ...]",
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32, width=120),
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    values = f"{', '.join(QUESTIONS)}, or {ALL} (default {Settings.question})"
    add("questions", nargs="*", type=_question, metavar="QUESTION", help=values)

    add = parser.add_argument_group("what is measured").add_argument
    add("--device", type=one_of("device", ("cpu", "cuda")), help="cpu or cuda (default cpu)")
    frameworks = some_of("framework", FRAMEWORKS)
    add("--framework", type=frameworks, dest="frameworks", metavar="NAME[,NAME]", help="jax or torch (default both)")
    other = "another interpreter for the workers of jax or torch; the question versions takes several"
    add("--python", type=parse_python, action="append", dest="pythons", metavar="NAME=PATH", help=other)
    add("--problem", type=problem_name, help=f"see --list, or {ANY_FILE} (default {Settings.problem})")
    add("--variant", type=names, dest="variants", metavar="NAME[,NAME]", help="see --list, or auto (default a few)")
    add("--pass", type=names, dest="passes", metavar="NAME[,NAME]", help="see --list (default by question)")
    add("--input", metavar="globins|random|FILE", help="bundled proteins, random matrices, or a FASTA file")
    add("--matrix", metavar="NAME", help=f"substitution matrix of proteins (default {Settings.matrix})")
    add("--batch", type=whole("batch", 1), metavar="N", help="number of pairs (default all of the proteins)")
    add("--size", type=size, help="of the random input, such as 100x150; see --list")
    add("--sizes", type=sizes, metavar="SIZE[,SIZE]", help="at which growth measures")
    add("--memory", type=memory, metavar="SIZE", help="in which the largest batch must fit, such as 2GB or 512MiB")
    add("--dtype", type=one_of("dtype", ("float32", "float64")), help="float32 or float64 (default by question)")
    add("--seed", type=whole("seed", 0), metavar="N", help="for inputs and the order of cases (default 0)")

    add = parser.add_argument_group("parameters of problems; see --list").add_argument
    every = {name: argument for problem in PROBLEMS.values() for name, argument in problem.arguments.items()}
    for name, argument in every.items():  # one that several problems have differs only in its default
        if argument.parse is None:
            action = "store_false" if argument.default else "store_true"
            add(flag(name, argument), dest=name, action=action, help=argument.help)
        else:
            values = dict.fromkeys(str(p.arguments[name].default) for p in PROBLEMS.values() if name in p.arguments)
            text = f"{argument.help} (default {' or '.join(values)})"
            add(flag(name, argument), type=argument.parse, metavar=argument.metavar, help=text)

    add = parser.add_argument_group("how it is measured").add_argument
    seconds, limit = (real(name, positive=True) for name in ("budget", "compile-limit"))
    budgets = " or ".join(dict.fromkeys(f"{question.default_budget:g}" for question in QUESTIONS.values()))
    add("--budget", type=seconds, metavar="SECONDS", help=f"time for the run (default {budgets})")
    quickly = "an answer in a minute, on one pass, without what torch.compile compiles: compiled JAX, eager PyTorch"
    add("--quick", action="store_true", help=quickly)
    precise = f"stop when the interval of every verdict is within ± this (default {Settings.precision:g})"
    add("--precision", type=real("precision", 1e-4, 0.5), metavar="FRACTION", help=precise)
    workers = f"fresh processes for each case (default {LEAST_REPEATS} or more, if there is time; in some questions 3)"
    add("--workers", type=whole("workers", 1), metavar="N", help=workers)
    rounds = f"in each process, as far as the budget allows (default {Settings.rounds})"
    add("--rounds", type=whole("rounds", 1), metavar="N", help=rounds)
    add("--threads", type=whole("threads", 1), metavar="N", help="cores for each framework (default all)")
    add("--processes", type=counts, metavar="N[,N]", help="numbers to compare, such as 1,2 (default up to the cores)")
    add("--compile-limit", type=limit, metavar="SECONDS", help="longest first call (default 120)")

    add = parser.add_argument_group("files and recorded runs").add_argument
    add("--json", type=file, metavar="FILE", help="record everything; for several questions a folder")
    add("--report", type=file, metavar="FILE", help="write a page with plots and every number (all: report.html)")
    add("--markdown", type=file, metavar="FILE", help="write the same as Markdown, without plots")
    add("--force", action="store_true", help="overwrite these files where they exist")
    add("--resume", type=file, metavar="FILE", help="continue a recorded run for --budget seconds")
    add("--from", type=file, nargs="+", dest="recorded", metavar="FILE", help="print and report recorded runs")
    add("--predict", type=size, metavar="SIZE", help="with --from, a record of growth: what a call takes at a size")
    add("--against", type=file, nargs=2, metavar=("OLD", "NEW"), help="what changed; exit code 1 if calls are slower")
    add("--list", action="store_true", help="list questions, problems, passes and variants")
    return parser


def _question(text: str) -> str:
    if text not in (*QUESTIONS, ALL):
        list_of_questions = "".join(f"\n  {question.name}: {question.asks}" for question in QUESTIONS.values())
        raise ArgumentTypeError(f"unknown question {text!r}; known:{list_of_questions}\n  {ALL}: all of these that fit")
    return text


def flag(name: str, argument: Argument) -> str:
    """The option of a problem's argument; one that is true by default can be switched off."""
    return ("--no-" if argument.parse is None and argument.default else "--") + name.replace("_", "-")


def _check_mode(given: Mapping[str, Any], option_of: Mapping[str, str], mode: str) -> None:
    if conflicting := [name for name in given if name not in (mode, *_MODES[mode])]:
        why = ", which uses the options of the record" if mode == "resume" else ""
        raise ArgumentTypeError(f"{option_of[conflicting[0]]} does not go with {option_of[mode]}{why}")
    questions, records = given.get("questions", ["growth"]), given.get("recorded", ())
    if mode == "predict" and (questions != ["growth"] or len(records) != 1):
        got = f"{', '.join(questions)} and {len(records)} records"
        raise ArgumentTypeError(f"--predict goes with growth and --from one record, got {got}")


def _problem(given: Mapping[str, Any], option_of: Mapping[str, str], question: Question) -> Problem:
    """The problem of a question. Raises ArgumentTypeError for an option of other questions or problems."""
    problem = problem_of(given.get("problem", question.default_problem))
    if problem.question not in (None, question.name):
        raise ArgumentTypeError(f"{problem.name} goes with the question {problem.question}, not with {question.name}")
    of_questions = {question_.name: question_.takes for question_ in QUESTIONS.values()}
    of_problems = {problem_.name: (*problem_.arguments, *problem_.takes) for problem_ in PROBLEMS.values()}
    for what, name, takes in (("the question", question.name, of_questions), ("--problem", problem.name, of_problems)):
        for option in given:
            owners = [owner for owner, options in takes.items() if option in options]
            if owners and name not in owners:
                raise ArgumentTypeError(f"{option_of[option]} goes with {what} {' or '.join(owners)}, not with {name}")
    return problem


def _of_all(given: Mapping[str, Any], option_of: Mapping[str, str]) -> tuple[list[Settings], list[str]]:
    """The settings of every question that can be asked with these options, and why the others cannot."""
    settings_of_all: list[Settings] = []
    errors: dict[str, ArgumentTypeError | UnusableInput] = {}
    for question in QUESTIONS.values():
        not_taken = {option for question_ in QUESTIONS.values() for option in question_.takes} - {*question.takes}
        taken = {name: value for name, value in given.items() if name not in (*not_taken, "budget")}
        try:
            settings = _settings(taken, question, _problem(taken, option_of, question))
            question.starts(settings)  # refuses unusable interpreters, and `versions` without any
            settings_of_all.append(settings)
        except (ArgumentTypeError, UnusableInput) as error:
            errors[question.name] = error
    if not settings_of_all:
        raise next(iter(errors.values()))
    return settings_of_all, [f"{name}: {error}" for name, error in errors.items()]


def _settings(given: Mapping[str, Any], question: Question, problem: Problem) -> Settings:
    """Settings from the given options, and defaults by question, other options and machine."""
    cores = len(usable_cores())
    takes_more = question.takes_every_alignment and "problem" not in given
    defaults = {
        "problem": question.default_problem,
        "passes": question.default_passes(problem)[-1 if "quick" in given else 0 :],
        "more_problems": tuple(name for name in ALIGNMENTS if takes_more and name != problem.name),
        "input": _default_input(given, question, problem),
        "dtype": question.default_dtype,
        "threads": cores,
        "budget": QUICK_SECONDS if "quick" in given else question.default_budget,
        "arguments": {name: given[name] for name in problem.arguments if name in given},
    }
    settings = Settings(question.name, **defaults | _fields_of(Settings, given))
    question.check_device(settings.device)
    variants = (*problem.variant_names, *(["auto"] if problem.has_auto else []))
    passes = (*problem.passes, *question.own_passes)
    for kind, names_given, names_known in (("variant", settings.variants, variants), ("pass", settings.passes, passes)):
        if unknown := [name for name in names_given or () if name not in names_known]:
            raise ArgumentTypeError(f"unknown {kind} {unknown[0]!r} of {problem.name}; known: {', '.join(names_known)}")
    for numbers in filter(None, settings.sizes or [settings.size]):
        problem.check_size(numbers, in_growth=settings.sizes is not None)
    if settings.input == "random" and "matrix" in given:
        raise ArgumentTypeError("--matrix goes with sequences, not with --input random")
    if settings.input != "random" and (settings.size or "sizes" in question.takes):
        raise ArgumentTypeError(f"{'--size' if settings.size else question.name} goes with --input random")
    if settings.threads > cores:
        raise ArgumentTypeError(f"--threads must be from 1 to {cores}, this machine's cores, got {settings.threads}")
    return settings


def _default_input(given: Mapping[str, Any], question: Question, problem: Problem) -> str:
    is_random = "size" in given or "input" not in problem.takes or given.get("device", "cpu") != "cpu"
    return "globins" if "matrix" in given else "random" if is_random else question.default_input
