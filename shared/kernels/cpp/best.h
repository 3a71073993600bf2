/* Best alignments: sweeps forwards over the matrices, which store a few bits for each cell that tell which choice
   was the maximum, and the traceback through these. The layouts are those of sweep.h, but a sweep with rows in the
   lanes has up to two vectors of rows, the second LANES steps behind the first: while one waits for its
   previous result, the other works. */

#ifndef BEST_H
#define BEST_H

#include <cstring>
#include <limits>

#include "best_cells.h"
#include "solve.h"

namespace alignment {

/* Numbers for the cells in the steps of a sweep, or one vector for all of them. */
struct InSteps {
  const Vec *at;
  int64_t stride;  // 1, or 0
  INLINE Vec operator[](Int step) const { return at[step * stride]; }
};

/* The best ends of each lane so far. */
struct BestEnds {
  Vec value;
  Mask row, col;
};

/* The lanes of a vector in a sweep. */
struct LanesOfSweep {
  Mask first, last;  // cells: first <= step < last
  Mask row, may_end;  // the row's number, and whether it exists and an alignment may end in it
};

constexpr int ROW_VECTORS = 2;  // of a sweep with rows in the lanes, if more than LANES rows are left

/* What a sweep reads and writes. */
template <class Cell, int W>
struct BestSweep {
  LanesOfSweep lanes[W];
  InSteps similarity[W], open[W][2], extend[W][2];  // the gaps along the row, and along the column
  Vec turn_right_cost[W];  // what is added to a turn into a gap along the row
  Vec outside[W][4];     // the states left of the matrix
  Int cols, steps, all_first, all_last;  // every lane with a row has a cell where all_first <= step < all_last
  bool turn_is_open, is_free[2];
  Cell *row;  // the states of the row above, replaced by those of the last row
  LaneBits *bits;
};

/* Returns the value of the first state in the last step. */
template <class Kind, bool restricted, class L, int W>
__attribute__((noinline)) Vec best_sweep(const BestSweep<typename L::Cell, W> &sweep, BestEnds &ends) {
  using Cells = BestCells<Kind, restricted>;
  constexpr int states = Cells::states, lag = L::rows_in_lanes ? W * LANES - 1 : 0;  // of the last row
  Vec left[W][states], diagonal[W], value[W];
  Mask at[W];
  typename L::Cell *const row = sweep.row;
  auto above = [&](int w, Int col, Vec (&up)[states]) {
    const auto *from = row + (int64_t(col) + 1) * states;
    unrolled<states>([&](auto k) {
      if constexpr (L::rows_in_lanes) {
        up[k] = moved_up<1>(left[w][k], w > 0 ? left[w > 0 ? w - 1 : 0][k] : splat(from[k]));
      } else {
        up[k] = from[k];
      }
    });
  };
  auto keep = [&](Int col) {
    auto *to = row + (int64_t(col) + 1) * states;
    unrolled<states>([&](auto k) {
      if constexpr (L::rows_in_lanes) {
        to[k] = left[W - 1][k][LANES - 1];
      } else {
        to[k] = left[W - 1][k];
      }
    });
  };
  auto step = [&](Int t, auto edge) __attribute__((always_inline)) {
    Vec up[W][states];
    unrolled<W>([&](auto w) { above(w, t < sweep.cols ? t : sweep.cols - 1, up[w]); });
    unrolled<W>([&](auto w) {
      const LanesOfSweep &lanes = sweep.lanes[w];
      StepCosts costs;
      unrolled<2>([&](auto axis) {
        costs.open[axis] = sweep.open[w][axis][t], costs.extend[axis] = sweep.extend[w][axis][t];
        costs.turn[axis] = sweep.turn_is_open ? costs.open[axis] : costs.extend[axis];
      });
      if constexpr (AXES) {
        costs.turn[ROWS] += sweep.turn_right_cost[w];
        if (sweep.is_free[COLS]) {
          const Mask is_last = lanes.last == splat_int(t + 1);
          for (Vec *cost : {&costs.open[COLS], &costs.extend[COLS], &costs.turn[COLS]}) *cost = is_last ? splat(0) : *cost;
        }
      }
      Vec out[states];
      LaneBits bits[Cells::bits];
      Vec ending = Cells::step(sweep.similarity[w][t], costs, diagonal[w], left[w], up[w], out, bits);
      if constexpr (edge) {  // lanes that have not begun are outside, and beyond their last cell nothing ends
        const Mask begun = lanes.first <= splat_int(t), inside = begun & (lanes.last > splat_int(t));
        // g++ 14 refuses the array itself in a generic lambda inside this one's `if constexpr`
        Vec *const states_out = out;
        unrolled<states>([&](auto k) { states_out[k] = begun ? states_out[k] : sweep.outside[w][k]; });
        ending = inside ? ending : splat(NEVER);
      }
      if constexpr (Kind::end != End::last) {
        at[w] = ending > value[w] ? splat_int(t) : at[w];
        value[w] = max_of(ending, value[w]);
      }
      unrolled<Cells::bits>([&](auto k) { sweep.bits[(int64_t(t) * Cells::bits + k) * W + w] = bits[k]; });
      unrolled<states>([&](auto k) { left[w][k] = out[k]; });
      diagonal[w] = up[w][0];
    });
    if (t >= lag) keep(t - lag);
  };

  unrolled<W>([&](auto w) {
    for (int k = 0; k < states; ++k) left[w][k] = sweep.outside[w][k];
    // +infinity where nothing may end: no end is better
    value[w] = sweep.lanes[w].may_end ? ends.value : splat(std::numeric_limits<Real>::infinity());
    at[w] = Mask{};
  });
  unrolled<W>([&](auto w) {
    Vec up[states];
    above(w, -1, up);
    diagonal[w] = up[0];
  });
  keep(-1);
  Int t = 0;
  const Int begun = std::min(sweep.all_first, sweep.steps), over = std::min(sweep.all_last, sweep.steps);
  for (; t < begun; ++t) step(t, std::true_type());
  for (; t < over; ++t) step(t, std::false_type());
  for (; t < sweep.steps; ++t) step(t, std::true_type());

  unrolled<W>([&](auto w) {
    const LanesOfSweep &lanes = sweep.lanes[w];
    const Mask is_better = lanes.may_end & (value[w] > ends.value);
    ends.value = is_better ? value[w] : ends.value;
    ends.row = is_better ? lanes.row : ends.row;
    ends.col = is_better ? at[w] - lanes.first : ends.col;
  });
  return left[W - 1][0];
}

/* The bits of a task's cells, and where they are. */
template <int bits, class L>
class CellBits {
 public:
  /* How many vectors of rows the sweep from `row` on has. */
  static int vectors_from(Int row, Int rows) { return L::rows_in_lanes && rows - row > LANES ? ROW_VECTORS : 1; }
  // rows of a sweep; the last sweep may have fewer
  static constexpr Int SWEEP_ROWS = L::rows_in_lanes ? ROW_VECTORS * LANES : 1;

