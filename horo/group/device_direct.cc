// Members read each other's device memory where it lies.
#include <algorithm>
#include <numeric>
#include <utility>

#include "horo/base/text.h"
#include "horo/group/device_lane.h"

namespace horo::group {

using collective::Kind;
using collective::Operation;

namespace {

/// Slices begin where wide loads can.
constexpr uint64_t kAlignment = 256;
/// What all members together have, up to which each reduces all of it.
constexpr uint64_t kWhole = 64 << 20;

/// Elements of each member: equal ones, but for the last.
std::vector<uint64_t> slices(uint64_t count, uint64_t element, int members) {
  const auto n = static_cast<uint64_t>(members);
  const uint64_t unit = std::max<uint64_t>(kAlignment / element, 1);
  const uint64_t each = (count + n * unit - 1) / (n * unit) * unit;
  std::vector<uint64_t> counts;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t first = std::min(i * each, count);
    counts.push_back(std::min(each, count - first));
  }
  return counts;
}

}  // namespace

/// Where each begins, in bytes, and how long each is.
struct DeviceOperations::Layout {
  Layout(const std::vector<uint64_t>& counts, uint64_t element) {
    uint64_t at = 0;
    for (uint64_t count : counts) {
      offsets.push_back(at);
      bytes.push_back(count * element);
      at += bytes.back();
    }
    total = at;
  }
  /// The first or second half of each, which begin where wide loads can.
  Layout half(int which) const {
    Layout part = *this;
    for (size_t m = 0; m < bytes.size(); ++m) {
      const uint64_t front = bytes[m] / 2 / kAlignment * kAlignment;
      part.offsets[m] += which == 0 ? 0 : front;
      part.bytes[m] = which == 0 ? front : bytes[m] - front;
    }
    return part;
  }
  std::vector<uint64_t> offsets, bytes;
  uint64_t total = 0;
};

/// Where others read a member's data: where they are exported; or in the window, after they have been copied there but
/// for one piece, or with room for what will be there; or nowhere.
struct DeviceOperations::Shown {
  const std::byte* exported = nullptr;
  const Layout* packed = nullptr;
  int except = -1;
  uint64_t room = 0;
};

Result<uint64_t> DeviceOperations::Call::reach() {
  if (held) return relay->reach(*lane->queue);
  if (reached++ == 0) HORO_TRY(lane->queue->mark());
  return 0;
}

// There is one mark: the second point is marked when the first has been waited for. Nothing comes between.
Status DeviceOperations::Call::after(uint64_t point) {
  if (held) return relay->after(*lane->queue, point);
  HORO_TRY(lane->queue->await(may_spin));
  if (--reached > 0) HORO_TRY(lane->queue->mark());
  return barrier();
}

Status DeviceOperations::Call::turn() {
  HORO_ASSIGN(const uint64_t point, reach());
  return after(point);
}

Status DeviceOperations::Call::end() {
  HORO_TRY(follow());
  HORO_ASSIGN(const uint64_t last, reach());
  if (held) HORO_TRY(lane->queue->guard(nullptr));
  return after(last);
}

void DeviceOperations::Call::write_output(bool is_input) {
  if (is_input && held) touched_after = relay->points();
  if (is_input && !held) touched = true;
}

Status DeviceOperations::direct(Call& call) {
  ran_ = "direct";
  if (holds_) take_relay(call, true);
  Status status = put_into_queue(call);
  if (call.relay != nullptr && !call.flies && !status.ok()) (void)call.finish();  // The input may be copied still.
  return status;
}

Status DeviceOperations::put_into_queue(Call& call) {
  switch (call.operation.kind) {
    case Kind::kAllreduce:
      return allreduce(call);
    case Kind::kReduceScatter:
      return reducescatter(call);
    case Kind::kBroadcast:
      return broadcast(call);
    case Kind::kAlltoall:
      return alltoall(call);
    default:
      return allgather(call);
  }
}

Status DeviceOperations::fall_back(Call& call) {
  mapping_works_ = false;
  if (terms_.path != DevicePath::kDirect) return staged(call);
  call.host_failed = true;  // All members say the same.
  return {Code::kUnavailable,
          "HORO_DEVICE_PATH=direct, but a member cannot read another's device memory; unset it to go through the host"};
}

