"""Soft-DTW, a smooth distance of two series, as a problem of the benchmark:

    python compare.py --problem docs/soft_dtw.py

r[i, j] = (x[i] - y[j])^2 + softmin(r[i-1, j-1], r[i-1, j], r[i, j-1]) with softmin(a) = -log(sum(exp(-a))): outside the
matrix r is infinite, but r[-1, -1] = 0. The result is the last cell. Source: Cuturi and Blondel 2017, arXiv:1703.01541.
"""

import numpy as np  # but no framework: each is imported by its own function

FAR = 1e9  # instead of infinity: in a gradient the difference of two infinities is NaN

passes = ("value", "gradient")  # without this line: ("value",)


def inputs(seed):
    """The arguments of the three functions; the benchmark makes the floats float32 or float64."""
    drawn = np.random.default_rng(seed)
    return drawn.standard_normal(16), drawn.standard_normal(16)


def reference(x, y):
    """What is right: in NumPy, slow and obvious. Results and gradients of both frameworks are compared with it."""
    r = np.full((len(x) + 1, len(y) + 1), np.inf)  # [0, :] and [:, 0] are outside
    r[0, 0] = 0
    for i, j in np.ndindex(len(x), len(y)):
        r[i + 1, j + 1] = (x[i] - y[j]) ** 2 - np.logaddexp.reduce([-r[i, j], -r[i, j + 1], -r[i + 1, j]])
    return r[-1, -1]


def jax_function(x, y):
    """A scan over anti-diagonals, each indexed by row; runs under jax.jit."""
    import jax
    import jax.numpy as jnp

    column = jnp.arange(len(x) + len(y) - 1)[:, None] - jnp.arange(len(x))  # [diagonal, row]
    inside = (column >= 0) & (column < len(y))
    costs = jnp.where(inside, (x - y[column.clip(0, len(y) - 1)]) ** 2, FAR)
    far = jnp.full(len(x) + 1, FAR, x.dtype)  # [0] is the row outside

    def step(last_two, cost):
        before, last = last_two
        softmin = -jax.nn.logsumexp(-jnp.stack([before[:-1], last[:-1], last[1:]]), axis=0)
        return (last, jnp.concatenate([far[:1], cost + softmin])), None

    (_, last), _ = jax.lax.scan(step, (far.at[0].set(0), far), costs)
    return last[-1]


def torch_function(x, y):
    """A Python loop over anti-diagonals; runs as it is, and under torch.compile."""
    import torch

    column = torch.arange(len(x) + len(y) - 1)[:, None] - torch.arange(len(x))
    inside = (column >= 0) & (column < len(y))
    costs = torch.where(inside, (x - y[column.clip(0, len(y) - 1)]) ** 2, FAR)
    last = torch.full((len(x) + 1,), FAR, dtype=x.dtype)
    before = torch.cat([last.new_zeros(1), last[1:]])
    for cost in costs:
        softmin = -torch.logsumexp(-torch.stack([before[:-1], last[:-1], last[1:]]), dim=0)
        before, last = last, torch.cat([last.new_full((1,), FAR), cost + softmin])
    return last[-1]
