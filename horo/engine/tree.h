// Who tells whom: the tree along which members agree what is ready.
#pragma once

#include <vector>

#include "horo/collective/operation.h"

namespace horo::engine {

/// One member's place in the tree. The root is the first member. The members of a host answer to the first of them, and
/// those form a binomial tree, so that a message between hosts crosses at most log2(hosts) links.
struct Tree {
  int self = 0;
  int parent = -1;            ///< -1 at the root.
  std::vector<int> children;  ///< In rising order.
  /// Members at and below each child, sorted; same order as `children`.
  std::vector<std::vector<int>> below;

  bool is_root() const { return parent < 0; }
  /// Place of a child in `children`, or -1.
  int index_of(int member) const;

  static Tree of(const collective::Shape& shape, int member);
};

}  // namespace horo::engine
