/* Kernel launches as calls that XLA makes. Machine code comes from Python, memory from XLA, the launch is the driver's.

   A call carries its launches as attributes: a line of text for each kernel, and for all launches one list of numbers,
   each launch being (grid, count, count times (kind, value)): the kernel's arguments, where kind says whether value is
   the place of a buffer, arguments before results, or a number of 32 or 64 bits. Nothing of CUDA is needed to compile
   this; the driver is looked for when the first kernel is launched. */

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

extern "C" {

// What Python says of a kernel on a GPU. Everything stays where it is for the life of the process.
struct Found {
  const void *code;  // a cubin
  const char *name;
  int32_t threads, shared;
  const char *error;  // why there is none
};

using Find = int32_t (*)(const char *kernel, int32_t capability, Found *found);
// Runs a kernel by other means than a GPU: sizes are those of buffers in bytes. Gives an error's text, or null.
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
    if (count < 0 || at + 2 * size_t(count) > numbers.size()) return wrong();
    for (int64_t i = 0; i < count; ++i, at += 2) {
      int64_t value = numbers[at + 1], size = 0;
      if (numbers[at] == BUFFER) {
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
      launch.kinds.push_back(numbers[at]);
      launch.values.push_back(value);
      launch.sizes.push_back(size);
    }
    launches.push_back(std::move(launch));
    kernels.remove_prefix(end + 1);
  }
  return at == numbers.size() ? ffi::Error::Success() : wrong();
}

// The part of the driver's interface that is used here, as cuda.h has it.
struct Driver {
  int (*get_context)(void *stream, void **context);
  int (*push_context)(void *context);
  int (*pop_context)(void **context);
  int (*get_device)(int *device);
  int (*get_attribute)(int *value, int attribute, int device);
  int (*load_module)(void **module, const void *code);
  int (*get_function)(void **function, void *module, const char *name);
  int (*set_attribute)(void *function, int attribute, int value);
  int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
  int (*get_error_string)(int error, const char **text);
  const char *missing = nullptr;

  Driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
      missing = "libcuda.so.1";
      return;
    }
    auto take = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (!function) missing = name;
    };
    take(get_context, "cuStreamGetCtx");
    take(push_context, "cuCtxPushCurrent_v2");
    take(pop_context, "cuCtxPopCurrent_v2");
    take(get_device, "cuCtxGetDevice");
    take(get_attribute, "cuDeviceGetAttribute");
    take(load_module, "cuModuleLoadData");
    take(get_function, "cuModuleGetFunction");
    take(set_attribute, "cuFuncSetAttribute");
    take(launch, "cuLaunchKernel");
    take(get_error_string, "cuGetErrorString");
  }
};

constexpr int CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_...
constexpr int DYNAMIC_SHARED = 8;                            // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int32_t PLAIN_SHARED = 48 * 1024;                  // more has to be asked for

struct Loaded {
  void *function;
  int32_t threads, shared;
};

std::mutex loading;
std::map<std::pair<void *, std::string>, Loaded> loaded;  // by context and kernel

ffi::Error failed(const Driver &driver, const char *what, int error) {
  const char *text = nullptr;
  driver.get_error_string(error, &text);
  return ffi::Error::Internal(std::string("the CUDA driver could not ") + what + ": " + (text ? text : "no reason"));
}

ffi::Error load(const Driver &driver, void *context, const std::string &kernel, Loaded &result) {
  std::lock_guard<std::mutex> lock(loading);
  auto known = loaded.find({context, kernel});
  if (known != loaded.end()) {
    result = known->second;
    return ffi::Error::Success();
  }
  int device = 0, major = 0, minor = 0;
  int error = driver.get_device(&device);
  if (!error) error = driver.get_attribute(&major, CAPABILITY_MAJOR, device);
  if (!error) error = driver.get_attribute(&minor, CAPABILITY_MINOR, device);
  if (error) return failed(driver, "tell what the GPU is", error);
  Found found{};
  if (!find_kernel || find_kernel(kernel.c_str(), major * 10 + minor, &found)) {
    return ffi::Error::Internal(found.error ? found.error : "there is no compiler for this kernel");
  }
  void *module = nullptr;
  if ((error = driver.load_module(&module, found.code))) return failed(driver, "load a kernel", error);
  if ((error = driver.get_function(&result.function, module, found.name))) return failed(driver, "find a kernel", error);
  if (found.shared > PLAIN_SHARED && (error = driver.set_attribute(result.function, DYNAMIC_SHARED, found.shared))) {
    return failed(driver, "give a kernel its shared memory", error);
  }
  result.threads = found.threads;
  result.shared = found.shared;
  loaded[{context, kernel}] = result;
  return ffi::Error::Success();
}

ffi::Error start(const Driver &driver, void *context, void *stream, Launch &launch) {
  Loaded kernel{};
  ffi::Error error = load(driver, context, launch.kernel, kernel);
  if (error.failure()) return error;
  std::vector<int32_t> narrow(launch.kinds.size());
  std::vector<void *> parameters;
  for (size_t i = 0; i < launch.kinds.size(); ++i) {
    narrow[i] = int32_t(launch.values[i]);
    parameters.push_back(launch.kinds[i] == NARROW ? static_cast<void *>(&narrow[i]) : &launch.values[i]);
  }
  // Triton's kernels end with two pointers to memory of its own, which these have no use for
  void *none = nullptr;
  parameters.push_back(&none);
  parameters.push_back(&none);
  int status = driver.launch(kernel.function, unsigned(launch.grid), 1, 1, unsigned(kernel.threads), 1, 1,
                             unsigned(kernel.shared), stream, parameters.data(), nullptr);
  return status ? failed(driver, "launch a kernel", status) : ffi::Error::Success();
}

ffi::Error launch_on_gpu(void *stream, std::string_view kernels, ffi::Span<const int64_t> numbers,
                         ffi::RemainingArgs arguments, ffi::RemainingRets results) {
  static const Driver driver;
  if (driver.missing) {
    return ffi::Error::Internal(std::string("the CUDA driver has no ") + driver.missing);
  }
  std::vector<Launch> launches;
  ffi::Error error = decode(kernels, numbers, arguments, results, launches);
  if (error.failure()) return error;
  void *context = nullptr, *popped = nullptr;
  if (int status = driver.get_context(stream, &context)) return failed(driver, "tell a stream's context", status);
  if (int status = driver.push_context(context)) return failed(driver, "enter a context", status);
  for (Launch &launch : launches) {
    error = start(driver, context, stream, launch);
    if (error.failure()) break;
  }
  driver.pop_context(&popped);
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

// Kernels are looked for again. Their modules stay loaded: something may still run them.
extern "C" int32_t forget_kernels() {
  std::lock_guard<std::mutex> lock(loading);
  loaded.clear();
  return 0;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_launch_on_gpu, launch_on_gpu,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void *>>()
                                  .Attr<std::string_view>("kernels")
                                  .Attr<ffi::Span<const int64_t>>("launches")
                                  .RemainingArgs()
                                  .RemainingRets());

XLA_FFI_DEFINE_HANDLER_SYMBOL(xla_launch_interpreted, launch_interpreted,
                              ffi::Ffi::Bind()
                                  .Attr<std::string_view>("kernels")
                                  .Attr<ffi::Span<const int64_t>>("launches")
                                  .RemainingArgs()
                                  .RemainingRets());

#pragma GCC visibility pop
