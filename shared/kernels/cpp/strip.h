/* Strips of a matrix with block exponents: some columns from the first row to the last, LANES at a time.

   A strip is swept by block_forward.h and then by block_backward.h. Vocabulary: a band is up to MOST_ROWS rows in which
   all states of a column have one block exponent (block_exponent.h); a band that leaves the range is tried again with
   fewer rows. A block is the rows between two checkpoints, a tile is a block of one strip (tiles.h), and a seam is what
   a strip passes to its neighbour for each row, so that several threads can share a pair. */

#ifndef STRIP_H
#define STRIP_H

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "block_exponent.h"

namespace alignment {

/* A strip is at most so wide that its columns stay in the level-1 cache. */
constexpr Int STRIP_VECTORS = 256 / LANES;

template <class Kind>
constexpr bool ONE_STATE = Kind::states == 1;
/* The states of gaps along the row and down the column. */
template <class Kind>
constexpr int ACROSS = receiver<Kind>(From::left);
template <class Kind>
constexpr int DOWN = receiver<Kind>(From::up);

/* A similarity is this times what the matrix holds. */
template <class Kind>
constexpr Real SIGN = IS_COST<Kind> ? -1 : 1;

/* A pair's constants. */
template <class Kind>
struct PairWeights {
  MatchWeight match;
  Vec cost[COSTS], inverse_t;   // weights of the costs, except of gaps by position; 1 / T
  double decay[MOST_ROWS + 1];  // bits by which a column can sink within that many rows, except by gaps that vary
  int most_rows;                // of a band

  /* Whether a band of these rows lost nothing. largest: its largest state, in units; least_step: its smallest step between
     columns; sunk: the bits by which gaps that vary can make a column of it sink. */
  INLINE bool within_range(Vec largest, Vec least_step, Int rows, double sunk = 0) const {
    return all_at_most(largest, splat(power_of_2(double(ROOM) - decay[rows] - sunk))) &&
           all_at_most(splat(power_of_2(decay[rows] + sunk - LARGEST_STEP - double(LEVEL))), least_step);
  }
  /* How many rows the next band may have. The last band had `rows` rows, of at most `allowed`; peak: its largest state,
     in units; sunk: the bits by which gaps that vary can make a column sink. */
  INLINE int next_rows(Vec peak, int rows, int allowed, double sunk) const {
    if (rows < allowed || 2 * rows > most_rows || 2.25 * sunk > MOST_DECAY) return allowed;
    // twice as many rows grow by twice as many bits, and some more
    const double growth = (double(ROOM) - double(LEVEL) - decay[2 * rows] - 2 * sunk) / 2.6;
    return all_at_most(peak, splat(power_of_2(LEVEL + growth))) ? 2 * rows : rows;
  }
  static Real power_of_2(double bits) { return Real(std::exp2(bits)); }

  /* With gaps by position: whether a turn costs open, else extend; whether Cost::turn_right is allowed. */
  bool turn_is_open = false, turn_right_is_allowed = false;

  template <From from, int state>
  INLINE Vec weights() const {
    return cost[int(cost_between<Kind>(from, state))];
  }
};

/* The similarities of a strip: LANES columns are a vector; the last vector may have fewer. */
struct Strip {
  const Real *s, *t_s;
  int64_t pitch;
  int vectors, last;  // columns in the last vector
  const Real *gaps[POSITIONS ? 2 : 0];  // null unless by position

  template <class F>
  INLINE void each(F &&f) const {  // from left to right
    for (int v = 0; v < vectors - 1; ++v) f(v, std::false_type{});
    f(vectors - 1, std::true_type{});
  }
  template <class F>
  INLINE void each_back(F &&f) const {
    f(vectors - 1, std::true_type{});
    for (int v = vectors - 2; v >= 0; --v) f(v, std::false_type{});
  }
  template <bool is_last>
  INLINE Vec part(const Real *row, int v, Real rest) const {
    return is_last ? load_some(row + v * LANES, last, rest) : load(row + v * LANES);
  }
};

/* What passes from strip to strip: for each row some numbers, in a unit of that row. In the forward sweep, number i + 1 is
   of row i. Strips may be computed by different threads, each of which waits for the rows that it needs. */
struct Seam {
  Real *numbers[POSITIONS ? 6 : 4] = {}, *unit = nullptr, *origin = nullptr;  // the origin of tangents
  std::atomic<Int> *progress = nullptr;  // how many rows have been handed over
  const std::atomic<bool> *given_up = nullptr;

