// What a rank answers for when it has ended a group that others still use.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "horo/group/control_testing.h"
#include "horo/group/solo_plane.h"

namespace horo::group {
namespace {

constexpr uint64_t kGroup = 7;
constexpr uint64_t kResult = 0x1111;
constexpr size_t kCount = size_t{4} << 20;  // More than is under way at a time.

collective::Operation allreduce() {
  collective::Operation operation;
  operation.kind = collective::Kind::kAllreduce;
  operation.dtype = DType::kU64;
  operation.count = kCount;
  return operation;
}

/// One of several planes that meet nobody: its operation succeeds at once, or only if another member serves it.
class LonePlane : public Plane {
 public:
  enum class Fate : uint8_t { kSucceeds, kWaits };
  explicit LonePlane(Fate fate) : fate_(fate) {}

  std::string_view transport_name() const override { return "none"; }
  std::string_view algorithm_name() const override { return "none"; }
  Status run(const Job& job) override {
    if (fate_ == Fate::kSucceeds) {
      result_.assign(kCount, kResult);
      held_ = job.number;
      std::memcpy(job.out, result_.data(), kCount * sizeof(uint64_t));
      return {};
    }
    running_.set_value();
    revoked_.get_future().wait();
    return {Code::kStopped, "a member is gone"};
  }
  void revoke(const std::vector<int>&) override {
    if (!std::exchange(is_revoked_, true)) revoked_.set_value();
  }
  std::vector<int> gone() const override { return {}; }
  bool decides_alone() const override { return false; }
  uint64_t held() const override { return held_; }
  std::span<const std::byte> retained(uint64_t) const override { return std::as_bytes(std::span(result_)); }
  Status accept(const Job& job, std::span<const std::byte> served) override {
    std::memcpy(job.out, served.data(), std::min(served.size(), kCount * sizeof(uint64_t)));
    held_ = job.number;
    return {};
  }

  void await_running() { running_.get_future().wait(); }

 private:
  const Fate fate_;
  std::vector<uint64_t> result_;
  std::atomic<uint64_t> held_{0};
  bool is_revoked_ = false;
  std::promise<void> running_, revoked_;
};

/// Ranks 0 and 1 live; rank 2 is no more than its two links. Rank 0 has completed an operation that rank 1 is in.
class EndedGroup : public ::testing::Test {
 protected:
  EndedGroup() : key_(std::make_shared<const net::Key>(net::Key::random().value())) {
    for (int rank = 0; rank < 3; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, key_, std::chrono::seconds(20), 3));
    }
    auto link = connect_link(ranks_[1]->self, ranks_[1]->address, ranks_[0]->address, soon());
    EXPECT_TRUE(link.ok()) << link.status();
    EXPECT_TRUE(ranks_[1]->control->add_link(std::move(*link)).ok());
    for (size_t rank : {0, 1}) {
      auto doomed = connect_link(ranks_[2]->self, ranks_[2]->address, ranks_[rank]->address, soon());
      EXPECT_TRUE(doomed.ok()) << doomed.status();
      if (doomed.ok()) doomed_.push_back(std::move(*doomed));
      EXPECT_TRUE(ranks_[rank]->control->wait_for_links(soon()).ok());
    }
    auto zero = add(0, LonePlane::Fate::kSucceeds);
    auto one = add(1, LonePlane::Fate::kWaits);
    group_of_zero_ = zero.first;
    const std::vector<uint64_t> in(kCount, 1);
    std::vector<uint64_t> out(kCount);
    const auto bytes = [](auto& values) { return std::as_writable_bytes(std::span(values)).data(); };
    EXPECT_TRUE(group_of_zero_->run(allreduce(), std::as_bytes(std::span(in)).data(), bytes(out)).ok());
    outcome_ = std::async(std::launch::async, [this, group = one.first, in, bytes] {
      return group->run(allreduce(), std::as_bytes(std::span(in)).data(), bytes(out_));
    });
    one.second->await_running();
  }

  ~EndedGroup() override {
    for (const auto& rank : ranks_) rank->control->stop();
  }

  std::pair<std::shared_ptr<Group>, LonePlane*> add(int rank, LonePlane::Fate fate) {
    auto plane = std::make_unique<LonePlane>(fate);
    LonePlane* const seen = plane.get();
    GroupOptions options;
    options.id = kGroup;
    options.ranks = {0, 1, 2};
    options.member = rank;
    options.shape = collective::Shape::on_one_host(3);
    options.settle_limit = std::chrono::seconds(5);
    Rank& here = *ranks_[static_cast<size_t>(rank)];
    auto group = std::make_shared<Group>(std::move(options), std::move(plane), nullptr, *here.control, here.log);
    EXPECT_TRUE(here.control->add_group(group).ok());
    return {group, seen};
  }

  void end_group_of_zero() {
    group_of_zero_->stop(Status(Code::kStopped, "destroyed"));
    group_of_zero_->join();
    ranks_[0]->control->remove_group(*group_of_zero_, [this] { released_ = true; });
    group_of_zero_.reset();
  }

  void lose_rank_two() {
    for (Link& link : doomed_) link.channel.socket().shutdown_send();
  }

  void expect_rank_one_to_succeed() {
    EXPECT_FALSE(released_) << "rank 1 uses the group";
    const Status status = outcome_.get();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(out_, std::vector<uint64_t>(kCount, kResult));
    EXPECT_EQ(ranks_[0]->control->members_without({2}, soon()), (std::vector<int>{0, 1}));
  }

  std::shared_ptr<const net::Key> key_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Link> doomed_;
  std::shared_ptr<Group> group_of_zero_;
  std::vector<uint64_t> out_ = std::vector<uint64_t>(kCount);
  std::future<Status> outcome_;
  std::atomic<bool> released_{false};
};

TEST_F(EndedGroup, BeforeALossIsKnownItsLastResultCountsForTheOthers) {
  end_group_of_zero();
  lose_rank_two();
  expect_rank_one_to_succeed();
}

TEST_F(EndedGroup, AfterALossIsKnownItsResultsAreServedToTheEnd) {
  lose_rank_two();
  EXPECT_EQ(ranks_[1]->control->members_without({2}, soon()), (std::vector<int>{0, 1}));
  // Rank 1 reads no further than it has.
  auto solo = std::make_shared<Group>(GroupOptions{.id = kGroup + 1, .ranks = {1}}, std::make_unique<SoloPlane>(),
                                      nullptr, *ranks_[1]->control, ranks_[1]->log);
  EXPECT_TRUE(ranks_[1]->control->add_group(solo).ok());
  std::promise<void> go_on;
  std::thread holder(
      [&] { ranks_[1]->control->remove_group(*solo, [held = go_on.get_future().share()] { held.wait(); }); });
  EXPECT_EQ(ranks_[0]->control->members_without({2}, soon()), (std::vector<int>{0, 1}));
  end_group_of_zero();
  go_on.set_value();
  holder.join();
  expect_rank_one_to_succeed();
}

}  // namespace
}  // namespace horo::group
