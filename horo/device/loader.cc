#include "horo/device/loader.h"

#include <dlfcn.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "horo/base/dynlib.h"
#include "horo/base/text.h"
#include "horo/device/knobs.h"

namespace horo::device {

namespace {

constexpr const char* kFile = "libhoro_cuda.so";
/// What is exported is so large at least: drivers put smaller allocations together, and would share all of them.
constexpr uint64_t kBlock = 2 << 20;
/// As far apart callers' memory begins.
constexpr uint64_t kUnit = 512;

/// Of the library, or the program, that holds this function.
std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string file = info.dli_fname;
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

std::string cache_folder(const Config& config) {
  std::string given = config.get(kKernelCache);
  if (given == "none") return "";
  if (!given.empty()) return given;
  // Several engines of a process may ask at once.
  std::array<char, 4096> room;
  passwd entry{};
  passwd* user = nullptr;
  const bool found = getpwuid_r(getuid(), &entry, room.data(), room.size(), &user) == 0 && user != nullptr;
  return !found || user->pw_dir == nullptr ? "" : text(user->pw_dir, "/.cache/horo");
}

}  // namespace

std::vector<std::string> candidates(const Config& config) {
  if (std::string given = config.get(kDevicePlugin); !given.empty()) return {given};
  const std::string folder = own_folder();
  return {text(folder, "/", kFile), text(folder, "/plugins/cuda/", kFile), text(folder, "/../plugins/cuda/", kFile),
          text(folder, "/../lib/", kFile), kFile};
}

Result<Devices*> Source::get() {
  std::lock_guard lock(mutex_);
  if (!outcome_) outcome_ = open();
  if (!outcome_->ok()) return *outcome_;
  return devices_.get();
}

Source::~Source() {
  for (const auto& [key, memory] : idle_) devices_->table().free(key.first, memory);
}

Result<std::shared_ptr<std::byte>> Source::lend(int device, uint64_t bytes) {
  HORO_ASSIGN(Devices * devices, get());
  uint64_t size = 512;
  while (size < bytes) size *= 2;
  void* memory = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (auto found = idle_.find({device, size}); found != idle_.end()) {
      memory = found->second;
      idle_.erase(found);
    }
  }
  if (memory == nullptr) HORO_TRY(devices->status(devices->table().allocate(device, size, &memory)));
  return std::shared_ptr<std::byte>(
      static_cast<std::byte*>(memory),
      [self = shared_from_this(), device, size](std::byte* given) { self->take_back(device, size, given); });
}

void Source::take_back(int device, uint64_t bytes, std::byte* memory) {
  std::lock_guard lock(mutex_);
  idle_.emplace(std::pair(device, bytes), memory);
}

Result<std::shared_ptr<std::byte>> Source::share(int device, uint64_t bytes) {
  HORO_ASSIGN(Devices * devices, get());
  std::shared_ptr<std::byte> found;
  {
    std::lock_guard lock(mutex_);
    for (Block& block : blocks_) {
      if (block.device != device) continue;
      auto part = take_part(block, bytes);
      if (!part.ok()) continue;
      if (!block.was_used) return part;
      found = std::move(*part);
      break;
    }
    if (found == nullptr) {
      const uint64_t size = (std::max<uint64_t>(bytes, 1) + kBlock - 1) / kBlock * kBlock;
      if (size < bytes) return Status(Code::kInvalidArgument, text("no device has ", bytes, " bytes"));
      HORO_ASSIGN(Exported made, devices->allocate(device, size));
      blocks_.push_back({device, made, Ranges(0, size, kUnit)});
      return take_part(blocks_.back(), bytes);
    }
  }
  // Whoever had it before may have left work on the device that reads or writes it.
  HORO_TRY(devices->synchronize(device));
  return found;
}

Result<std::shared_ptr<std::byte>> Source::take_part(Block& block, uint64_t bytes) {
  HORO_ASSIGN(const uint64_t at, block.taken.take(bytes));
  return std::shared_ptr<std::byte>(block.memory.base + at, [self = shared_from_this(), &block, at](std::byte*) {
    std::lock_guard held(self->mutex_);
    block.was_used = true;
    block.taken.give_back(at);
  });
}

Status Source::open() {
  const horo_device_plugin* table = given_;
  if (table == nullptr) {
    HORO_ASSIGN(DynamicLibrary library, DynamicLibrary::open(candidates(config_)));
    const horo_device_plugin* (*entry)() = nullptr;
    const Symbol symbols[] = {symbol(HORO_DEVICE_ENTRY, &entry)};
    HORO_TRY(library.bind(symbols));
    table = entry();
    if (table == nullptr || table->version != HORO_DEVICE_VERSION || table->struct_size < sizeof *table) {
      return {Code::kIncompatible, text(library.name(), " is of another version of horo; install both together")};
    }
  }
  table->set_cache(cache_folder(config_).c_str());
  devices_ = std::make_unique<Devices>(*table);
  return {};
}

}  // namespace horo::device
