#include "sim/partition.h"

#include <algorithm>
#include <map>
#include <queue>
#include <vector>

#include "sim/random.h"

#include "horo/base/text.h"
#include "horo/rendezvous/membership.h"
#include "horo/rendezvous/quorum.h"

namespace horo::sim {

namespace {

using rendezvous::LossReason;
using rendezvous::Membership;
using rendezvous::Message;
using std::chrono::microseconds;
using std::chrono::milliseconds;
namespace input = rendezvous::input;
namespace output = rendezvous::output;

constexpr auto kFreezeLimit = milliseconds(1000);
constexpr auto kEnd = milliseconds(20'000);

/// One that came about. Worlds form a tree; with a quorum it must be a chain, as far as anybody in it is alive.
struct WorldOf {
  std::vector<int> ranks;
  size_t parent = 0;
};

struct Node {
  Membership membership;
  bool dead = false;
  bool fenced = false;
  size_t world = 0;          ///< That it is in.
  std::vector<int> entered;  ///< The view that it has entered, if it waits for the others.
};

class PartitionRun {
 public:
  explicit PartitionRun(const PartitionOptions& options);
  PartitionOutcome run();

 private:
  struct Event {
    enum class Kind : uint8_t { kDeliver, kCut, kHeal, kKill, kNotice, kEvict, kTick };
    Time at{};
    uint64_t order = 0;
    Kind kind{};
    int node = 0;
    int about = 0;      ///< Who sent it, or who is lost.
    size_t cut = 0;     ///< During which a rank was silent.
    Message message{};  ///< kDeliver
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  bool is_cut(int a, int b) const { return cut_ && side_[static_cast<size_t>(a)] != side_[static_cast<size_t>(b)]; }
  Node& node(int rank) { return nodes_[static_cast<size_t>(rank)]; }
  void push(Duration delay, Event event);
  void draw_faults();
  void handle(const Event& event);
  void begin_cut();
  void heal();
  void kill(int victim);
  void step(int rank, const rendezvous::Input& input);
  void send(int from, int to, const Message& message);
  void enter(int rank, const output::Install& install);
  void come_about(const std::vector<int>& view);
  bool is_ancestor(size_t older, size_t younger) const;

  const PartitionOptions options_;
  Random random_;
  PartitionOutcome outcome_;
  Time now_{};
  uint64_t order_ = 0;
  bool cut_ = false;
  std::vector<int> side_;
  std::vector<Node> nodes_;
  std::vector<WorldOf> worlds_;
  std::map<std::pair<int, int>, std::vector<Message>> held_;  ///< What the cut holds back, by link.
  std::map<std::pair<int, int>, Time> last_;                  ///< Links keep their order.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
};

PartitionRun::PartitionRun(const PartitionOptions& options) : options_(options), random_(options.seed) {
  const int size = static_cast<int>(random_.between(2, 8));
  WorldOf all;
  for (int rank = 0; rank < size; ++rank) {
    nodes_.push_back({.membership = Membership({.rank = rank, .size = size}), .entered = {}});
    all.ranks.push_back(rank);
  }
  worlds_.push_back(all);
  side_.resize(nodes_.size());
  outcome_.scenario = text(size, " ranks");
  draw_faults();
}

void PartitionRun::push(Duration delay, Event event) {
  event.at = now_ + delay;
  event.order = order_++;
  queue_.push(std::move(event));
}

void PartitionRun::draw_faults() {
  Duration at{};
  for (uint64_t cuts = 1 + random_.below(3); cuts > 0; --cuts) {
    at += milliseconds(random_.between(1, 800));
    push(at, {.kind = Event::Kind::kCut});
    // Some heal before anybody is evicted, some while it happens, some long after.
    at += milliseconds(random_.chance(30) ? random_.between(10, 900) : random_.between(900, 4000));
    push(at, {.kind = Event::Kind::kHeal});
  }
  for (uint64_t kills = random_.below(4); kills > 0; --kills) {
    const int victim = static_cast<int>(random_.below(nodes_.size()));
    push(milliseconds(random_.between(0, 5000)), {.kind = Event::Kind::kKill, .node = victim});
  }
}

PartitionOutcome PartitionRun::run() {
  while (!queue_.empty() && !outcome_.violation) {
    const Event event = queue_.top();
    queue_.pop();
    if (event.at - Time{} > kEnd) break;
    now_ = event.at;
    outcome_.trace_hash = mix(outcome_.trace_hash ^ static_cast<uint64_t>(now_.time_since_epoch().count()),
                              static_cast<uint64_t>(event.kind) * 64 + static_cast<uint64_t>(event.node));
    handle(event);
  }
  return outcome_;
}

void PartitionRun::handle(const Event& event) {
  using Kind = Event::Kind;
  if (event.kind == Kind::kCut) return begin_cut();
  if (event.kind == Kind::kHeal) return heal();
  if (event.kind == Kind::kKill) return kill(event.node);
  if (node(event.node).dead || node(event.node).fenced) return;
  if (event.kind == Kind::kDeliver) {
    step(event.node, input::Received{event.about, event.message});
  } else if (event.kind == Kind::kNotice) {
    // A certain sign does not come through a cut.
    if (!is_cut(event.node, event.about)) step(event.node, input::Lost{{event.about, LossReason::kKilled}});
  } else if (event.kind == Kind::kEvict) {
    if (cut_ && event.cut == outcome_.cuts) step(event.node, input::Lost{{event.about, LossReason::kFrozen}});
  } else {
    step(event.node, input::Tick{});
  }
}

void PartitionRun::begin_cut() {
  cut_ = true;
  ++outcome_.cuts;
  for (int& side : side_) side = static_cast<int>(random_.below(2));
  outcome_.scenario += text("; cut at ", (now_ - Time{}) / milliseconds(1), " ms");
  for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) {
    outcome_.scenario += text(" ", side_[static_cast<size_t>(rank)]);
    for (int other = 0; other < static_cast<int>(nodes_.size()); ++other) {
      // Only who is waited for is ever missed.
      if (!is_cut(rank, other) || random_.chance(10)) continue;
      push(kFreezeLimit + milliseconds(random_.between(0, 300)),
           {.kind = Event::Kind::kEvict, .node = rank, .about = other, .cut = outcome_.cuts});
    }
  }
}

void PartitionRun::heal() {
  cut_ = false;
  auto held = std::exchange(held_, {});
  for (const auto& [link, messages] : held) {
    for (const Message& message : messages) send(link.first, link.second, message);
  }
  // The dead show now: their kernels answer.
  for (int dead = 0; dead < static_cast<int>(nodes_.size()); ++dead) {
    if (!node(dead).dead) continue;
    for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) {
      push(microseconds(random_.between(50, 5000)), {.kind = Event::Kind::kNotice, .node = rank, .about = dead});
    }
  }
}

void PartitionRun::kill(int victim) {
  const auto alive = std::count_if(nodes_.begin(), nodes_.end(), [](const Node& one) { return !one.dead; });
  if (node(victim).dead || alive < 2) return;
  node(victim).dead = true;
  ++outcome_.kills;
  outcome_.scenario += text("; rank ", victim, " killed at ", (now_ - Time{}) / milliseconds(1), " ms");
  for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) {
    push(microseconds(random_.between(50, 20'000)), {.kind = Event::Kind::kNotice, .node = rank, .about = victim});
  }
}

void PartitionRun::send(int from, int to, const Message& message) {
  if (node(to).dead) return;
  if (is_cut(from, to)) return held_[{from, to}].push_back(message);
  Time& last = last_[{from, to}];
  last = std::max(last, now_ + microseconds(random_.between(20, random_.chance(90) ? 500 : 20'000)));
  push(last - now_, {.kind = Event::Kind::kDeliver, .node = to, .about = from, .message = message});
}

void PartitionRun::step(int rank, const rendezvous::Input& input) {
  for (const rendezvous::Output& output : node(rank).membership.step(input, now_)) {
    if (const auto* sent = std::get_if<output::Send>(&output)) {
      for (int to : sent->to) send(rank, to, sent->message);
    } else if (const auto* install = std::get_if<output::Install>(&output)) {
      enter(rank, *install);
    } else if (std::holds_alternative<output::Fence>(output)) {
      node(rank).fenced = true;
      ++outcome_.fenced;
    }
  }
  if (const auto at = node(rank).membership.next_tick()) push(*at - now_, {.kind = Event::Kind::kTick, .node = rank});
}

void PartitionRun::enter(int rank, const output::Install& install) {
  Node& self = node(rank);
  self.entered.clear();
  const std::vector<int>& before = worlds_[self.world].ranks;
  const Status quorum = rendezvous::check_quorum(before, install.members, install.lost.losses());
  if (!quorum.ok()) ++outcome_.refused;
  if (!quorum.ok() && !options_.ignores_quorum) return;
  self.entered = install.members;
  const bool all = std::all_of(install.members.begin(), install.members.end(), [&](int member) {
    return !node(member).dead && !node(member).fenced && node(member).entered == install.members;
  });
  if (all) come_about(install.members);
}

bool PartitionRun::is_ancestor(size_t older, size_t younger) const {
  while (younger > older) younger = worlds_[younger].parent;
  return younger == older;
}

void PartitionRun::come_about(const std::vector<int>& view) {
  ++outcome_.worlds;
  size_t parent = 0;
  for (int rank : view) parent = std::max(parent, node(rank).world);
  for (int rank = 0; rank < static_cast<int>(nodes_.size()); ++rank) {
    const Node& other = node(rank);
    const bool goes_on = std::binary_search(view.begin(), view.end(), rank);
    if (other.dead || other.fenced) continue;
    // Whoever is in an older world waits, or will be told. In any other it has gone on without these.
    if (!is_ancestor(other.world, parent)) {
      outcome_.violation = text("two worlds: ", ranks_text(view), " go on, and rank ", rank, " has gone on with ",
                                ranks_text(worlds_[other.world].ranks), goes_on ? " among them" : "");
      return;
    }
  }
  worlds_.push_back({view, parent});
  for (int rank : view) {
    node(rank).world = worlds_.size() - 1;
    node(rank).entered.clear();
  }
}

}  // namespace

PartitionOutcome simulate_partition(const PartitionOptions& options) { return PartitionRun(options).run(); }

}  // namespace horo::sim
