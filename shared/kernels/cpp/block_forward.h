/* Down a strip, from the first row to the last.

   V is the sum of the states of a cell. The next row needs V and, where gaps down a column are a state of their own,
   that state; the state of gaps along the row is a linear recurrence, which a scan solves. Tangents are those of the
   weights, by the product rule; t_... is the tangent of ... */

#ifndef BLOCK_FORWARD_H
#define BLOCK_FORWARD_H

#include "strip.h"

namespace alignment {

/* LANES columns in the forward sweep. Carried: V, and the next row's state of gaps down the column. With gaps by position
   this depends on that row: carried are the parts of V from which such a gap costs open, and extend. */
template <class Kind, bool tangents>
struct ForwardColumns : Origins<tangents> {
  static constexpr int first_tangent = ONE_STATE<Kind> ? 1 : 2, count = first_tangent * (tangents ? 2 : 1);
  static constexpr bool two_parts = POSITIONS && first_tangent == 2;
  // numbers for the next strip: V; with affine gaps also what its gap along the row receives, by position in two parts
  static constexpr int passed_weights = two_parts ? 3 : first_tangent, passed = passed_weights * (tangents ? 2 : 1);
  Vec now[count], above[count];  // after the last row; above the band
  Vec unit, step, one;           // log2 of the unit; the previous column's unit in this one; 1 in this one
  std::conditional_t<GAPS_VARY<Kind>, Empty, Scan> scan;
  Vec sum, t_sum;                     // of the ends in the band
  Vec peak[GAPS_VARY<Kind> ? 1 : 0];  // the largest state in the band
  INLINE Vec state() const { return two_parts ? now[0] + now[first_tangent - 1] : now[0]; }
};

/* What a strip records with gaps by position for the checks that need the whole pair; see gaps_lose_nothing. */
struct GapExtremes {
  Vec least_gap = splat(1), most_gap = splat(0);  // weights
  Vec largest_match = splat(0);                  // weights
  Vec lowest = splat(0);                         // similarity that does not forbid the match
  // log2 of 2^LOST times the largest weight possibly rounded to 0: absolute, and in its column's units
  double risk = -__builtin_inf(), risk_in_units = -__builtin_inf();
  double spread = LARGEST_COST;  // the checks of the bands hold if spread_of_gaps() is at most this

  double spread_of_gaps() const {
    return std::log2(double(largest_of(most_gap))) - std::log2(-double(largest_of(-least_gap)));
  }

  void add(const GapExtremes &other) {
    least_gap = min_of(least_gap, other.least_gap), most_gap = max_of(most_gap, other.most_gap);
    largest_match = max_of(largest_match, other.largest_match), lowest = min_of(lowest, other.lowest);
    risk = std::max(risk, other.risk), risk_in_units = std::max(risk_in_units, other.risk_in_units);
    spread = std::min(spread, other.spread);
  }
};

/* Weights of ends and their tangents, in each lane a sum with a unit and an origin of its own. */
struct Ends {
  Vec m = splat(0), t_m = splat(0), unit = splat(NOTHING), origin = splat(0);

  template <bool tangents>
  INLINE void add(Vec more, Vec t_more, Vec its_unit, Vec its_origin) {
    const Vec new_unit = more > splat(0) ? max_of(unit, its_unit) : unit;
    const Power old = Power::of(unit - new_unit), added = Power::of(its_unit - new_unit);
    if constexpr (tangents) {
      const Vec new_origin = new_unit > unit ? its_origin : origin;
      t_m = old.times(fma(origin - new_origin, m, t_m)) + added.times(fma(its_origin - new_origin, more, t_more));
      origin = new_origin;
    }
    m = old.times(m) + added.times(more);
    unit = new_unit;
  }
};

/* The ends of a strip, and its largest unit. A long sum of floats loses digits: what a sum of bands has lost is added
   to the next one. */
struct StripEnds : Ends, GapExtremes {
  Vec lost = splat(0), largest = splat(NOTHING);
  OriginRange origins;

