"""Which function transforms work on which variant, and what does the framework say where one does not?

Every transform (shared/transforms.py) is run on every variant, on a small ragged batch of each alignment, and its
result is compared with the NumPy reference. No time is taken.
"""

import importlib
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import product
from textwrap import fill
from typing import Any, cast

import numpy as np

from shared.bench.cases import FRAMEWORKS, Case, Settings
from shared.bench.questions.question import AbilitiesByFramework, Cases, Question
from shared.bench.record import Record
from shared.bench.report.tables import Answer, Statement, Table, left_then_right
from shared.bench.run.context import Run
from shared.bench.units import NOTHING
from shared.bench.worker.case_runner import CaseRunner
from shared.checks import CannotDifferentiate
from shared.problems import Inputs, problem_of
from shared.problems.alignment_inputs import AlignmentInputs
from shared.problems.alignments import AlignmentProblem
from shared.problems.own_file import first_line
from shared.transforms import TRANSFORMS, Given, fault, on_device, wanted
from shared.variants import FASTEST, FOR_GPUS, Abilities, variant_names

SIZE, PAIRS = (2, 3), 4  # which transforms work does not depend on them, and unrolled loops compile faster when small
# what becomes of a transform on a variant
RIGHT, WRONG, RAISES, FAILED = "right", "wrong", "raises", "failed"
_WORDS = {RIGHT: "yes", WRONG: "WRONG", FAILED: "FAILED"}


class Transforms(Question):
    """The question `transforms`: which transforms are right on which variant."""

    name = "transforms"
    asks = "which transforms (grad of grad, vmap, jvp, export, compile) are right on which variant"
    takes = ("size",)
    only_alignments, only_random, default_input = True, True, "random"
    only_passes, which_passes = ("score",), slice(1)
    default_budget = 570.0
    times_rounds = False
    takes_every_alignment = True

    def inputs(self, settings: Settings) -> dict[str, Inputs]:
        return {name: ragged_batch(settings, name) for name in (settings.problem, *settings.more_problems)}

    def is_default(self, settings: Settings, framework: str, variant: str, abilities: Abilities) -> bool:
        return settings.device != "cpu" or variant not in FOR_GPUS

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        return [False]  # compiling is one of the transforms

    def cases(self, settings: Settings, abilities: AbilitiesByFramework, inputs: Sequence[str]) -> Cases:
        cases, absent = super().cases(settings, abilities, inputs)
        return [replace(case, problem=case.input) for case in cases], absent

    def measure(self, run: Run, cases: list[Case], inputs: dict[str, Any]) -> None:
        """Try all transforms of all cases that have no outcome yet, both frameworks at once, within the budget."""
        expected = {name: wanted(name, given_of(batch), **batch.own_options) for name, batch in inputs.items()}
        for name, batch in inputs.items():
            run.write(f"{name}.inputs", batch)
        lock, stopped = threading.Lock(), threading.Event()
        run.progress.begin("transforms", len(cases))
        # variants that "auto" may pick take little of the time, PyTorch's scans most
        order, names = variant_names(run.settings.problem), list(inputs)
        ordered = sorted(cases, key=lambda c: (c.variant not in FASTEST, names.index(c.input), order.index(c.variant)))
        of_each = [[case for case in ordered if case.framework == name] for name in FRAMEWORKS]
        with ThreadPoolExecutor(len(of_each)) as pool:
            tried = [pool.submit(_try_cases, run, part, expected, lock, stopped) for part in of_each]
            try:
                for future in tried:
                    future.result()
            except BaseException:
                stopped.set()
                while wait(tried, timeout=0.1).not_done:  # what is being tried ends at once
                    run.stop()
                raise

    def answer(self, record: Record) -> Answer:
        every = [outcomes for name in FRAMEWORKS if (outcomes := _Outcomes(record, name)).variants]
        tables = [_table(record, outcomes) for outcomes in every]
        tables += [_errors(outcomes) for outcomes in every if outcomes.errors]
        statements = [Statement("WRONG", f"{r.case.title}: {r.reason}") for r in record.results if r.status == WRONG]
        return Answer(tables, statements + [Statement(outcomes.title, _advice(outcomes)) for outcomes in every])


QUESTION = Transforms()


