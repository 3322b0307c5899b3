// Stand-in of the CUDA driver (libcuda.so.1): the calls that the plugin makes, on memory of the host. Four devices.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "plugins/cuda/driver.h"
#include "plugins/cuda/testing/standin.h"

namespace {

using namespace horo::cuda;
using horo::cuda::standin::Stream;

constexpr CUresult kInvalid = 1, kUnknown = 999;
constexpr int kDevices = 4;

struct Module {
  std::string options;  ///< As the stand-in of NVRTC "compiled" them.
};
struct Function {
  const Module* module;
  std::string name;
};

struct Moment {
  Stream* stream = nullptr;
  uint64_t number = 0;
};

int& current() {
  thread_local int device = -1;
  return device;
}

struct Piece {
  void* to;
  const void* from;
  uint64_t bytes, first;
};
struct Terms {
  double before, factor;
  int64_t divisor;
};

void copy(void** arguments) {
  const auto* pieces = static_cast<const Piece*>(arguments[0]);
  const uint32_t count = *static_cast<const uint32_t*>(arguments[1]);
  for (uint32_t i = 0; i < count; ++i) std::memmove(pieces[i].to, pieces[i].from, pieces[i].bytes);
}

/// One array of f32, scaled.
void scale(void** arguments, uint64_t width) {
  const float* from = *static_cast<const float**>(arguments[0]);
  float* to = *static_cast<float**>(arguments[2]);
  const uint64_t count = *static_cast<const uint64_t*>(arguments[4]) * width;
  const Terms terms = *static_cast<const Terms*>(arguments[5]);
  for (uint64_t i = 0; i < count; ++i) {
    const float value = terms.before == 1.0 ? from[i] : from[i] * static_cast<float>(terms.before);
    to[i] = terms.divisor > 1 ? value / static_cast<float>(static_cast<double>(terms.divisor) / terms.factor)
                              : value * static_cast<float>(terms.factor);
  }
}

template <class T>
T* opaque(void* made) {
  return reinterpret_cast<T*>(made);
}

}  // namespace

