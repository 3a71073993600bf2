"""Time the same kernels in JAX and in PyTorch, each proved right first. Parse, run, print; nothing is measured here."""

import argparse
import contextlib
import itertools
import math
import os
import shlex
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from shared.bench.plan import FRAMEWORKS, PASSES, Settings
from shared.bench.record import Record
from shared.bench.run import CannotMeasure, NothingToMeasure, run, team_of
from shared.bench.table import report
from shared.checks import ENDS
from shared.numerics import LARGEST_GAP, TEMPERATURES
from shared.problems import PROBLEMS
from shared.sequences import SequenceError, matrix_names
from shared.variants import VARIANTS, Abilities

EPILOG = """examples:
  python compare.py
      all pairs of the bundled globins on the CPU: score and marginals, both frameworks
  python compare.py --input random --batch 100 --variant vmap --json result.json
      100 random pairs of 100 x 150, one variant, every sample kept in a file
  python compare.py --problem smith_waterman_affine --gap-open -11 --input my.fasta --framework torch --device cuda
      your own proteins, affine gaps, PyTorch alone, on a GPU

exit codes: 0 all is well; 1 a result was wrong or a case failed (it gets no time); 2 bad arguments or bad input;
3 a framework cannot use the device, or none is installed; 130 interrupted (what is finished is printed)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = _parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(_join_numbers(given))
    settings = _settings(parser, options)
    if options.list:
        try:
            return _list(settings)
        except KeyboardInterrupt:
            return 130
    record = Record(command=shlex.join(["python", "compare.py", *given]))
    code = 0
    try:
        run(settings, record, _progress)
    except CannotMeasure as error:
        print(error, file=sys.stderr)
        return 3
    except (SequenceError, NothingToMeasure, MemoryError) as error:
        print(f"compare.py: error: {error or 'the input does not fit into memory'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        code = 130
        print("interrupted; this is what was finished:", file=sys.stderr)
    print(report(record))
    if settings.json is not None:
        try:
            record.write(Path(settings.json))
        except OSError as error:
            print(f"compare.py: error: cannot write {settings.json}: {error.strerror}", file=sys.stderr)
            return code or 2
    return code or (1 if record.went_wrong else 0)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _list(settings: Settings) -> int:
    """Problems, variants, and what each framework has of them."""
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        try:
            with team_of(settings, Path(folder), _progress) as (team, missing):
                for line in _listed({name: worker.abilities for name, worker in team.items()}):
                    print(line)
                for name, worker in team.items():
                    print(f"{FRAMEWORKS[name]} {worker.environment[name]}: auto picks {worker.abilities.auto}")
                for reason in missing.values():
                    print(reason)
        except CannotMeasure as error:
            print(error, file=sys.stderr)
            return 3
    return 0


def _listed(abilities: dict[str, Abilities]) -> Iterator[str]:
    """Each problem in a line; then each ladder once, under the problems that it belongs to."""
    for problem in PROBLEMS.values():
        flags = " ".join(itertools.starmap(_flag, problem.arguments.items()))
        yield f"{problem.name}: {problem.text}; passes: {', '.join(problem.passes)}; takes {flags}"
    for ladder in dict.fromkeys(VARIANTS.values()):
        yield f"variants of {', '.join(name for name in PROBLEMS if VARIANTS[name] is ladder)}:"
        for variant in ladder:
            yield f"  {variant.name:<14} {variant.changes}"
            for name, able in abilities.items():
                if variant.name in able.absent:
                    yield f"  {'':<14} absent in {FRAMEWORKS[name]}: {able.absent[variant.name]}"
                elif variant.name in able.first_order:
                    yield f"  {'':<14} no hvp in {FRAMEWORKS[name]}: {able.first_order[variant.name]}"


def _join_numbers(arguments: Sequence[str]) -> list[str]:
    """`--gap -1e1` as `--gap=-1e1`: argparse takes a negative number with an exponent for an option."""
    joined: list[str] = []
    for argument in arguments:
        previous = joined[-1] if joined else ""
        if previous.startswith("--") and "=" not in previous and argument.startswith("-") and _is_number(argument):
            joined[-1] = f"{previous}={argument}"
        else:
            joined.append(argument)
    return joined


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line; --help shows the usage."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    defaults = Settings()
    parser = _Parser(
        prog="compare.py",
        description="Time the same kernels in JAX and in PyTorch, each proved right before its time is shown.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--device", type=_one_of("device", ("cpu", "cuda")), default=defaults.device, help="cpu (default) or cuda")
    add("--framework", type=_some_of("framework", FRAMEWORKS), default=defaults.frameworks, metavar="NAME[,NAME]",
        help="which frameworks: jax,torch (default both)")  # fmt: skip
    add("--problem", type=_one_of("problem", PROBLEMS), default=defaults.problem, help="what is computed")
    add("--variant", type=_names, metavar="NAME[,NAME]", help="which variants, or auto; see --list (default: a few)")
    add("--pass", type=_some_of("pass", PASSES), dest="passes", metavar="NAME[,NAME]",
        help=f"what is asked of them: {','.join(PASSES)} (default score,marginals; score for --ladder)")  # fmt: skip
    add("--input", metavar="globins|random|FILE",
        help="the bundled globins (default), random matrices (default for --ladder), or a FASTA file")  # fmt: skip
    add("--matrix", metavar="NAME",
        help="substitution matrix for sequences (default BLOSUM62)")  # fmt: skip
    add("--batch", type=_whole("batch", 1), metavar="N", help="pairs (default: all pairs; 100 for random)")
    add("--size", type=_size, metavar="RxC", help="rows x cols of the random matrices (default 100x150)")
    add("--dtype", type=_one_of("dtype", ("float32", "float64")), default=defaults.dtype, help="float32 or float64")
    add("--repeats", type=_whole("repeats", 1), metavar="N", help="timed calls (default: 5 to 100, as fit into 2 s)")
    add("--temperature", type=_real("temperature", *TEMPERATURES), metavar="T",
        help="of the smooth maximum (default 1)")  # fmt: skip
    add("--gap", type=_real("gap", most=LARGEST_GAP), metavar="G", help="added for every gap position (default -1)")
    add("--gap-open", type=_real("gap-open", most=LARGEST_GAP), metavar="G",
        help="added for the first position of an affine gap (default -3)")  # fmt: skip
    add("--gap-extend", type=_real("gap-extend", most=LARGEST_GAP), metavar="G",
        help="added for each further position of an affine gap (default -1)")  # fmt: skip
    add("--no-restrict-turns", dest="restrict_turns", action="store_false", default=None,
        help="affine: a gap along the row may also follow one along the column")  # fmt: skip
    add("--no-penalize-turns", dest="penalize_turns", action="store_false", default=None,
        help="affine: a gap that follows one of the other direction extends it instead of opening")  # fmt: skip
    add("--end", type=_one_of("end", ENDS), help="where a linear local alignment may end: any (default) or match")
    add(
        "--seed",
        type=_whole("seed", 0),
        default=defaults.seed,
        metavar="S",
        help="of random inputs, of which pairs the gate looks at, and of c in the pass hvp (default 0)",
    )
    add("--threads", type=_whole("threads", 1), metavar="N", help="cores for each framework (default: all)")
    add("--unroll", type=_whole("unroll", 1), metavar="N", help="diagonals per step of the compiler's loop (default 1)")
    add("--compile-limit", type=_real("compile-limit", positive=True), default=defaults.compile_limit,
        metavar="SECONDS", help="longest first call before a case is given up (default 120)")  # fmt: skip
    add("--json", metavar="FILE", help="also write everything, with all samples, to a file")
    add("--ladder", action="store_true",
        help="climb all variants, compiled or not, first and second call")  # fmt: skip
    add("--list", action="store_true", help="list problems and variants, and what each framework has")
    return parser


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    """Check what concerns several options, and fill in what the machine decides."""
    given = vars(options)
    input_name = options.input
    if input_name is None:
        input_name = "random" if options.ladder else Settings.input
    known = tuple(variant.name for variant in VARIANTS[options.problem])
    for name in options.variant or ():
        if name not in (*known, "auto"):
            parser.error(f"unknown variant {name!r}; known: {', '.join((*known, 'auto'))}")
    if options.size and input_name != "random":
        parser.error("--size goes with --input random")
    if options.matrix and input_name == "random":
        parser.error("--matrix goes with sequences, not with --input random")
    matrix = options.matrix or Settings.matrix
    if matrix.upper() not in matrix_names():
        parser.error(f"unknown matrix {matrix!r}; known: {', '.join(matrix_names())}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if options.threads and options.threads > cores:
        parser.error(f"--threads must be between 1 and the {cores} cores of this machine, got {options.threads}")
    if options.json is not None:
        _check_writable(parser, Path(options.json))
    return Settings(
        frameworks=options.framework,
        variants=options.variant,
        passes=options.passes or (("score",) if options.ladder else Settings.passes),
        arguments=_problem_arguments(parser, options),
        input=input_name,
        matrix=matrix,
        threads=options.threads or cores,
        **{name: given[name] for name in (
            "device", "problem", "batch", "size", "dtype", "repeats", "seed", "unroll", "compile_limit", "ladder",
            "json",
        )},
    )  # fmt: skip


def _problem_arguments(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The problem's parameters and options that were given."""
    known = dict.fromkeys(name for problem in PROBLEMS.values() for name in problem.arguments)
    given = {name: value for name in known if (value := getattr(options, name)) is not None}
    for name in given:
        if name not in PROBLEMS[options.problem].arguments:
            owners = [problem for problem in PROBLEMS.values() if name in problem.arguments]
            flag = _flag(name, owners[0].arguments[name])
            names = " or ".join(problem.name for problem in owners)
            parser.error(f"{flag} goes with --problem {names}, not with {options.problem}")
    return given


