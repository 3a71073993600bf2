/* The part of the CUDA driver's interface that is used here, as cuda.h has it: compiling this needs nothing of
   CUDA, and the driver is loaded when the first kernel is launched. */

#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <type_traits>

// the names are those of cuda.h, without its prefix
constexpr int COMPUTE_CAPABILITY_MAJOR = 75, COMPUTE_CAPABILITY_MINOR = 76;  // CU_DEVICE_ATTRIBUTE_...
constexpr int MAX_DYNAMIC_SHARED_SIZE_BYTES = 8;                             // CU_FUNC_ATTRIBUTE_...
constexpr int STREAM_CAPTURE_MODE_RELAXED = 2;
constexpr int32_t PLAIN_SHARED_BYTES = 48 * 1024;  // of a block: more has to be asked for

struct Driver {
  int (*get_context)(void *stream, void **context);
  int (*push_context)(void *context);
  int (*pop_context)(void **context);
  int (*get_device)(int *device);
  int (*get_attribute)(int *value, int attribute, int device);
  int (*exchange_capture_mode)(int *mode);
  int (*load_module)(void **module, const void *code);
  int (*unload_module)(void *module);
  int (*get_function)(void **function, void *module, const char *name);
  int (*set_attribute)(void *function, int attribute, int value);
  int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra);
  int (*get_error_string)(int error, const char **text);
  std::string missing;  // why there is no driver

  Driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
      missing = std::string("there is no CUDA driver: ") + dlerror();
      return;
    }
    auto take = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      if (!function && missing.empty()) missing = std::string("the CUDA driver has no ") + name;
    };
    take(get_context, "cuStreamGetCtx");
    take(push_context, "cuCtxPushCurrent_v2");
    take(pop_context, "cuCtxPopCurrent_v2");
    take(get_device, "cuCtxGetDevice");
    take(get_attribute, "cuDeviceGetAttribute");
    take(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
    take(load_module, "cuModuleLoadData");
    take(unload_module, "cuModuleUnload");
    take(get_function, "cuModuleGetFunction");
    take(set_attribute, "cuFuncSetAttribute");
    take(launch, "cuLaunchKernel");
    take(get_error_string, "cuGetErrorString");
  }
};
