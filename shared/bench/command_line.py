"""The command line of compare.py: its options, and the settings that they make."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions import QUESTIONS
from shared.bench.questions.question import Question
from shared.bench.run.schedule import LEAST_WORKERS
from shared.problems import PROBLEMS
from shared.problems.argument_types import join_numbers, names, one_of, real, size, size_text, sizes, some_of, whole
from shared.problems.problem import Argument
from shared.sequences import SequenceError, substitution_matrix
from shared.variants import variant_names

EPILOG = """examples:
  python compare.py
      speed on the CPU: all pairs of the bundled globins, score and marginals, both frameworks
  python compare.py --device cuda
      the same on a GPU: 64 small random pairs, then large ones, as many as fit up to 4096
  python compare.py growth --sizes 32x32,64x64,128x128 --report growth.html
      how run time, compile time and memory grow, as a page with plots
  python compare.py ladder --problem stencil
      every variant of another problem, with and without the compiler
  python compare.py --input random --batch 100 --variant vmap --json result.json
      100 random pairs of 100 x 150, one variant, every sample kept in a file
  python compare.py --resume result.json
      continue a run that was interrupted
  python compare.py --from cpu.json gpu.json --report both.html
      a page from recorded runs; nothing is measured
  python compare.py --against old.json new.json
      what changed between two recorded runs

exit codes: 0 success; 1 a result was wrong or a case failed (it gets no time); 2 bad arguments or bad input;
3 a framework cannot use the device, or none is installed; 130 interrupted (what is finished is printed)
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line; --help shows the usage."""
        self.exit(2, f"{self.prog}: error: {message}\n")


class Request:
    """What the command line asks for beside the settings of a run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.list: bool = options.list
        self.json: Path | None = options.json
        self.report: Path | None = options.report
        self.markdown: Path | None = options.markdown
        self.picture: Path | None = options.picture
        self.resume: Path | None = options.resume
        self.recorded: tuple[Path, ...] = tuple(options.recorded or ())
        self.against: tuple[Path, ...] = tuple(options.against or ())
        paths = {"--json": self.json, "--report": self.report, "--markdown": self.markdown, "--picture": self.picture}
        # every file that will be written, by option
        self.written = {option: path for option, path in paths.items() if path is not None}
        if self.resume is not None and self.json is None:
            self.written["--resume"] = self.resume


class _Mode(NamedTuple):
    """Something else than a new run: the options that go with it, and why others do not."""

    takes: tuple[str, ...]
    why: str = ""


_MODES = {
    "resume": _Mode(("budget", "json", "report", "markdown", "picture"), ": the record has the settings"),
    "recorded": _Mode(("report", "markdown", "picture"), ": nothing is measured"),
    "against": _Mode((), ": nothing is measured"),
    "list": _Mode(("device", "framework", "threads")),
}


def parse(arguments: Sequence[str]) -> tuple[Request, list[Settings]]:
    """Read the command line; ends the process with one line if it is wrong. Settings are those of each question.

    Of the settings, a resumed run takes only the budget.
    """
    parser = _parser()
    options = parser.parse_args(join_numbers(arguments))
    request = Request(options)
    spelled = {action.dest: (action.option_strings or ["a question"])[0] for action in parser._actions}
    given = [name for name, value in vars(options).items() if value != parser.get_default(name)]
    modes = [name for name in _MODES if name in given]
    if len(modes) > 1:
        parser.error(f"{spelled[modes[0]]} does not go with {spelled[modes[1]]}")
    for mode in modes:
        for name in given:
            if name != mode and name not in _MODES[mode].takes:
                parser.error(f"{spelled[name]} does not go with {spelled[mode]}{_MODES[mode].why}")
    read = {path.resolve() for path in (*request.recorded, *([request.resume] if request.resume else []))}
    for option, path in request.written.items():
        if path.resolve() in read and option not in ("--json", "--resume"):
            parser.error(f"{option} {path} would overwrite the record that it is made from")
    if len({path.resolve() for path in request.written.values()}) < len(request.written):
        parser.error(f"{' and '.join(request.written)} must be different files")
    questions = list(dict.fromkeys(options.question)) or [Settings.question]
    if request.json is not None and len(questions) > 1:
        parser.error(f"--json takes one question, got {', '.join(questions)}")
    return request, [_settings(parser, options, name) for name in questions]


