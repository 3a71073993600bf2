/* Large results in large pages, where the system has them on request.

A result of tens of megabytes is mapped anew by the C library at every call, and the first write to each page of 4 KiB
costs more than the kernel's work on it. */

#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace alignment {

/* Ask for large pages inside [start, start + bytes); does nothing for small ranges. A refusal changes nothing but time. */
inline void ask_for_large_pages([[maybe_unused]] void *start, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = uintptr_t{1} << 21;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(start) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(start) + bytes) / page * page;
  if (start != nullptr && end > first + page) {
    madvise(reinterpret_cast<void *>(first), end - first, MADV_HUGEPAGE);
  }
#endif
}

}  // namespace alignment