def ragged_batch(settings: Settings, name: str) -> AlignmentInputs:
    """A problem's batch: a full pair, one without rows, a single cell, random lengths; NaN outside."""
    problem = problem_of(name)
    assert isinstance(problem, AlignmentProblem)
    count, size = settings.batch or PAIRS, settings.size or SIZE
    full = problem.inputs_of_size(replace(settings, batch=count), size)
    drawn = np.random.default_rng(settings.seed).integers(1, np.add(size, 1), size=(count, 2))
    lengths = np.array([size, (0, size[1]), (1, 1), *drawn], dtype=np.int32)[:count]
    outside = (np.indices(size)[:, None] >= lengths.T[:, :, None, None]).any(axis=0)
    # -2 to 2 in steps of 1/16, which bfloat16 holds exactly
    similarity = np.where(outside, np.nan, np.round(64 * full.similarity - 32) / 16).astype(full.similarity.dtype)
    text = f"{name}, {count} random pairs of up to {size[0]} x {size[1]}, NaN in the padding, seed {settings.seed}"
    return replace(full, text=text, similarity=similarity, lengths=lengths)


def given_of(inputs: AlignmentInputs) -> Given:
    """The arrays of a batch: each parameter grows from its value, for the first pair, to 1.5 times it.

    Gaps by position are as they are.
    """
    dtype, random = inputs.similarity.dtype, np.random.default_rng(inputs.seed)
    factors = np.linspace(1.0, 1.5, inputs.pairs)
    parameters = {name: (value * factors).astype(dtype) for name, value in inputs.parameters.items()}
    cotangent = random.uniform(0.5, 1.5, inputs.pairs).astype(dtype)
    return Given(inputs.similarity, inputs.lengths, parameters | inputs.gaps, cotangent, inputs.weights)


def transforms_of(framework: str) -> list[str]:
    """The names of those that a framework has."""
    return [name for name, transform in TRANSFORMS.items() if getattr(transform, framework) is not None]


def _try_cases(run: Run, cases: Sequence[Case], expected: Any, lock: threading.Lock, stopped: threading.Event) -> None:
    """Try the transforms of one framework's cases. expected: results by problem and by what a transform gives."""
    for case in cases:
        with lock:
            run.progress.step(case.title)
        result = run.record.result(case)
        outcomes = result.details.get("outcomes", {})
        for name in transforms_of(case.framework):
            if outcomes.get(name, {}).get("outcome", FAILED) != FAILED:  # what failed may not fail again
                continue
            limit = min(run.settings.compile_limit, run.seconds_left)
            if limit <= 0 or stopped.is_set():
                return
            arguments = {"transform": name, "expected_result": expected[case.input][TRANSFORMS[name].gives]}
            reply = run.ask("call", case, limit=limit, function=attempt, **arguments)
            if stopped.is_set() or (reply.status == "limit" and limit < run.settings.compile_limit):
                return
            outcome = dict(reply.details) or {"outcome": reply.status, "text": reply.reason}
            # an error of the framework's own may leave it in a state in which the next transform fails too
            if outcome["outcome"] == RAISES and not outcome["text"].startswith(CannotDifferentiate.__name__):
                run.stop(case)
            with lock:
                outcomes[name] = outcome  # perhaps out of order: a resumed record may lack new transforms
                result.details["outcomes"] = {n: outcomes[n] for n in transforms_of(case.framework) if n in outcomes}
                for status in (FAILED, WRONG):
                    if faults := [f"{n}: {o['text']}" for n, o in outcomes.items() if o["outcome"] == status]:
                        result.status, result.reason = status, "; ".join(faults)
                run.keep()


def attempt(runner: CaseRunner, case: Case, transform: str, expected_result: np.ndarray) -> dict[str, Any]:
    """Try a transform in a worker; return the outcome, and the fault or the error."""
    backend, inputs = runner.backend, cast(AlignmentInputs, runner.gate.inputs(case.input))
    package = importlib.import_module(f"{case.framework}_impl.transformed")
    runner.build(case, inputs.options)
    backend.forget_compiled()

    def run() -> np.ndarray:
        function = backend.function(case.problem, case.variant, inputs.own_options)
        arguments = on_device(given_of(inputs), lambda array: backend.to_device(array, case.device))
        return backend.to_numpy(backend.wait(package.transformed(transform, function, arguments)))

    with runner.compilers(case, runner.folder / "compiled"):
        try:
            result = run()
        except Exception as error:
            return {"outcome": RAISES, "text": f"{type(error).__name__}: {first_line(str(error))}"[:300]}
    difference = fault(TRANSFORMS[transform].gives, result, expected_result)
    return {"outcome": WRONG if difference else RIGHT, "text": difference}


