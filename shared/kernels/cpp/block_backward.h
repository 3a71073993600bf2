/* Up a strip, from the last row to the first.

   B is the weight of all ends that a state can reach, over m, where the total is m * 2^unit (2^unit is in `to_share`).
   X = w B, or w (B + end) where only matches end, is what a match hands to the states before it. They follow
   the recurrence of block_forward.h from the last cell to the first. The marginal of a match is its weight in the
   forward sweep times its B: the forward-backward algorithm, in which no share of a choice is ever computed. */

#ifndef BLOCK_BACKWARD_H
#define BLOCK_BACKWARD_H

#include "strip.h"

namespace alignment {

/* LANES columns in the backward sweep. Carried: X; B of gaps down the column (of a single state: its B) or, with gaps that
   vary, that B times the cell's gap weights, open and extend; and all tangents. */
template <class Kind, Pass pass>
struct BackwardColumns : Origins<pass == Pass::tangents> {
  static constexpr int first_tangent = POSITIONS && !ONE_STATE<Kind> ? 3 : 2;
  static constexpr int count = first_tangent * (pass == Pass::tangents ? 2 : 1);
  Vec now[count], below[count];
  Vec b_for_unit;                // B of the band's first row, which gives the next unit
  Vec unit, step, end;
  std::conditional_t<GAPS_VARY<Kind>, Empty, Scan> scan;
  Vec one, end_share;            // in the forward sweep's unit: 1; the share of an end in the total
  Power to_share;                // 2^(both units - the total's)
  Vec forward_origin;
  // the total's tangent minus both origins, and minus forward_origin only
  Vec total_less_origins, total_less_forward_origin;
};

/* Sums over a strip for the gradients with respect to the parameters, in double: a long sum of floats loses digits. */
struct StripSums {
  double cost[COSTS] = {};              // expected number of steps of each cost
  double matches = 0, similarity = 0;   // expected number of matches, and sum of their similarities
  double gaps = 0;                      // expected sum of gaps by position
  // of local alignments: how often they begin and end here, and the sums of row and column where they do
  double begins = 0, begins_at = 0, ends = 0, ends_at = 0;
  OriginRange origins;

  static double sum_of(Vec sum) {
    double lanes = 0;
    for (int l = 0; l < LANES; ++l) lanes += double(sum[l]);
    return lanes;
  }
};

/* Sums over a band: of probabilities, and of the cell's row and column (from the band's first cell) times them. */
struct Places {
  Vec probabilities = splat(0), rows = splat(0), cols = splat(0);

  INLINE void add(Vec probability, Vec col) {
    probabilities += probability;
    cols = fma(col, probability, cols);
  }
  /* Call after each row but the first, from the last up: `rows` then has each probability times its row's number. */
  INLINE void next_row() { rows += probabilities; }
  void add_to(double &sum, double &at, double row_and_col) const {
    const double sum_here = StripSums::sum_of(probabilities);
    sum += sum_here;
    at += row_and_col * sum_here + StripSums::sum_of(rows) + StripSums::sum_of(cols);
  }
};

/* The total of a pair: m * 2^unit, and the tangent of its logarithm. */
struct PairTotal {
  Vec inverse_m, unit;
  double tangent;
  /* tangent - a - b, computed in double: the difference of large numbers may be small. */
  INLINE Vec tangent_minus(Vec a, Vec b) const {
    typedef double Doubles __attribute__((vector_size(LANES * sizeof(double))));
    const Doubles left = tangent - __builtin_convertvector(a, Doubles) - __builtin_convertvector(b, Doubles);
    return __builtin_convertvector(left, Vec);
  }
};

template <class Kind, Pass pass>
class BackwardStrip {
 public:
  using Columns = BackwardColumns<Kind, pass>;
  using K = Kept<Kind, pass>;
  static constexpr bool tangents = pass == Pass::tangents, gradients = pass == Pass::gradients;

