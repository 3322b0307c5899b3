// Who is killed, frozen or leaves in a run, which links are cut, and when: drawn from the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/random.h"

#include "horo/base/deadline.h"

namespace horo::sim {

/// Instants of the protocol at which a fault may strike.
enum class Point : uint8_t { kRevokeSent, kFlushSent, kDecided, kInstalled, kServing, kStableSent, kProbing };
inline constexpr int kPointCount = 7;

struct Fault {
  /// From kCut on they strike the network, which heals when they are over.
  enum class Kind : uint8_t {
    kKill,
    kFreezeShort,
    kFreezeLong,
    kFreezeForever,
    kLeave,
    kCut,      ///< Between `side` and the rest, both ways.
    kOneWay,   ///< From `side` to the rest.
    kIsolate,  ///< The victim and everybody else.
    kClog,     ///< From the victim to `peer`.
    kFlap,     ///< A cut that comes and goes.
  };
  Kind kind = Kind::kKill;
  Duration at{};  ///< After the start. A fault that waits for a point becomes armed then.
  bool at_point = false;
  Point point = Point::kRevokeSent;
  int passes = 0;     ///< Strike at the n-th passage.
  int victim = -1;    ///< -1: the rank that passes the point.
  Duration lasts{};   ///< Of a freeze, or a cut.
  uint32_t side = 0;  ///< One bit per rank.
  int peer = 0;

  bool strikes_network() const { return kind >= Kind::kCut; }
};

struct Scenario {
  std::vector<Fault> faults;
  std::string to_string() const;
};

/// Freeze limit of all runs.
inline constexpr Duration kFreezeTimeout = std::chrono::seconds(1);

Scenario draw_scenario(Random& random, int ranks);
/// At least one fault of the network among them.
Scenario draw_partition(Random& random, int ranks);
/// One rank is cut off, and comes back. Nothing else.
Scenario draw_isolation(Random& random, int ranks);

}  // namespace horo::sim
