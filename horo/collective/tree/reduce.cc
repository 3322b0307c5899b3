#include "horo/collective/tree/reduce.h"

#include <algorithm>

#include "horo/collective/stage.h"
#include "horo/collective/tree_shape.h"

namespace horo::collective::tree {

namespace {

constexpr Place kResult{Buffer::kWork, 0};

/// Members first .. last - 1, of which `holder` has the combination.
struct Node {
  size_t first = 0;
  size_t last = 0;
  size_t holder(size_t root) const { return root >= first && root < last ? root : first; }
};

/// Two subtrees become one at a level; level 0 is the fold of pairs.
struct Join {
  size_t level = 0;
  Node low;
  Node high;
};

/// The joins on the way of `member` to the top, as long as it holds something.
std::vector<Join> joins_of(const TreeShape& tree, size_t member, size_t root) {
  std::vector<Join> joins;
  size_t leaf = tree.leaf_of(member);
  auto add = [&](const Join& join) {
    bool takes_part = join.low.holder(root) == member || join.high.holder(root) == member;
    if (takes_part) joins.push_back(join);
  };
  if (tree.in_pair(member)) {
    size_t first = tree.first_member(leaf);
    add({0, {first, first + 1}, {first + 1, first + 2}});
  }
  for (size_t level = 1; level <= tree.levels(); ++level) {
    size_t width = size_t{1} << (level - 1);
    size_t low = leaf / (2 * width) * (2 * width);
    size_t middle = tree.first_member(low + width);
    add({level, {tree.first_member(low), middle}, {middle, tree.first_member(low + 2 * width)}});
  }
  return joins;
}

}  // namespace

/// A join takes two phases: transfer, then combine (lower, higher).
void draft_reduce(const Request& request, Draft& draft) {
  TreeShape tree(static_cast<size_t>(request.shape.ranks()));
  auto member = static_cast<size_t>(request.rank);
  auto root = static_cast<size_t>(request.operation.root);
  uint64_t count = request.operation.count;
  auto joins = joins_of(tree, member, root);
  bool receives = std::any_of(joins.begin(), joins.end(), [&](const Join& join) {
    return Node{join.low.first, join.high.last}.holder(root) == member;
  });
  Place slot = draft.scratch(receives ? count : 0);
  Place sum = member == root ? kResult : draft.scratch(receives ? count : 0);
  Place mine = request.source;
  for (const Join& join : joins) {
    size_t phase = request.start + 2 * join.level;
    size_t holder = Node{join.low.first, join.high.last}.holder(root);
    bool is_low = join.low.holder(root) == member;
    size_t other = is_low ? join.high.holder(root) : join.low.holder(root);
    if (holder != member) {
      draft.send(phase, static_cast<int>(holder), {mine, count});
      return;
    }
    draft.receive(phase, static_cast<int>(other), {slot, count});
    draft.combine(phase + 1, {sum, count}, is_low ? mine : slot, is_low ? slot : mine);
    mine = sum;
  }
  size_t end = request.start + 2 * (tree.levels() + 1);
  if (!request.arithmetic.after.none()) draft.scale_after(end, {kResult, count}, kResult);
}

Cost reduce_cost(const Operation& operation, const Shape& shape, const Table&) {
  TreeShape tree(static_cast<size_t>(shape.ranks()));
  Cost cost;
  cost.steps = tree.levels() + (tree.pairs() > 0 ? 1 : 0);
  cost.messages = 1;
  cost.bytes = operation.total_bytes();
  bool root_in_pair = tree.in_pair(static_cast<size_t>(operation.root));
  cost.reduced = 2 * (tree.levels() + (root_in_pair ? 1 : 0)) * operation.total_bytes();
  return spread_over_hosts(cost, shape);
}

}  // namespace horo::collective::tree
