#include "sim/scenario.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "horo/base/text.h"

namespace horo::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::array<std::string_view, 10> kKindNames = {"kill",  "short freeze", "long freeze", "endless freeze",
                                                         "leave", "cut",          "one-way cut", "isolation",
                                                         "clog",  "flap"};
constexpr std::array<std::string_view, kPointCount> kPointNames = {"revoke", "flush",  "decide", "install",
                                                                   "serve",  "stable", "probe"};

Fault draw_fault(Random& random, int ranks, bool first) {
  using Kind = Fault::Kind;
  Fault fault;
  uint64_t draw = random.below(100);
  fault.kind = draw < 70   ? Kind::kKill
               : draw < 78 ? Kind::kFreezeShort
               : draw < 88 ? Kind::kFreezeLong
               : draw < 93 ? Kind::kFreezeForever
                           : Kind::kLeave;
  fault.at = microseconds(random.between(0, 15000));
  fault.victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
  if (!first && random.chance(75)) {
    fault.at_point = true;
    fault.point = static_cast<Point>(random.below(kPointCount));
    fault.passes = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
    if (random.chance(60)) fault.victim = -1;
  }
  bool freeze = fault.kind != Kind::kKill && fault.kind != Kind::kLeave;
  // Later on ranks wait longer for each other, so that a freeze meets observers with questions open.
  if (freeze && random.chance(60)) fault.at = milliseconds(random.between(100, 900));
  if (fault.kind == Kind::kFreezeShort) fault.lasts = milliseconds(random.between(50, 700));
  if (fault.kind == Kind::kFreezeLong) fault.lasts = milliseconds(random.between(1500, 3000));
  return fault;
}

// Cuts that heal before anybody is evicted, at about that time, and long after.
Duration draw_length(Random& random) {
  if (random.chance(25)) return milliseconds(random.between(10, 900));
  if (random.chance(50)) return milliseconds(random.between(900, 1500));
  return milliseconds(random.between(1500, 4000));
}

Fault draw_network_fault(Random& random, int ranks) {
  using Kind = Fault::Kind;
  Fault fault;
  const uint64_t draw = random.below(100);
  fault.kind = draw < 45   ? Kind::kCut
               : draw < 57 ? Kind::kOneWay
               : draw < 72 ? Kind::kIsolate
               : draw < 84 ? Kind::kClog
                           : Kind::kFlap;
  const uint32_t all = (1U << ranks) - 1;
  fault.side = static_cast<uint32_t>(1 + random.below(all - 1));  // Neither nobody nor everybody.
  fault.victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
  fault.peer = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
  fault.lasts = draw_length(random);
  fault.at = random.chance(60) ? Duration(microseconds(random.between(0, 15000)))
                               : Duration(milliseconds(random.between(0, 3000)));
  if (random.chance(20)) {
    fault.at_point = true;
    fault.point = static_cast<Point>(random.below(kPointCount));
    fault.passes = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
  }
  return fault;
}

std::string place_of(const Fault& fault) {
  if (!fault.strikes_network()) return fault.victim < 0 ? "whoever passes" : text("rank ", fault.victim);
  if (fault.kind == Fault::Kind::kIsolate) return text("rank ", fault.victim);
  if (fault.kind == Fault::Kind::kClog) return text("link ", fault.victim, " to ", fault.peer);
  std::vector<int> side;
  for (int rank = 0; fault.side >> rank != 0; ++rank) {
    if ((fault.side >> rank & 1) != 0) side.push_back(rank);
  }
  return ranks_text(side);
}

}  // namespace

Scenario draw_partition(Random& random, int ranks) {
  Scenario scenario;
  for (uint64_t cuts = 1 + random.below(3); cuts > 0; --cuts) {
    scenario.faults.push_back(draw_network_fault(random, ranks));
  }
  for (uint64_t others = random.below(4); others > 0; --others) {
    Fault fault = draw_fault(random, ranks, false);
    // Before the cuts, during them and after.
    if (random.chance(70)) fault.at = milliseconds(random.between(0, 5000));
    scenario.faults.push_back(fault);
  }
  return scenario;
}

Scenario draw_isolation(Random& random, int ranks) {
  Fault fault;
  fault.kind = Fault::Kind::kIsolate;
  fault.victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
  fault.lasts = draw_length(random);
  fault.at = milliseconds(random.between(0, 3000));
  return {{fault}};
}

Scenario draw_scenario(Random& random, int ranks) {
  Scenario scenario;
  auto most = static_cast<uint64_t>(std::min(4, ranks));
  uint64_t count = 1 + random.below(most);
  for (uint64_t i = 0; i < count; ++i) scenario.faults.push_back(draw_fault(random, ranks, i == 0));
  return scenario;
}

std::string Scenario::to_string() const {
  std::string all;
  for (const Fault& fault : faults) {
    all += text(all.empty() ? "" : "; ", kKindNames[static_cast<size_t>(fault.kind)], " of ", place_of(fault));
    if (fault.lasts > Duration::zero()) all += text(" for ", fault.lasts / milliseconds(1), " ms");
    if (fault.at_point) {
      all += text(" at passage ", fault.passes + 1, " of ", kPointNames[static_cast<size_t>(fault.point)]);
    } else {
      all += text(" at ", std::chrono::duration_cast<microseconds>(fault.at).count(), " us");
    }
  }
  return all;
}

}  // namespace horo::sim