def _parser() -> argparse.ArgumentParser:
    defaults = Settings()
    parser = _Parser(
        prog="compare.py",
        description="Time the same kernels in JAX and in PyTorch, each proved correct before its time is shown.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    known = "; ".join(f"{question.name}: {question.asks}" for question in QUESTIONS.values())
    add("question", nargs="*", default=[], metavar="QUESTION", help=f"{known} (default {defaults.question})")
    add("--device", type=one_of("device", ("cpu", "cuda")), default=defaults.device, help="cpu (default) or cuda")
    add("--framework", type=some_of("framework", FRAMEWORKS), default=defaults.frameworks, metavar="NAME[,NAME]",
        help="which frameworks: jax,torch (default both)")  # fmt: skip
    add("--problem", type=one_of("problem", PROBLEMS), default=defaults.problem, help="what is computed")
    add("--variant", type=names, metavar="NAME[,NAME]", help="which variants, or auto; see --list (default: a few)")
    add("--pass", type=names, dest="passes", metavar="NAME[,NAME]",
        help="what is computed, see --list (default: alignments score,marginals; ladder the first)")  # fmt: skip
    add("--input", metavar="globins|random|FILE",
        help="the bundled globins (default), random matrices (ladder, growth, GPU), or a FASTA file")  # fmt: skip
    add("--matrix", metavar="NAME", help="substitution matrix for sequences (default BLOSUM62)")
    add("--batch", type=whole("batch", 1), metavar="N",
        help="pairs (default: all pairs; 100 for random; 16 for growth; on a GPU 64 and up to 4096)")  # fmt: skip
    add("--size", type=size, metavar="SIZE", help=f"of the input: {_sizes_text()}")
    add("--sizes", type=sizes, metavar="SIZE[,SIZE]", help="of growth: each an input of its own")
    add("--dtype", type=one_of("dtype", ("float32", "float64")), default=defaults.dtype, help="float32 or float64")
    add("--budget", type=real("budget", positive=True), default=defaults.budget, metavar="SECONDS",
        help=f"of the run, or of what --resume adds (default {defaults.budget:g}); no first call is cut")  # fmt: skip
    add("--precision", type=real("precision", positive=True), default=defaults.precision, metavar="FRACTION",
        help=f"stop when the interval of every verdict is within ± this (default {defaults.precision:g})")  # fmt: skip
    add("--workers", type=whole("workers", 1), metavar="N",
        help=f"fresh processes that time each case (default from {LEAST_WORKERS} on, until precise)")  # fmt: skip
    add("--rounds", type=whole("rounds", 1), default=defaults.rounds, metavar="N",
        help=f"rounds in each of them (default {defaults.rounds}, fewer where the budget is short)")  # fmt: skip
    for name, argument in _arguments().items():
        _add_argument(parser, name, argument)
    add("--seed", type=whole("seed", 0), default=defaults.seed, metavar="S",
        help="of all random numbers: inputs, pairs that the gate checks, weights of hvp (default 0)")  # fmt: skip
    add("--threads", type=whole("threads", 1), metavar="N", help="cores for each framework (default: all)")
    add("--compile-limit", type=real("compile-limit", positive=True), default=defaults.compile_limit,
        metavar="SECONDS", help="longest first call before a case is given up (default 120)")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write everything, with all samples, after every step")
    add("--report", type=Path, metavar="FILE", help="write an HTML page: the answer, plots and every number")
    add("--markdown", type=Path, metavar="FILE", help="write the same as Markdown, without plots")
    add("--picture", type=Path, metavar="FILE", help="write an alignment before and after learning (SVG)")
    add("--resume", type=Path, metavar="FILE", help="continue the run of a JSON file, and keep it there")
    add("--from", type=Path, nargs="+", dest="recorded", metavar="FILE",
        help="print and report recorded runs instead of measuring")  # fmt: skip
    add("--against", type=Path, nargs=2, metavar=("OLD", "NEW"), help="what changed between two recorded runs")
    add("--list", action="store_true", help="list questions, problems and variants, and what each framework has")
    return parser


def _arguments() -> dict[str, Argument]:
    """Those of all problems, by name; one that several have differs only in its default."""
    return {name: argument for problem in PROBLEMS.values() for name, argument in problem.arguments.items()}


def _add_argument(parser: argparse.ArgumentParser, name: str, argument: Argument) -> None:
    owners = [problem for problem in PROBLEMS.values() if name in problem.arguments]
    if argument.parse is None:
        parser.add_argument(flag(name, argument), dest=name, action="store_false", default=None, help=argument.help)
        return
    defaults: dict[str, list[str]] = {}
    for problem in owners:
        value = problem.arguments[name].default
        defaults.setdefault(f"{value:g}" if isinstance(value, float) else str(value), []).append(problem.name)
    text = "; ".join(value if len(defaults) == 1 else f"{value} for {', '.join(of)}" for value, of in defaults.items())
    parser.add_argument(
        flag(name, argument), type=argument.parse, metavar=argument.metavar, help=f"{argument.help} (default {text})"
    )


def _sizes_text() -> str:
    forms: dict[str, list[str]] = {}
    for problem in PROBLEMS.values():
        forms.setdefault(f"{problem.sizes.form}, such as {problem.sizes.example}", []).append(problem.name)
    return "; ".join(f"{form}, for {', '.join(of)}" for form, of in forms.items())


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace, name: str) -> Settings:
    """Check what concerns several options, and fill in defaults that depend on them or on the machine."""
    given = vars(options)
    if name not in QUESTIONS:
        listed = "".join(f"\n  {question.name}: {question.asks}" for question in QUESTIONS.values())
        parser.error(f"unknown question {name!r}; known:{listed}")
    question, problem = QUESTIONS[name], PROBLEMS[options.problem]
    known = (*variant_names(problem.name), *(["auto"] if problem.has_auto else []))
    for variant in options.variant or ():
        if variant not in known:
            parser.error(f"unknown variant {variant!r} of {problem.name}; known: {', '.join(known)}")
    for pass_name in options.passes or ():
        if pass_name not in problem.passes:
            parser.error(f"unknown pass {pass_name!r} of {problem.name}; known: {', '.join(problem.passes)}")
    if options.picture and not problem.has_picture and not (options.resume or options.recorded):
        owners = " or ".join(problem.name for problem in PROBLEMS.values() if problem.has_picture)
        parser.error(f"--picture goes with --problem {owners}, not with {problem.name}")
    _check_sizes(parser, options)
    input_name, matrix = _sequences(parser, options, question)
    cores = len(usable_cores())
    if options.threads and options.threads > cores:
        parser.error(f"--threads must be between 1 and the {cores} cores of this machine, got {options.threads}")
    return Settings(
        question=name,
        frameworks=options.framework,
        variants=options.variant,
        passes=options.passes or question.default_passes(problem),
        arguments=_problem_arguments(parser, options),
        input=input_name,
        matrix=matrix,
        threads=options.threads or cores,
        size=None if question.takes_sizes else options.size,
        sizes=options.sizes if question.takes_sizes else None,
        **{name: given[name] for name in (
            "device", "problem", "batch", "dtype", "seed", "compile_limit", "budget", "precision",
            "workers", "rounds",
        )},
    )  # fmt: skip


