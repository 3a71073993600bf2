"""The first phase: each case with empty caches, its gate, its memory, and a call on a new shape."""

from dataclasses import replace

from shared.bench.analysis.estimates import Block
from shared.bench.cases import Case
from shared.bench.record import Compilation, Record, Result
from shared.bench.run.context import PATIENCE_SECONDS, Run
from shared.problems import PROBLEMS
from shared.variants import variant_names

# new shapes are tried while no more than this part of the budget is spent
_SHARE = 0.4
# why a new shape is missing that a resumed run may still measure
_NO_ROOM, _INTERRUPTED = "the budget had no room for it", "interrupted"


def measure_first_calls(run: Run, cases: list[Case]) -> None:
    """The cold call of each case that has none yet, its gate, its memory, and its new shape.

    Where an earlier run left a new shape out, both again: it needs a function that has seen one shape.
    """
    # the last rungs of the ladder first: they are fast, and an interrupted run has what matters most
    rungs = variant_names(run.settings.problem)
    results = sorted(map(run.record.result, cases), key=lambda result: -rungs.index(result.case.variant))
    pending = [result for result in results if _is_pending(run, result)]
    run.progress.begin("first calls", len(pending))
    if run.question.times_rounds and run.settings.workers is None:
        run.progress.left(run.seconds_left, "at most")
    first_fused = next((result for result in pending if result.case.variant == "fused"), None)
    for result in pending:
        if not _is_pending(run, result):  # the budget's share for new shapes may be spent by now
            continue
        note = ", after compiling its kernels unless they are in the cache" if result is first_fused else ""
        run.progress.step(f"{result.case.title}{note}")
        _first_call(run, result)
        run.keep()
        run.progress.results(run.record)
    run.progress.results(run.record, is_first_answer=run.question.times_rounds)


def _is_pending(run: Run, result: Result) -> bool:
    if result.cold is None:
        return result.status in ("ok", "failed")
    may_retry = result.status == "ok" and result.retrace_note in (_NO_ROOM, _INTERRUPTED)
    return may_retry and _has_room(run, 2 * result.cold.seconds)


def _has_room(run: Run, expected: float) -> bool:
    """Whether a new shape that is expected to take so many seconds still fits."""
    return run.settings.budget - run.seconds_left + expected <= _SHARE * run.settings.budget


def _first_call(run: Run, result: Result) -> None:
    case, settings, question = result.case, run.settings, run.question
    reason = hopeless(run.record, case)
    if reason is not None:  # waiting for the limit again would show nothing new
        result.status, result.reason = "limit", reason
        return
    # a call for memory's sake may take as long as the two that are timed where there are no rounds
    options = {"measure_memory": question.times_rounds, "early_calls": question.times_rounds}
    reply = run.ask(case, "cold", PATIENCE_SECONDS, settings.compile_limit, **options)
    if reply.status != "ok":
        return
    found = reply.details
    run.cached.add(case)
    result.cold = Compilation(**found["cold"])
    result.build_seconds = found["build_seconds"]
    result.input_bytes, result.output_bytes = found["input_bytes"], found["output_bytes"]
    result.work, result.peak_bytes = found["work"], found.get("peak_bytes")
    result.early_seconds = found["early_seconds"]
    if found["picture"] is not None:
        run.record.pictures.setdefault(case.input, found["picture"] | {"by": case.title})
    if settings.device != "cpu" and question.times_rounds:
        run.measure_device_time(case)
    if not question.times_rounds:  # the second call is the only sample
        result.blocks = [Block(0, 0, (found["early_seconds"],))]
    if question.tries_new_shape:
        _new_shape(run, result, result.cold.seconds)


def _new_shape(run: Run, result: Result, expected: float) -> None:
    """Call the function of the last first call on another shape; an error here costs only this number."""
    if not _has_room(run, expected):
        result.retrace_note = _NO_ROOM
        return
    limit = run.settings.compile_limit + PATIENCE_SECONDS
    result.retrace_note = _INTERRUPTED
    reply = run.ask_worker(result.case, "new_shape", limit, case=result.case.as_json())
    if reply.status == "ok":
        result.retrace, result.retrace_note = Compilation(**reply.details["new_shape"]), None
    else:
        result.retrace_note = reply.reason


def hopeless(record: Record, case: Case) -> str | None:
    """The limit that this variant exceeded with less work, such as "> 120 s for score at 64x8"; None if it did not.

    Less work is a smaller input, or on the same input a pass that comes before.
    """
    problem = PROBLEMS[case.problem]

    def amount(of: Case) -> tuple[int, int]:
        facts = record.inputs[of.input]
        return problem.extent(facts.shape, facts.work), problem.passes.index(of.pass_name)

    for result in record.results:
        other = result.case
        is_same = replace(other, input=case.input, pass_name=case.pass_name) == case
        if not (is_same and result.status == "limit" and other != case):
            continue
        if all(own >= least for own, least in zip(amount(case), amount(other), strict=True)):
            if any(word in (result.reason or "") for word in (" for ", " at ")):
                return result.reason
            by_pass = f" for {other.pass_name}" if other.pass_name != case.pass_name else ""
            by_input = f" at {other.input}" if other.input != case.input else ""
            return f"{result.reason}{by_pass}{by_input}"
    return None
