"""How large a batch an accelerator has memory for: found by trying, before anything is measured."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from shared.bench import files
from shared.bench.going import PATIENCE_SECONDS, Going
from shared.bench.plan import FRAMEWORKS, Case
from shared.bench.workers import Reply
from shared.problems import Inputs


def fitted(going: Going, inputs: dict[str, Inputs], cases: Sequence[Case], folder: Path) -> dict[str, Inputs]:
    """The inputs, those that are repeated as often as all frameworks have memory for, up to what was asked for.

    Tried are each framework's own choice of a variant and its dearest pass; what needs more memory than that will say
    so by itself. A run that is gone on with keeps what it once found. folder: the run's, through which workers get
    their inputs.
    """
    found = dict(inputs)
    for name, given in inputs.items():
        if given.repeats == 1:
            continue
        if name in going.record.inputs:
            known = going.record.inputs[name].pairs or 1
            repeats = max(1, known * given.repeats // (given.pairs or 1))
        else:
            files.save_inputs(going.settings.problem, given, folder, name)
            repeats = _largest(going, name, given, cases)
            going.team.stop()  # with all the memory that was taken
        found[name] = dataclasses.replace(given, repeats=repeats)
    return found


def told(asked: dict[str, Inputs], found: dict[str, Inputs]) -> Iterable[str]:
    """A line for each input that did not fit."""
    for name, given in found.items():
        if given.repeats < asked[name].repeats:
            yield f"{name}: {given.pairs:,} pairs are the largest batch that fits; {asked[name].pairs:,} were asked for"


def _largest(going: Going, name: str, given: Inputs, cases: Sequence[Case]) -> int:
    repeats = given.repeats
    for case in _dearest(going, [case for case in cases if case.input == name]):
        while repeats > 1:
            pairs = dataclasses.replace(given, repeats=repeats).pairs
            going.progress.say(f"do {pairs:,} pairs of {name} fit? {FRAMEWORKS[case.framework]} tries")
            if _fits(going.ask_worker(case, "fits", PATIENCE_SECONDS + going.settings.compile_limit,
                                      case=case.as_json(), repeats=repeats)):  # fmt: skip
                break
            going.team.stop(case)  # what it could take before it failed lies in pieces now
            repeats //= 2
    return repeats


def _fits(reply: Reply) -> bool:
    """What goes wrong otherwise is for the case to tell."""
    return reply.status != "ok" or reply.details["fits"]


def _dearest(going: Going, cases: Sequence[Case]) -> list[Case]:
    """Of each framework the case that is tried: the last pass, of its own choice where that is among the cases."""
    tried: dict[str, Case] = {}
    for case in cases:
        best = tried.get(case.framework)
        if best is None or _rank(going, case) >= _rank(going, best):
            tried[case.framework] = case
    return list(tried.values())


def _rank(going: Going, case: Case) -> tuple[bool, int]:
    return going.record.auto.get(case.framework) == case.variant, going.settings.passes.index(case.pass_name)