  template <bool tangents>
  INLINE void add(const Ends &band) {
    const Vec before = m, old_unit = unit;
    Ends::add<tangents>(band.m, band.t_m, band.unit, band.origin);
    const Power old = Power::of(old_unit - unit);
    const Vec had = old.times(before), more = Power::of(band.unit - unit).times(band.m) + old.times(lost);
    const RoundedSum with = rounded_sum(had, more);
    m = with.sum, lost = with.lost;
  }
};

template <class Kind, Pass pass, bool recording>
class ForwardStrip {
 public:
  static constexpr bool tangents = pass == Pass::tangents;
  using Columns = ForwardColumns<Kind, tangents>;
  using K = Kept<Kind, pass>;

  const PairWeights<Kind> &weights;
  const Strip &strip;
  Columns *columns;
  const Seam *left;   // null: nothing is outside, but for the corner of soft_dtw
  const Seam *right;  // null: not needed
  StripEnds &ends;
  int allowed_rows = GAPS_VARY<Kind> ? 4 : weights.most_rows;  // rows that the next band may have
  Vec least_step{}, peak{};   // of the current band: between columns; the largest state
  double sunk = 0;            // bits by which gaps that vary can let the band's columns sink

  /* Rows first to last - 1; false where block exponents cannot hold them. When recording: what is kept of each cell, the
     bands, and the units of each. */
  bool run(Int first, Int last, Vec *kept, Vec *units, Band *bands, int *band_count) {
    int count = 0;
    for (Int i = first; i < last;) {
      begin_band(i % ORIGIN_ROWS == 0);
      for (;;) {
        // bands begin at multiples of their size: no block cuts one, and all passes add up the ends in the same order
        const Int aligned = i == 0 ? allowed_rows : std::min<Int>(allowed_rows, i & -i), rows = std::min(aligned, last - i);
        if (left && !left->wait_for(i + rows)) return false;
        if (try_some(i, rows, recording ? kept + size_t(i - first) * strip.vectors * K::size : nullptr)) {
          end_band(recording ? units + size_t(count) * strip.vectors * K::band_marks : nullptr);
          if (recording) bands[count] = {i, rows};
          ++count, i += rows;
          if (right) right->hand_over(i);
          allowed_rows = weights.next_rows(peak, int(aligned), allowed_rows, GAPS_VARY<Kind> ? sunk : 0);
          break;
        }
        if (rows == 1) return false;
        allowed_rows = int(aligned >= 4 ? aligned / (GAPS_VARY<Kind> && sunk > MOST_DECAY ? 2 : 4) : 1);
        again();
      }
    }
    if (recording) *band_count = count;
    return true;
  }

 private:
  INLINE bool try_some(Int first, Int rows, Vec *kept) {
    if constexpr (GAPS_VARY<Kind>) return try_band_by_position(first, rows, kept);
    if constexpr (!GAPS_VARY<Kind>) return try_band(first, rows, kept);
  }