  CellBits(Int rows, Int cols)
      : rows_(rows), steps_(cols + SWEEP_ROWS - 1), stride_(int64_t(steps_) * bits * (L::rows_in_lanes ? ROW_VECTORS : 1)),
        memory_((size_t(stride_) * size_t((rows + SWEEP_ROWS - 1) / SWEEP_ROWS) * sizeof(LaneBits) + sizeof(Vec) - 1) /
                sizeof(Vec)) {}

  LaneBits *of_sweep(Int row) const { return reinterpret_cast<LaneBits *>(memory_.data()) + row / SWEEP_ROWS * stride_; }

  /* Bit k of a cell of the pair in this lane, or of the only pair. */
  INLINE bool at(const Place &place, int k, int lane) const {
    const Int row = Int(place.row), within = row % SWEEP_ROWS;
    const LaneBits *own = of_sweep(row);
    if constexpr (L::rows_in_lanes) {
      const int vectors = vectors_from(row - within, rows_);
      return own[((place.col + within) * bits + k) * vectors + within / LANES] >> (within % LANES) & 1;
    }
    return own[place.col * bits + k] >> lane & 1;
  }

 private:
  Int rows_, steps_;
  int64_t stride_;
  Buffer memory_;
};

struct BestJob {
  const AlignmentCall &call;
  Real *scores;
  uint8_t *matches;
};

/* The pairs of one task. */
template <class Kind, bool restricted, class L>
class BestTask {
  using Cells = BestCells<Kind, restricted>;
  using Cell = typename L::Cell;
  static constexpr int states = Cells::states;

