"""Records made by hand, one of each kind that a report must show."""

from dataclasses import replace

import numpy as np
from shared.bench.plan import Absence, Case, Settings
from shared.bench.statistics import Block

from shared.bench.record import Compilation, Facts, Gate, Record, Result, WarmUp

# one of everything that HTML, SVG, Markdown or matplotlib could take for its own
HOSTILE = "<script>alert(1)</script> & \"x\" $a_b$ | * ` </style> --> \\ [y](z) &lt; 'q'"
VARIANTS = ("vmap", "wavefront", "fused")
FRAMEWORKS = ("jax", "torch")
WORK = 2_678_757
# seconds of a call, and of the first one
_SECONDS = {"vmap": 0.16, "wavefront": 0.054, "fused": 0.0022}
_COLD = {"vmap": 0.6, "wavefront": 0.5, "fused": 0.04}
_SLOWER = {"jax": 1.0, "torch": 1.14}
_UNCOMPILED = {("torch", "wavefront"), ("torch", "fused")}
_PASSES = {"score": 1.0, "marginals": 2.6}


def facts(text: str = "bundled globins, BLOSUM62, 120 pairs of 16 proteins, up to 190 x 190") -> Facts:
    """Of an input."""
    parameters, options = {"gap": -1.0, "temperature": 1.0}, {"end": "any"}
    return Facts(text, (120, 190, 190), 120, WORK, parameters, options, "5f" * 32)


def case(framework: str, variant: str, pass_name: str = "score", **others: object) -> Case:
    """A case on the CPU; others: its fields."""
    compiled = (framework, variant) not in _UNCOMPILED
    made = Case(framework, variant, pass_name, compiled, "batch", "smith_waterman", "cpu", "float32")
    return replace(made, **others)  # pyright: ignore[reportArgumentType]


def blocks(seconds: float, seed: int, workers: int = 4, rounds: int = 5, noise: float = 0.03) -> list[Block]:
    """Samples with noise of each worker, round and call."""
    generator = np.random.default_rng(seed)
    made = []
    for worker in range(workers):
        worker_factor = 1 + noise * generator.standard_normal()
        for round_ in range(rounds):
            factors = worker_factor * (1 + noise * np.abs(generator.standard_normal(6)))
            made.append(Block(worker, round_, tuple(float(seconds * factor) for factor in factors)))
    return made


def result(
    of: Case, seconds: float, seed: int, work: int = WORK, peak_bytes: int = 25 * 2**20, noise: float = 0.03
) -> Result:
    """A case that was measured."""
    cold = _COLD.get(of.variant, 1.0) * (8 if of.framework == "torch" and of.compiled else 1)
    split = {"tracing": cold * 0.3, "compiling": cold * 0.6} if of.framework == "jax" else {}
    return Result(
        of,
        gate=Gate("score off by 1.0e-06, allowed 1.0e-05", 0.11, "NumPy", 8),
        build_seconds=20.0 if of.variant == "fused" else 0.0,
        cold=Compilation(cold, **split),
        retrace=Compilation(cold / 2) if of.variant != "fused" else None,
        retrace_note=None if of.variant != "fused" else "it does not compile",
        warm=[Compilation(cold / 4), Compilation(cold / 4.1)],
        warm_up=[WarmUp(3, True), WarmUp(8, True)],
        peak_bytes=peak_bytes,
        input_bytes=17 * 2**20,
        output_bytes=480 if of.pass_name == "score" else 17 * 2**20,
        work=work,
        blocks=blocks(seconds, seed, noise=noise),
    )


def record(results: list[Result], **others: object) -> Record:
    """A finished run on an invented machine; others: its fields."""
    frameworks = {
        "jax": {"jax": "0.10.2", "threads": 1, "compiler_start_seconds": 0.0956},
        "torch": {"torch": "2.13.0", "threads": 1, "compiler_start_seconds": 8.84},
    }
    environment = {
        "cpu": "Abacus 9 with 16 beads",
        "cores": 2,
        "system": "Linux-6.1-x86_64",
        "python": "3.11.7",
        "numpy": "2.4.6",
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "bandwidth_bytes_per_second": 11.3e9,
        "frameworks": frameworks,
    }
    made = Record(
        "python compare.py --report report.html",
        Settings(),
        "2026-05-04T10:00:00+00:00",
        "2026-05-04T10:05:12+00:00",
        {"batch": facts()},
        environment,
        auto=dict.fromkeys(FRAMEWORKS, "fused"),
        results=results,
        speed=blocks(0.005, 99, noise=0.03),
        seconds=312.0,
    )
    return replace(made, **others)  # pyright: ignore[reportArgumentType]


def plain() -> Record:
    """Two frameworks, three variants, two passes."""
    results = [
        result(
            case(framework, variant, pass_name),
            _SECONDS[variant]
            * _SLOWER[framework]
            * (1.0 if (variant, pass_name) != ("fused", "score") else 1 / factor),
            seed + 30,
            # so little that what does not differ is seen not to differ
            noise=0.005,
        )
        for seed, (pass_name, variant, framework, factor) in enumerate(
            (pass_name, variant, framework, _SLOWER[framework])
            for pass_name in _PASSES
            for variant in VARIANTS
            for framework in FRAMEWORKS
        )
    ]
    absent = [Absence("torch", "PyTorch vmap hvp", "PyTorch's scan operator has wrong second derivatives")]
    notes = ["the machine was shared with others while this was measured"]
    return record(results, absent=absent, notes=notes, references={("batch", "score"): [31.0, 30.5]})


