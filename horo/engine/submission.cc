#include "horo/engine/submission.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::engine {

namespace {

Status wrong(const Tensor& tensor, std::string_view what) {
  return {Code::kInvalidArgument, text(name(tensor.kind), " of tensor '", tensor.name, "': ", what)};
}

Status check_splits(const Call& call, int members) {
  const Tensor& tensor = call.tensor;
  const int64_t rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (call.splits.empty()) {
    if (rows % members == 0) return {};
    return wrong(tensor, text(rows, " rows cannot be split evenly between ", members, " ranks; give splits"));
  }
  if (call.splits.size() != static_cast<size_t>(members)) {
    return wrong(tensor, text(call.splits.size(), " splits for ", members, " ranks"));
  }
  uint64_t sum = 0;
  for (uint64_t split : call.splits) sum += std::min(split, static_cast<uint64_t>(rows) + 1);
  if (sum <= static_cast<uint64_t>(rows)) return {};
  return wrong(tensor, text("the splits add up to more than the ", rows, " rows of the tensor"));
}

}  // namespace

Status check_calls(const std::vector<Call>& calls, int members, int member) {
  for (const Call& call : calls) {
    const Kind kind = call.tensor.kind;
    const bool gives = kind == Kind::kBroadcast ? call.tensor.root == member : kind < Kind::kBarrier;
    if (gives && call.input == nullptr && call.tensor.count() > 0) {
      return wrong(call.tensor, "the input pointer is null");
    }
    if (call.tensor.kind == Kind::kAlltoall) HORO_TRY(check_splits(call, members));
  }
  return {};
}

UnitPtr unit_of(const std::vector<Call>& calls) {
  auto unit = std::make_shared<Unit>();
  unit->tensors.reserve(calls.size());
  for (const Call& call : calls) unit->tensors.push_back(call.tensor);
  return unit;
}

Submission::Submission(std::vector<Call> calls, Callback callback, UnitPtr unit)
    : calls_(std::move(calls)),
      unit_(unit ? std::move(unit) : unit_of(calls_)),
      results_(calls_.size()),
      callback_(std::move(callback)) {}

void Submission::finish(const Status& status, int64_t answer) {
  {
    std::lock_guard lock(mutex_);
    if (done()) return;
    status_ = status;
    answer_ = answer;
    done_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  if (callback_) callback_(*this);
}

void Submission::promise(const device::EventHandle& result) {
  std::lock_guard lock(mutex_);
  promised_ = result;
  is_promised_.store(true, std::memory_order_release);
  changed_.notify_all();
}

device::EventHandle Submission::promised() const {
  return is_promised_.load(std::memory_order_acquire) ? promised_ : nullptr;
}

bool Submission::wait(Deadline deadline, Until until) const {
  std::unique_lock lock(mutex_);
  const auto has_come = [&] { return this->has_come(until); };
  if (deadline.is_never()) {
    changed_.wait(lock, has_come);
    return true;
  }
  return changed_.wait_until(lock, deadline.at(), has_come);
}

}  // namespace horo::engine
