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


def judge(pass_name: str, result: np.ndarray, answer: Answer, dtype: str, temperature: float) -> Verdict:
    """Compare a result, of the whole input, with the answer for its pairs."""
    batch = result if result.ndim in (1, 3) else result[None]
    if pass_name == "score":
        got, wanted = batch[answer.pairs], answer.scores
        allowed = TOLERANCES[dtype].score * np.maximum(np.abs(answer.scores), temperature)
    else:
        got = batch[answer.pairs]
        wanted = np.zeros(got.shape)
        wanted[:, : answer.marginals.shape[1], : answer.marginals.shape[2]] = answer.marginals
        bounds = [marginals_bound(dtype, abs(float(score)), temperature) for score in answer.scores]
        allowed = np.array(bounds)[:, None, None]
    if not np.isfinite(batch).all():
        return Verdict(False, f"{pass_name} has values that are not finite", None)
    error = np.abs(got.astype(np.float64) - wanted)
    fraction = float((error / allowed).max(initial=0.0))
    worst = np.unravel_index((error / allowed).argmax(), error.shape) if error.size else ()
    pair = f" for pair {answer.pairs[worst[0]]}" if worst and len(batch) > 1 else ""
    limit = float(np.broadcast_to(allowed, error.shape)[worst]) if worst else 0.0
    off = float(error[worst]) if worst else 0.0
    return Verdict(fraction <= 1.0, f"{pass_name} off by {off:.1e}{pair}, allowed {limit:.1e}", fraction)
