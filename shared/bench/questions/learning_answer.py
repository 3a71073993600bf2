"""How a record of `learning` answers it in tables: times to the quality, and whether what is learned is any good."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shared.bench.analysis.verdict import cell, compare
from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Block, Estimate, of_processes
from shared.bench.questions.learning_gain import fold_details, fold_table, matrix_table
from shared.bench.record import Record, Result
from shared.bench.report.tables import Table, left_then_right
from shared.bench.units import NOTHING, duration, figures, size, time_interval
from shared.problems import problem_of

COLD, WARM = "cold", "warm"


def common(record: Record) -> Mapping[str, Any]:
    """What is measured once: target, families left out, how far weights are apart."""
    return next((result.details for result in record.results if "split" in result.details), {})


def _options(record: Record) -> Mapping[str, Any]:
    """Model, seeds and epochs of the run."""
    return next(iter(record.inputs.values())).options


def by_variant(record: Record) -> dict[str, list[Result]]:
    """The results of each variant that was trained, JAX first."""
    found = {
        variant: [r for r in record.results if r.case.variant == variant and r.details.get("trainings") is not None]
        for variant in problem_of(record.settings.problem).variant_names
    }
    return {variant: sorted(own, key=lambda r: list(FRAMEWORKS).index(r.case.framework))
            for variant, own in found.items() if own}  # fmt: skip


def times(result: Result, name: str) -> list[Block]:
    """Seconds to the target of each seed that reached it, cold or warm, as blocks of a process each."""
    own = {int(number): process[name]["reached"] for number, process in result.details["trainings"].items()}
    return [Block(number, 0, (reached["seconds"],)) for number, reached in sorted(own.items()) if reached]


def tables(record: Record) -> Iterator[Table]:
    """Time to the quality; quality on families left out; what was learned."""
    known = common(record)
    if "target" not in known:
        return
    for variant, own in by_variant(record).items():
        yield _time_table(record, known, variant, own)
    if known.get("folds"):
        yield fold_table(known, _options(record)["epochs"])
    if learned := [r for own in by_variant(record).values() for r in own if r.details.get("curve", {}).get("matrix")]:
        yield matrix_table(learned)


def _time_table(record: Record, known: Mapping[str, Any], variant: str, own: Sequence[Result]) -> Table:
    names = [FRAMEWORKS[result.case.framework] for result in own]
    rows: list[tuple[str, ...]] = []

    def add(what: str, text: Callable[[Result], str], verdict: str = "") -> None:
        rows.append((what, *map(text, own), *([verdict] if len(own) > 1 else [])))

    for name, about in ((COLD, "cold: compiling\non the way"), (WARM, "warm: nothing\nleft to compile")):
        add(f"to the quality,\n{about}", lambda r, name=name: _to_target(r, name), _faster(own, name))
    add("epochs to the quality, by seed", _epochs)
    add("steps per second", lambda r: figures(1 / r.time.value) if r.blocks else NOTHING, _faster(own))
    add("the alignment's share of a step", _alignment_share)
    add("first step, caches empty", lambda r: duration(r.first_call.value) if r.first_call else NOTHING)
    add("compiling in all", _compiling)
    add("peak memory of the process", lambda r: size(r.peak_bytes))
    add("lines of code: models and trainer", lambda r: _lines(record, r))
    target, options = known["target"], _options(record)
    split = {part: ", ".join(families) for part, families in known["split"].items()}
    below = (
        f"The quality: F1 {target['quality']:.3f} on {split['validation']}, that of BLOSUM62 with gaps of "
        f"{target['gap_open']:g} and {target['gap_extend']:g}, T = {target['temperature']:g}, the best on the families "
        f"that are trained on: {split['train']}.",
        "Time: of steps and of validation after each epoch, at whose end the quality is known; the geometric mean over "
        "seeds, each in a fresh process, with its 95% interval.",
        *_uncompiled(record, own),
        *_missing(record, own),
    )
    title = f"Learning to align ({options['model']}, {variant})"
    headers = ("", *names, *(["faster"] if len(own) > 1 else []))
    return Table(title, headers, rows, left_then_right(1, len(headers) - 1), below)


def _to_target(result: Result, name: str) -> str:
    blocks = times(result, name)
    if not blocks:
        return "not reached" if result.details["trainings"] else NOTHING
    time = of_processes([block.seconds[0] for block in blocks])
    interval = time_interval(time)
    return duration(time.value) + ("" if interval == NOTHING else f"\n({interval})")


def _epochs(result: Result) -> str:
    """Of the cold trainings."""
    reached = [process[COLD]["reached"] for process in result.details["trainings"].values()]
    return ", ".join(str(own["epoch"]) if own else NOTHING for own in reached) or NOTHING


def _uncompiled(record: Record, own: Sequence[Result]) -> Iterator[str]:
    for case in (result.case for result in own):
        reason = record.uncompiled.get(case.framework, {}).get(case.variant)
        if reason and not case.compiled:
            yield f"Not compiled in {FRAMEWORKS[case.framework]}: {reason}."


def ratio_of(own: Sequence[Result], name: str | None = None) -> tuple[tuple[Result, ...], Estimate] | None:
    """The faster and the slower framework, and how many times as long the slower one takes; None if one has no time.

    name: of a training to the target; None: a step.
    """
    found = compare(replace(result, blocks=times(result, name)) if name else result for result in own)
    return None if found.ratio is None or np.isnan(found.ratio.value) else (found.results, found.ratio)


def _faster(own: Sequence[Result], name: str | None = None) -> str:
    found = ratio_of(own, name)
    return cell(FRAMEWORKS[found[0][0].case.framework], found[1], found[1].outcome) if found else NOTHING


def _alignment_share(result: Result) -> str:
    shares = [
        float(np.mean([own["alignment"] for own in rounds]) / np.mean([own["waited"] for own in rounds]))
        for rounds in (process["rounds"] for process in result.details["trainings"].values())
    ]
    return f"{np.mean(shares):.0%}" if shares else NOTHING


def _compiling(result: Result) -> str:
    """Tracing and compiling of the cold training, and of how many shapes."""
    own = [process[COLD] for process in result.details["trainings"].values()]
    if not own:
        return NOTHING
    shapes = f"{own[0]['shapes']} shape{'s' * (own[0]['shapes'] != 1)}"
    if not result.case.compiled:
        return f"nothing\n({shapes})"
    seconds = [process["tracing"] + process["compiling"] for process in own if process["compiling"] is not None]
    return f"{duration(of_processes(seconds).value)}\n({shapes})" if seconds else f"{NOTHING}\n({shapes})"


def _lines(record: Record, result: Result) -> str:
    count = record.code_lines.get(result.case.framework, {}).get(result.case.variant)
    return str(count) if count else NOTHING


def _missing(record: Record, own: Sequence[Result]) -> Iterator[str]:
    seeds = _options(record)["seeds"]
    for result in own:
        trainings = result.details["trainings"]
        if result.status != "ok":
            yield f"{result.case.name}: {result.reason}."
        elif len(trainings) < seeds:
            yield f"{result.case.name}: {len(trainings)} of {seeds} seeds.{_under_way(result)}"
        for name in (COLD, WARM):
            if lost := [_seed(record, n) for n, process in trainings.items() if not process[name]["reached"]]:
                yield f"{result.case.name}, {name}: no time, as the quality was not reached: seed {', '.join(lost)}."


def _seed(record: Record, number: str) -> str:
    """Of a training, as checkpoints are named by it."""
    return str(record.settings.seed + int(number))


def _under_way(result: Result) -> str:
    found = result.details.get("under way")
    if not found or not found["history"] or found["name"] not in (COLD, WARM):
        return ""
    last, best = found["history"][-1], max(epoch["quality"] for epoch in found["history"])
    when = f"epoch {last['number']}, after {duration(last['seconds'])}, with a quality of {best:.3f}"
    return f" The {found['name']} training of another was ended at {when}."


def details(record: Record) -> Iterator[Table]:
    """Every training, for the page."""
    rows = []
    for own in by_variant(record).values():
        for result in own:
            for number, process in result.details["trainings"].items():
                cells = [
                    f"{len(process[name]['history'])} epochs, {duration(process[name]['history'][-1]['seconds'])}"
                    for name in (COLD, WARM)
                ]
                best = max(epoch["quality"] for epoch in process[COLD]["history"])
                rows.append((result.case.name, _seed(record, number), *cells, f"{best:.3f}"))
    if rows:
        headers = ("", "seed", "cold", "warm", "quality")
        yield Table("Every training to the quality", headers, rows, left_then_right(1, 4))
    if common(record).get("folds"):
        yield from fold_details(common(record))
