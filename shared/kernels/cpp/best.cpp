#include "best.h"
#include "run.h"

namespace alignment {

template <class Kind, bool restricted>
int32_t best(const BestJob &job) {
  const AlignmentCall &call = job.call;
  if ((call.options & ALIGNMENT_CHECK_LENGTHS) && !lengths_inside(call)) return ALIGNMENT_BAD_LENGTHS;
  use_huge_pages(job.matches, size_t(call.pairs) * call.rows * call.cols);
  try {
    std::vector<int64_t> every(call.pairs);
    for (int64_t pair = 0; pair < call.pairs; ++pair) every[pair] = pair;
    const Plan plan = plan_of(call, std::move(every));
    std::atomic<size_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_with_helpers(call.openmp, plan.threads - 1, [&] {  // in each thread that takes part
      const FlushSubnormals flush;
      for (size_t number; (number = next.fetch_add(1)) < plan.tasks.size();) {
        const Task &task = plan.tasks[number];
        try {
          if (task.rows_in_lanes) {
            BestTask<Kind, restricted, RowsSideBySide>(job, task.pairs, task.count).run();
          } else {
            BestTask<Kind, restricted, PairsSideBySide>(job, task.pairs, task.count).run();
          }
        } catch (const std::bad_alloc &) {
          out_of_memory = true;
        }
      }
    });
    return out_of_memory ? ALIGNMENT_OUT_OF_MEMORY : ALIGNMENT_OK;
  } catch (const std::exception &) {
    return ALIGNMENT_OUT_OF_MEMORY;
  }
}

}  // namespace alignment

int32_t alignment_best(const AlignmentCall *call, REAL *scores, uint8_t *matches) {
  using namespace alignment;
  int32_t status = ALIGNMENT_BAD_CALL;
  if (!is_possible(*call)) return status;
  const BestJob job{*call, scores, matches};
  with_recurrence(call->kind, [&](auto kind) {
    using Kind = decltype(kind);
    if constexpr (Kind::states > 1) {
      // with free end gaps a turn may be allowed in the last row only
      const bool restricted = (call->options & ALIGNMENT_RESTRICT_TURNS) && !is_free(*call, ROWS);
      if (restricted) return void(status = best<Kind, true>(job));
    }
    status = best<Kind, false>(job);
  });
  return status;
}
