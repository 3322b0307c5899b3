#include "horo/collective/halving/halving.h"

#include <algorithm>

#include "horo/collective/halving/fold.h"

namespace horo::collective::halving {

namespace {

/// The slices a leaf holds after some levels: bit k of the leaf chose the lower or the upper half at level k.
struct Held {
  size_t first = 0;
  size_t last = 0;
  size_t middle() const { return (first + last) / 2; }
  Held half(bool upper) const { return upper ? Held{middle(), last} : Held{first, middle()}; }
};

struct Step {
  int peer = 0;
  bool upper = false;
  Run kept;
  Run given;
};

std::vector<Step> steps_of(const TreeShape& tree, size_t leaf, const Cut& slices) {
  std::vector<Step> steps;
  Held held{0, tree.leaves()};
  for (size_t level = 0; level < tree.levels(); ++level) {
    bool upper = (leaf >> level & 1) == 1;
    Held kept = held.half(upper);
    Held given = held.half(!upper);
    steps.push_back({rank_of_leaf(tree, leaf ^ (size_t{1} << level)), upper, slices.span(kept.first, kept.last),
                     slices.span(given.first, given.last)});
    held = kept;
  }
  return steps;
}

/// Two phases per step, of which the second is empty where the receive is fused with the combination. It can be where
/// this member's part comes first, or where the order of two operands does not show.
void reduce_step(Draft& draft, size_t phase, const Step& step, Place mine, Place slot, bool any_order) {
  draft.send(phase, step.peer, {mine.at(step.given.offset), step.given.count});
  Range into{kResult.at(step.kept.offset), step.kept.count};
  Place own = mine.at(step.kept.offset);
  if (any_order || !step.upper) return draft.receive_combine(phase, step.peer, into, own);
  draft.receive(phase, step.peer, {slot, step.kept.count});
  draft.combine(phase + 1, into, slot, own);
}

}  // namespace

void draft_halving(const Request& request, Draft& draft) {
  TreeShape tree(static_cast<size_t>(request.shape.ranks()));
  Cut slices(request.operation.count, tree.leaves());
  Fold folded = fold(request, draft, tree);
  size_t levels = tree.levels();
  size_t gather = folded.ready + 2 * levels + 1;
  if (!folded.out) {
    bool any_order = commutes(request.operation.dtype, request.operation.op);
    auto steps = steps_of(tree, tree.leaf_of(static_cast<size_t>(request.rank)), slices);
    Place slot = draft.scratch(any_order ? 0 : steps[0].kept.count);
    Place mine = folded.source;
    for (size_t level = 0; level < levels; ++level) {
      reduce_step(draft, folded.ready + 2 * level, steps[level], mine, slot, any_order);
      mine = kResult;
    }
    Run own = steps.back().kept;
    Range reduced{kResult.at(own.offset), own.count};
    if (!request.arithmetic.after.none()) draft.scale_after(gather - 1, reduced, reduced.place);
    for (size_t level = levels; level-- > 0;) {
      const Step& step = steps[level];
      size_t phase = gather + (levels - 1 - level);
      draft.send(phase, step.peer, {kResult.at(step.kept.offset), step.kept.count});
      draft.receive(phase, step.peer, {kResult.at(step.given.offset), step.given.count});
    }
  }
  unfold(request, draft, tree, gather + levels);
}

Cost halving_cost(const Operation& operation, const Shape& shape, const Table&) {
  TreeShape tree(static_cast<size_t>(shape.ranks()));
  uint64_t element = size_of(operation.dtype);
  uint64_t folds = tree.pairs() > 0 ? 1 : 0;
  Cut slices(operation.count, tree.leaves());
  Cost cost;
  cost.steps = 2 * tree.levels() + 2 * folds;
  // Which leaf is busiest depends on how the remainders fall; leaves of pairs have one message more.
  for (size_t leaf = 0; leaf < tree.leaves(); ++leaf) {
    uint64_t extra = leaf < tree.pairs() ? 1 : 0;
    uint64_t messages = extra;
    uint64_t count = extra * operation.count;
    uint64_t reduced = extra * operation.count;
    for (const Step& step : steps_of(tree, leaf, slices)) {
      messages += (step.given.count > 0 ? 1 : 0) + (step.kept.count > 0 ? 1 : 0);
      count += step.given.count + step.kept.count;
      reduced += step.kept.count;
    }
    cost.messages = std::max(cost.messages, messages);
    cost.bytes = std::max(cost.bytes, count * element);
    cost.reduced = std::max(cost.reduced, 2 * reduced * element);
  }
  return spread_over_hosts(cost, shape);
}

}  // namespace horo::collective::halving
