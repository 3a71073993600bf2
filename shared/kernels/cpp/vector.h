/* A vector of numbers that are processed together, as wide as the CPU's registers, and the few functions on it that the
   kernels need. GCC's and Clang's vector extension: arithmetic, comparisons (all bits set where true) and the
   conditional operator work element by element. */

#ifndef VECTOR_H
#define VECTOR_H

#include <cstdint>
#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include <limits>
#include <type_traits>
#include <utility>

#include "alignment.h"

#define INLINE inline __attribute__((always_inline))

namespace alignment {

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

using Real = REAL;
using Int = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;
constexpr int LANES = VECTOR_BYTES / sizeof(Real);

typedef Real Vec __attribute__((vector_size(VECTOR_BYTES)));
typedef Int Mask __attribute__((vector_size(VECTOR_BYTES)));

constexpr bool IS_FLOAT = sizeof(Real) == 4;
constexpr int FRACTION_BITS = IS_FLOAT ? 23 : 52;
constexpr int BIAS = IS_FLOAT ? 127 : 1023;
constexpr Int ONE_BITS = Int(BIAS) << FRACTION_BITS;
constexpr Int FRACTION_MASK = (Int(1) << FRACTION_BITS) - 1;
constexpr Real SHIFTER = IS_FLOAT ? Real(8388608.0) : Real(4503599627370496.0);  // 2^FRACTION_BITS
constexpr Int SHIFTER_BITS = Int(FRACTION_BITS + BIAS) << FRACTION_BITS;

INLINE Vec splat(Real x) { return x - Vec{}; }
INLINE Mask splat_int(Int x) { return x - Mask{}; }

/* The greater, and the smaller, of two; b where one is not a number. By intrinsics where the compiler would make
   a comparison and a selection. */
INLINE Vec max_of(Vec a, Vec b) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_maskz_max_ps(__mmask16(-1), (__m512)a, (__m512)b);
  if constexpr (!IS_FLOAT) return (Vec)_mm512_maskz_max_pd(__mmask8(-1), (__m512d)a, (__m512d)b);
#elif defined(__AVX__)
  if constexpr (IS_FLOAT) return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
  if constexpr (!IS_FLOAT) return (Vec)_mm256_max_pd((__m256d)a, (__m256d)b);
#endif
  return a > b ? a : b;
}

INLINE Vec min_of(Vec a, Vec b) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_maskz_min_ps(__mmask16(-1), (__m512)a, (__m512)b);
  if constexpr (!IS_FLOAT) return (Vec)_mm512_maskz_min_pd(__mmask8(-1), (__m512d)a, (__m512d)b);
#elif defined(__AVX__)
  if constexpr (IS_FLOAT) return (Vec)_mm256_min_ps((__m256)a, (__m256)b);
  if constexpr (!IS_FLOAT) return (Vec)_mm256_min_pd((__m256d)a, (__m256d)b);
#endif
  return a < b ? a : b;
}

INLINE Vec absolute(Vec a) { return (Vec)((Mask)a & splat_int(std::numeric_limits<Int>::max())); }

INLINE Vec load(const Real *from) {
  Vec v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

#if defined(__AVX512F__)
constexpr bool HAS_MASKED_LOADS = true;
#else
constexpr bool HAS_MASKED_LOADS = false;
#endif

/* from[first] to from[last - 1]; 0 in the other lanes, whose elements are not touched and may lie outside memory. */
INLINE Vec load_part(const Real *from, int first, int last) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_maskz_loadu_ps(__mmask16((1u << last) - (1u << first)), from);
  if constexpr (!IS_FLOAT) return (Vec)_mm512_maskz_loadu_pd(__mmask8((1u << last) - (1u << first)), from);
#endif
  Real part[LANES] = {};
  for (int k = first; k < last; ++k) part[k] = from[k];
  return load(part);
}

INLINE void store(Real *to, Vec v) { __builtin_memcpy(to, &v, sizeof v); }

/* Call f with std::integral_constant 0, 1, ..., N-1: a loop whose counter is a constant. */
template <class F, int... k>
INLINE void unrolled(F &&f, std::integer_sequence<int, k...>) {
  (f(std::integral_constant<int, k>{}), ...);
}
template <int N, class F>
INLINE void unrolled(F &&f) {
  unrolled(f, std::make_integer_sequence<int, N>{});
}

