/* How the cells of a matrix are arranged in vectors, for the forward and the backward sweeps.

   The code serves two layouts; where they differ it asks L::rows_in_lanes. PairsSideBySide: a lane is a pair of its
   own; a sweep is one row of the matrix, column by column. RowsSideBySide: the lanes are LANES rows of one pair, each one
   column behind the row above it, so that a vector is a piece of an anti-diagonal; a sweep is these rows, from left to
   right.

   Between sweeps a row is carried: forwards the states of the row above, backwards the gradients from the row below.
   Memory is bounded by checkpoints: the first pass keeps the carried row of every block of rows, the second goes through
   the blocks from the last to the first, recomputes each with the records of its cells, and then goes backwards. */

#ifndef SWEEP_H
#define SWEEP_H

#include <cstdlib>
#include <new>

#include "cell.h"

namespace alignment {

/* A gap by position of each lane's pair. */
struct LaneGap {
  bool by_position;
  const Real *costs[LANES], *t_costs[LANES];
  Real *d_costs[LANES];  // or their tangents
};

/* The pair of each lane: the caller's matrices, and constants. Lanes without a pair have no rows. */
struct Lanes {
  const Real *similarity[LANES], *t_similarity[LANES];
  Real *d_similarity[LANES];  // or its tangent
  Int rows[LANES], cols[LANES];
  Vec scale_high, scale_low;   // log2(e) / T in two parts
  Vec inverse_t, t_ratio;      // 1 / T, (tangent of T) / T
  Value costs[COSTS];          // all but match
  Vec gap_tangent[PARAMETERS_PER_GAP];       // of each further gap position along the border
  Vec gap_whole[PARAMETERS_PER_GAP], gap_part[PARAMETERS_PER_GAP];  // its exponent and log2(fraction)
  bool is_free[2];             // whether end gaps along an axis cost nothing
  LaneGap gaps[POSITIONS ? 2 : 0];
  Cost turn[POSITIONS ? 2 : 0];  // the gap that Cost::turn and Cost::turn_right cost; none where forbidden (solve.h: weight 0)
};

/* Vectors staged (gathered from the matrices in the order of the steps) for each step: similarity, gaps by position. */
template <class Kind>
constexpr int STAGED = 1 + GAPS<Kind>;

/* Aligned memory with an owner. */
class Buffer {
 public:
  explicit Buffer(size_t vectors)
      : data_(static_cast<Vec *>(std::aligned_alloc(VECTOR_BYTES, (vectors ? vectors : 1) * sizeof(Vec)))) {
    if (!data_) throw std::bad_alloc();
  }
  ~Buffer() { std::free(data_); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  Vec *data() const { return data_; }

 private:
  Vec *data_;
};

struct PairsSideBySide {
  using Cell = Vec;  // of a carried row
  static constexpr bool rows_in_lanes = false;
  static constexpr int rows = 1;  // of a sweep
  static constexpr Int steps(Int cols) { return cols; }
};

struct RowsSideBySide {
  using Cell = Real;
  static constexpr bool rows_in_lanes = true;
  static constexpr int rows = LANES;
  static constexpr Int steps(Int cols) { return cols + LANES - 1; }
};

INLINE Vec as_vector(Vec cell) { return cell; }
INLINE Vec as_vector(Real cell) { return splat(cell); }

/* Where the lanes of a sweep begin and end, in steps. */
struct Extent {
  Mask first, last;          // cells: first <= step < last
  Mask end_first, end_last;  // cells where an alignment may end
  Int all_first, all_last;   // steps where every lane has a cell
  Int all_end_first, all_end_last;
};

template <class Kind, bool rows_in_lanes>
INLINE Extent extent(const Lanes &lanes, Int row) {
  Extent x{};
  for (int l = 0; l < LANES; ++l) {
    Int i = rows_in_lanes ? row + l : row, delay = rows_in_lanes ? l : 0;
    bool exists = i < lanes.rows[l];
    x.first[l] = delay;
    x.last[l] = exists ? delay + lanes.cols[l] : delay;
    x.end_first[l] = x.first[l];
    x.end_last[l] = x.last[l];
    if (Kind::end == End::later_match) {
      x.end_first[l] += 1;
      if (i == 0) x.end_last[l] = x.first[l];
    }
    if (Kind::end == End::last) {
      x.end_first[l] = i == lanes.rows[l] - 1 ? x.last[l] - 1 : x.last[l];
    }
  }
  x.all_first = x.first[LANES - 1];
  x.all_last = x.last[0];
  x.all_end_first = x.end_first[0];
  x.all_end_last = x.end_last[0];
  for (int l = 1; l < LANES; ++l) {
    if (x.last[l] < x.all_last) x.all_last = x.last[l];
    if (x.end_first[l] > x.all_end_first) x.all_end_first = x.end_first[l];
    if (x.end_last[l] < x.all_end_last) x.all_end_last = x.end_last[l];
  }
  return x;
}

/* One exchange of `transpose`: the second halves of a's groups of 2 * width numbers with the first halves of b's. */
template <int width, int... k>
INLINE void exchange(Vec &a, Vec &b, std::integer_sequence<int, k...>) {
  Vec low = pick(a, b, std::integer_sequence<int, ((k & width) ? LANES + k - width : k)...>{});
  b = pick(a, b, std::integer_sequence<int, ((k & width) ? LANES + k : k + width)...>{});
  a = low;
}
/* Transposes LANES vectors: number i holds LANES steps of lane i before, all lanes of step i after; its own inverse. */
INLINE void transpose(Vec (&v)[LANES]) {
  auto stage = [&](auto w) __attribute__((always_inline)) {
    constexpr int width = w;
    if constexpr (width < LANES) {
      unrolled<LANES>([&](auto i) __attribute__((always_inline)) {
        if constexpr (!(i & width)) exchange<width>(v[i], v[i + width], EveryLane{});
      });
    }
  };
  stage(std::integral_constant<int, 1>{});
  stage(std::integral_constant<int, 2>{});
  stage(std::integral_constant<int, 4>{});
  stage(std::integral_constant<int, 8>{});
}

/* LANES numbers of a matrix from `at` on, of which only those at index first to last - 1 are needed. */
struct Piece {
  bool whole, empty, readable;  // all needed; none; all inside the matrix, needed or not
  Mask wanted;
  int first, last;