def ladder() -> Record:
    """Every rung once, compiled and not, on the single pair and the batch."""
    rungs = {
        "single": ("cell_loop", "diagonal_loop", "scan_cond", "scan_select", "wavefront", "fused"),
        "batch": ("batch_loop", "vmap", "wavefront", "fused"),
    }
    results = []
    for input_name, variants in rungs.items():
        for pass_name in _PASSES:
            for step, variant in enumerate(variants):
                for framework in FRAMEWORKS:
                    for compiled in (False, True):
                        of = case(framework, variant, pass_name, input=input_name, compiled=compiled)
                        seconds = 4.0 / 6**step / (3 if compiled else 1) * _PASSES[pass_name] * _SLOWER[framework]
                        made = result(of, seconds, 0)
                        made.blocks = [Block(0, 0, (seconds,))]
                        made.warm, made.warm_up, made.retrace, made.retrace_note = [], [], None, None
                        results.append(made)
    late = next(r for r in results if r.case.variant == "cell_loop" and r.case.compiled)
    late.status, late.reason, late.blocks = "limit", "> 120 s", []
    return record(
        results,
        settings=Settings(ladder=True),
        inputs={"single": facts("bundled globins, one pair: HBA and HBB"), "batch": facts()},
        references={("single", "score"): [0.31, 0.30], ("single", "marginals"): [0.9, 0.89]},
    )


def sweep(sizes: tuple[tuple[int, int], ...] = ((32, 32), (64, 64), (256, 256), (1024, 1024))) -> Record:
    """Sizes, each an input of its own."""
    results, inputs = [], {}
    for rows, cols in sizes:
        work = 16 * rows * cols
        text = f"random similarity, seed 0, 16 pairs of {rows} x {cols}"
        inputs[f"{rows}x{cols}"] = replace(facts(text), shape=(16, rows, cols), pairs=16, work=work)
        for pass_name, factor in _PASSES.items():
            for variant in VARIANTS:
                for framework in FRAMEWORKS:
                    of = case(framework, variant, pass_name, input=f"{rows}x{cols}")
                    # a fixed price for each call, so that the lines bend
                    seconds = factor * (
                        _SECONDS[variant] * work / WORK * _SLOWER[framework] + 4e-5 / _SLOWER[framework]
                    )
                    made = result(of, seconds, len(results), work, 2 * work)
                    made.input_bytes, made.output_bytes = 4 * work, 64 if pass_name == "score" else 4 * work
                    results.append(made)
    return record(
        results,
        settings=Settings(input="random", sweep=sizes),
        inputs=inputs,
        resumed_by=["python compare.py --resume"],
    )


def troubled() -> Record:
    """Cases that were wrong, that failed and that took too long among others that were measured."""
    made = plain()
    ends = (
        ("wrong", "score off by 2.0e+00 for pair 3, allowed 1.0e-05"),
        ("failed", "RuntimeError: out of memory"),
        ("limit", "> 120 s"),
    )
    for entry, (status, reason) in zip(made.results, ends, strict=False):
        entry.status, entry.reason, entry.blocks = status, reason, []
    made.results[0].gate = Gate(ends[0][1], None, "NumPy", 8)
    return made


def alone() -> Record:
    """A run with one framework."""
    made = plain()
    made.results = [entry for entry in made.results if entry.case.framework == "jax"]
    made.settings, made.missing = Settings(frameworks=("jax", "torch")), {"torch": "PyTorch is not installed"}
    del made.environment["frameworks"]["torch"], made.auto["torch"]
    return made


def interrupted() -> Record:
    """A run that ended before it began."""
    return Record("python compare.py")


def begun() -> Record:
    """A run that ended before anything was measured."""
    return record([], finished=None, speed=[], seconds=0.4)


def hostile() -> Record:
    """Text that is none of ours everywhere it can be."""
    made = plain()
    assert made.settings is not None
    made.command = f"python compare.py --input '{HOSTILE}' ```` ~~~"
    made.resumed_by = [HOSTILE]
    made.settings = replace(made.settings, input=HOSTILE, matrix=HOSTILE, arguments={HOSTILE: HOSTILE})
    made.inputs = {HOSTILE: replace(facts(HOSTILE), parameters={HOSTILE: 1.0}, options={HOSTILE: HOSTILE})}
    made.environment |= {"cpu": HOSTILE, HOSTILE: {HOSTILE: [HOSTILE, "line\nbreak \x1b[31m\udc80"]}}
    made.environment["frameworks"]["jax"] = {"jax": HOSTILE, "gpu": HOSTILE}
    made.notes = [HOSTILE, f"# {HOSTILE}\n- {HOSTILE}"]
    made.missing = {"torch": HOSTILE}
    made.absent = [Absence("torch", HOSTILE, HOSTILE)]
    made.references = {(HOSTILE, HOSTILE): [1.0]}
    for entry in made.results:
        entry.case = replace(entry.case, input=HOSTILE)
        entry.gate = Gate(HOSTILE, 0.1, HOSTILE, 8)
        if entry.case.variant == "vmap":
            entry.case = replace(entry.case, variant=HOSTILE)
        if entry.case.variant == "wavefront":
            entry.status, entry.reason, entry.blocks = "failed", f"{HOSTILE}\n{HOSTILE}", []
        if entry.retrace_note:
            entry.retrace_note = HOSTILE
    return made
