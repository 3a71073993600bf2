/* A pass over a batch, which is split into tasks that threads process. */

#ifndef RUN_H
#define RUN_H

#include <atomic>

#include "huge_pages.h"
#include "solve_tiles.h"
#include "subnormals.h"
#include "threads.h"

namespace alignment {

template <Pass pass, template <class, Pass> class Layout>
void solve_kind(const Job &job, const int64_t *pairs, int count) {
  switch (job.call.kind) {
    case ALIGNMENT_LOCAL_ANY: return solve<LocalLinear<End::anywhere>, pass, Layout>(job, pairs, count);
    case ALIGNMENT_LOCAL_MATCH: return solve<LocalLinear<End::after_match>, pass, Layout>(job, pairs, count);
    case ALIGNMENT_AFFINE: return solve<LocalAffine, pass, Layout>(job, pairs, count);
    default: return solve<GlobalLinear, pass, Layout>(job, pairs, count);
  }
}

inline std::atomic<int64_t> exact_pairs{0};  // of this process, of those that were tried in plain odds

/* A pair in plain odds. False if it needs an exponent per cell. */
template <class Kind, Pass pass>
bool solve_plainly(const Job &job, int64_t pair, Scratch &scratch, uint8_t &has_score) {
  Tiles<Kind, pass> tiles(job, pair);
  const bool solved = tiles.solve(scratch);
  has_score = tiles.has_score;
  if (!solved && tiles.has_score && pass != Pass::tangents) job.scores[pair] = tiles.score();
  return solved;
}

template <Pass pass>
bool solve_plainly(const Job &job, int64_t pair, Scratch &scratch, uint8_t &has_score) {
  switch (job.call.kind) {
    case ALIGNMENT_LOCAL_ANY: return solve_plainly<LocalLinear<End::anywhere>, pass>(job, pair, scratch, has_score);
    case ALIGNMENT_LOCAL_MATCH: return solve_plainly<LocalLinear<End::after_match>, pass>(job, pair, scratch, has_score);
    case ALIGNMENT_AFFINE: return solve_plainly<LocalAffine, pass>(job, pair, scratch, has_score);
    default: return solve_plainly<GlobalLinear, pass>(job, pair, scratch, has_score);
  }
}

template <Pass pass>
int32_t run(const Job &job) {
  const AlignmentCall &call = job.call;
  if (call.kind < ALIGNMENT_LOCAL_ANY || call.kind > ALIGNMENT_FREE_GAP || call.layout < ALIGNMENT_CHOOSE ||
      call.layout > ALIGNMENT_ROWS || call.pairs < 0 || call.rows < 0 || call.cols < 0) {
    return ALIGNMENT_BAD_CALL;
  }
  if ((call.options & ALIGNMENT_CHECK_LENGTHS) && !lengths_inside(call)) return ALIGNMENT_BAD_LENGTHS;
  take_large_pages(job.d_similarity, sizeof(REAL) * call.pairs * call.rows * call.cols);
  try {
    std::vector<int64_t> pairs(call.pairs);
    std::iota(pairs.begin(), pairs.end(), 0);
    std::atomic<bool> out_of_memory{false};
    std::vector<uint8_t> has_score(call.pairs), left(call.pairs);
    if (IS_FLOAT && call.layout == ALIGNMENT_CHOOSE) {
      std::atomic<int64_t> next{0};
      int64_t cells = 0;
      for (int64_t pair : pairs) {
        const Size size = size_of(call, pair);
        cells += size.rows * size.cols;
      }
      const int64_t threads = std::min<int64_t>({std::max(call.threads, 1), cells / CELLS_PER_THREAD + 1, std::max<int64_t>(call.pairs, 1)});
      auto work = [&] {
        const FlushSubnormals flush;
        static thread_local Scratch scratch;
        for (int64_t number; (number = next.fetch_add(1)) < call.pairs;) {
          try {
            left[number] = !solve_plainly<pass>(job, number, scratch, has_score[number]);
          } catch (const std::bad_alloc &) {
            out_of_memory = true;
          }
        }
        scratch.end();
      };
      Helpers::run(threads - 1, work);
      pairs.erase(std::remove_if(pairs.begin(), pairs.end(), [&](int64_t pair) { return !left[pair]; }), pairs.end());
      exact_pairs += int64_t(pairs.size());
      if (pairs.empty() || out_of_memory) return out_of_memory ? ALIGNMENT_OUT_OF_MEMORY : ALIGNMENT_OK;
    }
    std::vector<REAL> scores(has_score.size());
    if (job.scores && pass != Pass::tangents) std::copy(job.scores, job.scores + call.pairs, scores.begin());
    const std::vector<int64_t> exact = pairs;
    const Plan plan(call, std::move(pairs));
    std::atomic<size_t> next{0};
    auto work = [&] {  // in each thread that takes part
      const FlushSubnormals flush;
      for (size_t number; (number = next.fetch_add(1)) < plan.tasks.size();) {
        const Task &task = plan.tasks[number];
        try {
          if (task.rows_in_lanes) {
            solve_kind<pass, RowsSideBySide>(job, task.pairs, task.count);
          } else {
            solve_kind<pass, PairsSideBySide>(job, task.pairs, task.count);
          }
        } catch (const std::bad_alloc &) {
          out_of_memory = true;
        }
      }
    };
    Helpers::run(plan.threads - 1, work);
    if (pass != Pass::tangents) {
      for (int64_t pair : exact) if (has_score[pair]) job.scores[pair] = scores[pair];
    }
    return out_of_memory ? ALIGNMENT_OUT_OF_MEMORY : ALIGNMENT_OK;
  } catch (const std::exception &) {
    return ALIGNMENT_OUT_OF_MEMORY;
  }
}

}  // namespace alignment

#endif