// A member that does not hold its queue has its data there before it meets the others.
Result<bool> DeviceOperations::meet_with(Call& call, const Shown& shown, Bases& bases) {
  const std::byte* mine = shown.exported;
  const uint64_t bytes = shown.packed != nullptr ? shown.packed->total : shown.room;
  Status status;
  if (mine == nullptr && bytes > 0) {
    status = call.lane->ensure_window(bytes);
    if (status.ok()) mine = call.lane->window->base;
    if (status.ok() && shown.packed != nullptr) status = put_into_window(call, *shown.packed, shown.except);
  }
  call.is_there = call.relay == nullptr || (shown.packed == nullptr && is_there(call));
  if (status.ok() && call.relay == nullptr) status = call.finish();
  return meet(call, status.ok() ? mine : nullptr, status, bases);
}

Result<bool> DeviceOperations::meet(Call& call, const std::byte* mine, const Status& ready, Bases& bases) {
  const auto self = static_cast<size_t>(member_);
  const auto members = static_cast<size_t>(size());
  device::Exported exported;
  Record record;
  record.arrival = call.arrival();
  record.failed = ready.ok() ? 0 : 1;
  record.may_hold = call.relay == nullptr ? 0 : 1;
  record.is_there = call.is_there ? 1 : 0;
  if (mine != nullptr && ready.ok()) {
    exported = *call.lane->devices.find_exported(mine, 0);
    record.id = exported.id;
    record.offset = static_cast<uint64_t>(mine - exported.base);
  }
  std::vector<Record> records(members);
  HORO_TRY(call.gather(record, records));
  std::vector<Arrival> arrivals;
  for (const Record& one : records) arrivals.push_back(one.arrival);
  HORO_TRY(compare(call, arrivals));
  const auto any = [&](auto what) { return std::any_of(records.begin(), records.end(), what); };
  if (any([](const Record& one) { return one.failed != 0; })) return false;
  HORO_ASSIGN(const bool mapped, map_new(call, exported, records));
  if (!mapped) return false;
  call.held = call.flies = !any([](const Record& one) { return one.may_hold == 0; });
  if (call.held) HORO_TRY(call.lane->queue->guard(call.relay->spoilt()));
  if (any([](const Record& one) { return one.is_there == 0; })) HORO_TRY(call.turn());
  bases.assign(members, nullptr);
  for (size_t m = 0; m < members; ++m) {
    if (records[m].id == 0) continue;
    const std::byte* base = m == self ? exported.base : call.lane->mapped.at({static_cast<int>(m), records[m].id});
    bases[m] = base + records[m].offset;
  }
  return true;
}

// What was mapped when a member used another device is not mapped for this one.
Result<bool> DeviceOperations::map_new(Call& call, const device::Exported& mine, const std::vector<Record>& records) {
  std::vector<int> devices;
  std::set<std::pair<int, uint64_t>> memory;
  for (size_t m = 0; m < records.size(); ++m) {
    devices.push_back(static_cast<int>(records[m].arrival.device));
    if (records[m].id != 0) memory.emplace(static_cast<int>(m), records[m].id);
  }
  std::set<std::pair<int, uint64_t>>& known = shown_[devices];
  if (std::includes(known.begin(), known.end(), memory.begin(), memory.end())) return true;
  HORO_ASSIGN(const bool mapped, exchange_handles(call, mine, records));
  if (mapped) known.merge(memory);
  return mapped;
}

Result<bool> DeviceOperations::exchange_handles(Call& call, const device::Exported& mine,
                                                const std::vector<Record>& records) {
  Lane& lane = *call.lane;
  std::vector<device::Handle> handles(records.size());
  HORO_TRY(call.gather(mine.handle, handles));
  bool failed = false;
  for (size_t m = 0; m < records.size(); ++m) {
    const int member = static_cast<int>(m);
    if (member == member_ || records[m].id == 0 || lane.mapped.contains({member, records[m].id})) continue;
    Result<std::byte*> mapped = lane.devices.import(lane.queue->device(), handles[m]);
    if (mapped.ok()) {
      lane.mapped[{member, records[m].id}] = *mapped;
    } else {
      failed = true;
    }
  }
  HORO_ASSIGN(const bool anybody, call.any(failed));
  return !anybody;
}

/// Copies what the others will read of the input to the same places of the window.
Status DeviceOperations::put_into_window(Call& call, const Layout& layout, int except) {
  std::vector<horo_device_copy> pieces;
  for (size_t m = 0; m < layout.offsets.size(); ++m) {
    if (static_cast<int>(m) == except || layout.bytes[m] == 0) continue;
    pieces.push_back({call.lane->window->base + layout.offsets[m], call.in + layout.offsets[m], layout.bytes[m]});
  }
  return call.lane->queue->copy(pieces);
}

