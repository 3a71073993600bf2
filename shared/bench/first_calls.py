"""The first phase: every case from nothing, then on a shape that is new to it."""

from shared.bench.going import PATIENCE_SECONDS, Going
from shared.bench.growth import hopeless
from shared.bench.plan import Case
from shared.bench.record import Compilation, Result
from shared.bench.statistics import Block
from shared.variants import variant_names

# new shapes are tried as long as no more than this part of the budget is spent
_SHARE = 0.4
# why one is missing that a run which is gone on with may have yet
_NO_ROOM, _INTERRUPTED = "the budget had no room for it", "interrupted"


def measure_first_calls(going: Going, cases: list[Case]) -> None:
    """The cold call of each case that has none yet, its gate, its memory, and its new shape.

    Where a run before this one left a new shape out, both again: a function is needed that has one shape behind it.
    """
    settings = going.settings
    # the ladder's last rungs first: they take least, and a run that is cut short has what is asked for most
    rungs = variant_names(settings.problem)
    results = sorted(map(going.record.result, cases), key=lambda result: -rungs.index(result.case.variant))
    to_do = [result for result in results if _is_to_do(going, result)]
    going.progress.begin("first calls", len(to_do))
    if not settings.ladder and settings.workers is None:
        going.progress.left(going.seconds_left, "at most")
    first_fused = next((result for result in to_do if result.case.variant == "fused"), None)
    for result in to_do:
        if not _is_to_do(going, result):  # no more: those before have spent what is for new shapes
            continue
        note = ", after compiling its kernels unless they are in the cache" if result is first_fused else ""
        going.progress.step(f"{result.case.title}{note}")
        _first_call(going, result)
        going.keep()


def _is_to_do(going: Going, result: Result) -> bool:
    if result.cold is None:
        return result.status in ("ok", "failed")
    return (
        result.status == "ok"
        and result.retrace_note in (_NO_ROOM, _INTERRUPTED)
        and _has_room(going, 2 * result.cold.seconds)
    )


def _has_room(going: Going, expected: float) -> bool:
    """For a new shape that is expected to take so many seconds."""
    return going.settings.budget - going.seconds_left + expected <= _SHARE * going.settings.budget


def _first_call(going: Going, result: Result) -> None:
    case, settings = result.case, going.settings
    reason = hopeless(going.record, case)
    if reason is not None:  # to wait for the limit again would show nothing
        result.status, result.reason = "limit", reason
        return
    reply = going.ask(case, "cold", PATIENCE_SECONDS, settings.compile_limit, is_ladder=settings.ladder)
    if reply.status != "ok":
        return
    found = reply.details
    going.cached.add(case)
    result.cold = Compilation(**found["cold"])
    result.build_seconds = found["build_seconds"]
    result.input_bytes, result.output_bytes = found["input_bytes"], found["output_bytes"]
    result.work, result.peak_bytes = found["work"], found.get("peak_bytes")
    if found["picture"] is not None:
        going.record.pictures.setdefault(case.input, found["picture"] | {"by": case.title})
    if settings.device != "cpu" and not settings.ladder:
        going.clock(case)
    if settings.ladder:
        result.blocks = [Block(0, 0, (found["second_seconds"],))]
    elif settings.sweep is None:  # a sweep has new shapes enough
        _new_shape(going, result, result.cold.seconds)


def _new_shape(going: Going, result: Result, expected: float) -> None:
    """The function of the last first call, on another shape; what goes wrong here costs this one number."""
    if not _has_room(going, expected):
        result.retrace_note = _NO_ROOM
        return
    limit = going.settings.compile_limit + PATIENCE_SECONDS
    result.retrace_note = _INTERRUPTED  # unless it goes on
    reply = going.ask_worker(result.case, "retrace", limit, case=result.case.as_json())
    if reply.status == "ok":
        result.retrace, result.retrace_note = Compilation(**reply.details["retrace"]), None
    else:
        result.retrace_note = reply.reason
