/* Forwards and backwards through a tile, some rows of a strip of columns, in plain odds with shared exponents.

   Forwards, V is the sum of the states of a cell. The next row needs V and, where gaps down a column are a state of
   their own, that state; the state of gaps along the row is a linear recurrence, which a scan solves. Backwards the same
   runs from the last cell to the first: B, of a state, is the odds of all ends that can be reached from it, divided by
   the total, and X = w (B + end) is what a match hands to the states before it. The marginal of a match is its odds
   forwards times its B: the forward-backward algorithm, in which no share of a choice is ever computed.

   Tangents are those of the odds, by the product rule; t_... is the tangent of ... */

#ifndef TILE_H
#define TILE_H

#include <algorithm>
#include <atomic>
#include <thread>

#include "odds.h"

namespace alignment {

/* A strip is so wide that its columns stay in the first cache. */
constexpr Int STRIP_VECTORS = 256 / LANES;

template <class Kind>
constexpr bool ONE_STATE = Kind::states == 1;
/* The states of gaps along the row and down the column. */
template <class Kind>
constexpr int ACROSS = receiver<Kind>(From::left);
template <class Kind>
constexpr int DOWN = receiver<Kind>(From::up);

/* A pair's constants. */
template <class Kind>
struct PairOdds {
  MatchOdds match;
  Vec cost[COSTS], t_cost[COSTS];  // odds of the costs; tangents of cost / T
  Vec inverse_t, t_ratio;          // 1 / T, (tangent of T) / T^2
  double decay[MOST_ROWS + 1];     // bits by which a column can sink within so many rows
  int most_rows;                   // of a band

  /* Whether a band of so many rows lost nothing; its largest number of units, and smallest step between columns. */
  INLINE bool within_range(Vec most, Vec least_step, Int rows) const {
    return all_at_most(most, all(power_of_2(double(ROOM) - decay[rows]))) &&
           all_at_most(all(power_of_2(decay[rows] - 126 - double(LEVEL))), least_step);
  }
  /* How many rows the next band should have. */
  INLINE int next_rows(Vec most, int rows) const {
    const bool grows = 2 * rows <= most_rows && all_at_most(most, all(power_of_2(LEVEL + (102 - decay[2 * rows]) / 2.6)));
    return grows ? 2 * rows : rows;
  }
  static Real power_of_2(double bits) { return Real(std::exp2(bits)); }

  template <From from, int state>
  INLINE Vec odds() const {
    constexpr Cost cost_ = cost_between<Kind>(from, state);
    return cost[int(cost_)];
  }
  template <From from, int state>
  INLINE Vec t_odds() const {
    return t_cost[int(cost_between<Kind>(from, state))];
  }
  /* of s / T */
  INLINE Vec tangent(Vec s, Vec t_s) const {
    return fused(t_s, inverse_t, -(greater(s, all(FORBIDDEN)) * t_ratio));
  }
};

/* The similarities of a strip: LANES columns are a vector, of which the last one may have less. */
struct Strip {
  const Real *s, *t_s;
  int64_t pitch;
  int vectors, last;  // columns in the last vector

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

/* What passes from strip to strip: for each row some numbers, in a unit of that row. Downwards, number i + 1 is of row i.
   Strips may be computed by different threads, each of which waits for the rows that it needs. */
struct Border {
  Real *numbers[4] = {}, *unit = nullptr;
  std::atomic<Int> *progress = nullptr;     // how many rows have been handed over
  const std::atomic<bool> *given_up = nullptr;

