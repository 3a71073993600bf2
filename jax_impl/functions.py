"""The alignments as public functions, in JAX: their arguments, and what they return."""

from typing import Any

import jax

from jax_impl.alignment import align
from shared.alignments import ALIGNMENTS, END_GAPS
from shared.checks import check_choice, check_flag

_ENDS = ALIGNMENTS["smith_waterman"].option_values["end"]


def smith_waterman(
    similarity: Any,
    lengths: Any = None,
    *,
    gap: Any = -1.0,
    temperature: Any = 1.0,
    end: str = "any",
    variant: str = "auto",
) -> jax.Array:
    """Smooth local alignment score with a linear gap.

    h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1) + gap, h(i-1,j) + gap, s(i,j) ), smax(x) = T log sum exp(x / T).

    Args:
        similarity: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in
            float32). -inf forbids a match.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            similarity[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        gap: added for every gap position, so normally negative; a number or an array of shape () or (batch,). Or one of
            similarity's shape (by position): element (i, j) is added for a gap step into cell (i, j), on either axis.
            Or a tuple of two, neither by position: what gaps along a row cost, and along a column.
        temperature: > 0, in the units of similarity; a number or an array of shape () or (batch,).
        end: "any", score = smax of h over all cells: at least one match, and it may end in a gap; or "match",
            score = smax of h(i-1,j-1) + s(i,j) over i, j >= 1: it ends on a match and has at least two.
        variant: a name of `variants("smith_waterman")`, or "auto" for the best of them here.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units; 0 where no alignment exists.
        Differentiable twice with respect to similarity, and to gap and temperature where they are arrays; a third
        time by the variants that are loops or scans.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """
    check_choice("end", end, _ENDS)
    parameters = {"gap": gap, "temperature": temperature}
    return align("smith_waterman", similarity, lengths, parameters, {"end": end}, variant)


def smith_waterman_affine(
    similarity: Any,
    lengths: Any = None,
    *,
    gap_open: Any = -3.0,
    gap_extend: Any = -1.0,
    temperature: Any = 1.0,
    restrict_turns: bool = True,
    penalize_turns: bool = True,
    variant: str = "auto",
) -> jax.Array:
    """Smooth local alignment score with an affine gap: one of length k costs gap_open + (k-1) gap_extend.

    A(i,j) = s(i,j) + smax( A(i-1,j-1), R(i-1,j-1), D(i-1,j-1), 0 ), smax(x) = T log sum exp(x / T),
    R(i,j) = smax( A(i,j-1) + gap_open, R(i,j-1) + gap_extend [, D(i,j-1) + turn] ), the last unless restrict_turns,
    D(i,j) = smax( A(i-1,j) + gap_open, R(i-1,j) + turn, D(i-1,j) + gap_extend );
    score = smax over i, j >= 1 and X = A, R, D of X(i-1,j-1) + s(i,j): it ends on a match and has at least two.

    Args:
        similarity: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in
            float32). -inf forbids a match.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            similarity[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        gap_open: added for the first position of a gap, so normally negative; a number or an array of shape () or
            (batch,). Or one of similarity's shape (by position): element (i, j) is added if a gap opens at cell (i, j).
            Or a tuple of two, neither by position: what gaps along a row cost, and along a column.
        gap_extend: added for each further position; like gap_open, and by position independently of it.
        temperature: > 0, in the units of similarity; a number or an array of shape () or (batch,).
        restrict_turns: a gap along the row (R) never directly follows one along the column (D), so that two gaps that
            meet are counted in one order only.
        penalize_turns: where they meet, the second pays gap_open (turn = gap_open); else it pays gap_extend.
        variant: a name of `variants("smith_waterman_affine")`, or "auto" for the best of them here.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units; 0 where no alignment exists.
        Differentiable twice with respect to similarity, and to the gaps and temperature where they are arrays; a
        third time by the variants that are loops or scans.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """
    check_flag("restrict_turns", restrict_turns)
    check_flag("penalize_turns", penalize_turns)
    parameters = {"gap_open": gap_open, "gap_extend": gap_extend, "temperature": temperature}
    options = {"restrict_turns": restrict_turns, "penalize_turns": penalize_turns}
    return align("smith_waterman_affine", similarity, lengths, parameters, options, variant)


