// What is asked of a store and what it answers, as values and as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/base/status.h"
#include "horo/rendezvous/store.h"

namespace horo::rendezvous {

/// The values travel on the wire.
enum class StoreVerb : uint8_t {
  kSet = 1,
  kClaim = 2,
  kGet = 3,
  kAdd = 4,
  kList = 5,
  kWaitAll = 6,
  kMeet = 7,
  kWithdraw = 8
};

struct StoreRequest {
  StoreVerb verb = StoreVerb::kGet;
  std::string key;     ///< All but kList and kWaitAll.
  std::string prefix;  ///< kList, kWaitAll, kMeet.
  Bytes value;         ///< kSet, kClaim, kMeet, kWithdraw.
  int64_t delta = 0;   ///< kAdd.
  uint64_t count = 0;  ///< kWaitAll, kMeet.
  friend bool operator==(const StoreRequest&, const StoreRequest&) = default;
};

struct StoreReply {
  Status status;
  Bytes value;      ///< kClaim, kGet, kMeet.
  int64_t sum = 0;  ///< kAdd.
  Entries entries;  ///< kList, kWaitAll, kMeet.
};

Bytes encode(const StoreRequest& request);
Result<StoreRequest> decode_store_request(std::span<const std::byte> bytes);
Bytes encode(const StoreReply& reply);
/// The reply's own status is inside of it; an error here means that the bytes are no reply.
Result<StoreReply> decode_store_reply(std::span<const std::byte> bytes);

/// kInvalidArgument for keys and values beyond the limits.
Status check_request(const StoreRequest& request);

}  // namespace horo::rendezvous
