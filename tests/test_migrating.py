"""What docs/migrating.md says of other codes: their formulas, which are in other_codes.py, beside our calls.

Where the page has a function, that very text runs here, with the alignments of the reference and of both frameworks.
Scores and all derivatives are compared in float64, with ragged lengths.
"""

import ast
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import other_codes
import pytest
import torch
from frameworks import FRAMEWORKS, Inputs, Result, reference_result, run

import jax_impl.backend
from shared import reference

PAGE = Path(__file__).parents[1] / "docs" / "migrating.md"
LENGTHS = torch.tensor([[6, 5], [2, 2], [4, 5], [5, 3]])  # SMURF's functions need two rows and columns
EVERYWHERE = pytest.mark.parametrize("framework", ["reference", *FRAMEWORKS])
BOTH = (True, False)
GAP, TEMPERATURE = torch.tensor([-0.7, 0.8], dtype=torch.float64)

Tensor = torch.Tensor


class _Ours(torch.autograd.Function):
    """Scores of a function of any framework, as a node of PyTorch's graph."""

    @staticmethod
    def forward(ctx: Any, result: Callable[[Tensor], Result], names: tuple[str, ...], *tensors: Tensor) -> Tensor:
        ctx.result, ctx.names = result, names
        return torch.tensor(result(tensors[0].new_ones(tensors[0].shape[:-2])).score)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        gradients = ctx.result(cotangents[0]).gradients
        return None, None, *(torch.tensor(gradients[name]) for name in ctx.names)


def alignment(framework: str, problem: str) -> Callable[..., Tensor]:
    """One of our functions of float64 tensors, by the reference or a framework."""

    def function(similarity: Tensor, lengths: Tensor | None = None, **arguments: Any) -> Tensor:
        tensors = {"similarity": similarity} | {n: v for n, v in arguments.items() if isinstance(v, Tensor)}
        options = {name: value for name, value in arguments.items() if name not in tensors}

        def result(cotangent: Tensor) -> Result:
            first, *others = (tensor.detach().numpy() for tensor in tensors.values())
            parameters = dict(zip(list(tensors)[1:], others, strict=True))
            sizes = None if lengths is None else lengths.numpy()
            inputs = Inputs(first, sizes, parameters, cotangent.numpy())
            if framework == "reference":
                return reference_result(inputs, problem, **options)
            with torch.enable_grad():  # which is off inside a node
                return run(framework, inputs, "float64", problem=problem, **options)

        return _Ours.apply(result, tuple(tensors), *tensors.values())  # pyright: ignore[reportReturnType]

    function.__name__ = problem
    return function


def best_alignment(framework: str) -> Callable[..., tuple[Tensor, ...]]:
    """The hard alignments of one of the functions above."""

    def function(of: Callable[..., Tensor], similarity: Tensor, lengths: Tensor, **gaps: Tensor) -> tuple[Tensor, ...]:
        arrays = [value.detach().numpy() for value in (similarity, lengths, *gaps.values())]
        if framework == "reference":
            results = reference.best_alignment(of.__name__, *arrays[:2], **dict(zip(gaps, arrays[2:], strict=True)))
            return tuple(torch.tensor(result) for result in results)
        package, backend = FRAMEWORKS[framework]
        with backend.precision("float64"):
            first, sizes, *others = (backend.to_device(array, "cpu") for array in arrays)
            own = dict(zip(gaps, others, strict=True))
            results = package.best_alignment(getattr(package, of.__name__), first, sizes, **own)
            return tuple(torch.tensor(backend.to_numpy(result)) for result in results)

    return function


def on_the_page(package: str, names: dict[str, Any]) -> dict[str, Any]:
    """The functions of the page's programs that import this package, with these names in place of what they import."""
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    functions = [
        node
        for program in programs
        if f"from {package} import" in program
        for node in ast.parse(program).body
        if isinstance(node, ast.FunctionDef)
    ]
    space = dict(names)
    exec(compile(ast.Module(list(functions), []), str(PAGE), "exec"), space)
    return space


