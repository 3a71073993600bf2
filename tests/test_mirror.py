"""The two packages are mirrors of one another, and importing or calling them leaves everything else as it was."""

import importlib
import inspect
import json
import os
import re
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

import jax_impl.plain_loops
import jax_impl.sweeps
import torch_impl.plain_loops
import torch_impl.sweeps
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.variants import FOR_GPUS, variant_names
from torch_impl.compiler import compiled

# what only one framework needs, and why
ONLY_IN_TORCH = {
    "compiler.py",  # the scan operator runs only inside torch.compile, with settings of its own
    "cuda_graph.py",  # XLA makes CUDA graphs by itself
    "jax_bridge.py",  # JAX's functions in PyTorch; the other way deadlocks: see docs/transforms.md
    "dtensors.py",  # each process computes the pairs of a DTensor that it holds; pairs.py tells JAX's partitioner so
    "first_order_guard.py",  # the scan operator has no second derivatives
    "kernels/openmp.py",  # the threads of its operators, which XLA keeps to itself and does not let wait in a loop
    "kernels/exact_pairs.py",  # the same kernels flag the same pairs in JAX, and come with PyTorch
    "kernels/without_gradient.py",  # an operator whose backward raises; in JAX that is a rule of the function
    "transforms.py",  # functions cannot tell what is being traced without asking PyTorch
}
ONLY_IN_JAX = {
    "pairs.py",  # PyTorch's autograd.Function has a place for what vmap does, and modules shard the batch by themselves
    "chunks.py",  # of a batch, which XLA allocates anew in every call
    "custom_transpose.py",  # a linear function with a custom transpose rule, which PyTorch's backward is by itself
}


def parameters(function) -> list[tuple]:
    """Name, kind and default of each parameter, in order."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_the_public_names_are_the_same_and_nothing_else_is_public():
    assert jax_impl.__all__ == torch_impl.__all__
    other_names = {"best_alignment", "hessian_vector_product", "marginals", "variants"}
    assert set(PROBLEMS) == set(jax_impl.__all__) - other_names
    for package in (jax_impl, torch_impl):
        modules = {f"{package.__name__}{end}" for end in ("", ".functions", ".best_alignment", ".expected_alignment")}
        functions = {name for name, value in vars(package).items() if inspect.isfunction(value) and name[0] != "_"}
        assert {name for name in functions if vars(package)[name].__module__ in modules} == set(jax_impl.__all__)


@pytest.mark.parametrize("name", jax_impl.__all__)
def test_the_signatures_are_the_same(name):
    assert parameters(getattr(jax_impl, name)) == parameters(getattr(torch_impl, name))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_defaults_are_those_of_the_table(name):
    table = ALIGNMENTS[name].parameters | ALIGNMENTS[name].options | {"variant": "auto"}
    first = [("cost" if ALIGNMENTS[name].is_cost else "similarity", inspect.Parameter.empty), ("lengths", None)]
    signature = parameters(getattr(jax_impl, name))
    assert [(argument, default) for argument, _, default in signature] == [*first, *table.items()]
    assert {kind for _, kind, _ in signature[2:]} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters(getattr(reference, name)) == signature[:-1]
    assert list(reference.gradients(name, np.ones((2, 3)))) == ["similarity", *ALIGNMENTS[name].parameters]


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_alignment_is_documented_in_the_same_words(name):
    texts = [inspect.getdoc(getattr(package, name)) or "" for package in (jax_impl, torch_impl)]
    same = [
        " ".join(text.partition("Returns:")[0].replace("a tensor", "an array").replace("tensors", "arrays").split())
        for text in texts
    ]
    assert same[0] == same[1]
    sections = [re.findall(r"^(Args|Returns|Raises|Source):", text, flags=re.MULTILINE) for text in texts]
    assert sections == [["Args", "Returns", "Raises", "Source"]] * 2
    assert all(re.findall(r"^Source: (.*)\.$", text, re.MULTILINE) == [ALIGNMENTS[name].source] for text in texts)
    described = re.findall(r"^    (\w+):", texts[0].partition("Returns:")[0], flags=re.MULTILINE)
    assert described == [argument for argument, _, _ in parameters(getattr(jax_impl, name))]


def test_the_variants_are_the_sweeps_in_order_then_those_by_hand():
    assert list(jax_impl.sweeps.SWEEPS) == list(torch_impl.sweeps.SWEEPS)
    for problem in ALIGNMENTS:
        # the others are the wavefront in one launch
        by_hand = tuple(name for name in variant_names(problem) if name not in FOR_GPUS)
        assert by_hand == (*jax_impl.sweeps.SWEEPS, *BY_HAND)
    assert jax_impl.sweeps.SCANNING == torch_impl.sweeps.SCANNING
    assert list(jax_impl.plain_loops.PLAIN_LOOPS) == list(torch_impl.plain_loops.PLAIN_LOOPS)


@pytest.mark.parametrize("name", ["backend", "accelerator", "process_group"])
def test_the_adapters_have_the_same_functions(name):
    def public(package: str) -> dict[str, list[str]]:
        module = importlib.import_module(f"{package}.{name}")
        functions = {key: value for key, value in vars(module).items() if inspect.isfunction(value) and key[0] != "_"}
        defined = {key: value for key, value in functions.items() if value.__module__ == module.__name__}
        return {key: list(inspect.signature(value).parameters) for key, value in defined.items()}

    assert public("jax_impl") == public("torch_impl")


def test_the_files_have_the_same_names():
    def files(package) -> set[str]:
        folder = Path(package.__file__).parent
        return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}

    assert files(torch_impl) - files(jax_impl) == ONLY_IN_TORCH
    assert files(jax_impl) - files(torch_impl) == ONLY_IN_JAX


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
    printed, at_exit = in_a_fresh_process(program, ALIGNMENT_NATIVE="0", ALIGNMENT_CACHE=str(tmp_path / "cache"))
    before, after, loaded, auto, variants, text, close = printed
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
    dynamo = torch._dynamo.config
    of_torch = torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype()
    of_thread = torch.get_default_device(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    compiling = dynamo.capture_scalar_outputs, dynamo.recompile_limit, functorch_config.donated_buffer
    of_jax = sorted(jax.config.values.items(), key=str), jax.numpy.zeros(0, float).dtype
    system = np.geterr(), dict(os.environ), sys.float_info.min / 2, list(map(signal.getsignal, signal.valid_signals()))
    return repr((of_torch, of_thread, compiling, of_jax, system))


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
