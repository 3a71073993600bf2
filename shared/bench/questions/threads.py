"""What do more threads gain, and does the faster framework change with their number?

Every case is timed with 1, 2, 4, … and all threads, in float32 and float64. Each number of threads has worker processes
of its own, bound to as many cores; they take turns in the same rounds, so that what slows the machine slows them all.
How: threads_run.py; speed-ups and sentences: threads_rows.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

from shared.bench.analysis.estimates import SAME, Estimate
from shared.bench.analysis.verdict import Comparison
from shared.bench.cases import FRAMEWORKS, Absence, Case, Settings
from shared.bench.measure.machine import usable_cores
from shared.bench.questions.question import Question, WorkerStart
from shared.bench.questions.threads_rows import Row, advice, label_of, rows_of, threads_of, winners
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Plot, Table, left_then_right
from shared.bench.units import NOTHING, ratio_interval, ratio_text
from shared.problems import Inputs, problem_of
from shared.problems.problem import UnusableInput
from shared.variants import Abilities

if TYPE_CHECKING:
    from shared.bench.run.context import Run

_BELOW = (
    "Speed-up: the time with 1 thread over that with so many, and its efficiency (speed-up / threads); below that the "
    "95% interval.",
    f"The faster framework, by what factor, and the 95% interval; same: within ±{SAME - 1:.0%}. Both frameworks have "
    "processes bound to as many cores as threads.",
)
_MARKERS = "osD^vPXp<>"


class Threads(Question):
    """Every case with several numbers of threads."""

    name = "threads"
    asks = "what do more threads gain; is another framework faster with another number of threads"
    default_input = "random"
    default_dtype = "float32,float64"
    # of which a run has those of `counts_up_to`
    labels: Mapping[str, WorkerStart] = {
        label_of(count): WorkerStart(threads=count) for count in range(1, len(usable_cores()) + 1)
    }
    default_budget = 600.0
    only_on_cpus = "these are threads of a CPU"

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        """One for each dtype, by its name."""
        if settings.threads < 2:
            raise UnusableInput(f"threads needs at least 2 threads to compare, got {settings.threads}")
        found = {}
        for dtype in settings.dtype.split(","):
            (given,) = problem_of(settings.problem).inputs(replace(settings, dtype=dtype)).values()
            found[dtype] = replace(given, text=f"{given.text}, {dtype}")
        return found

    def plan(
        self, settings: Settings, abilities: Mapping[str, Abilities], inputs: Sequence[str]
    ) -> tuple[list[Case], list[Absence]]:
        cases, absent = super().plan(settings, abilities, inputs)
        counts = counts_up_to(settings.threads)
        once = [replace(row, case=row.case.removesuffix(f", {label_of(1)}")) for row in absent]
        kept = [replace(case, dtype=case.input) for case in cases if threads_of(case) in counts]
        return kept, [row for row in once if not row.case.endswith(" threads")]

    def measure(self, run: "Run", cases: list[Case], inputs: dict[str, Any]) -> None:
        from shared.bench.questions.threads_run import measure_processes  # here: a run has a question
        from shared.bench.run.protocol import save_inputs

        save_inputs(run, inputs)
        measure_processes(run, cases)

    def deciding(self, record: Record) -> list[Estimate]:
        """The speed-ups by all threads, and the ratios of the frameworks with one and with all."""
        found = []
        for row in rows_of(record):
            found += [row.speed_up(framework, row.counts[-1]) for framework in FRAMEWORKS]
            found += [row.comparison(count).ratio for count in (1, row.counts[-1])]
        return [estimate for estimate in found if estimate is not None]

    def answer(self, record: Record) -> Answer:
        rows = rows_of(record)
        if not rows:
            return Answer()
        return Answer(list(_tables(record, rows)), [*advice(rows), *winners(rows)])

    def plots(self, record: Record) -> Iterator[Plot]:
        """Speed-up over threads, a line for each framework and variant."""
        for pass_name in record.settings.passes:
            rows = [row for row in rows_of(record) if row.pass_name == pass_name]
            if rows:
                reading = "Higher is better. The dotted line: as many times as fast as there are threads."
                yield Plot(f"{pass_name}: speed-up by threads", _drawing(rows), reading)


QUESTION = Threads()


def counts_up_to(threads: int) -> list[int]:
    """1, 2, 4, … and the largest."""
    return [*(2**power for power in range((threads - 1).bit_length())), threads]


def _tables(record: Record, rows: Sequence[Row]) -> Iterator[Table]:
    """All threads against one; and where there are numbers in between, those too."""
    counts = rows[0].counts
    most = counts[-1]
    names = [f"{name}\n{label_of(most)}\nspeed-up" for name in FRAMEWORKS.values()]
    headers = ("variant", "pass", "dtype", *names, *(f"faster with\n{label_of(count)}" for count in (1, most)))
    cells = [(*row[:3], *_speed_ups(row, most), *(row.comparison(count).text for count in (1, most))) for row in rows]
    lost = [r for r in record.results if r.status != "ok"]
    below = (*_BELOW, *(f"No {result.case.title}: {result.reason}." for result in lost))
    yield Table(f"{label_of(most)} against 1", headers, cells, left_then_right(len(headers), 0), below)
    if len(counts) > 2:
        headers = ("variant", "pass", "dtype", "threads", *FRAMEWORKS.values(), "faster")
        cells = [
            (*row[:3], str(count), *_speed_ups(row, count), row.comparison(count).text)
            for row in rows
            for count in counts
        ]
        yield Table("Every number of threads: speed-ups", headers, cells, left_then_right(len(headers), 0))


def _speed_ups(row: Row, threads: int) -> list[str]:
    """Of each framework."""
    return [_cell(row.gain(framework, threads), threads) for framework in FRAMEWORKS]


def _cell(gain: Comparison | None, threads: int) -> str:
    if gain is None or gain.ratio is None:
        return NOTHING
    value = gain.ratio.value
    interval = "; ".join([ratio_interval(gain.ratio), *gain.doubts])
    return f"{ratio_text(value)}×, {value / threads:.0%}\n({interval})"


def _drawing(rows: Sequence[Row]) -> str:
    """A panel for each dtype."""
    from shared.bench.report.plots import COLOURS, drawn  # here: matplotlib takes a second to import

    dtypes, counts = list(dict.fromkeys(row.dtype for row in rows)), rows[0].counts
    variants = list(dict.fromkeys(row.variant for row in rows))

    def line(axes: Any, row: Row, framework: str) -> None:
        known = [(count, ratio.value) for count in counts if (ratio := row.speed_up(framework, count))]
        colour = COLOURS[framework]
        face, style = (colour, "-") if framework == "jax" else ("white", "--")
        look = {"marker": _MARKERS[variants.index(row.variant) % len(_MARKERS)], "linewidth": 1, "base": 2}
        look |= {"color": colour, "markerfacecolor": face, "label": f"{FRAMEWORKS[framework]} {row.variant}"}
        if known:
            axes.loglog(*zip(*known, strict=True), style, **look)

    def draw(*panels: Any) -> None:
        for axes, dtype in zip(panels, dtypes, strict=True):
            axes.loglog(counts, counts, ":", color="#6b7480", base=2)
            for row, framework in product(rows, FRAMEWORKS):
                if row.dtype == dtype:
                    line(axes, row, framework)
            axes.set_xticks(counts, map(str, counts))
            axes.minorticks_off()
            axes.yaxis.set_major_formatter("{x:g}×")
            axes.set(xlabel="threads", title=dtype)
        panels[0].legend(fontsize=8)

    return drawn(draw, 4.2 * len(dtypes), 4, columns=len(dtypes))