/* Whether a number is greater in any lane. */
INLINE bool any_greater(Vec a, Vec b) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
  if constexpr (!IS_FLOAT) return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GT_OQ) != 0;
#elif defined(__AVX__)
  if constexpr (IS_FLOAT) return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GT_OQ)) != 0;
  if constexpr (!IS_FLOAT) return _mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_GT_OQ)) != 0;
#endif
  Mask is_greater = a > b;
  Int found = 0;
  for (int l = 0; l < LANES; ++l) found |= is_greater[l];
  return found != 0;
}

/* Whether each number is at most the other; a NaN is not. */
INLINE bool all_at_most(Vec a, Vec b) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NLE_UQ) == 0;
  if constexpr (!IS_FLOAT) return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_NLE_UQ) == 0;
#elif defined(__AVX__)
  if constexpr (IS_FLOAT) return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_NLE_UQ)) == 0;
  if constexpr (!IS_FLOAT) return _mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_NLE_UQ)) == 0;
#endif
  Mask is_less = a <= b;
  Int every = -1;
  for (int l = 0; l < LANES; ++l) every &= is_less[l];
  return every != 0;
}

/* A bit for each lane. */
using LaneBits = std::conditional_t<(LANES > 8), uint16_t, uint8_t>;

/* The lanes in which a is at least b. */
INLINE LaneBits at_least(Vec a, Vec b) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return LaneBits(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ));
  if constexpr (!IS_FLOAT) return LaneBits(_mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GE_OQ));
#elif defined(__AVX__)
  if constexpr (IS_FLOAT) return LaneBits(_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_GE_OQ)));
  if constexpr (!IS_FLOAT) return LaneBits(_mm256_movemask_pd(_mm256_cmp_pd((__m256d)a, (__m256d)b, _CMP_GE_OQ)));
#endif
  const Mask is_at_least = a >= b;
  LaneBits bits = 0;
  for (int l = 0; l < LANES; ++l) bits = LaneBits(bits | (is_at_least[l] & 1) << l);
  return bits;
}

/* Elements of a and b by number: 0 to LANES-1 are a's, the rest b's. */
template <int... index>
INLINE Vec pick(Vec a, Vec b, std::integer_sequence<int, index...>) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, index...);
#else
  return __builtin_shuffle(a, b, Mask{index...});
#endif
}

using EveryLane = std::make_integer_sequence<int, LANES>;

/* Lane l gets lane l - n of v; the first n lanes get the last n of `before`. */
template <int n, int... lane>
INLINE Vec moved_up(Vec v, Vec before, std::integer_sequence<int, lane...>) {
  return pick(before, v, std::integer_sequence<int, (lane + LANES - n)...>{});
}
template <int n>
INLINE Vec moved_up(Vec v, Vec before) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) {
    return (Vec)_mm512_maskz_alignr_epi32(__mmask16(-1), (__m512i)v, (__m512i)before, LANES - n);
  }
#endif
  return moved_up<n>(v, before, EveryLane{});
}

/* Lane l gets lane l + n of v; the last n lanes get the first n of `after`. */
template <int n, int... lane>
INLINE Vec moved_down(Vec v, Vec after, std::integer_sequence<int, lane...>) {
  return pick(v, after, std::integer_sequence<int, (lane + n)...>{});
}
template <int n>
INLINE Vec moved_down(Vec v, Vec after) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_maskz_alignr_epi32(__mmask16(-1), (__m512i)after, (__m512i)v, n);
#endif
  return moved_down<n>(v, after, EveryLane{});
}

template <int... lane>
INLINE Mask lane_numbers(std::integer_sequence<int, lane...>) {
  return Mask{lane...};
}
INLINE Mask lane_numbers() { return lane_numbers(EveryLane{}); }

/* a * b + c. The kernels are compiled without contraction of their own, which the compiler would apply inconsistently:
   fused operations are explicit, and the same cell gives the same bits wherever it is computed. */
INLINE Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
  if constexpr (!IS_FLOAT) return (Vec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX__) && defined(__FMA__)
  if constexpr (IS_FLOAT) return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
  if constexpr (!IS_FLOAT) return (Vec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
  if constexpr (IS_FLOAT) return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
  if constexpr (!IS_FLOAT) return (Vec)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#endif
  return a * b + c;
}

