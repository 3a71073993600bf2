/* Kernel launches as XLA custom calls. Machine code comes from Python, memory from XLA; the driver launches.

   A call carries its launches as attributes: a line of text for each kernel, and for all launches one list of numbers,
   each launch being (grid, count, count times (kind, value)): the kernel's arguments, where kind says whether value is
   the place of a buffer, arguments before results, or a number of 32 or 64 bits.

   XLA may record a call into a CUDA graph: the launches are all that reaches the stream, they are the same in every
   call, and the addresses that are recorded with them are XLA's to record again when its buffers move. */

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

extern "C" {

// What Python reports of a kernel on a GPU. All pointers stay valid for the life of the process.
struct Found {
  const void *code;  // a cubin
  const char *name;
  const uint8_t *sizes;  // of its parameters, in bytes: those of a launch, then pointers to memory of Triton's own
  int32_t parameters, threads, shared;
  int32_t scratch, blocks;  // bytes of Triton's scratch memory that a launch needs, and blocks of a cluster
  const char *error;  // why there is no code
};

using Find = int32_t (*)(const char *kernel, int32_t capability, Found *found);
// Runs a kernel without a GPU: sizes are those of buffers in bytes. Returns an error's text, or null.
using Interpret = const char *(*)(const char *kernel, int64_t grid, int64_t count, const int64_t *kinds,
                                  const int64_t *values, const int64_t *sizes);
}

namespace {

Find find_kernel;
Interpret interpret_kernel;

enum Kind { BUFFER = 0, NARROW = 1, WIDE = 2 };

struct Launch {
  std::string kernel;
  int64_t grid;
  std::vector<int64_t> kinds, values, sizes;  // buffers as addresses
};

ffi::Error wrong() { return ffi::Error::InvalidArgument("these are no launches"); }

ffi::Error decode(std::string_view kernels, ffi::Span<const int64_t> numbers, ffi::RemainingArgs arguments,
                  ffi::RemainingRets results, std::vector<Launch> &launches) {
  size_t at = 0;
  while (!kernels.empty()) {
    const size_t end = kernels.find('\n');
    if (end == std::string_view::npos || at + 2 > numbers.size()) return wrong();
    Launch launch{std::string(kernels.substr(0, end)), numbers[at], {}, {}, {}};
    const int64_t count = numbers[at + 1];
    at += 2;
    if (launch.grid < 0 || launch.grid > std::numeric_limits<int32_t>::max()) return wrong();
    if (count < 0 || size_t(count) > (numbers.size() - at) / 2) return wrong();
    for (int64_t i = 0; i < count; ++i, at += 2) {
      const int64_t kind = numbers[at];
      int64_t value = numbers[at + 1], size = 0;
      if (kind < BUFFER || kind > WIDE || (kind == NARROW && value != int32_t(value))) return wrong();
      if (kind == BUFFER) {
        const size_t place = size_t(value), own = arguments.size();
        if (place < own) {
          auto buffer = arguments.get<ffi::AnyBuffer>(place);
          if (!buffer.has_value()) return buffer.error();
          value = reinterpret_cast<int64_t>(buffer->untyped_data()), size = int64_t(buffer->size_bytes());
        } else {
          auto buffer = results.get<ffi::AnyBuffer>(place - own);
          if (!buffer.has_value()) return buffer.error();
          value = reinterpret_cast<int64_t>((*buffer)->untyped_data()), size = int64_t((*buffer)->size_bytes());
        }
      }
      launch.kinds.push_back(kind);
      launch.values.push_back(value);
      launch.sizes.push_back(size);
    }
    launches.push_back(std::move(launch));
    kernels.remove_prefix(end + 1);
  }
  return at == numbers.size() ? ffi::Error::Success() : wrong();
}

struct Loaded {
  void *function;
  Found found;
};

std::mutex loading;  // held while a kernel is compiled and loaded, so that no two threads do it
std::mutex knowing;  // held briefly: loaded kernels can be launched while another is compiled
std::map<std::pair<void *, std::string>, Loaded> loaded;  // by context and kernel

bool is_known(void *context, const std::string &kernel, Loaded &result) {
  std::lock_guard<std::mutex> lock(knowing);
  auto known = loaded.find({context, kernel});
  if (known == loaded.end()) return false;
  result = known->second;
  return true;
}

ffi::Error failed(const Driver &driver, const std::string &what, int error) {
  const char *text = nullptr;
  driver.get_error_string(error, &text);
  const std::string reason = text ? text : "error " + std::to_string(error);
  return ffi::Error::Internal("the CUDA driver could not " + what + ": " + reason);
}

// A capture of this thread's, or of another's, forbids what may synchronize, as loading may: but it is not part of one.
struct Relaxed {
  const Driver &driver;
  int mode = STREAM_CAPTURE_MODE_RELAXED;
  int error;

