"""The question of CUDA graphs: its cases, and what its workers are told."""

import os

from shared.bench.cases import Settings
from shared.bench.questions import QUESTIONS
from shared.bench.questions.graphs import DEFAULT, GRAPHS
from shared.variants import Abilities


def test_compiled_loops_are_timed_both_ways():
    settings = Settings("graphs", device="cuda", passes=("score",), input="random")
    torch = Abilities("fused", uncompiled_variants={"wavefront": "it is one operator already"})
    cases, _ = QUESTIONS["graphs"].cases(settings, {"jax": Abilities("fused"), "torch": torch}, ["100x150"])
    assert [(case.framework, case.variant, case.label) for case in cases] == [
        (framework, variant, label)
        for framework, variant in (("jax", "vmap"), ("torch", "vmap"), ("jax", "wavefront"))
        for label in (DEFAULT, GRAPHS)
    ]
    starts = QUESTIONS["graphs"].starts(settings)
    for framework in ("jax", "torch"):
        assert starts[framework, DEFAULT].environment == {"TORCHINDUCTOR_CUDAGRAPHS": "0"}
        env = starts[framework, GRAPHS].environment
        assert "=+WHILE " in env["XLA_FLAGS"] and env["XLA_FLAGS"].startswith(os.environ.get("XLA_FLAGS", "").strip())
        assert env["TORCHINDUCTOR_CUDAGRAPHS"] == "1"
