#include "huge_pages.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#ifndef MADV_COLLAPSE  // since Linux 6.1
#define MADV_COLLAPSE 25
#endif
#endif

namespace alignment {

namespace {

constexpr uintptr_t HUGE_PAGE = uintptr_t{1} << 21;
/* From this size on malloc maps new memory. Huge pages are then only advised: page faults take long, and this way
   they are spread over all threads, as these write. */
constexpr size_t LEAST_MMAP = size_t{1} << 25;

#ifdef __linux__
/* Whether [start, end), which lies within one huge page, has small pages that have not been written yet. */
bool is_partly_new(uintptr_t start, uintptr_t end) {
  static const uintptr_t small = uintptr_t(sysconf(_SC_PAGESIZE));
  unsigned char mapped[HUGE_PAGE / 4096];  // the smallest page size
  const uintptr_t first = start / small * small;
  const size_t pages = (end - first + small - 1) / small;
  return mincore(reinterpret_cast<void *>(first), end - first, mapped) == 0 &&
         !std::all_of(mapped, mapped + pages, [](unsigned char page) { return page & 1; });
}

/* Advise huge pages for [begin, end), to be used when it is written. */
void advise_huge_pages(uintptr_t begin, uintptr_t end) {
  const uintptr_t first = (begin + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, after = end / HUGE_PAGE * HUGE_PAGE;
  madvise(reinterpret_cast<void *>(first), after - first, MADV_HUGEPAGE);
}

/* Collapse into huge pages the parts of [begin, end) that have not been written yet, with what shares their pages.

MADV_HUGEPAGE is not enough in the heap: it has no effect where small pages are mapped already, such as those that the
C library has written beside the result, and it splits the heap into mappings, which no huge page can span. */
void collapse_into_huge_pages(uintptr_t begin, uintptr_t end) {
  uintptr_t first = end, after = begin;
  for (uintptr_t page = begin / HUGE_PAGE * HUGE_PAGE; page < end; page += HUGE_PAGE) {
    const uintptr_t own = std::max(page, begin);
    if (!is_partly_new(own, std::min(page + HUGE_PAGE, end))) continue;
    *reinterpret_cast<volatile char *>(own) = 0;  // an unmapped range cannot be collapsed
    first = std::min(first, page);
    after = page + HUGE_PAGE;
  }
  if (first < after && madvise(reinterpret_cast<void *>(first), after - first, MADV_COLLAPSE) && errno == EINVAL) {
    advise_huge_pages(begin, end);  // an older system
  }
}
#endif

}  // namespace

void use_huge_pages([[maybe_unused]] void *start, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  const uintptr_t begin = reinterpret_cast<uintptr_t>(start), end = begin + bytes;
  if (start == nullptr || bytes < 2 * HUGE_PAGE) return;
  if (bytes < LEAST_MMAP) {
    collapse_into_huge_pages(begin, end);
  } else {
    advise_huge_pages(begin, end);
  }
#endif
}

}  // namespace alignment
