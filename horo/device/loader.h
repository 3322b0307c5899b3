// Finds the plugin for devices.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horo/base/config.h"
#include "horo/base/ranges.h"
#include "horo/base/status.h"
#include "horo/device/device.h"

namespace horo::device {

/// Files that are tried, in this order: what HORO_DEVICE_PLUGIN names and nothing else, or libhoro_cuda.so beside the
/// library (or program) that this code is in, and where an installed tree has it.
std::vector<std::string> candidates(const Config& config);

/// The devices of an engine; opened when they are first needed. Thread-safe.
class Source : public std::enable_shared_from_this<Source> {
 public:
  explicit Source(const Config& config) : config_(config) {}
  ~Source();
  /// For tests: this table, whatever is installed.
  Source(const Config& config, const horo_device_plugin& plugin) : config_(config), given_(&plugin) {}

  /// The same answer each time; kNotFound when there is no plugin.
  Result<Devices*> get();
  /// Memory of a device that nobody else reads. What comes back is kept for the next: giving it to the driver would
  /// wait for all of the device's streams.
  Result<std::shared_ptr<std::byte>> lend(int device, uint64_t bytes);
  /// Memory of a device that other processes can map, for callers: operations on it need no copies. It lives as long as
  /// anybody holds it. What comes back is used again, and freed with the last of everything: peers have it mapped.
  Result<std::shared_ptr<std::byte>> share(int device, uint64_t bytes);
  /// True the first time: what concerns a device, not a group, is said once.
  bool first_warning() { return !warned_.exchange(true); }

 private:
  Status open();

  /// One allocation that callers have parts of.
  struct Block {
    int device = 0;
    Exported memory;
    Ranges taken;
    bool was_used = false;  ///< What comes back may still be in use on the device.
  };
  void take_back(int device, uint64_t bytes, std::byte* memory);
  Result<std::shared_ptr<std::byte>> take_part(Block& block, uint64_t bytes);

  const Config config_;
  const horo_device_plugin* const given_ = nullptr;
  std::atomic<bool> warned_{false};
  std::mutex mutex_;
  std::optional<Status> outcome_;
  std::unique_ptr<Devices> devices_;
  std::multimap<std::pair<int, uint64_t>, std::byte*> idle_;  ///< By device and size.
  std::list<Block> blocks_;
};

}  // namespace horo::device
