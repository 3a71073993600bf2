#include "run.h"

int32_t alignment_score(const AlignmentCall *call, REAL *scores) {
  return alignment::run<alignment::Pass::score>({*call, nullptr, 0, nullptr, scores, nullptr, nullptr});
}
