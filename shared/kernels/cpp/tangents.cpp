#include "run.h"

int32_t alignment_tangents(const AlignmentCall *call, const REAL *t_similarity, int64_t t_pair_stride,
                           const REAL *t_parameters, REAL *t_scores, REAL *t_d_similarity, REAL *t_d_parameters) {
  return alignment::run<alignment::Pass::tangents>(
      {*call, t_similarity, t_pair_stride, t_parameters, t_scores, t_d_similarity, t_d_parameters});
}
