"""The parity gate of the alignments: is a result right, pair by pair?"""

import numpy as np

from shared.problems.alignment_reference import ReferenceResults
from shared.problems.problem import Verdict
from shared.tolerances import hvp_bound, marginals_bound, score_bound


def judge(
    pass_name: str,
    result: np.ndarray,
    expected: ReferenceResults,
    dtype: str,
    temperature: float,
    shape: tuple[int, ...],
) -> Verdict:
    """Compare a result with the reference results of its pairs. shape, dtype: of the whole input's similarity."""
    right_shape = shape[:-2] if pass_name == "score" else shape
    if result.shape != right_shape or result.dtype != dtype:
        text = f"{pass_name} is {result.dtype} of shape {result.shape}, expected {dtype} of shape {right_shape}"
        return Verdict(False, text, None)
    batch = result if result.ndim in (1, 3) else result[None]
    finite = np.isfinite(batch).reshape(len(batch), -1).all(axis=1)
    if not finite.all():
        pair = f" for pair {int(finite.argmin())}" if len(batch) > 1 else ""
        return Verdict(False, f"{pass_name} has values that are not finite{pair}", None)
    got = batch[expected.pairs]
    given = getattr(expected, pass_name)
    wanted = np.zeros(got.shape)
    wanted[tuple(map(slice, given.shape))] = given
    allowed = np.array(
        [_bound(pass_name, dtype, pair, temperature) for pair in zip(given, expected.largest, strict=True)]
    )
    allowed = allowed.reshape(-1, *(1 for _ in got.shape[1:]))
    error = np.abs(got.astype(np.float64) - wanted)
    fraction = float((error / allowed).max(initial=0.0))
    worst = np.unravel_index((error / allowed).argmax(), error.shape) if error.size else ()
    pair = f" for pair {expected.pairs[worst[0]]}" if worst and len(batch) > 1 else ""
    limit = float(np.broadcast_to(allowed, error.shape)[worst]) if worst else 0.0
    off = float(error[worst]) if worst else 0.0
    return Verdict(fraction <= 1.0, f"{pass_name} off by {off:.1e}{pair}, allowed {limit:.1e}", fraction)


def _bound(pass_name: str, dtype: str, pair: tuple[np.ndarray, float], temperature: float) -> float:
    """How far a pair's result may be from what is wanted. pair: what is wanted, and max|h|."""
    wanted, largest = pair
    if pass_name == "score":
        return score_bound(dtype, float(wanted), largest, temperature)
    if pass_name == "marginals":
        return marginals_bound(dtype, largest, temperature)
    return hvp_bound(dtype, float(np.abs(wanted).max(initial=0.0)), largest, temperature)
