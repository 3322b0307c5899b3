#include "horo/rendezvous/request_store.h"

#include <utility>

#include "horo/base/text.h"

namespace horo::rendezvous {

namespace {

StoreRequest request_of(StoreVerb verb, std::string_view key, std::span<const std::byte> value = {}) {
  return {verb, std::string(key), {}, Bytes(value.begin(), value.end()), 0, 0};
}

}  // namespace

Result<StoreReply> RequestStore::checked(const StoreRequest& request, Deadline deadline) {
  HORO_TRY(check_request(request));
  HORO_ASSIGN(StoreReply reply, exchange(request, deadline));
  HORO_TRY(reply.status);
  return reply;
}

Status RequestStore::set(std::string_view key, std::span<const std::byte> value, Deadline deadline) {
  return checked(request_of(StoreVerb::kSet, key, value), deadline).status();
}

Result<Bytes> RequestStore::claim(std::string_view key, std::span<const std::byte> value, Deadline deadline) {
  HORO_ASSIGN(StoreReply reply, checked(request_of(StoreVerb::kClaim, key, value), deadline));
  return std::move(reply.value);
}

Result<Bytes> RequestStore::get(std::string_view key, Deadline deadline) {
  HORO_ASSIGN(StoreReply reply, checked(request_of(StoreVerb::kGet, key), deadline));
  return std::move(reply.value);
}

Result<int64_t> RequestStore::add(std::string_view key, int64_t delta, Deadline deadline) {
  StoreRequest request = request_of(StoreVerb::kAdd, key);
  request.delta = delta;
  HORO_ASSIGN(StoreReply reply, checked(request, deadline));
  return reply.sum;
}

Result<Entries> RequestStore::list(std::string_view prefix, Deadline deadline) {
  StoreRequest request = request_of(StoreVerb::kList, {});
  request.prefix = prefix;
  HORO_ASSIGN(StoreReply reply, checked(request, deadline));
  return std::move(reply.entries);
}

Result<Entries> RequestStore::wait_all(std::string_view prefix, size_t count, Deadline deadline) {
  StoreRequest request = request_of(StoreVerb::kWaitAll, {});
  request.prefix = prefix;
  request.count = count;
  HORO_ASSIGN(StoreReply reply, checked(request, deadline));
  return std::move(reply.entries);
}

Status RequestStore::withdraw(std::string_view key, std::span<const std::byte> value, Deadline deadline) {
  return checked(request_of(StoreVerb::kWithdraw, key, value), deadline).status();
}

Result<Meeting> RequestStore::meet(std::string_view prefix, std::string_view name, std::span<const std::byte> value,
                                   size_t count, Deadline deadline) {
  StoreRequest request = request_of(StoreVerb::kMeet, text(prefix, name), value);
  request.prefix = prefix;
  request.count = count;
  HORO_ASSIGN(StoreReply reply, checked(request, deadline));
  return Meeting{std::move(reply.value), std::move(reply.entries)};
}

}  // namespace horo::rendezvous