def _check_sizes(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    takes_sizes = [QUESTIONS[name].takes_sizes for name in options.question or [Settings.question]]
    if options.sizes and not any(takes_sizes):
        owners = " or ".join(question.name for question in QUESTIONS.values() if question.takes_sizes)
        parser.error(f"--sizes goes with the question {owners}")
    if options.size and all(takes_sizes):
        parser.error(f"{options.question[0]} takes --sizes, not --size")
    problem = PROBLEMS[options.problem]
    for numbers in (*(options.sizes or ()), *([options.size] if options.size else ())):
        if len(numbers) != problem.sizes.numbers:
            wanted = f"{problem.sizes.form}, such as {problem.sizes.example}"
            parser.error(f"a size of {problem.name} is {wanted}, got {size_text(numbers)!r}")


def _sequences(parser: argparse.ArgumentParser, options: argparse.Namespace, question: Question) -> tuple[str, str]:
    """The input and the matrix, where there are any."""
    problem = PROBLEMS[options.problem]
    if not problem.takes_sequences:
        for name in ("input", "matrix", "batch"):
            if getattr(options, name) is not None:
                owners = " or ".join(problem.name for problem in PROBLEMS.values() if problem.takes_sequences)
                parser.error(f"--{name} goes with --problem {owners}, not with {problem.name}")
        return "random", Settings.matrix
    input_name = options.input or ("random" if options.device != "cpu" else question.default_input)
    if input_name != "random" and (question.takes_sizes or options.size):
        parser.error(f"{question.name if question.takes_sizes else '--size'} goes with --input random")
    if options.matrix and input_name == "random":
        hint = "; the default input here is random matrices: add --input globins" if options.input is None else ""
        parser.error(f"--matrix goes with sequences, not with random matrices{hint}")
    matrix = options.matrix or Settings.matrix
    if options.matrix:  # the default matrix needs no check
        try:
            substitution_matrix(matrix)
        except SequenceError as error:
            parser.error(str(error))
    return input_name, matrix


def _problem_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The problem's parameters and options that were given."""
    given = {name: value for name in _arguments() if (value := getattr(options, name)) is not None}
    for name in given:
        if name not in PROBLEMS[options.problem].arguments:
            owners = [problem for problem in PROBLEMS.values() if name in problem.arguments]
            option = flag(name, owners[0].arguments[name])
            known_to = " or ".join(problem.name for problem in owners)
            parser.error(f"{option} goes with --problem {known_to}, not with {options.problem}")
    return given


def flag(name: str, argument: Argument) -> str:
    """The option of a problem's argument; one that is true by default can be switched off."""
    return ("--no-" if argument.is_switch else "--") + name.replace("_", "-")
