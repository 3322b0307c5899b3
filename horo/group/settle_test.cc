// What one member of a group makes of the rounds of the survivors.
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "horo/group/group.h"

namespace horo::group {
namespace {

/// Its operation is ended by a revocation, and done when another member serves its result.
class EndedPlane : public Plane {
 public:
  std::string_view transport_name() const override { return "none"; }
  std::string_view algorithm_name() const override { return "none"; }
  Status run(const Job&) override {
    running.set_value();
    revoked_.get_future().wait();
    return {Code::kStopped, "a member is gone"};
  }
  void revoke(const std::vector<int>&) override {
    if (!std::exchange(is_revoked_, true)) revoked_.set_value();
  }
  std::vector<int> gone() const override { return {3}; }
  bool decides_alone() const override { return false; }
  uint64_t held() const override { return held_; }
  std::span<const std::byte> retained(uint64_t) const override { return {}; }
  Status accept(const Job& job, std::span<const std::byte>) override {
    held_ = job.number;
    return {};
  }

  std::promise<void> running;

 private:
  std::promise<void> revoked_;
  bool is_revoked_ = false;
  std::atomic<uint64_t> held_{0};
};

class Reports : public GroupHost {
 public:
  void report(uint64_t epoch, const rendezvous::Report& report) override {
    std::lock_guard lock(mutex_);
    reports_[epoch] = report;
    changed_.notify_all();
  }
  rendezvous::Report of(uint64_t epoch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return reports_.contains(epoch); });
    return reports_.at(epoch);
  }
  void settled(uint64_t, uint64_t) override {}
  void abandon(uint64_t, const Status&) override {}
  bool forked() const override { return false; }
  std::vector<rendezvous::Loss> losses() const override { return {}; }
  std::optional<std::string> fenced() const override { return std::nullopt; }
  void over_changed() override {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, rendezvous::Report> reports_;
};

GroupOptions one_of_four() {
  GroupOptions options;
  options.id = 1;
  options.ranks = {0, 1, 2, 3};
  options.shape = collective::Shape::on_one_host(4);
  return options;
}

// A member that completed the operation serves it here, and is lost before it serves others. What is reported to the
// second round holds, whatever the first one decided.
TEST(GroupSettles, ByTheDecisionOfTheRoundThatItReportedTo) {
  for (int turn = 0; turn < 50; ++turn) {
    Reports host;
    Log log(LogLevel::kOff);
    auto plane = std::make_unique<EndedPlane>();
    EndedPlane& seen = *plane;
    Group group(one_of_four(), std::move(plane), nullptr, host, log);
    auto outcome = std::async(std::launch::async, [&] { return group.run(collective::Operation(), nullptr, nullptr); });
    seen.running.get_future().wait();
    rendezvous::LostSet lost;
    lost.add({3, rendezvous::LossReason::kKilled});
    group.revoke({1, {1}, lost});
    EXPECT_EQ(host.of(1).completed, 0u);
    group.decide({1, 1, 1, lost, {}, std::nullopt});
    group.accept_served(1, {});
    lost.add({1, rendezvous::LossReason::kKilled});
    group.revoke({2, {1}, lost});
    const uint64_t completed = host.of(2).completed;
    group.decide({2, 1, completed, lost, {}, std::nullopt});  // Nobody else has completed anything.
    const Status status = outcome.get();
    ASSERT_EQ(status.ok(), completed == 1) << "turn " << turn << ": " << status;
  }
}

/// Has no memory for what it runs.
class FullPlane : public EndedPlane {
 public:
  Status run(const Job&) override {
    ++runs;
    throw std::bad_alloc();
  }
  int runs = 0;
};

TEST(GroupWithoutMemory, IsNotEnteredAgain) {
  Reports host;
  Log log(LogLevel::kOff);
  auto plane = std::make_unique<FullPlane>();
  FullPlane& seen = *plane;
  Group group(one_of_four(), std::move(plane), nullptr, host, log);
  for (int call : {1, 2}) {
    const Status status = group.run(collective::Operation(), nullptr, nullptr);
    EXPECT_EQ(status.code(), Code::kUnavailable) << status;
    EXPECT_EQ(seen.runs, 1) << "call " << call << ": what it had posted is still there";
  }
}

}  // namespace
}  // namespace horo::group