  const PairWeights<Kind> &weights;
  const Strip &strip;
  const PairTotal &total;
  Columns *columns;
  const Seam *right, *left;  // from the right neighbour, to the left one; or null
  Int total_rows, first_col;   // of the pair; of the strip
  Int end_row;                 // row of a global alignment's last cell, if it is in this strip
  Real *out;                   // of the strip's first column
  StripSums &sums;
  Real *d_gaps[POSITIONS ? 2 : 0];  // of the strip's first column: derivatives for gaps by position, null: not asked for
  Vec least_step{}, peak{}, largest_share{};  // of the current band
  Vec largest_loss{};  // with gaps that vary: log2 of a column's largest state's share, if B were 1

  /* As ForwardStrip::run, from the last row to the first. */
  bool run(const Vec *kept, const Vec *units, const Band *bands, int band_count) {
    int allowed_rows = weights.most_rows;
    const Int top = bands[0].first;
    const Band &lowest = bands[band_count - 1];
    if (left && lowest.first + lowest.rows == total_rows) pass_on(total_rows, false);
    for (int b = band_count - 1; b >= 0; --b) {
      for (Int last = bands[b].first + bands[b].rows; last > bands[b].first;) {
        begin_band(units + size_t(b) * strip.vectors * K::band_marks, last % ORIGIN_ROWS == 0 || last == total_rows);
        for (;;) {
          const Int rows = std::min<Int>(allowed_rows, last - bands[b].first);
          if (right && !right->wait_for(total_rows - last + rows)) return false;
          if (try_some(last - rows, rows, kept + size_t(last - rows - top) * strip.vectors * K::size)) {
            last -= rows;
            if (left) left->hand_over(total_rows - last);
            allowed_rows = weights.next_rows(peak, int(rows), allowed_rows, 0);
            break;
          }
          if (rows == 1) return false;
          allowed_rows /= allowed_rows >= 4 ? 4 : 2;
          for (int v = 0; v < strip.vectors; ++v) {
            for (int k = 0; k < Columns::count; ++k) columns[v].now[k] = columns[v].below[k];
          }
        }
      }
    }
    return true;
  }

 private:
  static constexpr int T = Columns::first_tangent;  // offset from a number to its tangent

  INLINE void pass_on(Int row, bool in_matrix) const {
    const Columns &c = columns[0];
    left->numbers[0][row] = c.now[0][0];
    left->unit[row] = c.unit[0];
    for (int n = 1; n < T && !in_matrix; ++n) left->numbers[n][row] = 0;
    if constexpr (tangents) {
      left->numbers[T][row] = c.now[T][0];
      left->origin[row] = c.origin[0];
      for (int n = 1; n < T && !in_matrix; ++n) left->numbers[T + n][row] = 0;
    }
  }

