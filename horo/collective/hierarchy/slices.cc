#include <algorithm>

#include "horo/collective/hierarchy/allreduce.h"
#include "horo/collective/hierarchy/layout.h"

namespace horo::collective::hierarchy {

namespace {

std::vector<Run> parts_of(Run run, size_t parts) { return segment_of(Cut(run, parts), 0, 1); }

/// When the stages of a segment begin, counted from the phase in which the segment itself does. The same on all
/// members: it depends on the largest host.
struct Timing {
  Timing(const Shape& shape, const Arithmetic& arithmetic) {
    bool leaders = !is_equal(shape);
    auto local = static_cast<size_t>(shape.most_per_host());
    // Hosts of different size reduce in one or two phases: all wait for the slower.
    up = leaders ? 2 : exchange_reduce_phases(local, arithmetic, false);
    cross = up + (leaders ? 1 : 0);
    spread = cross + exchange_reduce_phases(shape.hosts().size(), arithmetic, true);
    down = spread + 1;
    last = down + (leaders && local > 2 ? 1 : 0);
  }
  size_t up;      ///< Leaders: reduced slices go to the first member of the host.
  size_t cross;   ///< Reduce-scatter between hosts.
  size_t spread;  ///< Allgather between hosts.
  size_t down;    ///< In the host.
  size_t last;    ///< The last phase with a transfer.
};

/// One segment's way through the stages.
class Segment {
 public:
  Segment(Draft& draft, const Request& request, const Layout& layout, const Timing& timing, Run region, size_t phase)
      : draft_(draft),
        request_(request),
        layout_(layout),
        timing_(timing),
        region_(region),
        phase_(phase),
        slices_(parts_of(region, layout.local.size())) {}

  void reduce_in_host(Place slots) {
    if (layout_.local.size() == 1) return;
    ReduceScatter what{request_.source, slices_, kResult.at(own().offset), slots, false};
    exchange_reduce(draft_, phase_, layout_.local, what, request_.arithmetic);
  }

  void gather_at_leader() {
    const Team& local = layout_.local;
    for (size_t from = 1; layout_.leads && from < local.size(); ++from) {
      draft_.receive(phase_ + timing_.up, local.ranks[from], {kResult.at(slices_[from].offset), slices_[from].count});
    }
    if (!layout_.leads) draft_.send(phase_ + timing_.up, layout_.leader(), {kResult.at(own().offset), own().count});
  }

  /// A run of the segment that one member has in hand.
  Run hand() const { return layout_.equal ? own() : region_; }

  void allreduce_between_hosts(Place slots) {
    auto parts = parts_of(hand(), layout_.cross.size());
    Place source = layout_.local.size() == 1 ? request_.source : kResult;
    ReduceScatter what{source, parts, kResult.at(parts[layout_.cross.self].offset), slots, true};
    exchange_reduce(draft_, phase_ + timing_.cross, layout_.cross, what, request_.arithmetic);
    exchange_parts(draft_, phase_ + timing_.spread, layout_.cross, kResult, parts);
  }

  void allgather_in_host() { exchange_parts(draft_, phase_ + timing_.down, layout_.local, kResult, slices_); }

  /// From the first member: scatter, then allgather among the others.
  void broadcast_in_host() {
    Team others = layout_.local;
    if (others.size() == 1) return;
    others.ranks.erase(others.ranks.begin());
    auto parts = parts_of(region_, others.size());
    if (layout_.leads) {
      for (size_t to = 0; to < others.size(); ++to) {
        draft_.send(phase_ + timing_.down, others.ranks[to], {kResult.at(parts[to].offset), parts[to].count});
      }
      return;
    }
    others.self -= 1;
    Run mine = parts[others.self];
    draft_.receive(phase_ + timing_.down, layout_.leader(), {kResult.at(mine.offset), mine.count});
    exchange_parts(draft_, phase_ + timing_.down + 1, others, kResult, parts);
  }

 private:
  Run own() const { return slices_[layout_.local.self]; }

  Draft& draft_;
  const Request& request_;
  const Layout& layout_;
  const Timing& timing_;
  Run region_;
  size_t phase_;
  std::vector<Run> slices_;
};

uint64_t segments_of(const Operation& operation, const Shape& shape, const Table& table) {
  uint64_t slice = Cut(operation.count, static_cast<uint64_t>(shape.most_per_host())).longest();
  return segments(table, slice, size_of(operation.dtype));
}

}  // namespace

void draft_slices(const Request& request, Draft& draft) {
  Layout layout(request.shape, request.rank);
  Timing timing(request.shape, request.arithmetic);
  uint64_t count = segments_of(request.operation, request.shape, request.table);
  Cut regions(request.operation.count, count);
  bool crosses = layout.equal || layout.leads;
  uint64_t slice = Cut(regions.longest(), layout.local.size()).longest();
  uint64_t hand = layout.equal ? slice : regions.longest();
  Slots local_slots(draft, layout.local, request.arithmetic, layout.local.size() > 1 ? slice * count : 0, count);
  uint64_t part = crosses ? Cut(hand, layout.cross.size()).longest() : 0;
  Slots cross_slots(draft, layout.cross, request.arithmetic, part * count, count);
  for (uint64_t s = 0; s < count; ++s) {
    Segment segment(draft, request, layout, timing, regions.part(s), request.start + s);
    segment.reduce_in_host(local_slots.of(s));
    if (!layout.equal) segment.gather_at_leader();
    if (crosses) segment.allreduce_between_hosts(cross_slots.of(s));
    if (layout.equal) {
      segment.allgather_in_host();
    } else {
      segment.broadcast_in_host();
    }
  }
}

/// With cuts that come out even; otherwise up to one element more or less per message. Of hosts with different numbers
/// of members, the first member of the largest one is the busiest.
Cost slices_cost(const Operation& operation, const Shape& shape, const Table& table) {
  auto local = static_cast<uint64_t>(shape.most_per_host());
  uint64_t hosts = shape.hosts().size();
  uint64_t element = size_of(operation.dtype);
  uint64_t count = segments_of(operation, shape, table);
  Timing timing(shape, {operation.dtype, operation.op, {}, scaling_after(operation, shape.ranks())});
  uint64_t all = operation.count;
  bool equal = is_equal(shape);
  uint64_t slice = Cut(all, local).longest();
  uint64_t hand = equal ? slice : all;
  uint64_t part = Cut(hand, hosts).longest();
  Cost cost;
  uint64_t remote = hand + (hosts - 2) * part;
  // Down: a slice to everybody of the host, or all slices, one to each.
  uint64_t down = equal ? (local - 1) * slice : all;
  cost.bytes = (all - slice + remote + down) * element;
  cost.remote_bytes = remote * element;
  cost.messages = count * (2 * (local - 1) + 2 * (hosts - 1));
  cost.reduced = (local * slice + hosts * part) * element;
  uint64_t stages = (equal ? 4 : 5) + (timing.last > timing.down ? 1 : 0);
  cost.steps = count == 1 ? stages : count + timing.last;
  cost.remote_steps = count + 1;
  return cost;
}

}  // namespace horo::collective::hierarchy
