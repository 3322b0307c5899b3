#include "horo/rendezvous/store_request.h"

#include <algorithm>

#include "horo/base/text.h"
#include "horo/net/codec.h"

namespace horo::rendezvous {

namespace {

constexpr size_t kMostMessageText = 4096;
constexpr size_t kMostReply = 16 << 20;

Bytes copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

Status check_request(const StoreRequest& request) {
  size_t key_bytes = std::max(request.key.size(), request.prefix.size());
  if (key_bytes > StoreLimits::kMostKey) {
    return Status(Code::kInvalidArgument,
                  text("a store key of ", key_bytes, " bytes is longer than ", StoreLimits::kMostKey));
  }
  if (request.value.size() > StoreLimits::kMostValue) {
    return Status(Code::kInvalidArgument, text("the value of store key '", request.key, "' has ", request.value.size(),
                                               " bytes, more than ", StoreLimits::kMostValue));
  }
  return {};
}

Bytes encode(const StoreRequest& request) {
  net::Writer writer;
  writer.u8(static_cast<uint8_t>(request.verb));
  writer.string(request.key);
  writer.string(request.prefix);
  writer.bytes(request.value);
  writer.u64(static_cast<uint64_t>(request.delta));
  writer.u64(request.count);
  HORO_CHECK(writer.ok(), "requests are checked before they are encoded");
  return writer.take();
}

Result<StoreRequest> decode_store_request(std::span<const std::byte> bytes) {
  net::Reader reader(bytes, "a store request");
  StoreRequest request;
  uint8_t verb = reader.u8();
  if (verb < static_cast<uint8_t>(StoreVerb::kSet) || verb > static_cast<uint8_t>(StoreVerb::kWithdraw)) {
    reader.fail("an unknown verb");
  }
  request.verb = static_cast<StoreVerb>(verb);
  request.key = reader.string(StoreLimits::kMostKey);
  request.prefix = reader.string(StoreLimits::kMostKey);
  request.value = copy(reader.bytes(StoreLimits::kMostValue));
  request.delta = static_cast<int64_t>(reader.u64());
  request.count = reader.u64();
  HORO_TRY(reader.finish());
  return request;
}

Bytes encode(const StoreReply& reply) {
  net::Writer writer(kMostReply);
  writer.u32(static_cast<uint32_t>(reply.status.code()));
  writer.string(std::string_view(reply.status.message()).substr(0, kMostMessageText));
  writer.bytes(reply.value);
  writer.u64(static_cast<uint64_t>(reply.sum));
  writer.count(reply.entries.size());
  for (const auto& [key, value] : reply.entries) {
    writer.string(key);
    writer.bytes(value);
  }
  HORO_CHECK(writer.ok(), "answers are limited so that a reply fits");
  return writer.take();
}

Result<StoreReply> decode_store_reply(std::span<const std::byte> bytes) {
  net::Reader reader(bytes, "a store reply");
  StoreReply reply;
  uint32_t code = reader.u32();
  std::string message = reader.string(kMostMessageText);
  if (code > static_cast<uint32_t>(Code::kInternal)) reader.fail("an unknown status code");
  if (reader.ok() && code != 0) reply.status = Status(static_cast<Code>(code), message);
  reply.value = copy(reader.bytes(StoreLimits::kMostValue));
  reply.sum = static_cast<int64_t>(reader.u64());
  size_t count = reader.count(StoreLimits::kMostEntries, 8);
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    std::string key = reader.string(StoreLimits::kMostKey);
    reply.entries[std::move(key)] = copy(reader.bytes(StoreLimits::kMostValue));
  }
  HORO_TRY(reader.finish());
  return reply;
}

}  // namespace horo::rendezvous
