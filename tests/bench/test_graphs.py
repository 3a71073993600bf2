"""The question of CUDA graphs: its cases, its answer, and what its workers are told."""

import os

from in_process import assert_refused, run_here

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.graphs import DEFAULT, GRAPHS
from shared.variants import Abilities

QUESTION = QUESTIONS["graphs"]


def test_a_cpu_and_other_problems_are_refused():
    assert_refused(run_here("graphs"), "graphs goes with --device cuda, got cpu: a CPU has no CUDA graphs")
    assert_refused(run_here("graphs", "--device", "cuda", "--problem", "stencil"), "not with stencil")


def test_compiled_loops_are_timed_both_ways():
    settings = Settings("graphs", device="cuda", passes=("score",), input="random")
    torch = Abilities("fused", uncompiled_variants={"wavefront": "it is one operator already"})
    cases, _ = QUESTION.cases(settings, {"jax": Abilities("fused"), "torch": torch}, ["100x150"])
    assert [(case.framework, case.variant, case.label) for case in cases] == [
        (framework, variant, label)
        for framework, variant in (("jax", "vmap"), ("torch", "vmap"), ("jax", "wavefront"))
        for label in (DEFAULT, GRAPHS)
    ]
    starts = QUESTION.starts(settings)
    for framework in ("jax", "torch"):
        assert starts[framework, DEFAULT].environment == {"TORCHINDUCTOR_CUDAGRAPHS": "0"}
        told = starts[framework, GRAPHS].environment
        assert "=+WHILE " in told["XLA_FLAGS"] and told["XLA_FLAGS"].startswith(os.environ.get("XLA_FLAGS", "").strip())
        assert told["TORCHINDUCTOR_CUDAGRAPHS"] == "1"
