"""What docs/migrating.md says of other codes: their formulas beside our calls.

Where the page has a function, that very text runs here. Scores and all derivatives are compared in float64, with ragged
lengths, by PyTorch's functions; test_parity.py compares these with the reference and with JAX's.
"""

import ast
import functools
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_impl
from torch_impl import free_gap, needleman_wunsch, smith_waterman, smith_waterman_affine

Tensor = torch.Tensor
Pair = tuple[int, int]


def smax(values: Sequence[Tensor], temperature: Tensor | float | None) -> Tensor:
    """The smooth maximum, or the maximum without a temperature."""
    stacked = torch.stack(list(values))
    return stacked.max() if temperature is None else temperature * torch.logsumexp(stacked / temperature, 0)


def cells(matrix: Tensor) -> list[Pair]:
    return list(np.ndindex(*matrix.shape))


def neighbours(i: int, j: int) -> tuple[Pair, Pair, Pair]:
    return (i - 1, j - 1), (i, j - 1), (i - 1, j)


def at(gap: Tensor, cell: Pair) -> Tensor:
    """The gap that enters a cell, by position or one for all."""
    return gap[cell] if gap.ndim else gap


def plus(states: dict[Pair, Tensor], cell: Pair, *terms: Tensor) -> list[Tensor]:
    """The choice of coming from a cell, if it has a state."""
    return [states[cell] + sum(terms)] if cell in states else []


def affine_states(
    x: Tensor, gap: Tensor, opening: Tensor, temp: Tensor | float | None, restrict_turns: bool, penalize_turns: bool
) -> tuple[dict[Pair, Tensor], list[Tensor]]:
    """The values of alignments that end in each match, and of those with a match before it."""
    align: dict[Pair, Tensor] = {}
    right: dict[Pair, Tensor] = {}
    down: dict[Pair, Tensor] = {}
    ends = []
    for cell in cells(x):
        diagonal, left, up = neighbours(*cell)
        extend, start = at(gap, cell), at(opening, cell)
        turn = start if penalize_turns else extend
        match = [value for state in (align, right, down) for value in plus(state, diagonal, x[cell])]
        ends += match
        align[cell] = smax([*match, x[cell]], temp)
        turned = [] if restrict_turns else plus(down, left, turn)
        along = [*plus(align, left, start), *plus(right, left, extend), *turned]
        across = [*plus(align, up, start), *plus(right, up, turn), *plus(down, up, extend)]
        for state, choices in ((right, along), (down, across)):
            if choices:
                state[cell] = smax(choices, temp)
    return align, ends


def smurf_sw_affine(
    x: Tensor, gap: Tensor, opening: Tensor, temp: Tensor, restrict_turns: bool = True, penalize_turns: bool = True
) -> Tensor:
    """SoftAlign's fork has the matrices gap_matrix and open_matrix in place of gap and open."""
    _, ends = affine_states(x, gap, opening, temp, restrict_turns, penalize_turns)
    return smax(ends, temp)


def smurf_sw(x: Tensor, gap: Tensor, temp: Tensor) -> Tensor:
    """One state in its code, the sum of the three of a gap that opens as it extends and turns as it likes."""
    return smurf_sw_affine(x, gap, gap, temp, restrict_turns=False)


def smurf_sw_nogap(x: Tensor, temp: Tensor) -> Tensor:
    zero = x.new_zeros(())
    h: dict[Pair, Tensor] = {}
    for cell in cells(x):
        diagonal, left, up = (h.get(neighbour, zero) for neighbour in neighbours(*cell))
        h[cell] = smax([diagonal + x[cell], left, up], temp)
    return torch.stack(list(h.values())).max()


def smurf_nw(x: Tensor, gap: Tensor, temp: Tensor) -> Tensor:
    rows, cols = x.shape
    h = {(i, -1): (i + 1) * gap for i in range(-1, rows)} | {(-1, j): (j + 1) * gap for j in range(cols)}
    for cell in cells(x):
        diagonal, left, up = (h[neighbour] for neighbour in neighbours(*cell))
        h[cell] = smax([diagonal + x[cell], left + gap, up + gap], temp)
    return h[rows - 1, cols - 1]


def dedal_sw_affine(sim_mat: Tensor, gap_open: Tensor, gap_extend: Tensor, temp: float | None = 1.0) -> Tensor:
    """Penalties are subtracted; a single match is an alignment; hard without a temperature, and then never below 0."""
    matches, _ = affine_states(sim_mat, -gap_extend, -gap_open, temp, True, True)
    return smax([*matches.values(), *([sim_mat.new_zeros(())] if temp is None else [])], temp)