  /* False if the pair has been given up meanwhile. */
  bool wait_for(Int rows) const {
    for (int tries = 0; progress->load(std::memory_order_acquire) < rows; ++tries) {
      if (given_up->load(std::memory_order_relaxed)) return false;
      if (tries > 1000) std::this_thread::yield();
    }
    return true;
  }
  void hand_over(Int rows) const { progress->store(rows, std::memory_order_release); }
};

template <class Kind, bool tangents>
struct Carries {
  static constexpr int one = ONE_STATE<Kind> ? 1 : 2;
  static constexpr int tangent = one;                  // the distance of a number's tangent
  static constexpr int count = one * (tangents ? 2 : 1);
};

/* LANES columns on the way down. Carried: V, and the state of gaps down the column that the next row will have. */
template <class Kind, bool tangents>
struct Descent {
  static constexpr int count = Carries<Kind, tangents>::count, tangent = Carries<Kind, tangents>::one;
  Vec now[count], above[count];  // after the last row; above the band
  Vec unit, step, one;           // the exponent; the unit of the column before and 1, in this unit
  Scan scan;
  Vec sum, t_sum;                // of the ends in the band
};

/* LANES columns on the way up. Carried: X, the B of gaps down the column, and their tangents; of a single state B. */
template <class Kind, Pass pass>
struct Ascent {
  static constexpr int count = pass == Pass::tangents ? 4 : 2, tangent = 2;
  Vec now[count], below[count];
  Vec level;                     // the B that the unit is made of, in the first row of the band
  Vec unit, step, end;
  Scan scan;
  Vec one, share, end_share;     // 1 in the unit of the descent; exponent of both units / total; of ends
};

/* What a cell leaves on the way down for the way up. */
template <class Kind, Pass pass>
struct Kept {
  static constexpr int w = 0, matched = 1;         // odds of the match; times those of what it continues
  static constexpr int t_w = 2, t_matched = 3;
  static constexpr int across = 2, down = 3;       // the other states; of a single one the state
  static constexpr int size = pass == Pass::tangents ? 4 : pass == Pass::gradients ? (ONE_STATE<Kind> ? 3 : 4) : 2;
};

struct Band {
  Int first, rows;
};

/* Tangents may leave the range of a float where the odds do not. */
template <class Columns>
INLINE bool tangents_are_finite(const Columns *columns, int vectors) {
  constexpr Real largest = IS_FLOAT ? Real(__FLT_MAX__) : Real(__DBL_MAX__);
  Vec most = all(0);
  for (int v = 0; v < vectors; ++v) {
    for (int k = Columns::tangent; k < Columns::count; ++k) most = greater(most, absolute(columns[v].now[k]));
  }
  return Columns::tangent == Columns::count || all_at_most(most, all(largest));
}

/* Odds of ends and their tangents, in each lane a sum in a unit of its own. */
struct Ends {
  Vec m = all(0), t_m = all(0), unit = all(NOTHING);

  template <bool tangents>
  INLINE void add(Vec more, Vec t_more, Vec its_unit) {
    const Vec new_unit = more > all(0) ? greater(unit, its_unit) : unit;
    const Vec old = unit - new_unit, own = its_unit - new_unit;
    m = scaled(m, old) + scaled(more, own);
    if constexpr (tangents) t_m = scaled(t_m, old) + scaled(t_more, own);
    unit = new_unit;
  }
};

/* The ends of a strip, and its largest unit. A long sum of floats loses digits: what a sum of bands has lost is added to
   the next one. */
struct StripEnds {
  Ends all_bands;
  Vec lost = all(0), largest = all(NOTHING);

  template <bool tangents>
  INLINE void add(const Ends &band) {
    const Vec old = all_bands.m, old_unit = all_bands.unit;
    Ends more = band;
    more.m += scaled(lost, old_unit - band.unit);
    all_bands.add<tangents>(more.m, more.t_m, more.unit);
    const Vec had = scaled(old, old_unit - all_bands.unit), got = all_bands.m - had;
    lost = scaled(more.m, more.unit - all_bands.unit) - got;
  }
};

template <class Kind, Pass pass, bool recording>
class DownTheStrip {
 public:
  static constexpr bool tangents = pass == Pass::tangents;
  using Columns = Descent<Kind, tangents>;
  using C = Carries<Kind, tangents>;
  using K = Kept<Kind, pass>;

  const PairOdds<Kind> &odds;
  const Strip &strip;
  Columns *columns;
  const Border *left;   // none: nothing is outside
  const Border *right;  // none: nobody needs it
  StripEnds &ends;
  Vec least_step{}, peak{};  // of the current band: between columns; the largest state

