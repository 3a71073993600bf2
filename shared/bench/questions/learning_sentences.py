"""How a record of `learning` answers it in sentences: who reaches the quality first, and is it by equal steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.bench.cases import FRAMEWORKS
from shared.bench.estimates import Estimate, of_processes
from shared.bench.questions.learning_answer import COLD, WARM, by_variant, common, ratio_of, times
from shared.bench.questions.learning_gain import gains
from shared.bench.record import Record, Result
from shared.bench.report.tables import Statement
from shared.bench.units import duration, ratio_interval, ratio_text
from shared.variants import SAME_CODE

# weights that are further apart than this share of the largest after a training to the target are of different steps
ALLOWED = {"float32": 0.02, "float64": 1e-6}


def statements(record: Record) -> Iterator[Statement]:
    """The answer in sentences."""
    known = common(record)
    if "target" not in known:
        return
    variants = by_variant(record)
    for variant, own in variants.items():
        where = f" ({variant})" if len(variants) > 1 else ""
        for name, about in ((COLD, "Compiling on the way"), (WARM, "Once everything is compiled")):
            if text := _sentence(own, name):
                yield Statement(f"{about}{where}", text)
        if text := _step_sentence(own):
            yield Statement(f"A step{where}", text)
        if text := _equal_steps(record, known, variant):
            yield Statement(f"Equal steps{where}", text)
    if known.get("folds"):
        yield from gains(known)


def _sentence(own: Sequence[Result], name: str) -> str:
    """Who reaches the quality first, and by what factor."""
    reached = {result.case.framework: times(result, name) for result in own}
    took = {
        framework: f"{FRAMEWORKS[framework]} in {duration(of_processes([b.seconds[0] for b in blocks]).value)}"
        for framework, blocks in reached.items()
        if blocks
    }
    if not took:
        return "no training has reached the quality." if any(r.details["trainings"] for r in own) else ""
    found = ratio_of(own, name)
    if found is None:
        return f"the quality is reached by {', '.join(took.values())}; there is nothing to compare that with."
    (fast, _), ratio = found
    verdict = _verdict(FRAMEWORKS[fast.case.framework], ratio)
    return f"the quality is reached by {' and by '.join(took.values())}: {verdict}."


def _step_sentence(own: Sequence[Result]) -> str:
    """Whose steps are faster."""
    if not (found := ratio_of(own)):
        return ""
    (fast, slow), ratio = found
    names = [FRAMEWORKS[result.case.framework] for result in (fast, slow)]
    each = [f"{duration(result.time.value)} in {name}" for result, name in zip((fast, slow), names, strict=True)]
    return f"{each[0]}, {each[1]}: {_verdict(names[0], ratio)}. The rest of the time is validation."


def _verdict(first: str, ratio: Estimate) -> str:
    interval = f"{ratio_text(ratio.value)} times as fast ({ratio_interval(ratio)})"
    verdicts = {"different": f"{first} is {interval}", "same": "which is the same within 3 %"}
    return verdicts.get(ratio.outcome, f"which of them is faster is not decided: {first} {interval}")


def _equal_steps(record: Record, known: Mapping[str, Any], variant: str) -> str:
    found: list[Mapping[str, float]] = list(known.get("apart", {}).get(variant, {}).values())
    if not found:
        return ""
    worst = max(found, key=lambda own: own["weights"] / own["largest"])
    losses = max(own["losses"] for own in found)  # maybe of another training
    is_equal = worst["weights"] <= ALLOWED[record.settings.dtype] * worst["largest"]
    start = "both frameworks begin with the same weights and draw the same batches, so they take the same steps by "
    start += "construction, and differ in what a step and compiling take"
    apart = (
        f"after {worst['steps']} steps of {record.settings.dtype} their weights were at most {worst['weights']:.1e} "
        f"apart, of at most {worst['largest']:.1f}; the losses of an epoch at most {losses:.1e}"
    )
    own = " Both call the same native kernel." if variant in SAME_CODE else ""
    return f"{start}: {apart}.{own}" if is_equal else f"NOT SHOWN: {apart}. That is more than rounding explains."
