// The process sets of a runtime: they come and go on all ranks together.
#include <algorithm>

#include "horo/base/text.h"
#include "horo/engine/process_set.h"
#include "horo/engine/runtime.h"

namespace horo::engine {

int Runtime::free_number() const {
  std::lock_guard lock(mutex_);
  int number = 1;
  while (sets_.contains(number)) ++number;
  return number;
}

Result<int64_t> Runtime::run_special(Tensor tensor) {
  HORO_ASSIGN(Handle handle, submit(0, {Call{std::move(tensor), nullptr, nullptr, nullptr, {}}}));
  HORO_TRY(wait(0, handle));
  return handle->answer();
}

Result<int> Runtime::add_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  HORO_TRY(check_new_set(ranks));
  Tensor tensor;
  tensor.name = "horo.process_set.add";
  tensor.kind = Kind::kAddSet;
  tensor.shape.assign(ranks.begin(), ranks.end());
  HORO_ASSIGN(int64_t number, run_special(std::move(tensor)));
  return static_cast<int>(number);
}

Status Runtime::remove_set(int set) {
  if (set == 0) return {Code::kInvalidArgument, "the set of all ranks cannot be removed"};
  HORO_TRY(set_ranks(set).status());
  Tensor tensor;
  tensor.name = "horo.process_set.remove";
  tensor.kind = Kind::kRemoveSet;
  tensor.root = set;
  return run_special(std::move(tensor)).status();
}

// On the executor of the set of all ranks, at the same place of its order everywhere.
void Runtime::begin_set(const Unit& unit, const Handle& handle) {
  const std::vector<int64_t>& shape = unit.tensors.front().shape;
  const int number = free_number();
  const Result<std::vector<int>> seats = seats_of({shape.begin(), shape.end()});
  const Status status = agree_on_set(seats.ok() ? open_set(number, *seats) : seats.status());
  if (!status.ok()) close_set(number, status);
  engine_->bell().ring();
  if (handle) handle->finish(status, number);
}

// It is there on all ranks, or on none: those outside of it, too, count its number and know its ranks.
Status Runtime::agree_on_set(const Status& mine) {
  HORO_ASSIGN(const std::shared_ptr<ProcessSet> all, find(0));
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = DType::kI32;
  operation.op = ReduceOp::kMax;
  operation.count = 1;
  int32_t failed = mine.ok() ? -1 : all->member();
  auto* const bytes = reinterpret_cast<std::byte*>(&failed);
  const Status met = all->group().run(operation, bytes, bytes, Deadline::never(), false);
  if (!mine.ok()) return mine;
  if (!met.ok() || failed < 0) return met;
  return {Code::kUnavailable, text("rank ", all->names()[static_cast<size_t>(failed)], " could not make the set")};
}

void Runtime::end_set(const Unit& unit, const Handle& handle) {
  const int number = unit.tensors.front().root;
  close_set(number, Status(Code::kStopped, text("process set ", number, " was removed")));
  if (handle) handle->finish({});
}

void Runtime::close_set(int number, const Status& why) {
  Known known;
  {
    std::lock_guard lock(mutex_);
    if (auto found = sets_.find(number); found != sets_.end()) {
      known = std::move(found->second);
      sets_.erase(found);
    }
  }
  if (known.set) known.set->end(why);
}

std::vector<int> Runtime::set_numbers() const {
  std::lock_guard lock(mutex_);
  std::vector<int> numbers;
  for (const auto& [number, known] : sets_) numbers.push_back(number);
  return numbers;
}

Result<std::vector<int>> Runtime::set_ranks(int set) const {
  std::vector<int> seats;
  {
    std::lock_guard lock(mutex_);
    auto found = sets_.find(set);
    if (found == sets_.end()) return Status(Code::kInvalidArgument, text("there is no process set ", set));
    seats = found->second.seats;
  }
  return ranks_of(seats);
}

}  // namespace horo::engine
