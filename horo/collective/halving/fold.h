// What both algorithms of this folder do when the number of members is no power of two.
#pragma once

#include "horo/collective/algorithm.h"
#include "horo/collective/stage.h"
#include "horo/collective/tree_shape.h"

namespace horo::collective::halving {

inline constexpr Place kResult{Buffer::kWork, 0};

/// Steps that a pair adds: its upper member gives its input to the lower one, and gets the result at the end.
struct Fold {
  Place source;      ///< Where this member's contribution to the tree begins.
  size_t ready = 0;  ///< The phase from which it can be sent.
  bool out = false;  ///< This member has no further part but to receive the result.
};
Fold fold(const Request& request, Draft& draft, const TreeShape& tree);
/// Sends the result back to the upper member of a pair. `phase` is when the result is complete.
void unfold(const Request& request, Draft& draft, const TreeShape& tree, size_t phase);

/// The rank that stands for a leaf.
inline int rank_of_leaf(const TreeShape& tree, size_t leaf) { return static_cast<int>(tree.first_member(leaf)); }

}  // namespace horo::collective::halving
