#include "horo/collective/halving/fold.h"

namespace horo::collective::halving {

Fold fold(const Request& request, Draft& draft, const TreeShape& tree) {
  auto member = static_cast<size_t>(request.rank);
  size_t ready = request.start + (tree.pairs() > 0 ? 1 : 0);
  if (!tree.in_pair(member)) return {request.source, ready, false};
  uint64_t count = request.operation.count;
  if (tree.is_folded(member)) {
    draft.send(request.start, request.rank - 1, {request.source, count});
    return {request.source, ready, true};
  }
  draft.receive_combine(request.start, request.rank + 1, {kResult, count}, request.source);
  return {kResult, ready, false};
}

void unfold(const Request& request, Draft& draft, const TreeShape& tree, size_t phase) {
  auto member = static_cast<size_t>(request.rank);
  if (!tree.in_pair(member)) return;
  Range result{kResult, request.operation.count};
  if (tree.is_folded(member)) {
    draft.receive(phase, request.rank - 1, result);
  } else {
    draft.send(phase, request.rank + 1, result);
  }
}

}  // namespace horo::collective::halving
