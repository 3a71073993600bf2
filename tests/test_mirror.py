"""The two packages are mirrors: the same files, public names, signatures, defaults and variants."""

import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from frameworks import BY_HAND, PROBLEMS

import jax_impl.plain_loops
import jax_impl.sweeps
import torch_impl.plain_loops
import torch_impl.sweeps
from shared import reference
from shared.alignments import ALIGNMENTS
from shared.variants import FOR_GPUS, variant_names

# what only one framework needs, and why
ONLY_IN_TORCH = {
    "compiler.py",  # the scan operator runs only inside torch.compile, with settings of its own
    "cuda_graph.py",  # XLA makes CUDA graphs by itself
    "jax_bridge.py",  # JAX's functions in PyTorch; the other way deadlocks: see docs/transforms.md
    "dtensors.py",  # each process computes the pairs of a DTensor that it holds; pairs.py tells JAX's partitioner so
    "first_order_guard.py",  # the scan operator has no second derivatives
    "kernels/plain_calls.py",  # what is cheap to ask where nothing is traced; JAX asks only when it traces
    "kernels/openmp.py",  # the threads of its operators, which XLA keeps to itself and does not let wait in a loop
    "kernels/exact_pairs.py",  # the same kernels flag the same pairs in JAX, and come with PyTorch
    "kernels/without_gradient.py",  # an operator whose backward raises; in JAX that is a rule of the function
    "operator_calls.py",  # what saves PyTorch a graph; XLA leaves out of one what nothing needs
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
    others = {"best_alignment", "hessian_vector_product", "marginals", "variants"}
    assert set(PROBLEMS) == set(jax_impl.__all__) - others
    for package in (jax_impl, torch_impl):
        modules = package.__name__, *(f"{package.__name__}.{kind}_alignment" for kind in ("best", "expected"))
        functions = {name for name, value in vars(package).items() if inspect.isfunction(value) and name[0] != "_"}
        assert {name for name in functions if vars(package)[name].__module__ in modules} == set(jax_impl.__all__)


@pytest.mark.parametrize("name", jax_impl.__all__)
def test_the_signatures_are_the_same(name):
    assert parameters(getattr(jax_impl, name)) == parameters(getattr(torch_impl, name))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_defaults_are_those_of_the_table(name):
    table = ALIGNMENTS[name].parameters | ALIGNMENTS[name].options | {"variant": "auto"}
    first = [("similarity", inspect.Parameter.empty), ("lengths", None)]
    signature = parameters(getattr(jax_impl, name))
    assert [(argument, default) for argument, _, default in signature] == [*first, *table.items()]
    assert {kind for _, kind, _ in signature[2:]} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters(getattr(reference, name)) == signature[:-1]
    assert list(reference.gradients(name, np.ones((2, 3)))) == ["similarity", *ALIGNMENTS[name].parameters]


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_alignment_is_documented_in_the_same_words(name):
    texts = [inspect.getdoc(getattr(package, name)) or "" for package in (jax_impl, torch_impl)]
    same = [" ".join(text.partition("Returns:")[0].replace("a tensor", "an array").split()) for text in texts]
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
        known = tuple(name for name in variant_names(problem) if name not in FOR_GPUS)
        assert known == (*jax_impl.sweeps.SWEEPS, *BY_HAND)
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
