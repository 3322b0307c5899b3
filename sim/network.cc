// The part of the world that cuts its network, and judges what the ranks make of that.
#include <algorithm>
#include <bit>
#include <utility>

#include "sim/node.h"
#include "sim/world.h"

namespace horo::sim {

namespace {

using std::chrono::milliseconds;

/// Between the end of a cut and the moment when a link works again: both ends try again ever less often.
constexpr int64_t kSlowestRetry = 500;

}  // namespace

void World::strike_network(const Fault& fault) {
  ++counts_.struck;
  const auto is_cut = [&](int from, int to) {
    const bool from_side = (fault.side >> from & 1) != 0;
    const bool to_side = (fault.side >> to & 1) != 0;
    if (fault.kind == Fault::Kind::kClog) return from == fault.victim && to == fault.peer;
    if (fault.kind == Fault::Kind::kIsolate) return (from == fault.victim) != (to == fault.victim);
    if (fault.kind == Fault::Kind::kOneWay) return from_side && !to_side;
    return from_side != to_side;
  };
  // A cut that flaps is up for as long as it is down, and neither is ever the same.
  const int turns = fault.kind == Fault::Kind::kFlap ? static_cast<int>(random_.between(2, 6)) : 1;
  Duration after{};
  for (int turn = 0; turn < turns; ++turn) {
    const Duration lasts = turns == 1 ? fault.lasts : fault.lasts * random_.between(10, 100) / 200;
    for (int from = 0; from < options_.ranks; ++from) {
      for (int to = 0; to < options_.ranks; ++to) {
        if (from != to && is_cut(from, to)) block(from, to, after, lasts);
      }
    }
    after += lasts + milliseconds(random_.between(1, 600));
  }
}

void World::block(int from, int to, Duration after, Duration lasts) {
  ++blocks_pending_;
  const BlockEvent event{from, lasts + milliseconds(random_.chance(30) ? 0 : random_.between(0, kSlowestRetry))};
  after == Duration::zero() ? on_block(to, event) : push(now_ + after, to, event);
}

void World::on_block(int to, const BlockEvent& event) {
  last_change_ = now_;
  ++counts_.blocked;
  Link& wire = link(event.from, to);
  ++wire.blocks;
  wire.was_blocked = true;
  trace(event.from, "cannot reach rank ", to);
  push(now_ + event.lasts, to, ReleaseEvent{event.from});
}

void World::release(int from, int to) {
  --blocks_pending_;
  last_change_ = now_;
  Link& wire = link(from, to);
  if (--wire.blocks > 0) return;
  trace(from, "reaches rank ", to, " again");
  if (blocks_pending_ == 0) {
    for (auto& node : nodes_) node->mark();
  }
  for (NodeEvent& event : std::exchange(wire.held, {})) dispatch_to_node(to, std::move(event));
}

bool World::pair_was_blocked(int a, int b) { return link(a, b).was_blocked || link(b, a).was_blocked; }

uint64_t World::alive() const {
  uint64_t ranks = 0;
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    if (nodes_[rank]->alive()) ranks |= uint64_t{1} << rank;
  }
  return ranks;
}

// Members only ever go, and an operation holds every member's share. So the worlds in which something has succeeded are
// a chain, each within the last, unless two sides have gone on. One of them may have ended to its last rank by then: a
// rank that was cut off all the while cannot tell that from a side that never went on.
void World::commit(int node, uint64_t world) {
  if (!options_.partitions || std::find(worlds_.begin(), worlds_.end(), world) != worlds_.end()) return;
  counts_.worlds += worlds_.empty() ? 0 : 1;
  for (uint64_t other : worlds_) {
    const uint64_t common = world & other;
    if (common == world || common == other) continue;
    if ((other & alive()) == 0) {
      ++counts_.overlooked;
      continue;
    }
    checker_.violated(text("double commit: rank ", node, " goes on with ", ranks_text(members_of(world)),
                           ", and something has succeeded with ", ranks_text(members_of(other))));
  }
  worlds_.push_back(world);
}

bool World::all_in_one_world() const {
  uint64_t running = 0;
  for (size_t rank = 0; rank < nodes_.size(); ++rank) {
    if (nodes_[rank]->state() == Node::State::kRunning) running |= uint64_t{1} << rank;
  }
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return node->state() != Node::State::kRunning || (node->well(2) && node->world_view() == running);
  });
}

}  // namespace horo::sim
