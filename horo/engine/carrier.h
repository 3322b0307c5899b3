// What runs the operations of a process set: a group, or something faster that a plugin brings.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "horo/base/status.h"
#include "horo/collective/operation.h"

namespace horo::engine {

/// Used by one thread at a time. All members run the same operations in the same order.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual int size() const = 0;
  virtual int member() const = 0;
  /// What moves the bytes, and what ran last: for the timeline.
  virtual std::string_view transport() const { return "none"; }
  virtual std::string_view algorithm() const { return "none"; }
  /// `sequel` is of an operation on a device.
  virtual Status run(const collective::Operation& operation, const std::byte* input, std::byte* output,
                     const device::Sequel& sequel = {}) = 0;
  /// The same, but an operation on a device may be under way still when this returns nothing. `landed` is told the
  /// outcome then, on another thread; it must not wait.
  virtual std::optional<Status> start(const collective::Operation& operation, const std::byte* input, std::byte* output,
                                      const device::Sequel& sequel,
                                      // NOLINTNEXTLINE(performance-unnecessary-value-param): who flies keeps it.
                                      std::function<void(const Status&)> /*landed*/) {
    return run(operation, input, output, sequel);
  }
  /// This rank cannot take part in what the others run: it ends for all of them.
  virtual void give_up(const Status& why) = 0;
};

/// Memory in which tensors are put together. Best where peers can read it, so that packing already is sending.
class Scratch {
 public:
  virtual ~Scratch() = default;
  /// At least `bytes`; stays until the next call with the same `slot`.
  virtual Result<std::span<std::byte>> get(int slot, uint64_t bytes) = 0;
};

}  // namespace horo::engine