extern "C" {
HORO_STANDIN CUresult cuInit(unsigned) { return kSuccess; }
HORO_STANDIN CUresult cuDriverGetVersion(int* version) {
  *version = 12000;
  return kSuccess;
}
HORO_STANDIN CUresult cuGetErrorString(CUresult, const char** words) {
  *words = "said by the stand-in";
  return kSuccess;
}
HORO_STANDIN CUresult cuDeviceGetCount(int* count) {
  *count = kDevices;
  return kSuccess;
}
HORO_STANDIN CUresult cuDeviceGet(CUdevice* device, int number) {
  *device = number;
  return number < kDevices ? kSuccess : kInvalid;
}
HORO_STANDIN CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::strncpy(name, "stand-in", static_cast<size_t>(bytes));
  return kSuccess;
}
HORO_STANDIN CUresult cuDeviceGetAttribute(int* value, int, CUdevice) {
  *value = 9;
  return kSuccess;
}
HORO_STANDIN CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  std::memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = static_cast<char>(device + 1);
  return kSuccess;
}
HORO_STANDIN CUresult cuDeviceGetPCIBusId(char* words, int bytes, CUdevice device) {
  std::strncpy(words, ("0000:0" + std::to_string(device) + ":00.0").c_str(), static_cast<size_t>(bytes));
  return kSuccess;
}
HORO_STANDIN CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = opaque<CUctx_st>(new int(device));
  return kSuccess;
}
HORO_STANDIN CUresult cuCtxPushCurrent_v2(CUcontext context) {
  current() = *reinterpret_cast<int*>(context);
  return kSuccess;
}
HORO_STANDIN CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = nullptr;
  current() = -1;
  return kSuccess;
}
HORO_STANDIN CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current();
  return kSuccess;
}
HORO_STANDIN CUresult cuCtxSynchronize() { return kSuccess; }
HORO_STANDIN CUresult cuModuleLoadData(CUmodule* module, const void* code) {
  *module = opaque<CUmod_st>(new Module{static_cast<const char*>(code)});
  return kSuccess;
}
HORO_STANDIN CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  *function = opaque<CUfunc_st>(new Function{reinterpret_cast<Module*>(module), name});
  return kSuccess;
}
HORO_STANDIN CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  *memory = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return kSuccess;
}
HORO_STANDIN CUresult cuMemFree_v2(CUdeviceptr memory) {
  std::free(reinterpret_cast<void*>(memory));
  return kSuccess;
}
HORO_STANDIN CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return kSuccess;
}
HORO_STANDIN CUresult cuMemFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}
HORO_STANDIN CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return kSuccess;
}
HORO_STANDIN CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr memory) {
  std::memcpy(handle, &memory, sizeof memory);
  return kSuccess;
}
/// Refused: the stand-in does not reduce out of several arrays.
HORO_STANDIN CUresult cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle, unsigned) { return kInvalid; }
HORO_STANDIN CUresult cuIpcCloseMemHandle(CUdeviceptr) { return kSuccess; }
HORO_STANDIN CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  *stream = opaque<CUstream_st>(new Stream);
  return kSuccess;
}
HORO_STANDIN CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return kSuccess;
}
HORO_STANDIN CUresult cuStreamDestroy_v2(CUstream stream) {
  delete reinterpret_cast<Stream*>(stream);
  return kSuccess;
}
HORO_STANDIN CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) { return kSuccess; }
HORO_STANDIN CUresult cuStreamIsCapturing(CUstream, int* state) {
  *state = kCaptureNone;
  return kSuccess;
}
HORO_STANDIN CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr word, uint32_t value, unsigned) {
  reinterpret_cast<Stream*>(stream)->put(
      [word, value] { std::atomic_ref(*reinterpret_cast<uint32_t*>(word)).store(value, std::memory_order_release); });
  return kSuccess;
}
/// Of operations straight out of each other's memory, which this stand-in refuses.
HORO_STANDIN CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, uint32_t, unsigned) { return kInvalid; }
/// An event is how far a stream was when it was last recorded there.
HORO_STANDIN CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = opaque<CUevent_st>(new Moment);
  return kSuccess;
}
HORO_STANDIN CUresult cuEventRecord(CUevent event, CUstream stream) {
  auto* recorded = reinterpret_cast<Stream*>(stream);
  *reinterpret_cast<Moment*>(event) = {recorded, recorded->given()};
  return kSuccess;
}
HORO_STANDIN CUresult cuEventQuery(CUevent event) {
  const Moment& moment = *reinterpret_cast<Moment*>(event);
  return moment.stream == nullptr || moment.stream->has_done(moment.number) ? kSuccess : kNotReady;
}
HORO_STANDIN CUresult cuEventSynchronize(CUevent event) {
  while (cuEventQuery(event) == kNotReady) std::this_thread::yield();
  return kSuccess;
}
HORO_STANDIN CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<Moment*>(event);
  return kSuccess;
}
HORO_STANDIN CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, CUstream stream, void** arguments, void**) {
  const Function& asked = *reinterpret_cast<Function*>(function);
  // A kernel after a collective that has not run: the stream would keep the order, this stand-in has to wait.
  auto* recorded = reinterpret_cast<Stream*>(stream);
  while (!recorded->has_done(recorded->given())) std::this_thread::yield();
  const bool is_f32 = asked.module->options.find("DTYPE=10 ") != std::string::npos;
  const bool is_one = asked.module->options.find("SOURCES=1 ") != std::string::npos;
  if (asked.name == "copy_few") {
    copy(arguments);
  } else if (asked.name == "reduce_wide" && is_f32 && is_one) {
    scale(arguments, 4);
  } else if (asked.name == "reduce_one" && is_f32 && is_one) {
    scale(arguments, 1);
  } else {
    return kUnknown;
  }
  return kSuccess;
}
}
