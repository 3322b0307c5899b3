// Where ranks meet: a small table of keys and values that is needed to join, never to go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "horo/base/deadline.h"
#include "horo/base/status.h"

namespace horo::rendezvous {

using Bytes = std::vector<std::byte>;
using Entries = std::map<std::string, Bytes, std::less<>>;

/// Larger ones are kInvalidArgument; a store that is full is kUnavailable.
struct StoreLimits {
  static constexpr size_t kMostKey = 256;
  static constexpr size_t kMostValue = 64 << 10;
  static constexpr size_t kMostEntries = 1 << 16;
  static constexpr size_t kMostBytes = 64 << 20;
  static constexpr size_t kMostAnswer = 12 << 20;
};

/// What meet() returns.
struct Meeting {
  Bytes held;       ///< What the name holds: the caller's own value, or that of the one who came first.
  Entries entries;  ///< Of everyone; empty when somebody else came first.
};

/// Thread-safe. Each call ends by its deadline with kTimeout; kPeerLost when the store is gone.
class Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual Status set(std::string_view key, std::span<const std::byte> value, Deadline deadline) = 0;
  /// Sets it if nobody has; returns what the key holds now, which is `value` for the one who came first.
  virtual Result<Bytes> claim(std::string_view key, std::span<const std::byte> value, Deadline deadline) = 0;
  /// Waits until the key exists.
  virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
  /// Adds to a number, which begins at 0, and returns the sum. kInvalidArgument for a key that is no number.
  virtual Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) = 0;
  /// All entries whose key begins with `prefix`, as they are now.
  virtual Result<Entries> list(std::string_view prefix, Deadline deadline) = 0;
  /// The same, once there are at least `count` of them.
  virtual Result<Entries> wait_all(std::string_view prefix, size_t count, Deadline deadline) = 0;
  /// claim() of prefix + name, and wait_all() if this caller came first, as one request: whoever serves the store may
  /// go as soon as it has its own answer, for then everyone's is under way.
  virtual Result<Meeting> meet(std::string_view prefix, std::string_view name, std::span<const std::byte> value,
                               size_t count, Deadline deadline) = 0;
  /// Takes the key away if it holds just this; another's value stays. Whoever waits for enough entries goes on waiting.
  virtual Status withdraw(std::string_view key, std::span<const std::byte> value, Deadline deadline) = 0;

 protected:
  Store() = default;
};

}  // namespace horo::rendezvous
