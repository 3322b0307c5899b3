#include "horo/api/door.h"
#include "horo/api/handles.h"
#include "horo/base/text.h"
#include "horo/rendezvous/door.h"

namespace {

using horo::Code;
using horo::Result;
using horo::Status;

Result<std::shared_ptr<const horo::net::Key>> key_of(const void* key, size_t bytes) {
  if (key == nullptr) {
    HORO_ASSIGN(horo::net::Key none, horo::net::Key::none());
    return std::make_shared<const horo::net::Key>(std::move(none));
  }
  HORO_ASSIGN(horo::net::Key given, horo::net::Key::from_bytes({static_cast<const std::byte*>(key), bytes}));
  return std::make_shared<const horo::net::Key>(std::move(given));
}

constexpr auto kCallLimit = std::chrono::seconds(5);

/// Says something at the job's door, as one of those who use the store.
template <class Say>
horo_status* at_door(horo_store* store, const char* function, Say say) {
  return horo::api::guarded([&]() -> Status {
    if (store == nullptr) return {Code::kInvalidArgument, horo::text(function, ": the store is null")};
    const auto limit = horo::Deadline::after(kCallLimit);
    const horo::rendezvous::TcpStoreOptions options{store->job, store->key, nullptr};
    HORO_ASSIGN(auto client, horo::rendezvous::TcpStore::connect(store->server->address(), options, limit));
    horo::rendezvous::Door door(*client, store->job);
    return say(door, limit);
  });
}

}  // namespace

horo_status* horo_store_serve(const char* address, const char* job, const void* key, size_t key_bytes,
                              horo_store** store) {
  return horo::api::guarded([&]() -> Status {
    if (address == nullptr || job == nullptr || store == nullptr) {
      return {Code::kInvalidArgument, "horo_store_serve needs an address, a job and a place for the store"};
    }
    HORO_ASSIGN(horo::net::Address at, horo::net::Address::parse(address));
    HORO_ASSIGN(std::shared_ptr<const horo::net::Key> secret, key_of(key, key_bytes));
    auto handle = std::make_unique<horo_store>();
    HORO_ASSIGN(handle->server, horo::rendezvous::TcpStoreServer::start(at, {.job = job, .key = secret}));
    handle->job = job;
    handle->key = std::move(secret);
    handle->address = handle->server->address().to_string();
    *store = handle.release();
    return {};
  });
}

const char* horo_store_address(const horo_store* store) {
  return horo::api::is_absent(store, "horo_store_address", "store") ? "" : store->address.c_str();
}

horo_status* horo_store_ask_to_leave(horo_store* store, int seat, const char* why) {
  return at_door(store, "horo_store_ask_to_leave", [&](horo::rendezvous::Door& door, horo::Deadline limit) {
    return door.ask_to_leave(seat, why == nullptr ? "" : why, limit);
  });
}

horo_status* horo_store_newcomer_ended(horo_store* store, int seat) {
  return at_door(store, "horo_store_newcomer_ended", [&](horo::rendezvous::Door& door, horo::Deadline limit) {
    door.newcomer_ended(seat, limit);
    return Status();
  });
}

void horo_store_destroy(horo_store* store) {
  if (store != nullptr && store->process.is_current()) delete store;
}
