"""Soft-DTW, a smooth distance of two series, as a problem of the benchmark:

    python compare.py --problem docs/soft_dtw.py

r[i, j] = (x[i] - y[j])^2 + softmin(r[i-1, j-1], r[i-1, j], r[i, j-1]), where softmin(a) = -log(sum(exp(-a))). Outside
the matrix r is infinite, but r[-1, -1] = 0; the result is the last cell. Source: Cuturi and Blondel 2017,
arXiv:1703.01541.
"""

import numpy as np  # no framework: each function imports its own

FAR = 1e9  # instead of infinity: the difference of two infinities, in a gradient, is NaN

passes = ("value", "gradient")  # without this line the value alone


def inputs(seed):
    """The arguments of the functions below. The benchmark makes the floats float32 or float64."""
    random = np.random.default_rng(seed)
    return random.standard_normal(16), random.standard_normal(16)


def reference(x, y):
    """The soft-DTW recurrence in NumPy, slow and obvious: both frameworks must compute the same."""
    r = np.full((len(x) + 1, len(y) + 1), np.inf)
    r[0, 0] = 0
    for i, j in np.ndindex(len(x), len(y)):
        r[i + 1, j + 1] = (x[i] - y[j]) ** 2 - np.logaddexp.reduce([-r[i, j], -r[i, j + 1], -r[i + 1, j]])
    return r[-1, -1]


def jax_function(x, y):
    """A scan over anti-diagonals, in each of which no cell depends on another. Runs under jax.jit."""
    import jax
    import jax.numpy as jnp

    column = jnp.arange(len(x) + len(y) - 1)[:, None] - jnp.arange(len(x))  # [diagonal, row]
    inside = (column >= 0) & (column < len(y))
    costs = jnp.where(inside, (x - y[column.clip(0, len(y) - 1)]) ** 2, FAR)

    def step(diagonals, cost):
        before, last = diagonals  # [1 + row]; [0] is outside
        softmin = -jax.nn.logsumexp(-jnp.stack([before[:-1], last[:-1], last[1:]]), axis=0)
        return (last, jnp.concatenate([far[:1], cost + softmin])), None

    far = jnp.full(len(x) + 1, FAR, x.dtype)
    (_, last), _ = jax.lax.scan(step, (far.at[0].set(0), far), costs)
    return last[-1]


def torch_function(x, y):
    """Soft-DTW as a Python loop: runs eagerly, or under torch.compile, which unrolls it and compiles slowly."""
    import torch

    rows = torch.arange(len(x), device=x.device)
    column = torch.arange(len(x) + len(y) - 1, device=x.device)[:, None] - rows  # [diagonal, row]
    inside = (column >= 0) & (column < len(y))
    costs = torch.where(inside, (x - y[column.clip(0, len(y) - 1)]) ** 2, FAR)
    far = x.new_full((len(x) + 1,), FAR)
    before, last = torch.cat([x.new_zeros(1), far[1:]]), far  # [1 + row]; [0] is outside
    for cost in costs:
        softmin = -torch.logsumexp(-torch.stack([before[:-1], last[:-1], last[1:]]), dim=0)
        before, last = last, torch.cat([far[:1], cost + softmin])
    return last[-1]
