/* The native kernels of a KIND on buffers of exactly the size that they say they need, for the sanitizers to watch: both
   layouts, sizes around the width of a vector, NaN in the padding, all pairs of lengths from nothing to full; and
   built with BY_POSITION, every choice of gaps by position, and none.
   Ends with 0 if layouts and thread counts gave the same bits; else says what differed and ends with 1. */

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "alignment.h"

namespace {

uint32_t state = 1;
REAL uniform() {  // between -1 and 1
  state = state * 1664525u + 1013904223u;
  return REAL(int32_t(state)) / REAL(2147483648.0);
}

using Numbers = std::unique_ptr<REAL[]>;
Numbers numbers(size_t count) { return Numbers(new REAL[count]); }

struct Results {
  std::vector<Numbers> arrays;
  std::vector<size_t> sizes;
  REAL *add(size_t count) {
    arrays.push_back(numbers(count));
    sizes.push_back(count);
    return arrays.back().get();
  }
  bool operator==(const Results &other) const {
    for (size_t a = 0; a < arrays.size(); ++a) {
      if (std::memcmp(arrays[a].get(), other.arrays[a].get(), sizes[a] * sizeof(REAL)) != 0) return false;
    }
    return true;
  }
};

Results run(AlignmentCall call, int count, int layout, int threads, const REAL *t_similarity, const REAL *t_values) {
  call.layout = layout, call.threads = threads;
  const size_t matrix = call.pairs * call.rows * call.cols, values = call.pairs * count;
  Results r;
  AlignmentGap gaps[2] = {}, product_gaps[2] = {};
  for (int g = 0; g < 2; ++g) {
    if (!(call.options & (ALIGNMENT_OPEN_BY_POSITION << g))) continue;
    product_gaps[g] = gaps[g] = call.gaps[g];
    product_gaps[g].t_costs = nullptr;
  }
  auto new_results = [&] {
    for (int g = 0; g < 2; ++g) gaps[g].d_costs = gaps[g].costs ? r.add(matrix) : nullptr;
  };
  call.gaps = gaps;
  new_results();
  int32_t failed = alignment_score(&call, r.add(call.pairs));
  REAL *again = r.add(call.pairs), *marginals = r.add(matrix);
  failed |= alignment_marginals(&call, again, marginals);
  REAL *scores = r.add(call.pairs), *d_similarity = r.add(matrix);
  failed |= alignment_gradients(&call, scores, d_similarity, r.add(values));
  call.gaps = product_gaps;
  failed |= alignment_tangents(&call, t_similarity, call.rows * call.cols, nullptr, nullptr, r.add(matrix), nullptr);
  call.gaps = gaps;
  new_results();
  REAL *t_scores = r.add(call.pairs), *t_d_similarity = r.add(matrix);
  failed |= alignment_tangents(&call, t_similarity, call.rows * call.cols, t_values, t_scores, t_d_similarity,
                               r.add(values));
#ifdef BY_POSITION  // which has the best alignments of gaps that are numbers too
  std::unique_ptr<uint8_t[]> matches(new uint8_t[matrix]);
  failed |= alignment_best(&call, r.add(call.pairs), matches.get());
  std::copy(matches.get(), matches.get() + matrix, r.add(matrix));
#endif
  if (failed) std::printf("a call failed\n"), std::exit(1);
  return r;
}

int check(int kind, int options, int64_t pairs, int64_t rows, int64_t cols) {
  const int count = kind == ALIGNMENT_AFFINE ? 3 : kind == ALIGNMENT_FREE_GAP ? 1 : 2;
  Numbers similarity = numbers(pairs * rows * cols), t_similarity = numbers(pairs * rows * cols);
  Numbers values = numbers(pairs * count), t_values = numbers(pairs * count);
  std::unique_ptr<int32_t[]> lengths(new int32_t[2 * pairs]);
  for (int64_t p = 0; p < pairs; ++p) {
    lengths[2 * p] = p == 0 ? int32_t(rows) : int32_t(std::abs(uniform()) * REAL(rows + 1));
    lengths[2 * p + 1] = p == 0 ? int32_t(cols) : int32_t(std::abs(uniform()) * REAL(cols + 1));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        bool inside = i < lengths[2 * p] && j < lengths[2 * p + 1];
        REAL s = 3 * uniform();
        if (s > REAL(2.9)) s = -INFINITY;
        similarity[(p * rows + i) * cols + j] = inside ? s : NAN;
        t_similarity[(p * rows + i) * cols + j] = inside ? uniform() : NAN;
      }
    }
    for (int v = 0; v < count; ++v) values[p * count + v] = uniform(), t_values[p * count + v] = uniform();
    values[p * count + count - 1] = p % 5 == 4 ? REAL(0) : std::pow(REAL(10), 3 * uniform());  // temperature
  }
  Numbers costs[4];
  for (Numbers &matrix : costs) {
    matrix = numbers(pairs * rows * cols);
    for (int64_t k = 0; k < pairs * rows * cols; ++k) matrix[k] = std::isnan(t_similarity[k]) ? NAN : 2 * uniform() - 1;
  }
  const AlignmentGap gaps[] = {{costs[0].get(), rows * cols, costs[1].get(), rows * cols, nullptr},
                               {costs[2].get(), rows * cols, costs[3].get(), rows * cols, nullptr}};
  AlignmentCall call{kind,       options,     1, 0, pairs, rows, cols, similarity.get(), rows * cols, lengths.get(),
                     values.get(), nullptr, gaps};
  Results by_pairs = run(call, count, ALIGNMENT_PAIRS, 1, t_similarity.get(), t_values.get());
  Results by_rows = run(call, count, ALIGNMENT_ROWS, 1, t_similarity.get(), t_values.get());
  Results by_one = run(call, count, ALIGNMENT_CHOOSE, 1, t_similarity.get(), t_values.get());
  Results by_two = run(call, count, ALIGNMENT_CHOOSE, 2, t_similarity.get(), t_values.get());
  if (by_pairs == by_rows && by_one == by_two) return 0;
  std::printf("kind %d, options %d, %d pairs of %d x %d: layouts or thread counts differ\n", kind, options, int(pairs),
              int(rows), int(cols));
  return 1;
}

}  // namespace

