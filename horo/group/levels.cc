#include "horo/group/levels.h"

#include <algorithm>
#include <numeric>

#include "horo/base/text.h"

namespace horo::group {

using collective::Cut;
using collective::Kind;
using collective::Operation;
using collective::Run;

namespace {

/// A message below this takes its time whatever its size.
constexpr uint64_t kWorthCutting = 64 << 10;

}  // namespace

Levels::Levels(collective::Shape of, int self) : shape(std::move(of)), member(self) {
  host = shape.host_of(self);
  local = shape.hosts()[host];
  place = place_of(self);
  lanes = shape.fewest_per_host();
}

int Levels::place_of(int of) const {
  const std::vector<int>& there = shape.hosts()[shape.host_of(of)];
  return static_cast<int>(std::lower_bound(there.begin(), there.end(), of) - there.begin());
}

int Levels::lanes_for(uint64_t bytes) const { return bytes < kWorthCutting ? 1 : lanes; }

bool Levels::hosts_are_runs() const {
  return std::all_of(shape.hosts().begin(), shape.hosts().end(), [](const std::vector<int>& there) {
    return there.back() - there.front() + 1 == static_cast<int>(there.size());
  });
}

std::vector<Crossing> crossings(const Levels& levels, const Operation& operation, size_t to, Blocks which) {
  const size_t element = size_of(operation.dtype);
  const auto bytes_of = [&](int member) { return operation.counts[static_cast<size_t>(member)] * element; };
  std::vector<uint64_t> next(static_cast<size_t>(levels.lanes), 0);
  for (int lane = 0; which == Blocks::kOfOthers && lane < levels.lanes; ++lane) {
    next[static_cast<size_t>(lane)] = bytes_of(levels.driver(to, lane));
  }
  std::vector<Crossing> all;
  for (size_t host = 0; host < levels.hosts(); ++host) {
    if ((host == to) != (which == Blocks::kOfItsOwn)) continue;
    for (int member : levels.shape.hosts()[host]) {
      const int lane = levels.lane_of(member);
      uint64_t& offset = next[static_cast<size_t>(lane)];
      all.push_back({member, lane, offset, bytes_of(member)});
      offset += bytes_of(member);
    }
  }
  return all;
}

std::string two_level_refusal(const Levels& levels, const Operation& operation) {
  switch (operation.kind) {
    case Kind::kAlltoall:
    case Kind::kSendRecv:
    case Kind::kRefused:
      return text(transport::name(operation.kind), " goes from member to member");
    case Kind::kReduceScatter:
      if (!levels.hosts_are_runs()) return "reducescatter in two levels needs hosts whose ranks follow each other";
      break;
    default:
      break;
  }
  return "";
}

Run run_of_host(const Levels& levels, const Operation& operation, size_t host) {
  const std::vector<int>& there = levels.shape.hosts()[host];
  const auto first = operation.counts.begin() + there.front();
  const auto last = operation.counts.begin() + there.back() + 1;
  return {std::accumulate(operation.counts.begin(), first, uint64_t{0}), std::accumulate(first, last, uint64_t{0})};
}

uint64_t slot_bytes(const Levels& levels, const Operation& operation) {
  const size_t element = size_of(operation.dtype);
  const auto lanes = static_cast<uint64_t>(levels.lanes_for(operation.total_bytes()));
  if (operation.kind == Kind::kAllreduce || operation.kind == Kind::kReduce) {
    return Cut(operation.count, lanes).longest() * element;
  }
  if (operation.kind != Kind::kReduceScatter) return operation.total_bytes();
  uint64_t sums = 0, result = 0;
  for (size_t host = 0; host < levels.hosts(); ++host) {
    const uint64_t part = Cut(run_of_host(levels, operation, host), lanes).longest();
    sums += part;
    result = std::max(result, part);
  }
  return (result + sums) * element;
}

}  // namespace horo::group