 public:
  BestTask(const BestJob &job, const int64_t *pairs, int count) : job_(job), call_(job.call), pairs_(pairs), count_(count) {
    for (int g = 0; g < 2; ++g) by_position_[g] = is_by_position(call_, g);
    for (int l = 0; l < LANES; ++l) {
      const int64_t pair = pairs[L::rows_in_lanes ? 0 : std::min(l, count - 1)];
      const Size size = size_of(call_, pair);
      const bool is_used = (L::rows_in_lanes || l < count) && size.rows > 0 && size.cols > 0;
      lanes_.rows[l] = is_used ? Int(size.rows) : 0;
      lanes_.cols[l] = is_used ? Int(size.cols) : 0;
      rows_ = std::max(rows_, lanes_.rows[l]);
      cols_ = std::max(cols_, lanes_.cols[l]);
      similarity_[l] = call_.similarity + pair * call_.pair_stride;
      const Parameters p = parameters_of(call_, call_.parameters, pair);
      const double gaps[2][2] = {{p.open[ROWS], p.open[COLS]}, {p.extend[ROWS], p.extend[COLS]}};
      for (int g = 0; g < 2; ++g) {
        if (by_position_[g]) costs_[g][l] = call_.gaps[g].costs + pair * call_.gaps[g].stride;
        for (int axis = 0; axis < 2; ++axis) {
          bad_[l] |= gaps[g][axis] != gaps[g][axis] ? -1 : 0;
          cost_[g][axis][l] = Real(clamped(gaps[g][axis]));
        }
      }
    }
    for (int axis = 0; axis < 2; ++axis) is_free_[axis] = is_free(call_, axis);
  }

  void run() {
    auto put = [&](int p, Real value) { job_.scores[pairs_[p]] = IS_COST<Kind> ? 0 - value : value; };
    if (rows_ == 0) {
      for (int p = 0; p < count_; ++p) put(p, finish(p, nullptr));
      return;
    }
    const CellBits<Cells::bits, L> bits(rows_, cols_);
    forwards(bits);
    for (int p = 0; p < count_; ++p) put(p, finish(p, &bits));
  }

 private:
  /* The states outside the matrix, `positions` gap positions along an axis from its corner. */
  void border(Vec positions, int axis, Vec *to) const {
    std::fill_n(to, states, splat(NEVER));
    if (Kind::local) return;
    const Mask is_corner = positions == splat(0);
    if (IS_COST<Kind>) {
      to[0] = is_corner ? splat(0) : splat(NEVER);
    } else if (is_free_[axis]) {
      to[0] = splat(0);
      if (states > 1) to[1] = splat(0);
    } else if (Kind::states == 1) {
      to[0] = cost_[0][axis] * positions;
    } else {  // the greatest, A, R and D
      const Vec gaps = cost_[0][axis] + cost_[1][axis] * (positions - Real(1));
      to[0] = is_corner ? splat(0) : gaps;
      to[1] = is_corner ? splat(0) : splat(NEVER);
      to[2 + axis] = is_corner ? splat(NEVER) : gaps;
    }
  }

