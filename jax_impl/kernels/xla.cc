/* The native kernels as XLA custom calls: buffers become pointers, and only the parameters are copied.

   Compiled once per dtype, with REAL as the kernels have it. Matrices are (*batch, rows, cols), lengths (*batch, 2),
   scores and each parameter (*batch), with any number of batch axes; each parameter and its gradient has a buffer
   of its own, in the order of alignment.h, which for a gap by position is a matrix. The kernels themselves are put into
   `alignment_kernels` when a call is traced. */

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

#include "alignment.h"
#include "tiles.h"  // for a compiler that cannot take the kernels to fail here, while "auto" has another choice
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

enum { ONE_FOR_A_PAIR, BY_POSITION_IN_CELLS, ONE_FOR_AN_AXIS, FORMS };  // of gaps, in the order of cpp.FORMS
enum { SCORE, MARGINALS, GRADIENTS, TANGENTS, BEST, PASSES };  // in the order of cpp.PASSES

}  // namespace

extern "C" {
// by the form of the gaps, kind, and pass
__attribute__((visibility("default"))) void *alignment_kernels[FORMS][ALIGNMENT_KINDS][PASSES];
}

namespace {

using In = ffi::AnyBuffer;
using Out = ffi::Result<ffi::AnyBuffer>;

constexpr ffi::DataType DTYPE = sizeof(REAL) == sizeof(float) ? ffi::DataType::F32 : ffi::DataType::F64;

bool is_real(const In &buffer, int64_t elements) {
  return buffer.element_type() == DTYPE && int64_t(buffer.element_count()) == elements;
}

const REAL *reals(const In &buffer) { return static_cast<const REAL *>(buffer.untyped_data()); }
REAL *reals(Out &buffer) { return static_cast<REAL *>(buffer->untyped_data()); }

// The number of cores that this process may use, which can be fewer than the machine has.
int32_t usable_cores() {
#ifdef __linux__
  cpu_set_t own;
  if (sched_getaffinity(0, sizeof own, &own) == 0) return std::max(1, CPU_COUNT(&own));
#endif
  return std::max(1, int32_t(std::thread::hardware_concurrency()));
}

// The pairs' parameters interleaved, as the kernels expect them.
class Parameters {
 public:
  Parameters(int64_t pairs, int64_t count) : pairs(pairs), count(count), values(pairs * count) {}

  REAL *data() { return values.data(); }

  void take(int64_t index, const In &from) {
    for (int64_t pair = 0; pair < pairs; ++pair) values[pair * count + index] = reals(from)[pair];
  }

  void give(int64_t index, Out &to) const {
    for (int64_t pair = 0; pair < pairs; ++pair) reals(to)[pair] = values[pair * count + index];
  }

 private:
  int64_t pairs, count;
  std::vector<REAL> values;
};

// A call as alignment.h expects it, or why it is impossible.
struct Call {
  AlignmentCall call{};
  AlignmentGap gaps[2]{};
  void *kernel = nullptr;
  Parameters parameters;
  ffi::Error error = ffi::Error::Success();

  Call(int32_t kind, int32_t options, int pass, const In &similarity, const In &lengths, ffi::RemainingArgs rest,
       int64_t count)
      : parameters(pairs_of(similarity), count) {
    auto shape = similarity.dimensions();
    call.kind = kind;
    call.options = options;
    call.layout = ALIGNMENT_CHOOSE;
    call.threads = usable_cores();
    call.pairs = pairs_of(similarity);
    call.rows = shape[shape.size() - 2];
    call.cols = shape[shape.size() - 1];
    call.pair_stride = call.rows * call.cols;
    call.similarity = reals(similarity);
    call.lengths = static_cast<const int32_t *>(lengths.untyped_data());
    if (!is_real(similarity, call.pairs * call.pair_stride)) refuse("similarity");
    if (lengths.element_type() != ffi::DataType::S32 || int64_t(lengths.element_count()) != 2 * call.pairs) {
      refuse("lengths");
    }
    put(parameters, &AlignmentGap::costs, rest, 0, count);
    call.parameters = parameters.data();
    for (AlignmentGap &gap : gaps) gap.stride = gap.t_stride = call.pair_stride;
    if (is_by_position(0) || is_by_position(1)) call.gaps = gaps;
    const int form = options & ALIGNMENT_BY_AXIS ? ONE_FOR_AN_AXIS : call.gaps ? BY_POSITION_IN_CELLS : ONE_FOR_A_PAIR;
    if (kind >= 0 && kind < ALIGNMENT_KINDS) kernel = alignment_kernels[form][kind][pass];
    if (!kernel) error = ffi::Error::InvalidArgument("no such call of the alignment kernels was traced in this process");
  }

