// The parts of the CUDA driver and of NVRTC that are used, declared here: building needs no CUDA toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "horo/base/dynlib.h"
#include "horo/base/status.h"

namespace horo::cuda {

// As in cuda.h.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
struct CUipcMemHandle {
  char reserved[64];
};
struct CUuuid {
  char bytes[16];
};

inline constexpr CUresult kSuccess = 0, kNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2, kEventBlockingSync = 1;
inline constexpr unsigned kHostPortable = 1, kHostMapped = 2;
inline constexpr unsigned kIpcLazyPeerAccess = 1;
inline constexpr int kAttributeMajor = 75, kAttributeMinor = 76, kAttributeProcessors = 16;
inline constexpr int kAttributeMps = 133;  ///< Processes share the device by MPS. Older drivers do not know it.
inline constexpr int kCaptureNone = 0;
inline constexpr unsigned kWaitUntilAtLeast = 0, kWriteAfterAllElse = 0;

/// Functions of libcuda; null where they are missing.
struct Driver {
  CUresult (*cuInit)(unsigned) = nullptr;
  CUresult (*cuDriverGetVersion)(int*) = nullptr;
  CUresult (*cuGetErrorString)(CUresult, const char**) = nullptr;
  CUresult (*cuDeviceGetCount)(int*) = nullptr;
  CUresult (*cuDeviceGet)(CUdevice*, int) = nullptr;
  CUresult (*cuDeviceGetName)(char*, int, CUdevice) = nullptr;
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice) = nullptr;
  CUresult (*cuDeviceGetUuid)(CUuuid*, CUdevice) = nullptr;
  CUresult (*cuDeviceGetPCIBusId)(char*, int, CUdevice) = nullptr;
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*cuCtxPushCurrent)(CUcontext) = nullptr;
  CUresult (*cuCtxPopCurrent)(CUcontext*) = nullptr;
  CUresult (*cuCtxSynchronize)() = nullptr;
  CUresult (*cuModuleLoadData)(CUmodule*, const void*) = nullptr;
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*) = nullptr;
  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t) = nullptr;
  CUresult (*cuMemFree)(CUdeviceptr) = nullptr;
  CUresult (*cuMemHostAlloc)(void**, size_t, unsigned) = nullptr;
  CUresult (*cuMemFreeHost)(void*) = nullptr;
  CUresult (*cuMemcpyAsync)(CUdeviceptr, CUdeviceptr, size_t, CUstream) = nullptr;
  CUresult (*cuIpcGetMemHandle)(CUipcMemHandle*, CUdeviceptr) = nullptr;
  CUresult (*cuIpcOpenMemHandle)(CUdeviceptr*, CUipcMemHandle, unsigned) = nullptr;
  CUresult (*cuIpcCloseMemHandle)(CUdeviceptr) = nullptr;
  CUresult (*cuStreamCreateWithPriority)(CUstream*, unsigned, int) = nullptr;
  CUresult (*cuCtxGetStreamPriorityRange)(int*, int*) = nullptr;
  CUresult (*cuStreamDestroy)(CUstream) = nullptr;
  CUresult (*cuStreamWaitEvent)(CUstream, CUevent, unsigned) = nullptr;
  CUresult (*cuStreamIsCapturing)(CUstream, int*) = nullptr;
  CUresult (*cuEventCreate)(CUevent*, unsigned) = nullptr;
  CUresult (*cuEventRecord)(CUevent, CUstream) = nullptr;
  CUresult (*cuEventQuery)(CUevent) = nullptr;
  CUresult (*cuEventSynchronize)(CUevent) = nullptr;
  CUresult (*cuEventDestroy)(CUevent) = nullptr;
  CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                             void**, void**) = nullptr;
  // From CUDA 12 on.
  CUresult (*cuStreamWaitValue32_v2)(CUstream, CUdeviceptr, uint32_t, unsigned) = nullptr;
  CUresult (*cuStreamWriteValue32_v2)(CUstream, CUdeviceptr, uint32_t, unsigned) = nullptr;
  std::string file;
};

/// Functions of NVRTC.
struct Compiler {
  using Program = struct _nvrtcProgram*;
  int (*nvrtcVersion)(int*, int*) = nullptr;
  int (*nvrtcCreateProgram)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*nvrtcDestroyProgram)(Program*) = nullptr;
  int (*nvrtcCompileProgram)(Program, int, const char* const*) = nullptr;
  int (*nvrtcGetCUBINSize)(Program, size_t*) = nullptr;
  int (*nvrtcGetCUBIN)(Program, char*) = nullptr;
  int (*nvrtcGetProgramLogSize)(Program, size_t*) = nullptr;
  int (*nvrtcGetProgramLog)(Program, char*) = nullptr;
  const char* (*nvrtcGetErrorString)(int) = nullptr;
  std::string file;
};

/// Opened once. A failure says what was tried.
const Result<Driver>& driver();
const Result<Compiler>& compiler();

/// Where shared objects of CUDA may be: as the loader finds them, then beside whatever of torch or of pip's nvidia
/// packages is near this file or loaded already.
std::vector<std::string> places(const std::vector<std::string>& names);
/// What is loaded already, or the first of places().
Result<DynamicLibrary> open_library(const std::vector<std::string>& names);

}  // namespace horo::cuda
