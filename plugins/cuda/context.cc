#include "plugins/cuda/context.h"

#include <array>

#include "horo/base/text.h"

namespace horo::cuda {

namespace {

// From CUDA 12.1 on, and from Volta on.
bool has_long_parameters(const Driver& driver, int architecture) {
  const Result<Compiler>& nvrtc = compiler();
  int version = 0, major = 0, minor = 0;
  if (!nvrtc.ok() || driver.cuDriverGetVersion(&version) != kSuccess) return false;
  nvrtc->nvrtcVersion(&major, &minor);
  return version >= 12010 && 10 * major + minor >= 121 && architecture >= 7;
}

}  // namespace

Status check(const Driver& driver, CUresult result, const char* what) {
  if (result == kSuccess) return {};
  const char* words = nullptr;
  driver.cuGetErrorString(result, &words);
  return {Code::kUnavailable,
          text(what, " failed: ", words == nullptr ? "an unknown error" : words, " (", result, ")")};
}

Result<std::unique_ptr<Context>> Context::open(const Driver& driver, int device) {
  CUdevice number = 0;
  HORO_TRY(check(driver, driver.cuDeviceGet(&number, device), "cuDeviceGet"));
  CUcontext primary = nullptr;
  HORO_TRY(check(driver, driver.cuDevicePrimaryCtxRetain(&primary, number), "cuDevicePrimaryCtxRetain"));
  std::unique_ptr<Context> made(new Context(driver, primary));
  int major = 0, minor = 0;
  driver.cuDeviceGetAttribute(&major, kAttributeMajor, number);
  driver.cuDeviceGetAttribute(&minor, kAttributeMinor, number);
  driver.cuDeviceGetAttribute(&made->processors_, kAttributeProcessors, number);
  made->architecture_ = text("sm_", major, minor);
  made->takes_long_parameters_ = has_long_parameters(driver, major);
  return made;
}

Result<CUmodule> Context::module_of(const std::string& defines) {
  if (auto found = modules_.find(defines); found != modules_.end()) return found->second;
  CUmodule loaded = nullptr;
  HORO_ASSIGN(std::string code, machine_code(defines, architecture_, false));
  if (driver_.cuModuleLoadData(&loaded, code.data()) != kSuccess) {
    // What lay in the cache may be damaged.
    HORO_ASSIGN(code, machine_code(defines, architecture_, true));
    HORO_TRY(check(driver_, driver_.cuModuleLoadData(&loaded, code.data()), "cuModuleLoadData"));
  }
  modules_[defines] = loaded;
  return loaded;
}

Result<CUfunction> Context::kernel(const KernelKey& key) {
  std::lock_guard lock(mutex_);
  if (auto found = kernels_.find(key); found != kernels_.end()) return found->second;
  HORO_ASSIGN(CUmodule from, module_of(key.defines));
  CUfunction function = nullptr;
  HORO_TRY(check(driver_, driver_.cuModuleGetFunction(&function, from, key.name.c_str()), "cuModuleGetFunction"));
  kernels_[key] = function;
  return function;
}

Result<Context::Event*> Context::take_event() {
  std::lock_guard lock(mutex_);
  if (events_.empty()) {
    CUevent made = nullptr;
    HORO_TRY(check(driver_, driver_.cuEventCreate(&made, kEventDisableTiming), "cuEventCreate"));
    return new Event{*this, made};
  }
  Event* event = events_.back().release();
  events_.pop_back();
  return event;
}

bool Context::may_hold() const {
  if (driver_.cuStreamWaitValue32_v2 == nullptr || driver_.cuStreamWriteValue32_v2 == nullptr) return false;
  return !held_.exchange(true);
}

void Context::give_back(Event* event) {
  std::lock_guard lock(event->context.mutex_);
  event->context.events_.emplace_back(event);
}

Result<Context*> context_of(int device) {
  static std::mutex mutex;
  static std::array<std::unique_ptr<Context>, 64> all;
  const Result<Driver>& opened = driver();
  if (!opened.ok()) return opened.status().prefixed("CUDA cannot be used");
  if (device < 0 || device >= static_cast<int>(all.size())) {
    return Status(Code::kInvalidArgument, text("there is no CUDA device ", device));
  }
  std::lock_guard lock(mutex);
  std::unique_ptr<Context>& slot = all[static_cast<size_t>(device)];
  if (slot == nullptr) {
    HORO_ASSIGN(slot, Context::open(*opened, device));
  }
  return slot.get();
}

}  // namespace horo::cuda