  INLINE void begin_band(bool move_origins) {
    Vec least = splat(1), unit_before = splat(0), origin_before = splat(0);
    for (int v = 0; v < strip.vectors; ++v) {
      Columns &c = columns[v];
      const Vec above = c.state();
      Vec natural = exponent_of(max_of(above, splat(SMALLEST_NORMAL))) + c.unit;
      if constexpr (Kind::local) natural = max_of(natural, splat(0));
      if constexpr (IS_COST<Kind>) natural = above > splat(0) ? natural : c.unit + LEVEL;  // above the matrix
      const Vec unit = natural - LEVEL, change = c.unit - unit;
      c.unit = unit;
      for (Vec &number : c.now) number = scaled(number, change);
      if (v == 0) unit_before = broadcast_lane<0>(unit);  // what comes from outside is brought to this unit
      c.step = scaled(splat(1), moved_up<1>(unit, unit_before) - unit);
      unit_before = unit;
      c.one = scaled(splat(1), -unit);
      if constexpr (!GAPS_VARY<Kind>) c.scan = scan_of<true>(c.step * weights.template weights<From::left, ACROSS<Kind>>());
      if constexpr (tangents) {
        if (move_origins) {
          c.template move<Columns::first_tangent, Columns::two_parts>(c.now, 0, Kind::local ? c.one : splat(0), natural);
          c.change = (v == 0 ? c.origin : origin_before) - c.origin;
          origin_before = c.origin;
          ends.origins.add(c.origin);
        }
        c.t_start_or_end = -c.origin * c.one;
      }
      for (int k = 0; k < Columns::count; ++k) c.above[k] = c.now[k];
      c.sum = c.t_sum = splat(0);
      if constexpr (GAPS_VARY<Kind> && recording) c.peak[0] = splat(0);
      const int count = v == strip.vectors - 1 ? strip.last : LANES;
      const Mask exists = lane_numbers() < splat_int(count);
      least = min_of(least, exists ? c.step : splat(1));
      if constexpr (IS_COST<Kind>) c.step = exists ? c.step : splat(0);  // beyond, units may be anything
    }
    least_step = least;
  }

  void again() {
    for (int v = 0; v < strip.vectors; ++v) {
      Columns &c = columns[v];
      for (int k = 0; k < Columns::count; ++k) c.now[k] = c.above[k];
      c.sum = c.t_sum = splat(0);
      if constexpr (GAPS_VARY<Kind> && recording) c.peak[0] = splat(0);
    }
  }

  /* What comes from the left: of the rows first - 1, first, ..., in the first column's unit. least: smallest step. */
  template <int size>
  INLINE void receive(Int first, Int rows, Real (&outside)[size][MOST_ROWS + LANES], Vec &least) const {
    const Vec unit = broadcast_lane<0>(columns[0].unit), one = broadcast_lane<0>(columns[0].one);
    if (left) {
      for (Int k = 0; k <= rows; k += LANES) {
        const int count = int(std::min<Int>(LANES, rows + 1 - k));  // what lies beyond may be being written
        const Power change = Power::of(load_some(left->unit + first + k, count, 0) - unit);
        Vec moved = splat(0);
        if constexpr (tangents) moved = load_some(left->origin + first + k, count, 0) - columns[0].origin;
        for (int n = 0; n < Columns::passed; ++n) {
          Vec number = change.times(load_some(left->numbers[n] + first + k, count, 0));
          if (n >= Columns::passed_weights) number = fma(moved, load(outside[n - Columns::passed_weights] + k), number);
          store(outside[n] + k, number);
          // the step from a column in whose unit the number, or a start, is 2^LEVEL
          const Vec number_or_start = Kind::local ? max_of(number, one) : number;
          Mask counts = lane_numbers() < splat_int(count);
          if (IS_COST<Kind> && first + k == 0) counts &= lane_numbers() > splat_int(0);  // above the matrix is nothing
          if (n == 0) least = min_of(least, counts ? scaled(number_or_start, splat(-LEVEL)) : splat(1));
        }
      }
    } else if constexpr (Kind::local) {  // the first column
      least = min_of(least, scaled(one, splat(-LEVEL)));
    } else if (first == 0) {  // of soft_dtw only the corner is outside
      outside[0][0] = one[0];
    }
  }

  /* In by_position.h. */
  __attribute__((noinline)) bool try_band_by_position(Int first, Int rows, Vec *kept);

