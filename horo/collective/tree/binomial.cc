#include "horo/collective/tree/binomial.h"

#include <algorithm>
#include <bit>

#include "horo/collective/stage.h"

namespace horo::collective::tree {

namespace {

constexpr Place kResult{Buffer::kWork, 0};

/// The tree as seen from the root: member v is rank (root + v) mod members. An edge of length 2^k is used in round
/// levels - 1 - k on the way down, and in round k on the way up.
struct Tree {
  size_t members;
  size_t root;

  size_t levels() const { return static_cast<size_t>(log2_ceil(members)); }
  size_t member(int rank) const { return (static_cast<size_t>(rank) + members - root) % members; }
  int rank(size_t member) const { return static_cast<int>((root + member) % members); }
  /// The levels of the edges to a member's children are those below this.
  size_t child_levels(size_t member) const {
    return member == 0 ? levels() : static_cast<size_t>(std::countr_zero(member));
  }
  /// One past the last member of the subtree of `member`.
  size_t end(size_t member) const { return std::min(members, member + (size_t{1} << child_levels(member))); }
};

/// Ranks of consecutive members as runs of elements: one, or two where the ranks wrap around.
std::vector<Run> runs_of_members(const Tree& tree, std::span<const Run> parts, size_t first, size_t last) {
  std::vector<Run> runs;
  for (size_t member = first; member < last;) {
    auto rank = static_cast<size_t>(tree.rank(member));
    size_t length = std::min(last - member, tree.members - rank);
    Run run{parts[rank].offset, parts[rank + length - 1].end() - parts[rank].offset};
    if (run.count > 0) runs.push_back(run);
    member += length;
  }
  return runs;
}

/// Below the root, a subtree's parts lie in scratch in the order of members, which wraps nowhere.
uint64_t offset_in_subtree(const Tree& tree, std::span<const Run> parts, size_t top, size_t member) {
  uint64_t offset = 0;
  for (size_t before = top; before < member; ++before) offset += parts[static_cast<size_t>(tree.rank(before))].count;
  return offset;
}

void draft_broadcast(const Request& request, Draft& draft, const Tree& tree) {
  uint64_t count = request.operation.count;
  size_t self = tree.member(request.rank);
  size_t below = tree.child_levels(self);
  Place from = self == 0 ? request.source : kResult;
  if (self != 0) {
    int parent = tree.rank(self - (size_t{1} << below));
    draft.receive(request.start + tree.levels() - 1 - below, parent, {kResult, count});
  } else {
    draft.copy(request.start, {kResult, count}, request.source);
  }
  for (size_t level = below; level-- > 0;) {
    size_t child = self + (size_t{1} << level);
    if (child < tree.members) draft.send(request.start + tree.levels() - 1 - level, tree.rank(child), {from, count});
  }
}

/// Pieces of a subtree's data at this member: at the root those of the caller's array, elsewhere one run of scratch.
std::vector<Range> pieces(const Tree& tree, std::span<const Run> parts, size_t self, size_t child, Place base) {
  std::vector<Range> out;
  uint64_t offset = offset_in_subtree(tree, parts, self, child);
  for (Run run : runs_of_members(tree, parts, child, tree.end(child))) {
    out.push_back({base.at(self == 0 ? run.offset : offset), run.count});
    offset += run.count;
  }
  return out;
}

void draft_scatter(const Request& request, Draft& draft, const Tree& tree) {
  auto parts = runs_of(request.operation.counts);
  size_t self = tree.member(request.rank);
  size_t below = tree.child_levels(self);
  Run own = parts[static_cast<size_t>(request.rank)];
  Place base = request.source;
  size_t last = request.start + tree.levels();
  if (self != 0) {
    base = draft.scratch(offset_in_subtree(tree, parts, self, tree.end(self)));
    int parent = tree.rank(self - (size_t{1} << below));
    for (Range piece : pieces(tree, parts, self, self, base)) draft.receive(last - 1 - below, parent, piece);
  }
  for (size_t level = below; level-- > 0;) {
    size_t child = self + (size_t{1} << level);
    if (child >= tree.members) continue;
    for (Range piece : pieces(tree, parts, self, child, base)) draft.send(last - 1 - level, tree.rank(child), piece);
  }
  draft.copy(last, {kResult, own.count}, self == 0 ? base.at(own.offset) : base);
}

void draft_gather(const Request& request, Draft& draft, const Tree& tree) {
  auto parts = runs_of(request.operation.counts);
  size_t self = tree.member(request.rank);
  size_t below = tree.child_levels(self);
  Run own = parts[static_cast<size_t>(request.rank)];
  bool leaf = tree.end(self) == self + 1;
  Place base = self == 0 ? kResult : draft.scratch(leaf ? 0 : offset_in_subtree(tree, parts, self, tree.end(self)));
  if (self == 0 || !leaf)
    draft.copy(request.start, {self == 0 ? base.at(own.offset) : base, own.count}, request.source);
  for (size_t level = 0; level < below; ++level) {
    size_t child = self + (size_t{1} << level);
    if (child >= tree.members) continue;
    for (Range piece : pieces(tree, parts, self, child, base)) {
      draft.receive(request.start + level, tree.rank(child), piece);
    }
  }
  if (self == 0) return;
  int parent = tree.rank(self - (size_t{1} << below));
  for (Range piece : pieces(tree, parts, self, self, leaf ? request.source : base)) {
    draft.send(request.start + below, parent, piece);
  }
}

}  // namespace

void draft_binomial(const Request& request, Draft& draft) {
  Tree tree{static_cast<size_t>(request.shape.ranks()), static_cast<size_t>(request.operation.root)};
  if (request.operation.kind == Kind::kScatter) return draft_scatter(request, draft, tree);
  if (request.operation.kind == Kind::kGather) return draft_gather(request, draft, tree);
  draft_broadcast(request, draft, tree);
}

Cost binomial_cost(const Operation& operation, const Shape& shape, const Table&) {
  Tree tree{static_cast<size_t>(shape.ranks()), static_cast<size_t>(operation.root)};
  Cost cost;
  cost.steps = tree.levels();
  if (operation.kind == Kind::kBroadcast) {
    cost.messages = tree.levels();
    cost.bytes = tree.levels() * operation.total_bytes();
    return spread_over_hosts(cost, shape);
  }
  auto parts = runs_of(operation.counts);
  for (size_t member = 0; member < tree.members; ++member) {
    uint64_t messages = 0;
    uint64_t count = 0;
    auto add = [&](size_t top) {
      for (Run run : runs_of_members(tree, parts, top, tree.end(top))) {
        ++messages;
        count += run.count;
      }
    };
    if (operation.kind == Kind::kGather && member > 0) add(member);
    for (size_t level = 0; operation.kind == Kind::kScatter && level < tree.child_levels(member); ++level) {
      size_t child = member + (size_t{1} << level);
      if (child < tree.members) add(child);
    }
    cost.messages = std::max(cost.messages, messages);
    cost.bytes = std::max(cost.bytes, count * size_of(operation.dtype));
  }
  return spread_over_hosts(cost, shape);
}

}  // namespace horo::collective::tree