  /* Rows first to last - 1. Returns false where plain odds cannot hold them; kept, bands: of each cell, of each band. */
  bool run(Int first, Int last, Vec *kept, Vec *units, Band *bands, int *band_count) {
    int most = odds.most_rows;
    int count = 0;
    for (Int i = first; i < last;) {
      begin_band();
      for (;;) {
        const Int rows = std::min<Int>(most, last - i);
        if (left && !left->wait_for(i + rows)) return false;
        if (try_band(i, rows, recording ? kept + size_t(i - first) * strip.vectors * K::size : nullptr)) {
          end_band(recording ? units + size_t(count) * strip.vectors : nullptr);
          if (recording) bands[count] = {i, rows};
          ++count, i += rows;
          if (right) right->hand_over(i);
          most = odds.next_rows(peak, most);
          break;
        }
        if (most == 1) return false;
        most /= most >= 4 ? 4 : 2;
        again();
      }
    }
    if (recording) *band_count = count;
    return true;
  }

 private:
  INLINE void begin_band() {
    Vec least = all(1), unit_before = all(0);
    for (int v = 0; v < strip.vectors; ++v) {
      Columns &c = columns[v];
      const Vec above = c.now[0];
      Vec natural = exponent_of(greater(above, all(SMALLEST_NORMAL))) + c.unit;
      if constexpr (Kind::local) natural = greater(natural, all(0));
      const Vec unit = natural - LEVEL, change = c.unit - unit;
      c.unit = unit;
      for (int k = 0; k < C::count; ++k) c.above[k] = c.now[k] = scaled(c.now[k], change);
      if (v == 0) unit_before = everywhere<0>(unit);  // what comes from outside is brought to this unit
      c.step = scaled(all(1), moved_up<1>(unit, unit_before) - unit);
      unit_before = unit;
      c.one = scaled(all(1), -unit);
      c.scan = scan_of<true>(c.step * odds.template odds<From::left, ACROSS<Kind>>());
      c.sum = c.t_sum = all(0);
      least = smaller(least, v == strip.vectors - 1 ? (lane_numbers() < all_int(strip.last) ? c.step : all(1)) : c.step);
    }
    least_step = least;
  }

  void again() {
    for (int v = 0; v < strip.vectors; ++v) {
      Columns &c = columns[v];
      for (int k = 0; k < C::count; ++k) c.now[k] = c.above[k];
      c.sum = c.t_sum = all(0);
    }
  }

