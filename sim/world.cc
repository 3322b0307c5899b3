#include "sim/world.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "sim/node.h"

namespace horo::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// After the last fault everything must have ended within this time; the freeze limit is part of it.
constexpr Duration kLimit = std::chrono::seconds(10);
constexpr uint64_t kMostEvents = 3'000'000;

int64_t microseconds_since(Time start, Time now) {
  return std::chrono::duration_cast<microseconds>(now - start).count();
}

Duration detection_delay(Random& random, bool prompt) {
  if (prompt) return microseconds(random.between(20, 300));
  if (random.chance(50)) return microseconds(random.between(50, 5000));
  if (random.chance(60)) return milliseconds(random.between(1, 250));  // A big process is torn down slowly.
  return milliseconds(random.between(250, 1000));
}

}  // namespace

World::World(const Options& options)
    : options_(options),
      random_(options.seed),
      scenario_(options.isolation    ? draw_isolation(random_, options.ranks)
                : options.partitions ? draw_partition(random_, options.ranks)
                                     : draw_scenario(random_, options.ranks)),
      checker_(options.ranks) {
  auto count = static_cast<size_t>(options.ranks);
  links_.resize(count * count);
  for (Link& wire : links_) wire.slow = random_.chance(10);
  backlog_.resize(count);
  armed_.resize(scenario_.faults.size());
  for (const Fault& fault : scenario_.faults) passes_left_.push_back(fault.passes);
  for (int rank = 0; rank < options.ranks; ++rank) nodes_.push_back(std::make_unique<Node>(*this, rank));
  for (size_t i = 0; i < scenario_.faults.size(); ++i) push(start_ + scenario_.faults[i].at, 0, StrikeEvent{i});
}

World::~World() = default;

World::Counts& World::Counts::operator+=(const Counts& other) {
  events += other.events;
  operations += other.operations;
  rounds += other.rounds;
  served += other.served;
  replaced += other.replaced;
  fenced += other.fenced;
  struck += other.struck;
  blocked += other.blocked;
  worlds += other.worlds;
  stopped += other.stopped;
  gone_on += other.gone_on;
  overlooked += other.overlooked;
  return *this;
}

void World::run() {
  for (auto& node : nodes_) node->start();
  while (!queue_.empty() && !checker_.violation()) {
    Entry entry = queue_.top();
    queue_.pop();
    Body body = std::move(bodies_[entry.slot]);
    free_slots_.push_back(entry.slot);
    now_ = entry.at;
    ++counts_.events;
    hash_ = mix(hash_ ^ static_cast<uint64_t>(microseconds_since(start_, now_)),
                static_cast<uint64_t>(entry.node) * 64 + body.index() * 16 +
                    (body.index() == 0 ? std::get<NodeEvent>(body).index() : 0));
    dispatch(entry.node, std::move(body));
    if (counts_.events % 16 == 0 && all_well()) break;
    if (now_ - last_change_ > kLimit || counts_.events > kMostEvents) {
      if (all_well()) break;
      std::string where;
      for (auto& node : nodes_) {
        if (node->state() == Node::State::kRunning && !node->well(2)) where += "\n  " + node->describe();
      }
      checker_.violated(text("hang: ", where));
    }
  }
  finish();
}

void World::push(Time at, int node, Body body) {
  size_t slot = bodies_.size();
  if (free_slots_.empty()) {
    bodies_.push_back(std::move(body));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    bodies_[slot] = std::move(body);
  }
  queue_.push({at, order_++, node, slot});
}

void World::schedule(int node, Duration delay, NodeEvent event) { push(now_ + delay, node, std::move(event)); }

void World::send(int from, int to, Packet packet) {
  Link& wire = link(from, to);
  int64_t most = wire.slow ? 8000 : random_.chance(95) ? 400 : 4000;
  Duration delay = microseconds(random_.between(20, most));
  wire.last = std::max(wire.last, now_ + delay);
  push(wire.last, to, NodeEvent(Delivery{from, wire.sent++, std::move(packet)}));
}

void World::dispatch(int node, Body body) {
  if (auto* event = std::get_if<NodeEvent>(&body)) {
    dispatch_to_node(node, std::move(*event));
  } else if (auto* strike_event = std::get_if<StrikeEvent>(&body)) {
    const Fault& fault = scenario_.faults[strike_event->fault];
    if (fault.at_point && !armed_[strike_event->fault]) {
      armed_[strike_event->fault] = true;
    } else {
      strike(fault, node);
    }
  } else if (auto* block_event = std::get_if<BlockEvent>(&body)) {
    on_block(node, *block_event);
  } else if (auto* release_event = std::get_if<ReleaseEvent>(&body)) {
    release(release_event->from, node);
  } else {
    thaw(node);
  }
}

void World::dispatch_to_node(int node, NodeEvent event) {
  Node& target = *nodes_[static_cast<size_t>(node)];
  if (auto* delivery = std::get_if<Delivery>(&event)) {
    Link& wire = link(delivery->from, node);
    if (delivery->sequence >= wire.cut) return;
    if (wire.blocks > 0) return wire.held.push_back(std::move(event));
    wire.delivered = delivery->sequence + 1;
  } else if (auto* detect = std::get_if<DetectTimer>(&event)) {
    // The sign of a death travels like everything else.
    Link& wire = link(detect->loss.rank, node);
    if (wire.blocks > 0) return wire.held.push_back(std::move(event));
  }
  if (target.frozen()) {
    backlog_[static_cast<size_t>(node)].push_back(std::move(event));
  } else if (target.state() == Node::State::kRunning) {
    target.handle(event);
  }
}