  void forwards(const CellBits<Cells::bits, L> &bits) {
    // cells are staged after their vector's lag; the memory is read from the first step to the last
    const size_t staged = size_t(cols_) + (ROW_VECTORS + 1) * LANES;
    Buffer row_memory((size_t(cols_ + 1) * states * sizeof(Cell) + sizeof(Vec) - 1) / sizeof(Vec));
    const size_t all_staged = staged * ROW_VECTORS * (1 + by_position_[0] + by_position_[1]);
    Buffer staged_memory(all_staged);
    std::fill_n(staged_memory.data(), all_staged, splat(0));
    Cell *row = reinterpret_cast<Cell *>(row_memory.data());
    for (Int c = -1; c < cols_; ++c) {
      Vec outside[states];
      border(splat(Real(c + 1)), ROWS, outside);
      for (int k = 0; k < states; ++k) {
        if constexpr (L::rows_in_lanes) {
          row[(c + 1) * states + k] = outside[k][0];
        } else {
          row[(c + 1) * states + k] = outside[k];
        }
      }
    }
    ends_ = {splat(NEVER), Mask{}, Mask{}};
    for (Int i = 0; i < rows_; i += CellBits<Cells::bits, L>::SWEEP_ROWS) {
      if constexpr (L::rows_in_lanes) {
        if (bits.vectors_from(i, rows_) == ROW_VECTORS) {
          sweep<ROW_VECTORS>(i, row, bits.of_sweep(i), staged_memory.data(), staged);
          continue;
        }
      }
      sweep<1>(i, row, bits.of_sweep(i), staged_memory.data(), staged);
    }
  }

  template <int W>
  void sweep(Int i, Cell *row, LaneBits *bits, Vec *memory, size_t staged) {
    BestSweep<Cell, W> sweep{};
    const Int rows = std::min<Int>(rows_ - i, W * L::rows);
    sweep.cols = cols_, sweep.steps = cols_ + (L::rows_in_lanes ? rows - 1 : 0);
    sweep.all_first = L::rows_in_lanes ? W * LANES - 1 : 0, sweep.all_last = cols_;
    sweep.turn_is_open = call_.options & ALIGNMENT_PENALIZE_TURNS;
    sweep.row = row, sweep.bits = bits;
    sweep.is_free[ROWS] = is_free_[ROWS], sweep.is_free[COLS] = is_free_[COLS];
    Vec in_rows[W][2];  // costs of gaps along them
    for (int w = 0; w < W; ++w) {
      Extent extent{};  // in steps from the vector's first one
      Mask &number = sweep.lanes[w].row;
      for (int l = 0; l < LANES; ++l) {
        number[l] = i + (L::rows_in_lanes ? w * LANES + l : 0);
        const bool exists = number[l] < lanes_.rows[l];
        extent.first[l] = L::rows_in_lanes ? l : 0;
        extent.last[l] = extent.first[l] + (exists ? lanes_.cols[l] : 0);
        sweep.lanes[w].may_end[l] = exists && (Kind::end != End::later_match || number[l] > 0) ? -1 : 0;
        if (!L::rows_in_lanes && exists) sweep.all_last = std::min(sweep.all_last, lanes_.cols[l]);
      }
      extent.all_first = extent.first[LANES - 1], extent.all_last = extent.last[0];
      for (int l = 1; l < LANES; ++l) extent.all_last = std::min(extent.all_last, extent.last[l]);
      const Int lag = L::rows_in_lanes ? w * LANES : 0;
      sweep.lanes[w].first = extent.first + splat_int(lag), sweep.lanes[w].last = extent.last + splat_int(lag);
      border(__builtin_convertvector(number, Vec) + Real(1), COLS, sweep.outside[w]);
      Mask is_last{};
      if constexpr (AXES) {
        for (int l = 0; l < LANES; ++l) is_last[l] = is_free_[ROWS] && number[l] == lanes_.rows[l] - 1 ? -1 : 0;
        const bool forbids_turns = Kind::states > 1 && (call_.options & ALIGNMENT_RESTRICT_TURNS);
        sweep.turn_right_cost[w] = is_last ? splat(0) : splat(forbids_turns ? NEVER : Real(0));
      }
      const auto stage = [&](const Real *const (&matrix)[LANES], int place, auto clean) {
        Vec *to = memory + (size_t(place) * ROW_VECTORS + w) * staged;
        const Real *from[LANES];
        for (int l = 0; l < LANES; ++l) {
          from[l] = matrix[l] + int64_t(number[l]) * call_.cols - (L::rows_in_lanes ? l : 0);
        }
        const Int steps = cols_ + (L::rows_in_lanes ? LANES - 1 : 0);
        gather<1>(matrix, call_.rows * call_.cols, from, extent, steps, to + lag, clean);
        return InSteps{to, 1};
      };
      sweep.similarity[w] = stage(similarity_, 0, [&](Vec s) { return clean(IS_COST<Kind> ? -s : s, bad_); });
      for (int g = 0; g < 2; ++g) {
        InSteps *to = g == 0 ? sweep.open[w] : sweep.extend[w];
        in_rows[w][g] = is_last ? splat(0) : cost_[g][ROWS];
        to[ROWS] = {&in_rows[w][g], 0}, to[COLS] = {&cost_[g][COLS], 0};
        if (by_position_[g]) {
          to[ROWS] = stage(costs_[g], g == 1 && by_position_[0] ? 2 : 1, [&](Vec c) { return clean_gap(c, bad_); });
          to[COLS] = to[ROWS];
        }
      }
    }
    const Vec last = best_sweep<Kind, restricted, L, W>(sweep, ends_);
    if constexpr (Kind::end == End::last) {
      for (int l = 0; l < LANES; ++l) {
        if constexpr (L::rows_in_lanes) {
          if (i + rows == rows_) final_ = splat(last[(rows - 1) % LANES]);
        } else {
          if (i == lanes_.rows[l] - 1) final_[l] = row[int64_t(lanes_.cols[l]) * states][l];
        }
      }
    }
  }

