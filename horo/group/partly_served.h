// Results of a lost operation that a survivor sends to those who lack them, in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace horo::group {

/// What has come of them. If another rank is lost meanwhile a second survivor may serve the same result, and pieces of
/// both come in turns. Their bytes are the same.
class PartlyServed {
 public:
  /// The whole result, when this is the piece that it lacked.
  std::optional<std::vector<std::byte>> add(uint64_t group, uint64_t operation, uint64_t offset,
                                            std::span<const std::byte> piece, bool is_last);
  void forget(uint64_t group);

 private:
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::byte>> parts_;  ///< By group and operation.
};

}  // namespace horo::group