@functools.cache
def torch_programs(framework: str) -> dict[str, Any]:
    alignments = {name: alignment(framework, name) for name in ("smith_waterman_affine", "needleman_wunsch")}
    return on_the_page("torch_impl", {"torch": torch, "best_alignment": best_alignment(framework), **alignments})


def of_each_pair(formula: Callable[..., Tensor], **options: Any) -> Callable[..., Tensor]:
    """A formula for one pair, as a function of a batch that cuts each pair to its lengths."""

    def function(*values: Any) -> Tensor:
        pairs = [
            [value[b, :rows, :cols] if isinstance(value, Tensor) and value.ndim else value for value in values]
            for b, (rows, cols) in enumerate(LENGTHS.tolist())
        ]
        return torch.stack([formula(*own, **options) for own in pairs])

    return function


def assert_same(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], values: Sequence[Tensor]) -> None:
    """The same scores, and the same derivatives for every value through a random cotangent."""
    results = []
    for function in (ours, theirs):
        inputs = [value.detach().clone().requires_grad_() for value in values]
        scores = function(*inputs)
        results.append([scores.detach(), *torch.autograd.grad(scores, inputs, some(*scores.shape, low=0.5, high=1.5))])
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def hard(formula: Callable[..., Tensor], matrix: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Values of a hard formula, and where its best paths add a cell of the matrix: the derivative of a maximum."""
    matrix = matrix.detach().requires_grad_()
    values = formula(matrix, *others)
    return values.detach(), torch.autograd.grad(values.sum(), matrix)[0]


def some(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([*shape, seed]).uniform(low, high, size=shape))


def ragged(low: float = -2.0, high: float = 2.0, seed: int = 0) -> Tensor:
    return some(len(LENGTHS), *LENGTHS.amax(0).tolist(), low=low, high=high, seed=seed)


@EVERYWHERE
def test_smurf_sw_ends_on_a_match(framework):
    assert_same(
        lambda x, gap, t: alignment(framework, "smith_waterman")(x, LENGTHS, gap=gap, temperature=t, end="match"),
        of_each_pair(other_codes.smurf_sw),
        (ragged(), GAP, TEMPERATURE),
    )


@EVERYWHERE
@pytest.mark.parametrize("by_position", BOTH)
@pytest.mark.parametrize("penalize", BOTH)
@pytest.mark.parametrize("restrict", BOTH)
def test_smurf_and_softaligns_fork_sw_affine_take_the_extension_first(framework, restrict, penalize, by_position):
    turns = {"restrict_turns": restrict, "penalize_turns": penalize}
    gaps = [ragged(-1.5, 0.0, seed=1), ragged(-3.0, 0.0, seed=2)]
    assert_same(
        lambda x, gap, opening, t: alignment(framework, "smith_waterman_affine")(
            x, LENGTHS, gap_open=opening, gap_extend=gap, temperature=t, **turns
        ),
        of_each_pair(other_codes.smurf_sw_affine, **turns),
        (ragged(), *(gap if by_position else gap.mean() for gap in gaps), TEMPERATURE),
    )


@EVERYWHERE
def test_smurf_sw_nogap_is_free_gap(framework):
    assert_same(
        lambda x, t: alignment(framework, "free_gap")(x, LENGTHS, temperature=t),
        of_each_pair(other_codes.smurf_sw_nogap),
        (ragged(), TEMPERATURE),
    )


@EVERYWHERE
def test_smurf_nw_is_needleman_wunsch(framework):
    assert_same(
        lambda x, gap, t: alignment(framework, "needleman_wunsch")(x, LENGTHS, gap=gap, temperature=t),
        of_each_pair(other_codes.smurf_nw),
        (ragged(), GAP, TEMPERATURE),
    )


def penalties(by_position: bool) -> list[Tensor]:
    each = [ragged(0.5, 3.0, seed=1), ragged(0.0, 1.0, seed=2)]
    return each if by_position else [penalty.mean() for penalty in each]


@EVERYWHERE
@pytest.mark.parametrize("by_position", BOTH)
def test_dedal_is_ours_and_the_single_matches(framework, by_position):
    assert_same(
        lambda s, *gaps: torch_programs(framework)["dedal"](s, LENGTHS, *gaps, temp=0.8),
        of_each_pair(other_codes.dedal_sw_affine, temp=0.8),
        (ragged(), *penalties(by_position)),
    )


@EVERYWHERE
def test_dedal_of_a_single_row_or_column_is_its_single_matches(framework):
    similarity, lengths = some(2, 4, 5), torch.tensor([[1, 5], [4, 1]])
    score = torch_programs(framework)["dedal"](similarity, lengths, TEMPERATURE.abs(), TEMPERATURE.abs())
    single = torch.stack([similarity[0, 0].logsumexp(0), similarity[1, :, 0].logsumexp(0)])
    np.testing.assert_allclose(score, single, rtol=1e-12)


@EVERYWHERE
@pytest.mark.parametrize("by_position", BOTH)
def test_hard_dedal_is_the_best_alignment_a_single_match_or_nothing(framework, by_position):
    """Each is the answer somewhere, and where it is the best alignment, so are their matches."""
    found = set()
    for seed, level in itertools.product(range(4), (-3.0, 0.0, 1.0)):
        sim_mat = ragged(level - 1.5, level + 1.5, seed=seed)
        scores, matches = torch_programs(framework)["hard_dedal"](sim_mat, LENGTHS, *penalties(by_position))
        expected, paths = hard(of_each_pair(other_codes.dedal_sw_affine, temp=None), sim_mat, *penalties(by_position))
        np.testing.assert_allclose(scores, expected, rtol=1e-12)
        counts = paths.sum((1, 2))
        found |= set(counts.clamp(max=2).tolist())
        np.testing.assert_array_equal(matches[counts > 1], paths[counts > 1] > 0)
    assert found == {0, 1, 2}


@EVERYWHERE
def test_deepblast_nw_is_needleman_wunsch_with_gaps_by_position(framework):
    assert_same(
        lambda theta, a: torch_programs(framework)["decoder"](theta, LENGTHS, A=a),
        of_each_pair(other_codes.deepblast_nw),
        (ragged(), ragged(-1.5, 0.0, seed=1)),
    )


@EVERYWHERE
def test_deepblast_sw_is_its_nw_without_the_first_row_and_column(framework):
    function = alignment(framework, "needleman_wunsch")
    assert_same(
        lambda theta, a: function(theta[:, 1:, 1:], LENGTHS - 1, gap=(theta + a)[:, 1:, 1:]),
        of_each_pair(other_codes.deepblast_sw),
        (ragged(), ragged(-1.5, 0.0, seed=1)),
    )


@EVERYWHERE
@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_soft_dtw_is_needleman_wunsch_behind_a_wall(framework, gamma):
    assert_same(
        lambda d, gamma: torch_programs(framework)["soft_dtw"](d, LENGTHS, gamma),
        of_each_pair(other_codes.soft_dtw),
        (ragged(0.0, 4.0), torch.tensor(gamma).double()),
    )


@EVERYWHERE
def test_a_band_of_soft_dtw_is_infinite_costs_outside(framework):
    i, j = np.indices((6, 6))
    outside = torch.from_numpy(abs(i - j) > 2)
    assert_same(
        lambda d, gamma: torch_programs(framework)["soft_dtw"](d.masked_fill(outside, torch.inf), LENGTHS[:1], gamma),
        lambda d, gamma: other_codes.soft_dtw(d[0, :, :5], gamma, bandwidth=2)[None],
        (some(1, 6, 6, low=0.0, high=4.0), TEMPERATURE),
    )


@EVERYWHERE
def test_soft_dtw_without_any_path_is_huge(framework):
    costs = some(1, 5, 6, low=0.0, high=4.0)
    costs[:, 2] = torch.inf
    assert (torch_programs(framework)["soft_dtw"](costs, torch.tensor([[5, 6]]), TEMPERATURE) >= 1e20).all()


@EVERYWHERE
def test_sharp_soft_dtw_is_the_value_less_gamma_times_its_slope(framework):
    d, gamma = ragged(0.0, 4.0).requires_grad_(), TEMPERATURE.clone().requires_grad_()
    expected = other_codes.soft_dtw(d[0], gamma)
    (visits,) = torch.autograd.grad(expected, d)
    value = torch_programs(framework)["soft_dtw"](d, LENGTHS, gamma)[0]
    (slope,) = torch.autograd.grad(value, gamma)
    np.testing.assert_allclose((value - gamma * slope).item(), (visits * d).sum().item(), rtol=1e-10)


@EVERYWHERE
def test_hard_dtw_is_the_best_alignment_behind_the_wall(framework):
    """Its path has the cells that the best alignment matches, and those that its gaps enter."""
    d = ragged(0.0, 4.0)
    values, matches = torch_programs(framework)["hard_dtw"](d, LENGTHS)
    expected, paths = hard(of_each_pair(other_codes.soft_dtw), d, None)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert matches[:, 0, 0].all() and (paths[matches] == 1).all()


def test_soft_dtw_in_jax_is_the_same():
    """Through JAX's own derivatives, the second ones too."""
    function = on_the_page("jax_impl", {"jax": jax, "jnp": jnp, **vars(jax_impl)})["soft_dtw"]
    d, direction = ragged(0.0, 4.0).requires_grad_(), ragged(seed=1)
    expected = of_each_pair(other_codes.soft_dtw)(d, TEMPERATURE)
    (visits,) = torch.autograd.grad(expected.sum(), d, create_graph=True)
    (changes,) = torch.autograd.grad((visits * direction).sum(), d)
    with jax_impl.backend.precision("float64"):
        total = lambda d: function(d, jnp.asarray(LENGTHS), 0.8).sum()  # noqa: E731
        at, along = jnp.asarray(d.detach()), jnp.asarray(direction)
        value, own_visits = jax.value_and_grad(total)(at)
        own_changes = jax.grad(lambda d: (jax.grad(total)(d) * along).sum())(at)
    np.testing.assert_allclose(value, expected.detach().sum(), rtol=1e-9)
    np.testing.assert_allclose(own_visits, visits.detach(), atol=1e-9)
    np.testing.assert_allclose(own_changes, changes, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "formula"), [("dedal", "dedal_sw_affine"), ("deepblast", "deepblast_nw"), ("soft_dtw", "soft_dtw")]
)
def test_what_the_page_says_to_do_is_needed(name, formula):
    """Without the single matches, the similarity in the gaps, or the wall, it is something else."""
    plain = {
        "dedal": lambda s, a: alignment("reference", "smith_waterman_affine")(s, LENGTHS, gap_open=-a, gap_extend=-a),
        "deepblast": lambda theta, a: alignment("reference", "needleman_wunsch")(theta, LENGTHS, gap=a),
        "soft_dtw": lambda d, gamma: (
            -alignment("reference", "needleman_wunsch")(-d, LENGTHS, gap=-d, temperature=gamma)
        ),
    }[name]
    wanted = {
        "dedal": lambda s, a: of_each_pair(other_codes.dedal_sw_affine)(s, a, a),
    }.get(name, of_each_pair(getattr(other_codes, formula)))
    with pytest.raises(AssertionError):
        assert_same(plain, wanted, (ragged(0.0, 3.0), TEMPERATURE if name == "soft_dtw" else ragged(0.0, 1.0, seed=1)))