/* sum + more, and what of `more` its rounding has lost: to be added with the next term, where a sum is long. */
struct RoundedSum {
  Vec sum, lost;
};
INLINE RoundedSum rounded_sum(Vec sum, Vec more) {
  const Vec rounded = sum + more;
  return {rounded, more - (rounded - sum)};
}

/* m * 2^d for whole d up to BIAS; 0 far below -BIAS. Without AVX-512 the sum puts d + BIAS into the last bits of a
   float, and the shift makes them its exponent (at BIAS + 1 infinity); AVX-512 has instructions for it. */
INLINE Vec scaled(Vec m, Vec d) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_maskz_scalef_ps(__mmask16(-1), (__m512)m, (__m512)d);
  if constexpr (!IS_FLOAT) return (Vec)_mm512_maskz_scalef_pd(__mmask8(-1), (__m512d)m, (__m512d)d);
#endif
  Vec in_last_bits = max_of(d, splat(-BIAS)) + (SHIFTER + BIAS);
  return m * (Vec)((Mask)in_last_bits << FRACTION_BITS);
}

/* The exponent of x >= the smallest normal number, as a whole number. */
INLINE Vec exponent_of(Vec x) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) return (Vec)_mm512_maskz_getexp_ps(__mmask16(-1), (__m512)x);
  if constexpr (!IS_FLOAT) return (Vec)_mm512_maskz_getexp_pd(__mmask8(-1), (__m512d)x);
#endif
  return (Vec)(((Mask)x >> FRACTION_BITS) | SHIFTER_BITS) - (SHIFTER + BIAS);
}

/* x without its exponent: between 1 and 2. */
INLINE Vec fraction_of(Vec x) { return (Vec)(((Mask)x & FRACTION_MASK) | ONE_BITS); }

/* 1 / x, of x that is neither 0 nor far from 1; where there is an estimate, one step of Newton makes it as good as a
   division and three times as fast. */
INLINE Vec inverse_of(Vec x) {
#if defined(__AVX512F__)
  if constexpr (IS_FLOAT) {
    Vec estimate = (Vec)_mm512_maskz_rcp14_ps(__mmask16(-1), (__m512)x);
    return fma(estimate, fma(-x, estimate, splat(1)), estimate);
  }
#endif
  return Real(1) / x;
}

/* The nearest whole number to a * b; of large products, one that is near. */
INLINE Vec rounded_product(Vec a, Vec b) {
  constexpr Real CENTER = SHIFTER * Real(1.5);
  return fma(a, b, splat(CENTER)) - CENTER;
}

/* A polynomial in f, its highest coefficient first. */
template <class... Coefficients>
INLINE Vec polynomial(Vec f, double highest, Coefficients... others) {
  Vec p = splat(Real(highest));
  ((p = fma(p, f, splat(Real(others)))), ...);
  return p;
}

/* 2^f for f between -1/2 and 1/2: interpolated in Chebyshev nodes; relative error 2.5e-9, for double 4.2e-18. */
INLINE Vec power_of_fraction(Vec f) {
  if constexpr (IS_FLOAT) {
    return polynomial(f, 0.00015461444697569129083, 0.001340042817761583794, 0.0096180566785246380754,
                      0.055503272266703020589, 0.24022650922288758071, 0.69314720670283259577, 1.0);
  } else {
    return polynomial(f, 4.455817908336064493e-10, 7.0741942972885210056e-9, 1.0178057087733941105e-7,
                      1.3215432535912376166e-6, 0.000015252733841556772589, 0.00015403530463724354209,
                      0.0013333558146406470697, 0.0096181291075872566681, 0.055504108664821627039,
                      0.24022650695910159567, 0.69314718055994530925, 1.0);
  }
}

/* log2 of m between 1 and 2, by the series of the inverse hyperbolic tangent around sqrt(2), where |z| <= 0.172. */
INLINE Vec log2_of(Vec m) {
  constexpr double ROOT = 1.4142135623730950488, TWO_OVER_LN2 = 2.8853900817779268147;
  Vec z = (m - Real(ROOT)) / (m + Real(ROOT)), y = z * z;
  constexpr int TERMS = IS_FLOAT ? 5 : 11;
  Vec series = splat(0);
  unrolled<TERMS>([&](auto k) { series = fma(series, y, splat(Real(TWO_OVER_LN2 / (2 * (TERMS - 1 - k) + 1)))); });
  return fma(z, series, splat(Real(0.5)));
}

}  // namespace alignment

#endif