  __attribute__((noinline)) bool try_band(Int first, Int rows, Vec *kept) {
    constexpr Real infinity = Real(__builtin_inff());
    const PairOdds<Kind> o = odds;  // in registers: what is stored could be this
    Vec most = all(0), least = least_step;
    Real outside[4][MOST_ROWS + LANES] = {};  // of the rows first - 1, first, ..., in the first column's unit
    if (left) {
      const Vec unit = everywhere<0>(columns[0].unit);
      for (Int k = 0; k <= rows; k += LANES) {
        const Vec change = load(left->unit + first + k) - unit;
        least = smaller(least, lane_numbers() + Int(k) <= all_int(rows) ? scaled(all(1), change) : all(1));
        for (int n = 0; n < C::count; ++n) store(outside[n] + k, scaled(load(left->numbers[n] + first + k), change));
      }
    }
    for (Int k = 0; k < rows; ++k) {
      const Real *row = strip.s + (first + k) * strip.pitch;
      const Real *t_row = tangents ? strip.t_s + (first + k) * strip.pitch : nullptr;
      // The odds of the matches first: together with the recurrence they would be more than a processor looks ahead.
      constexpr int size = recording ? K::size : tangents ? 2 : 1, w_at = recording ? K::w : 0, t_w_at = recording ? K::t_w : 1;
      Vec row_memory[recording ? 1 : STRIP_VECTORS * size];
      Vec *to = recording ? kept + size_t(k) * strip.vectors * K::size : row_memory;
      strip.each([&](int v, auto is_last) {
        const Vec s = strip.part<is_last>(row, v, -infinity);
        __builtin_prefetch(row + strip.pitch + v * LANES);
        const Vec w = o.match(s);
        to[v * size + w_at] = w;
        if constexpr (tangents) to[v * size + t_w_at] = w * o.tangent(s, strip.part<is_last>(t_row, v, 0));
      });
      Vec before = all(outside[0][k]), t_before = all(outside[C::tangent][k]);  // V of the cell before, a row above
      // of this row: the cell before, and what it hands over
      Vec across = ONE_STATE<Kind> ? all(outside[0][k + 1]) : all(0), t_across = all(0);
      if (tangents && ONE_STATE<Kind>) t_across = all(outside[C::tangent][k + 1]);
      Vec message = all(outside[1][k + 1]), t_message = all(outside[3][k + 1]);
      strip.each([&](int v, auto is_last) {
        Columns &c = columns[v];
        const Vec w = to[v * size + w_at], above = c.now[0];
        const Vec diagonal = moved_up<1>(above, before);
        before = above;
        // the match: what it continues, and with the start
        const Vec continued = Kind::end == End::anywhere ? fused(c.step, diagonal, c.one) : c.step * diagonal;
        const Vec matched = w * continued;
        Vec begun = matched;
        if constexpr (Kind::end != End::anywhere) {
          begun = Kind::local ? fused(w, c.one, matched) : matched;
        }
        Vec t_matched, t_begun;
        if constexpr (tangents) {
          const Vec t_w = to[v * size + t_w_at];
          const Vec t_above = c.now[C::tangent], t_diagonal = moved_up<1>(t_above, t_before);
          t_before = t_above;
          t_matched = fused(t_w, continued, w * (c.step * t_diagonal));
          t_begun = Kind::end == End::anywhere || !Kind::local ? t_matched : fused(t_w, c.one, t_matched);
        }
        Vec sum, t_sum;
        if constexpr (ONE_STATE<Kind>) {
          const Vec gap = o.template odds<From::up, 0>();
          sum = scanned<true>(c.scan, fused(gap, above, begun), across);
          if constexpr (tangents) {
            const Vec own = fused(sum - begun, o.template t_odds<From::up, 0>(), fused(gap, c.now[C::tangent], t_begun));
            t_sum = scanned<true>(c.scan, own, t_across);
          }
          c.now[0] = sum;
          if constexpr (tangents) c.now[1] = t_sum;
          if constexpr (recording && pass == Pass::gradients) to[v * K::size + K::across] = sum;
        } else {
          const Vec down = c.now[1];
          const Vec open = o.template odds<From::left, 0>(), back = o.template odds<From::left, DOWN<Kind>>();
          const Vec handed = fused(open, begun, back * down), arrived = c.step * moved_up<1>(handed, message);
          const Vec gap = scanned<true>(c.scan, arrived, across);  // the state of gaps along the row
          message = handed;
          sum = begun + (gap + down);
          const Vec open_down = o.template odds<From::up, 0>(), turn = o.template odds<From::up, ACROSS<Kind>>(),
                    extend = o.template odds<From::up, DOWN<Kind>>();
          c.now[0] = sum;
          c.now[1] = fused(open_down, begun, fused(turn, gap, extend * down));
          if constexpr (recording && pass == Pass::gradients) {
            to[v * K::size + K::across] = gap;
            to[v * K::size + K::down] = down;
          }
          Vec t_handed, t_gap;
          if constexpr (tangents) {
            const Vec t_down = c.now[3];
            t_handed = fused(open, fused(begun, o.template t_odds<From::left, 0>(), t_begun),
                             back * fused(down, o.template t_odds<From::left, DOWN<Kind>>(), t_down));
            const Vec own = fused(gap - arrived, o.template t_odds<From::left, ACROSS<Kind>>(),
                                  c.step * moved_up<1>(t_handed, t_message));
            t_gap = scanned<true>(c.scan, own, t_across);
            t_message = t_handed;
            t_sum = t_begun + (t_gap + t_down);
            c.now[2] = t_sum;
            c.now[3] = fused(open_down, fused(begun, o.template t_odds<From::up, 0>(), t_begun),
                             fused(turn, fused(gap, o.template t_odds<From::up, ACROSS<Kind>>(), t_gap),
                                   extend * fused(down, o.template t_odds<From::up, DOWN<Kind>>(), t_down)));
          }
          if constexpr (is_last) {
            if (right) {
              const Vec further = o.template odds<From::left, ACROSS<Kind>>();
              right->numbers[1][first + k + 1] = fused(further, gap, handed)[LANES - 1];
              if constexpr (tangents) {
                right->numbers[3][first + k + 1] =
                    fused(further, fused(gap, o.template t_odds<From::left, ACROSS<Kind>>(), t_gap), t_handed)[LANES - 1];
              }
            }
          }
        }
        most = greater(most, sum);
        if constexpr (recording) {
          to[v * K::size + K::matched] = matched;
          if constexpr (tangents) to[v * K::size + K::t_matched] = t_matched;
        }
        if constexpr (Kind::end == End::anywhere) {
          c.sum += sum;
          if constexpr (tangents) c.t_sum += t_sum;
        } else if constexpr (Kind::end == End::after_match) {
          c.sum += matched;
          if constexpr (tangents) c.t_sum += t_matched;
        }
        if constexpr (is_last) {
          if (right) {
            right->numbers[0][first + k + 1] = sum[LANES - 1];
            if constexpr (tangents) right->numbers[C::tangent][first + k + 1] = t_sum[LANES - 1];
            right->unit[first + k + 1] = c.unit[LANES - 1];
          }
        }
      });
    }
    peak = most;
    return o.within_range(most, least, rows) && tangents_are_finite(columns, strip.vectors);
  }

