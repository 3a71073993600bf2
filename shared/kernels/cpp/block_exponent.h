/* Block exponents: the arithmetic of a cell where a column's cells have one exponent in common.

   Weights are exp(value / T), so that a smooth maximum is a sum. cell.h gives each its own exponent, which is safe at
   every temperature but takes most of its time. Here LANES columns of one row are a vector, and all cells of a column
   within a band of up to MOST_ROWS rows are in the column's unit 2^e, chosen so that the state above the band
   is about 2^LEVEL: what is left are products and sums. Where that could lose anything, the pair is left to cell.h.

   The conditions are checked for each pair; docs/engineering-notes-native.md proves that they suffice. D is the number
   of bits by which gaps down a column can lower its states within a band.
   - Before the sweeps (set_weights, starts_lose_nothing in tiles.h): a gap's weight is between 2^-LARGEST_COST and
     2^LARGEST_COST, D <= MOST_DECAY, and in a global alignment open <= extend. In a local alignment with cheap gaps, no
     match weight is so small that it, or the gaps after it, would be rounded to 0, unless that is negligible.
   - After each band (try_band in block_forward.h and block_backward.h): no state exceeds 2^(ROOM - D) units, and no ratio
     of a column's unit to the next one's is below 2^(D - LARGEST_STEP - LEVEL). In the backward sweep, all B
     (block_backward.h) are finite in units of the forward sweep too, even in cells that no alignment passes through.
   - At the end (add_up, finish in tiles.h): the total is finite and, in a local alignment, at least 2^LEAST_TOTAL of
     the largest unit. Tangents are finite. Neither they nor the gradient of the temperature are lost to cancellation.
   A pair that fails is computed with cell exponents: `run` in run.h, which does so from the start for pairs of at most
   LANES columns, and in calls for which block exponents do not exist or are not asked for. With gaps by position, and of
   soft_dtw, the first conditions are checked after a band or at the end: by_position.h. */

#ifndef BLOCK_EXPONENT_H
#define BLOCK_EXPONENT_H

#include "cell.h"

namespace alignment {

constexpr int MOST_ROWS = 16;                       // of a band
constexpr double DIGITS = IS_FLOAT ? 24 : 53;       // bits: what is below 2^-DIGITS of a sum does not count
constexpr double LOST = BIAS - 1;                   // bits: what is smaller than 2^-LOST is rounded to 0
constexpr Real RANGE_FACTOR = IS_FLOAT ? 1 : 8;     // Real's exponent range is at least this many times float's
constexpr Real LEVEL = -20 * RANGE_FACTOR;          // log2 of the state above a band, in units of its column
constexpr double LARGEST_STEP = LOST - DIGITS;      // bits that a state may lose from column to column
constexpr Real ROOM = Real(LARGEST_STEP) + LEVEL;   // log2 of the largest state, in units, where D is 0
constexpr Real LEAST_MATCH = -100 * RANGE_FACTOR;   // log2 of the weight: lighter matches count as 0
constexpr double MOST_DECAY = 36 * RANGE_FACTOR;    // bits
constexpr double LARGEST_COST = 27 * RANGE_FACTOR;  // bits of a gap's weight, of either sign
constexpr double LEAST_TOTAL = -40 * RANGE_FACTOR;  // log2 of the total, in the largest unit of all columns
// log2 of the largest error of a probability; the step to the next column multiplies it by up to 2^(28 RANGE_FACTOR)
constexpr double LARGEST_LOSS = -52 * RANGE_FACTOR;
constexpr Real LARGEST_SHARE = 120 * RANGE_FACTOR;  // bits of forward unit * backward unit / total; where
                                                    // alignments pass, they are at most -LEAST_TOTAL + 2 D
constexpr Real SMALLEST_NORMAL = IS_FLOAT ? Real(__FLT_MIN__) : Real(__DBL_MIN__);

constexpr int SCAN_STEPS = __builtin_ctz(LANES);

template <int from, int... lane>
INLINE Vec broadcast_lane(Vec v, std::integer_sequence<int, lane...>) {
  return pick(v, v, std::integer_sequence<int, (lane * 0 + from)...>{});
}
/* The number of one lane in all lanes. */
template <int from>
INLINE Vec broadcast_lane(Vec v) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) {
    return (Vec)_mm512_maskz_permutexvar_ps(__mmask16(-1), _mm512_set1_epi32(from), (__m512)v);
  }
  if constexpr (!IS_FLOAT) return (Vec)_mm512_maskz_permutexvar_pd(__mmask8(-1), _mm512_set1_epi64(from), (__m512d)v);
