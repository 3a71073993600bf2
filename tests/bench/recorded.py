"""Records made by hand, one of each kind that a report must show."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hand_made
import numpy as np
from hand_made import case, ended

from shared.bench.cases import Absence, Case, Settings
from shared.bench.estimates import Block
from shared.bench.record import FirstCall, Gate, InputFacts, Record, ReferenceTime, Result

# special characters of HTML and Markdown
HOSTILE = "<script>alert(1)</script> & \"x\" $a_b$ | * ` \\ [y](z) &lt; 'q'"
VARIANTS = ("vmap", "wavefront", "fused")
FRAMEWORKS = ("jax", "torch")
# seconds of a call, and of the first one
_SECONDS = {"vmap": 0.16, "wavefront": 0.054, "fused": 0.0022}
_COLD = {"vmap": 0.6, "wavefront": 0.5, "fused": 0.04}
_SLOWER = {"jax": 1.0, "torch": 1.14}
_PASSES = {"score": 1.0, "marginals": 2.6}
_UNCOMPILED = {"fused": "one operator already"}  # of PyTorch


def _blocks(seconds: float, seed: int) -> list[Block]:
    """Samples with noise: 4 workers, 5 rounds, 6 calls."""
    noise = 1 + 0.005 * np.abs(np.random.default_rng(seed).standard_normal((4, 5, 6)))
    return [Block.of(worker, round_, list(seconds * noise[worker, round_])) for worker, round_ in np.ndindex(4, 5)]


def _result(of: Case, seconds: float, seed: int) -> Result:
    """A case that was measured."""
    cold = _COLD.get(of.variant, 1.0) * (8 if of.framework == "torch" and of.compiled else 1)
    split = {"tracing": cold * 0.3, "compiling": cold * 0.6} if of.framework == "jax" else {}
    return Result(
        of,
        gate=Gate("score off by 1.0e-06, allowed 1.0e-05", 0.11, "NumPy", 2),
        build_seconds=20.0 if of.variant == "fused" else 0.0,
        cold=[FirstCall(cold, **split)],
        early_seconds=seconds,
        new_shapes=[[cold / 2, cold / 4]] if of.variant != "fused" else [],
        new_shapes_note=None if of.variant != "fused" else "it does not compile",
        warm=[cold / 4, cold / 4.1],
        settled=[True, True],
        peak_bytes=25 * 2**20,
        input_bytes=17 * 2**20,
        output_bytes=480,
        work=hand_made.WORK,
        blocks=_blocks(seconds, seed),
    )


def _measured(input_name: str = "batch", scale: float = 1.0) -> list[Result]:
    """Two passes, three variants, two frameworks. JAX takes 1/1.14 of the time, but as long for the fused score."""
    results = []
    for pass_name, slower in _PASSES.items():
        for variant in VARIANTS:
            for framework in FRAMEWORKS:
                compiled = framework == "jax" or variant not in _UNCOMPILED
                of = case(framework, variant, pass_name, compiled, input=input_name)
                ratio = 1.0 if (variant, pass_name) == ("fused", "score") else _SLOWER[framework]
                results.append(_result(of, scale * slower * _SECONDS[variant] * ratio, 30 + len(results)))
    return results


def plain() -> Record:
    """Speed: two frameworks, three variants, two passes."""
    return hand_made.record(
        *_measured(),
        settings=Settings(),
        absent=[Absence("torch", "PyTorch vmap hvp", "PyTorch's scan operator has wrong second derivatives")],
        notes=["the machine was shared with others while this was measured"],
        references=[ReferenceTime("batch", "score", [31.0, 30.5])],
        uncompiled={"jax": {}, "torch": _UNCOMPILED},
        code_lines={"jax": {"vmap": 30, "wavefront": 130}, "torch": {"vmap": 25, "wavefront": 120}},
        calibration_seconds=_blocks(0.005, 99),
    )


def ladder() -> Record:
    """Every rung once, compiled and not, on one pair and a batch; the first did not finish compiling."""
    rungs = {"single": ("cell_loop", "scan_cond", "fused"), "batch": ("batch_loop", "vmap", "fused")}
    results = []
    for input_name, variants in rungs.items():
        for step, variant in enumerate(variants):
            for framework in FRAMEWORKS:
                for compiled in (False, True):
                    of = case(framework, variant, compiled=compiled, input=input_name)
                    seconds = 4.0 / 6**step / (3 if compiled else 1) * _SLOWER[framework]
                    results.append(Result(of, cold=[FirstCall(2 * seconds)], blocks=[Block.of(0, 0, [seconds])]))
    results[1] = ended(results[1].case, "limit", "> 120 s")
    references = [ReferenceTime(name, "score", [0.31, 0.30]) for name in rungs]
    return hand_made.record(*results, settings=Settings("ladder", passes=("score",)), references=references)


def growth() -> Record:
    """Speed over six sizes, each an input of its own."""
    sizes, results = ((1, 8, 8), (16, 32, 32), (1, 512, 512), (64, 32, 32), (128, 64, 64), (16, 256, 256)), []
    inputs = {}
    for size in sizes:
        pairs, rows, cols = size
        name, work = f"{pairs}x{rows}x{cols}", pairs * rows * cols
        inputs[name] = InputFacts(f"{pairs} pairs of {rows} x {cols}", size, pairs, work, {}, {}, "5f" * 32)
        results += _measured(name, scale=(100 + 10 * (rows + cols) + work) / 2e4)
    settings = Settings("growth", input="random", sizes=sizes)
    return hand_made.record(*results, settings=settings, inputs=inputs, resumed_by=["python compare.py --resume"])


def learning() -> Record:
    """Three trainings of each framework to a quality."""
    options = {"model": "matrix", "seeds": 3, "epochs": 20}
    return hand_made.record(
        *learned("jax", cold=10.0, warm=1.0),
        *learned("torch", cold=7.0, warm=5.0),
        settings=Settings("learning", problem="learn_alignment", passes=("train", "step"), arguments={"seeds": 3}),
        inputs={"data": InputFacts("3 families", (3, 9, 80), None, 300, {}, options, "5f" * 32)},
        auto={"jax": "fused", "torch": "fused"},
        code_lines={"jax": {"fused": 192}, "torch": {"fused": 163}},
    )


def learned(framework: str, cold: float, warm: float, seeds: int = 3) -> list[Result]:
    """Trainings of so many seeds that reach the quality in their second epoch, cold and warm, and their steps."""
    results = []
    for label, seconds in (("cold", cold), ("warm", warm)):
        took = [seconds * (1 + 0.01 * seed) for seed in range(seeds)]
        made = Result(
            case(framework, "fused", "train", framework == "jax", input="data", problem="learn_alignment", label=label),
            peak_bytes=2**28,
            blocks=[Block.of(seed, 0, [end]) for seed, end in enumerate(took)],
        )
        made.details["processes"] = [{"epochs": _epochs(end), "compiling": 3.0, "reached": True} for end in took]
        results.append(made)
    steps = [Block.of(seed, place, [0.02 * warm]) for seed in range(seeds) for place in range(3)]
    results.append(Result(replace(results[1].case, pass_name="step"), blocks=steps))
    results[2].details["processes"] = [{"alignment": 0.8}] * seeds
    for result in results:
        result.details["target"] = 0.6
    return results


def _epochs(seconds: float) -> list[dict[str, Any]]:
    return [{"number": n, "steps": 40, "loss": 1 / n, "quality": 0.4 * n, "seconds": seconds * n / 2} for n in (1, 2)]


def begun() -> Record:
    """A run that ended before anything was measured."""
    return hand_made.record(settings=Settings(), finished=None)


def hostile() -> Record:
    """Special characters in every text."""
    made = plain()
    made.command = f"python compare.py --input '{HOSTILE}'"
    made.settings = replace(made.settings, input=HOSTILE, matrix=HOSTILE, arguments={HOSTILE: HOSTILE})
    made.inputs = {HOSTILE: replace(hand_made.facts(HOSTILE), parameters={HOSTILE: 1.0}, options={HOSTILE: HOSTILE})}
    made.environment |= {"cpu": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE]}}
    made.environment["frameworks"]["jax"] = {"jax": HOSTILE, "gpu": HOSTILE}
    made.notes = [HOSTILE]
    made.missing = {"torch": HOSTILE}
    made.absent = [Absence("torch", HOSTILE, HOSTILE)]
    made.references = [ReferenceTime(HOSTILE, HOSTILE, [1.0])]
    made.uncompiled = {"torch": {"fused": HOSTILE}}
    for entry in made.results:
        entry.case = replace(entry.case, input=HOSTILE)
        entry.gate = Gate(HOSTILE, 0.1, HOSTILE, 2, HOSTILE)
        if entry.case.variant == "wavefront":
            entry.status, entry.reason, entry.blocks = "failed", f"{HOSTILE}\n{HOSTILE}", []
        if entry.new_shapes_note:
            entry.new_shapes_note = HOSTILE
    return made


EVERY_KIND: dict[str, Callable[[], Record]] = {
    make.__name__: make for make in (plain, ladder, growth, learning, hostile, begun)
}
