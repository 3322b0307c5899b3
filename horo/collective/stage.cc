#include "horo/collective/stage.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "horo/base/check.h"

namespace horo::collective {

Team Team::everyone(const Shape& shape, int rank) {
  Team team;
  team.ranks.resize(static_cast<size_t>(shape.ranks()));
  std::iota(team.ranks.begin(), team.ranks.end(), 0);
  team.self = static_cast<size_t>(rank);
  return team;
}

bool can_fuse(const Arithmetic& arithmetic) {
  // f16 and bf16 would be rounded before they are scaled, integers would wrap before they are divided.
  bool wide = arithmetic.dtype == DType::kF32 || arithmetic.dtype == DType::kF64 || is_complex(arithmetic.dtype);
  return commutes(arithmetic.dtype, arithmetic.op) && (arithmetic.after.none() || wide);
}

namespace {

size_t fused_reduce(Draft& draft, size_t phase, const Team& team, const ReduceScatter& what,
                    const Arithmetic& arithmetic) {
  Run own = what.parts[team.self];
  size_t other = 1 - team.self;
  Range into{what.into, own.count};
  draft.send(phase, team.ranks[other], {what.source.at(what.parts[other].offset), what.parts[other].count});
  draft.receive_combine(phase, team.ranks[other], into, what.source.at(own.offset));
  if (!what.last || arithmetic.after.none()) return phase + 1;
  draft.scale_after(phase + 1, into, what.into);
  return phase + 2;
}

/// The places of all members' contributions in team order: received ones in slots, this member's own at `own`.
std::vector<Place> contributions(const Team& team, Place own, Place slots, uint64_t count) {
  std::vector<Place> places(team.size());
  places[team.self] = own;
  for (size_t step = 1; step < team.size(); ++step) {
    places[team.around(-static_cast<int64_t>(step))] = slots.at((step - 1) * count);
  }
  return places;
}

}  // namespace

size_t exchange_reduce(Draft& draft, size_t phase, const Team& team, const ReduceScatter& what,
                       const Arithmetic& arithmetic) {
  if (team.size() == 2 && can_fuse(arithmetic)) return fused_reduce(draft, phase, team, what, arithmetic);
  Run own = what.parts[team.self];
  auto places = contributions(team, what.source.at(own.offset), what.slots, own.count);
  for (size_t step = 1; step < team.size(); ++step) {
    size_t to = team.around(static_cast<int64_t>(step));
    size_t from = team.around(-static_cast<int64_t>(step));
    draft.send(phase, team.ranks[to], {what.source.at(what.parts[to].offset), what.parts[to].count});
    draft.receive(phase, team.ranks[from], {places[from], own.count});
  }
  draft.combine(phase + 1, {what.into, own.count}, places, what.last);
  return phase + 2;
}

Slots::Slots(Draft& draft, const Team& team, const Arithmetic& arithmetic, uint64_t part, uint64_t segments) {
  if (team.size() == 2 && can_fuse(arithmetic)) return;
  set_ = (team.size() - 1) * Cut(part, segments).longest();
  base_ = draft.scratch(set_ * std::min<uint64_t>(segments, 2));
}

size_t exchange_reduce_phases(size_t team_size, const Arithmetic& arithmetic, bool last) {
  bool fused = team_size == 2 && can_fuse(arithmetic);
  return fused && (!last || arithmetic.after.none()) ? 1 : 2;
}

void exchange_parts(Draft& draft, size_t phase, const Team& team, Place base, std::span<const Run> parts) {
  Run own = parts[team.self];
  for (size_t step = 1; step < team.size(); ++step) {
    size_t to = team.around(static_cast<int64_t>(step));
    size_t from = team.around(-static_cast<int64_t>(step));
    draft.send(phase, team.ranks[to], {base.at(own.offset), own.count});
    draft.receive(phase, team.ranks[from], {base.at(parts[from].offset), parts[from].count});
  }
}

size_t flood_reduce(Draft& draft, size_t phase, const Team& team, const Flood& what) {
  uint64_t count = what.source.count;
  auto places = contributions(team, what.source.place, what.slots, count);
  for (size_t step = 1; step < team.size(); ++step) {
    size_t from = team.around(-static_cast<int64_t>(step));
    draft.send(phase, team.ranks[team.around(static_cast<int64_t>(step))], what.source);
    draft.receive(phase, team.ranks[from], {places[from], count});
  }
  draft.combine(phase + 1, {what.into, count}, places, what.last);
  return phase + 2;
}

void barrier(Draft& draft, size_t phase, const Team& team) {
  Range nothing{{Buffer::kWork, 0}, 0};
  for (size_t distance = 1; distance < team.size(); distance *= 2, ++phase) {
    draft.send_always(phase, team.ranks[team.around(static_cast<int64_t>(distance))], nothing);
    draft.receive_always(phase, team.ranks[team.around(-static_cast<int64_t>(distance))], nothing);
  }
}

uint64_t log2_ceil(uint64_t members) {
  HORO_CHECK(members > 0, "the logarithm of nothing");
  return static_cast<uint64_t>(std::bit_width(members - 1));
}

std::vector<Run> runs_of(std::span<const uint64_t> counts) {
  std::vector<Run> runs;
  uint64_t offset = 0;
  for (uint64_t count : counts) {
    runs.push_back({offset, count});
    offset += count;
  }
  return runs;
}

std::vector<Run> segment_of(const Cut& cut, uint64_t segment, uint64_t segments) {
  std::vector<Run> runs;
  for (uint64_t part = 0; part < cut.parts(); ++part) runs.push_back(Cut(cut.part(part), segments).part(segment));
  return runs;
}

std::vector<Run> segment_of(std::span<const Run> parts, uint64_t segment, uint64_t segments) {
  std::vector<Run> runs;
  for (Run part : parts) runs.push_back(Cut(part, segments).part(segment));
  return runs;
}

}  // namespace horo::collective
