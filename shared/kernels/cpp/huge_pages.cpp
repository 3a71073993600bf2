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

constexpr uintptr_t LARGE_PAGE = uintptr_t{1} << 21;
/* From this size on the C library maps memory. Mapping takes long, so all threads do it as they write. */
constexpr size_t MAPPED_ALONE = size_t{1} << 25;

#ifdef __linux__
/* Whether [start, end), which lies within one huge page, has small pages that have not been written yet. */
bool is_partly_new(uintptr_t start, uintptr_t end) {
  static const uintptr_t small = uintptr_t(sysconf(_SC_PAGESIZE));
  unsigned char mapped[LARGE_PAGE / 4096];  // the smallest page size
  const uintptr_t first = start / small * small;
  const size_t pages = (end - first + small - 1) / small;
  return mincore(reinterpret_cast<void *>(first), end - first, mapped) == 0 &&
         !std::all_of(mapped, mapped + pages, [](unsigned char page) { return page & 1; });
}

/* Advise huge pages for [begin, end), to be used when it is written. */
void advise_large_pages(uintptr_t begin, uintptr_t end) {
  const uintptr_t first = (begin + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE, after = end / LARGE_PAGE * LARGE_PAGE;
  madvise(reinterpret_cast<void *>(first), after - first, MADV_HUGEPAGE);
}

/* Put into large pages what is new of [begin, end), and what stands beside it in the first and the last of them.

Much of a result in the heap is there: the C library has written beside it, and where MADV_HUGEPAGE was asked for, the
heap is in parts that no page can span. */
void collapse_into_large_pages(uintptr_t begin, uintptr_t end) {
  uintptr_t first = end, after = begin;
  for (uintptr_t page = begin / LARGE_PAGE * LARGE_PAGE; page < end; page += LARGE_PAGE) {
    const uintptr_t own = std::max(page, begin);
    if (!is_partly_new(own, std::min(page + LARGE_PAGE, end))) continue;
    *reinterpret_cast<volatile char *>(own) = 0;  // an unmapped range cannot be collapsed
    first = std::min(first, page);
    after = page + LARGE_PAGE;
  }
  if (first < after && madvise(reinterpret_cast<void *>(first), after - first, MADV_COLLAPSE) && errno == EINVAL) {
    advise_large_pages(begin, end);  // an older system
  }
}
#endif

}  // namespace

void take_large_pages([[maybe_unused]] void *start, [[maybe_unused]] size_t bytes) {
#ifdef __linux__
  const uintptr_t begin = reinterpret_cast<uintptr_t>(start), end = begin + bytes;
  if (start == nullptr || bytes < 2 * LARGE_PAGE) return;
  if (bytes < MAPPED_ALONE) {
    collapse_into_large_pages(begin, end);
  } else {
    advise_large_pages(begin, end);
  }
#endif
}

}  // namespace alignment