  INLINE void begin_band(const Vec *units, bool move_origins) {
    Vec least = splat(1), unit_after = splat(0), origin_after = splat(0), largest = splat(NOTHING), loss = splat(NOTHING);
    strip.each_back([&](int v, auto is_last) {
      Columns &c = columns[v];
      const Vec forward_unit = units[v * K::band_marks];
      const Vec from = ONE_STATE<Kind> ? c.now[1] : c.b_for_unit;
      Vec natural = exponent_of(max_of(from, splat(SMALLEST_NORMAL))) + c.unit;
      natural = from > splat(0) ? natural : c.unit + LEVEL;
      if constexpr (Kind::local) natural = max_of(natural, splat(0));
      const Vec unit = natural - LEVEL, change = c.unit - unit;
      c.unit = unit;
      for (Vec &number : c.now) number = scaled(number, change);
      if constexpr (is_last) unit_after = broadcast_lane<LANES - 1>(unit);
      c.step = scaled(splat(1), moved_down<1>(unit, unit_after) - unit);
      const Mask exists = lane_numbers() < splat_int(strip.last), continues = lane_numbers() < splat_int(strip.last - 1);
      if (is_last && strip.last < LANES) {  // nothing comes from columns that do not exist
        least = min_of(least, continues ? c.step : splat(1));
        c.step = continues ? c.step : splat(0);
      } else {
        least = min_of(least, c.step);
      }
      unit_after = unit;
      if constexpr (!GAPS_VARY<Kind>) c.scan = scan_of<false>(c.step * weights.template weights<From::left, ACROSS<Kind>>());
      c.end = scaled(total.inverse_m, -unit);
      c.one = scaled(splat(1), -forward_unit);
      Vec share = (forward_unit - total.unit) + unit;
      if constexpr (is_last) share = exists ? share : splat(NOTHING);
      c.to_share = Power::of(share);
      c.end_share = scaled(total.inverse_m, forward_unit - total.unit);
      largest = max_of(largest, share);
      if constexpr (GAPS_VARY<Kind>) {
        const Vec forward_peak = units[v * K::band_marks + K::marks];
        loss = max_of(loss, share + exponent_of(max_of(forward_peak, splat(SMALLEST_NORMAL))));
      }
      if constexpr (is_last) {
        c.end = exists ? c.end : splat(0);
        c.end_share = exists ? c.end_share : splat(0);
        if constexpr (Kind::end == End::last) c.end = lane_numbers() == splat_int(strip.last - 1) ? c.end : splat(0);
      } else if constexpr (Kind::end == End::last) {
        c.end = splat(0);
      }
      if constexpr (tangents) {
        if (move_origins) {
          c.template move<T>(c.now, 1, Kind::local ? c.end : splat(0), natural);
          c.change = (is_last ? c.origin : origin_after) - c.origin;
          origin_after = c.origin;
          sums.origins.add(c.origin);
          c.forward_origin = units[v * K::band_marks + 1];  // the same in all bands of these rows
          c.total_less_origins = total.tangent_minus(c.forward_origin, c.origin);
          c.total_less_forward_origin = total.tangent_minus(c.forward_origin, splat(0));
        }
        c.t_start_or_end = -c.origin * c.end;
      }
      for (int k = 0; k < Columns::count; ++k) c.below[k] = c.now[k];
    });
    least_step = least, largest_share = largest;
    if constexpr (GAPS_VARY<Kind>) largest_loss = loss;
  }

  INLINE bool try_some(Int first, Int rows, const Vec *kept) {
    if constexpr (GAPS_VARY<Kind>) return try_band_by_position(first, rows, kept);
    if constexpr (!GAPS_VARY<Kind>) return try_band(first, rows, kept);
  }

  /* The marginals of matches, or their tangents, from B; q: B times what makes it a share of the total. */
  INLINE Vec marginals(const Columns &c, const Vec *cell, Vec b, Vec t_b, Vec q, Vec &largest_q) const {
    constexpr bool ends_apart = Kind::end == End::later_match;
    const Vec w = cell[K::w], matched = cell[K::matched];
    largest_q = max_of(largest_q, q);
    Vec p = ends_apart ? fma(matched, q + c.end_share, (w * c.one) * q) : matched * q;
    if constexpr (tangents) {
      const Vec t_q = c.to_share.times(fma(-c.total_less_origins, b, t_b));
      largest_q = max_of(largest_q, absolute(t_q));
      if constexpr (ends_apart) {
        p = fma(cell[K::t_matched], q + c.end_share, matched * fma(-c.total_less_forward_origin, c.end_share, t_q));
        p = fma(c.one, fma(w, fma(-c.forward_origin, q, t_q), cell[K::t_w] * q), p);
      } else {
        p = fma(cell[K::t_matched], q, matched * t_q);
      }
    }
    return p;
  }

  /* In by_position.h. */
  __attribute__((noinline)) bool try_band_by_position(Int first, Int rows, const Vec *kept);

  /* What comes from the right: of the rows first, first + 1, ..., in the last column's unit. */
  template <int size>
  INLINE void receive(Int first, Int rows, Real (&outside)[size][MOST_ROWS + LANES]) const {
    if (right) {
      const Vec unit = broadcast_lane<LANES - 1>(columns[strip.vectors - 1].unit);
      for (Int k = 0; k <= rows; k += LANES) {
        const int count = int(std::min<Int>(LANES, rows + 1 - k));
        const Power change = Power::of(load_some(right->unit + first + k, count, 0) - unit);
        Vec moved = splat(0);
        if constexpr (tangents) {
          moved = load_some(right->origin + first + k, count, 0) - columns[strip.vectors - 1].origin;
        }
        for (int n = 0; n < Columns::count; ++n) {
          Vec number = change.times(load_some(right->numbers[n] + first + k, count, 0));
          if (n >= T) number = fma(moved, load(outside[n - T] + k), number);
          store(outside[n] + k, number);
        }
      }
    }
  }

