"""Did a new release of a framework get slower, in its calls or in what it compiles?

`--python` names interpreters that have other versions. Each version is compared with the oldest one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shared.bench.cases import FRAMEWORKS, Settings
from shared.bench.estimates import Estimate, mean_over_processes
from shared.bench.questions.axis_question import AxisQuestion, Row
from shared.bench.record import Record, Result
from shared.bench.report.case_table import CACHES_EMPTY, CACHES_WARM
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.run.interpreters import every_version
from shared.bench.run.plan import WorkerStart
from shared.bench.units import NOTHING, ratio_interval, ratio_text

_FIRST_CALLS = (CACHES_EMPTY, CACHES_WARM, "first\nnew shape")


class Versions(AxisQuestion):
    """This interpreter and others."""

    name = "versions"
    asks = "did a new release of JAX or PyTorch get slower"
    axis, change, is_gain = "versions", "new / old", False
    below = ("New / old: the time with a version over that with the oldest (above 1: slower), and its 95% interval.",)
    default_budget = 600.0
    tries_new_shape = True

    def starts(self, settings: Settings) -> dict[tuple[str, str], WorkerStart]:
        return {
            (one.framework, one.label): WorkerStart(command=one.command, about=one.about)
            for one in every_version(settings)
        }

    def deciding(self, record: Record) -> list[Estimate]:
        return [ratio for part in _by_framework(record) for ratio in AxisQuestion.deciding(self, part)]

    def answer(self, record: Record) -> Answer:
        answer = Answer()
        for part in _by_framework(record):
            of_calls = super().answer(part)
            answer.tables += of_calls.tables
            answer.statements += of_calls.statements
            if rows := self.rows(part):
                table, statements = _first_calls(rows, len(record.inputs) > 1)
                answer.tables += [table] if table.rows else []
                answer.statements += statements
        return answer


QUESTION = Versions()


def _by_framework(record: Record) -> Iterator[Record]:
    """The record of each framework by itself: their versions are points of two axes."""
    for framework in FRAMEWORKS:
        results = [result for result in record.results if result.case.framework == framework]
        if results:
            yield replace(record, results=results)


def _first_calls(rows: Sequence[Row], has_inputs: bool) -> tuple[Table, list[Statement]]:
    """First calls of each version over those of the oldest one, process by process; in words where they differ."""
    headers, cells, differences = ("case", "version", *_FIRST_CALLS), [], []
    (framework,) = {framework for row in rows for framework, _ in row.results}
    for row in rows:
        name = f"{row.variant} {row.pass_name}" + (f", {row.input}" if has_inputs else "")
        old, *later = (row.results.get((framework, point)) for point in row.points)
        for new, old in [(new, old) for new in later if new and old]:
            ratios = _ratios(new, old)
            texts = [f"{ratio_text(ratio.value)}× ({ratio_interval(ratio)})" if ratio else NOTHING for ratio in ratios]
            cells.append((name, new.case.label, *(text.replace(" ", "\n", 1) for text in texts)))
            for kind, ratio in zip(_FIRST_CALLS, ratios, strict=True):
                if ratio and ratio.outcome == "different":
                    factor, how = max((ratio.value, "slower"), (1 / ratio.value, "faster"))
                    where = f"{name}, {' '.join(kind.split())}, {new.case.label}"
                    differences.append(f"{where}: {ratio_text(factor)}× {how}")
    title = f"{FRAMEWORKS[framework]}, first calls"
    table = Table(f"{title}: new / old", headers, cells, left_then_right(len(headers), 0))
    return table, [Statement(title, f"{'; '.join(differences)}.")] if differences else []


def _ratios(new: Result, old: Result) -> list[Estimate | None]:
    """The ratio of each of _FIRST_CALLS: the first process of one version over the first of the other, and so on."""
    of_both = [([c.seconds for c in r.cold], r.warm, [s[0] for s in r.new_shapes if s]) for r in (new, old)]
    kinds = [[after / before for after, before in zip(*pair, strict=False)] for pair in zip(*of_both, strict=True)]
    return [mean_over_processes(ratios) if ratios else None for ratios in kinds]
