/* The bands of a strip with gaps by position, and of soft_dtw, whose gaps weigh what the cell's match does.

   The recurrences are those of block_forward.h and block_backward.h. Weights of gaps are computed row by row, so a row
   has a scan of its own, and what a gap down the column costs is known only in the next row. The conditions differ: how
   far a column can sink is known only after a band; whether, with restricted turns, anything that counts was rounded to
   0, only after the pair; and the backward sweep bounds the loss (LARGEST_LOSS) instead of the decay.
   docs/engineering-notes-native.md proves that these conditions suffice. */

#ifndef BY_POSITION_H
#define BY_POSITION_H

#include "block_backward.h"
#include "block_forward.h"

namespace alignment {

template <class Kind, Pass pass, bool recording>
bool ForwardStrip<Kind, pass, recording>::try_band_by_position(Int first, Int rows, Vec *kept) {
  constexpr Real infinity = Real(__builtin_inff());
  constexpr int T = Columns::passed_weights, gaps = GAPS<Kind>;
  constexpr int size = recording ? K::size : gaps + (tangents ? 2 : 1);
  constexpr int w_at = recording ? K::w : 0, t_w_at = recording ? K::t_w : 1, gap_at = recording ? K::gap : size - gaps;
  const PairWeights<Kind> o = weights;  // a copy, for registers: stores might alias weights
  const Mask turn_is_open = splat_int(o.turn_is_open ? -1 : 0);
  const bool turn_right_opens = o.turn_right_is_allowed && o.turn_is_open,
             turn_right_extends = o.turn_right_is_allowed && !o.turn_is_open;
  const Vec turn_right_is_open = splat(turn_right_opens ? 1 : 0);
  Vec largest = splat(0), least = least_step;
  Real outside[6][MOST_ROWS + LANES] = {};
  receive(first, rows, outside, least);
  // product of each row's least weight of a gap down the column; extreme weights of gaps and matches; the lowest
  // similarity; the least A + R, which may continue right or down
  Vec sink = splat(1), least_gap = splat(1), most_gap = splat(0), most_match = splat(0), lowest = splat(0);
  Vec least_match_or_right = splat(LARGEST);
  for (Int k = 0; k < rows; ++k) {
    const int64_t at = (first + k) * strip.pitch;
    const Real *row = strip.s + at, *t_row = tangents ? strip.t_s + at : nullptr;
    Vec row_memory[recording ? 1 : STRIP_VECTORS * size];
    Vec *to = recording ? kept + size_t(k) * strip.vectors * K::size : row_memory;
    Vec least_down = splat(1), least_open = splat(1);
    strip.each([&](int v, auto is_last) {
      const Vec s = SIGN<Kind> * strip.part<is_last>(row, v, SIGN<Kind> * -infinity);
      __builtin_prefetch(row + 2 * strip.pitch + v * LANES);
      if constexpr (tangents) __builtin_prefetch(t_row + 2 * strip.pitch + v * LANES);
      const Vec w = o.match(s);
      to[v * size + w_at] = w;
      if constexpr (tangents) {
        const Vec t = strip.part<is_last>(t_row, v, 0) * o.inverse_t;
        to[v * size + t_w_at] = IS_COST<Kind> ? -t : w * t;
      }
      if constexpr (IS_COST<Kind>) {
        const Vec gap = is_last ? (lane_numbers() < splat_int(strip.last) ? w : splat(1)) : w;
        most_gap = max_of(most_gap, gap), least_down = min_of(least_down, gap);
      }
      if constexpr (gaps > 1) most_match = max_of(most_match, w);
      if constexpr (Kind::local) lowest = min_of(lowest, s > FORBIDDEN ? s : lowest);
      unrolled<gaps>([&](auto g) {
        Vec gap = o.cost[int(GAP_COSTS[g])];
        if (strip.gaps[g]) {
          __builtin_prefetch(strip.gaps[g] + at + 2 * strip.pitch + v * LANES);
          gap = o.match(strip.part<is_last>(strip.gaps[g] + at, v, 0));
        }
        to[v * size + gap_at + g] = gap;
        most_gap = max_of(most_gap, gap);
        Vec &smallest = g < gaps - 1 ? least_open : least_down;
        smallest = min_of(smallest, gap);
      });
    });
    least_gap = min_of(least_gap, min_of(least_down, least_open));
    sink *= k == 0 ? min_of(least_down, least_open) : least_down;
    if (!all_at_most(splat(PairWeights<Kind>::power_of_2(-MOST_DECAY)), sink)) {
      sunk = 2 * MOST_DECAY;  // it is tried again with half the rows: ForwardStrip::run
      return false;
    }

    Vec before = splat(outside[0][k]), t_before = splat(outside[T][k]);  // V of the cell before, a row above
    // of the cell before: what a row gap extends (across), or opens from (message); its gap down the column
    Vec across = splat(outside[ONE_STATE<Kind> ? 0 : 2][k + 1]), t_across = splat(outside[ONE_STATE<Kind> ? T : T + 2][k + 1]);
    Vec message = splat(outside[1][k + 1]), t_message = splat(outside[T + 1][k + 1]);
    Vec down_before = splat(0), t_down_before = splat(0);
    strip.each([&](int v, auto is_last) {
      Columns &c = columns[v];
      const Vec *cell = to + v * size;
      const Vec w = cell[w_at], above = c.state(), diagonal = moved_up<1>(above, before);
      if constexpr (tangents) {  // what comes from the columns before, relative to this origin
        t_before = fma(c.change, before, t_before);
        t_across = fma(c.change, across, t_across);
        if (!ONE_STATE<Kind>) t_message = fma(c.change, message, t_message);
        if (!ONE_STATE<Kind> && turn_right_extends) t_down_before = fma(c.change, down_before, t_down_before);
      }
      before = above;
      const Vec w_step = w * c.step, continued = fma(c.step, diagonal, c.one);
      const Vec matched = Kind::end == End::anywhere ? w * continued : w_step * diagonal;
      constexpr bool starts_apart = Kind::local && Kind::end != End::anywhere;
      const Vec begun = starts_apart ? fma(w, c.one, matched) : matched;
      Vec t_matched, t_begun;
      if constexpr (tangents) {
        const Vec t_w = cell[t_w_at];
        Vec t_above = c.now[Columns::first_tangent];
        if constexpr (Columns::two_parts) t_above += c.now[Columns::first_tangent + 1];
        const Vec t_diagonal = moved_up<1>(t_above, t_before);
        t_before = t_above;
        t_matched = Kind::end == End::anywhere ? fma(w, fma(c.step, t_diagonal, c.t_start_or_end), t_w * continued)
                                               : fma(w_step, t_diagonal, t_w * c.step * diagonal);
        t_begun = starts_apart ? fma(w, c.t_start_or_end, fma(t_w, c.one, t_matched)) : t_matched;
        if constexpr (IS_COST<Kind>) t_begun = w_step * t_diagonal;
      }
      constexpr bool keeps_steps = recording && pass == Pass::gradients && GAPS<Kind> > 0;
      Vec *stepped = to + v * size + (keeps_steps ? K::stepped : 0);
      Vec sum, t_sum, handed[2], t_handed[2];  // handed: to the next cell, for open, and for extend
      if constexpr (ONE_STATE<Kind>) {
        const Vec gap = cell[IS_COST<Kind> ? w_at : gap_at];
        const Scan scan = scan_of<true>(c.step * gap);
        sum = scanned<true, true>(scan, fma(gap, above, begun), across);
        if constexpr (tangents) {
          Vec t_own = fma(gap, c.now[1], t_begun);
          if constexpr (IS_COST<Kind>) t_own = fma(cell[t_w_at], sum, t_own);  // the weight is that of every choice
          t_sum = scanned<true, true>(scan, t_own, t_across);
          c.now[1] = t_sum;
        }
        c.now[0] = sum;
        if constexpr (keeps_steps) stepped[0] = max_of(sum - begun, splat(0));
      } else {
        const Vec open = cell[gap_at], extend = cell[gap_at + 1];
        const Vec down = fma(open, c.now[0], extend * c.now[1]);
        if constexpr (keeps_steps) stepped[1] = open * c.now[0], stepped[3] = extend * c.now[1];
        handed[0] = fma(turn_right_is_open, down, begun);
        const Vec step_open = c.step * open;
        const Scan scan = scan_of<true>(c.step * extend);
        Vec arrived = step_open * moved_up<1>(handed[0], message);
        if constexpr (keeps_steps) stepped[0] = arrived;
        if (turn_right_extends) arrived = fma(scan.step[0], moved_up<1>(down, down_before), arrived);
        const Vec gap = scanned<true, true>(scan, arrived, across);  // the state of gaps along the row
        if constexpr (keeps_steps) stepped[2] = max_of(gap - stepped[0], splat(0));
        const Vec match_or_right = begun + gap, gap_or_down = gap + down;
        sum = match_or_right + down;
        c.now[0] = turn_is_open ? match_or_right : begun;
        c.now[1] = turn_is_open ? down : gap_or_down;
        least_match_or_right = min_of(
            least_match_or_right,
            is_last ? (lane_numbers() < splat_int(strip.last) ? match_or_right : least_match_or_right) : match_or_right);
        message = handed[0], down_before = down;
        handed[1] = turn_right_extends ? gap_or_down : gap;
        if constexpr (tangents) {
          const Vec t_down = fma(open, c.now[2], extend * c.now[3]);
          t_handed[0] = fma(turn_right_is_open, t_down, t_begun);
          Vec t_arrived = step_open * moved_up<1>(t_handed[0], t_message);
          if (turn_right_extends) t_arrived = fma(scan.step[0], moved_up<1>(t_down, t_down_before), t_arrived);
          const Vec t_gap = scanned<true, true>(scan, t_arrived, t_across), t_free = t_begun + t_gap, t_rest = t_gap + t_down;
          t_sum = t_free + t_down;
          c.now[2] = turn_is_open ? t_free : t_begun;
          c.now[3] = turn_is_open ? t_down : t_rest;
          t_message = t_handed[0], t_down_before = t_down;
          t_handed[1] = turn_right_extends ? t_rest : t_gap;
        }
      }
      largest = max_of(largest, sum);
      if constexpr (recording) {
        c.peak[0] = max_of(c.peak[0], sum);
        to[v * size + K::matched] = IS_COST<Kind> ? sum : matched;
        if constexpr (tangents) to[v * size + K::t_matched] = IS_COST<Kind> ? t_sum : t_matched;
      }
      if constexpr (Kind::end != End::last) {
        c.sum += Kind::end == End::anywhere ? sum : matched;
        if constexpr (tangents) c.t_sum += Kind::end == End::anywhere ? t_sum : t_matched;
      }
      if constexpr (is_last) {
        if (right) {
          auto pass_on = [&](int number, Vec value) { right->numbers[number][first + k + 1] = value[LANES - 1]; };
          pass_on(0, sum);
          if constexpr (!ONE_STATE<Kind>) pass_on(1, handed[0]), pass_on(2, handed[1]);
          right->unit[first + k + 1] = c.unit[LANES - 1];
          if constexpr (tangents) {
            pass_on(T, t_sum);
            if constexpr (!ONE_STATE<Kind>) pass_on(T + 1, t_handed[0]), pass_on(T + 2, t_handed[1]);
            right->origin[first + k + 1] = c.origin[LANES - 1];
          }
        }
      }
    });
  }
  peak = largest;
  sunk = -std::log2(-double(largest_of(-sink)));
  if (!all_at_most(most_gap, splat(PairWeights<Kind>::power_of_2(LARGEST_COST))) ||
      !all_at_most(splat(PairWeights<Kind>::power_of_2(-LARGEST_COST)), least_gap) ||
      !o.within_range(largest, least, rows, sunk) || !tangents_are_finite(columns, strip.vectors)) {
    return false;
  }
  if constexpr (IS_COST<Kind>) return true;
  GapExtremes seen;
  seen.least_gap = least_gap, seen.most_gap = most_gap, seen.largest_match = most_match, seen.lowest = lowest;
  if (!ONE_STATE<Kind> && !o.turn_right_is_allowed) {
    const double bits = std::max(0.0, std::log2(double(largest_of(largest))));
    seen.add(ends);
    // A weight rounded to 0 is negligible beside A + R of its cell, which may continue right or down, if paths from A + R
    // cost at most `spread` bits more than paths from the lost state.
    const double spread = std::log2(-double(largest_of(-least_match_or_right))) - bits + LOST - DIGITS;
    if (spread >= LARGEST_COST || spread >= seen.spread_of_gaps() + 4) {
      seen.spread = std::min(seen.spread, spread);
    } else {
      Vec unit = splat(NOTHING);
      for (int v = 0; v < strip.vectors; ++v) {
        const int count = v == strip.vectors - 1 ? strip.last : LANES;
        unit = max_of(unit, lane_numbers() < splat_int(count) ? columns[v].unit : splat(NOTHING));
      }
      const double risk = double(largest_of(unit)) + bits;
      seen.risk = std::max(seen.risk, risk), seen.risk_in_units = std::max(seen.risk_in_units, bits);
      if (risk > LOST - DIGITS || (rows > 1 && risk > LOST - 50 * RANGE_FACTOR)) return false;  // fewer rows may do
    }
  }
  ends.GapExtremes::add(seen);
  return true;
}

template <class Kind, Pass pass>
bool BackwardStrip<Kind, pass>::try_band_by_position(Int first, Int rows, const Vec *kept) {
  const PairWeights<Kind> o = weights;
  const Mask turn_is_open = splat_int(o.turn_is_open ? -1 : 0);
  const bool turn_right_opens = o.turn_right_is_allowed && o.turn_is_open,
             turn_right_extends = o.turn_right_is_allowed && !o.turn_is_open;
  const Vec turn_right_is_open = splat(turn_right_opens ? 1 : 0);
  Vec largest = splat(0), largest_q = splat(0);
  Real outside[6][MOST_ROWS + LANES] = {};
  receive(first, rows, outside);
  constexpr int gaps = GAPS<Kind>, extend_at = IS_COST<Kind> ? K::w : K::gap + gaps - 1;
  constexpr bool has_places = gradients && Kind::local;
  Vec similarity = splat(0), matches = splat(0), steps[2] = {}, costs[2] = {};  // expected sums
  Places begins, ends;
  for (Int k = rows - 1; k >= 0; --k) {
    const Int i = first + k;
    const Vec *from = kept + size_t(k) * strip.vectors * K::size;
    Real *to = out + i * strip.pitch;
    Vec after = splat(outside[0][k + 1]), t_after = splat(outside[T][k + 1]);  // X of the cell after, a row below
    // of the cell after, B of the gap along the row, times the weights of its gap: extend, and open
    constexpr int extends = T - 1;
    Vec across = splat(outside[extends][k]), t_across = splat(outside[T + extends][k]), gap_after = splat(1);
    Vec open_after = splat(outside[1][k]), t_open_after = splat(outside[T + 1][k]);
    Vec t_w_after = splat(0);  // of soft_dtw, the tangent of the weight of the cell after, times its B
    // inlined, or GCC would leave it a function, with the sums in memory
    strip.each_back([&](int v, auto is_last) __attribute__((always_inline)) {
      Columns &c = columns[v];
      const Vec *cell = from + v * K::size;
      __builtin_prefetch(to - 4 * strip.pitch + v * LANES, 1);
      const Vec w = cell[K::w], matched = cell[K::matched];
      const Vec x = c.now[0], arrived = c.step * moved_down<1>(x, after);
      Vec t_arrived;
      if constexpr (tangents) {  // what comes from the columns after, relative to this origin
        t_arrived = c.step * moved_down<1>(c.now[T], fma(c.change, after, t_after));
        t_across = fma(c.change, across, t_across);
        if (!ONE_STATE<Kind>) t_open_after = fma(c.change, open_after, t_open_after);
        t_after = c.now[T];
      }
      after = x;
      const Vec extend = cell[extend_at];
      const Scan scan = scan_of<false>(c.step * moved_down<1>(extend, gap_after));
      gap_after = extend;
      Vec b, t_b;  // of the match
      Vec of_gap[2];  // B of gaps along the row, and down the column
      if constexpr (ONE_STATE<Kind>) {
        Vec without_gap = arrived + c.now[1];
        if constexpr (Kind::end == End::anywhere) without_gap += c.end;
        if constexpr (Kind::end == End::last && is_last) without_gap += i == end_row ? c.end : splat(0);
        b = scanned<false, true>(scan, without_gap, across);
        if constexpr (tangents) {
          Vec t_begun = t_arrived + c.now[T + 1];
          if constexpr (Kind::end == End::anywhere) t_begun += c.t_start_or_end;
          if constexpr (Kind::end == End::last && is_last) t_begun += i == end_row ? c.t_start_or_end : splat(0);
          if constexpr (IS_COST<Kind>) {
            const Vec t_w_b = cell[K::t_w] * (w * b);
            t_begun = fma(c.step, moved_down<1>(t_w_b, t_w_after), t_begun);
            t_w_after = t_w_b;
          }
          t_b = scanned<false, true>(scan, t_begun, t_across);
          c.now[T + 1] = IS_COST<Kind> ? fma(extend, t_b, t_w_after) : extend * t_b;
        }
        c.now[1] = extend * b;
      } else {
        const Vec open = cell[K::gap], opened = c.now[1], extended = c.now[2];
        const Vec before = across;
        const Vec gap = scanned<false, true>(scan, (turn_is_open ? opened : extended) + arrived, across);
        const Vec to_open = open * gap, next = c.step * moved_down<1>(to_open, open_after);
        open_after = to_open;
        b = next + (opened + arrived);
        c.b_for_unit = b;
        Vec down = fma(turn_right_is_open, next, extended + arrived);
        if (turn_right_extends) down = fma(scan.step[0], moved_down<1>(gap, before), down);
        c.now[1] = open * down, c.now[2] = extend * down;
        of_gap[0] = gap, of_gap[1] = down;
        if constexpr (tangents) {
          const Vec t_opened = c.now[T + 1], t_extended = c.now[T + 2], t_before = t_across;
          const Vec t_gap = scanned<false, true>(scan, (turn_is_open ? t_opened : t_extended) + t_arrived, t_across);
          const Vec t_to_open = open * t_gap, t_next = c.step * moved_down<1>(t_to_open, t_open_after);
          t_open_after = t_to_open;
          t_b = t_next + (t_opened + t_arrived);
          Vec t_down = fma(turn_right_is_open, t_next, t_extended + t_arrived);
          if (turn_right_extends) t_down = fma(scan.step[0], moved_down<1>(t_gap, t_before), t_down);
          c.now[T + 1] = open * t_down, c.now[T + 2] = extend * t_down;
        }
      }
      largest = max_of(largest, b);
      constexpr bool ends_apart = Kind::end == End::later_match;
      const Vec with_end = ends_apart ? b + c.end : b;
      c.now[0] = w * with_end;
      if constexpr (tangents && !IS_COST<Kind>) {
        c.now[T] = fma(cell[K::t_w], with_end, w * (ends_apart ? t_b + c.t_start_or_end : t_b));
      }
      if constexpr (tangents && IS_COST<Kind>) c.now[T] = c.now[T + 1];
      auto write = [&](Real *row, Vec value) {
        if constexpr (is_last) {
          store_some(row + v * LANES, strip.last, value);
        } else {
          store(row + v * LANES, value);
        }
      };
      const Vec q = c.to_share.times(b), p = marginals(c, cell, b, t_b, q, largest_q);
      write(to, p);
      if constexpr (gradients) {
        const int64_t at = i * strip.pitch;
        matches += p;
        similarity = fma(p, max_of(SIGN<Kind> * strip.part<is_last>(strip.s + at, v, 0), splat(FORBIDDEN)), similarity);
        const Vec *stepped = cell + K::stepped;
        Vec along = q, down = q;
        if constexpr (!ONE_STATE<Kind>) along = c.to_share.times(of_gap[0]), down = c.to_share.times(of_gap[1]);
        largest_q = max_of(largest_q, max_of(along, down));
        unrolled<gaps>([&](auto g) {
          Vec step = stepped[2 * g] * along;
          if constexpr (!ONE_STATE<Kind>) step = fma(stepped[2 * g + 1], down, step);
          if constexpr (is_last) step = first_lanes(step, strip.last);
          steps[g] += step;
          if (strip.gaps[g]) costs[g] = fma(step, strip.part<is_last>(strip.gaps[g] + at, v, 0), costs[g]);
          if (d_gaps[g]) write(d_gaps[g] + at, step);
        });
        if constexpr (has_places) {
          const Vec col = __builtin_convertvector(lane_numbers(), Vec) + Real(v * LANES);
          begins.add((w * c.one) * q, col);
          ends.add((ends_apart ? matched : matched + stepped[0]) * c.end_share, col);
        }
      }
    });
    if (has_places && k > 0) begins.next_row(), ends.next_row();
    if (left) {
      const Real gap = from[extend_at][0];
      pass_on(i, true);
      left->numbers[extends][i] = gap * across[0];
      if constexpr (!ONE_STATE<Kind>) left->numbers[1][i] = open_after[0];
      if constexpr (tangents) {
        left->numbers[T + extends][i] = gap * t_across[0] + (IS_COST<Kind> ? t_w_after[0] : 0);
        if constexpr (!ONE_STATE<Kind>) left->numbers[T + 1][i] = t_open_after[0];
      }
    }
  }
  peak = largest;
  // a B rounded to 0 was below 2^-LOST times its unit or the band's largest B, and may belong to any forward state
  const double lost = double(largest_of(largest_loss)) + std::max(0.0, std::log2(double(largest_of(largest)))) - LOST;
  const bool valid = lost <= LARGEST_LOSS && all_at_most(largest, splat(PairWeights<Kind>::power_of_2(ROOM))) &&
                     all_at_most(splat(SMALLEST_NORMAL), least_step) && tangents_are_finite(columns, strip.vectors) &&
                     all_at_most(largest_share, splat(LARGEST_SHARE)) && all_at_most(largest_q, splat(LARGEST));
  if constexpr (gradients) {
    if (valid) {
      for (int g = 0; g < gaps; ++g) {
        sums.cost[int(GAP_COSTS[g])] += StripSums::sum_of(steps[g]);
        sums.gaps += StripSums::sum_of(costs[g]);
      }
      add_sums(similarity, matches, begins, ends, first);
    }
  }
  return valid;
}

}  // namespace alignment

#endif
