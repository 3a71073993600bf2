/* A CUDA driver that does nothing but say what it was asked for. Its functions are declared by cuda.h, so they have the
   names and arguments of the true one; what they refuse is what the true one refuses. */

#include <cuda.h>

#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "driver.h"

// driver.h against cuda.h: numbers of one size, and pointers to what agrees, where void stands for cuda.h's structures
template <class Own, class True>
constexpr bool same() {
  if constexpr (std::is_pointer_v<Own> && std::is_pointer_v<True>) {
    return same<std::remove_cv_t<std::remove_pointer_t<Own>>, std::remove_cv_t<std::remove_pointer_t<True>>>();
  } else if constexpr (std::is_void_v<Own>) {
    return std::is_void_v<True> || std::is_class_v<True>;
  } else {
    return !std::is_pointer_v<Own> && !std::is_pointer_v<True> && sizeof(Own) == sizeof(True);
  }
}

template <class... Own, class... True>
constexpr bool agree(int (*)(Own...), CUresult (*)(True...)) {
  if constexpr (sizeof...(Own) == sizeof...(True)) return (same<Own, True>() && ...);
  return false;
}

#define DECLARED(member, function) \
  static_assert(agree(decltype(Driver::member)(), decltype(&function)()), "not as cuda.h declares " #function)
DECLARED(get_context, cuStreamGetCtx);
DECLARED(push_context, cuCtxPushCurrent);
DECLARED(pop_context, cuCtxPopCurrent);
DECLARED(get_device, cuCtxGetDevice);
DECLARED(get_attribute, cuDeviceGetAttribute);
DECLARED(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
DECLARED(load_module, cuModuleLoadData);
DECLARED(unload_module, cuModuleUnload);
DECLARED(get_function, cuModuleGetFunction);
DECLARED(set_attribute, cuFuncSetAttribute);
DECLARED(launch, cuLaunchKernel);
DECLARED(get_error_string, cuGetErrorString);
static_assert(COMPUTE_CAPABILITY_MAJOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(COMPUTE_CAPABILITY_MINOR == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(MAX_DYNAMIC_SHARED_SIZE_BYTES == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(STREAM_CAPTURE_MODE_RELAXED == CU_STREAM_CAPTURE_MODE_RELAXED);

namespace {

struct Function {
  std::string name;
  CUcontext context;
  int shared = 48 * 1024;
};

// handles are numbers that say what they are of
std::map<CUcontext, int> devices;
std::map<int, int> capabilities;
std::map<CUstream, CUcontext> contexts;
std::map<std::string, std::vector<uint8_t>> sizes;  // of kernels' parameters
std::map<CUmodule, CUcontext> modules;
std::map<CUfunction, Function> functions;
std::map<std::string, CUresult> failures;
std::mutex using_this;
std::string log_, taken;
bool capturing = false;
uintptr_t next_module = 0xA00, next_function = 0xF00;

thread_local std::vector<CUcontext> current;
thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::string number(uint64_t value) { return ", " + std::to_string(value); }
std::string number(const void *value) { return number(uint64_t(reinterpret_cast<uintptr_t>(value))); }
std::string text(const std::string &value) { return ", \"" + value + "\""; }

// A line of JSON: the function, then its arguments. Gives the failure that is wanted of it.
CUresult called(const char *function, const std::string &arguments) {
  log_ += "[\"" + std::string(function) + "\"" + arguments + "]\n";
  auto found = failures.find(function);
  return found == failures.end() ? CUDA_SUCCESS : found->second;
}

}  // namespace

#define NAME_(function) #function
#define NAME(function) NAME_(function)  // with the version that cuda.h gives it
#define CALLED(function, arguments) \
  std::lock_guard<std::mutex> alone(using_this); \
  if (CUresult failure = called(NAME(function), arguments)) return failure

extern "C" {

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  CALLED(cuStreamGetCtx, number(stream));
  if (!contexts.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *context = contexts[stream];
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  CALLED(cuCtxPushCurrent, number(context));
  current.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context) {
  CALLED(cuCtxPopCurrent, "");
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = current.back();
  current.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  CALLED(cuCtxGetDevice, "");
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = devices[current.back()];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  CALLED(cuDeviceGetAttribute, number(uint64_t(attribute)) + number(uint64_t(device)));
  const int capability = capabilities[device];
  *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? capability / 10 : capability % 10;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *other) {
  CALLED(cuThreadExchangeStreamCaptureMode, number(uint64_t(*other)));
  std::swap(mode, *other);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *code) {
  CALLED(cuModuleLoadData, number(code));
  if (capturing && mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!code) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(next_module++);
  modules[*module] = current.back();
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  CALLED(cuModuleUnload, number(module));
  return modules.erase(module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  CALLED(cuModuleGetFunction, number(module) + text(name));
  if (!modules.count(module)) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(next_function++);
  functions[*function] = Function{name, modules[module]};
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  CALLED(cuFuncSetAttribute, number(function) + number(uint64_t(attribute)) + number(uint64_t(value)));
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) functions[function].shared = value;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **parameters,
                        void **extra) {
  const Function &own = functions[function];
  std::string numbers = text(own.name) + number(function);
  for (unsigned size : {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared}) numbers += number(uint64_t(size));
  numbers += number(stream) + ", [";
  bool first = true;
  for (uint8_t size : sizes[own.name]) {  // by the kernel's own sizes, as the true driver does
    const void *value = *parameters++;
    const uint64_t read = size == 4 ? *static_cast<const uint32_t *>(value) : *static_cast<const uint64_t *>(value);
    numbers += number(read).substr(first ? 2 : 0);
    first = false;
  }
  CALLED(cuLaunchKernel, numbers + "]");
  if (current.empty() || own.context != current.back()) return CUDA_ERROR_INVALID_CONTEXT;
  if (contexts[stream] != own.context) return CUDA_ERROR_INVALID_HANDLE;
  const bool empty = !(grid_x && grid_y && grid_z && block_x && block_y && block_z);
  return empty || extra || int(shared) > own.shared ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **reason) {
  static std::map<int, std::string> reasons;
  CALLED(cuGetErrorString, number(uint64_t(error)));
  *reason = (reasons[error] = "reason " + std::to_string(error)).c_str();
  return CUDA_SUCCESS;
}

// What the tests set, and what they read

void fake_stream(void *stream, void *context, int device, int capability) {
  contexts[static_cast<CUstream>(stream)] = static_cast<CUcontext>(context);
  devices[static_cast<CUcontext>(context)] = device;
  capabilities[device] = capability;
}

void fake_kernel(const char *name, const char *own, int count) { sizes[name] = {own, own + count}; }

// 0: it succeeds again
void fake_failure(const char *function, int error) {
  if (error) {
    failures[function] = CUresult(error);
  } else {
    failures.erase(function);
  }
}

void fake_capture(int is_on) { capturing = is_on; }

// of the calling thread
int fake_contexts() { return int(current.size()); }
int fake_capture_mode() { return int(mode); }

int fake_modules() { return int(modules.size()); }

void fake_reset() {
  log_.clear(), failures.clear(), modules.clear(), functions.clear(), current.clear();
  capturing = false;
}

// since it was last asked for
const char *fake_log() {
  std::lock_guard<std::mutex> alone(using_this);
  taken.swap(log_);
  log_.clear();
  return taken.c_str();
}
}
