"""The cost model of `growth`: what a call, a step of its loop and a cell cost, fitted to what each size took.

    seconds of a call  = call + step * steps + cell * cells + excess * max(0, cells - knee)
    bytes of a call    = base + cell * cells
    seconds to compile = start + step * steps

No coefficient is negative. From the knee on, a cell costs more: what a call works on no longer fits into a cache.
Residuals are logarithms, so that a size of microseconds counts as much as one of seconds. Large residuals count less
(soft L1), so that one odd size does not bend the model for all others.

What a size takes differs from any such sum by far more than calls of that size differ from each other, so sizes are the
sample. Each is left out once: how far the coefficients then move gives their intervals (the jackknife), and how far the
prediction of the others is off is the error on a size that was not seen, which the interval of a prediction includes.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shared.bench.estimates import CONFIDENCE, Estimate

# residuals (of logarithms) beyond this count less than their square
_SOFT = 0.1
# Errors beyond so many standard deviations count as that many: one odd size must not widen the interval of all others.
# The standard deviation of a normal distribution is so many times the median of its absolute values.
_ODD, _MEDIAN_TO_SIGMA = 2.5, 1.4826
# the tolerance for linear dependence of columns, scaled to unit length
_DEPENDENT = 1e-6
# most places where the knee is tried, and how many sizes there must be on either side
_KNEES, _BESIDE = 5, 2
# in units of `scale` below: the least coefficient at the start of a fit, and one that counts as 0 in its result
_START, _NEGLIGIBLE = 1e-3, 1e-6
_LEAST = float(np.finfo(float).tiny)


class Sum(NamedTuple):
    """The coefficients, 0 for a column that the sizes cannot tell from those before it."""

    coefficients: np.ndarray  # (columns + 1,): the last is that of the first column's excess over the knee
    knee: float

    def logs(self, rows: np.ndarray) -> np.ndarray:
        """The logarithm of the sum, for (sizes, columns) or (columns,)."""
        return np.log(np.maximum(_with_knee(rows, self.knee) @ self.coefficients, _LEAST))


def _with_knee(rows: np.ndarray, knee: float) -> np.ndarray:
    return np.concatenate([rows, np.maximum(0.0, rows[..., :1] - knee)], axis=-1)


@dataclass(frozen=True, eq=False)
class Fit:
    """A quantity as a sum, and how certain that is."""

    sizes: tuple[str, ...]
    sum: Sum
    without: tuple[Sum, ...]  # the same without each of the sizes
    errors: np.ndarray  # (sizes,): the logarithm of what the other sizes predict over what was measured

    @property
    def worst(self) -> str:
        """The size that the others predict worst."""
        return self.sizes[int(np.abs(self.errors).argmax())]

    @property
    def factors(self) -> tuple[float, float]:
        """The factors by which predictions of unseen sizes are off: the median and the largest."""
        factors = np.exp(np.abs(self.errors))
        return float(np.median(factors)), float(factors.max())

    def coefficient(self, column: int) -> Estimate:
        """Estimate a coefficient; its lower end is below 0 where it cannot be told from 0."""
        return self._number(lambda one: one.coefficients[column])

    @property
    def beyond(self) -> Estimate | None:
        """The cost of a unit of the first column beyond the knee; None where it does not differ from that below."""
        return self._number(lambda one: one.coefficients[[0, -1]].sum()) if self.coefficient(-1).low > 0 else None

    def _number(self, value: Callable[[Sum], float]) -> Estimate:
        number = float(value(self.sum))
        margin = _margin(np.array([value(one) - number for one in self.without]))
        return Estimate(number, number - margin, number + margin)

    def at(self, columns: Sequence[float]) -> Estimate:
        """The prediction for a size."""
        log, moves = self._logs(columns)
        return _estimate(log, _margin(moves, self.errors))

    def over(self, other: "Fit", own: Sequence[float], others: Sequence[float]) -> Estimate | None:
        """This prediction over another one; None where they have too few sizes in common. own, others: the columns.

        An error that a size has in both, as where they run the same code, cancels out.
        """
        both = [(k, other.sizes.index(size)) for k, size in enumerate(self.sizes) if size in other.sizes]
        if len(both) < 2:
            return None
        mine, theirs = map(list, zip(*both, strict=True))
        (log, my_moves), (under, their_moves) = self._logs(own), other._logs(others)
        errors = self.errors[mine] - other.errors[theirs]
        return _estimate(log - under, _margin(my_moves[mine] - their_moves[theirs], errors))

    def _logs(self, columns: Sequence[float]) -> tuple[float, np.ndarray]:
        """The logarithm of the prediction, and how far it moves without each size (sizes,)."""
        row = np.asarray(columns, dtype=float)
        log = float(self.sum.logs(row))
        return log, np.array([float(one.logs(row)) - log for one in self.without])


def _margin(moves: np.ndarray, errors: np.ndarray | None = None) -> float:
    """Half of the interval of an estimate, by how far it moves without each size; and by the errors of single sizes."""
    from scipy.stats import t  # here: it takes a third of a second

    variance = (len(moves) - 1) * np.square(moves).mean()
    if errors is not None:
        off = np.abs(errors)
        variance += np.square(np.minimum(off, _ODD * _MEDIAN_TO_SIGMA * np.median(off))).mean()
    return float(t.ppf((1 + CONFIDENCE) / 2, len(moves) - 1) * math.sqrt(variance))


def _estimate(log: float, margin: float) -> Estimate:
    return Estimate(math.exp(log), math.exp(log - margin), math.exp(log + margin))


@functools.lru_cache(maxsize=1024)
def fitted(
    sizes: tuple[str, ...], columns: tuple[tuple[float, ...], ...], values: tuple[float, ...], has_knee: bool = False
) -> Fit | None:
    """Fit values, one for each size; None unless there are more sizes than numbers to fit.

    columns: for each size. One that depends on those before it is left out: its cost is in theirs.
    """
    rows, measured, every = np.array(columns, dtype=float), np.log(values), np.arange(len(sizes))
    if not sizes or len(sizes) <= len(_independent(rows, measured)):
        return None
    without = tuple(_best_sum(rows[every != k], measured[every != k], has_knee) for k in every)
    errors = np.array([float(one.logs(row)) for one, row in zip(without, rows, strict=True)]) - measured
    return Fit(sizes, _best_sum(rows, measured, has_knee), without, errors)


def _best_sum(rows: np.ndarray, measured: np.ndarray, has_knee: bool) -> Sum:
    """The sum with the lowest Bayesian information criterion, without a knee and, if asked for, with one."""
    between = np.unique(rows[:, 0])[_BESIDE:-_BESIDE] if has_knee else np.array([])
    chosen = np.unique(np.linspace(0, len(between) - 1, min(_KNEES, len(between))).round().astype(int))
    return min((_summed(rows, measured, knee) for knee in (math.inf, *between[chosen])), key=lambda each: each[0])[1]


def _independent(rows: np.ndarray, measured: np.ndarray) -> list[int]:
    """The columns that do not depend on those before."""
    relative = rows / np.exp(measured)[:, None]
    independent: list[int] = []
    for k in np.flatnonzero(rows.any(axis=0)):
        tried = relative[:, [*independent, k]]
        if np.linalg.matrix_rank(tried / np.linalg.norm(tried, axis=0), tol=_DEPENDENT) > len(independent):
            independent.append(int(k))
    return independent


def _summed(rows: np.ndarray, measured: np.ndarray, knee: float) -> tuple[float, Sum]:
    """The Bayesian information criterion per size, and the sum by robust least squares over logarithms. The criterion
    is infinite for a knee where there are no more sizes than numbers to fit."""
    from scipy.optimize import least_squares, nnls

    rows = _with_knee(rows, knee)
    columns = _independent(rows, measured)
    relative = rows[:, columns] / np.exp(measured)[:, None]
    # scaled so that 1 explains the whole value of the size at which the column matters most
    scale = 1 / relative.max(axis=0)
    fit = least_squares(
        lambda shares: np.log(rows[:, columns] * scale @ shares) - measured,
        np.maximum(nnls(relative * scale, np.ones(len(rows)))[0], _START),
        bounds=(0, np.inf), loss="soft_l1", f_scale=_SOFT, ftol=1e-6,
    )  # fmt: skip
    coefficients = np.zeros(rows.shape[1])
    coefficients[columns] = np.where(fit.x > _NEGLIGIBLE, fit.x, 0.0) * scale  # fit.x stays off its bound
    count = len(columns) + (knee < math.inf)
    is_determined = knee == math.inf or count < len(rows)
    criterion = math.log(max(fit.cost, _LEAST)) + count * math.log(len(rows)) / len(rows)
    return criterion if is_determined else math.inf, Sum(coefficients, knee)