def deepblast_nw(theta: Tensor, a: Tensor) -> Tensor:
    zero = theta.new_zeros(())
    v: dict[Pair, Tensor] = {}
    for cell in cells(theta):
        diagonal, left, up = (v.get(neighbour, zero) for neighbour in neighbours(*cell))
        v[cell] = theta[cell] + smax([a[cell] + up, diagonal, a[cell] + left], 1.0)
    return v[theta.shape[0] - 1, theta.shape[1] - 1]


def deepblast_sw(theta: Tensor, a: Tensor) -> Tensor:
    """Both of its loops begin one cell later, so that the values of the first row and column stay 0."""
    return deepblast_nw(theta[1:, 1:], a[1:, 1:])


def soft_dtw(d: Tensor, gamma: Tensor | None, bandwidth: int | None = None) -> Tensor:
    """The hard one without gamma. With a bandwidth, cells further from the diagonal have no value."""
    r = {(-1, -1): d.new_zeros(())}
    for i, j in cells(d):
        if bandwidth is None or abs(i - j) <= bandwidth:
            before = [-r[neighbour] for neighbour in neighbours(i, j) if neighbour in r]
            r[i, j] = d[i, j] - smax(before, gamma)
    return r[d.shape[0] - 1, d.shape[1] - 1]


PAGE = Path(__file__).parents[1] / "docs" / "migrating.md"
LENGTHS = torch.tensor([[6, 5], [2, 2], [4, 5], [5, 3]])  # SMURF's functions need two rows and columns
GAP, TEMPERATURE = torch.tensor([-0.7, 0.8], dtype=torch.float64)


@functools.cache
def on_the_page() -> dict[str, Any]:
    """The functions of the page's programs."""
    programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    space = {"torch": torch, **vars(torch_impl)}
    for program in programs:
        if "from torch_impl import" in program:
            functions = [node for node in ast.parse(program).body if isinstance(node, ast.FunctionDef)]
            exec(compile(ast.Module([*functions], []), str(PAGE), "exec"), space)
    return space


def program(name: str) -> Callable[..., Any]:
    return on_the_page()[name]


def of_each_pair(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A formula for one pair, as a function of a batch that cuts each pair to its lengths."""

    def function(*values: Any) -> Tensor:
        pairs = [
            [value[b, :rows, :cols] if isinstance(value, Tensor) and value.ndim else value for value in values]
            for b, (rows, cols) in enumerate(LENGTHS.tolist())
        ]
        return torch.stack([formula(*pair) for pair in pairs])

    return function


def assert_same(one: Callable[..., Tensor], other: Callable[..., Tensor], values: Sequence[Tensor]) -> None:
    """Assert equal scores, and equal derivatives for every value through a random cotangent."""
    results = []
    for function in (one, other):
        inputs = [value.detach().clone().requires_grad_() for value in values]
        scores = function(*inputs)
        results.append([scores.detach(), *torch.autograd.grad(scores, inputs, some(*scores.shape, low=0.5, high=1.5))])
    for got, exact in zip(*results, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-9, atol=1e-9)


def hard(formula: Callable[..., Tensor], matrix: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Values of a hard formula, and where its best paths add a cell of the matrix: the derivative of a maximum."""
    matrix = matrix.detach().requires_grad_()
    values = of_each_pair(formula)(matrix, *others)
    return values.detach(), torch.autograd.grad(values.sum(), matrix)[0]


def some(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([*shape, seed]).uniform(low, high, size=shape))


def ragged(low: float = -2.0, high: float = 2.0, seed: int = 0) -> Tensor:
    return some(len(LENGTHS), *LENGTHS.amax(0).tolist(), low=low, high=high, seed=seed)


def ours(function: Callable[..., Tensor], *names: str, **options: Any) -> Callable[..., Tensor]:
    """One of our functions of the ragged batch, its other arguments by position, in this order."""
    return lambda x, *values: function(x, LENGTHS, **dict(zip(names, values, strict=True)), **options)


def penalties(by_position: bool) -> list[Tensor]:
    both = [ragged(0.5, 3.0, seed=1), ragged(0.0, 1.0, seed=2)]
    return both if by_position else [penalty.mean() for penalty in both]


X, COSTS, GAPS = ragged(), ragged(0.0, 4.0), ragged(-1.5, 0.0, seed=1)
LINEAR = X, GAP, TEMPERATURE
# our function, theirs of one pair, and values of their arguments
IDENTITIES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], Sequence[Tensor]]] = {
    "SMURF's sw ends on a match": (ours(smith_waterman, "gap", "temperature", end="match"), smurf_sw, LINEAR),
    "SMURF's nw is needleman_wunsch": (ours(needleman_wunsch, "gap", "temperature"), smurf_nw, LINEAR),
    "SMURF's sw_nogap is free_gap": (ours(free_gap, "temperature"), smurf_sw_nogap, (X, TEMPERATURE)),
    "soft-DTW is soft_dtw": (ours(torch_impl.soft_dtw, "temperature"), soft_dtw, (COSTS, TEMPERATURE)),
    "deepblast's nw has gaps by position": (ours(program("decoder"), "A"), deepblast_nw, (X, GAPS)),
    "deepblast's sw is its nw without the first row and column": (
        lambda theta, a: needleman_wunsch(theta[:, 1:, 1:], LENGTHS - 1, gap=(theta + a)[:, 1:, 1:]),
        deepblast_sw,
        (X, GAPS),
    ),
}
for turns in itertools.product((True, False), repeat=2):
    options = dict(zip(("restrict_turns", "penalize_turns"), turns, strict=True))
    IDENTITIES[f"sw_affine of SMURF and SoftAlign's fork takes the extension first {turns}"] = (
        ours(smith_waterman_affine, "gap_extend", "gap_open", "temperature", **options),
        functools.partial(smurf_sw_affine, **options),
        (X, GAPS, ragged(-3.0, 0.0, seed=2), TEMPERATURE) if turns[0] else (X, GAP, GAP - 1, TEMPERATURE),
    )
