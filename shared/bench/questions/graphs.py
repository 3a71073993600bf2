"""What do CUDA graphs gain for a compiled loop?

A loop of small kernels waits for the host, which launches one after the other; a CUDA graph launches many at once. JAX
makes them of loops where XLA is told to (command buffers with +WHILE; by default of straight-line code alone), PyTorch
where torch.compile is told to: TORCHINDUCTOR_CUDAGRAPHS=1 is the same as mode="reduce-overhead".
"""

import os
from collections.abc import Mapping, Sequence

from shared.bench.cases import Settings
from shared.bench.questions.axis_question import AxisQuestion
from shared.bench.run.plan import WorkerStart
from shared.problems.problem import UnusableInput
from shared.variants import Abilities

DEFAULT, GRAPHS = "by default", "as CUDA graphs"
# without the second flag XLA makes no graphs under a profiler, and device time would be that of single launches
_XLA_FLAGS = "--xla_gpu_enable_command_buffer=+WHILE --xla_enable_command_buffers_during_profiling=true"


class Graphs(AxisQuestion):
    """Compiled loops, launched kernel by kernel and as CUDA graphs."""

    name = "graphs"
    asks = "what do CUDA graphs gain for a compiled loop, in each framework"
    labels: Mapping[str, WorkerStart] = {
        DEFAULT: WorkerStart(environment={"TORCHINDUCTOR_CUDAGRAPHS": "0"}),
        GRAPHS: WorkerStart(
            environment={
                "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {_XLA_FLAGS}".strip(),
                "TORCHINDUCTOR_CUDAGRAPHS": "1",
            }
        ),
    }
    axis, change = "launches", "gain"
    only_alignments = True
    below = (
        f"As CUDA graphs: JAX with XLA_FLAGS={_XLA_FLAGS}, PyTorch with torch.compile's mode reduce-overhead; gain: "
        "default time over graph time, and the 95% interval.",
    )

    def check_device(self, device: str) -> None:
        if device == "cpu":
            raise UnusableInput("graphs goes with --device cuda, got cpu: a CPU has no CUDA graphs")

    def is_default(self, settings: Settings, framework: str, variant: str, abilities: Abilities) -> bool:
        return variant in ("vmap", "wavefront")

    def modes(self, settings: Settings, variant: str, input_name: str, abilities: Abilities) -> Sequence[bool]:
        """Compiled only: without the compiler there is no compiled loop."""
        return [mode for mode in super().modes(settings, variant, input_name, abilities) if mode]


QUESTION = Graphs()