  INLINE void end_band(Vec *units) {
    Ends band;
    for (int v = 0; v < strip.vectors; ++v) {
      const Columns &c = columns[v];
      if constexpr (recording) units[v] = c.unit;
      if constexpr (Kind::end != End::last) {
        const int count = v == strip.vectors - 1 ? strip.last : LANES;
        band.template add<tangents>(first_lanes(c.sum, count), tangents ? first_lanes(c.t_sum, count) : all(0), c.unit);
        ends.largest = greater(ends.largest, first_lanes(c.unit, count));
      }
    }
    if constexpr (Kind::end != End::last) ends.add<tangents>(band);
  }
};

/* Sums over a tile for the gradients with respect to the parameters, in double: a long sum of floats loses small terms. */
struct TileSums {
  double cost[COSTS] = {};              // expected number of steps of each cost
  double matches = 0, similarity = 0;   // expected number of matches, and sum of their similarities
  // of local alignments: how often they begin and end here, and the sums of row and column where they do
  double begins = 0, begins_at = 0, ends = 0, ends_at = 0;

  static double sum_of(Vec sum) {
    double lanes = 0;
    for (int l = 0; l < LANES; ++l) lanes += double(sum[l]);
    return lanes;
  }
};

/* Probabilities in a band, their sum and the sum of row and column weighted by them, counted from its first cell. */
struct Places {
  Vec all_of_them = all(0), rows = all(0), cols = all(0);

  INLINE void add(Vec probability, Vec col) {
    all_of_them += probability;
    cols = fused(col, probability, cols);
  }
  /* After each row but the first one, from the last upwards. */
  INLINE void next_row() { rows += all_of_them; }
  void add_to(double &sum, double &at, double row_and_col) const {
    const double own = TileSums::sum_of(all_of_them);
    sum += own;
    at += row_and_col * own + TileSums::sum_of(rows) + TileSums::sum_of(cols);
  }
};

/* The total of a pair: m * 2^unit, and the tangent of its logarithm. */
struct PairTotal {
  Vec inverse_m, unit, tangent;
};

template <class Kind, Pass pass>
class UpTheStrip {
 public:
  using Columns = Ascent<Kind, pass>;
  using K = Kept<Kind, pass>;
  static constexpr bool tangents = pass == Pass::tangents, gradients = pass == Pass::gradients;

  const PairOdds<Kind> &odds;
  const Strip &strip;
  const PairTotal &total;
  Columns *columns;
  const Border *right, *left;  // from the strip to the right, none: nothing is there; for the one to the left
  Int total_rows, first_col;   // of the pair; of the strip
  Int end_row;                 // of a global alignment, where this strip has its last cell
  Real *out;                   // of the strip's first column
  TileSums &sums;
  Vec least_step{}, peak{};

