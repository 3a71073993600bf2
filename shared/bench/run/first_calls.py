"""The first phase: each case with empty caches, its gate, its memory, and a call on a new shape."""

from dataclasses import replace

from shared.bench.analysis.estimates import Block
from shared.bench.cases import Case
from shared.bench.record import Record, Result
from shared.bench.run.context import Run
from shared.problems import problem_of

# new shapes are tried while no more than this part of the budget is spent
_SHARE = 0.4
# why a new shape is missing that a resumed run may still measure
_NO_ROOM, _INTERRUPTED = "the budget had no room for it", "interrupted"
_WITH_LESS_WORK = " with less work"


def measure_first_calls(run: Run, cases: list[Case]) -> None:
    """The cold call of each case that has none yet, its gate, its memory, and its new shape.

    Where an earlier run left a new shape out, both again: it needs a function that has seen one shape.
    """
    # the last rungs of the ladder first: they are fast, and an interrupted run has what matters most
    rungs = problem_of(run.settings.problem).variant_names
    results = sorted(map(run.record.result, cases), key=lambda result: -rungs.index(result.case.variant))
    pending = [result for result in results if _is_pending(run, result)]
    run.progress.begin("first calls", len(pending))
    for result in pending:
        run.progress.step(result.case.title)
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
    case, question = result.case, run.question
    reason = limit_exceeded_with_less_work(run.record, case)
    if reason is not None:  # waiting for the limit again would show nothing new
        result.status, result.reason = "limit", reason
        return
    reply = run.ask_for_result("cold", case, rounds_follow=question.times_rounds)
    if reply.status != "ok":
        return
    run.cached.add(case)
    found = dict(reply.details)
    picture = found.pop("picture")
    if picture is not None:
        run.record.pictures.setdefault(case.input, picture | {"by": case.title})
    for name, value in found.items():  # the rest are fields of the result
        setattr(result, name, value)
    if run.settings.device != "cpu" and question.times_rounds:
        _measure_device_time(run, case)
    if not question.times_rounds:  # the second call is the only sample
        result.blocks = [Block(0, 0, (found["early_seconds"],))]
    if question.tries_new_shape:
        _new_shape(run, result, found["cold"].seconds)


def _measure_device_time(run: Run, case: Case) -> None:
    """Record how long the case of the last cold call keeps the accelerator busy, or why that is not known."""
    reply = run.ask("device_time", case, expected=0.0)
    run.record.result(case).on_device = reply.details.get("on_device", [])
    problem = reply.reason or reply.details.get("problem")
    if problem:
        run.record.note(f"no device time: {case.title}: {problem}")


def _new_shape(run: Run, result: Result, expected: float) -> None:
    """Call the function of the last first call on another shape; an error here costs only this number."""
    if not _has_room(run, expected):
        result.retrace_note = _NO_ROOM
        return
    result.retrace_note = _INTERRUPTED
    reply = run.ask("new_shape", result.case)
    result.retrace, result.retrace_note = reply.details.get("retrace"), reply.reason


def limit_exceeded_with_less_work(record: Record, case: Case) -> str | None:
    """Such as "> 120 s with less work", if this variant exceeded a limit on a smaller input or with an earlier pass."""
    problem = problem_of(case.problem)

    def amounts(of: Case) -> tuple[int, int]:
        facts = record.inputs[of.input]
        return problem.extent(facts.shape, facts.work), problem.passes.index(of.pass_name)

    for result in record.results:
        other = result.case
        if result.status != "limit" or replace(other, input=case.input, pass_name=case.pass_name) != case:
            continue
        if other != case and all(less <= own for less, own in zip(amounts(other), amounts(case), strict=True)):
            return (result.reason or "").removesuffix(_WITH_LESS_WORK) + _WITH_LESS_WORK
    return None
