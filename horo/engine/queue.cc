#include "horo/engine/queue.h"

#include <set>
#include <utility>

#include "horo/base/text.h"

namespace horo::engine {

Status Queue::push(const Handle& submission) {
  std::lock_guard lock(mutex_);
  HORO_TRY(closed_);
  std::set<std::string_view> own;
  for (const Tensor& tensor : submission->unit().tensors) {
    if (by_name_.contains(tensor.name) || !own.insert(tensor.name).second) {
      return {Code::kInvalidArgument, text(name(tensor.kind), ": tensor '", tensor.name,
                                           "' was handed in before and is not done yet; wait for it, or give this one "
                                           "another name")};
    }
  }
  for (const Tensor& tensor : submission->unit().tensors) by_name_.emplace(tensor.name, submission);
  new_.push_back(submission);
  return {};
}

std::vector<Handle> Queue::take_new() {
  std::lock_guard lock(mutex_);
  return std::exchange(new_, {});
}

void Queue::forget(const Handle& submission) {
  for (const Tensor& tensor : submission->unit().tensors) by_name_.erase(tensor.name);
}

Handle Queue::take(const std::string& key) {
  std::lock_guard lock(mutex_);
  auto found = by_name_.find(key);
  if (found == by_name_.end() || found->second->unit().key() != key) return nullptr;
  Handle submission = found->second;
  forget(submission);
  return submission;
}

std::vector<Handle> Queue::close(const Status& why) {
  std::lock_guard lock(mutex_);
  closed_ = why;
  std::set<Handle> all;
  for (const auto& [name, submission] : by_name_) all.insert(submission);
  by_name_.clear();
  new_.clear();
  return {all.begin(), all.end()};
}

Status Queue::open() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

size_t Queue::size() const {
  std::lock_guard lock(mutex_);
  return by_name_.size();
}

}  // namespace horo::engine