Status DeviceOperations::reduce_slice(const Call& call, const Bases& bases, uint64_t offset, uint64_t count,
                                      std::byte* out, std::byte* also, const std::byte* own) const {
  std::vector<const void*> from;
  for (size_t m = 0; m < bases.size(); ++m) {
    from.push_back((static_cast<int>(m) == member_ ? (own != nullptr ? own : call.in) : bases[m]) + offset);
  }
  const Operation& operation = call.operation;
  const Factors factors = factors_of(operation);
  return call.lane->queue->reduce({.dtype = static_cast<int>(operation.dtype),
                                   .op = static_cast<int>(operation.op),
                                   .count = count,
                                   .from = from.data(),
                                   .sources = from.size(),
                                   .to = out,
                                   .also = also,
                                   .before = factors.before,
                                   .factor = factors.after.factor,
                                   .divisor = factors.after.divisor});
}

// One round less, for which each member reads everything: how several processes take turns on a device costs more than
// the bytes, up to some size.
Status DeviceOperations::allreduce_whole(Call& call, bool exported) {
  const Layout all({call.operation.count}, call.element());
  Bases bases;
  HORO_ASSIGN(const bool met, meet_with(call, exported ? Shown{call.in} : Shown{.packed = &all}, bases));
  if (!met) return fall_back(call);
  call.write_output(call.in == call.out);
  HORO_TRY(reduce_slice(call, bases, 0, call.operation.count, call.out, nullptr));
  return call.end();
}

// On a device that serves one process at a time the first member does all of the work that is common: then the device
// changes to every other member twice, to pack and to fetch, where slices make it change to each three times.
Status DeviceOperations::allreduce_in_turns(Call& call) {
  const Layout all({call.operation.count}, call.element());
  const bool leads = member_ == 0;
  const std::byte* const shown = leads ? call.out : call.in;  // The first shows where the result will be.
  const bool exported = call.lane->devices.find_exported(shown, all.total).has_value();
  Bases bases;
  Shown mine{shown};
  if (!exported) mine = leads ? Shown{.room = all.total} : Shown{.packed = &all};
  HORO_ASSIGN(const bool met, meet_with(call, mine, bases));
  if (!met) return fall_back(call);
  if (leads) {
    call.write_output(call.in == call.out);
    HORO_TRY(
        reduce_slice(call, bases, 0, call.operation.count, call.out, exported ? nullptr : call.lane->window->base));
  }
  HORO_TRY(call.turn());
  if (!leads) {
    call.write_output(call.in == call.out);
    HORO_TRY(call.lane->queue->copy(call.out, bases[0], all.total));
  }
  return call.end();
}

// Each member reduces its slice out of everybody's memory, and fetches the other slices from those who reduced them.
// In memory that was exported both happens in place; otherwise the window has the slices for others, and its own
// member's slice when it is reduced. In halves: while members tell each other that one is reduced, the device goes on
// with the other. The last turn lets nobody change what another still reads.
Status DeviceOperations::allreduce(Call& call) {
  if (in_turns_) return allreduce_in_turns(call);
  const uint64_t bytes = call.operation.total_bytes();
  const bool exported = call.lane->devices.find_exported(call.in, bytes).has_value();
  // The size alone decides: memory may be exported on some members only. Nobody may write what others still read.
  if (bytes <= kWhole / static_cast<uint64_t>(size())) {
    return allreduce_whole(call, exported && !overlap(call.in, bytes, call.out, bytes));
  }
  const bool in_place = exported && call.in == call.out;
  const Layout layout(slices(call.operation.count, call.element(), size()), call.element());
  Bases bases;
  const Shown mine = in_place ? Shown{call.in} : Shown{.packed = &layout, .except = member_};
  HORO_ASSIGN(const bool met, meet_with(call, mine, bases));
  if (!met) return fall_back(call);
  call.write_output(call.in == call.out);
  const Layout first = layout.half(0), second = layout.half(1);
  std::byte* const shown = in_place ? nullptr : call.lane->window->base;
  HORO_TRY(reduce_own(call, bases, first, shown));
  HORO_ASSIGN(const uint64_t first_reduced, call.reach());
  HORO_TRY(reduce_own(call, bases, second, shown));
  HORO_ASSIGN(const uint64_t second_reduced, call.reach());
  HORO_TRY(call.after(first_reduced));
  HORO_TRY(fetch_others(call, bases, first));
  HORO_TRY(call.after(second_reduced));
  HORO_TRY(fetch_others(call, bases, second));
  return call.end();
}

Status DeviceOperations::reduce_own(const Call& call, const Bases& bases, const Layout& layout,
                                    std::byte* shown) const {
  const uint64_t at = layout.offsets[static_cast<size_t>(member_)];
  const uint64_t count = layout.bytes[static_cast<size_t>(member_)] / call.element();
  return reduce_slice(call, bases, at, count, call.out + at, shown == nullptr ? nullptr : shown + at);
}