  __attribute__((noinline)) bool try_band(Int first, Int rows, const Vec *kept) {
    const PairWeights<Kind> o = weights;
    Vec largest = splat(0), largest_q = splat(0);
    Real outside[4][MOST_ROWS + LANES] = {};
    receive(first, rows, outside);
    Vec of_left[3] = {}, of_up[3] = {}, similarity = splat(0), matches = splat(0);
    Places begins, ends;
    constexpr bool has_places = gradients && Kind::local;
    for (Int k = rows - 1; k >= 0; --k) {
      const Int i = first + k;
      const Vec *from = kept + size_t(k) * strip.vectors * K::size;
      const Real *row = strip.s + i * strip.pitch;
      Real *to = out + i * strip.pitch;
      Vec after = splat(outside[0][k + 1]), t_after = splat(outside[T][k + 1]);  // X of the cell after, a row below
      Vec across = splat(outside[1][k]), t_across = splat(outside[T + 1][k]);    // B of the cell after
      Vec gap_after = across, t_gap_after = t_across;
      strip.each_back([&](int v, auto is_last) {
        Columns &c = columns[v];
        const Vec *cell = from + v * K::size;
        __builtin_prefetch(to - 4 * strip.pitch + v * LANES, 1);
        const Vec w = cell[K::w], matched = cell[K::matched];
        const Vec x = c.now[0];
        Vec arrived = c.step * moved_down<1>(x, after), t_arrived;
        if constexpr (tangents) {  // what comes from the columns after, relative to this origin
          t_arrived = c.step * moved_down<1>(c.now[T], fma(c.change, after, t_after));
          t_across = fma(c.change, across, t_across);
          if (!ONE_STATE<Kind>) t_gap_after = fma(c.change, gap_after, t_gap_after);
          t_after = c.now[T];
        }
        after = x;
        if constexpr (Kind::end == End::last && is_last) {  // all states may end there
          arrived += i == end_row ? c.end : splat(0);
          if constexpr (tangents) t_arrived += i == end_row ? c.t_start_or_end : splat(0);
        }
        Vec b, t_b;  // of the match
        if constexpr (ONE_STATE<Kind>) {
          const Vec gap = o.template weights<From::up, 0>();
          Vec without_gap = arrived;
          if constexpr (Kind::end == End::anywhere) without_gap += c.end;
          const Vec below = c.now[1];
          b = scanned<false>(c.scan, fma(gap, below, without_gap), across);
          if constexpr (tangents) {
            Vec t_own = fma(gap, c.now[T + 1], t_arrived);
            if constexpr (Kind::end == End::anywhere) t_own += c.t_start_or_end;
            t_b = scanned<false>(c.scan, t_own, t_across);
            c.now[T + 1] = t_b;
          }
          c.now[1] = b;
          if constexpr (gradients) {
            const Vec onwards = fma(gap, below, c.scan.step[0] * moved_down<1>(b, gap_after));
            gap_after = b;
            of_up[0] = fma(cell[K::across], c.to_share.times(onwards), of_up[0]);
          }
        } else {
          const Vec open = o.template weights<From::left, 0>(), turn_right = o.template weights<From::left, DOWN<Kind>>(),
                    open_down = o.template weights<From::up, 0>(), turn = o.template weights<From::up, ACROSS<Kind>>(),
                    extend = o.template weights<From::up, DOWN<Kind>>();
          const Vec down = c.now[1];
          const Vec gap = scanned<false>(c.scan, fma(turn, down, arrived), across);
          const Vec next = c.step * moved_down<1>(gap, gap_after);  // gaps along the row, of the cell after
          gap_after = gap;
          b = fma(open, next, fma(open_down, down, arrived));
          c.now[1] = fma(turn_right, next, fma(extend, down, arrived));
          c.b_for_unit = b;
          if constexpr (tangents) {
            const Vec t_down = c.now[T + 1];
            const Vec t_gap = scanned<false>(c.scan, fma(turn, t_down, t_arrived), t_across);
            const Vec t_next = c.step * moved_down<1>(t_gap, t_gap_after);
            t_gap_after = t_gap;
            t_b = fma(open, t_next, fma(open_down, t_down, t_arrived));
            c.now[T + 1] = fma(turn_right, t_next, fma(extend, t_down, t_arrived));
          }
          if constexpr (gradients) {
            const Vec states[] = {Kind::local ? fma(w, c.one, matched) : matched, cell[K::across], cell[K::down]};
            const Vec share_right = c.to_share.times(next), share_below = c.to_share.times(down);
            for (int s = 0; s < 3; ++s) {
              of_left[s] = fma(states[s], share_right, of_left[s]);
              of_up[s] = fma(states[s], share_below, of_up[s]);
            }
          }
        }
        largest = max_of(largest, b);
        constexpr bool ends_apart = Kind::end == End::later_match;
        const Vec with_end = ends_apart ? b + c.end : b;
        c.now[0] = w * with_end;
        if constexpr (tangents) c.now[T] = fma(cell[K::t_w], with_end, w * (ends_apart ? t_b + c.t_start_or_end : t_b));
        const Vec q = c.to_share.times(b), p = marginals(c, cell, b, t_b, q, largest_q);
        if constexpr (gradients) {
          matches += p;
          similarity = fma(p, max_of(strip.part<is_last>(row, v, 0), splat(FORBIDDEN)), similarity);
        }
        if constexpr (has_places) {
          const Vec col = __builtin_convertvector(lane_numbers(), Vec) + Real(v * LANES);
          begins.add((w * c.one) * q, col);
          ends.add((ends_apart ? matched : cell[K::across]) * c.end_share, col);
        }
        if constexpr (is_last) {
          store_some(to + v * LANES, strip.last, p);
        } else {
          store(to + v * LANES, p);
        }
      });
      if (has_places && k > 0) begins.next_row(), ends.next_row();
      if (left) {
        pass_on(i, true);
        left->numbers[1][i] = across[0];
        if constexpr (tangents) left->numbers[T + 1][i] = t_across[0];
      }
    }
    peak = largest;
    const bool valid = o.within_range(largest, least_step, rows) && tangents_are_finite(columns, strip.vectors) &&
                       all_at_most(largest_share, splat(LARGEST_SHARE)) && all_at_most(largest_q, splat(LARGEST));
    if constexpr (gradients) {
      if (valid) {
        add_steps(of_left, of_up);
        add_sums(similarity, matches, begins, ends, first);
      }
    }
    return valid;
  }

  INLINE void add_sums(Vec similarity, Vec matches, const Places &begins, const Places &ends, Int first) {
    sums.matches += StripSums::sum_of(matches);
    sums.similarity += StripSums::sum_of(similarity);
    if constexpr (Kind::local) {
      begins.add_to(sums.begins, sums.begins_at, double(first) + double(first_col));
      ends.add_to(sums.ends, sums.ends_at, double(first) + double(first_col));
    }
  }

  INLINE void add_steps(const Vec (&of_left)[3], const Vec (&of_up)[3]) {
    if constexpr (ONE_STATE<Kind>) {
      sums.cost[int(cost_between<Kind>(From::up, 0))] += StripSums::sum_of(of_up[0]);  // of both directions
    } else {
      auto add = [&](Cost cost, Vec steps) { sums.cost[int(cost)] += StripSums::sum_of(steps); };
      unrolled<3>([&](auto s) {
        add(cost_between<Kind>(From::left, s), of_left[s] * weights.template weights<From::left, s>());
        add(cost_between<Kind>(From::up, s), of_up[s] * weights.template weights<From::up, s>());
      });
    }
  }
};

}  // namespace alignment

#endif
