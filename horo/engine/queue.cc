#include "horo/engine/queue.h"

#include <algorithm>
#include <set>
#include <utility>

#include "horo/base/text.h"

namespace horo::engine {

namespace {

Status in_use(const Tensor& tensor) {
  return {Code::kInvalidArgument, text(name(tensor.kind), ": tensor '", tensor.name,
                                       "' was handed in before and is not done yet; wait for it, or give this one "
                                       "another name")};
}

}  // namespace

UnitPtr Queue::known(const Tensor& tensor) const {
  std::lock_guard lock(mutex_);
  auto found = places_.find(tensor.name);
  if (found == places_.end() || !found->second.last) return nullptr;
  return found->second.last->tensors.front() == tensor ? found->second.last : nullptr;
}

Result<size_t> Queue::push(const Handle& submission) {
  const std::vector<Tensor>& tensors = submission->unit().tensors;
  std::lock_guard lock(mutex_);
  HORO_TRY(closed_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Place& place = places_[tensors[i].name];
    if (place.holder) {
      for (size_t taken = 0; taken < i; ++taken) free(places_.at(tensors[taken].name));
      return in_use(tensors[i]);
    }
    place.holder = submission;
    place.last = tensors.size() == 1 ? submission->shared_unit() : nullptr;
    ++in_use_;
  }
  most_in_use_ = std::max(most_in_use_, in_use_);
  if (places_.size() > std::max(kMostNames, 3 * most_in_use_)) forget_idle();
  new_.push_back(submission);
  new_bytes_ += submission->unit().bytes();
  return new_.size();
}

void Queue::free(Place& place) {
  place.holder.reset();
  --in_use_;
}

void Queue::forget_idle() {
  std::erase_if(places_, [](const auto& place) { return !place.second.holder; });
}

std::vector<Handle> Queue::take_new() {
  std::lock_guard lock(mutex_);
  new_bytes_ = 0;
  return std::exchange(new_, {});
}

Queue::Waiting Queue::waiting() const {
  std::lock_guard lock(mutex_);
  return {new_.size(), new_bytes_};
}

Handle Queue::take_locked(const std::string& key) {
  auto found = places_.find(key);
  if (found == places_.end() || !found->second.holder || found->second.holder->unit().key() != key) return nullptr;
  Handle submission = found->second.holder;
  const std::vector<Tensor>& tensors = submission->unit().tensors;
  if (tensors.size() == 1) {
    free(found->second);
  } else {
    for (const Tensor& tensor : tensors) free(places_.at(tensor.name));
  }
  return submission;
}

Handle Queue::take(const std::string& key) {
  std::lock_guard lock(mutex_);
  return take_locked(key);
}

std::vector<Handle> Queue::take(const std::vector<UnitPtr>& units) {
  std::vector<Handle> submissions;
  submissions.reserve(units.size());
  std::lock_guard lock(mutex_);
  for (const UnitPtr& unit : units) submissions.push_back(take_locked(unit->key()));
  return submissions;
}

std::vector<Handle> Queue::close(const Status& why) {
  std::lock_guard lock(mutex_);
  closed_ = why;
  std::set<Handle> all;
  for (const auto& [name, place] : places_) {
    if (place.holder) all.insert(place.holder);
  }
  places_.clear();
  in_use_ = 0;
  new_.clear();
  new_bytes_ = 0;
  return {all.begin(), all.end()};
}

Status Queue::open() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

size_t Queue::size() const {
  std::lock_guard lock(mutex_);
  return in_use_;
}

size_t Queue::remembered() const {
  std::lock_guard lock(mutex_);
  return places_.size();
}

}  // namespace horo::engine