  explicit Relaxed(const Driver &driver) : driver(driver), error(driver.exchange_capture_mode(&mode)) {}
  ~Relaxed() {
    if (!error) driver.exchange_capture_mode(&mode);
  }
};

ffi::Error find(const Driver &driver, const std::string &kernel, Found &found) {
  int device = 0, major = 0, minor = 0;
  int error = driver.get_device(&device);
  if (!error) error = driver.get_attribute(&major, COMPUTE_CAPABILITY_MAJOR, device);
  if (!error) error = driver.get_attribute(&minor, COMPUTE_CAPABILITY_MINOR, device);
  if (error) return failed(driver, "tell what the GPU is", error);
  if (!find_kernel || find_kernel(kernel.c_str(), major * 10 + minor, &found) || !found.code) {
    return ffi::Error::Internal(found.error ? found.error : "there is no compiler for the kernel " + kernel);
  }
  const std::string name = found.name;
  if (found.scratch) {
    return ffi::Error::Internal(name + " needs " + std::to_string(found.scratch) +
                                " bytes of scratch memory; kernels are launched without any");
  }
  if (found.blocks != 1) {
    return ffi::Error::Internal(name + " needs clusters of " + std::to_string(found.blocks) +
                                " blocks; kernels are launched without any");
  }
  return ffi::Error::Success();
}

// In the current context. A failure is retried the next time.
ffi::Error load(const Driver &driver, void *context, const std::string &kernel, Loaded &result) {
  if (is_known(context, kernel, result)) return ffi::Error::Success();
  std::lock_guard<std::mutex> lock(loading);
  if (is_known(context, kernel, result)) return ffi::Error::Success();
  Found &found = result.found;
  ffi::Error absent = find(driver, kernel, found);
  if (absent.failure()) return absent;
  const std::string name = found.name;
  Relaxed relaxed(driver);
  if (relaxed.error) return failed(driver, "let " + name + " be loaded during a capture", relaxed.error);
  void *module = nullptr;
  if (int error = driver.load_module(&module, found.code)) return failed(driver, "load " + name, error);
  std::string what = "find " + name + " in what it has loaded";
  int error = driver.get_function(&result.function, module, found.name);
  if (!error && found.shared > PLAIN_SHARED_BYTES) {
    what = "give " + name + " " + std::to_string(found.shared) + " bytes of shared memory";
    error = driver.set_attribute(result.function, MAX_DYNAMIC_SHARED_SIZE_BYTES, found.shared);
  }
  if (error) {
    driver.unload_module(module);
    return failed(driver, what, error);
  }
  std::lock_guard<std::mutex> moment(knowing);
  loaded[{context, kernel}] = result;
  return ffi::Error::Success();
}

// The driver would read as many parameters as a kernel has, of their sizes, from whatever it is given.
ffi::Error check_parameters(const Found &found, const std::vector<int64_t> &kinds) {
  bool fits = kinds.size() <= size_t(found.parameters);
  for (size_t i = 0; fits && i < size_t(found.parameters); ++i) {
    fits = found.sizes[i] == (i < kinds.size() && kinds[i] == NARROW ? 4 : 8);
  }
  if (fits) return ffi::Error::Success();
  std::string text = std::string(found.name) + " has parameters of";
  for (int32_t i = 0; i < found.parameters; ++i) text += " " + std::to_string(found.sizes[i]);
  text += " bytes, pointers to scratch memory at the end; the launch gives";
  for (int64_t kind : kinds) text += kind == NARROW ? " 4" : " 8";
  return ffi::Error::Internal(text);
}

ffi::Error start(const Driver &driver, void *context, void *stream, Launch &launch) {
  if (!launch.grid) return ffi::Error::Success();  // the driver rejects an empty grid
  Loaded kernel{};
  ffi::Error error = load(driver, context, launch.kernel, kernel);
  if (error.success()) error = check_parameters(kernel.found, launch.kinds);
  if (error.failure()) return error;
  const size_t count = launch.kinds.size();
  void *none = nullptr;  // for Triton's scratch memory, of which none is needed
  std::vector<void *> parameters(size_t(kernel.found.parameters), &none);
  std::vector<int32_t> narrow(count);
  for (size_t i = 0; i < count; ++i) {
    narrow[i] = int32_t(launch.values[i]);
    parameters[i] = launch.kinds[i] == NARROW ? static_cast<void *>(&narrow[i]) : &launch.values[i];
  }
  int status = driver.launch(kernel.function, unsigned(launch.grid), 1, 1, unsigned(kernel.found.threads), 1, 1,
                             unsigned(kernel.found.shared), stream, parameters.data(), nullptr);
  return status ? failed(driver, std::string("launch ") + kernel.found.name, status) : ffi::Error::Success();
}

ffi::Error launch_on_gpu(void *stream, std::string_view kernels, ffi::Span<const int64_t> numbers,
                         ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  static const Driver driver;
  if (!driver.missing.empty()) return ffi::Error::Internal(driver.missing);
  std::vector<Launch> launches;
  ffi::Error error = decode(kernels, numbers, arguments, results, launches);
  if (error.failure()) return error;
  void *context = nullptr, *popped = nullptr;
  if (int refused = driver.get_context(stream, &context)) return failed(driver, "tell a stream's context", refused);
  if (int refused = driver.push_context(context)) return failed(driver, "enter a context", refused);
  for (Launch &launch : launches) {
    error = start(driver, context, stream, launch);
    if (error.failure()) break;
  }
  const int status = driver.pop_context(&popped);
  if (error.success() && status) return failed(driver, "leave a context", status);
  return error;
}

ffi::Error launch_interpreted(std::string_view kernels, ffi::Span<const int64_t> numbers, ffi::RemainingArgs arguments,
                              ffi::RemainingRets results) {
  std::vector<Launch> launches;
  ffi::Error error = decode(kernels, numbers, arguments, results, launches);
  if (error.failure()) return error;
  if (!interpret_kernel) return ffi::Error::Internal("there is no interpreter");
  for (const Launch &launch : launches) {
    const char *text = interpret_kernel(launch.kernel.c_str(), launch.grid, int64_t(launch.kinds.size()),
                                        launch.kinds.data(), launch.values.data(), launch.sizes.data());
    if (text) return ffi::Error::Internal(text);
  }
  return ffi::Error::Success();
}

}  // namespace

#pragma GCC visibility push(default)

extern "C" int32_t use_functions(Find find, Interpret interpret) {
  find_kernel = find;
  interpret_kernel = interpret;
  return 0;
}

// Forgets the kernels. Their modules stay loaded, because they may still be running.
extern "C" int32_t forget_kernels() {
  std::lock_guard<std::mutex> lock(knowing);
  loaded.clear();
  return 0;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_launch_on_gpu, launch_on_gpu,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void *>>()
                                  .Attr<std::string_view>("kernels")
                                  .Attr<ffi::Span<const int64_t>>("launches")
                                  .RemainingArgs()
                                  .RemainingRets(),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_launch_interpreted, launch_interpreted,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("kernels")
                                  .Attr<ffi::Span<const int64_t>>("launches")
                                  .RemainingArgs()
                                  .RemainingRets());

#pragma GCC visibility pop