for by_position in (True, False):
    IDENTITIES[f"DEDAL is ours and the single matches {by_position}"] = (
        ours(program("dedal"), "gap_open", "gap_extend", temp=0.8),
        functools.partial(dedal_sw_affine, temp=0.8),
        (X, *penalties(by_position)),
    )


@pytest.mark.parametrize("identity", IDENTITIES)
def test_another_code_is_one_of_our_functions(identity):
    function, formula, values = IDENTITIES[identity]
    assert_same(function, of_each_pair(formula), values)


def test_dedal_of_a_single_row_or_column_is_its_single_matches():
    similarity, lengths = some(2, 4, 5), torch.tensor([[1, 5], [4, 1]])
    score = program("dedal")(similarity, lengths, TEMPERATURE.abs(), TEMPERATURE.abs())
    single = torch.stack([similarity[0, 0].logsumexp(0), similarity[1, :, 0].logsumexp(0)])
    np.testing.assert_allclose(score, single, rtol=1e-12)


@pytest.mark.parametrize("by_position", [True, False])
def test_hard_dedal_is_the_best_alignment_a_single_match_or_nothing(by_position):
    """Each is the answer somewhere, and where it is the best alignment, so are their matches."""
    kinds = set()
    for seed, level in itertools.product(range(4), (-3.0, 0.0, 1.0)):
        sim_mat = ragged(level - 1.5, level + 1.5, seed=seed)
        scores, matches = program("hard_dedal")(sim_mat, LENGTHS, *penalties(by_position))
        expected, paths = hard(functools.partial(dedal_sw_affine, temp=None), sim_mat, *penalties(by_position))
        np.testing.assert_allclose(scores, expected, rtol=1e-12)
        counts = paths.sum((1, 2))
        kinds |= set(counts.clamp(max=2).tolist())
        np.testing.assert_array_equal(matches[counts > 1], paths[counts > 1] > 0)
    assert kinds == {0, 1, 2}


def test_a_band_of_soft_dtw_is_infinite_costs_outside():
    i, j = np.indices((6, 6))
    outside = torch.from_numpy(abs(i - j) > 2)
    assert_same(
        lambda d, gamma: torch_impl.soft_dtw(d.masked_fill(outside, torch.inf), LENGTHS[:1], temperature=gamma),
        lambda d, gamma: soft_dtw(d[0, :, :5], gamma, bandwidth=2)[None],
        (some(1, 6, 6, low=0.0, high=4.0), TEMPERATURE),
    )


def test_soft_dtw_without_any_path_is_infinite():
    costs = some(1, 5, 6, low=0.0, high=4.0)
    costs[:, 2] = torch.inf
    assert torch_impl.soft_dtw(costs, torch.tensor([[5, 6]]), temperature=TEMPERATURE).tolist() == [torch.inf]


def test_sharp_soft_dtw_is_the_value_less_gamma_times_its_slope():
    d, gamma = ragged(0.0, 4.0).requires_grad_(), TEMPERATURE.clone().requires_grad_()
    expected = soft_dtw(d[0], gamma)
    (visits,) = torch.autograd.grad(expected, d)
    value = torch_impl.soft_dtw(d, LENGTHS, temperature=gamma)[0]
    (slope,) = torch.autograd.grad(value, gamma)
    np.testing.assert_allclose((value - gamma * slope).item(), (visits * d).sum().item(), rtol=1e-10)


def test_hard_dtw_is_the_best_alignment_of_costs():
    values, matches = torch_impl.best_alignment(torch_impl.soft_dtw, COSTS, LENGTHS)
    expected, paths = hard(soft_dtw, COSTS, None)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_array_equal(matches, paths > 0)