void World::pass(int node, Point point) {
  for (size_t i = 0; i < scenario_.faults.size(); ++i) {
    const Fault& fault = scenario_.faults[i];
    if (!armed_[i] || !fault.at_point || fault.point != point || passes_left_[i] < 0) continue;
    if (passes_left_[i]-- > 0) continue;
    int victim = fault.victim < 0 ? node : fault.victim;
    if (fault.kind == Fault::Kind::kKill || fault.strikes_network()) {
      strike(fault, victim);
    } else {
      push(now_, victim, StrikeEvent{i});  // A freeze or farewell comes between two steps of a rank.
    }
  }
}

void World::strike(const Fault& fault, int victim) {
  if (fault.strikes_network()) return strike_network(fault);
  if (!fault.at_point) victim = fault.victim;
  Node& target = *nodes_[static_cast<size_t>(victim)];
  auto running = std::count_if(nodes_.begin(), nodes_.end(),
                               [](const auto& node) { return node->state() == Node::State::kRunning; });
  if (!target.alive() || running < 2) return;
  if (target.frozen() && fault.kind != Fault::Kind::kKill) return;
  ++counts_.struck;
  last_change_ = now_;
  if (fault.kind == Fault::Kind::kKill) {
    kill(victim);
  } else if (fault.kind == Fault::Kind::kLeave) {
    trace(victim, "leaves");
    target.leave();
  } else {
    freeze(victim, fault);
  }
  for (auto& node : nodes_) node->mark();
}

void World::departed(int node) {
  last_change_ = now_;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (rank == node) continue;
    schedule(rank, detection_delay(random_, false), DetectTimer{{node, rendezvous::LossReason::kLeft}});
  }
}

void World::kill(int victim) {
  trace(victim, "is killed");
  nodes_[static_cast<size_t>(victim)]->die();
  bool all_arrives = random_.chance(40);
  bool prompt = random_.chance(40);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (rank == victim) continue;
    Link& wire = link(victim, rank);
    // What was under way arrives up to some packet, and nothing after it.
    wire.cut = all_arrives ? wire.sent : wire.delivered + random_.below(wire.sent - wire.delivered + 1);
    schedule(rank, detection_delay(random_, prompt), DetectTimer{{victim, rendezvous::LossReason::kKilled}});
  }
}

void World::freeze(int victim, const Fault& fault) {
  trace(victim, "is frozen");
  nodes_[static_cast<size_t>(victim)]->freeze();
  checker_.froze(victim, now_);
  if (fault.kind == Fault::Kind::kFreezeForever) return;
  ++thaws_pending_;
  push(now_ + fault.lasts, victim, ThawEvent{});
}

void World::thaw(int node) {
  --thaws_pending_;
  Node& target = *nodes_[static_cast<size_t>(node)];
  if (!target.frozen()) return;
  trace(node, "thaws");
  target.thaw();
  checker_.thawed(node, now_);
  last_change_ = now_;
  for (auto& other : nodes_) other->mark();
  std::vector<NodeEvent> backlog = std::exchange(backlog_[static_cast<size_t>(node)], {});
  // Control messages are read before data; timers may fire before both, or after.
  bool ticks_first = random_.chance(50);
  auto order = [&](const NodeEvent& event) {
    if (std::holds_alternative<TickTimer>(event)) return ticks_first ? 0 : 3;
    auto* delivery = std::get_if<Delivery>(&event);
    bool control = delivery != nullptr && is_control(delivery->packet);
    return control != (options_.bug == Bug::kDataFirst) ? 1 : 2;
  };
  std::stable_sort(backlog.begin(), backlog.end(),
                   [&](const NodeEvent& a, const NodeEvent& b) { return order(a) < order(b); });
  for (NodeEvent& event : backlog) {
    if (target.state() == Node::State::kRunning) target.handle(event);
  }
}

bool World::faults_pending() const {
  if (thaws_pending_ > 0 || blocks_pending_ > 0) return true;
  auto last = std::max_element(scenario_.faults.begin(), scenario_.faults.end(),
                               [](const Fault& a, const Fault& b) { return a.at < b.at; });
  return now_ <= start_ + last->at;
}

bool World::all_well() const {
  if (faults_pending()) return false;
  if (options_.partitions) return all_in_one_world();
  rendezvous::LostSet lost;
  for (const auto& node : nodes_) {
    if (node->state() == Node::State::kRunning) lost.merge(node->membership().lost());
  }
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    bool gone = nodes_[rank]->state() != Node::State::kRunning;
    if (gone != lost.contains(static_cast<int>(rank))) return false;
  }
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return node->state() != Node::State::kRunning || (node->well(2) && node->membership().lost().same_ranks(lost));
  });
}

void World::finish() {
  std::vector<int> survivors;
  std::vector<int> fenced;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Node::State state = nodes_[static_cast<size_t>(rank)]->state();
    if (state == Node::State::kRunning && !nodes_[static_cast<size_t>(rank)]->membership().ended()) {
      survivors.push_back(rank);
    } else if (state != Node::State::kDead && state != Node::State::kLeft && state != Node::State::kStopped) {
      fenced.push_back(rank);
    }
  }
  counts_.gone_on += survivors.empty() ? 0 : 1;
  if (checker_.violation()) return;
  if (options_.isolation && survivors.empty()) checker_.violated("nobody goes on, though only one rank was cut off");
  options_.partitions ? checker_.finish_cut(survivors) : checker_.finish(survivors, fenced);
}

void World::note(int node, const std::string& line) {
  std::printf("%10lld us  rank %d %s\n", static_cast<long long>(microseconds_since(start_, now_)), node, line.c_str());
}

}  // namespace horo::sim
