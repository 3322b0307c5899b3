// One simulated rank: the product's Membership and Suspicion, with modelled groups around them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/group_model.h"
#include "sim/reform_model.h"
#include "sim/world.h"

#include "horo/rendezvous/membership.h"
#include "horo/rendezvous/suspicion.h"

namespace horo::sim {

class Node final : public GroupHost, public ReformHost {
 public:
  enum class State : uint8_t { kRunning, kFrozen, kDead, kFenced, kLeft, kStopped };

  Node(World& world, int rank);

  void start();
  void handle(const NodeEvent& event);

  State state() const { return state_; }
  bool alive() const { return state_ == State::kRunning || state_ == State::kFrozen; }
  bool frozen() const { return state_ == State::kFrozen; }
  void die() { state_ = State::kDead; }
  void freeze() { state_ = State::kFrozen; }
  void thaw() { state_ = State::kRunning; }
  void leave();

  /// Nothing of this rank waits for a decision, and every group goes on: at least `operations` more than at mark().
  bool well(uint64_t operations) const;
  void mark();
  std::string describe() const;
  const rendezvous::Membership& membership() const { return membership_; }
  uint64_t world_view() const { return reform_.world(); }

  // GroupHost and ReformHost
  void send(int to, Packet packet) override;

  // ReformHost
  void open_world(uint64_t view) override;
  void stop(const Status& why) override;

  // GroupHost
  void enter_soon(uint64_t group) override;
  void finish_soon(uint64_t group, uint64_t number) override;
  void succeeded(uint64_t group, uint64_t number) override;
  void failed(uint64_t group, uint64_t from_number) override;
  void settled(uint64_t group, uint64_t epoch) override;
  void violated(std::string what) override;

 private:
  void on(const Delivery& delivery);
  void on(const EnterTimer& timer);
  void on(const FinishTimer& timer);
  void on(const StopTimer& timer);
  void on(const DetectTimer& timer);
  void on(const TickTimer& timer);
  void on(const ReformTimer& timer);

  void take(int from, const rendezvous::Message& message);
  template <class GroupPacket>
  void take_for_group(int from, const GroupPacket& packet);

  void feed(rendezvous::Input input);
  void drain();
  void apply(rendezvous::output::Send& send);
  void apply(rendezvous::output::Revoke& revoke);
  void apply(rendezvous::output::Decide& decide);
  void apply(rendezvous::output::Install& install);
  void apply(rendezvous::output::Release& release);
  void apply(rendezvous::output::Fence& fence);
  void serve(const GroupModel& group, const rendezvous::output::Decide& decide);

  void watch(const rendezvous::watch::Input& input);
  /// Of the world that this rank is in.
  void keep_quorum();
  void update_waits();
  void plan_tick();
  void open(uint64_t group, std::vector<int> members);
  void open_subgroups(uint64_t view);
  void world_failed(uint64_t view);
  bool running() const { return state_ == State::kRunning; }
  bool has_bug(Bug bug) const { return world_.options().bug == bug; }

  World& world_;
  const int rank_;
  State state_ = State::kRunning;
  rendezvous::Membership membership_;
  rendezvous::Suspicion suspicion_;
  std::map<uint64_t, GroupModel> groups_;
  std::map<uint64_t, std::vector<std::pair<int, Packet>>> early_;  ///< For groups that are not open here yet.
  ReformModel reform_;
  std::set<uint64_t> failed_worlds_;
  std::map<uint64_t, uint64_t> marks_;
  std::map<uint64_t, rendezvous::Report> first_reports_;
  std::set<uint64_t> unreleased_;
  std::deque<rendezvous::Input> inputs_;
  bool draining_ = false;
  bool input_is_message_ = false;
  RankBits waits_ = 0;
  std::optional<Time> tick_at_;
};

}  // namespace horo::sim
