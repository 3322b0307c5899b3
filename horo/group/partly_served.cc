#include "horo/group/partly_served.h"

namespace horo::group {

std::optional<std::vector<std::byte>> PartlyServed::add(uint64_t group, uint64_t operation, uint64_t offset,
                                                        std::span<const std::byte> piece, bool is_last) {
  const std::pair key(group, operation);
  if (offset == 0) parts_[key].clear();
  const auto part = parts_.find(key);
  // A piece that does not follow is one that the other server has sent already, or of a result that is whole by now.
  if (part == parts_.end() || offset != part->second.size()) return std::nullopt;
  part->second.insert(part->second.end(), piece.begin(), piece.end());
  if (!is_last) return std::nullopt;
  std::vector<std::byte> whole = std::move(part->second);
  parts_.erase(part);
  return whole;
}

void PartlyServed::forget(uint64_t group) {
  std::erase_if(parts_, [&](const auto& part) { return part.first.first == group; });
}

}  // namespace horo::group
