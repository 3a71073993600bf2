"""The quality side of `learning`: what BLOSUM62 reaches, and each family in turn left out of a training.

One framework is enough: equal weights and batches make equal steps, as the trainings before have shown.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shared.bench.cases import Case
from shared.bench.questions import learning_quality as quality
from shared.bench.questions import learning_worker as worker
from shared.learning.families import Family, leave_one_out
from shared.learning.job import Job
from shared.problems.learn_alignment import FamilyInputs

if TYPE_CHECKING:
    from shared.bench.run.context import Run

_PROCESS = -1  # whose compilers' caches these trainings share


def checkpoint(run: "Run", name: str) -> Path:
    """The file of a training: in the folder that the user names, or else in that of the run."""
    return Path(run.settings.arguments.get("checkpoints", run.folder)) / f"{name}.checkpoint"


def find_target(run: "Run", case: Case, common: dict[str, Any], families: Sequence[Family]) -> str | None:
    """Fill in what BLOSUM62 reaches: on each family with each choice of gaps, and on the validation families with the
    best choice on the others, which is the target. Returns why that failed, if it did; the budget may end it too."""
    grids = common.setdefault("grids", {})
    run.progress.begin("BLOSUM62", len(families) + 1)
    for family in families:
        run.progress.step(f"the best gaps on {family.name}")
        if family.name in grids:
            continue
        if run.seconds_left <= 0:
            tried = f"BLOSUM62 was tried on {len(grids)} of {len(families)} families"
            run.note_no_room(f"the quality to reach: {tried}; a record (--json) can be resumed")
            return None
        reply = run.ask("call", case, function=quality.grid, family=family.name, process=_PROCESS)
        if reply.status != "ok":
            return f"BLOSUM62 could not be tried on {family.name}: {reply.reason}"
        grids[family.name] = dict(reply.details)
        run.keep()
    run.progress.step("the quality to reach")
    split = common["split"]
    reply = run.ask(
        "call", case, function=quality.target, split=split, grids=_of(grids, split["train"]), process=_PROCESS
    )
    if reply.status != "ok":
        return f"there is no quality to reach: {reply.reason}"
    if not reply.details["quality"]:
        return f"there is no quality to reach: BLOSUM62 finds no true pair of {', '.join(split['validation'])}"
    common["target"] = dict(reply.details)
    run.keep()
    return None


def _of(grids: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: grids[name] for name in names}


def leave_families_out(run: "Run", case: Case, common: dict[str, Any], given: FamilyInputs) -> None:
    """A training to its early stop without each family, and the quality on that family, as far as the budget goes."""
    folds, done = leave_one_out(given.families), common.setdefault("folds", {})
    if not folds:
        run.record.note("no family was left out: of two none would be left to train on")
    common["folds by"] = case.name
    longest, left_out = 0.0, []
    run.stop(case)
    for fold in folds:
        if fold.test.name in done:
            continue
        began, found, failed = time.monotonic(), None, f"{fold.test.name} left out: "
        if run.seconds_left > longest:
            run.record.notes = [note for note in run.record.notes if not note.startswith(failed)]  # it is tried again
            found = _fold(run, case, common, fold, given)
        if found is None:
            left_out.append(fold.test.name)
        elif isinstance(found, str):
            run.record.note(failed + found)
        else:
            done[fold.test.name] = found
            _keep_picture(run, fold.test.name, found)
        longest = max(longest, time.monotonic() - began)
        run.keep()
        run.progress.results(run.record)
    if left_out:
        verb = "are" if len(left_out) > 1 else "is"
        run.note_no_room(f"all families left out: {', '.join(left_out)} {verb} missing")


def _fold(
    run: "Run", case: Case, common: Mapping[str, Any], fold: Any, given: FamilyInputs
) -> dict[str, Any] | str | None:
    """What is found, or why nothing could be. None if the budget ended the training, which goes on from its checkpoint
    if that is kept."""
    options, test = given.options, fold.test.name
    job = Job(model=options["model"], seed=given.seed, epochs=options["epochs"])
    split = {part: [family.name for family in getattr(fold, part)] for part in ("train", "validation")}
    own = {"name": f"without {test}", "process": _PROCESS}
    place = given.families.index(fold.test) + 1  # because a family may have any name
    legible = re.sub(r"[^A-Za-z0-9.-]", "_", test)[:40]
    path = checkpoint(run, f"{case.framework}-{case.variant}-{job.model}-without-{place}-{legible}")
    run.progress.begin(f"{test} left out", job.epochs)
    reply = run.ask("call", case, function=worker.begin, **own, job=asdict(job), split=split, checkpoint=str(path))
    run.progress.skip(len(reply.details.get("history", ())))
    while reply.status == "ok" and not reply.details["is_finished"]:
        if run.seconds_left <= 0:
            return None
        best, where = reply.details["best_quality"], ", ".join(split["validation"])
        run.progress.step("first epoch" if best is None else f"quality {best:.3f} on {where} so far")
        reply = run.ask("call", case, function=worker.epoch, **own)
    if reply.status == "ok":
        epochs = len(reply.details["history"])
        grids = _of(common["grids"], split["train"])
        reply = run.ask("call", case, function=quality.tested, **own, family=test, grids=grids)
        if reply.status == "ok":
            return dict(reply.details) | {"epochs": epochs}
    return reply.reason or reply.status


def _keep_picture(run: "Run", family: str, found: dict[str, Any]) -> None:
    """The hardest pair for BLOSUM62 of all families so far."""
    picture = found.pop("picture")
    name = next(iter(run.record.inputs))
    if picture and picture["f1"] < run.record.pictures.get(name, {"f1": 2.0})["f1"]:
        run.record.pictures[name] = picture | {"family": family}
