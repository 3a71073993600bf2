/* The entry points. */

#include "alignment.h"

#include "run.h"

namespace alignment {

// each pass has a file of its own, so that they are compiled in parallel
extern template int32_t run<Pass::score>(const Job &);
extern template int32_t run<Pass::marginals>(const Job &);
extern template int32_t run<Pass::gradients>(const Job &);
extern template int32_t run<Pass::tangents>(const Job &);

}  // namespace alignment

using alignment::Job;
using alignment::Pass;

int32_t alignment_score(const AlignmentCall *call, REAL *scores) {
  return alignment::run<Pass::score>(Job{*call, nullptr, 0, nullptr, scores, nullptr, nullptr});
}

int32_t alignment_gradients(const AlignmentCall *call, REAL *scores, REAL *d_similarity, REAL *d_parameters) {
  Job job{*call, nullptr, 0, nullptr, scores, d_similarity, d_parameters};
  return d_parameters ? alignment::run<Pass::gradients>(job) : alignment::run<Pass::marginals>(job);
}

int32_t alignment_tangents(const AlignmentCall *call, const REAL *t_similarity, int64_t t_pair_stride,
                           const REAL *t_parameters, REAL *t_scores, REAL *t_d_similarity, REAL *t_d_parameters) {
  return alignment::run<Pass::tangents>(
      Job{*call, t_similarity, t_pair_stride, t_parameters, t_scores, t_d_similarity, t_d_parameters});
}

int64_t alignment_exact_pairs(void) { return alignment::exact_pairs; }
