"""The worker of `bridge`: PyTorch's, in which the variants are JAX's, called from PyTorch.

    python -m shared.bench.questions.bridge_worker jax DEVICE THREADS MEMORY FOLDER CONNECTION

The one worker with both frameworks. Both use the same cores: JAX by the affinity of the process, PyTorch by its number
of threads. JAX compiles; PyTorch moves data, times and differentiates.
"""

import sys
from importlib import import_module
from typing import Any

from shared.backends import split_options
from shared.bench.worker import main

_OF_JAX = ("build", "compiler_cache", "compile_times", "forget_compiled", "precision", "start_compiler")


def _call_jax() -> None:
    """Have PyTorch's adapter compile and call JAX's functions."""
    ours, jax = import_module("torch_impl.backend"), import_module("jax_impl.backend")
    bridge = import_module("torch_impl.jax_bridge")
    torch_backend = dict(vars(ours))

    def call_of(problem: str, variant: str, pass_name: str, options: dict[str, Any], *, compiled: bool) -> Any:
        scalar_options, names = split_options(problem, options)
        score = bridge.from_jax(jax.function(problem, variant, scalar_options))
        return ours.pass_function(pass_name, score, compiled=False, gaps=names)

    def limit_memory(device: str, share: float) -> None:
        torch_backend["limit_memory"](device, share / 2)
        jax.limit_memory(device, share / 2)

    replaced = {name: getattr(jax, name) for name in _OF_JAX} | {
        "call_of": call_of,
        "limit_memory": limit_memory,
        "device_problem": lambda device: torch_backend["device_problem"](device) or jax.device_problem(device),
        "environment": lambda device: torch_backend["environment"](device) | jax.environment(device),
        # in memory of PyTorch, as a model's tensors are: NumPy's is not aligned as JAX wants it
        "to_device": lambda array, device: torch_backend["to_device"](array, device).clone(),
        "peak_bytes": lambda *_: None,  # of an accelerator: each framework counts its own
        "is_out_of_memory": lambda error: torch_backend["is_out_of_memory"](error) or jax.is_out_of_memory(error),
    }
    for name, value in replaced.items():
        setattr(ours, name, value)


if __name__ == "__main__":
    main.limit_cores(int(sys.argv[3]))
    _call_jax()
    sys.argv[1] = "torch"
    main.main()
