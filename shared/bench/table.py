"""What a person reads: the head, the table, the verdict in words; and the ladder's two tables."""

from collections.abc import Iterable, Mapping

from tabulate import tabulate

from shared.bench.plan import FRAMEWORKS, Settings
from shared.bench.record import Record, Result
from shared.problems import PROBLEMS


def report(record: Record) -> str:
    """Everything that a run prints at its end."""
    if record.settings is None:
        return "nothing was measured"
    parts = ["\n".join(_head(record))]
    parts += _ladder(record) if record.settings.ladder else [_table(record), "\n".join(_verdict(record))]
    notes = list(_notes(record))
    return "\n\n".join([*parts, "\n".join(notes)] if notes else parts)


def duration(seconds: float) -> str:
    """Three figures and a unit that suits them."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        value = float(f"{seconds * factor:.3g}")  # rounded first: 999.9 µs are 1.00 ms
        if value < 1000:
            return f"{_figures(value)} {unit}"
    return f"{_figures(seconds if seconds >= 100 else float(f'{seconds:.3g}'))} s"


def _figures(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _size(count: int | None) -> str:
    if count is None:
        return "?"
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.2f} GiB"


def _head(record: Record) -> Iterable[str]:
    settings, where = record.settings, record.environment
    assert settings is not None
    problem = PROBLEMS[settings.problem]
    given = next(iter(record.inputs.values()))
    parameters = ", ".join(f"{name} {value:g}" for name, value in given.parameters.items())
    options = "".join(f", {name} {value}" for name, value in given.options.items())
    unroll = f", unroll {settings.unroll}" if settings.unroll else ""
    yield f"{problem.name}: {problem.text}; {settings.dtype}, {parameters}{options}{unroll}"
    for given in record.inputs.values():
        yield f"input: {given.text}; {given.work:,} cells"
    cores = f"{settings.threads} core{'s' if settings.threads > 1 else ''}"
    yield f"on {where['cpu']}, {cores}, Python {where['python']}, NumPy {where['numpy']}"
    for name, details in where["frameworks"].items():
        gpu = f" on {details['gpu']}" if "gpu" in details else ""
        start = duration(details["compiler_start_seconds"])
        yield f"{FRAMEWORKS[name]} {details[name]}{gpu}; starting its compiler took {start}, once, not counted below"


def _table(record: Record) -> str:
    headers = ("pass", "framework", "variant", "compiled", "first call", "median", "quartiles", "GCUPS", "memory")
    rows = [_row(result, record.auto) for result in record.results]
    return tabulate(rows, headers=headers, disable_numparse=True, colalign=("left",) * 4 + ("right",) * 5)


def _row(result: Result, auto: Mapping[str, str]) -> tuple[str, ...]:
    case, outcome = result.case, result.outcome
    variant = f"{case.variant} (auto)" if auto.get(case.framework) == case.variant else case.variant
    names = (case.pass_name, FRAMEWORKS[case.framework], variant, "yes" if case.compiled else "no")
    if outcome.status != "ok":
        mark = {"wrong": "WRONG", "failed": "FAILED", "limit": outcome.reason or ""}[outcome.status]
        return (*names, mark, "", "", "", "")
    low, high = (duration(value) for value in result.quartiles)
    rate = outcome.details["work"] / result.median / 1e9
    first = duration(outcome.details["first_seconds"])
    spread = f"{low} … {high}"
    return (*names, first, duration(result.median), spread, f"{rate:.3g}", _size(outcome.details["peak_bytes"]))


def _verdict(record: Record) -> Iterable[str]:
    """One line for each pass: which framework was faster, and by what factor."""
    assert record.settings is not None
    for pass_name in record.settings.passes:
        fastest: dict[str, Result] = {}
        for result in record.results:
            case = result.case
            if case.pass_name == pass_name and result.outcome.status == "ok":
                best = fastest.get(case.framework)
                if best is None or result.median < best.median:
                    fastest[case.framework] = result
        ranked = sorted(fastest.values(), key=lambda result: result.median)
        described = [
            f"{FRAMEWORKS[r.case.framework]} ({r.case.variant}, {duration(r.median)} per call)" for r in ranked
        ]
        if len(ranked) > 1:
            factor = ranked[1].median / ranked[0].median
            unsure = " Their quartiles overlap: repeat before you decide." if _overlap(*ranked[:2]) else ""
            yield f"{pass_name}: {described[0]} was {_figures(factor)} times as fast as {described[1]}.{unsure}"
        elif ranked:
            yield f"{pass_name}: only {described[0]} was measured, so there is nothing to compare."
        else:
            yield f"{pass_name}: no case was measured."


def _overlap(faster: Result, slower: Result) -> bool:
    """Whether the middle halves of their samples meet."""
    return faster.quartiles[1] >= slower.quartiles[0]


def _ladder(record: Record) -> list[str]:
    """Two tables for each pass: the single pair and the batch; rows are NumPy and the rungs."""
    assert record.settings is not None
    tables = []
    for pass_name in record.settings.passes:
        for single, given in sorted(record.inputs.items(), reverse=True):
            rows = _ladder_rows(record, record.settings, pass_name, single)
            headers = ["variant"]
            for name in record.auto:
                title = FRAMEWORKS[name]
                headers += [f"{title}\njit off\n{call}" for call in ("first", "second")]
                headers += [f"{title}\njit on\n{call}" for call in ("first", "second")]
            columns = ("left", *["right"] * (len(headers) - 1))
            table = tabulate(rows, headers=headers, disable_numparse=True, colalign=columns)
            tables.append(f"{pass_name}, {given.text}\n\n{table}")
    return tables


def _ladder_rows(record: Record, settings: Settings, pass_name: str, single: bool) -> list[list[str]]:
    cells: dict[tuple[str, str, bool], Result] = {
        (result.case.variant, result.case.framework, result.case.compiled): result
        for result in record.results
        if result.case.pass_name == pass_name and result.case.single == single
    }
    rows = []
    seconds = record.references.get((single, pass_name))
    if seconds:
        rows.append(["NumPy", *([duration(value) for value in seconds] + ["", ""]) * len(record.auto)])
    for variant in dict.fromkeys(name for name, _, _ in cells):
        row = [variant]
        for framework in record.auto:
            for compiled in (False, True):
                row += _ladder_cell(cells.get((variant, framework, compiled)))
        rows.append(row)
    return rows


def _ladder_cell(result: Result | None) -> list[str]:
    if result is None:
        return ["–", "–"]
    if result.outcome.status == "ok":
        return [duration(result.outcome.details["first_seconds"]), duration(result.median)]
    mark = {"wrong": "WRONG", "failed": "FAILED", "limit": result.outcome.reason or ""}[result.outcome.status]
    return [mark, "–"]


def _notes(record: Record) -> Iterable[str]:
    """What needs a sentence: errors, gates that were not NumPy's, variants and frameworks that are not there."""
    for result in record.results:
        if result.outcome.status in ("wrong", "failed"):
            yield f"{result.outcome.status.upper()}: {result.case.title}: {result.outcome.reason}"
    sources = {r.outcome.details["gate"]["source"] for r in record.results if "gate" in r.outcome.details}
    for source in sorted(sources - {"NumPy"}):
        yield f"pairs too large for the NumPy reference were gated by {source}"
    passed = [r for r in record.results if r.outcome.status == "ok"]
    if passed:
        covered = {r.case.single: r.outcome.details["gate"]["pairs"] for r in passed}
        pairs = " and ".join(
            f"{count} of {len(record.inputs[single].pair_lengths)}" for single, count in sorted(covered.items())
        )
        worst = max(r.outcome.details["gate"]["error_of_allowed"] for r in passed)
        yield f"every time above passed the parity gate on {pairs} pairs; worst error {worst:.0%} of what is allowed"
    built = max((r.outcome.details.get("build_seconds", 0.0) for r in passed), default=0.0)
    if built > 1:
        yield f"fused: its kernels were compiled first, once for this machine: {duration(built)}, not counted above"
    for absence in record.absent:
        yield f"absent: {absence.case}: {absence.reason}"
    for framework, reason in record.missing.items():
        yield f"{FRAMEWORKS[framework]} was not measured: {reason}"