def free_gap(
    similarity: Any,
    lengths: Any = None,
    *,
    temperature: Any = 1.0,
    variant: str = "auto",
) -> jax.Array:
    """Smooth global alignment score whose gaps cost nothing: the smooth maximum over chains of matches.

    h(i,j) = smax( h(i-1,j-1) + s(i,j), h(i,j-1), h(i-1,j) ), smax(x) = T log sum exp(x / T), and h = 0 outside;
    score = h at the last cell inside lengths. Gaps between two matches count in each of their orders.

    Args:
        similarity: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in
            float32). -inf forbids a match.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            similarity[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        temperature: > 0, in the units of similarity; a number or an array of shape () or (batch,).
        variant: a name of `variants("free_gap")`, or "auto" for the best of them here.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units; 0 for a pair without rows or columns.
        Differentiable twice with respect to similarity, and to temperature where it is an array; a third time by the
        variants that are loops or scans.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Petti et al. 2021, doi:10.1101/2021.10.23.465204.
    """
    return align("free_gap", similarity, lengths, {"temperature": temperature}, {}, variant)


def needleman_wunsch(
    similarity: Any,
    lengths: Any = None,
    *,
    gap: Any = -1.0,
    temperature: Any = 1.0,
    end_gaps: str = "cost",
    variant: str = "auto",
) -> jax.Array:
    """Smooth global alignment score with a linear gap.

    On a grid one larger: h(0,0) = 0, h(i,0) = i gap, h(0,j) = j gap, smax(x) = T log sum exp(x / T),
    h(i,j) = smax( h(i-1,j-1) + s(i-1,j-1), h(i,j-1) + gap, h(i-1,j) + gap ); score = h(lengths[0], lengths[1]).

    Args:
        similarity: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in
            float32). -inf forbids a match.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            similarity[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        gap: added for every gap position, so normally negative; a number or an array of shape () or (batch,). Or one of
            similarity's shape (by position): element (i, j) is added for a gap step into cell (i, j), on either axis;
            gaps along the border then cost nothing. Or a tuple of two, neither by position: what gaps along a row cost,
            and along a column.
        temperature: > 0, in the units of similarity; a number or an array of shape () or (batch,).
        end_gaps: "cost"; "free", a semi-global alignment (overlap): gaps before the first and after the last element of
            either sequence cost nothing; "free_rows" or "free_cols" (glocal; in time series open-begin, open-end): of
            these only those along a row, or down a column. "free_rows" finds a short sequence (the rows) in a long one
            (the columns). Not with gaps by position.
        variant: a name of `variants("needleman_wunsch")`, or "auto" for the best of them here.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units; the cost of all gaps where a length is 0;
        -inf, with zero gradients, where every alignment scores -5e19 or less: it needs a forbidden match or gap.
        Differentiable twice with respect to similarity, and to gap and temperature where they are arrays; a third
        time by the variants that are loops or scans.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Needleman and Wunsch 1970, doi:10.1016/0022-2836(70)90057-4; smoothed as in Petti et al. 2021.
    """
    check_choice("end_gaps", end_gaps, END_GAPS)
    parameters = {"gap": gap, "temperature": temperature}
    return align("needleman_wunsch", similarity, lengths, parameters, {"end_gaps": end_gaps}, variant)