#endif
  return broadcast_lane<from>(v, EveryLane{});
}

/* The first `count` numbers at `from`, the other lanes `rest`; reads nothing else. */
INLINE Vec load_some(const Real *from, int count, Real rest) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) {
    return (Vec)_mm512_mask_loadu_ps((__m512)splat(rest), __mmask16((1u << count) - 1), from);
  }
  if constexpr (!IS_FLOAT) return (Vec)_mm512_mask_loadu_pd((__m512d)splat(rest), __mmask8((1u << count) - 1), from);
#endif
  Vec v = splat(rest);
  __builtin_memcpy(&v, from, count * sizeof(Real));
  return v;
}

INLINE void store_some(Real *to, int count, Vec v) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return _mm512_mask_storeu_ps(to, __mmask16((1u << count) - 1), (__m512)v);
  if constexpr (!IS_FLOAT) return _mm512_mask_storeu_pd(to, __mmask8((1u << count) - 1), (__m512d)v);
#endif
  __builtin_memcpy(to, &v, count * sizeof(Real));
}

INLINE Real largest_of(Vec v) {
  unrolled<SCAN_STEPS>([&](auto k) { v = max_of(v, moved_up<1 << k>(v, v)); });
  return v[0];
}

INLINE Vec first_lanes(Vec v, int count) { return lane_numbers() < splat_int(count) ? v : splat(0); }

#if defined(__AVX512F__)
alignas(VECTOR_BYTES) constexpr float POWERS_OF_2[] = {  // 2^(k / 32)
    1., 1.0218972, 1.0442737, 1.0671405, 1.0905077, 1.1143868, 1.1387886, 1.1637249,
    1.1892071, 1.2152474, 1.2418578, 1.269051, 1.2968396, 1.3252367, 1.3542556, 1.38391,
    1.4142135, 1.4451808, 1.4768262, 1.5091645, 1.5422108, 1.5759809, 1.6104903, 1.6457555,
    1.6817929, 1.7186193, 1.7562522, 1.7947091, 1.8340081, 1.8741677, 1.9152066, 1.9571441,
};
alignas(VECTOR_BYTES) constexpr double DOUBLE_POWERS_OF_2[] = {  // 2^(k / 16)
    1., 1.04427378242741384, 1.09050773266525766, 1.13878863475669165,
    1.18920711500272107, 1.24185781207348405, 1.29683955465100967, 1.35425554693689273,
    1.41421356237309505, 1.47682614593949931, 1.54221082540794082, 1.61049033194925431,
    1.68179283050742909, 1.75625216037329948, 1.83400808640934246, 1.91520656139714729,
};
#endif

/* exp(s / T) of similarities, with relative error 1e-7 + 4e-8 per bit of |s / T| log2 e; for double 2^-29 times
   that. 0 for s <= least_, NaN for NaN; where it is too large the result is infinite or negative, and the range checks
   then reject the pair. */
class MatchWeight {
 public:
  explicit MatchWeight(double bits_per_unit)
      : scale_(splat(Real(bits_per_unit))), least_(splat(Real(double(LEAST_MATCH) / bits_per_unit))) {}

