/* Work for several threads at once. */

#ifndef THREADS_H
#define THREADS_H

#include <cstdint>

namespace alignment {

using Parallel = void (*)(void (*function)(void *), void *argument, unsigned threads, unsigned flags);  // GOMP_parallel

void run_with_helpers(Parallel openmp, int64_t count, void (*run)(const void *), const void *given);

/* Runs the work in up to `count` + 1 threads, of OpenMP if it is given and not avoided; returns when all
   are done. Each run takes what is left to do, so the number of threads changes only the time. */
template <class Work>
void run_with_helpers(Parallel openmp, int64_t count, const Work &work) {
  run_with_helpers(openmp, count, [](const void *given) { (*static_cast<const Work *>(given))(); }, &work);
}

}  // namespace alignment

#endif
