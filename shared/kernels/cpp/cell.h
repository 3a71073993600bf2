/* The forward and backward recurrence for a vector of cells, independent of where the cells lie.

   Weights are kept as fraction * 2^exponent, the exponent a whole number in a float of its own, so that no temperature
   makes them overflow or vanish. Forwards, a state is the sum of its choices, and share = choice / state. Backwards,
   with v = d score / d state, each choice gets v * share, which is also what its costs get; the derivative for the
   temperature is the sum of v * (entropy of the shares). Tangents are those of value / T, in natural logarithms: that
   of a state is the mean of its choices' tangents, weighted by their shares; that of a share is
   share * (tangent of the choice - tangent of the state). */

#ifndef CELL_H
#define CELL_H

#include "recurrences.h"
#include "vector.h"

namespace alignment {

enum class Pass { score, marginals, gradients, tangents };

constexpr Real NOTHING = Real(-1e30);  // the exponent of a weight of 0
constexpr Real LARGEST = IS_FLOAT ? Real(__FLT_MAX__) : Real(__DBL_MAX__);
/* A similarity of this or less forbids the match: it becomes -infinity. An alignment whose score is this or less counts as
   none: it needs a forbidden gap, of LOWEST. */
constexpr Real FORBIDDEN = Real(-5e19);

struct Value {
  Vec m;  // fraction
  Vec e;  // exponent
  Vec x;  // gradients: log2 of m; tangents: the tangent
};

template <class Kind>
struct States {
  Value of[Kind::states];
};

/* The alignments that end in a cell. Their weight is m * 2^e. For tangents, mt is the sum of weight * (tangent - origin),
   where origin is the tangent of an end with the largest exponent, `top`. lost: what rounding cut off a sum. */
struct Ending {
  Vec m, e, mt, origin, top, lost;
};

/* The record of a cell that the forward recurrence leaves for the backward one: the places of its vectors. */
template <class Kind, Pass pass>
struct Record {
  static constexpr int choices = choices_before<Kind>(Kind::states);
  static constexpr int tangents = pass == Pass::tangents ? 1 : 0;
  static constexpr int entropies = pass == Pass::gradients ? Kind::states : 0;
  static constexpr int share(int state, int choice) { return choices_before<Kind>(state) + choice; }
  static constexpr int share_tangent(int state, int choice) { return choices + share(state, choice); }
  static constexpr int end(int k) { return choices * (1 + tangents) + k; }
  static constexpr int end_tangent(int k) { return end(ends<Kind>() + k); }
  static constexpr int entropy(int state) { return choices * (1 + tangents) + ends<Kind>() * (1 + tangents) + state; }
  static constexpr int size = choices * (1 + tangents) + ends<Kind>() * (1 + tangents) + entropies;
};

/* exp(score / T) = m * 2^e of each lane's pair, for the shares of the ends; and the tangent of score / T. */
struct Total {
  Vec inverse_m, e, log2_m;
  Vec tangent, tangent_rest;  // as a sum of two numbers: a rounding error here would shift all ends alike
  INLINE Vec relative_to_tangent(Vec number) const { return (number - tangent) - tangent_rest; }
};

/* An end's weight is at most the total, but its exponent may be larger where the total's m is not in [1, 2). */
constexpr Real MOST_ABOVE_TOTAL = IS_FLOAT ? 100 : 900;

INLINE Value nothing() { return {splat(1), splat(NOTHING), splat(0)}; }

/* Computes the states of cells (and, when recording, their records) from those of their neighbours.
   may_end: whether an alignment may end here; entropy: of the ends, added up. */
template <class Kind, Pass pass, bool recording>
INLINE Ending forward(const Value (&costs)[COSTS], const States<Kind> &diagonal, const States<Kind> &left,
                      const States<Kind> &up, States<Kind> &out, Vec *record, const Total *total,
                      Mask may_end, Vec *entropy) {
  using R = Record<Kind, pass>;
  constexpr bool gradients = pass == Pass::gradients, tangents = pass == Pass::tangents;
  Ending ending{};
  unrolled<Kind::states>([&](auto state) {
    constexpr int k = state, count = Kind::counts[k];
    constexpr bool has_common = Kind::common[k] != Cost::none;
    const Value &common = costs[int(Kind::common[k])];
    Vec m[count], e[count], x[count];
    unrolled<count>([&](auto choice) {
      constexpr int c = choice;
      constexpr Choice what = Kind::choices[k][c];
      constexpr int s = what.state;
      const Value &cost = costs[int(what.cost)];
      constexpr bool costs_something = what.cost != Cost::none;
      if constexpr (what.from == From::start) {
        m[c] = costs_something ? cost.m : splat(1);
        e[c] = costs_something ? cost.e : splat(0);
        x[c] = costs_something ? cost.x : splat(0);
      } else {
        const Value &before = (what.from == From::diagonal ? diagonal : what.from == From::left ? left : up).of[s];
        m[c] = costs_something ? before.m * cost.m : before.m;
        e[c] = costs_something ? before.e + cost.e : before.e;
        x[c] = costs_something ? before.x + cost.x : before.x;
      }
    });
    // The choices from the diagonal of a state that may end: summed separately, because beside a large start
    // they may round to 0 and yet be the whole score.
    constexpr int apart = k == 0 && Kind::end == End::later_match ? ends<Kind>() : 0;
    Vec part = splat(0), part_tangent = splat(0), part_origin = splat(0), part_top = e[0];
    if constexpr (apart > 0) {
      unrolled<apart - 1>([&](auto c) { part_top = max_of(part_top, e[c + 1]); });
      unrolled<apart>([&](auto c) {
        if constexpr (apart > 1) m[c] = scaled(m[c], e[c] - part_top);
        part += m[c];
      });
      if constexpr (tangents) {
        auto own = [&](int c) { return has_common ? x[c] + common.x : x[c]; };
        Vec most = m[0];
        part_origin = own(0);
        unrolled<apart - 1>([&](auto c) {
          part_origin = m[c + 1] > most ? own(c + 1) : part_origin;
          most = max_of(most, m[c + 1]);
        });
        unrolled<apart>([&](auto c) { part_tangent = fma(m[c], own(c) - part_origin, part_tangent); });
      }
      ending.m = has_common ? part * common.m : part;
      ending.e = has_common ? part_top + common.e : part_top;
      ending.mt = has_common ? part_tangent * common.m : part_tangent;
      ending.origin = part_origin, ending.top = ending.e;
      if constexpr (recording) {
        Vec scale = scaled(total->inverse_m, min_of(ending.e - total->e, splat(MOST_ABOVE_TOTAL)));
        if constexpr (has_common) scale *= common.m;
        scale = may_end ? scale : splat(0);
        unrolled<apart>([&](auto c) {
          Vec share = m[c] * scale, own = has_common ? x[c] + common.x : x[c];
          record[R::end(c)] = share;
          if constexpr (tangents) record[R::end_tangent(c)] = share * total->relative_to_tangent(own);
          if constexpr (gradients) {
            Vec bits = ((has_common ? e[c] + common.e : e[c]) - total->e) + (own - total->log2_m);
            *entropy = fma(-share, bits, *entropy);
          }
        });
      }
    }
    Vec top = part_top;
    unrolled<count>([&](auto c) {
      if constexpr (c >= apart) top = max_of(top, e[c]);
    });
    Vec sum = splat(0);
    unrolled<count>([&](auto c) {
      m[c] = scaled(m[c], (c < apart ? part_top : e[c]) - top);
      sum += m[c];
    });

    Value &result = out.of[k];
    if constexpr (recording || tangents) {
      Vec inverse = inverse_of(sum);
      Vec share[count];
      unrolled<count>([&](auto c) { share[c] = m[c] * inverse; });
      if constexpr (recording) unrolled<count>([&](auto c) { record[R::share(k, c)] = share[c]; });
      if constexpr (tangents) {
        // relative to the tangent of the best choice: those of long alignments are large but differ little, and that of a
        // choice with a negligible share may be far larger (a gap, a forbidden match, a steep loss)
        Vec away[count], mean = splat(0), base = x[0], most = m[0];
        unrolled<count - 1>([&](auto c) {
          base = m[c + 1] > most ? x[c + 1] : base;
          most = max_of(most, m[c + 1]);
        });
        unrolled<count>([&](auto c) {
          away[c] = x[c] - base;
          mean = fma(share[c], away[c], mean);
        });
        if constexpr (recording) {
          unrolled<count>([&](auto c) { record[R::share_tangent(k, c)] = share[c] * (away[c] - mean); });
        }
        result.x = has_common ? base + (mean + common.x) : base + mean;
      }
    }
    Vec whole = has_common ? sum * common.m : sum;
    Vec whole_top = has_common ? top + common.e : top;
    result.e = whole_top + exponent_of(whole);
    result.m = fraction_of(whole);
    if constexpr (gradients) {
      Vec log2_sum = log2_of(fraction_of(sum)), bits = exponent_of(sum) + log2_sum;  // of the sum, relative to 2^top
      // log2 of the rounded m, so that a block can compute it again from what is kept
      result.x = has_common ? log2_of(result.m) : log2_sum;
      unrolled<count>([&](auto c) { bits = fma(-record[R::share(k, c)], (e[c] - top) + x[c], bits); });
      record[R::entropy(k)] = bits;
    }

    if constexpr (Kind::end != End::later_match) {
      if constexpr (k == 0) {
        ending = {result.m, result.e, splat(0), result.x, result.e, splat(0)};
      } else {  // in any of the states
        const Vec top = max_of(ending.e, result.e);
        const Vec others = scaled(ending.m, ending.e - top), own = scaled(result.m, result.e - top);
        const Vec origin = own > others ? result.x : ending.origin;
        if constexpr (tangents) {
          ending.mt = scaled(ending.mt, ending.e - top) + fma(ending.origin - origin, others, own * (result.x - origin));
        }
        ending.m = others + own, ending.e = ending.top = top, ending.origin = origin;
      }
      if constexpr (recording) {
        Vec scale = scaled(total->inverse_m, min_of(result.e - total->e, splat(MOST_ABOVE_TOTAL)));
        Vec share = may_end ? result.m * scale : splat(0);
        record[R::end(k)] = share;
        if constexpr (tangents) record[R::end_tangent(k)] = share * total->relative_to_tangent(result.x);
        if constexpr (gradients) {
          *entropy = fma(-share, (result.e - total->e) + (result.x - total->log2_m), *entropy);
        }
      }
    }
  });
  return ending;
}

/* d score / d state, and its tangent. */
struct Flow {
  Vec v, t;
};

template <class Kind>
struct Flows {
  Flow of[Kind::states];
};

/* The contribution of a sweep to the gradients with respect to the costs and the temperature. */
struct Sums {
  Vec cost[COSTS], cost_tangent[COSTS];
  Vec entropy;  // gradients: in bits; tangents: sum of the marginals' tangents * s / T, likewise of gaps by position
};

/* Adds the ends in the cells to their gradients v and propagates these to the neighbours; the gradient with respect to
   the similarity is written to matched. */
template <class Kind, Pass pass>
INLINE void backward(const Vec *record, Flows<Kind> v, Flows<Kind> &diagonal, Flows<Kind> &left, Flows<Kind> &up,
                     Flow &matched, Sums &sums) {
  using R = Record<Kind, pass>;
  constexpr bool tangents = pass == Pass::tangents;
  diagonal = Flows<Kind>{};
  left = Flows<Kind>{};
  up = Flows<Kind>{};
  matched = Flow{};
  if constexpr (Kind::end != End::later_match) {
    unrolled<Kind::states>([&](auto k) {
      v.of[k].v += record[R::end(k)];
      if constexpr (tangents) v.of[k].t += record[R::end_tangent(k)];
    });
  }
  unrolled<Kind::states>([&](auto state) {
    constexpr int k = state;
    const Flow flow = v.of[k];
    if constexpr (pass == Pass::gradients) sums.entropy = fma(flow.v, record[R::entropy(k)], sums.entropy);
    unrolled<Kind::counts[k]>([&](auto choice) {
      constexpr int c = choice;
      constexpr Choice what = Kind::choices[k][c];
      Vec share = record[R::share(k, c)];
      Flow part;
      part.v = flow.v * share;
      if constexpr (tangents) part.t = fma(flow.t, share, flow.v * record[R::share_tangent(k, c)]);
      if constexpr (k == 0 && Kind::end == End::later_match && c < ends<Kind>()) {
        part.v += record[R::end(c)];
        if constexpr (tangents) part.t += record[R::end_tangent(c)];
      }
      constexpr bool is_match = what.cost == Cost::match || Kind::common[k] == Cost::match;
      if constexpr (is_match) {
        matched.v += part.v;
        if constexpr (tangents) matched.t += part.t;
      } else if constexpr (what.cost != Cost::none) {
        sums.cost[int(what.cost)] += part.v;
        if constexpr (tangents) sums.cost_tangent[int(what.cost)] += part.t;
      }
      if constexpr (what.from != From::start) {
        Flow &to = (what.from == From::diagonal ? diagonal : what.from == From::left ? left : up).of[what.state];
        to.v += part.v;
        if constexpr (tangents) to.t += part.t;
      }
    });
  });
}

}  // namespace alignment

#endif
