"""How `learning` measures: the target, trainings in fresh processes by turns, and then families left out.

For each seed every framework has a fresh process, in alternating order. The process trains to the target with
compilers' caches empty (cold), once more from the same start (warm), and then times single steps. In the first one the
cold training goes on to its early stop. A training that was interrupted, or that the budget ended, starts anew: what
had been compiled for it is gone, so its time would mean nothing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shared.bench.cases import FRAMEWORKS, Case
from shared.bench.estimates import Block
from shared.bench.measure.code_size import file_lines
from shared.bench.measure.machine import seconds_of_others, usable_cores
from shared.bench.questions import learning_worker as worker
from shared.bench.questions.learning_answer import COLD, WARM
from shared.bench.questions.learning_folds import checkpoint, find_target, leave_families_out
from shared.bench.record import Compilation, Generation, Result
from shared.bench.run.worker_handle import Reply
from shared.learning.families import split
from shared.learning.job import Job
from shared.problems.learn_alignment import FamilyInputs
from shared.problems.problem import DATA, UnusableInput

if TYPE_CHECKING:
    from shared.bench.run.context import Run

CURVE = "to its early stop"
_PACKAGES = Path(__file__).resolve().parents[3]


def measure_learning(run: "Run", cases: Sequence[Case], given: FamilyInputs) -> None:
    """Everything that the record lacks, as far as the budget goes. Raises UnusableInput where nothing can train."""
    run.write(f"{DATA}.inputs", given)
    cases = _usable(run, cases)
    for case in cases:
        result = run.record.result(case)
        result.details = {"trainings": {}} | result.details
        result.details.pop("under way", None)
        own = _PACKAGES / f"{case.framework}_impl/learning"
        lines = sum(file_lines(own / f"{name}.py") for name in ("models", "trainer"))
        run.record.code_lines[case.framework] = {**run.record.code_lines[case.framework], case.variant: lines}
    run.progress.ends_within(run.seconds_left)
    parts = [[family.name for family in part] for part in split(given.families)]
    common = run.record.result(cases[0]).details  # what is measured once stands with the first case
    common["split"] = dict(zip(("train", "validation"), parts, strict=True))
    # whose variant does not matter is done by the fastest one
    fastest = [replace(case, variant=run.record.auto[case.framework]) for case in cases]
    if "target" not in common and (reason := find_target(run, fastest[0], common, given.families)):
        result = run.record.result(cases[0])
        result.status, result.reason = "failed", reason
    if "target" not in common:
        return
    _Trainings(run, cases, common, given.options).measure()
    able = [fast for fast, case in zip(fastest, cases, strict=True) if run.record.result(case).status == "ok"]
    if able:
        leave_families_out(run, able[0], common, given)


def _usable(run: "Run", cases: Sequence[Case]) -> list[Case]:
    """The cases of frameworks whose package of models is there."""
    for case in {case.framework: case for case in cases}.values():
        reply = run.ask("call", case, expected=0.0, function=worker.package_problem)
        problem = reply.details.get("problem", reply.reason)
        if problem:
            run.record.missing[case.framework] = f"{FRAMEWORKS[case.framework]} cannot train here: {problem}"
    usable = [case for case in cases if case.framework not in run.record.missing]
    if not usable:
        raise UnusableInput("; ".join(run.record.missing.values()))
    return usable


class _Trainings:
    """The trainings whose time is taken."""

    def __init__(self, run: "Run", cases: Sequence[Case], common: dict[str, Any], options: Mapping[str, Any]) -> None:
        self._run, self._cases, self._common, self._options = run, cases, common, options
        self._took: dict[Case, float] = {}  # seconds of a case's last process

    def measure(self) -> None:
        """A process of each case for each seed, and of each case a training to its early stop."""
        left_out = []
        for number in range(self._options["seeds"]):
            for case in self._cases[::-1] if number % 2 else self._cases:
                result = self._run.record.result(case)
                if result.status != "ok" or str(number) in result.details["trainings"]:
                    continue
                if self._run.seconds_left < self._took.get(case, 0.0):
                    left_out.append(f"seed {self.job(number).seed} of {case.name}")
                    continue
                began, cores = time.monotonic(), usable_cores()[: self._run.settings.threads]
                self._run.stop(case)  # and another variant of its framework, which has the same worker
                before = seconds_of_others(cores)
                self._process(result, number)
                self._note_others(number, time.monotonic() - began, before, seconds_of_others(cores))
                if str(number) in result.details["trainings"]:
                    if not number:
                        self._curve(result)
                elif self._run.seconds_left <= 0:
                    left_out.append(f"all of seed {self.job(number).seed} of {case.name}")
                self._run.stop(case)
                self._took[case] = time.monotonic() - began
                self._run.keep()
            self._compare_weights(number)
        for result in map(self._run.record.result, self._cases):
            if result.status == "ok" and result.details["trainings"] and "curve" not in result.details:
                if self._run.seconds_left > 0:
                    self._curve(result)  # a run was interrupted before it
                if "curve" not in result.details:
                    left_out.append(f"{result.case.name} {CURVE}")
        if left_out:
            self._run.note_no_room(", ".join(left_out))

    def _note_others(self, number: int, seconds: float, before: float | None, after: float | None) -> None:
        """Of a process: what other programs took of the cores meanwhile, of which the report warns."""
        others = None if before is None or after is None else max(0.0, after - before)
        self._run.record.generations.append(Generation(number, seconds, others))

    def _process(self, result: Result, number: int) -> None:
        """Everything of one process whose time is taken. An unfinished one leaves how far it came."""
        run, case = self._run, result.case
        process: dict[str, Any] = {}
        for name in (COLD, WARM):
            found = self._train(result, number, name, keeps_weights=name == COLD)
            if found is None:
                return
            process[name] = found
        job, train = self.job(number), self._common["split"]["train"]
        run.progress.begin(f"{case.name}, seed {job.seed}", 1)
        run.progress.step("single steps")
        reply = run.ask("call", case, function=worker.step_times, job=asdict(job), train=train, process=number)
        if reply.status == "ok":
            self._enter(result, number, process | dict(reply.details))
        else:
            self._fail(result, number, reply)

    def _curve(self, result: Result) -> None:
        """The first seed's training to its early stop, and what it has learned."""
        if self._train(result, 0, CURVE) is not None:
            name = _name(result.case, 0, CURVE)
            reply = self._run.ask("call", result.case, function=worker.learned, name=name, process=0)
            result.details["curve"] = {**result.details.pop("under way"), **reply.details}

    def _fail(self, result: Result, number: int, reply: Reply) -> None:
        """A process that failed after others did not costs only itself."""
        result.status, result.reason = reply.status, reply.reason
        if result.details["trainings"]:
            self._run.record.excuse(result, number + 1)

    def _enter(self, result: Result, number: int, process: dict[str, Any]) -> None:
        """A finished process into the result: its times as every question has them, the rest as details."""
        result.details["trainings"][str(number)] = process
        cold = process[COLD]
        result.cold.append(Compilation(cold["first_step"]))
        rounds = process["rounds"]
        result.blocks += [Block(number, place, (own["step"],)) for place, own in enumerate(rounds)]
        peaks = [own[COLD]["peak_bytes"] for own in result.details["trainings"].values()]
        result.peak_bytes = None if None in peaks else max(peaks)
        result.details.pop("under way", None)
        self._run.keep()

    def job(self, number: int) -> Job:
        """The training of a seed."""
        model, epochs = self._options["model"], self._options["epochs"]
        seed, target = self._run.settings.seed + number, self._common["target"]["quality"]
        return Job(model=model, seed=seed, epochs=epochs, target=target)

    def _train(self, result: Result, number: int, name: str, keeps_weights: bool = False) -> dict[str, Any] | None:
        """A training to the target, or to its early stop; None if it was not finished."""
        run, case, job = self._run, result.case, self.job(number)
        path = checkpoint(run, f"{case.framework}-{case.variant}-{job.model}-seed-{job.seed}")
        own = {"name": _name(case, number, name), "process": number}
        start = {"job": asdict(job), "split": self._common["split"], "is_anew": name == COLD}
        start["checkpoint"] = None if name == WARM else str(path)
        goal = self._common["target"]["quality"]
        run.progress.begin(f"{case.name}, seed {job.seed}, {name}", job.epochs)
        reply = run.ask("call", case, function=worker.begin, **own, **start)
        run.progress.skip(len(reply.details.get("history", ())))
        found: dict[str, Any] = {"peak_bytes": 0, "tracing": 0.0, "compiling": 0.0}
        while reply.status == "ok":
            state = reply.details
            result.details["under way"] = {"seed": number, "name": name, "history": state["history"]}
            is_reached = state["reached"] is not None and name != CURVE
            if state["is_finished"] or is_reached:
                return found | {key: state[key] for key in ("history", "reached")}
            if run.seconds_left <= 0 and (state["history"] or name != COLD):
                return None
            so_far = f": quality {state['best_quality']:.3f} of {goal:.3f} so far" if state["history"] else ""
            run.progress.step(name + so_far)
            reply = run.ask("call", case, function=worker.epoch, **own, keeps_weights=keeps_weights)
            _add(found, reply.details)
            run.keep()
            run.progress.results(run.record)
        self._fail(result, number, reply)
        return None

    def _compare_weights(self, number: int) -> None:
        """How far the frameworks' weights are apart after the last epoch that both have trained cold."""
        for variant in dict.fromkeys(case.variant for case in self._cases):
            own = [self._run.record.result(case) for case in self._cases if case.variant == variant]
            histories = [r.details["trainings"].get(str(number), {}).get(COLD, {}).get("history", []) for r in own]
            compared = self._common.setdefault("apart", {}).setdefault(variant, {})
            if len(own) < 2 or not all(histories) or str(number) in compared:
                continue
            last = min(map(len, histories))
            paths = [worker.weights_file(self._run.folder, _name(r.case, number, COLD), last) for r in own]
            if not all(path.exists() for path in paths):
                seed = f"seed {self.job(number).seed} of {variant}"
                self._run.record.note(f"{seed}: weights were not compared: the run was resumed between frameworks")
                continue
            first, second = (dict(np.load(path).items()) for path in paths)
            apart = max(float(np.abs(first[key] - second[key]).max()) for key in first)
            steps = sum(epoch["steps"] for epoch in histories[0][:last])
            losses = [abs(one["loss"] - other["loss"]) for one, other in zip(*histories, strict=False)]
            compared[str(number)] = {
                "epochs": last,
                "steps": steps,
                "weights": apart,
                "largest": max(float(np.abs(value).max()) for value in first.values()),
                "losses": max(losses),
            }


def _name(case: Case, number: int, name: str) -> str:
    """Of a training in its worker; one goes on to its early stop under the name that it has had so far."""
    return f"{case.framework} {case.variant} {number} {COLD if name == CURVE else name}"


def _add(found: dict[str, Any], details: Mapping[str, Any]) -> None:
    """What an epoch took, to what those before it took."""
    found["peak_bytes"] = None if details.get("peak_bytes") is None else max(found["peak_bytes"], details["peak_bytes"])
    for name in ("tracing", "compiling"):
        own = details.get(name)
        found[name] = None if own is None or found[name] is None else found[name] + own
    found |= {name: details.get(name) for name in ("first_step", "shapes")}
