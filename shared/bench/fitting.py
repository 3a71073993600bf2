"""How large a batch an accelerator has memory for: found by trying, before anything is measured."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from shared.bench import files
from shared.bench.going import PATIENCE_SECONDS, Going
from shared.bench.plan import FRAMEWORKS, Case
from shared.problems import Inputs
from shared.variants import Abilities


def fitted(
    going: Going, inputs: dict[str, Inputs], cases: Sequence[Case], abilities: Mapping[str, Abilities], folder: Path
) -> dict[str, Inputs]:
    """The inputs, those that are repeated as often as all frameworks have memory for, up to what was asked for.

    Tried are each framework's own choice of a variant and its dearest pass; what needs more memory than that will say
    so by itself. A run that is gone on with keeps what it once found.

    abilities: of each framework. folder: the run's, through which workers get their inputs.
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
            repeats = _largest(going, given, _dearest(going, [case for case in cases if case.input == name], abilities))
            going.team.stop()  # with all the memory that was taken
        found[name] = dataclasses.replace(given, repeats=repeats)
    return found


def told(asked: dict[str, Inputs], found: dict[str, Inputs]) -> Iterable[str]:
    """A line for each input that did not fit."""
    for name, given in found.items():
        if given.repeats < asked[name].repeats:
            yield f"{name}: {given.pairs:,} pairs are the largest batch that fits; {asked[name].pairs:,} were asked for"


def _largest(going: Going, given: Inputs, cases: Sequence[Case]) -> int:
    """How often it may be repeated for all of the cases."""
    repeats = given.repeats
    for case in cases:
        while repeats > 1:
            pairs = dataclasses.replace(given, repeats=repeats).pairs
            going.progress.say(f"do {pairs:,} pairs of {case.input} fit? {FRAMEWORKS[case.framework]} tries")
            limit = PATIENCE_SECONDS + going.settings.compile_limit
            reply = going.ask_worker(case, "fits", limit, case=case.as_json(), repeats=repeats)
            # what goes wrong otherwise is for the case to tell; who dies may have had too little of the host's memory
            if reply.details.get("fits", going.team.running(case) is not None):
                break
            going.team.stop(case)  # what it could take before it failed lies in pieces now
            repeats //= 2
    return repeats


def _dearest(going: Going, cases: Sequence[Case], abilities: Mapping[str, Abilities]) -> list[Case]:
    """What is tried: of each framework its own choice, and the last of the passes."""
    passes = [name for name in going.settings.passes if name in {case.pass_name for case in cases}]
    found = []
    for case in {case.framework: case for case in cases}.values():
        able = abilities[case.framework]
        variant = able.auto or case.variant
        compiled = variant not in able.ready
        found.append(dataclasses.replace(case, variant=variant, pass_name=passes[-1], compiled=compiled))
    return found