  /* Writes the matches of pair number p of the task; returns its score. */
  Real finish(int p, const CellBits<Cells::bits, L> *bits) {
    const int64_t pair = pairs_[p], cols = call_.cols;
    const Size size = size_of(call_, pair);
    uint8_t *matches = job_.matches + pair * call_.rows * cols;
    std::memset(matches, 0, call_.rows * cols);
    bool is_bad = false;
    int best = p;
    for (int l = 0; l < LANES; ++l) {
      if (!L::rows_in_lanes && l != p) continue;
      is_bad = is_bad || bad_[l];
      const bool is_earlier = ends_.value[l] == ends_.value[best] && ends_.row[l] < ends_.row[best];
      if (l == 0 || ends_.value[l] > ends_.value[best] || is_earlier) best = l;
    }
    if (is_bad) return std::numeric_limits<Real>::quiet_NaN();
    constexpr bool is_global = Kind::end == End::last;
    constexpr Real impossible = is_global ? -std::numeric_limits<Real>::infinity() : Real(0);
    if (size.rows == 0 || size.cols == 0) {
      const Real gaps = Real(cost_of(only_gaps(call_, size), clamped_parameters_of(call_, pair)));
      return gaps <= FORBIDDEN ? impossible : gaps;
    }
    const Real score = is_global ? final_[p] : ends_.value[best];
    if (score <= FORBIDDEN) return impossible;
    const Place at = is_global ? Place{size.rows - 1, size.cols - 1} : Place{ends_.row[best], ends_.col[best]};
    Cells::trace(at, [&](const Place &place, int k) { return bits->at(place, k, p); },
                 [&](const Place &place) { matches[place.row * cols + place.col] = 1; });
    return score;
  }

  const BestJob &job_;
  const AlignmentCall &call_;
  const int64_t *pairs_;
  int count_;
  Lanes lanes_{};
  const Real *similarity_[LANES], *costs_[2][LANES] = {};
  Vec cost_[2][2] = {}, final_{};  // open and extend, along the row and along the column
  BestEnds ends_{splat(NEVER), {}, {}};
  bool by_position_[2], is_free_[2];
  Int rows_ = 0, cols_ = 0;
  Mask bad_{};
};

}  // namespace alignment

#endif
