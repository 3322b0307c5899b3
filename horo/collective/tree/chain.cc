#include "horo/collective/tree/chain.h"

#include "horo/collective/stage.h"

namespace horo::collective::tree {

namespace {

constexpr Place kResult{Buffer::kWork, 0};

/// The ranks from the root on around, but host by host, so that each host is entered once.
std::vector<int> chain_of(const Shape& shape, int root) {
  std::vector<int> chain{root};
  size_t first = shape.host_of(root);
  for (size_t step = 0; step < shape.hosts().size(); ++step) {
    for (int rank : shape.hosts()[(first + step) % shape.hosts().size()]) {
      if (rank != root) chain.push_back(rank);
    }
  }
  return chain;
}

}  // namespace

void draft_chain(const Request& request, Draft& draft) {
  auto chain = chain_of(request.shape, request.operation.root);
  size_t self = 0;
  while (chain[self] != request.rank) ++self;
  uint64_t count = segments(request.table, request.operation.count, request.element_bytes());
  Cut cut(request.operation.count, count);
  for (uint64_t s = 0; s < count; ++s) {
    Run run = cut.part(s);
    Range result{kResult.at(run.offset), run.count};
    size_t phase = request.start + s + self;
    Place from = self == 0 ? request.source.at(run.offset) : result.place;
    if (self > 0) draft.receive(phase - 1, chain[self - 1], result);
    if (self == 0) draft.copy(phase, result, request.source.at(run.offset));
    if (self + 1 < chain.size()) draft.send(phase, chain[self + 1], {from, run.count});
  }
}

Cost chain_cost(const Operation& operation, const Shape& shape, const Table& table) {
  auto ranks = static_cast<uint64_t>(shape.ranks());
  uint64_t count = segments(table, operation.count, size_of(operation.dtype));
  Cost cost;
  cost.steps = count + ranks - 2;
  cost.messages = count;
  cost.bytes = operation.total_bytes();
  if (shape.hosts().size() > 1) {
    // Of a host, only the last member of the chain there sends to another host.
    cost.remote_steps = shape.hosts().size() - 1 + count - 1;
    cost.remote_bytes = cost.bytes / static_cast<uint64_t>(shape.most_per_host());
  }
  return cost;
}

}  // namespace horo::collective::tree
