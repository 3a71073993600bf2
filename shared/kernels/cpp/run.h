/* A pass over a batch, which is split into tasks that threads process. */

#ifndef RUN_H
#define RUN_H

#include <atomic>

#include "huge_pages.h"
#include "solve.h"
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
    const Plan plan(call);
    std::atomic<size_t> next{0};
    std::atomic<bool> out_of_memory{false};
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
    return out_of_memory ? ALIGNMENT_OUT_OF_MEMORY : ALIGNMENT_OK;
  } catch (const std::exception &) {
    return ALIGNMENT_OUT_OF_MEMORY;
  }
}

}  // namespace alignment

#endif
