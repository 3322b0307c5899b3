#include "sim/scenario.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "horo/base/text.h"

namespace horo::sim {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::array<std::string_view, 5> kKindNames = {"kill", "short freeze", "long freeze", "endless freeze",
                                                        "leave"};
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

}  // namespace

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
    all += text(all.empty() ? "" : "; ", kKindNames[static_cast<size_t>(fault.kind)], " of ",
                fault.victim < 0 ? std::string("whoever passes") : text("rank ", fault.victim));
    if (fault.at_point) {
      all += text(" at passage ", fault.passes + 1, " of ", kPointNames[static_cast<size_t>(fault.point)]);
    } else {
      all += text(" at ", std::chrono::duration_cast<microseconds>(fault.at).count(), " us");
    }
  }
  return all;
}

}  // namespace horo::sim
