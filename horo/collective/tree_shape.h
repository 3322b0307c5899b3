// The one tree along which tree reductions combine, whatever their algorithm, root, size or offset.
//
// With p the largest power of two that is not above the number of members n, and r = n - p: members 0 and 1, 2 and 3,
// ... of the first 2 r are folded in pairs; the p nodes that result (r pairs, then single members) are the leaves of a
// perfect binary tree. For n = 6: ((0 + 1) + (2 + 3)) + (4 + 5); for n = 5: ((0 + 1) + 2) + (3 + 4).
#pragma once

#include <bit>
#include <cstddef>

namespace horo::collective {

class TreeShape {
 public:
  explicit TreeShape(size_t members)
      : leaves_(std::bit_floor(members)), pairs_(members - leaves_), levels_(std::bit_width(leaves_) - 1) {}

  size_t leaves() const { return leaves_; }
  size_t pairs() const { return pairs_; }
  size_t levels() const { return static_cast<size_t>(levels_); }

  /// The lowest member of a leaf; leaf leaves() stands for the end of the members.
  size_t first_member(size_t leaf) const { return leaf < pairs_ ? 2 * leaf : leaf + pairs_; }
  size_t leaf_of(size_t member) const { return member < 2 * pairs_ ? member / 2 : member - pairs_; }
  bool in_pair(size_t member) const { return member < 2 * pairs_; }
  /// The upper member of a pair, which gives its share away at the beginning.
  bool is_folded(size_t member) const { return in_pair(member) && member % 2 == 1; }

 private:
  size_t leaves_;
  size_t pairs_;
  int levels_;
};

}  // namespace horo::collective
