/* Numbers too small for a normal float, which some CPUs work on a hundred times slower, are 0 while a kernel works. */

#ifndef SUBNORMALS_H
#define SUBNORMALS_H

#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace alignment {

/* While it lives, this thread reads and writes every subnormal number as 0, whatever the caller has chosen: a result
   does not depend on it. Then the thread is as it was. Elsewhere than on x86-64 and AArch64 it does nothing. */
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(control()) { set_control(before_ | FLUSH); }
  ~FlushSubnormals() { set_control(before_); }
  FlushSubnormals(const FlushSubnormals &) = delete;
  FlushSubnormals &operator=(const FlushSubnormals &) = delete;

 private:
#if defined(__x86_64__)
  using Control = uint32_t;
  static constexpr Control FLUSH = 1u << 15 | 1u << 6;  // MXCSR: flush to zero (results), denormals are zero (operands)
  static Control control() { return _mm_getcsr(); }
  static void set_control(Control control) { _mm_setcsr(control); }
#elif defined(__aarch64__)
  using Control = uint64_t;
  static constexpr Control FLUSH = 1u << 24;  // FPCR.FZ: both
  static Control control() {
    Control control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set_control(Control control) { __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
#else
  using Control = int;
  static constexpr Control FLUSH = 0;
  static Control control() { return 0; }
  static void set_control(Control) {}
#endif

  const Control before_;
};

}  // namespace alignment

#endif
