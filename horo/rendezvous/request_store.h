// A store by its one necessary function: carrying a request somewhere and bringing the reply back.
#pragma once

#include "horo/rendezvous/store_request.h"

namespace horo::rendezvous {

class RequestStore : public Store {
 public:
  Status set(std::string_view key, std::span<const std::byte> value, Deadline deadline) final;
  Result<Bytes> claim(std::string_view key, std::span<const std::byte> value, Deadline deadline) final;
  Result<Bytes> get(std::string_view key, Deadline deadline) final;
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) final;
  Result<Entries> list(std::string_view prefix, Deadline deadline) final;
  Result<Entries> wait_all(std::string_view prefix, size_t count, Deadline deadline) final;
  Result<Meeting> meet(std::string_view prefix, std::string_view name, std::span<const std::byte> value, size_t count,
                       Deadline deadline) final;
  Status withdraw(std::string_view key, std::span<const std::byte> value, Deadline deadline) final;

 private:
  /// An error: the request did not get there, or no reply came back in time.
  virtual Result<StoreReply> exchange(const StoreRequest& request, Deadline deadline) = 0;
  Result<StoreReply> checked(const StoreRequest& request, Deadline deadline);
};

}  // namespace horo::rendezvous