  /* As DownTheStrip::run, from the last row to the first. */
  bool run(const Vec *kept, const Vec *units, const Band *bands, int band_count) {
    int most = odds.most_rows;
    const Int top = bands[0].first;
    const Band &lowest = bands[band_count - 1];
    if (left && lowest.first + lowest.rows == total_rows) hand_over(total_rows, false);
    for (int b = band_count - 1; b >= 0; --b) {
      for (Int last = bands[b].first + bands[b].rows; last > bands[b].first;) {
        begin_band(units + size_t(b) * strip.vectors);
        for (;;) {
          const Int rows = std::min<Int>(most, last - bands[b].first);
          if (right && !right->wait_for(total_rows - last + rows)) return false;
          if (try_band(last - rows, rows, kept + size_t(last - rows - top) * strip.vectors * K::size)) {
            last -= rows;
            if (left) left->hand_over(total_rows - last);
            most = odds.next_rows(peak, most);
            break;
          }
          if (most == 1) return false;
          most /= most >= 4 ? 4 : 2;
          for (int v = 0; v < strip.vectors; ++v) {
            for (int k = 0; k < Columns::count; ++k) columns[v].now[k] = columns[v].below[k];
          }
        }
      }
    }
    return true;
  }

 private:
  static constexpr int T = 2;  // the distance of a tangent

  INLINE void hand_over(Int row, bool of_row) const {
    const Columns &c = columns[0];
    left->numbers[0][row] = c.now[0][0];
    if constexpr (tangents) left->numbers[T][row] = c.now[T][0];
    left->unit[row] = c.unit[0];
    if (!of_row) left->numbers[1][row] = 0;
    if constexpr (tangents) {
      if (!of_row) left->numbers[T + 1][row] = 0;
    }
  }

  INLINE void begin_band(const Vec *units) {
    Vec least = all(1), unit_after = all(0);
    strip.each_back([&](int v, auto is_last) {
      Columns &c = columns[v];
      const Vec from = ONE_STATE<Kind> ? c.now[1] : c.level;
      Vec natural = exponent_of(greater(from, all(SMALLEST_NORMAL))) + c.unit;
      natural = from > all(0) ? natural : c.unit + LEVEL;
      if constexpr (Kind::local) natural = greater(natural, all(0));
      const Vec unit = natural - LEVEL, change = c.unit - unit;
      c.unit = unit;
      for (int k = 0; k < Columns::count; ++k) c.below[k] = c.now[k] = scaled(c.now[k], change);
      if constexpr (is_last) unit_after = everywhere<LANES - 1>(unit);
      c.step = scaled(all(1), moved_down<1>(unit, unit_after) - unit);
      const Mask exists = lane_numbers() < all_int(strip.last), continues = lane_numbers() < all_int(strip.last - 1);
      if (is_last && strip.last < LANES) {  // nothing comes from columns that do not exist
        least = smaller(least, continues ? c.step : all(1));
        c.step = continues ? c.step : all(0);
      } else {
        least = smaller(least, c.step);
      }
      unit_after = unit;
      c.scan = scan_of<false>(c.step * odds.template odds<From::left, ACROSS<Kind>>());
      c.end = scaled(total.inverse_m, -unit);
      c.one = scaled(all(1), -units[v]);
      c.share = (units[v] - total.unit) + unit;
      c.end_share = scaled(total.inverse_m, units[v] - total.unit);
      if constexpr (is_last) {
        c.end = exists ? c.end : all(0);
        c.end_share = exists ? c.end_share : all(0);
        if constexpr (Kind::end == End::last) c.end = lane_numbers() == all_int(strip.last - 1) ? c.end : all(0);
      } else if constexpr (Kind::end == End::last) {
        c.end = all(0);
      }
    });
    least_step = least;
  }

