#include "horo/collective/halving/doubling.h"

#include "horo/collective/halving/fold.h"

namespace horo::collective::halving {

/// A step takes two phases: the partner's part arrives in scratch, then both combine in the same order (lower, higher),
/// so that they hold the same bits.
void draft_doubling(const Request& request, Draft& draft) {
  TreeShape tree(static_cast<size_t>(request.shape.ranks()));
  uint64_t count = request.operation.count;
  Fold folded = fold(request, draft, tree);
  size_t phase = folded.ready + 2 * tree.levels();
  bool scaled = !request.arithmetic.after.none();
  if (!folded.out) {
    Place slot = draft.scratch(count);
    size_t leaf = tree.leaf_of(static_cast<size_t>(request.rank));
    Place mine = folded.source;
    for (size_t level = 0; level < tree.levels(); ++level) {
      size_t partner = leaf ^ (size_t{1} << level);
      int peer = rank_of_leaf(tree, partner);
      draft.send(folded.ready + 2 * level, peer, {mine, count});
      draft.receive(folded.ready + 2 * level, peer, {slot, count});
      Place first = leaf < partner ? mine : slot;
      Place second = leaf < partner ? slot : mine;
      draft.combine(folded.ready + 2 * level + 1, {kResult, count}, first, second);
      mine = kResult;
    }
    if (scaled) draft.scale_after(phase, {kResult, count}, kResult);
  }
  unfold(request, draft, tree, phase + (scaled ? 1 : 0));
}

Cost doubling_cost(const Operation& operation, const Shape& shape, const Table&) {
  TreeShape tree(static_cast<size_t>(shape.ranks()));
  uint64_t folds = tree.pairs() > 0 ? 1 : 0;
  Cost cost;
  cost.steps = tree.levels() + 2 * folds;
  cost.messages = tree.levels() + folds;
  cost.bytes = cost.messages * operation.total_bytes();
  cost.reduced = 2 * cost.messages * operation.total_bytes();
  return spread_over_hosts(cost, shape);
}

}  // namespace horo::collective::halving