class _Outcomes:
    """The outcomes of one framework as words, and its errors by text."""

    def __init__(self, record: Record, framework: str) -> None:
        self.framework, self.title, names = framework, FRAMEWORKS[framework], transforms_of(framework)
        results = [r for r in record.results if r.case.framework == framework and r.details.get("outcomes")]
        tried = {result.case.variant for result in results}
        self.variants = [name for name in variant_names(record.settings.problem) if name in tried]
        self.written = {name: getattr(TRANSFORMS[name], framework) for name in names}  # as the framework writes it
        self.errors: dict[str, dict[str, dict[str, None]]] = {}  # text -> variant -> its problems
        self.problems: dict[str, set[str]] = {name: set() for name in self.variants}  # on which a variant was tried
        self.words: dict[tuple[str, str], dict[str, str]] = {}  # by transform and variant, of each problem
        for name, variant in product(names, self.variants):
            words = self.words[name, variant] = {}
            for case, outcomes in ((r.case, r.details["outcomes"]) for r in results if r.case.variant == variant):
                if name in outcomes:
                    words[case.input] = self._word(variant, case.input, **outcomes[name])
                    self.problems[variant].add(case.input)

    def _word(self, variant: str, problem: str, outcome: str, text: str) -> str:
        if outcome != RAISES:
            return _WORDS.get(outcome, text)
        text = text.replace(f"variant {variant!r}", "variant …")  # the same for all variants
        self.errors.setdefault(text, {}).setdefault(variant, {})[problem] = None
        return f"E{list(self.errors).index(text) + 1}"

    def cell(self, name: str, variant: str) -> str:
        """Return the outcome of a transform on a variant: one for all problems, or all that occur."""
        return " / ".join(dict.fromkeys(self.words[name, variant].values())) or NOTHING


def _table(record: Record, outcomes: _Outcomes) -> Table:
    """A row for each transform that some variant does not do, a column for each variant."""
    title, variants, names, problems = outcomes.title, outcomes.variants, outcomes.written, list(record.inputs)
    rows = [(written, *(outcomes.cell(name, variant) for variant in variants)) for name, written in names.items()]
    right = [row[0] for row in rows if set(row[1:]) == {"yes"}]
    rows = [row for row in rows if row[0] not in right] + [("every other", *["yes"] * len(variants))] * bool(right)
    below = [*[f"Every other: {'; '.join(right)}."] * bool(right),
             f"yes: equal to the NumPy reference, for {', '.join(problems)}",
             f"E1, …: an error, see below; two outcomes: they differ by alignment; {NOTHING}: not tried."]  # fmt: skip
    for problem in problems:
        if lacking := [how for how in variants if any(problem not in outcomes.words[name, how] for name in names)]:
            below.append(f"Not fully tried for {problem} within the budget: {', '.join(lacking)}.")
    below += dict.fromkeys(f"Not built: {r.title}: {r.reason}." for r in record.absent if r.title.startswith(title))
    version = record.environment.get("frameworks", {}).get(outcomes.framework, {}).get(outcomes.framework, "")
    headers = ("transform", *(variant.replace("_", "\n") for variant in variants))
    return Table(
        f"{title} {version}: which transforms work", headers, rows, left_then_right(len(headers), 0), (*below,)
    )


def _errors(outcomes: _Outcomes) -> Table:
    """Each error once, with the variants that raise it, and on which problems where it is not raised on all tried."""
    rows = []
    for number, (text, variants) in enumerate(outcomes.errors.items(), 1):
        names = [
            variant if len(problems) == len(outcomes.problems[variant]) else f"{variant} ({', '.join(problems)})"
            for variant, problems in variants.items()
        ]
        cell = fill(", ".join(names), 12, break_long_words=False)
        rows.append((f"E{number}", cell, fill(text, 68, break_long_words=False, break_on_hyphens=False)))
    return Table(f"What {outcomes.title} says", ("", "variants", "error"), rows, left_then_right(3, 0))


def _advice(outcomes: _Outcomes) -> str:
    """Recommend the last variant of the ladder, and others for transforms that it lacks."""
    *earlier, best = outcomes.variants
    cells = {name: outcomes.cell(name, best) for name in outcomes.written}
    instead: dict[str, list[str]] = {}
    for name, written in outcomes.written.items():
        if cells[name] not in ("yes", NOTHING):
            able = [variant for variant in earlier if outcomes.cell(name, variant) == "yes"]
            instead.setdefault(able[-1] if able else "", []).append(written)
    nobody = instead.pop("", [])
    parts = [f"take {best}" if instead or not nobody else f"take {best} where it works"]
    parts += [f"for {' and '.join(names)} take {variant}" for variant, names in instead.items()]
    parts += [f"none of these variants does {', '.join(nobody)}"] if nobody else []
    return f"{'of what was tried: ' if NOTHING in cells.values() else ''}{'; '.join(parts)}."
