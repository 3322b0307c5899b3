#include "horo/collective/hierarchy/layout.h"

#include <algorithm>

#include "horo/base/text.h"

namespace horo::collective::hierarchy {

Layout::Layout(const Shape& shape, int rank) : equal(is_equal(shape)) {
  size_t host = shape.host_of(rank);
  local.ranks = shape.hosts()[host];
  auto place = std::find(local.ranks.begin(), local.ranks.end(), rank);
  local.self = static_cast<size_t>(place - local.ranks.begin());
  leads = local.self == 0;
  size_t index = equal ? local.self : 0;
  for (const auto& members : shape.hosts()) cross.ranks.push_back(members[index]);
  cross.self = host;
}

std::string needs_two_levels(std::string_view algorithm, const Shape& shape) {
  if (shape.hosts().size() > 1 && shape.most_per_host() > 1) return {};
  return text(algorithm, " needs several hosts, one of them with several ranks; this group has ", shape.ranks(),
              " ranks on ", shape.hosts().size(), shape.hosts().size() == 1 ? " host" : " hosts");
}

}  // namespace horo::collective::hierarchy
