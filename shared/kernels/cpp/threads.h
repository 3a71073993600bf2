/* Work for several threads at once. */

#ifndef THREADS_H
#define THREADS_H

#include <cstdint>

namespace alignment {

using Parallel = void (*)(void (*function)(void *), void *argument, unsigned threads, unsigned flags);  // GOMP_parallel

void run_with_helpers(Parallel openmp, int64_t count, void (*run)(const void *), const void *given);

/* Runs the work in this thread and concurrently in up to `count` others, of OpenMP if that is given; returns when all are
   done. Each run of the work takes what is left to do, so that it matters to the time only how many there are. */
template <class Work>
void run_with_helpers(Parallel openmp, int64_t count, const Work &work) {
  run_with_helpers(openmp, count, [](const void *given) { (*static_cast<const Work *>(given))(); }, &work);
}

}  // namespace alignment

#endif