  /* The kernel as one of the functions of alignment.h, none of which is linked. */
  template <class Function>
  Function *as() const {
    return reinterpret_cast<Function *>(kernel);
  }

  /* The parameters, or a direction of theirs, and where gaps by position are to have their matrices. */
  void put(Parameters &to, const REAL *AlignmentGap::*matrix, ffi::RemainingArgs rest, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      auto buffer = rest.get<In>(first + i);
      int64_t elements = is_by_position(i) ? call.pairs * call.pair_stride : call.pairs;
      if (!buffer.has_value() || !is_real(*buffer, elements)) return refuse("a parameter");
      if (is_by_position(i)) {
        gaps[i].*matrix = reals(*buffer);
      } else {
        to.take(i, *buffer);
      }
    }
  }

  /* Have the kernel write the derivatives for gaps by position. */
  ffi::Error write_to(ffi::RemainingRets rest) {
    for (size_t i = 0; i < rest.size(); ++i) {
      auto buffer = rest.get<ffi::AnyBuffer>(i);
      if (!buffer.has_value()) return buffer.error();
      if (is_by_position(int64_t(i))) gaps[i].d_costs = reals(*buffer);
    }
    return ffi::Error::Success();
  }

  /* The derivatives for the other parameters. */
  ffi::Error give(const Parameters &derivatives, ffi::RemainingRets rest) const {
    for (size_t i = 0; i < rest.size(); ++i) {
      auto buffer = rest.get<ffi::AnyBuffer>(i);
      if (!buffer.has_value()) return buffer.error();
      if (!is_by_position(int64_t(i))) derivatives.give(int64_t(i), *buffer);
    }
    return ffi::Error::Success();
  }

  ffi::Error result(int32_t status) const {
    if (status == ALIGNMENT_OK) return ffi::Error::Success();
    if (status == ALIGNMENT_OUT_OF_MEMORY) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "out of memory");
    return ffi::Error::InvalidArgument("the alignment kernel does not know this call");
  }

  void refuse(const char *what) {
    error = ffi::Error::InvalidArgument(std::string("the alignment kernel cannot take ") + what);
  }

 private:
  /* Whether a parameter, by its number, is a matrix: their options have the order of the gaps. */
  bool is_by_position(int64_t number) const {
    return number < 2 && call.options & (ALIGNMENT_OPEN_BY_POSITION << number);
  }

  static int64_t pairs_of(const In &similarity) {
    auto shape = similarity.dimensions();
    int64_t pairs = 1;
    for (size_t axis = 0; axis + 2 < shape.size(); ++axis) pairs *= shape[axis];
    return pairs;
  }
};

ffi::Error score(int32_t kind, int32_t options, In similarity, In lengths, ffi::RemainingArgs rest, Out scores) {
  Call own(kind, options, SCORE, similarity, lengths, rest, int64_t(rest.size()));
  if (own.error.failure()) return own.error;
  return own.result(own.as<decltype(alignment_score)>()(&own.call, reals(scores)));
}

