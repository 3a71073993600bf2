"""Shared by the tests: both frameworks behind one call, awkward inputs, and the comparison with the reference.

`run` gives a problem's scores and its gradients through a random cotangent, as NumPy arrays, by any variant of any
framework; `reference_result` gives the same by `shared.reference`; `assert_parity` compares them by the tolerances
of `shared.tolerances`.
"""

import functools
import pickle
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

import jax_impl
import jax_impl.backend
import torch_impl
import torch_impl.backend
from jax_impl.transformed import QUICK
from shared import reference
from shared.alignments import ALIGNMENTS, COLS, COST, ROWS, Alignment, names_by_position, of_axis
from shared.tolerances import TOLERANCES, marginals_bound, score_bound
from torch_impl.compiler import compiled

# of XLA: compiled as users do, where conftest.py spares the time; what is no switch is the level
AS_BY_DEFAULT = {name: not value if isinstance(value, bool) else 3 for name, value in QUICK.items()}


class Framework(NamedTuple):
    """A package and the adapter that knows how its framework is driven."""

    package: ModuleType
    backend: ModuleType


class Problem(NamedTuple):
    """A problem as tests need it: its differentiable parameters and its options, in enough combinations."""

    parameters: dict[str, tuple[float, float]]  # name -> where random values of it are drawn from
    options: tuple[dict[str, Any], ...]


def by_keyword(function: Callable[..., Any]) -> Callable[..., Any]:
    """A public function with its matrix as `similarity`, whatever it calls it, and gaps by axis as tests name them."""
    return lambda similarity, lengths=None, **parameters: function(similarity, lengths, **packed(parameters))


def packed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as public functions take them: gaps by axis, which tests name "gap[0]" and "gap[1]", as tuples."""
    result: dict[str, Any] = {}
    for name, value in arguments.items():
        gap, *axis = name.split("[")
        result[gap] = (*result.get(gap, ()), value) if axis else value
    return result


def unpacked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `packed`."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        result |= dict(zip(axes_of(name), value, strict=True)) if isinstance(value, tuple) else {name: value}
    return result


def axes_of(*gaps: str) -> tuple[str, ...]:
    """The names that gaps by axis have in tests."""
    return tuple(of_axis(gap, axis) for gap in gaps for axis in (ROWS, COLS))


class Inputs(NamedTuple):
    """Arguments of a problem in float64, each value one that float32 can hold; and a cotangent for the scores."""

    similarity: np.ndarray  # (*batch, rows, cols)
    lengths: np.ndarray | None  # (*batch, 2)
    parameters: dict[str, np.ndarray]  # each () or (*batch), a gap by position like similarity; as `packed` takes them
    cotangent: np.ndarray  # (*batch)


class Result(NamedTuple):
    """Scores, the gradients of sum(cotangent * scores), and that cotangent."""

    score: np.ndarray
    gradients: dict[str, np.ndarray]  # "similarity" and each parameter
    cotangent: np.ndarray
    largest: np.ndarray | None = None  # max|h| of each pair, which only the reference knows


FRAMEWORKS = {"jax": Framework(jax_impl, jax_impl.backend), "torch": Framework(torch_impl, torch_impl.backend)}
_RANGES = {"gap": (-2.0, 0.5), "gap_open": (-3.0, 0.5), "gap_extend": (-2.0, 0.5), "temperature": (0.5, 2.0)}


# restrict_turns and penalize_turns of an affine gap, by end_gaps: smith_waterman_affine has every combination
_TURNS = {COST: ((True, True), (False, False)), "free": ((True, True),), "free_rows": ((True, False),)}


def _enough_options(alignment: Alignment) -> tuple[dict[str, Any], ...]:
    """Every combination, but with end gaps only some of the turns."""
    every = alignment.all_options()
    if "end_gaps" not in alignment.options or len(alignment.options) == 1:
        return tuple(every)
    return tuple(one for one in every if tuple(one.values())[1:] in _TURNS.get(one["end_gaps"], ((False, True),)))


PROBLEMS = {
    name: Problem({parameter: _RANGES[parameter] for parameter in alignment.parameters}, _enough_options(alignment))
    for name, alignment in ALIGNMENTS.items()
}
# (problem, options, names of the gaps by axis), like those of gaps_by_position.py
BY_AXIS = [
    (problem, options, axes_of(*alignment.gaps))
    for problem, alignment in ALIGNMENTS.items()
    for options in PROBLEMS[problem].options
    if alignment.gaps
]
AWKWARD_SIZES = ((1, 1), (1, 7), (7, 1), (5, 8), (8, 5), (17, 9), (63, 17))
DTYPES = ("float32", "float64")
# the variants whose derivatives are written by hand: the first two, and no more
BY_HAND = ("wavefront", "fused")

# similarity, lengths, parameters, cotangent -> scores, gradients
Pull = Callable[[Any, Any, dict[str, Any], Any], tuple[Any, dict[str, Any]]]


def single(
    rows: int, cols: int, seed: int = 0, problem: str = "smith_waterman", by_position: tuple[str, ...] = ()
) -> Inputs:
    """One full matrix of normal random numbers, random parameters of shape (), gaps by position like the matrix.

    by_position: names of gaps; those of `axes_of` are by axis instead.
    """
    random = np.random.default_rng([seed, rows, cols])
    parameters = _drawn(random, sizes_of(problem, ()))
    similarity, cotangent = float32(random.normal(size=(rows, cols)) * 2), _cotangent(random, ())
    sizes = sizes_of(problem, by_position, (rows, cols))
    parameters |= _drawn(random, {name: sizes[name] for name in by_position})
    return Inputs(similarity, None, {name: parameters[name] for name in sizes}, cotangent)


def ragged(
    rows: int,
    cols: int,
    seed: int = 0,
    problem: str = "smith_waterman",
    per_pair: bool = True,
    by_position: tuple[str, ...] = (),
) -> Inputs:
    """A batch of six pairs: full, without rows, without columns, one cell, and two partial ones; poison around them.

    The padding holds NaN and infinities, that of gaps by position too. Parameters are per pair, or shared by all pairs.
    by_position: as in `single`.
    """
    random = np.random.default_rng([seed, rows, cols, 6])
    partial = random.integers(1, (rows + 1, cols + 1), size=(2, 2))
    lengths = np.array([(rows, cols), (0, cols), (rows, 0), (1, 1), *partial], dtype=np.int32)
    batch = (len(lengths),)
    similarity = float32(random.normal(size=(*batch, rows, cols)) * 2)
    poisoned = poison(similarity, lengths)
    parameters = _drawn(random, sizes_of(problem, (), (), batch if per_pair else ()))
    cotangent = _cotangent(random, batch)
    sizes = sizes_of(problem, by_position, similarity.shape, batch if per_pair else ())
    parameters |= _drawn(random, {name: sizes[name] for name in by_position})
    values = {name: parameters[name] for name in sizes}
    values = {name: poison(value, lengths) if value.ndim == 3 else value for name, value in values.items()}
    return Inputs(poisoned, lengths, values, cotangent)


def sizes_of(
    problem: str, names: tuple[str, ...], shape: tuple[int, ...] = (), batch: tuple[int, ...] = ()
) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter, where gaps of these names have that of the matrices, or are by axis."""
    sizes = dict.fromkeys(PROBLEMS[problem].parameters, batch)
    sizes |= {name: batch if "[" in name else shape for name in names}
    return {name: size for name, size in sizes.items() if of_axis(name, ROWS) not in names}