Status DeviceOperations::fetch_others(const Call& call, const Bases& bases, const Layout& layout) const {
  std::vector<horo_device_copy> pieces;
  for (size_t m = 0; m < bases.size(); ++m) {
    if (static_cast<int>(m) == member_ || layout.bytes[m] == 0) continue;
    pieces.push_back({call.out + layout.offsets[m], bases[m] + layout.offsets[m], layout.bytes[m]});
  }
  return call.lane->queue->copy(pieces);
}

Status DeviceOperations::reducescatter(Call& call) {
  const auto self = static_cast<size_t>(member_);
  const Layout layout(call.operation.counts, call.element());
  const bool overlaps = overlap(call.in, layout.total, call.out, layout.bytes[self]);
  const bool in_place = call.lane->devices.find_exported(call.in, layout.total).has_value() && !overlaps;
  Bases bases;
  const Shown mine = in_place ? Shown{call.in} : Shown{.packed = &layout, .except = overlaps ? -1 : member_};
  HORO_ASSIGN(const bool met, meet_with(call, mine, bases));
  if (!met) return fall_back(call);
  call.write_output(overlaps);
  HORO_TRY(reduce_slice(call, bases, layout.offsets[self], call.operation.counts[self], call.out, nullptr,
                        overlaps ? bases[self] : nullptr));
  return call.end();
}

Status DeviceOperations::broadcast(Call& call) {
  const bool root = member_ == call.operation.root;
  const Layout all({call.operation.count}, call.element());
  const bool in_place = root && call.lane->devices.find_exported(call.in, all.total).has_value();
  Bases bases;
  Shown mine;
  if (root) mine = in_place ? Shown{call.in} : Shown{.packed = &all};
  HORO_ASSIGN(const bool met, meet_with(call, mine, bases));
  if (!met) return fall_back(call);
  call.write_output(!root && call.in == call.out);
  const std::byte* from = root ? call.in : bases[static_cast<size_t>(call.operation.root)];
  HORO_TRY(call.lane->queue->copy(call.out, from, all.total));
  return call.end();
}

Status DeviceOperations::allgather(Call& call) {
  const auto self = static_cast<size_t>(member_);
  const Layout layout(call.operation.counts, call.element());
  const Layout own({call.operation.counts[self]}, call.element());
  const bool at_its_place = call.in == call.out + layout.offsets[self];
  const bool overlaps = !at_its_place && overlap(call.in, own.total, call.out, layout.total);
  const bool in_place = call.lane->devices.find_exported(call.in, own.total).has_value() && !overlaps;
  Bases bases;
  HORO_ASSIGN(const bool met, meet_with(call, in_place ? Shown{call.in} : Shown{.packed = &own}, bases));
  if (!met) return fall_back(call);
  call.write_output(overlaps);
  std::vector<horo_device_copy> pieces;
  for (size_t m = 0; m < bases.size(); ++m) {
    if (layout.bytes[m] == 0 || (m == self && at_its_place)) continue;
    const std::byte* from = m == self && !overlaps ? call.in : bases[m];
    pieces.push_back({call.out + layout.offsets[m], from, layout.bytes[m]});
  }
  HORO_TRY(call.lane->queue->copy(pieces));
  return call.end();
}

Status DeviceOperations::alltoall(Call& call) {
  const auto self = static_cast<size_t>(member_);
  const Layout sent(call.operation.counts, call.element()), taken(call.operation.receive_counts, call.element());
  const bool overlaps = overlap(call.in, sent.total, call.out, taken.total);
  const bool in_place = call.lane->devices.find_exported(call.in, sent.total).has_value() && !overlaps;
  Bases bases;
  const Shown mine = in_place ? Shown{call.in} : Shown{.packed = &sent, .except = overlaps ? -1 : member_};
  HORO_ASSIGN(const bool met, meet_with(call, mine, bases));
  if (!met) return fall_back(call);
  call.write_output(overlaps);
  std::vector<horo_device_copy> pieces;
  for (size_t m = 0; m < bases.size(); ++m) {
    const std::byte* from = (overlaps ? bases[self] : call.in) + sent.offsets[self];
    if (m != self) {
      const auto row = call.splits.begin() + static_cast<std::ptrdiff_t>(2 * bases.size() * m);
      from = bases[m] + std::accumulate(row, row + member_, uint64_t{0}) * call.element();
    }
    if (taken.bytes[m] > 0) pieces.push_back({call.out + taken.offsets[m], from, taken.bytes[m]});
  }
  HORO_TRY(call.lane->queue->copy(pieces));
  return call.end();
}

}  // namespace horo::group