  __attribute__((noinline)) bool try_band(Int first, Int rows, const Vec *kept) {
    const PairOdds<Kind> o = odds;
    Vec most = all(0), least = least_step;
    Real outside[4][MOST_ROWS + LANES] = {};  // of the rows first, first + 1, ..., in the last column's unit
    if (right) {
      const Vec unit = everywhere<LANES - 1>(columns[strip.vectors - 1].unit);
      for (Int k = 0; k <= rows; k += LANES) {
        const Vec change = load(right->unit + first + k) - unit;
        least = smaller(least, lane_numbers() + Int(k) <= all_int(rows) ? scaled(all(1), change) : all(1));
        for (int n = 0; n < Columns::count; ++n) {
          store(outside[n] + k, scaled(load(right->numbers[n] + first + k), change));
        }
      }
    }
    Vec of_left[3] = {}, of_up[3] = {}, similarity = all(0), matches = all(0);
    Places begins, ends;
    constexpr bool has_places = gradients && Kind::local;
    for (Int k = rows - 1; k >= 0; --k) {
      const Int i = first + k;
      const Vec *from = kept + size_t(k) * strip.vectors * K::size;
      const Real *row = strip.s + i * strip.pitch;
      Real *to = out + i * strip.pitch;
      Vec after = all(outside[0][k + 1]), t_after = all(outside[T][k + 1]);  // X of the cell after, a row below
      Vec across = all(outside[1][k]), t_across = all(outside[T + 1][k]);    // B of the cell after
      Vec gap_after = across, t_gap_after = t_across;
      strip.each_back([&](int v, auto is_last) {
        Columns &c = columns[v];
        const Vec *own = from + v * K::size;
        const Vec w = own[K::w], matched = own[K::matched];
        const Vec x = c.now[0], arrived = c.step * moved_down<1>(x, after);
        after = x;
        Vec t_arrived;
        if constexpr (tangents) {
          t_arrived = c.step * moved_down<1>(c.now[T], t_after);
          t_after = c.now[T];
        }
        Vec b, t_b;  // of the match
        if constexpr (ONE_STATE<Kind>) {
          const Vec gap = o.template odds<From::up, 0>();
          Vec begun = arrived;
          if constexpr (Kind::end == End::anywhere) begun += c.end;
          if constexpr (Kind::end == End::last && is_last) begun += i == end_row ? c.end : all(0);
          const Vec below = c.now[1];
          b = scanned<false>(c.scan, fused(gap, below, begun), across);
          if constexpr (tangents) {
            const Vec own_t = fused(b - begun, o.template t_odds<From::up, 0>(), fused(gap, c.now[T + 1], t_arrived));
            t_b = scanned<false>(c.scan, own_t, t_across);
            c.now[T + 1] = t_b;
          }
          c.now[1] = b;
          if constexpr (gradients) {
            const Vec onwards = fused(gap, below, c.scan.step[0] * moved_down<1>(b, gap_after));
            gap_after = b;
            of_up[0] = fused(own[K::across], scaled(onwards, c.share), of_up[0]);
          }
        } else {
          const Vec open = o.template odds<From::left, 0>(), back = o.template odds<From::left, DOWN<Kind>>(),
                    open_down = o.template odds<From::up, 0>(), turn = o.template odds<From::up, ACROSS<Kind>>(),
                    extend = o.template odds<From::up, DOWN<Kind>>();
          const Vec down = c.now[1];
          const Vec gap = scanned<false>(c.scan, fused(turn, down, arrived), across);
          const Vec next = c.step * moved_down<1>(gap, gap_after);  // gaps along the row, of the cell after
          gap_after = gap;
          b = fused(open, next, fused(open_down, down, arrived));
          c.now[1] = fused(back, next, fused(extend, down, arrived));
          c.level = b;
          if constexpr (tangents) {
            const Vec t_down = c.now[T + 1];
            const Vec t_turned = fused(down, o.template t_odds<From::up, ACROSS<Kind>>(), t_down);
            const Vec own_t = fused(next * o.template odds<From::left, ACROSS<Kind>>(),
                                    o.template t_odds<From::left, ACROSS<Kind>>(), fused(turn, t_turned, t_arrived));
            const Vec t_gap = scanned<false>(c.scan, own_t, t_across);
            const Vec t_next = c.step * moved_down<1>(t_gap, t_gap_after);
            t_gap_after = t_gap;
            t_b = fused(open, fused(next, o.template t_odds<From::left, 0>(), t_next),
                        fused(open_down, fused(down, o.template t_odds<From::up, 0>(), t_down), t_arrived));
            c.now[T + 1] = fused(back, fused(next, o.template t_odds<From::left, DOWN<Kind>>(), t_next),
                                 fused(extend, fused(down, o.template t_odds<From::up, DOWN<Kind>>(), t_down), t_arrived));
          }
          if constexpr (gradients) {
            const Vec states[] = {fused(w, c.one, matched), own[K::across], own[K::down]};
            const Vec to_right = scaled(next, c.share), to_below = scaled(down, c.share);
            for (int s = 0; s < 3; ++s) {
              of_left[s] = fused(states[s], to_right, of_left[s]);
              of_up[s] = fused(states[s], to_below, of_up[s]);
            }
          }
        }
        most = greater(most, b);
        constexpr bool ends_apart = Kind::end == End::after_match;
        const Vec with_end = ends_apart ? b + c.end : b;
        c.now[0] = w * with_end;
        if constexpr (tangents) c.now[T] = fused(own[K::t_w], with_end, w * t_b);
        const Vec q = scaled(b, c.share);
        Vec p = ends_apart ? fused(matched, q + c.end_share, (w * c.one) * q) : matched * q;
        if constexpr (gradients) {
          matches += p;
          similarity = fused(p, greater(strip.part<is_last>(row, v, 0), all(FORBIDDEN)), similarity);
        }
        if constexpr (has_places) {
          const Vec col = __builtin_convertvector(lane_numbers(), Vec) + Real(v * LANES);
          begins.add((w * c.one) * q, col);
          ends.add((ends_apart ? matched : own[K::across]) * c.end_share, col);
        }
        if constexpr (tangents) {
          const Vec t_q = scaled(fused(-total.tangent, b, t_b), c.share);
          if constexpr (ends_apart) {
            p = fused(own[K::t_matched], q + c.end_share, matched * fused(-total.tangent, c.end_share, t_q));
            p = fused(c.one, fused(w, t_q, own[K::t_w] * q), p);
          } else {
            p = fused(own[K::t_matched], q, matched * t_q);
          }
        }
        if constexpr (is_last) {
          store_some(to + v * LANES, strip.last, p);
        } else {
          store(to + v * LANES, p);
        }
      });
      if (has_places && k > 0) begins.next_row(), ends.next_row();
      if (left) {
        hand_over(i, true);
        left->numbers[1][i] = across[0];
        if constexpr (tangents) left->numbers[T + 1][i] = t_across[0];
      }
    }
    peak = most;
    const bool valid = o.within_range(most, least, rows) && tangents_are_finite(columns, strip.vectors);
    if constexpr (gradients) {
      if (valid) {
        add_steps(of_left, of_up);
        sums.matches += TileSums::sum_of(matches);
        sums.similarity += TileSums::sum_of(similarity);
        if constexpr (has_places) {
          begins.add_to(sums.begins, sums.begins_at, double(first) + double(first_col));
          ends.add_to(sums.ends, sums.ends_at, double(first) + double(first_col));
        }
      }
    }
    return valid;
  }

  INLINE void add_steps(const Vec (&of_left)[3], const Vec (&of_up)[3]) {
    if constexpr (ONE_STATE<Kind>) {
      sums.cost[int(cost_between<Kind>(From::up, 0))] += TileSums::sum_of(of_up[0]);  // of both directions
    } else {
      auto add = [&](Cost cost, Vec steps) { sums.cost[int(cost)] += TileSums::sum_of(steps); };
      unrolled<3>([&](auto s) {
        add(cost_between<Kind>(From::left, s), of_left[s] * odds.template odds<From::left, s>());
        add(cost_between<Kind>(From::up, s), of_up[s] * odds.template odds<From::up, s>());
      });
    }
  }
};

}  // namespace alignment

#endif
