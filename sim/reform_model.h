// What Runtime::reform (horo/engine/runtime_reform.cc) does on one rank, without its threads and connections: it reads
// the installed view, asks the product's quorum, meets the others at the first of them and opens a group with them
// (horo/group/control_groups.cc), whose first operation is the decision. A failed attempt is followed by one with the
// next view. Not modelled: deadlines, offers that are withdrawn, and reforming without a loss.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sim/bug.h"
#include "sim/group_model.h"
#include "sim/packet.h"

#include "horo/base/status.h"
#include "horo/rendezvous/membership.h"

namespace horo::sim {

/// A view, or a world, by its members: one bit per rank.
uint64_t view_of(const std::vector<int>& members);
std::vector<int> members_of(uint64_t view);

class ReformHost {
 public:
  virtual ~ReformHost() = default;
  virtual void send(int to, Packet packet) = 0;
  virtual void open_world(uint64_t view) = 0;
  /// This rank must not go on.
  virtual void stop(const Status& why) = 0;
};

class ReformModel {
 public:
  ReformModel(int rank, uint64_t world, Bug bug, ReformHost& host)
      : rank_(rank), bug_(bug), world_(world), host_(host) {}

  /// The application calls reform(): its world has failed.
  void begin() { reforming_ = true; }
  /// After every step of this rank: goes on as far as it can.
  void look(const rendezvous::Membership& membership);
  void take(int from, const Join& join);
  void take(const Ready& ready);
  /// How the first operation of a view's group ended here.
  void decided(uint64_t view, bool succeeded);

  bool reforming() const { return reforming_; }
  /// The last one whose decision this rank knows.
  uint64_t world() const { return world_; }
  void add_waits(RankBits& ranks) const;

 private:
  enum class Attempt : uint8_t { kNone, kJoined, kOpen, kFailed };

  Status quorum(const std::vector<int>& members, const rendezvous::LostSet& lost) const;

  const int rank_;
  const Bug bug_;
  uint64_t world_;
  ReformHost& host_;
  bool reforming_ = false;
  Attempt attempt_ = Attempt::kNone;
  uint64_t view_ = 0;                        ///< Of the attempt.
  std::map<uint64_t, std::set<int>> joins_;  ///< Who has come, to views that this rank is the first of.
};

}  // namespace horo::sim
