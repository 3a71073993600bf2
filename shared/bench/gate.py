"""The parity gate: is a result right? It comes before every number."""

from typing import NamedTuple

import numpy as np

from shared.bench.answers import Answer
from shared.numerics import TOLERANCES, marginals_bound


class Verdict(NamedTuple):
    """The outcome for one case."""

    passed: bool
    text: str  # "worst error 2.1e-07, allowed 1.0e-05"
    error: float | None  # as a fraction of what is allowed, over all pairs compared; None if it is not finite


def judge(
    pass_name: str, result: np.ndarray, answer: Answer, dtype: str, temperature: float, shape: tuple[int, ...]
) -> Verdict:
    """Compare a result with the answer for its pairs. shape, dtype: of the whole input's similarity."""
    expected = shape if pass_name == "marginals" else shape[:-2]
    if result.shape != expected or result.dtype != dtype:
        text = f"{pass_name} is {result.dtype} of shape {result.shape}, expected {dtype} of shape {expected}"
        return Verdict(False, text, None)
    batch = result if result.ndim in (1, 3) else result[None]
    finite = np.isfinite(batch).reshape(len(batch), -1).all(axis=1)
    if not finite.all():
        pair = f" for pair {int(finite.argmin())}" if len(batch) > 1 else ""
        return Verdict(False, f"{pass_name} has values that are not finite{pair}", None)
    if pass_name == "score":
        got, wanted = batch[answer.pairs], answer.scores
        allowed = TOLERANCES[dtype].score * np.maximum(np.abs(answer.scores), temperature)
    else:
        got = batch[answer.pairs]
        wanted = np.zeros(got.shape)
        wanted[:, : answer.marginals.shape[1], : answer.marginals.shape[2]] = answer.marginals
        bounds = [marginals_bound(dtype, abs(float(score)), temperature) for score in answer.scores]
        allowed = np.array(bounds)[:, None, None]
    error = np.abs(got.astype(np.float64) - wanted)
    fraction = float((error / allowed).max(initial=0.0))
    worst = np.unravel_index((error / allowed).argmax(), error.shape) if error.size else ()
    pair = f" for pair {answer.pairs[worst[0]]}" if worst and len(batch) > 1 else ""
    limit = float(np.broadcast_to(allowed, error.shape)[worst]) if worst else 0.0
    off = float(error[worst]) if worst else 0.0
    return Verdict(fraction <= 1.0, f"{pass_name} off by {off:.1e}{pair}, allowed {limit:.1e}", fraction)
