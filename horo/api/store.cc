#include "horo/api/handles.h"

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
    HORO_ASSIGN(handle->server, horo::rendezvous::TcpStoreServer::start(at, {.job = job, .key = std::move(secret)}));
    handle->address = handle->server->address().to_string();
    *store = handle.release();
    return {};
  });
}

const char* horo_store_address(const horo_store* store) {
  return horo::api::is_absent(store, "horo_store_address", "store") ? "" : store->address.c_str();
}

void horo_store_destroy(horo_store* store) { delete store; }
