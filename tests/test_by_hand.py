"""The promises of the variants whose derivatives are written by hand, beyond parity; and life without the kernels.

A third derivative raises and names variants that have it; PyTorch's operators are what its compiler expects; a batch
has the very bits of its pairs; without native kernels everything still works, by wavefront.
"""

import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch._dynamo
from frameworks import BY_HAND, DTYPES, FRAMEWORKS, PROBLEMS, Inputs, ragged, run

import jax_impl
import torch_impl
import torch_impl.alignment
from shared.alignments import recurrence_of
from shared.checks import CannotDifferentiate
from shared.kernels import cpp
from shared.kernels.cpp import library
from shared.variants import FOR_GPUS, variant_names
from torch_impl.kernels import cpp_binding

ROOT = Path(__file__).parents[1]
BOTH = pytest.mark.parametrize("framework", FRAMEWORKS)
EVERY = pytest.mark.parametrize("problem", PROBLEMS)
VARIANT = pytest.mark.parametrize("variant", BY_HAND)
OPTIONS = [(problem, options) for problem, (_, every) in PROBLEMS.items() for options in every]
MATRIX = np.random.default_rng(0).normal(size=(2, 3))


# a third derivative


@functools.cache
def jax_derivative(order: int, problem: str, variant: str) -> float:
    """A derivative for the temperature."""
    function: Callable[..., Any] = lambda t: getattr(jax_impl, problem)(MATRIX, temperature=t, variant=variant)  # noqa: E731
    for _ in range(order):
        function = jax.grad(function)
    with FRAMEWORKS["jax"].backend.precision("float64"):
        return float(jax.jit(function)(1.0))


def torch_derivative(order: int, problem: str, variant: str) -> float:
    temperature = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    value = getattr(torch_impl, problem)(torch.tensor(MATRIX), temperature=temperature, variant=variant)
    for _ in range(order):
        (value,) = torch.autograd.grad(value, temperature, create_graph=True)
    return float(value)


def torch_func_derivative(order: int, problem: str, variant: str) -> float:
    matrix = torch.tensor(MATRIX)
    function: Callable[..., Any] = lambda t: getattr(torch_impl, problem)(matrix, temperature=t, variant=variant)  # noqa: E731
    for _ in range(order):
        function = torch.func.grad(function)
    return float(function(torch.tensor(1.0, dtype=torch.float64)))


DERIVATIVES = {"jax": jax_derivative, "autograd": torch_derivative, "torch.func": torch_func_derivative}


@VARIANT
@pytest.mark.parametrize("way", DERIVATIVES)
def test_a_third_derivative_raises_and_names_variants_that_have_it(way, variant):
    derivative, problem = DERIVATIVES[way], "needleman_wunsch"
    assert np.isfinite(derivative(2, problem, variant))
    with pytest.raises(CannotDifferentiate) as caught:
        derivative(3, problem, variant)
    text = str(caught.value)
    assert text.startswith(f"variant '{variant}' is right to second order only; for third derivatives use ")
    named = re.findall(r"'(\w+)'", text.partition(" use ")[2])
    assert named[:2] == ["cell_loop", "diagonal_loop"]
    assert not {*BY_HAND, "auto"} & set(named)
    # JAX compiles each of them: one will do
    values = [derivative(3, problem, name) for name in (named[-1:] if way == "jax" else named)]
    assert values == pytest.approx([torch_derivative(3, problem, "cell_loop")] * len(values), rel=1e-9)


# PyTorch's operators


@pytest.mark.parametrize(
    ("problem", "options", "dtype"), [(*which, DTYPES[number % 2]) for number, which in enumerate(OPTIONS)], ids=str
)
@VARIANT
def test_the_operators_are_what_pytorch_expects(variant, problem, options, dtype):
    inputs = ragged(3, 4, problem=problem)
    s = torch.tensor(np.nan_to_num(inputs.similarity, posinf=0, neginf=0)).to(getattr(torch, dtype))
    values = torch.tensor(np.stack(list(inputs.parameters.values()), axis=1)).to(s.dtype)
    lengths = torch.from_numpy(inputs.lengths)
    if variant == "fused":
        operators = cpp_binding.score, cpp_binding.gradients, cpp_binding.tangents
        last = tuple(cpp.call_of(problem, options))
        flags = ((True,), (False,))
    else:
        package = torch.ops.smooth_alignment
        operators = (
            package.wavefront_score.default,
            package.wavefront_gradients.default,
            package.wavefront_tangents.default,
        )
        last = recurrence_of(problem, options).name, False
        flags = ((True,),)
    score, gradients, tangents = operators
    cases = [(score, (s, lengths, values, [], *last)), (tangents, (s, lengths, values, [], s, values, [], *last))]
    cases += [(gradients, (s, lengths, values, [], *last, *flag)) for flag in flags]
    for operator, arguments in cases:
        assert set(torch.library.opcheck(operator, arguments).values()) == {"SUCCESS"}


# a batch and its pairs


def pair_of(inputs: Inputs, number: int) -> Inputs:
    assert inputs.lengths is not None
    parameters = {name: value[number] for name, value in inputs.parameters.items()}
    return Inputs(inputs.similarity[number], inputs.lengths[number], parameters, inputs.cotangent[number])


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("problem", "options"), OPTIONS, ids=str)
def test_a_batch_has_the_bits_of_its_pairs_by_fused(problem, options, dtype, framework):
    six = ragged(9, 14, problem=problem)
    assert six.lengths is not None
    # more pairs than any machine computes abreast, in an order that puts different ones beside each other
    order = np.random.default_rng(3).integers(0, 6, size=37)
    parameters = {name: value[order] for name, value in six.parameters.items()}
    batch = Inputs(six.similarity[order], six.lengths[order], parameters, six.cotangent[order])
    together = run(framework, batch, dtype, "fused", problem=problem, **options)
    for number in range(6):
        alone = run(framework, pair_of(six, number), dtype, "fused", problem=problem, **options)
        for place in np.flatnonzero(order == number):
            np.testing.assert_array_equal(together.score[place], alone.score)
            for name, gradient in alone.gradients.items():
                np.testing.assert_array_equal(together.gradients[name][place], gradient, err_msg=name)


