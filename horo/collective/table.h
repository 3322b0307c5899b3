// The figures by which algorithms are compared. Agreed from the lowest rank, so that all members choose alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "horo/base/status.h"

namespace horo::collective {

struct Table {
  uint8_t version = 1;        ///< Travels in every signature: members that hold different tables notice.
  bool deterministic = true;  ///< HORO_DETERMINISTIC: the order of a float sum depends on the group alone.
  /// Up to so many summands floats are added in rank order; beyond, along the tree. Independent of sizes.
  uint32_t rank_order_limit = 32;
  /// A slice is cut into segments of about this size, so that one is reduced while the next travels.
  uint64_t segment_bytes = 256 * 1024;
  uint64_t most_segments = 1024;
  /// Seconds: per step (until the first byte of a message is there), per message posted, per byte sent, and per byte
  /// read by a reduction. "Remote" is between hosts, where the ranks of a host share one link.
  double local_step = 4e-6;
  double remote_step = 25e-6;
  double message = 1.5e-6;
  double local_byte = 1.0 / 6e9;
  double remote_byte = 1.0 / 1.2e9;
  double reduced_byte = 1.0 / 20e9;

  friend bool operator==(const Table&, const Table&) = default;
};

inline constexpr size_t kEncodedTableBytes = 70;

/// Little-endian, fixed size.
std::array<std::byte, kEncodedTableBytes> encode(const Table& table);
/// Refuses a wrong size and figures no table can have (zero segments, negative or infinite times).
Result<Table> decode_table(std::span<const std::byte> bytes);

/// Into how many segments slices are cut of which the longest has `count` elements: at most one per element.
uint64_t segments(const Table& table, uint64_t count, size_t element_bytes);

}  // namespace horo::collective
