#include "run.h"

int32_t alignment_gradients(const AlignmentCall *call, REAL *scores, REAL *d_similarity, REAL *d_parameters) {
  return alignment::run<alignment::Pass::gradients>({*call, nullptr, 0, nullptr, scores, d_similarity, d_parameters});
}