  INLINE Vec operator()(Vec s) const {
#if defined(__AVX512F__)
    if constexpr (IS_FLOAT) {
      // 2^(k / 32) from a table in two registers, 2^f of the rest with |f| <= 1/64 by a polynomial
      const Vec to_32nds = splat(Real(393216));  // 1.5 * 2^18: its last bit is 1/32
      const Vec shifted = fma(s, scale_, to_32nds), whole = shifted - to_32nds, f = fma(s, scale_, -whole);
      const __m512 low = _mm512_load_ps(POWERS_OF_2), high = _mm512_load_ps(POWERS_OF_2 + 16);
      const Vec t = (Vec)_mm512_maskz_permutex2var_ps(__mmask16(-1), low, (__m512i)shifted, high);
      const Vec w = scaled(fma(t * f, polynomial(f, 0.24022651, 0.69314718), t), whole);
      return (Vec)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)s, (__m512)least_, _CMP_NLE_UQ), (__m512)w);
    }
    if constexpr (!IS_FLOAT) {
      // likewise 2^(k / 16), and |f| <= 1/32
      const Vec to_16ths = splat(Real(0x1.8p48));  // its last bit is 1/16
      const Vec shifted = fma(s, scale_, to_16ths), whole = shifted - to_16ths, f = fma(s, scale_, -whole);
      const __m512d low = _mm512_load_pd(DOUBLE_POWERS_OF_2), high = _mm512_load_pd(DOUBLE_POWERS_OF_2 + 8);
      const Vec t = (Vec)_mm512_maskz_permutex2var_pd(__mmask8(-1), low, (__m512i)shifted, high);
      const Vec p = polynomial(f, 0.000015252733804059840280, 0.00015403530393381609954, 0.0013333558146428443423,
                               0.0096181291076284771620, 0.055504108664821579953, 0.24022650695910071233,
                               0.69314718055994530942);
      const Vec w = scaled(fma(t * f, p, t), whole);
      return (Vec)_mm512_maskz_mov_pd(_mm512_cmp_pd_mask((__m512d)s, (__m512d)least_, _CMP_NLE_UQ), (__m512d)w);
    }
#endif
    const Vec whole = rounded_product(s, scale_), part = fma(s, scale_, -whole);
    const Vec w = scaled(power_of_fraction(part), min_of(splat(BIAS + 1), whole));
    return s <= least_ ? splat(0) : w;
  }

 private:
  Vec scale_, least_;
};

/* The factors of the recurrence x[l] = terms[l] + steps[l] * x[l - 1] along LANES columns, for a parallel prefix scan:
   step[k] has the products of the last 2^k steps to each lane, from_outside those of all steps from before lane 0. */
struct Scan {
  Vec step[SCAN_STEPS], from_outside;
};

/* steps[l]: from lane l - 1 to lane l (ascending), or from lane l + 1 to lane l. */
template <bool ascending>
INLINE Scan scan_of(Vec steps) {
  Scan scan;
  unrolled<SCAN_STEPS>([&](auto k) {
    constexpr int n = 1 << k;
    scan.step[k] = steps;
    steps *= ascending ? moved_up<n>(steps, splat(1)) : moved_down<n>(steps, splat(1));
  });
  scan.from_outside = steps;
  return scan;
}

/* x[l] = terms[l] + steps[l] * x[l - 1] (or l + 1), where x is `outside` before the first lane; on return,
   `outside` is that of the next vector. The chain from vector to vector is one multiplication and addition. for_one_row:
   `scan` was made for this row alone and is still in registers. */
template <bool ascending, bool for_one_row = false>
INLINE Vec scanned(const Scan &scan, Vec terms, Vec &outside) {
  constexpr int last = ascending ? LANES - 1 : 0;
  unrolled<SCAN_STEPS>([&](auto k) {
    constexpr int n = 1 << k;
    terms = fma(scan.step[k], ascending ? moved_up<n>(terms, splat(0)) : moved_down<n>(terms, splat(0)), terms);
  });
  const Vec x = fma(scan.from_outside, outside, terms);
  const Vec step = for_one_row ? broadcast_lane<last>(scan.from_outside) : splat(scan.from_outside[last]);
  outside = fma(step, outside, broadcast_lane<last>(terms));
  return x;
}

/* The state of a cell that receives from this neighbour. */
template <class Kind>
constexpr int receiver(From from) {
  for (int k = 0; k < Kind::states; ++k) {
    for (int c = 0; c < Kind::counts[k]; ++c) {
      if (Kind::choices[k][c].from == from) return k;
    }
  }
  return -1;
}

/* What it costs to go from a state of a neighbour to the state that receives. */
template <class Kind>
constexpr Cost cost_between(From from, int state) {
  const int k = receiver<Kind>(from);
  for (int c = 0; c < Kind::counts[k]; ++c) {
    if (Kind::choices[k][c].from == from && Kind::choices[k][c].state == state) return Kind::choices[k][c].cost;
  }
  return Cost::none;
}

}  // namespace alignment

#endif
