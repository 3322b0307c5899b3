// For tests: a group whose members are objects of one thread. Runs one exchange of each of them, operation by
// operation.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "horo/ddp/hooks.h"
#include "horo/kernel/reduce.h"

namespace horo::ddp {

inline Result<Memory> allocate_plainly(uint64_t bytes) {
  return Memory(new std::byte[bytes + 1], std::default_delete<std::byte[]>());
}

/// Members that reduce one bucket of f32 each.
class Members {
 public:
  Members(int count, std::vector<Parameter> parameters, const HookOptions& options)
      : parameters_(std::move(parameters)) {
    Indices all(parameters_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    layout_ = Layout(parameters_, {all});
    for (int member = 0; member < count; ++member) {
      hooks_.push_back(std::make_unique<Hook>(options, parameters_));
      values.emplace_back(bucket().elements);
    }
    for (int member = 0; member < count; ++member) {
      auto* memory = reinterpret_cast<std::byte*>(values[static_cast<size_t>(member)].data());
      auto made = hooks_[static_cast<size_t>(member)]->make({&bucket(), memory, member, count}, allocate_plainly);
      EXPECT_TRUE(made.ok()) << made.status();
      exchanges_.push_back(std::move(*made));
    }
  }
  int size() const { return static_cast<int>(exchanges_.size()); }
  const Bucket& bucket() const { return layout_.buckets()[0]; }
  uint64_t sent_bytes() const { return sent_; }

  /// All members' values become what the hook makes of them.
  void reduce(uint64_t iteration) {
    for (auto& exchange : exchanges_) exchange->begin({1.0 / size(), iteration});
    while (true) {
      std::vector<Exchange::Step> steps;
      for (auto& exchange : exchanges_) {
        auto step = exchange->next();
        ASSERT_TRUE(step.ok()) << step.status();
        if (*step) steps.push_back(std::move(**step));
      }
      if (steps.empty()) return;
      ASSERT_EQ(steps.size(), exchanges_.size()) << "all members have equally many steps";
      sent_ += steps[0].sent_bytes;
      run(steps);
    }
  }
  std::vector<std::vector<float>> values;  ///< Of each member.

 private:
  static void run(std::vector<Exchange::Step>& steps) {
    switch (steps[0].operation.kind) {
      case collective::Kind::kAllreduce:
        return allreduce(steps);
      case collective::Kind::kAlltoall:
        return alltoall(steps);
      default:
        return allgather(steps);
    }
  }
  static void allreduce(std::vector<Exchange::Step>& steps) {
    const auto& operation = steps[0].operation;
    std::vector<const std::byte*> inputs;
    for (const auto& step : steps) inputs.push_back(step.in);
    std::vector<std::byte> sum(operation.total_bytes());
    kernel::Scaling scaling;
    scaling.factor = operation.prescale;
    kernel::combine_many(operation.dtype, ReduceOp::kSum)(sum.data(), inputs, operation.count, scaling);
    for (const auto& step : steps) std::memcpy(step.out, sum.data(), sum.size());
  }
  static void alltoall(std::vector<Exchange::Step>& steps) {
    for (size_t to = 0; to < steps.size(); ++to) {
      std::byte* out = steps[to].out;
      for (const auto& from : steps) {
        uint64_t before = 0;
        for (size_t other = 0; other < to; ++other) before += from.operation.counts[other];
        EXPECT_EQ(from.operation.counts[to], steps[to].operation.receive_counts[0]);
        std::memcpy(out, from.in + before, from.operation.counts[to]);
        out += from.operation.counts[to];
      }
    }
  }
  static void allgather(std::vector<Exchange::Step>& steps) {
    std::vector<std::byte> all;
    for (size_t from = 0; from < steps.size(); ++from) {
      all.insert(all.end(), steps[from].in, steps[from].in + steps[from].operation.counts[from]);
    }
    for (const auto& step : steps) std::memcpy(step.out, all.data(), all.size());
  }

  const std::vector<Parameter> parameters_;
  Layout layout_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::vector<std::unique_ptr<BucketExchange>> exchanges_;
  uint64_t sent_ = 0;
};

}  // namespace horo::ddp
