"""The largest batch that an accelerator has memory for: found by trying, before anything is measured."""

import dataclasses
from collections.abc import Mapping, Sequence

from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.run import exchange
from shared.bench.run.context import PATIENCE_SECONDS, Run
from shared.problems import Inputs
from shared.variants import Abilities


def largest_batches(
    run: Run, inputs: dict[str, Inputs], cases: Sequence[Case], abilities: Mapping[str, Abilities]
) -> dict[str, Inputs]:
    """The inputs; repeated ones with as many repeats as all frameworks have memory for, up to those asked for.

    Each framework tries its own choice of a variant, with the pass that takes most; a case that needs still more memory
    will report that itself. A resumed run keeps what it found.
    """
    found = dict(inputs)
    for name, given in inputs.items():
        if given.repeats == 1:
            continue
        if name in run.record.inputs:
            known = run.record.inputs[name].pairs or 1
            repeats = max(1, known * given.repeats // (given.pairs or 1))
        else:
            exchange.save_inputs(run.settings.problem, given, run.folder, name)
            candidates = _largest_cases(run, [case for case in cases if case.input == name], abilities)
            repeats = _most_repeats(run, given, candidates)
            run.stop()  # frees all memory that was taken
        found[name] = dataclasses.replace(given, repeats=repeats)
    return found


def _most_repeats(run: Run, given: Inputs, cases: Sequence[Case]) -> int:
    """The repeats of an input that all of the cases have memory for."""
    repeats = given.repeats
    for case in cases:
        while repeats > 1:
            pairs = dataclasses.replace(given, repeats=repeats).pairs
            run.progress.say(f"do {pairs:,} pairs of {case.input} fit? {FRAMEWORKS[case.framework]} tries")
            limit = PATIENCE_SECONDS + run.settings.compile_limit
            reply = run.ask_worker(case, "fits", limit, case=case.as_json(), repeats=repeats)
            # other errors are for the case to report; a dead worker may have run out of host memory
            if reply.details.get("fits", run.running(case) is not None):
                break
            run.stop(case)  # its memory may be fragmented
            repeats //= 2
    return repeats


def _largest_cases(run: Run, cases: Sequence[Case], abilities: Mapping[str, Abilities]) -> list[Case]:
    """Of each framework its own choice of a variant, with the last of the passes."""
    passes = [name for name in run.settings.passes if name in {case.pass_name for case in cases}]
    found = []
    for case in {case.framework: case for case in cases}.values():
        able = abilities[case.framework]
        variant = able.auto or case.variant
        compiled = variant not in able.uncompiled_variants
        found.append(dataclasses.replace(case, variant=variant, pass_name=passes[-1], compiled=compiled))
    return found
