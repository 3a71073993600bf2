"""The nested-loop stencil in NumPy, float64: cell by cell, and its gradient written out.

a(i, 0) = 1;  a(i, j+1) = sum over k in {i-1, i, i+1} of a(k, j) * w(k, j) for inner rows, 0 for the first and last
"""

from typing import Any

import numpy as np


def stencil(w: Any) -> np.ndarray:
    """a (height, width + 1) of the weights w (height, width)."""
    w = np.asarray(w, dtype=np.float64)
    height, width = w.shape
    a = np.zeros((height, width + 1))
    a[:, 0] = 1.0
    for j in range(width):
        for i in range(1, height - 1):
            for k in (i - 1, i, i + 1):
                a[i, j + 1] += a[k, j] * w[k, j]
    return a


def gradient(w: Any, cotangent: Any) -> np.ndarray:
    """Derivative of sum(cotangent * a) for w; cotangent has a's shape."""
    w = np.asarray(w, dtype=np.float64)
    height, width = w.shape
    a, slope, d_w = stencil(w), np.array(cotangent, dtype=np.float64), np.zeros_like(w)
    for j in reversed(range(width)):
        for i in range(1, height - 1):
            for k in (i - 1, i, i + 1):
                d_w[k, j] += slope[i, j + 1] * a[k, j]
                slope[k, j] += slope[i, j + 1] * w[k, j]
    return d_w
