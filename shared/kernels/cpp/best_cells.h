/* The recurrences with maxima in place of the smooth ones, for a vector of cells, and the traceback from an end.

   A cell leaves bits that say which choice each maximum is; of equal ones it is the first in this order: start, from the
   diagonal, from the left, from above; of the states A, R and D the first. Every number is computed in one way wherever
   its cell lies in a vector, and in the recurrence nothing is rounded but sums of two: whole numbers are exact up to
   2^24 (double: 2^53). */

#ifndef BEST_CELLS_H
#define BEST_CELLS_H

#include "recurrences.h"
#include "vector.h"

namespace alignment {

constexpr Real NEVER = -std::numeric_limits<Real>::infinity();  // the worth of what does not exist

/* What a step into the cells costs, along the row and along the column. `turn`: from the state of the other gap. */
struct StepCosts {
  Vec open[2], extend[2], turn[2];
};

/* The current cell of the traceback. */
struct Place {
  int64_t row, col;
};

/* One state: LocalLinear or GlobalLinear. Bit 0: a match. Bit 1: of a local match, that it is a start; of a gap, that
   it comes from the left. */
template <class Kind, bool restricted>
struct BestCells {
  static constexpr int states = 1;  // that neighbours need; the first is what a match continues
  static constexpr int bits = 2;

  /* The states of cells, and what an alignment that ends in them is worth. */
  INLINE static Vec step(Vec s, const StepCosts &costs, Vec diagonal, const Vec (&left)[1], const Vec (&up)[1],
                         Vec (&out)[1], LaneBits (&to)[bits]) {
    const Vec match = s + (Kind::local ? max_of(diagonal, splat(0)) : diagonal);
    const Vec along_row = left[0] + costs.open[ROWS], along_column = up[0] + costs.open[COLS];
    const Vec gap = max_of(along_row, along_column);
    out[0] = max_of(match, gap);
    const LaneBits matches = at_least(match, gap), from_left = at_least(along_row, along_column);
    to[0] = matches;
    to[1] = Kind::local ? LaneBits((at_least(splat(0), diagonal) & matches) | (from_left & ~matches)) : from_left;
    return Kind::end == End::later_match ? diagonal + s : out[0];
  }

  /* From an end to the beginning. bit(place, k): bit k of a cell; match(place): it is part of the alignment. */
  template <class Bit, class Match>
  static void trace(Place at, const Bit &bit, const Match &match) {
    if (Kind::end == End::later_match) match(at), --at.row, --at.col;
    while (at.row >= 0 && at.col >= 0) {
      const bool is_start_or_left = bit(at, 1);
      if (bit(at, 0)) {
        match(at);
        if (Kind::local && is_start_or_left) return;
        --at.row, --at.col;
      } else {
        at.col -= is_start_or_left, at.row -= !is_start_or_left;
      }
    }
  }
};

/* One state; every cell of a path is a match. Bit 0: it comes from the diagonal. Bit 1: if not, from the left. */
template <bool restricted>
struct BestCells<SoftDtw, restricted> {
  static constexpr int states = 1;
  static constexpr int bits = 2;

  INLINE static Vec step(Vec s, const StepCosts &, Vec diagonal, const Vec (&left)[1], const Vec (&up)[1], Vec (&out)[1],
                         LaneBits (&to)[bits]) {
    const Vec gap = max_of(left[0], up[0]);
    to[0] = at_least(diagonal, gap);
    to[1] = at_least(left[0], up[0]);
    return out[0] = s + max_of(diagonal, gap);
  }

  template <class Bit, class Match>
  static void trace(Place at, const Bit &bit, const Match &match) {
    while (at.row >= 0 && at.col >= 0) {
      match(at);
      const bool diagonal = bit(at, 0), left = bit(at, 1);
      at.col -= diagonal || left, at.row -= diagonal || !left;
    }
  }
};

/* The states A, R and D, and before them the greatest of a cell, which a match in the next one continues. Bits:
   the next match starts an alignment, as no state is worth continuing; the greatest is A; else, it is R; D comes from A;
   else, from R; R comes from A; else, from R. */
template <bool local, bool restricted>
struct BestCells<Affine<local>, restricted> {
  static constexpr int states = 4;
  static constexpr int bits = restricted ? 6 : 7;
  enum { BEST, A, R, D };
  enum { STARTS, BEST_IS_A, BEST_IS_R, D_FROM_A, D_FROM_R, R_FROM_A, R_FROM_R };

  INLINE static Vec step(Vec s, const StepCosts &costs, Vec diagonal, const Vec (&left)[4], const Vec (&up)[4],
                         Vec (&out)[4], LaneBits (&to)[bits]) {
    out[A] = s + (local ? max_of(diagonal, splat(0)) : diagonal);

    const Vec opened = left[A] + costs.open[ROWS];
    Vec rest = left[R] + costs.extend[ROWS];
    if constexpr (!restricted) {
      const Vec turned = left[D] + costs.turn[ROWS];
      to[R_FROM_R] = at_least(rest, turned);
      rest = max_of(rest, turned);
    }
    out[R] = max_of(opened, rest);
    to[R_FROM_A] = at_least(opened, rest);

    const Vec opened_down = up[A] + costs.open[COLS], turned_down = up[R] + costs.turn[COLS];
    const Vec extended_down = up[D] + costs.extend[COLS];
    const Vec rest_down = max_of(turned_down, extended_down);
    out[D] = max_of(opened_down, rest_down);
    to[D_FROM_A] = at_least(opened_down, rest_down);
    to[D_FROM_R] = at_least(turned_down, extended_down);

    const Vec gap = max_of(out[R], out[D]);
    out[BEST] = max_of(out[A], gap);
    to[STARTS] = local ? at_least(splat(0), out[BEST]) : LaneBits{};
    to[BEST_IS_A] = at_least(out[A], gap);
    to[BEST_IS_R] = at_least(out[R], out[D]);
    return local ? diagonal + s : out[BEST];
  }

  template <class Bit, class Match>
  static void trace(Place at, const Bit &bit, const Match &match) {
    auto greatest = [&] { return bit(at, BEST_IS_A) ? A : bit(at, BEST_IS_R) ? R : D; };
    int state = local ? A : greatest();
    for (bool at_end = true; at.row >= 0 && at.col >= 0; at_end = false) {
      if (state == A) {
        match(at), --at.row, --at.col;
        if (at.row < 0 || at.col < 0 || (!at_end && bit(at, STARTS))) return;
        state = greatest();
      } else if (state == R) {
        state = bit(at, R_FROM_A) ? A : restricted || bit(at, R_FROM_R) ? R : D;
        --at.col;
      } else {
        state = bit(at, D_FROM_A) ? A : bit(at, D_FROM_R) ? R : D;
        --at.row;
      }
    }
  }
};

}  // namespace alignment

#endif
