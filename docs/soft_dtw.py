"""Soft-DTW, a smooth distance of two series, as a problem of the benchmark:

    python compare.py --problem docs/soft_dtw.py

r[i, j] = (x[i] - y[j])^2 + softmin(r[i-1, j-1], r[i-1, j], r[i, j-1]), where softmin(a) = -log(sum(exp(-a))). Outside
the matrix r is infinite, but r[-1, -1] = 0; the result is the last cell, for each pair of series of a batch. Source:
Cuturi and Blondel 2017, arXiv:1703.01541.
"""

import numpy as np  # no framework: each function imports its own

FAR = 1e9  # instead of infinity: the difference of two infinities, in a gradient, is NaN

passes = ("value", "gradient")  # without this line the value alone


def inputs(seed):
    """The arguments of the functions below, [pair, step]. The benchmark makes the floats float32 or float64."""
    random = np.random.default_rng(seed)
    return random.standard_normal((64, 40)), random.standard_normal((64, 40))


def reference(x, y):
    """The soft-DTW recurrence in NumPy, slow and obvious: both frameworks must compute the same."""
    r = np.full((x.shape[1] + 1, y.shape[1] + 1, len(x)), np.inf)
    r[0, 0] = 0
    for i, j in np.ndindex(x.shape[1], y.shape[1]):
        r[i + 1, j + 1] = (x[:, i] - y[:, j]) ** 2 - np.logaddexp.reduce([-r[i, j], -r[i, j + 1], -r[i + 1, j]])
    return r[-1, -1]


def jax_function(x, y):
    """A scan over anti-diagonals, in each of which no cell depends on another. Runs under jax.jit."""
    import jax
    import jax.numpy as jnp

    column = jnp.arange(x.shape[1] + y.shape[1] - 1)[:, None] - jnp.arange(x.shape[1])  # [diagonal, row]
    inside = (column >= 0) & (column < y.shape[1])
    costs = jnp.where(inside, (x[:, None] - y[:, column.clip(0, y.shape[1] - 1)]) ** 2, FAR)  # [pair, diagonal, row]

    def step(diagonals, cost):
        before, last = diagonals  # [pair, 1 + row]; row 0 is outside
        softmin = -jax.nn.logsumexp(-jnp.stack([before[:, :-1], last[:, :-1], last[:, 1:]]), axis=0)
        return (last, jnp.concatenate([far[:, :1], cost + softmin], axis=1)), None

    far = jnp.full((len(x), x.shape[1] + 1), FAR, x.dtype)
    (_, last), _ = jax.lax.scan(step, (far.at[:, 0].set(0), far), costs.swapaxes(0, 1))
    return last[:, -1]


def torch_function(x, y):
    """Soft-DTW as a Python loop: runs eagerly, or under torch.compile, which unrolls it and compiles slowly."""
    import torch

    rows = torch.arange(x.shape[1], device=x.device)
    column = torch.arange(x.shape[1] + y.shape[1] - 1, device=x.device)[:, None] - rows  # [diagonal, row]
    inside = (column >= 0) & (column < y.shape[1])
    costs = torch.where(inside, (x[:, None] - y[:, column.clip(0, y.shape[1] - 1)]) ** 2, FAR)  # [pair, diagonal, row]
    far = x.new_full((len(x), x.shape[1] + 1), FAR)
    before, last = torch.cat([x.new_zeros(len(x), 1), far[:, 1:]], dim=1), far  # [pair, 1 + row]; row 0 is outside
    for cost in costs.unbind(1):
        softmin = -torch.logsumexp(-torch.stack([before[:, :-1], last[:, :-1], last[:, 1:]]), dim=0)
        before, last = last, torch.cat([far[:, :1], cost + softmin], dim=1)
    return last[:, -1]
