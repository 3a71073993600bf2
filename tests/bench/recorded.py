"""Records made by hand, one of each kind that a report must show."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hand_made
import numpy as np
from hand_made import case, ended

from shared.bench.cases import Absence, Case, Settings
from shared.bench.estimates import Block
from shared.bench.record import Compilation, Facts, Gate, Record, ReferenceTime, Result

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
        cold=[Compilation(cold, **split)],
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
        speed=_blocks(0.005, 99),
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
                    results.append(Result(of, cold=[Compilation(2 * seconds)], blocks=[Block.of(0, 0, [seconds])]))
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
        inputs[name] = Facts(f"{pairs} pairs of {rows} x {cols}", size, pairs, work, {}, {}, "5f" * 32)
        results += _measured(name, scale=(100 + 10 * (rows + cols) + work) / 2e4)
    settings = Settings("growth", input="random", sizes=sizes)
    return hand_made.record(*results, settings=settings, inputs=inputs, resumed_by=["python compare.py --resume"])


def troubled() -> Record:
    """Cases that were wrong, that failed and that took too long, beside others that were measured."""
    made = plain()
    ends = (
        ("wrong", "score off by 2.0e+00 for pair 3, allowed 1.0e-05"),
        ("failed", "RuntimeError: out of memory"),
        ("limit", "> 120 s"),
    )
    for entry, (status, reason) in zip(made.results, ends, strict=False):
        entry.status, entry.reason = status, reason
    made.results[0].gate = Gate(ends[0][1], None, "NumPy", 2)
    return made


def alone() -> Record:
    """A run with one framework."""
    made = plain()
    made.results = [entry for entry in made.results if entry.case.framework == "jax"]
    made.missing = {"torch": "PyTorch is not installed"}
    for known in (made.environment["frameworks"], made.auto, made.uncompiled, made.code_lines):
        del known["torch"]
    return made


def learning() -> Record:
    """Three trainings of each framework to a quality, and a family with a hostile name left out."""
    results = [
        learned("jax", cold=10.0, warm=1.0, matrix=True),
        learned("torch", cold=7.0, warm=5.0, matrix=True),
    ]
    settings = Settings("learning", problem="learn_alignment", passes=("train",), arguments={"seeds": 3})
    options = {"model": "matrix", "seeds": 3, "epochs": 20}
    results[0].details |= {
        "split": {"train": ["Kinase", "Globin"], "validation": [HOSTILE]},
        "target": {"quality": 0.6, "gap_open": -12.0, "gap_extend": -1.0, "temperature": 2.5, "at_edge": True},
        "apart": {
            "fused": {
                str(n): {"epochs": 2, "steps": 80, "weights": 1e-5, "largest": 3.0, "losses": 2e-6} for n in range(3)
            }
        },
        "folds": {HOSTILE: left_out(0.03), "Kinase": left_out(0.0), "Globin": left_out(-0.03)},
        "folds by": results[0].case.name,
    }
    soft = {name: ["f00", "0e1"] for name in ("start", "BLOSUM62", "learned")}
    picture = {"f1": 0.1, "family": HOSTILE, "soft": soft, "truth": [[0, 0], [1, 1]], "sequences": [HOSTILE, "b/1-3"]}
    return hand_made.record(
        *results,
        settings=settings,
        inputs={"data": Facts("3 families", (3, 9, 80), None, 300, {}, options, "5f" * 32)},
        auto={"jax": "fused", "torch": "fused"},
        code_lines={"jax": {"fused": 192}, "torch": {"fused": 163}},
        pictures={"data": picture | {"letters": ["AC", "ACD"]}},
    )


def learned(framework: str, cold: float, warm: float, seeds: int = 3, matrix: bool = False, **others: Any) -> Result:
    """Trainings of so many seeds that reach the quality in their second epoch, after so many seconds and a little."""

    def history(seconds: float) -> dict[str, Any]:
        epochs = [
            {"number": n, "steps": 40, "loss": 1 / n, "quality": 0.4 * n, "seconds": seconds * n / 2} for n in (1, 2)
        ]
        return {"history": epochs, "reached": {"epoch": 2, "seconds": seconds}, "is_finished": False}

    took = {"peak_bytes": 2**28, "tracing": 1.0, "compiling": 2.0, "first_step": 0.5, "shapes": 5}
    trainings = {
        str(n): {
            "cold": history(cold * (1 + 0.01 * n)) | took,
            "warm": history(warm * (1 + 0.01 * n)) | took,
            "rounds": [{"step": 0.02 * warm, "waited": 0.025 * warm, "alignment": 0.02 * warm}] * 3,
            "steps": 24,
        }
        for n in range(seeds)
    }
    curve = history(2 * cold) | {
        "matrix": (np.eye(20) - np.eye(20, k=1) - np.eye(20, k=-1)).tolist() if matrix else None,
        "gaps": [-4.0, -0.3],
    }
    of = case(framework, "fused", "train", framework == "jax", input="data", problem="learn_alignment")
    made = Result(
        of,
        cold=[Compilation(0.5, 0.2, 0.2)] * seeds,
        peak_bytes=2**28,
        blocks=[Block.of(n, place, [0.02 * warm]) for n in range(seeds) for place in range(3)],
        details={"trainings": trainings, "curve": curve},
    )
    return replace(made, **others)


def left_out(gain: float) -> dict[str, Any]:
    """What came of a family: the learned model's rates are so much higher, with an interval of +-0.01."""
    rates = {"recovered": [0.7, 0.6, 0.8], "precise": [0.6, 0.5, 0.7], "f1": [0.65, 0.55, 0.75]}
    ways = {"exact": rates, "soft": rates}
    choice = {"gap_open": -12.0, "gap_extend": -1.0, "temperature": 2.5}
    gains = {way: {key: [gain, gain - 0.01, gain + 0.01] for key in rates} for way in ways}
    return {
        "blosum": ways,
        "learned": ways,
        "gain": gains,
        "choice": {way: choice | {"at_edge": False} for way in ways},
        "pairs": 40,
        "epochs": 5,
    }


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
    make.__name__: make for make in (plain, ladder, growth, learning, troubled, alone, hostile, begun)
}
