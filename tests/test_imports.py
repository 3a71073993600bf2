"""What imports and calls leave as it was: flags, devices, settings, and what is not imported."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch._dynamo
import torch._functorch.config as functorch_config
from frameworks import BY_HAND, FRAMEWORKS, PROBLEMS

import torch_impl
from shared.variants import FOR_GPUS, variant_names
from torch_impl.compiler import compiled

ROOT = Path(__file__).parent.parent


def in_a_fresh_process(program: str, **environment: str) -> list[Any]:
    """The lines of JSON that a program prints, run where nothing has been imported."""
    command, variables = [sys.executable, "-c", program], os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# package -> what to import first, and what shows its state
STATES = {
    "jax_impl": (
        "import jax; from jax._src import xla_bridge",
        "sorted(jax.config.values.items(), key=str), warnings.filters, len(xla_bridge._backends)",
    ),
    "torch_impl": (
        "import torch, torch._dynamo, torch._inductor.config, torch._functorch.config",
        "[c.shallow_copy_dict() for c in (torch._dynamo.config, torch._inductor.config, torch._functorch.config)], "
        "torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), torch.cuda.is_initialized(), "
        "torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()",
    ),
}
# without the native kernels and with warnings as errors; a function is called at exit, too
WITHOUT_KERNELS = """
import atexit, json, os, sys, warnings, numpy
FIRST
state = lambda: repr((dict(os.environ), numpy.geterr(), STATE))
before = state()
import PACKAGE as package, PACKAGE.backend as backend
after, loaded = state(), [name for name in ("jax", "torch") if name in sys.modules]
warnings.simplefilter("error")
from shared import reference
from shared.variants import fastest_variant
similarity, lengths = numpy.ones((2, 3, 4), numpy.float32), numpy.array([[3, 4], [2, 0]])
function, gradients = package.needleman_wunsch, reference.gradients("needleman_wunsch", similarity, lengths)
results = function(similarity, lengths), package.marginals(function, similarity, lengths)
expected = reference.needleman_wunsch(similarity, lengths), gradients["similarity"]
close = [bool(numpy.allclose(backend.to_numpy(got), wanted, atol=1e-5)) for got, wanted in zip(results, expected)]
try:
    function(similarity, variant="fused")
except ValueError as error:
    text = str(error)
print(json.dumps([before, after, loaded, fastest_variant(backend.absent), package.variants("free_gap"), text, close]))
atexit.register(lambda: backend.to_numpy(function(similarity, variant="wavefront")) is None or print("[true]"))
"""


@pytest.mark.parametrize("package", STATES)
def test_importing_a_package_changes_nothing_and_it_works_without_kernels(package, tmp_path):
    first, state = STATES[package]
    program = WITHOUT_KERNELS.replace("FIRST", first).replace("STATE", state).replace("PACKAGE", package)
    told, at_exit = in_a_fresh_process(program, ALIGNMENT_NATIVE="0", ALIGNMENT_CACHE=str(tmp_path / "cache"))
    before, after, loaded, auto, variants, text, close = told
    assert before == after and loaded == [package.removesuffix("_impl")]
    assert not (tmp_path / "cache").exists()
    usable = [name for name in variant_names("smith_waterman") if name not in (*FOR_GPUS, "fused")]
    reason = "the environment variable ALIGNMENT_NATIVE turns the native kernels off"
    assert (auto, variants) == ("wavefront", usable)
    assert text == f"variant 'fused' is absent here: {reason}; usable: {', '.join(usable)}"
    assert close == [True] * 2 and at_exit == [True]


@pytest.mark.slow
def test_torch_impl_can_be_forgotten_and_imported_again():
    ((before, *after),) = in_a_fresh_process(
        """
import importlib, json, sys
import torch, torch_impl

def derivatives(package):
    results = []
    for variant in ("fused", "wavefront"):
        leaf = torch.arange(12.0).sin().view(3, 4).requires_grad_()
        first, = torch.autograd.grad(package.smith_waterman(leaf, variant=variant), leaf, create_graph=True)
        results += [first.tolist(), torch.autograd.grad((first**2).sum(), leaf)[0].tolist()]
    return results

first, before = torch_impl, derivatives(torch_impl)
for name in [name for name in sys.modules if name.split(".")[0] in ("torch_impl", "shared")]:
    del sys.modules[name]
import torch_impl
after = [derivatives(torch_impl), derivatives(first)]
for name in [name for name in sys.modules if name.startswith("torch_impl")]:
    importlib.reload(sys.modules[name])
print(json.dumps([before, *after, derivatives(torch_impl)]))
"""
    )
    assert after == [before] * 3


def test_shared_imports_no_framework():
    (loaded,) = in_a_fresh_process(
        """
import importlib, json, pkgutil, sys
import shared
for module in pkgutil.walk_packages(shared.__path__, "shared."):
    if "worker" not in module.name and not module.name.startswith("shared.bench"):
        importlib.import_module(module.name)
print(json.dumps([name for name in ("jax", "torch") if name in sys.modules]))
"""
    )
    assert loaded == []


def settings() -> Any:
    """The settings of the process and of the calling thread."""
    general = torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype()
    of_thread = torch.get_default_device(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    flushes = sys.float_info.min / 2 == 0
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    of_jax = sorted(jax.config.values.items(), key=str), jax.numpy.zeros(0, float).dtype
    dynamo = torch._dynamo.config
    compiling = dynamo.capture_scalar_outputs, dynamo.recompile_limit, functorch_config.donated_buffer
    return repr((general, of_thread, flushes, handlers, of_jax, compiling, np.geterr(), dict(os.environ)))


def test_a_compiled_call_puts_the_settings_back():
    before = settings()
    torch_impl.smith_waterman(torch.ones(2, 2), variant="scan_select")
    compiled(torch_impl.smith_waterman, backend="eager")(torch.ones(2, 2))
    assert settings() == before


def test_no_call_from_any_thread_changes_a_setting_even_for_a_moment():
    def in_a_new_thread() -> Any:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(settings).result()

    def calls(framework: str, problem: str, variant: str) -> None:
        package, backend = FRAMEWORKS[framework]
        before, similarity = settings(), backend.to_device(np.ones((2, 3, 4), np.float32), "cpu")
        function = partial(getattr(package, problem), variant=variant)
        for call in (
            lambda: function(similarity),
            lambda: package.marginals(function, similarity),
            lambda: package.hessian_vector_product(function, similarity, similarity),
            lambda: package.best_alignment(getattr(package, problem), similarity),
            lambda: package.variants(problem),
        ):
            call()
            assert settings() == before

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        expected = in_a_new_thread()
        with ThreadPoolExecutor(8) as pool:
            jobs = [*product(["jax"], PROBLEMS, ["auto"]), *product(["torch"] * 3, PROBLEMS, BY_HAND)]
            running = [pool.submit(calls, *job) for job in jobs]
            while not all(call.done() for call in running):
                assert in_a_new_thread() == expected
        for call in running:
            call.result()
    finally:
        torch.set_num_threads(before)
