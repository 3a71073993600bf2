/* The native kernels on buffers of exactly the size that they say they need, for the sanitizers to watch: every kind,
   both layouts, sizes around the width of a vector, NaN in the padding, all pairs of lengths from nothing to full.
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
  int32_t failed = alignment_score(&call, r.add(call.pairs));
  REAL *again = r.add(call.pairs), *marginals = r.add(matrix);
  failed |= alignment_marginals(&call, again, marginals);
  REAL *scores = r.add(call.pairs), *d_similarity = r.add(matrix);
  failed |= alignment_gradients(&call, scores, d_similarity, r.add(values));
  failed |= alignment_tangents(&call, t_similarity, call.rows * call.cols, nullptr, nullptr, r.add(matrix), nullptr);
  REAL *t_scores = r.add(call.pairs), *t_d_similarity = r.add(matrix);
  failed |= alignment_tangents(&call, t_similarity, call.rows * call.cols, t_values, t_scores, t_d_similarity,
                               r.add(values));
  std::unique_ptr<uint8_t[]> matches(new uint8_t[matrix]);
  failed |= alignment_best(&call, r.add(call.pairs), matches.get());
  std::copy(matches.get(), matches.get() + matrix, r.add(matrix));
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
  AlignmentCall call{kind,       options,     1, 0, pairs, rows, cols, similarity.get(), rows * cols, lengths.get(),
                     values.get(), nullptr, nullptr};
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
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 1, 9}, {3, 9, 1}, {20, 7, 5}, {5, 16, 16}, {19, 17, 33},
                              {2, 33, 40}, {3, 0, 4}, {2, 18, 290}};
  for (auto &size : sizes) {
    for (int kind = 0; kind <= ALIGNMENT_FREE_GAP; ++kind) {
      for (int options = 0; options < (kind == ALIGNMENT_AFFINE ? 4 : 1); ++options, ++done) {
        failed += check(kind, options, size[0], size[1], size[2]);
      }
    }
  }
  failed += check(ALIGNMENT_LOCAL_ANY, 0, 24, 60, 70);   // large enough for a second thread
  failed += check(ALIGNMENT_LOCAL_ANY, 0, 1, 300, 400);  // and one that several threads share
  std::printf("%d checks, %d failed\n", done + 2, failed);
  return failed != 0;
}
