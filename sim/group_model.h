// A group of one rank that executes an endless sequence of operations: the smallest model of the data plane that can
// still go wrong in all the ways that matter.
//
// Rank r contributes 16^r, so a missing or doubled share shows in the sum. Three kinds of operations:
//   symmetric  every member sends to every other; the result is the same everywhere (allreduce)
//   rooted     one member sends, at most kWindow operations ahead of the slowest (broadcast)
//   exchange   like symmetric, but with a result per rank that nobody else has (alltoall): completes after confirmation
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/bug.h"
#include "sim/packet.h"

#include "horo/rendezvous/membership.h"

namespace horo::sim {

enum class OpKind : uint8_t { kSymmetric, kRooted, kExchange };

inline constexpr uint64_t kWindow = 4;

/// One bit per rank.
using RankBits = uint32_t;
constexpr RankBits bit(int rank) { return RankBits{1} << rank; }

/// What a group asks of the rank that it lives in.
class GroupHost {
 public:
  virtual ~GroupHost() = default;
  virtual void send(int to, Packet packet) = 0;
  /// Call enter() after the application's time to think.
  virtual void enter_soon(uint64_t group) = 0;
  /// Call finish() after the time that copying out takes.
  virtual void finish_soon(uint64_t group, uint64_t number) = 0;
  virtual void succeeded(uint64_t group, uint64_t number) = 0;
  virtual void failed(uint64_t group, uint64_t from_number) = 0;
  virtual void settled(uint64_t group, uint64_t epoch) = 0;
  virtual void violated(std::string what) = 0;
};

class GroupModel {
 public:
  struct Identity {
    uint64_t id = 0;
    uint64_t seed = 0;
    int rank = 0;
    std::vector<int> members;
    Bug bug = Bug::kNone;
  };

  GroupModel(Identity identity, GroupHost& host);

  void enter();
  void finish(uint64_t number);
  void take(int from, const Data& data);
  void take(int from, const Confirm& confirm);
  void take(int from, const Ack& ack);
  void take(int from, const Serve& serve);

  /// The application's next call would fail; the operation under way may still end.
  void revoke() { revoked_ = true; }
  /// The executing thread leaves its operation.
  void stop();
  rendezvous::Report report() const { return {identity_.id, completed_, held_}; }
  void decide(const rendezvous::output::Decide& decide);
  void release();

  OpKind kind(uint64_t number) const;
  int root(uint64_t number) const;
  uint64_t expected() const { return expected_; }
  /// The result, if it is retained.
  std::optional<uint64_t> retained(uint64_t number) const;
  /// Ranks that the operation under way, or the decision, waits for.
  void add_waits(RankBits& ranks) const;

  const std::vector<int>& members() const { return identity_.members; }
  uint64_t completed() const { return completed_; }
  bool revoked() const { return revoked_; }
  bool stopped() const { return stopped_; }
  bool settled() const { return decision_ && completed_ >= decision_->final; }

 private:
  /// Staging buffers that are used in turn.
  struct Ring {
    std::vector<std::pair<uint64_t, std::optional<uint64_t>>> slots;
    uint64_t used = 0;
    void claim(uint64_t number) { slots[used++ % slots.size()] = {number, std::nullopt}; }
    void fill(uint64_t number, uint64_t value);
    std::optional<uint64_t> find(uint64_t number) const;
  };

  void advance();
  void note_progress(int rank, uint64_t number);
  bool window_open(uint64_t number) const;
  void hold(uint64_t number, uint64_t value);
  void complete_if_confirmed(uint64_t number);
  void complete(uint64_t number);
  void follow_decision();
  void send_to_others(const Packet& packet);

  const Identity identity_;
  GroupHost& host_;
  uint64_t expected_ = 0;

  uint64_t entered_ = 0;
  uint64_t held_ = 0;
  uint64_t completed_ = 0;
  bool revoked_ = false;
  bool stopped_ = false;
  uint64_t settled_epoch_ = 0;
  std::optional<rendezvous::output::Decide> decision_;

  std::map<uint64_t, std::map<int, uint64_t>> data_;
  std::map<uint64_t, std::set<int>> confirms_;
  std::map<uint64_t, uint64_t> values_;  ///< Held, not yet completed.
  std::map<uint64_t, uint64_t> served_;
  std::array<uint64_t, 16> progress_{};  ///< The last operation that each member is known to have completed.
  Ring symmetric_;
  Ring rooted_;
};

}  // namespace horo::sim
