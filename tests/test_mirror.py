"""The two packages are mirrors: the same files, public names, signatures, defaults and variants."""

import inspect
from pathlib import Path

import pytest
from frameworks import FRAMEWORKS, PROBLEMS

import jax_impl.alignment
import jax_impl.backend
import jax_impl.sweeps
import torch_impl.alignment
import torch_impl.backend
import torch_impl.sweeps
from shared import reference
from shared.variants import VARIANTS, variant_names

# what only one framework needs, and why
ONLY_IN_TORCH = {
    "compiler.py",  # the scan operator runs only inside torch.compile, with settings of its own
    "first_order.py",  # the scan operator has no second derivatives
    "transforms.py",  # functions cannot tell what is being traced without asking PyTorch
}


def parameters(function) -> list[tuple]:
    """Name, kind and default of each parameter, in order."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_the_public_names_are_the_same():
    assert jax_impl.__all__ == torch_impl.__all__
    assert set(PROBLEMS) == set(jax_impl.__all__) - {"marginals", "variants"}


def test_nothing_else_is_public_by_accident():
    own = {
        name
        for package in (jax_impl, torch_impl)
        for name, value in vars(package).items()
        if inspect.isfunction(value) and value.__module__ == package.__name__ and not name.startswith("_")
    }
    assert own == set(jax_impl.__all__)


@pytest.mark.parametrize("name", jax_impl.__all__)
def test_the_signatures_are_the_same(name):
    assert parameters(getattr(jax_impl, name)) == parameters(getattr(torch_impl, name))


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_reference_has_the_same_signature_without_the_variant(name):
    mirrored = [p for p in parameters(getattr(jax_impl, name)) if p[0] != "variant"]
    assert parameters(getattr(reference, name)) == mirrored


@pytest.mark.parametrize("name", jax_impl.__all__)
def test_every_public_function_is_documented(name):
    for package in (jax_impl, torch_impl):
        assert inspect.getdoc(getattr(package, name)), (package, name)


def test_the_sweeps_are_the_ladder_in_its_order():
    assert list(jax_impl.sweeps.SWEEPS) == list(torch_impl.sweeps.SWEEPS)
    for problem in VARIANTS:
        assert tuple(jax_impl.sweeps.SWEEPS) == variant_names(problem)
    assert jax_impl.sweeps.SCANNING == torch_impl.sweeps.SCANNING


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_variants_are_the_ladder_without_what_is_absent(framework, problem):
    package, backend = FRAMEWORKS[framework]
    assert package.variants(problem) == tuple(name for name in variant_names(problem) if name not in backend.absent)
    assert backend.auto in package.variants(problem)
    assert all(reason for reason in backend.absent.values())


def test_the_recurrences_are_the_same():
    assert list(jax_impl.alignment.RECURRENCES) == list(torch_impl.alignment.RECURRENCES) == list(VARIANTS)


def test_the_adapters_have_the_same_functions():
    def public(module) -> dict[str, list[str]]:
        members = vars(module).items()
        return {
            name: list(inspect.signature(value).parameters)
            for name, value in members
            if inspect.isfunction(value) and value.__module__ == module.__name__
        }

    assert public(jax_impl.backend) == public(torch_impl.backend)


def test_the_files_have_the_same_names():
    def files(package) -> set[str]:
        folder = Path(package.__file__).parent
        return {str(path.relative_to(folder)) for path in folder.rglob("*.py")}

    assert files(torch_impl) - files(jax_impl) == ONLY_IN_TORCH
    assert files(jax_impl) <= files(torch_impl)
