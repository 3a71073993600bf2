/* Huge pages for large results, where the system provides them on request.

The first write to each page of 4 KiB costs about 2 microseconds on a virtual machine: the 6 MB of a small batch's
marginals take as long to be mapped as to be computed, unless the C library still has the memory of an earlier result. */

#ifndef HUGE_PAGES_H
#define HUGE_PAGES_H

#include <cstddef>

namespace alignment {

/* Huge pages for a large result that has not been written yet; may write into it. A refusal only costs time. */
void use_huge_pages(void *start, size_t bytes);

}  // namespace alignment

#endif