  __attribute__((noinline)) bool try_band(Int first, Int rows, Vec *kept) {
    constexpr Real infinity = Real(__builtin_inff());
    const PairWeights<Kind> o = weights;  // a copy, for registers: stores might alias weights
    Vec largest = splat(0), least = least_step;
    Real outside[4][MOST_ROWS + LANES] = {};
    receive(first, rows, outside, least);
    for (Int k = 0; k < rows; ++k) {
      const Real *row = strip.s + (first + k) * strip.pitch;
      const Real *t_row = tangents ? strip.t_s + (first + k) * strip.pitch : nullptr;
      // The weights of the matches first: with the recurrence they would overfill a processor's reorder buffer.
      constexpr int size = recording ? K::size : tangents ? 2 : 1;
      constexpr int w_at = recording ? K::w : 0, t_w_at = recording ? K::t_w : 1;
      Vec row_memory[recording ? 1 : STRIP_VECTORS * size];
      Vec *to = recording ? kept + size_t(k) * strip.vectors * K::size : row_memory;
      strip.each([&](int v, auto is_last) {
        const Vec s = strip.part<is_last>(row, v, -infinity);
        __builtin_prefetch(row + 2 * strip.pitch + v * LANES);
        if constexpr (tangents) __builtin_prefetch(t_row + 2 * strip.pitch + v * LANES);
        const Vec w = o.match(s);
        to[v * size + w_at] = w;
        if constexpr (tangents) to[v * size + t_w_at] = w * (strip.part<is_last>(t_row, v, 0) * o.inverse_t);
      });
      // V of the cell before, a row above
      Vec before = splat(outside[0][k]), t_before = splat(outside[Columns::first_tangent][k]);
      // of this row: the cell before, and what it hands over
      Vec across = ONE_STATE<Kind> ? splat(outside[0][k + 1]) : splat(0), t_across = splat(0);
      if (tangents && ONE_STATE<Kind>) t_across = splat(outside[Columns::first_tangent][k + 1]);
      Vec message = splat(outside[1][k + 1]), t_message = splat(outside[3][k + 1]);
      strip.each([&](int v, auto is_last) {
        Columns &c = columns[v];
        const Vec w = to[v * size + w_at], above = c.now[0];
        const Vec diagonal = moved_up<1>(above, before);
        if constexpr (tangents) {  // what comes from the columns before, relative to this origin
          t_before = fma(c.change, before, t_before);
          t_across = fma(c.change, across, t_across);
          if (!ONE_STATE<Kind>) t_message = fma(c.change, message, t_message);
        }
        before = above;
        // matched: the match times what it continues (End::anywhere: with the start); begun: that with the start. w and
        // the step are multiplied first: step * diagonal may round to 0 and yet, times a large w, be an end that counts
        const Vec w_step = w * c.step, continued = fma(c.step, diagonal, c.one);
        const Vec matched = Kind::end == End::anywhere ? w * continued : w_step * diagonal;
        constexpr bool starts_apart = Kind::local && Kind::end != End::anywhere;
        const Vec begun = starts_apart ? fma(w, c.one, matched) : matched;
        Vec t_matched, t_begun;
        if constexpr (tangents) {
          const Vec t_w = to[v * size + t_w_at];
          const Vec t_above = c.now[Columns::first_tangent];
          const Vec t_diagonal = moved_up<1>(t_above, t_before);
          t_before = t_above;
          t_matched = Kind::end == End::anywhere ? fma(w, fma(c.step, t_diagonal, c.t_start_or_end), t_w * continued)
                                                 : fma(w_step, t_diagonal, t_w * c.step * diagonal);
          t_begun = starts_apart ? fma(w, c.t_start_or_end, fma(t_w, c.one, t_matched)) : t_matched;
        }
        Vec sum, t_sum;
        if constexpr (ONE_STATE<Kind>) {
          const Vec gap = o.template weights<From::up, 0>();
          sum = scanned<true>(c.scan, fma(gap, above, begun), across);
          if constexpr (tangents) {
            t_sum = scanned<true>(c.scan, fma(gap, c.now[Columns::first_tangent], t_begun), t_across);
          }
          c.now[0] = sum;
          if constexpr (tangents) c.now[1] = t_sum;
          if constexpr (recording && pass == Pass::gradients) to[v * K::size + K::across] = sum;
        } else {
          const Vec down = c.now[1];
          const Vec open = o.template weights<From::left, 0>(), turn_right = o.template weights<From::left, DOWN<Kind>>();
          const Vec handed = fma(open, begun, turn_right * down), arrived = c.step * moved_up<1>(handed, message);
          const Vec gap = scanned<true>(c.scan, arrived, across);  // the state of gaps along the row
          message = handed;
          sum = begun + (gap + down);
          const Vec open_down = o.template weights<From::up, 0>(), turn = o.template weights<From::up, ACROSS<Kind>>(),
                    extend = o.template weights<From::up, DOWN<Kind>>();
          c.now[0] = sum;
          c.now[1] = fma(open_down, begun, fma(turn, gap, extend * down));
          if constexpr (recording && pass == Pass::gradients) {
            to[v * K::size + K::across] = gap;
            to[v * K::size + K::down] = down;
          }
          Vec t_handed, t_gap;
          if constexpr (tangents) {
            const Vec t_down = c.now[3];
            t_handed = fma(open, t_begun, turn_right * t_down);
            t_gap = scanned<true>(c.scan, c.step * moved_up<1>(t_handed, t_message), t_across);
            t_message = t_handed;
            t_sum = t_begun + (t_gap + t_down);
            c.now[2] = t_sum;
            c.now[3] = fma(open_down, t_begun, fma(turn, t_gap, extend * t_down));
          }
          if constexpr (is_last) {
            if (right) {
              const Vec further = o.template weights<From::left, ACROSS<Kind>>();
              right->numbers[1][first + k + 1] = fma(further, gap, handed)[LANES - 1];
              if constexpr (tangents) right->numbers[3][first + k + 1] = fma(further, t_gap, t_handed)[LANES - 1];
            }
          }
        }
        largest = max_of(largest, sum);
        if constexpr (recording) {
          to[v * K::size + K::matched] = matched;
          if constexpr (tangents) to[v * K::size + K::t_matched] = t_matched;
        }
        if constexpr (Kind::end == End::anywhere) {
          c.sum += sum;
          if constexpr (tangents) c.t_sum += t_sum;
        } else if constexpr (Kind::end == End::later_match) {
          c.sum += matched;
          if constexpr (tangents) c.t_sum += t_matched;
        }
        if constexpr (is_last) {
          if (right) {
            right->numbers[0][first + k + 1] = sum[LANES - 1];
            right->unit[first + k + 1] = c.unit[LANES - 1];
            if constexpr (tangents) {
              right->numbers[Columns::first_tangent][first + k + 1] = t_sum[LANES - 1];
              right->origin[first + k + 1] = c.origin[LANES - 1];
            }
          }
        }
      });
    }
    peak = largest;
    return o.within_range(largest, least, rows) && tangents_are_finite(columns, strip.vectors);
  }

  INLINE void end_band(Vec *units) {
    Ends band;
    for (int v = 0; v < strip.vectors; ++v) {
      const Columns &c = columns[v];
      Vec origin = splat(0);
      if constexpr (tangents) origin = c.origin;
      if constexpr (recording) {
        Vec *to = units + v * K::band_marks;
        to[0] = c.unit;
        if constexpr (tangents) to[1] = origin;
        if constexpr (GAPS_VARY<Kind>) to[K::marks] = c.peak[0];
      }
      if constexpr (Kind::end != End::last) {
        const int count = v == strip.vectors - 1 ? strip.last : LANES;
        const Vec t_sum = tangents ? first_lanes(c.t_sum, count) : splat(0);
        band.template add<tangents>(first_lanes(c.sum, count), t_sum, c.unit, origin);
        const Vec after = exponent_of(max_of(c.state(), splat(SMALLEST_NORMAL))) + c.unit - LEVEL;
        ends.largest = max_of(ends.largest, first_lanes(max_of(c.unit, after), count));
      }
    }
    if constexpr (Kind::end != End::last) ends.add<tangents>(band);
  }
};

}  // namespace alignment

#endif
