// What a rank answers for when it has ended a group that others still use.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <map>
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

/// Ranks 0 and 1 live; the others are no more than two links each. Rank 0 has completed an operation that rank 1 is in.
class EndedGroup : public ::testing::Test {
 protected:
  explicit EndedGroup(int size = 3) : key_(std::make_shared<const net::Key>(net::Key::random().value())) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, key_, std::chrono::seconds(20), size));
    }
    auto link = connect_link(ranks_[1]->self, ranks_[1]->address, ranks_[0]->address, soon());
    EXPECT_TRUE(link.ok()) << link.status();
    EXPECT_TRUE(ranks_[1]->control->add_link(std::move(*link)).ok());
    for (size_t rank : {0, 1}) {
      for (size_t other = 2; other < ranks_.size(); ++other) {
        auto mute = connect_link(ranks_[other]->self, ranks_[other]->address, ranks_[rank]->address, soon());
        EXPECT_TRUE(mute.ok()) << mute.status();
        if (mute.ok()) mute_[other].push_back(std::move(*mute));
      }
      EXPECT_TRUE(ranks_[rank]->control->wait_for_links(soon()).ok());
    }
    group_of_zero_ = add(0, LonePlane::Fate::kSucceeds).first;
    complete(*group_of_zero_);
    auto one = add(1, LonePlane::Fate::kWaits);
    outcome_ = std::async(std::launch::async, [this, group = one.first] {
      const std::vector<uint64_t> in(kCount, 1);
      return group->run(allreduce(), std::as_bytes(std::span(in)).data(), bytes_of(out_));
    });
    one.second->await_running();
  }

  static std::byte* bytes_of(std::vector<uint64_t>& values) { return std::as_writable_bytes(std::span(values)).data(); }

  static void complete(Group& group) {
    std::vector<uint64_t> values(kCount, 1);
    EXPECT_TRUE(group.run(allreduce(), bytes_of(values), bytes_of(values)).ok());
  }

  ~EndedGroup() override {
    for (const auto& rank : ranks_) rank->control->stop();
  }

  std::pair<std::shared_ptr<Group>, LonePlane*> add(int rank, LonePlane::Fate fate, uint64_t id = kGroup,
                                                    std::vector<int> members = {0, 1, 2}) {
    auto plane = std::make_unique<LonePlane>(fate);
    LonePlane* const seen = plane.get();
    GroupOptions options;
    options.id = id;
    options.ranks = std::move(members);
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
    for (Link& link : mute_[2]) link.channel.socket().shutdown_send();
  }

  void expect_rank_one_to_succeed() {
    EXPECT_FALSE(released_) << "rank 1 uses the group";
    const Status status = outcome_.get();
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(out_, std::vector<uint64_t>(kCount, kResult));
  }

  std::shared_ptr<const net::Key> key_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<size_t, std::vector<Link>> mute_;  ///< To ranks 0 and 1.
  std::shared_ptr<Group> group_of_zero_;
  std::vector<uint64_t> out_ = std::vector<uint64_t>(kCount);
  std::future<Status> outcome_;
  std::atomic<bool> released_{false};
};

TEST_F(EndedGroup, BeforeALossIsKnownItsLastResultCountsForTheOthers) {
  end_group_of_zero();
  lose_rank_two();
  expect_rank_one_to_succeed();
  EXPECT_EQ(ranks_[0]->control->members_without({2}, soon()), (std::vector<int>{0, 1}));
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

/// Two ranks, and a group that both were told of.
TEST(RefusedGroup, IsKeptByNobody) {
  auto key = std::make_shared<const net::Key>(net::Key::random().value());
  Rank zero(0, key, std::chrono::seconds(20)), one(1, key, std::chrono::seconds(20));
  auto link = connect_link(one.self, one.address, zero.address, soon());
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE(one.control->add_link(std::move(*link)).ok());
  ASSERT_TRUE(zero.control->wait_for_links(soon()).ok());
  const Status full(Code::kUnavailable, "no descriptors are left");
  uint64_t id = kGroup;
  for (const bool one_has_it : {false, true}) {
    std::promise<void> released_by_zero, released_by_one;
    const auto release_one = [&] { released_by_one.set_value(); };
    zero.control->refuse_group(++id, {0, 1}, full, [&] { released_by_zero.set_value(); });
    if (one_has_it) {
      auto group = std::make_shared<Group>(GroupOptions{.id = id, .ranks = {0, 1}, .member = 1},
                                           std::make_unique<SoloPlane>(), nullptr, *one.control, one.log);
      EXPECT_TRUE(one.control->add_group(group).ok());
      one.control->remove_group(*group, release_one);
    } else {
      one.control->refuse_group(id, {0, 1}, full, release_one);
    }
    for (auto* released : {&released_by_zero, &released_by_one}) {
      ASSERT_EQ(released->get_future().wait_until(soon().at()), std::future_status::ready) << one_has_it;
    }
  }
  for (Rank* rank : {&zero, &one}) rank->control->stop();
}

class ServingGroups : public EndedGroup {
 protected:
  ServingGroups() : EndedGroup(4) {}
};

TEST_F(ServingGroups, OneWhoDoesNotReadItsResultKeepsNobodyElseWaiting) {
  constexpr uint64_t kSooner = kGroup - 1;
  auto sooner = add(0, LonePlane::Fate::kSucceeds, kSooner, {0, 2, 3}).first;
  complete(*sooner);
  lose_rank_two();
  // Rank 3 says that it lacks the result, and stops.
  rendezvous::Message flush{rendezvous::MessageKind::kFlush, 0, {}, {{kSooner, 0, 0}}};
  flush.lost.add({2, rendezvous::LossReason::kKilled});
  net::FrameHeader header;
  header.type = static_cast<uint8_t>(ControlType::kMembership);
  header.source = 3;
  for (Link& link : mute_[3]) {
    ASSERT_TRUE(link.channel.send(header, rendezvous::encode(flush)).ok());
    ASSERT_TRUE(link.channel.flush(soon()).ok());
  }
  expect_rank_one_to_succeed();
}

}  // namespace
}  // namespace horo::group
