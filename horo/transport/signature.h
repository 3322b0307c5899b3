// What an operation is, in the 16 bytes that travel with every arrival so that ranks notice when they disagree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "horo/base/dtype.h"

namespace horo::transport {

/// The values travel on the wire.
enum class Kind : uint8_t {
  kBarrier = 0,
  kAllreduce = 1,
  kReduce = 2,
  kReduceScatter = 3,
  kAllgather = 4,
  kGather = 5,
  kScatter = 6,
  kBroadcast = 7,
  kAlltoall = 8,
  kSendRecv = 9,
  kRefused = 10,  ///< This rank cannot take part (it has no memory left, say); the payload says why.
};
inline constexpr int kKindCount = 11;

std::string_view name(Kind kind);

/// Equal on all members of a group for operation number k, or operation k fails on all of them.
struct Signature {
  Kind kind = Kind::kBarrier;
  DType dtype = DType::kByte;
  ReduceOp op = ReduceOp::kSum;
  uint8_t table = 0;   ///< Version of the selector's parameter table, and kOnDevice.
  uint32_t root = 0;   ///< Rank in the group, for rooted operations.
  uint64_t count = 0;  ///< Elements; for variable counts, a hash of all of them.

  /// Part of an operation on the memory of devices.
  static constexpr uint8_t kOnDevice = 0x80;

  friend bool operator==(const Signature&, const Signature&) = default;
  /// "allreduce of 1024 f32, sum"
  std::string to_string() const;
  /// The same, with the kind of memory where that is what differs: "..., in host memory".
  std::string beside(const Signature& other) const;
};
static_assert(sizeof(Signature) == 16);

}  // namespace horo::transport