int main() {
  int failed = 0, done = 0;
#ifdef BY_POSITION
  const std::vector<int> by_position = {ALIGNMENT_OPEN_BY_POSITION, ALIGNMENT_EXTEND_BY_POSITION,
                                        ALIGNMENT_OPEN_BY_POSITION | ALIGNMENT_EXTEND_BY_POSITION, 0};
#else
  const std::vector<int> by_position = {0};
#endif
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 1, 9}, {3, 9, 1}, {20, 7, 5}, {5, 16, 16}, {19, 17, 33},
                              {2, 33, 40}, {3, 0, 4}, {2, 18, 290}};
  for (auto &size : sizes) {
    for (int kind = KIND; kind <= (KIND == ALIGNMENT_GLOBAL ? ALIGNMENT_FREE_GAP : KIND); ++kind) {
      std::vector<int> seen;
      for (int gaps : by_position) {
        if (kind == ALIGNMENT_FREE_GAP) gaps = 0;
        if (kind != ALIGNMENT_AFFINE) gaps &= ~ALIGNMENT_EXTEND_BY_POSITION;
        if (std::find(seen.begin(), seen.end(), gaps) != seen.end()) continue;
        seen.push_back(gaps);
        // affine gaps may turn in four ways, which need the same memory: each choice of gaps with each of them
        const int options = kind == ALIGNMENT_AFFINE ? (done + done / 4) % 4 : 0;
        failed += check(kind, options | gaps, size[0], size[1], size[2]), ++done;
      }
    }
  }
  failed += check(KIND, by_position[0], 24, 60, 70);   // large enough for a second thread
  failed += check(KIND, by_position[0], 1, 300, 400);  // and one that several threads share
  std::printf("%d checks, %d failed\n", done + 2, failed);
  return failed != 0;
}