def of_pairs(inputs: Inputs, chosen: Sequence[int]) -> Inputs:
    """A batch of some pairs of a batch whose parameters are per pair."""
    assert inputs.lengths is not None
    pairs = list(chosen)
    parameters = {name: value[pairs] for name, value in inputs.parameters.items()}
    return Inputs(inputs.similarity[pairs], inputs.lengths[pairs], parameters, inputs.cotangent[pairs])


def poison(similarity: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The batch with NaN, inf and -inf in turn wherever it lies outside lengths."""
    _, rows, cols = similarity.shape
    i, j = np.indices((rows, cols))
    outside = (i >= lengths[:, 0, None, None]) | (j >= lengths[:, 1, None, None])
    return np.where(outside, np.array([np.nan, np.inf, -np.inf])[(i + j) % 3], similarity)


def reference_result(inputs: Inputs, problem: str = "smith_waterman", **options: Any) -> Result:
    """Scores and gradients as `run` gives them, by the NumPy reference."""
    return _reference_result(pickle.dumps((inputs, problem, options)))  # bytes, because arrays have no hash


@functools.cache
def _reference_result(pickled: bytes) -> Result:
    (similarity, lengths, parameters, cotangent), problem, options = pickle.loads(pickled)
    score = by_keyword(getattr(reference, problem))(similarity, lengths, **parameters, **options)
    slopes = reference_gradients(problem, similarity, lengths, **parameters, **options)
    gradients = {"similarity": slopes["similarity"] * cotangent[..., None, None]}
    for name, value in parameters.items():
        if name in names_by_position(problem, parameters):
            gradients[name] = slopes[name] * cotangent[..., None, None]
            continue
        slope = slopes[name] * cotangent
        gradients[name] = slope if value.shape == cotangent.shape else slope.sum()
    largest = reference.largest_state(problem, similarity, lengths, **packed(parameters), **options)
    return Result(score, gradients, cotangent, largest)


def reference_gradients(problem: str, similarity: Any, lengths: Any = None, **arguments: Any) -> dict[str, Any]:
    """`shared.reference.gradients`, with gaps by axis as tests name them."""
    return unpacked(reference.gradients(problem, similarity, lengths, **packed(arguments)))


def run(
    framework: str,
    inputs: Inputs,
    dtype: str,
    variant: str = "auto",
    how: str = "eager",
    problem: str = "smith_waterman",
    **options: Any,
) -> Result:
    """Scores and gradients by one variant. how: "eager", "compiled", or "quick": compiled with little optimisation."""
    return run_function(framework, score_of(framework, problem, variant, tuple(options.items())), inputs, dtype, how)


def run_function(
    framework: str, score: Callable[..., Any], inputs: Inputs, dtype: str, how: str = "eager", device: str = "cpu"
) -> Result:
    """`run` for any function with the signature score(similarity, lengths, **parameters)."""
    backend = FRAMEWORKS[framework].backend
    pull = {"jax": _jax_pull, "torch": _torch_pull}[framework](score, how)
    with backend.precision(dtype):
        similarity, cotangent, *values = (
            backend.to_device(array.astype(dtype), device)
            for array in (inputs.similarity, inputs.cotangent, *inputs.parameters.values())
        )
        scores, gradients = pull(
            similarity, inputs.lengths, dict(zip(inputs.parameters, values, strict=True)), cotangent
        )
        return Result(
            backend.to_numpy(scores),
            {name: backend.to_numpy(value) for name, value in gradients.items()},
            inputs.cotangent.astype(dtype),
        )


def assert_parity(result: Result, expected: Result, dtype: str, temperature: Any) -> None:
    """Raise AssertionError unless every score and gradient is within the tolerances of this dtype.

    The message begins with what is off: "score", "similarity", or a parameter's name.
    """
    tolerance = TOLERANCES[dtype]
    assert expected.largest is not None, "what is expected comes from the reference"
    temperatures = np.broadcast_to(temperature, expected.score.shape)
    scale = np.maximum(np.abs(expected.score), temperatures)
    pairs = list(zip(expected.score.flat, expected.largest.flat, temperatures.flat, strict=True))
    bound = np.reshape([score_bound(dtype, *pair) for pair in pairs], scale.shape) / scale
    _assert_within("score", dtype, result.score, expected.score, scale, bound)

    bound = np.reshape([marginals_bound(dtype, *pair[1:]) for pair in pairs], scale.shape)[..., None, None]
    weight = np.abs(expected.cotangent)[..., None, None]
    _assert_within("similarity", dtype, result.gradients["similarity"], expected.gradients["similarity"], weight, bound)
    for name in expected.gradients.keys() - {"similarity"}:
        got, exact = result.gradients[name], np.asarray(expected.gradients[name])
        largest = np.maximum(1.0, np.max(np.abs(exact), initial=0.0))
        _assert_within(name, dtype, got, exact, largest, np.asarray(tolerance.gradient))


def _assert_within(
    what: str, dtype: str, got: np.ndarray, wanted: np.ndarray, scale: np.ndarray, bound: np.ndarray
) -> None:
    assert got.dtype == dtype, f"{what} has dtype {got.dtype}, expected {dtype}"
    assert got.shape == wanted.shape, f"{what} has shape {got.shape}, expected {wanted.shape}"
    if not got.size:
        return
    error = np.abs(got.astype(np.float64) - wanted) / scale
    excess = np.where(np.isfinite(error), error / bound, np.inf)
    at = np.unravel_index(np.argmax(excess), excess.shape)
    assert excess[at] <= 1.0, f"{what} is {got[at]!r} at {tuple(map(int, at))}, expected {wanted[at]!r} ({dtype})"


@functools.cache
def score_of(framework: str, problem: str, variant: str, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """A variant as a function: one object for equal arguments, so that it is compiled once for a shape."""
    return FRAMEWORKS[framework].backend.function(problem, variant, dict(options))


@functools.cache
def _jax_pull(score: Callable[..., Any], how: str) -> Pull:
    def pull(similarity: Any, lengths: Any, parameters: dict[str, Any], cotangent: Any) -> tuple[Any, dict[str, Any]]:
        function = lambda matrix, values: score(matrix, lengths, **packed(values))  # noqa: E731
        scores, back = jax.vjp(function, similarity, parameters)
        to_similarity, to_parameters = back(cotangent)
        return scores, {"similarity": to_similarity, **to_parameters}

    return pull if how == "eager" else jax.jit(pull, compiler_options={} if how == "quick" else AS_BY_DEFAULT)


@functools.cache
def _torch_pull(score: Callable[..., Any], how: str) -> Pull:
    function = score if how == "eager" else compiled(score, backend="eager" if how == "quick" else "inductor")

    def pull(similarity: Any, lengths: Any, parameters: dict[str, Any], cotangent: Any) -> tuple[Any, dict[str, Any]]:
        inputs = {"similarity": similarity, **parameters}
        for tensor in inputs.values():
            tensor.requires_grad_()
        scores = function(similarity, None if lengths is None else torch.from_numpy(lengths), **packed(parameters))
        return scores, dict(zip(inputs, torch.autograd.grad(scores, list(inputs.values()), cotangent), strict=True))

    return pull


def _drawn(random: np.random.Generator, sizes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: float32(random.uniform(*_RANGES[name.split("[")[0]], size=size)) for name, size in sizes.items()}


def _cotangent(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of either sign and never near 0, so that no pair's gradient goes unseen."""
    return float32(random.uniform(0.5, 1.5, size=shape) * random.choice([-1, 1], size=shape))


def float32(values: Any) -> np.ndarray:
    return np.asarray(values, dtype=np.float32).astype(np.float64)
