// The two levels of a hierarchy as one member sees them.
#pragma once

#include <string>

#include "horo/collective/algorithm.h"
#include "horo/collective/stage.h"

namespace horo::collective::hierarchy {

inline constexpr Place kResult{Buffer::kWork, 0};

struct Layout {
  Layout(const Shape& shape, int rank);

  bool equal = false;  ///< Every host has the same number of members.
  Team local;          ///< The members of this host.
  /// With equal hosts: the members of all hosts with this member's index on its host. Else the first members of the
  /// hosts; only they take part there.
  Team cross;
  bool leads = false;  ///< The first member of its host.
  int leader() const { return local.ranks[0]; }
};

/// Empty where there are several hosts and one of them has several members: elsewhere there is no hierarchy.
std::string needs_two_levels(std::string_view algorithm, const Shape& shape);
inline bool is_equal(const Shape& shape) { return shape.fewest_per_host() == shape.most_per_host(); }

}  // namespace horo::collective::hierarchy