ffi::Error marginals(int32_t kind, int32_t options, In similarity, In lengths, ffi::RemainingArgs rest, Out scores,
                     Out d_similarity) {
  Call own(kind, options, MARGINALS, similarity, lengths, rest, int64_t(rest.size()));
  if (own.error.failure()) return own.error;
  return own.result(own.as<decltype(alignment_marginals)>()(&own.call, reals(scores), reals(d_similarity)));
}

ffi::Error gradients(int32_t kind, int32_t options, In similarity, In lengths, ffi::RemainingArgs rest, Out scores,
                     Out d_similarity, ffi::RemainingRets d_rest) {
  const int64_t count = int64_t(rest.size());
  Call own(kind, options, GRADIENTS, similarity, lengths, rest, count);
  if (own.error.failure()) return own.error;
  Parameters d_parameters(own.call.pairs, count);
  ffi::Error error = own.write_to(d_rest);
  if (error.failure()) return error;
  error = own.result(
      own.as<decltype(alignment_gradients)>()(&own.call, reals(scores), reals(d_similarity), d_parameters.data()));
  return error.failure() ? error : own.give(d_parameters, d_rest);
}

ffi::Error tangents(int32_t kind, int32_t options, In similarity, In lengths, In t_similarity, ffi::RemainingArgs rest,
                    Out t_scores, Out t_d_similarity, ffi::RemainingRets t_d_rest) {
  const int64_t count = int64_t(rest.size()) / 2;
  Call own(kind, options, TANGENTS, similarity, lengths, rest, count);
  Parameters t_parameters(own.call.pairs, count), t_d_parameters(own.call.pairs, count);
  own.put(t_parameters, &AlignmentGap::t_costs, rest, count, count);
  if (!is_real(t_similarity, int64_t(similarity.element_count()))) own.refuse("a tangent");
  if (own.error.failure()) return own.error;
  ffi::Error error = own.write_to(t_d_rest);
  if (error.failure()) return error;
  error = own.result(own.as<decltype(alignment_tangents)>()(
      &own.call, reals(t_similarity), own.call.pair_stride, t_parameters.data(), reals(t_scores), reals(t_d_similarity),
      t_d_parameters.data()));
  return error.failure() ? error : own.give(t_d_parameters, t_d_rest);
}

ffi::Error product(int32_t kind, int32_t options, In similarity, In lengths, In t_similarity, ffi::RemainingArgs rest,
                   Out t_d_similarity) {
  Call own(kind, options, TANGENTS, similarity, lengths, rest, int64_t(rest.size()));
  if (!is_real(t_similarity, int64_t(similarity.element_count()))) own.refuse("a tangent");
  if (own.error.failure()) return own.error;
  return own.result(own.as<decltype(alignment_tangents)>()(
      &own.call, reals(t_similarity), own.call.pair_stride, nullptr, nullptr, reals(t_d_similarity), nullptr));
}

ffi::Error best(int32_t kind, int32_t options, In similarity, In lengths, ffi::RemainingArgs rest, Out scores,
                Out matches) {
  Call own(kind, options, BEST, similarity, lengths, rest, int64_t(rest.size()));
  if (own.error.failure()) return own.error;
  uint8_t *truths = static_cast<uint8_t *>(matches->untyped_data());
  return own.result(own.as<decltype(alignment_best)>()(&own.call, reals(scores), truths));
}

// what the binding of every call begins with: kind and options, similarity and lengths
auto which_alignment() {
  return ffi::Ffi::Bind().Attr<int32_t>("kind").Attr<int32_t>("options").Arg<In>().Arg<In>();
}

}  // namespace

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_score, score,
                              which_alignment()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_marginals, marginals,
                              which_alignment()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_gradients, gradients,
                              which_alignment()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_product, product,
                              which_alignment()
                                  .Arg<In>()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_tangents, tangents,
                              which_alignment()
                                  .Arg<In>()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_best, best,
                              which_alignment()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Ret<ffi::AnyBuffer>());

#pragma GCC visibility pop