def needleman_wunsch_affine(
    similarity: Any,
    lengths: Any = None,
    *,
    gap_open: Any = -3.0,
    gap_extend: Any = -1.0,
    temperature: Any = 1.0,
    end_gaps: str = "cost",
    restrict_turns: bool = True,
    penalize_turns: bool = True,
    variant: str = "auto",
) -> jax.Array:
    """Smooth global alignment score with an affine gap: one of length k costs gap_open + (k-1) gap_extend.

    The states A, R and D are those of `smith_waterman_affine`, but A does not start in a cell: outside the matrix A = 0
    before the first cell, R = gap_open + j gap_extend above it, D = gap_open + i gap_extend to its left; score = smax
    of A, R and D at the last cell inside lengths.

    Args:
        similarity: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in
            float32). -inf forbids a match.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            similarity[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        gap_open: added for the first position of a gap, so normally negative; a number or an array of shape () or
            (batch,). Or one of similarity's shape (by position): element (i, j) is added if a gap opens at cell (i, j),
            and nothing along the border.
            Or a tuple of two, neither by position: what gaps along a row cost, and along a column.
        gap_extend: added for each further position; like gap_open, and by position independently of it.
        temperature: > 0, in the units of similarity; a number or an array of shape () or (batch,).
        end_gaps: "cost"; "free", a semi-global alignment (overlap): gaps before the first and after the last element of
            either sequence cost nothing; "free_rows" or "free_cols" (glocal; in time series open-begin, open-end): of
            these only those along a row, or down a column. "free_rows" finds a short sequence (the rows) in a long one
            (the columns). Not with gaps by position.
        restrict_turns: a gap along the row (R) never directly follows one along the column (D), free end gaps aside,
            so that two gaps that meet are counted in one order only.
        penalize_turns: where they meet, the second pays gap_open (turn = gap_open); else it pays gap_extend.
        variant: a name of `variants("needleman_wunsch_affine")`, or "auto" for the best of them here.

    Returns:
        Scores of shape () or (batch,), in similarity's dtype and units; the cost of all gaps where a length is 0;
        -inf, with zero gradients, where every alignment scores -5e19 or less: it needs a forbidden match or gap.
        Differentiable twice with respect to similarity, and to the gaps and temperature where they are arrays; a third
        time by the variants that are loops or scans.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Gotoh 1982, doi:10.1016/0022-2836(82)90398-9; smoothed as in Petti et al. 2021.
    """
    check_choice("end_gaps", end_gaps, END_GAPS)
    check_flag("restrict_turns", restrict_turns)
    check_flag("penalize_turns", penalize_turns)
    parameters = {"gap_open": gap_open, "gap_extend": gap_extend, "temperature": temperature}
    options = {"end_gaps": end_gaps, "restrict_turns": restrict_turns, "penalize_turns": penalize_turns}
    return align("needleman_wunsch_affine", similarity, lengths, parameters, options, variant)


def soft_dtw(
    cost: Any,
    lengths: Any = None,
    *,
    temperature: Any = 1.0,
    variant: str = "auto",
) -> jax.Array:
    """Soft dynamic time warping: the smooth minimum of the costs of paths from the first cell to the last.

    r(i,j) = cost(i,j) + softmin( r(i-1,j-1), r(i-1,j), r(i,j-1) ), softmin(x) = -T log sum exp(-x / T); outside the
    matrix r = 0 before the first cell, else infinite. `marginals` is the expected path: the probability of each cell.

    Args:
        cost: (rows, cols) or (batch, rows, cols), float32 or float64 (float16 and bfloat16 are computed in float32),
            such as squared distances of two series' elements. inf forbids a cell.
        lengths: integers of shape (2,) or (batch, 2), or None for the full matrix. Nothing outside
            cost[b, :lengths[b, 0], :lengths[b, 1]] has any influence, and its gradient is exactly 0.
        temperature: > 0 (gamma), in the units of cost; a number or an array of shape () or (batch,).
        variant: a name of `variants("soft_dtw")`, or "auto" for the best of them here.

    Returns:
        Costs of shape () or (batch,), in cost's dtype and units; 0 for a pair without rows or columns; inf, with
        zero gradients, where every path visits a forbidden cell.
        Differentiable twice with respect to cost, and to temperature where it is an array; a third time by the
        variants that are loops or scans.

    Raises:
        TypeError, ValueError: an argument is not as described. Values that are being traced or that live on another
            device are not checked: lengths are clamped, and a temperature that is not positive gives NaN.

    Source: Cuturi and Blondel 2017, arXiv:1703.01541.
    """
    return align("soft_dtw", cost, lengths, {"temperature": temperature}, {}, variant)