  /* False if the pair has been given up meanwhile. */
  bool wait_for(Int rows) const {
    for (int tries = 0; progress->load(std::memory_order_acquire) < rows; ++tries) {
      if (given_up->load(std::memory_order_relaxed)) return false;
      if (tries > 1000) sched_yield();
    }
    return true;
  }
  void hand_over(Int rows) const { progress->store(rows, std::memory_order_release); }
};

/* 2^d as a factor; d may be below the smallest exponent of a float, as what it multiplies may be very large. */
struct Power {
#if defined(__AVX512F__)
  Vec d;
  INLINE static Power of(Vec d) { return {d}; }
  INLINE Vec times(Vec m) const { return scaled(m, d); }
#else
  Vec first, second;
  INLINE static Power of(Vec d) {
    const Vec most = max_of(d, splat(1 - BIAS));
    return {scaled(splat(1), most), scaled(splat(1), d - most)};
  }
  INLINE Vec times(Vec m) const { return m * first * second; }
#endif
};

/* What a cell leaves in the forward sweep for the backward sweep. */
template <class Kind, Pass pass>
struct Kept {
  // weight of the match; that times the weight it continues (soft_dtw: the state)
  static constexpr int w = 0, matched = 1;
  static constexpr int t_w = 2, t_matched = 3;     // their tangents; of soft_dtw, t_w is that of the weight's logarithm
  static constexpr int across = 2, down = 3;       // states of gaps; a single state is `across`
  static constexpr int gap = pass == Pass::tangents ? 4 : 2;  // weights of gaps by position
  // with gaps by position, the weight that came into the cell by a gap: 0 open along the row, 1 open down the column,
  // 2 and 3 likewise extend; with a single state one number, their sum
  static constexpr int stepped = gap + GAPS<Kind>, steps = pass != Pass::gradients ? 0 : ONE_STATE<Kind> ? 1 : 4;
  static constexpr int size = POSITIONS                                   ? stepped + steps
                              : pass == Pass::tangents                    ? 4
                              : pass == Pass::gradients && !IS_COST<Kind> ? (ONE_STATE<Kind> ? 3 : 4)
                                                                          : 2;
  static constexpr int marks = pass == Pass::tangents ? 2 : 1;  // of a column in a band: its unit, and the origin
  static constexpr int band_marks = marks + (GAPS_VARY<Kind> ? 1 : 0);  // and its largest state
};

/* A tangent is kept as t - origin * V, V the sum of a cell's states, with an origin near t / V that LANES columns choose
   every ORIGIN_ROWS or more: what is kept stays small, however long the alignments are, and so do its rounding errors. */
constexpr Int ORIGIN_ROWS = 8;
template <bool tangents>
struct Origins {};
template <>
struct Origins<true> {
  Vec origin, change;  // the same in every lane; that of the columns swept before, minus it
  Vec t_start_or_end;  // tangent of a start (backward: of an end) relative to the origin; relative to 0 it is 0
  /* Moves the origin, and the tangents with it, so that one column's tangent becomes 0: the column where
     numbers[which] + new_weight, what the next row continues, is largest. bits: the exponents of these sums.
     both: add numbers[which + 1]. */
  template <int count, bool both = false>
  INLINE void move(Vec (&numbers)[2 * count], int which, Vec new_weight, Vec bits) {
    Vec sum = numbers[which] + new_weight, t = fma(-origin, new_weight, numbers[count + which]);
    if constexpr (both) sum += numbers[which + 1], t += numbers[count + which + 1];
    const Vec ratio = sum > splat(0) ? t / sum : splat(0);
    // with a fraction for the lane's number no two are equal, so exactly one is the largest
    Vec priority =
        (bits - broadcast_lane<0>(bits)) + __builtin_convertvector(lane_numbers(), Vec) * splat(Real(1) / (2 * LANES));
    priority = sum > splat(0) ? priority : splat(NOTHING);
    Vec most = priority, chosen;
    unrolled<SCAN_STEPS>([&](auto k) { most = max_of(most, moved_up<1 << k>(most, most)); });
    chosen = priority == most ? ratio : splat(0);
    unrolled<SCAN_STEPS>([&](auto k) { chosen += moved_up<1 << k>(chosen, chosen); });
    const Vec before = origin;
    origin = before + chosen;
    const Vec moved = origin - before;
    for (int k = 0; k < count; ++k) numbers[count + k] = fma(-moved, numbers[k], numbers[count + k]);
  }
};

/* The range of the origins of a strip's vectors and of 0. */
struct OriginRange {
  Vec least = splat(0), most = splat(0);
  INLINE void add(Vec origin) { least = min_of(least, origin), most = max_of(most, origin); }
};

struct Band {
  Int first, rows;
};

/* In place of a member that kernels with gaps that vary do not have. */
struct Empty {};

/* Tangents may leave the range of a float where the weights do not. */
template <class Columns>
INLINE bool tangents_are_finite(const Columns *columns, int vectors) {
  Vec most = splat(0);
  for (int v = 0; v < vectors; ++v) {
    for (int k = Columns::first_tangent; k < Columns::count; ++k) most = max_of(most, absolute(columns[v].now[k]));
  }
  return Columns::first_tangent == Columns::count || all_at_most(most, splat(LARGEST));
}

}  // namespace alignment

#endif