@pytest.mark.parametrize(("problem", "options"), OPTIONS, ids=str)
def test_both_frameworks_have_the_same_bits_by_fused(problem, options):
    inputs = ragged(9, 14, problem=problem)
    results = [run(framework, inputs, "float32", "fused", problem=problem, **options) for framework in FRAMEWORKS]
    np.testing.assert_array_equal(results[0].score, results[1].score)
    for name, gradient in results[0].gradients.items():
        np.testing.assert_array_equal(gradient, results[1].gradients[name], err_msg=name)


# without the kernels


@EVERY
@BOTH
def test_where_fused_is_absent_auto_is_wavefront(framework, problem, monkeypatch):
    package, backend = FRAMEWORKS[framework]
    function = functools.partial(getattr(package, problem), backend.to_device(MATRIX.astype(np.float32), "cpu"))
    expected = float(function(variant="wavefront"))
    monkeypatch.setitem(backend.absent, "fused", "it is Sunday")
    monkeypatch.setattr(cpp, "kernel", lambda dtype: pytest.fail("a kernel was asked for"))
    usable = tuple(name for name in variant_names(problem) if name not in (*FOR_GPUS, "fused"))
    assert package.variants(problem) == usable
    assert float(function()) == expected
    text = f"variant 'fused' is absent here: it is Sunday; usable: {', '.join(usable)}"
    with pytest.raises(ValueError, match=f"^{text}$"):
        function(variant="fused")


@pytest.mark.parametrize("use", ["score", "marginals", "product", "compiled"])
@BOTH
def test_where_fused_is_absent_auto_warns_once_at_the_users_line(framework, use, monkeypatch):
    package, backend = FRAMEWORKS[framework]
    compiled = {"jax": jax.jit, "torch": functools.partial(torch.compile, backend="eager", fullgraph=True)}[framework]
    s = backend.to_device(MATRIX.astype(np.float32), "cpu")
    call = {
        "score": lambda: package.smith_waterman(s),
        "marginals": lambda: package.marginals(package.smith_waterman, s),
        "product": lambda: package.hessian_vector_product(package.smith_waterman, s, s),
        "compiled": lambda: compiled(lambda own: package.smith_waterman(own))(s),
    }[use]
    monkeypatch.setitem(backend.absent, "fused", "it is Sunday")
    monkeypatch.setattr(library, "_warned", False)
    with pytest.warns(RuntimeWarning) as caught:
        _ = call(), call()
    (warning,) = (own for own in caught if own.category is RuntimeWarning)
    assert str(warning.message) == "variant 'auto' is 'wavefront' here, which is slower than 'fused': it is Sunday"
    assert (warning.filename, warning.lineno) == (__file__, call.__code__.co_firstlineno)


WITHOUT = """
import json, warnings
warnings.simplefilter("error")
import numpy as np
import PACKAGE as package
from PACKAGE import backend
from shared import reference
from shared.variants import fastest_variant
similarity, lengths = np.ones((2, 3, 4), np.float32), np.array([[3, 4], [2, 0]])
texts, close = [], []
for problem in PROBLEMS:
    function = getattr(package, problem)
    try:
        function(similarity, variant="fused")
    except ValueError as error:
        texts.append(str(error))
    results = function(similarity, lengths), package.marginals(function, similarity, lengths)
    gradients = reference.gradients(problem, similarity, lengths)
    expected = getattr(reference, problem)(similarity, lengths), gradients["similarity"]
    close += [bool(np.allclose(backend.to_numpy(got), wanted, atol=1e-5)) for got, wanted in zip(results, expected)]
print(json.dumps([fastest_variant(backend.absent), [package.variants(problem) for problem in PROBLEMS], texts, close]))
"""


@pytest.mark.parametrize("package", ["jax_impl", "torch_impl"])
def test_with_the_kernels_turned_off_everything_works_without_them(package):
    problems = ["smith_waterman_affine", "needleman_wunsch"]
    program = WITHOUT.replace("PACKAGE", package).replace("PROBLEMS", repr(problems))
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | {"ALIGNMENT_NATIVE": "0"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    auto, variants, texts, close = json.loads(done.stdout)
    usable = [name for name in variant_names("smith_waterman") if name not in (*FOR_GPUS, "fused")]
    reason = "the environment variable ALIGNMENT_NATIVE turns the native kernels off"
    assert auto == "wavefront"
    assert variants == [usable] * len(problems)
    assert texts == [f"variant 'fused' is absent here: {reason}; usable: {', '.join(usable)}"] * len(problems)
    assert close == [True] * 2 * len(problems)


# PyTorch's compiler


@EVERY
@VARIANT
def test_what_torch_cannot_compile_raises(variant, problem):
    def mapped(matrices: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(torch.func.grad(score))(matrices)

    def pushed(matrices: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(score, (matrices,), (torch.ones_like(matrices),))[1]

    score = functools.partial(getattr(torch_impl, problem), variant=variant)
    for function in (mapped, pushed):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"inside torch\.compile here"):
            torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2, 3, 3))
