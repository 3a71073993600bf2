"""The questions that the benchmark answers, a module of this package each."""

from importlib import import_module
from pathlib import Path

from shared.backends import is_file
from shared.bench.cases import FRAMEWORKS
from shared.bench.questions.question import Question
from shared.bench.record import STATUSES, Record, UnreadableRecord, of_type
from shared.bench.report.report import Report
from shared.problems import PROBLEMS, problem_of

_MODULES = ("speed", "ladder", "growth", "shapes", "memory", "threads", "processes", "between", "graphs", "bridge",
            "versions", "transforms", "learning")  # fmt: skip
QUESTIONS: dict[str, Question] = {name: import_module(f"{__name__}.{name}").QUESTION for name in _MODULES}


def read_record(path: Path) -> tuple[Record, Report]:
    """A record and its report. Raises UnreadableRecord."""
    record = Record.read(path)
    if not (why := _unknown_name(record)):
        try:
            question = QUESTIONS[record.settings.question]
            for result in record.results if question.details else ():
                if result.details:
                    of_type(question.details, result.details, "details")  # raises if they are no measurement
            return record, question.report(record)
        except Exception as error:  # of any kind: only the question knows its details and labels
            why = f"{record.settings.question} cannot show it ({type(error).__name__}: {str(error)[:300]})"
    raise UnreadableRecord(f"cannot read {path}: not a record that this version reads: {why}")


def _unknown_name(record: Record) -> str | None:
    """A name in a record that this version does not know, with what it names."""
    settings = record.settings
    if settings.problem not in PROBLEMS and not is_file(settings.problem):
        return f"unknown problem {settings.problem!r}"
    if settings.question not in QUESTIONS:
        return f"unknown question {settings.question!r}"
    problem = problem_of(settings.problem)
    known_names = {
        "problem": [settings.problem, *settings.more_problems],
        "pass": [*problem.passes, *QUESTIONS[settings.question].own_passes],
        "status": STATUSES,
        "variant": problem.variant_names,
        "framework": FRAMEWORKS,
        "input": record.inputs,
    }
    used = [("pass", name) for name in settings.passes]
    for result in record.results:
        case = result.case
        used += [("problem", case.problem), ("pass", case.pass_name), ("variant", case.variant)]
        used += [("framework", case.framework), ("input", case.input), ("status", result.status)]
    return next((f"unknown {kind} {name!r}" for kind, name in used if name not in known_names[kind]), None)