  INLINE Piece(const Real *at, const Real *begin, const Real *end, Int from, Int to) {
    first = int(from > 0 ? (from < LANES ? from : LANES) : 0);
    last = int(to < LANES ? (to > first ? to : first) : LANES);
    whole = first == 0 && last == LANES;
    empty = first == last;
    readable = at >= begin && at + LANES <= end;
    wanted = (lane_numbers() >= splat_int(first)) & (lane_numbers() < splat_int(last));
  }
};

/* Step numbers relative to the first of LANES steps, clamped to 0 … LANES. */
INLINE Mask in_block(Mask step) {
  step = step > 0 ? step : Mask{};
  return step < LANES ? step : splat_int(LANES);
}

/* Reads the steps of a sweep from the lanes' matrices, of `size` elements each: 0 where a lane has no cell.
   row[l] + step is the address; `to` has `stride` vectors for each step. */
template <int stride, class Clean>
INLINE void gather(const Real *const (&matrix)[LANES], int64_t size, const Real *const (&row)[LANES],
                   const Extent &extent, Int steps, Vec *to, Clean clean) {
  for (Int t0 = 0; t0 < steps; t0 += LANES) {
    Vec block[LANES];
    if (extent.all_first <= t0 && t0 + LANES <= extent.all_last) {
      unrolled<LANES>([&](auto l) { block[l] = load(row[l] + t0); });
    } else if constexpr (HAS_MASKED_LOADS) {
      const Mask first = in_block(extent.first - t0), last = in_block(extent.last - t0);
      const Mask after = last > first ? last : first;
      unrolled<LANES>([&](auto l) {
        constexpr int k = l;
        block[k] = load_part(row[k] + t0, int(first[k]), int(after[k]));
      });
    } else {
      for (int l = 0; l < LANES; ++l) {
        const Real *at = row[l] + t0;
        Piece piece(at, matrix[l], matrix[l] + size, extent.first[l] - t0, extent.last[l] - t0);
        if (piece.whole) {
          block[l] = load(at);
        } else if (piece.empty) {
          block[l] = splat(0);
        } else if (piece.readable) {
          block[l] = piece.wanted ? load(at) : splat(0);
        } else {
          block[l] = load_part(at, piece.first, piece.last);
        }
      }
    }
    transpose(block);
    if (t0 + LANES <= steps) {
      unrolled<LANES>([&](auto t) { to[(t0 + t) * stride] = clean(block[t]); });
      continue;
    }
    for (Int t = 0; t < LANES && t0 + t < steps; ++t) to[(t0 + t) * stride] = clean(block[t]);
  }
}

/* The inverse: writes the cells of the lanes, and changes nothing else. */
template <int stride>
void scatter(const Vec *from, Real *const (&matrix)[LANES], int64_t size, Real *const (&row)[LANES],
                    const Extent &extent, Int steps) {
  for (Int t0 = 0; t0 < steps; t0 += LANES) {
    Vec block[LANES];
    if (extent.all_first <= t0 && t0 + LANES <= extent.all_last) {
      unrolled<LANES>([&](auto t) { block[t] = from[(t0 + t) * stride]; });
      transpose(block);
      unrolled<LANES>([&](auto l) { store(row[l] + t0, block[l]); });
      continue;
    }
    for (Int t = 0; t < LANES; ++t) block[t] = t0 + t < steps ? from[(t0 + t) * stride] : splat(0);
    transpose(block);
    for (int l = 0; l < LANES; ++l) {
      Real *at = row[l] + t0;
      Piece piece(at, matrix[l], matrix[l] + size, extent.first[l] - t0, extent.last[l] - t0);
      if (piece.whole) {
        store(at, block[l]);
      } else if (!piece.empty && piece.readable) {  // no other thread writes this pair
        store(at, piece.wanted ? block[l] : load(at));
      } else {
        for (int t = piece.first; t < piece.last; ++t) at[t] = block[l][t];
      }
    }
  }
}

/* The limits of gaps and temperatures, of shared/tolerances.py. */
constexpr double LOWEST = -1e20, LARGEST_GAP = 1e18, COLDEST = 1e-15, HOTTEST = 1e15;

/* Weights with larger exponents cannot be told apart. A path may be long: its sum must stay far from overflow. */
constexpr Real LARGEST_EXPONENT = Real(1e29);

/* Sanitizes similarities, and records NaN and +infinity. */
INLINE Vec clean(Vec s, Mask &bad) {
  bad |= ~(s <= LARGEST);
  return s > FORBIDDEN ? s : splat(-__builtin_inff());
}

/* Gaps by position, as solve.h clamps those that are numbers. */
INLINE Vec clean_gap(Vec gap, Mask &bad) {
  bad |= gap != gap;
  return max_of(min_of(gap, splat(Real(LARGEST_GAP))), splat(Real(LOWEST)));
}

/* The weight of a match, nearly 0 for a forbidden one; and of a gap by position. */
template <Pass pass>
INLINE Value match_weight(const Lanes &lanes, Vec s, Vec t_s) {
  Vec whole = rounded_product(s, lanes.scale_high);
  Vec part = fma(s, lanes.scale_low, fma(s, lanes.scale_high, -whole));
  part = min_of(max_of(part, splat(-1)), splat(1));  // NaN, of a forbidden one, becomes -1
  whole = min_of(max_of(whole, splat(-LARGEST_EXPONENT)), splat(LARGEST_EXPONENT));
  Value x{power_of_fraction(part), whole, splat(0)};
  if constexpr (pass == Pass::gradients) x.x = part;
  if constexpr (pass == Pass::tangents) {
    Vec tangent = fma(t_s, lanes.inverse_t, -(s * lanes.inverse_t) * lanes.t_ratio);
    x.x = s > FORBIDDEN ? tangent : splat(0);
  }
  return x;
}

/* The states outside a global alignment, `gaps` gap positions along an axis from the corner; outside a local one is
   nothing. */
template <class Kind, Pass pass>
INLINE States<Kind> border(const Lanes &lanes, Vec gaps, int axis) {
  States<Kind> states;
  for (auto &state : states.of) state = nothing();
  if constexpr (Kind::local) return states;
  // log2_of(m) even where it is known: blocks compute it anew, and bits must not depend on where blocks begin
  const Value begun = {splat(1), splat(0), pass == Pass::gradients ? log2_of(splat(1)) : splat(0)};
  if constexpr (IS_COST<Kind>) {
    states.of[0] = {splat(1), gaps > splat(0) ? splat(NOTHING) : splat(0), splat(0)};
    return states;
  }
  if (lanes.is_free[axis]) {
    states.of[0] = begun;
    return states;
  }
  constexpr bool affine = Kind::states > 1;
  const int along = gap_along(axis);
  const Vec further = affine ? gaps - Real(1) : gaps;
  Vec whole = rounded_product(further, lanes.gap_part[along]);
  Vec part = fma(further, lanes.gap_part[along], -whole);
  part = min_of(max_of(part, splat(-1)), splat(1));
  Value h = {power_of_fraction(part), fma(further, lanes.gap_whole[along], whole), splat(0)};
  if constexpr (pass == Pass::tangents) h.x = further * lanes.gap_tangent[along];
  if constexpr (affine) {
    const Value &first = lanes.costs[int(OPEN[axis])];
    h.m *= first.m, h.e += first.e;
    if constexpr (pass == Pass::tangents) h.x += first.x;
  }
  // a fraction between 1 and 2, as a cell's
  h.e += exponent_of(h.m);
  h.m = fraction_of(h.m);
  if constexpr (pass == Pass::gradients) h.x = log2_of(h.m);
  states.of[gap_state<Kind>(axis)] = h;
  if constexpr (affine) {
    const bool is_corner = gaps[0] == 0;  // of all lanes
    if (is_corner) states.of[0] = begun, states.of[gap_state<Kind>(axis)] = nothing();
  }
  return states;
}

/* In the last row or column, steps along it cost nothing if end gaps along its axis are free. */
INLINE void set_free(int axis, Mask is_last, const Value (&costs)[COSTS], Value (&to)[COSTS]) {
  for (const Cost cost : {OPEN[axis], EXTEND[axis], TURN[axis]}) {
    const Value &own = costs[int(cost)];
    to[int(cost)] = {is_last ? splat(1) : own.m, is_last ? splat(0) : own.e, is_last ? splat(0) : own.x};
  }
}

/* The costs of cells whose gaps are by position. */
template <class Kind, Pass pass>
INLINE void set_gaps(const Lanes &lanes, const Vec *staged, const Vec *t_staged, Value (&costs)[COSTS]) {
  unrolled<GAPS<Kind>>([&](auto gap) {
    constexpr int g = gap;
    if (!lanes.gaps[g].by_position) return;
    const Value weights = match_weight<pass>(lanes, staged[1 + g], pass == Pass::tangents ? t_staged[1 + g] : splat(0));
    costs[int(GAP_COSTS[g])] = weights;
    if (lanes.turn[0] == GAP_COSTS[g]) costs[int(Cost::turn)] = weights;
    if (lanes.turn[1] == GAP_COSTS[g]) costs[int(Cost::turn_right)] = weights;
  });
}

/* How many numbers a row that is carried from sweep to sweep has for each state of a column. */
template <Pass pass>
constexpr int NUMBERS = pass == Pass::gradients || pass == Pass::tangents ? 3 : 2;

template <class Kind, Pass pass, class Cell>
INLINE Cell *place(Cell *row, Int col) {
  return row + (int64_t(col) + 1) * (Kind::states * NUMBERS<pass>);
}

/* Adds the weight of an end to a sum of weights, whose exponent is raised when they outgrow it. Sums of sweeps are added in
   the same way to that of the matrix, so Real must have room for twice OUTGROWN bits and for the number of cells. What
   a long sum of floats loses of a term is added with the next one. */
template <Pass pass>
INLINE void add(Ending &sum, const Ending &more) {
  constexpr Real OUTGROWN = IS_FLOAT ? 24 : 192;
  if constexpr (pass == Pass::tangents) {
    const Mask higher = more.top > sum.top;
    const Vec origin = higher ? more.origin : sum.origin;
    sum.mt = fma(sum.origin - origin, sum.m, sum.mt);
    sum.origin = origin, sum.top = higher ? more.top : sum.top;
  }
  Vec d = more.e - sum.e;
  if (any_greater(d, splat(OUTGROWN))) {
    const Mask outgrown = d > OUTGROWN;
    const Vec old = sum.e;
    sum.e = outgrown ? more.e : old;
    sum.m = scaled(sum.m, old - sum.e);
    if constexpr (IS_FLOAT) sum.lost = scaled(sum.lost, old - sum.e);
    if constexpr (pass == Pass::tangents) sum.mt = scaled(sum.mt, old - sum.e);
    d = outgrown ? splat(0) : d;
  }
  if constexpr (IS_FLOAT) {
    // where there is no cell nothing is added, not even `lost`: how many such steps there are depends on the layout
    const Vec fresh = scaled(more.m, d);
    const Mask counts = fresh > splat(0);
    const RoundedSum with = rounded_sum(sum.m, fresh + sum.lost);
    sum.m = counts ? with.sum : sum.m;
    sum.lost = counts ? with.lost : sum.lost;
  } else {
    sum.m += scaled(more.m, d);
  }
  if constexpr (pass == Pass::tangents) sum.mt += scaled(fma(more.origin - sum.origin, more.m, more.mt), d);
}

/* Sums over sweeps, per lane, in double: a long sum of floats would lose small terms. */
struct SweepSums {
  double cost[COSTS][LANES], cost_tangent[COSTS][LANES], entropy[LANES];
};

INLINE Mask in_last_row(const Lanes &lanes, Vec row_numbers) {
  Mask rows;
  for (int l = 0; l < LANES; ++l) rows[l] = lanes.rows[l];
  return row_numbers == __builtin_convertvector(rows, Vec) - Real(1);
}

INLINE void add_lanes(double (&total)[LANES], Vec sum) {
  for (int l = 0; l < LANES; ++l) total[l] += double(sum[l]);
}

/* One sweep forwards. row: the states of the row above it, replaced by those of its last row. */
template <class Kind, Pass pass, bool recording, class L>
__attribute__((noinline)) void forward_sweep(const Lanes &lanes, Int first_row, Int cols, const Extent &extent,
                                             const Vec *staged, const Vec *t_staged, typename L::Cell *row,
                                             Vec *records, const Total *total, Ending &ending, Vec &end_entropy) {
  constexpr int numbers = NUMBERS<pass>;
  const Int steps = L::steps(cols);
  const Vec row_numbers = __builtin_convertvector(L::rows_in_lanes ? lane_numbers() : Mask{}, Vec) + Real(first_row);
  const States<Kind> outside = border<Kind, pass>(lanes, row_numbers + Real(1), COLS);
  States<Kind> left = outside, diagonal;
  Value costs[COSTS];
  for (int c = 0; c < COSTS; ++c) costs[c] = lanes.costs[c];
  if (AXES && lanes.is_free[ROWS]) set_free(ROWS, in_last_row(lanes, row_numbers), lanes.costs, costs);

  auto above = [&](const States<Kind> &last, Int col) {
    States<Kind> up;
    auto *from = place<Kind, pass>(row, col);
    unrolled<Kind::states>([&](auto k) {
      Value &value = up.of[k];
      if constexpr (L::rows_in_lanes) {
        value.m = moved_up<1>(last.of[k].m, splat(from[k * numbers]));
        value.e = moved_up<1>(last.of[k].e, splat(from[k * numbers + 1]));
        if constexpr (numbers > 2) value.x = moved_up<1>(last.of[k].x, splat(from[k * numbers + 2]));
      } else {
        value.m = from[k * numbers];
        value.e = from[k * numbers + 1];
        if constexpr (numbers > 2) value.x = from[k * numbers + 2];
      }
    });
    return up;
  };
  auto keep = [&](const States<Kind> &states, Int col) {
    auto *to = place<Kind, pass>(row, col);
    unrolled<Kind::states>([&](auto k) {
      const Value &value = states.of[k];
      if constexpr (L::rows_in_lanes) {
        to[k * numbers] = value.m[LANES - 1];
        to[k * numbers + 1] = value.e[LANES - 1];
        if constexpr (numbers > 2) to[k * numbers + 2] = value.x[LANES - 1];
      } else {
        to[k * numbers] = value.m;
        to[k * numbers + 1] = value.e;
        if constexpr (numbers > 2) to[k * numbers + 2] = value.x;
      }
    });
  };

  diagonal = above(left, -1);
  keep(outside, -1);
  Ending own{splat(0), splat(NOTHING), splat(0), splat(0), splat(NOTHING), splat(0)};
  Vec own_entropy = splat(0);
  for (Int t = 0; t < steps; ++t) {
    // beyond the last column the first lanes have no cell, and any number is fine
    States<Kind> up = above(left, t < cols ? t : cols - 1), out;
    Mask ends_here = (extent.end_first <= splat_int(t)) & (extent.end_last > splat_int(t));
    const Vec *own_staged = staged + t * STAGED<Kind>, *own_t_staged = t_staged + t * STAGED<Kind>;
    costs[int(Cost::match)] = match_weight<pass>(lanes, *own_staged, pass == Pass::tangents ? *own_t_staged : splat(0));
    set_gaps<Kind, pass>(lanes, own_staged, own_t_staged, costs);
    if (AXES && lanes.is_free[COLS]) set_free(COLS, extent.last == splat_int(t + 1), lanes.costs, costs);
    Ending here = forward<Kind, pass, recording>(costs, diagonal, left, up, out,
                                                 recording ? records + int64_t(t) * Record<Kind, pass>::size : nullptr, total,
                                                 ends_here, &own_entropy);
    const bool begun_all = !L::rows_in_lanes || t >= LANES - 1;
    if (!begun_all) {  // lanes that have not started are outside
      Mask begun = extent.first <= splat_int(t);
      unrolled<Kind::states>([&](auto k) {
        out.of[k].m = begun ? out.of[k].m : outside.of[k].m;
        out.of[k].e = begun ? out.of[k].e : outside.of[k].e;
        if constexpr (numbers > 2) out.of[k].x = begun ? out.of[k].x : outside.of[k].x;
      });
    }
    if constexpr (!recording) {
      if constexpr (Kind::end == End::last) {
        own.m = ends_here ? here.m : own.m;
        own.e = ends_here ? here.e : own.e;
        own.mt = ends_here ? here.mt : own.mt;
        own.origin = ends_here ? here.origin : own.origin, own.top = ends_here ? here.top : own.top;
      } else {
        const bool everywhere = extent.all_end_first <= t && t < extent.all_end_last;
        // below even an empty sum
        if (!everywhere) here.e = ends_here ? here.e : splat(2 * NOTHING), here.top = here.e;
        add<pass>(own, here);
      }
    }
    diagonal = up;
    left = out;
    if (begun_all) keep(out, L::rows_in_lanes ? t - (LANES - 1) : t);
  }
  if constexpr (!recording) add<pass>(ending, own);
  end_entropy = own_entropy;
}

/* One sweep backwards. below: the gradients from the row below, replaced by those from its first row. staged:
   the similarities, in steps, replaced by the gradients with respect to them; t_staged: likewise, by the tangents of
   these gradients; and so for gaps by position. */
template <class Kind, Pass pass, class L>
__attribute__((noinline)) void backward_sweep(Int first_row, Int cols, const Extent &extent, const Vec *records,
                                              Vec *staged, Vec *t_staged, const Lanes &lanes, typename L::Cell *below,
                                              Vec end_entropy, SweepSums &gathered) {
  constexpr bool tangents = pass == Pass::tangents;
  constexpr int numbers = tangents ? 2 : 1, width = Kind::states * numbers;
  const Int steps = L::steps(cols);
  const Vec row_numbers = __builtin_convertvector(L::rows_in_lanes ? lane_numbers() : Mask{}, Vec) + Real(first_row);
  Flows<Kind> from_right{}, diagonal_before{}, up_before{};
  Sums sums{};
  sums.entropy = end_entropy;
  const bool counts_border = !Kind::local && !IS_COST<Kind> && !lanes.is_free[COLS];
  const Mask last_row = AXES && lanes.is_free[ROWS] ? in_last_row(lanes, row_numbers) : Mask{};
  // adds gaps down the column left of the matrix; v: the gradients with respect to the states there
  auto add_border = [&](const Flows<Kind> &v, Mask on_border) {
    const Flow &own = v.of[gap_state<Kind>(COLS)];
    const Flow arrived{on_border ? own.v : splat(0), tangents && on_border ? own.t : splat(0)};
    auto add = [&](Cost cost, Vec gaps) {
      sums.cost[int(cost)] += arrived.v * gaps;
      if constexpr (tangents) sums.cost_tangent[int(cost)] += arrived.t * gaps;
    };
    add(OPEN[COLS], Kind::states > 1 ? splat(1) : row_numbers + Real(1));
    if (Kind::states > 1) add(EXTEND[COLS], row_numbers);
  };

  // gradients that a cell receives: from its right neighbour, from below, and from below right
  auto incoming = [&](Int col) {
    Flows<Kind> v = from_right;
    const bool exists = col >= -1 && col < cols;
    auto *from = below + (exists ? (int64_t(col) + 1) * width : 0);
    unrolled<Kind::states>([&](auto k) {
      if constexpr (L::rows_in_lanes) {
        v.of[k].v += moved_down<1>(up_before.of[k].v, splat(exists ? from[k * numbers] : Real(0)));
        if constexpr (tangents) v.of[k].t += moved_down<1>(up_before.of[k].t, splat(exists ? from[k * numbers + 1] : Real(0)));
      } else {
        v.of[k].v += from[k * numbers];
        if constexpr (tangents) v.of[k].t += from[k * numbers + 1];
      }
    });
    return v;
  };
  auto hand_up = [&](const Flows<Kind> &message, Int col) {
    auto *to = below + (int64_t(col) + 1) * width;
    unrolled<Kind::states>([&](auto k) {
      if constexpr (L::rows_in_lanes) {
        to[k * numbers] = message.of[k].v[0];
        if constexpr (tangents) to[k * numbers + 1] = message.of[k].t[0];
      } else {
        to[k * numbers] = message.of[k].v;
        if constexpr (tangents) to[k * numbers + 1] = message.of[k].t;
      }
    });
  };

  for (Int t = steps - 1; t >= 0; --t) {
    Flows<Kind> v = incoming(L::rows_in_lanes ? t - (LANES - 1) : t), diagonal, left, up;
    if (L::rows_in_lanes && t < LANES - 1) {  // lanes that stand outside: on the border or before it
      Mask on_border = extent.first == splat_int(t + 1), inside = extent.first <= splat_int(t);
      if (counts_border) add_border(v, on_border);
      unrolled<Kind::states>([&](auto k) {
        v.of[k].v = inside ? v.of[k].v : splat(0);
        if constexpr (tangents) v.of[k].t = inside ? v.of[k].t : splat(0);
      });
    }
    Flow matched;
    const Vec *record = records + int64_t(t) * Record<Kind, pass>::size;
    constexpr bool own_gaps = POSITIONS || AXES;
    Sums here{};  // of these cells, where each may have gaps of its own
    backward<Kind, pass>(record, v, diagonal, left, up, matched, own_gaps ? here : sums);
    if constexpr (AXES) {
      auto clear = [&](int axis, Mask is_last) {
        for (const Cost cost : {OPEN[axis], EXTEND[axis], TURN[axis]}) {
          here.cost[int(cost)] = is_last ? splat(0) : here.cost[int(cost)];
          here.cost_tangent[int(cost)] = is_last ? splat(0) : here.cost_tangent[int(cost)];
        }
      };
      if (lanes.is_free[ROWS]) clear(ROWS, last_row);
      if (lanes.is_free[COLS]) clear(COLS, extent.last == splat_int(t + 1));
    }
    auto replace = [&](Int at, Flow flow) {
      if constexpr (tangents) {
        Vec value = staged[at] > FORBIDDEN ? staged[at] * lanes.inverse_t : splat(0);
        sums.entropy = fma(flow.t, value, sums.entropy);
        t_staged[at] = flow.t;
      }
      staged[at] = flow.v;
    };
    replace(t * STAGED<Kind>, matched);
    if constexpr (own_gaps && pass != Pass::marginals) {
      sums.entropy += here.entropy;
      for (int c = int(Cost::open); c < COSTS; ++c) {
        sums.cost[c] += here.cost[c];
        if constexpr (tangents) sums.cost_tangent[c] += here.cost_tangent[c];
      }
      unrolled<GAPS<Kind>>([&](auto gap) {
        constexpr int g = gap;
        if (!lanes.gaps[g].by_position) return;
        Flow steps{here.cost[int(GAP_COSTS[g])], here.cost_tangent[int(GAP_COSTS[g])]};
        for (int k = 0; k < 2; ++k) {
          if (lanes.turn[k] != GAP_COSTS[g]) continue;
          const int turn = int(k == 0 ? Cost::turn : Cost::turn_right);
          steps.v += here.cost[turn];
          if constexpr (tangents) steps.t += here.cost_tangent[turn];
        }
        replace(t * STAGED<Kind> + 1 + g, steps);
      });
    }
    Flows<Kind> message = up;
    unrolled<Kind::states>([&](auto k) {
      message.of[k].v += diagonal_before.of[k].v;
      if constexpr (tangents) message.of[k].t += diagonal_before.of[k].t;
    });
    if (t < cols) hand_up(message, t);
    up_before = message;
    diagonal_before = diagonal;
    from_right = left;
  }
  // the column outside, for the lanes whose first step was 0; the others have handled it
  const Flows<Kind> v = incoming(L::rows_in_lanes ? -LANES : -1);
  if (counts_border) add_border(v, extent.first == splat_int(0));
  hand_up(diagonal_before, -1);

  for (int c = int(Cost::open); c < COSTS; ++c) {
    add_lanes(gathered.cost[c], sums.cost[c]);
    if constexpr (tangents) add_lanes(gathered.cost_tangent[c], sums.cost_tangent[c]);
  }
  if constexpr (pass != Pass::marginals) add_lanes(gathered.entropy, sums.entropy);
}

}  // namespace alignment

#endif
