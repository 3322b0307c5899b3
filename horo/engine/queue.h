// What this rank has handed in to one process set and has not been answered.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "horo/base/status.h"
#include "horo/engine/submission.h"

namespace horo::engine {

/// Thread-safe. A name stands for one tensor at a time: a second one of the same name is refused until the first is
/// answered, and of a group either all tensors are taken or none.
class Queue {
 public:
  Status push(const Handle& submission);
  /// Everything that was pushed since the last call.
  std::vector<Handle> take_new();
  /// The submission that a unit is, now answered; null if this rank has not handed it in.
  Handle take(const std::string& key);
  /// Everything, and nothing is taken any more.
  std::vector<Handle> close(const Status& why);
  /// OK while anything is taken.
  Status open() const;
  size_t size() const;

 private:
  void forget(const Handle& submission);

  mutable std::mutex mutex_;
  std::unordered_map<std::string, Handle> by_name_;
  std::vector<Handle> new_;
  Status closed_;
};

}  // namespace horo::engine
