// What this rank has handed in to one process set and has not been answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "horo/base/status.h"
#include "horo/engine/submission.h"

namespace horo::engine {

/// Thread-safe. A name stands for one tensor at a time: a second one of the same name is refused until the first is
/// answered, and of a group either all tensors are taken or none.
///
/// What was handed in under a name is remembered for the next time: of kMostNames names, or of three times as many as
/// were ever in use at once.
class Queue {
 public:
  static constexpr size_t kMostNames = 64;

  /// What was last handed in under the tensor's name, if that was the very same; null otherwise.
  UnitPtr known(const Tensor& tensor) const;
  /// How many take_new() would return now. Whoever takes must be woken for the first, and need not be for the next.
  Result<size_t> push(const Handle& submission);
  /// Everything that was pushed since the last call.
  std::vector<Handle> take_new();
  /// What take_new() would return.
  struct Waiting {
    size_t units = 0;
    uint64_t bytes = 0;
  };
  Waiting waiting() const;
  /// The submission that a unit is, now answered; null if this rank has not handed it in.
  Handle take(const std::string& key);
  /// The same for several.
  std::vector<Handle> take(const std::vector<UnitPtr>& units);
  /// Everything, and nothing is taken any more.
  std::vector<Handle> close(const Status& why);
  /// OK while anything is taken.
  Status open() const;
  /// Names in use.
  size_t size() const;
  size_t remembered() const;

 private:
  struct Place {
    Handle holder;  ///< Null: the name is free.
    UnitPtr last;   ///< Of a tensor that is no group's.
  };

  Handle take_locked(const std::string& key);
  void free(Place& place);
  void forget_idle();

  mutable std::mutex mutex_;
  std::unordered_map<std::string, Place> places_;
  size_t in_use_ = 0, most_in_use_ = 0;
  std::vector<Handle> new_;
  uint64_t new_bytes_ = 0;
  Status closed_;
};

}  // namespace horo::engine
