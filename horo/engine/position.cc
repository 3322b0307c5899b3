#include "horo/engine/position.h"

#include <algorithm>

namespace horo::engine {

Position position_of(const collective::Shape& shape, int rank) {
  Position position;
  const std::vector<int>& local = shape.hosts()[shape.host_of(rank)];
  position.local_size = static_cast<int>(local.size());
  position.local_rank = static_cast<int>(std::find(local.begin(), local.end(), rank) - local.begin());
  position.cross_size = 0;
  for (size_t host = 0; host < shape.hosts().size(); ++host) {
    if (static_cast<int>(shape.hosts()[host].size()) <= position.local_rank) continue;
    if (host == shape.host_of(rank)) position.cross_rank = position.cross_size;
    ++position.cross_size;
  }
  position.homogeneous = shape.most_per_host() == shape.fewest_per_host();
  return position;
}

}  // namespace horo::engine