def _flag(name: str, default: Any) -> str:
    """How an argument of a problem is spelled on the command line; what is true by default can be switched off."""
    return ("--no-" if default is True else "--") + name.replace("_", "-")


def _check_writable(parser: argparse.ArgumentParser, path: Path) -> None:
    """A path that cannot be written is said before an hour of measuring, not after it."""
    try:
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode
            if not stat.S_ISREG(mode):
                what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
                parser.error(f"cannot write {path}: it is {what}")
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        parser.error(f"cannot write {path}: {error.strerror}")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("expected at least one name, got none")
    return names


def _one_of(what: str, known: Sequence[str] | dict) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {what} {text!r}; known: {', '.join(known)}")
        return text

    return parse


def _some_of(what: str, known: Sequence[str] | dict) -> Callable[[str], tuple[str, ...]]:
    one = _one_of(what, known)
    return lambda text: tuple(one(name) for name in _names(text))


def _whole(what: str, least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value < 2**32:
            raise argparse.ArgumentTypeError(f"{what} must be a whole number from {least}, got {text!r}")
        return value

    return parse


def _real(
    what: str, least: float = -math.inf, most: float = math.inf, positive: bool = False
) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or (positive and value <= 0) or not least <= value <= most:
            wanted = "a positive finite number" if positive else "a finite number"
            if math.isfinite(least):
                wanted = f"a number between {least:g} and {most:g}"
            elif math.isfinite(most):
                wanted += f" of at most {most:g}"
            raise argparse.ArgumentTypeError(f"{what} must be {wanted}, got {text!r}")
        return value

    return parse


def _size(text: str) -> tuple[int, int]:
    rows, _, cols = text.lower().partition("x")
    if not (rows.isdecimal() and cols.isdecimal() and int(rows) and int(cols)):
        raise argparse.ArgumentTypeError(f"size must be ROWSxCOLS, such as 100x150, got {text!r}")
    return int(rows), int(cols)


if __name__ == "__main__":
    # a polite kill ends like Ctrl-C: workers stopped, what is finished printed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        exit_code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader of the table has gone (| head): nothing more to say, and nothing to flush on the way out
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_code = 141
    sys.exit(exit_code)
