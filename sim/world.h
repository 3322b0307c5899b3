// The virtual clock, the event queue, the network and the faults of one run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <queue>
#include <string>
#include <variant>
#include <vector>

#include "sim/bug.h"
#include "sim/checker.h"
#include "sim/packet.h"
#include "sim/random.h"
#include "sim/scenario.h"

#include "horo/base/deadline.h"
#include "horo/base/text.h"

namespace horo::sim {

class Node;

struct Delivery {
  int from = 0;
  uint64_t sequence = 0;  ///< On its link.
  Packet packet;
};
struct EnterTimer {
  uint64_t group = 0;
};
struct FinishTimer {
  uint64_t group = 0;
  uint64_t number = 0;
};
/// The executing thread leaves the operation, and the group reports.
struct StopTimer {
  uint64_t group = 0;
  uint64_t epoch = 0;
};
struct DetectTimer {
  rendezvous::Loss loss;
};
struct TickTimer {};
/// The application has noticed that its world has failed.
struct ReformTimer {};
using NodeEvent = std::variant<Delivery, EnterTimer, FinishTimer, StopTimer, DetectTimer, TickTimer, ReformTimer>;

class World {
 public:
  struct Options {
    uint64_t seed = 0;
    int ranks = 4;
    Bug bug = Bug::kNone;
    /// The network is cut too, and ranks go on as Runtime::reform does: with a quorum, or not at all.
    bool partitions = false;
    /// With partitions: one rank is cut off for a while, and nothing else happens. The others must go on.
    bool isolation = false;
    bool verbose = false;
  };
  /// How often things happened: a simulator that never reaches a state proves nothing about it.
  struct Counts {
    uint64_t events = 0;
    uint64_t operations = 0;
    uint64_t rounds = 0;
    uint64_t served = 0;
    uint64_t replaced = 0;  ///< Decisions that a later loss replaced.
    uint64_t fenced = 0;
    uint64_t struck = 0;
    // With partitions:
    uint64_t blocked = 0;     ///< Links that were cut or clogged, one direction each.
    uint64_t worlds = 0;      ///< That came about after the first.
    uint64_t stopped = 0;     ///< Ranks without a quorum.
    uint64_t gone_on = 0;     ///< Runs at whose end somebody goes on.
    uint64_t overlooked = 0;  ///< Worlds that went on beside one whose ranks had all ended by then.
    Counts& operator+=(const Counts& other);
  };

  explicit World(const Options& options);
  ~World();

  void run();

  // For nodes.
  Time now() const { return now_; }
  Random& random() { return random_; }
  Checker& checker() { return checker_; }
  Counts& counts() { return counts_; }
  const Options& options() const { return options_; }
  void send(int from, int to, Packet packet);
  void schedule(int node, Duration delay, NodeEvent event);
  /// `node` passes a point of the protocol; a fault may strike it or another rank now.
  void pass(int node, Point point);
  /// `node` has ended in order: the others notice.
  void departed(int node);
  /// So that one may have evicted the other with good reason.
  bool pair_was_blocked(int a, int b);
  /// An operation of a world has succeeded on a rank.
  void commit(int node, uint64_t world);
  template <class... Parts>
  void trace(int node, const Parts&... parts);

  uint64_t trace_hash() const { return hash_; }
  const Scenario& scenario() const { return scenario_; }

 private:
  struct StrikeEvent {
    size_t fault = 0;
  };
  struct ThawEvent {};
  struct BlockEvent {
    int from = 0;
    Duration lasts{};
  };
  struct ReleaseEvent {
    int from = 0;
  };
  using Body = std::variant<NodeEvent, StrikeEvent, ThawEvent, BlockEvent, ReleaseEvent>;
  struct Entry {
    Time at{};
    uint64_t order = 0;
    int node = 0;
    size_t slot = 0;
    bool operator>(const Entry& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  struct Link {
    uint64_t sent = 0;
    uint64_t delivered = 0;
    uint64_t cut = UINT64_MAX;  ///< Packets from here on are lost with their sender.
    Time last{};
    bool slow = false;
    int blocks = 0;  ///< Faults that hold back what travels here.
    bool was_blocked = false;
    std::vector<NodeEvent> held;
  };

  void push(Time at, int node, Body body);
  void dispatch(int node, Body body);
  void dispatch_to_node(int node, NodeEvent event);
  void strike(const Fault& fault, int victim);
  void kill(int victim);
  void freeze(int victim, const Fault& fault);
  void thaw(int node);
  void strike_network(const Fault& fault);
  /// From `from` to `to`, `after` now, and for how long.
  void block(int from, int to, Duration after, Duration lasts);
  void on_block(int to, const BlockEvent& event);
  void release(int from, int to);
  bool all_well() const;
  bool all_in_one_world() const;
  uint64_t alive() const;
  bool faults_pending() const;
  void finish();
  Link& link(int from, int to) { return links_[static_cast<size_t>(from * options_.ranks + to)]; }
  void note(int node, const std::string& line);

  const Options options_;
  Random random_;
  Scenario scenario_;
  Checker checker_;
  Counts counts_;
  Time start_{};
  Time now_{};
  Time last_change_{};
  uint64_t order_ = 0;
  int thaws_pending_ = 0;
  int blocks_pending_ = 0;        ///< To begin or to end.
  std::vector<uint64_t> worlds_;  ///< In which something succeeded.
  uint64_t hash_ = 0xcbf29ce484222325;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Link> links_;
  std::vector<std::vector<NodeEvent>> backlog_;  ///< Of frozen nodes.
  std::vector<bool> armed_;
  std::vector<int> passes_left_;

  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  std::vector<Body> bodies_;
  std::vector<size_t> free_slots_;
};

template <class... Parts>
void World::trace(int node, const Parts&... parts) {
  if (options_.verbose) note(node, text(parts...));
}

}  // namespace horo::sim
